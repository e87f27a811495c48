//! `freehold run --limit`: what a program may have of a device. The programs are the C files beside this one.
//!
//! The tests of the counting set `FREEHOLD_LIMIT` alone, on a software device of 8 GiB: there, as on a GPU, only the runtime
//! and the audit library know of the limit.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{binary, cache, output, refused_with, runtime_program, text};

const MIB: u64 = 1 << 20;

/// Compiles a program of this folder.
fn built(name: &str, options: &[&str]) -> PathBuf {
    runtime_program(&Path::new("limit").join(name), options)
}

/// Returns `freehold run OPTIONS -- PROGRAM`.
fn run(options: &[&str], program: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(["run", "--device", "soft"]).args(options).arg("--").arg(program);
    command.env("XDG_CACHE_HOME", cache()).env_remove("FREEHOLD_CUDAFREE").stdin(Stdio::null());
    command
}

/// Returns what a program prints on a device of 8 GiB if the runtime counts up to a limit.
fn counted(limit_bytes: u64, program: &Path, change: impl FnOnce(&mut Command)) -> String {
    let mut command = run(&[], program);
    command.env("FREEHOLD_LIMIT", limit_bytes.to_string()).env("FREEHOLD_SOFT_MEMORY", "8GiB");
    change(&mut command);
    let output = output(&mut command);
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).to_owned()
}

/// What a program prints that has 63 MiB and 1 MiB of 64 MiB, and asks for a byte.
const TO_THE_LIMIT: &str = "0 0 2, 0 of 67108864 and 67108864, 0 1048576, 2 0\n";

#[test]
fn calls_of_the_driver_are_counted_however_the_program_finds_its_functions() {
    let program = built("entries", &[]);
    for how in ["dlsym", "default", "driver", "runtime"] {
        let printed = counted(64 * MIB, &program, |command| _ = command.arg(how));
        assert_eq!(printed, format!("{how}: {TO_THE_LIMIT}"));
    }
    for options in [["-DLINKED", "-Wl,-z,lazy"], ["-DLINKED", "-Wl,-z,now"]] {
        let printed = counted(64 * MIB, &built("entries", &options), |command| _ = command.arg("linked"));
        assert_eq!(printed, format!("linked: {TO_THE_LIMIT}"), "{options:?}");
    }
}

#[test]
fn without_a_limit_a_program_has_the_whole_device() {
    let mut command = run(&[], &built("entries", &[]));
    let output = output(command.arg("dlsym").env("FREEHOLD_SOFT_MEMORY", "256MiB").env_remove("FREEHOLD_LIMIT"));
    let size = 256 * MIB;
    let expected = format!("dlsym: 0 0 0, {} of {size} and {size}, 0 {}, 0 0\n", 190 * MIB, 190 * MIB);
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn functions_that_a_program_is_linked_with_are_counted_without_calls_to_bind() {
    // What `--limit` preloads.
    let mut folder = Command::new(binary());
    folder.args(["run", "--print-libcuda"]).env("XDG_CACHE_HOME", cache()).stdin(Stdio::null());
    let library = Path::new(text(&output(&mut folder).stdout).trim_end()).join("libfreehold_limit.so");
    for options in [["-DLINKED", "-fno-plt"], ["-DADDRESSES", "-O0"]] {
        let printed = counted(64 * MIB, &built("entries", &options), |command| {
            command.arg("linked").env("LD_PRELOAD", &library);
        });
        assert_eq!(printed, format!("linked: {TO_THE_LIMIT}"), "{options:?}");
    }
    let preloaded = output(&mut run(&["--limit", "1GiB"], Path::new("env")));
    assert!(text(&preloaded.stdout).contains("/libfreehold_limit.so"));
    let preloaded = output(&mut run(&[], Path::new("env")));
    assert!(!text(&preloaded.stdout).contains("/libfreehold_limit.so"));
}

/// What `kinds` prints: for each kind the bytes in use, the error beyond the limit, and that its memory is free again.
const KINDS: &str = "total: 134217728
linear: 104857600 bytes, 2, 0
pitched: 1048576 bytes of 1048576, 0, 2
managed: 52428800 bytes, 0, 2
array: 4194304 bytes, 0, 2
mipmapped: 5242880 bytes, 0, 2
created: 67108864 bytes, 2, mapped 67108864, retained 67108864, released 0
pool: 1, 2, 0 after, 0
graph: 2 0 0 0 0, 1, 0, 0 after
context: 104857600 bytes, 0 after
reset: 0 after
";

#[test]
fn every_kind_of_memory_is_counted_and_free_again() {
    let program = built("kinds", &[]);
    assert_eq!(counted(128 * MIB, &program, |_| ()), KINDS);
    let deferred = counted(128 * MIB, &program, |command| _ = command.env("FREEHOLD_CUDAFREE", "deferred"));
    assert_eq!(deferred, KINDS);
}

#[test]
fn threads_get_exactly_the_limit_together() {
    let program = built("threads", &[]);
    for frees in ["driver", "synchronous", "deferred"] {
        let printed = counted(64 * MIB, &program, |command| _ = command.env("FREEHOLD_CUDAFREE", frees));
        assert_eq!(printed, "64 to 64 of 64 blocks, 67108864 of 67108864 left\n", "{frees}");
    }
}

#[test]
fn an_allocation_waits_for_freed_blocks_that_it_needs() {
    let printed = counted(64 * MIB, &built("deferred", &[]), |command| {
        command.env("FREEHOLD_CUDAFREE", "deferred");
    });
    let expected = "0
0 67108864 67108864, cudaMalloc: 0
0 67108864 67108864, cuMemAlloc: 0
0 0
0 67108864 67108864, cudaMallocArray: 0
2 0 0
";
    assert_eq!(printed, expected);
}

#[test]
fn a_software_device_has_the_size_of_the_limit() {
    // The device gives whole pages of 2 MiB, so that a block of 63 MiB takes all.
    let program = built("entries", &[]);
    for (limit, memory) in [("64MiB", "8GiB"), ("67108865", "8GiB"), ("1TiB", "64MiB")] {
        let output = output(run(&["--limit", limit], &program).arg("dlsym").env("FREEHOLD_SOFT_MEMORY", memory));
        let expected = "dlsym: 0 2 2, 0 of 67108864 and 67108864, 0 0, 2 2\n";
        let warning = "warning: --limit 1.0 TiB changes nothing: the software device has 64.0 MiB, which FREEHOLD_SOFT_MEMORY \
                       sets\n";
        let said = if limit == "1TiB" { warning } else { "" };
        assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, said), "{limit}");
    }
}

#[test]
fn a_wrong_limit_is_one_sentence() {
    for (limit, sentence) in [
        ("8GiBs", "expected a number and a unit such as 8GiB, found \"8GiBs\""),
        ("", "expected a number and a unit such as 8GiB, found \"\""),
        ("63MiB", "expected at least 64MiB, found \"63MiB\""),
        ("99999999TiB", "\"99999999TiB\" overflows u64"),
    ] {
        let mut command = run(&["--limit", limit], Path::new("true"));
        let sentence = format!("invalid value '{limit}' for '--limit <SIZE>': {sentence}; see `freehold run --help`");
        refused_with(&mut command, &sentence);
    }
    for (limit, sentence) in [
        ("8GiBs", "expected a number and a unit such as 8GiB, found \"8GiBs\""),
        ("63MiB", "expected at least 64MiB, found \"63MiB\""),
    ] {
        let mut command = run(&[], Path::new("true"));
        refused_with(command.env("FREEHOLD_LIMIT", limit), &format!("FREEHOLD_LIMIT: {sentence}"));
    }
}

#[test]
fn the_variable_takes_a_unit_too() {
    let program = built("entries", &[]);
    let printed = counted(0, &program, |command| _ = command.arg("dlsym").env("FREEHOLD_LIMIT", "64MiB"));
    assert_eq!(printed, format!("dlsym: {TO_THE_LIMIT}"));
}
