//! The binary that the tests of the command line start, and its output.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Returns the lab on the software device, whatever the machine and the environment.
pub(crate) fn lab() -> Command {
    let mut command = Command::new(binary());
    command.arg("lab").env("FREEHOLD_DEVICE", "soft").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

/// Returns the binary built with the tests, or the one beside them if they were copied to another machine.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("FREEHOLD_BIN").map_or_else(|| env!("CARGO_BIN_EXE_freehold").into(), PathBuf::from)
}

/// Returns where `freehold run` keeps the library in tests.
pub(crate) fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.output().expect("the binary starts")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is UTF-8")
}

/// Checks for an empty standard output, one line on standard error, and exit status 2.
pub(crate) fn refused_with(command: &mut Command, sentence: &str) {
    let output = output(command);
    assert_eq!(text(&output.stderr), format!("error: {sentence}\n"));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}
