//! The binary that the tests of the command line start, and what it says.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The lab on the software device, whatever the machine has and the caller's environment says.
pub(crate) fn lab() -> Command {
    let mut command = Command::new(binary());
    command.arg("lab").env("FREEHOLD_DEVICE", "soft").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

/// The binary that was built with the tests, or the one beside them where they were taken to another machine.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("FREEHOLD_BIN").map_or_else(|| env!("CARGO_BIN_EXE_freehold").into(), PathBuf::from)
}

/// Where `freehold run` leaves the library when tests start it.
pub(crate) fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.output().expect("the binary starts")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

/// Nothing on standard output, one line on standard error, exit status 2.
pub(crate) fn refused_with(command: &mut Command, sentence: &str) {
    let output = output(command);
    assert_eq!(text(&output.stderr), format!("error: {sentence}\n"));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}
