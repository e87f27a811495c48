//! Commands that a task starts.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::cpu;

/// A failure, as a sentence.
pub(crate) type Failure = String;

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in the repository")
}

/// Returns the folder in which cargo builds.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target)
}

/// Returns a command in the root of the repository.
pub(crate) fn command(program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Returns a command for the cargo that runs this task.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
}

/// As [`cargo`], with a progress bar on a terminal, and otherwise without a line for each crate.
pub(crate) fn cargo_build(arguments: &[&str]) -> Command {
    let mut cargo = cargo(arguments);
    if !std::io::stderr().is_terminal() {
        cargo.arg("--quiet");
    }
    cargo
}

/// Runs a command to its end; anything but success is a failure.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.spawn().and_then(cpu::wait);
    let status = status.map_err(|error| format!("cannot start {}: {error}", text(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed with {status}", text(command))) }
}

/// Runs a command to its end and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    command.stderr(Stdio::inherit());
    let output = outputs(command).map_err(|error| format!("cannot start {}: {error}", text(command)))?;
    if !output.status.success() {
        return Err(format!("{} failed with {}", text(command), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("the output of {} is not UTF-8", text(command)))
}

/// Runs a command whose output is shown only if it fails.
pub(crate) fn run_quiet(command: &mut Command) -> Result<(), Failure> {
    command.stderr(Stdio::piped());
    let output = outputs(command).map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Runs a command to its end and returns what it printed. Its errors are returned only if they go to a pipe.
pub(crate) fn outputs(command: &mut Command) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (printed, errors) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = thread::scope(|scope| {
        let errors = scope.spawn(|| errors.map_or_else(|| Ok(Vec::new()), read));
        let printed = printed.map_or_else(|| Ok(Vec::new()), read);
        (printed, errors.join().expect("reading does not panic"))
    });
    let status = cpu::wait(child)?;
    Ok(Output { status, stdout: stdout?, stderr: stderr? })
}

fn read(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).map(|_| bytes)
}

fn text(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
