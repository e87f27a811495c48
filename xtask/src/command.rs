//! Commands that a task starts.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    let status = command.status().map_err(|error| format!("cannot start {}: {error}", text(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed with {status}", text(command))) }
}

/// Runs a command to its end and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", text(command)))?;
    if !output.status.success() {
        return Err(format!("{} failed with {}", text(command), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("the output of {} is not UTF-8", text(command)))
}

/// Runs a command whose output is shown only if it fails.
pub(crate) fn run_quiet(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn text(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
