//! The binary that the tests of the command line start.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

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
