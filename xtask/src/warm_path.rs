//! The step of `cargo xtask test` that counts the instructions of the warm path, so that a regression shows on any
//! machine.
//!
//! valgrind counts what the loop over the pairs executes, including everything that it calls.

use std::process::Stdio;

use crate::apt;
use crate::command::{Failure, cargo, command, outputs, run, target};
use crate::runner::Case;

const PROFILE: &str = "counted";

const PAIRS: u64 = 100_000;

/// The sizes of blocks, with their names.
const SIZES: [(&str, u64); 3] = [("512 B", 512), ("64 KiB", 64 << 10), ("2 MiB", 2 << 20)];

/// How a pair is requested, the function with the loop, and the maximum number of instructions per pair, including the
/// loop's. More than this is a regression, not a difference between compilers.
const METHODS: [(&str, &str, f64); 2] =
    [("c", "warm_path::pairs_by_address", 195.0), ("blocks", "warm_path::pairs_by_block", 285.0)];

/// Builds the program with the optimizations of a release where they matter: see the profile. A binary, because an example is built
/// with what the tests of its package need.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    apt::packages()?;
    let build = ["build", "--quiet", "--profile", PROFILE, "--package", "freehold-capi", "--bin", "warm_path"];
    run(cargo(&build).args(["--features", "warm-path"]))?;
    Ok(vec![Case::call("instruction counts", "cargo xtask test --only instruction", check_counts)])
}

/// Counts for each size, and prints the results before it checks them.
fn check_counts() -> Result<(), Failure> {
    let mut above = Vec::new();
    for (method, function, instructions_max) in METHODS {
        for (name, bytes) in SIZES {
            let pair = instructions_per_pair(method, function, bytes)? / PAIRS as f64;
            println!("allocate and free {name}, {method}: {pair:.1} instructions");
            if pair > instructions_max {
                above.push(format!("{name}, {method}, more than {instructions_max}"));
            }
        }
    }
    if above.is_empty() {
        return Ok(());
    }
    Err(format!("pairs with too many instructions: {}", above.join("; ")))
}

/// Returns the number of instructions per pair.
fn instructions_per_pair(method: &str, function: &str, bytes: u64) -> Result<f64, Failure> {
    let mut counted = command("valgrind", &["--tool=callgrind"]);
    // Not /dev/null: valgrind, run as root, would replace it by a file.
    counted.arg(format!("--callgrind-out-file={}", target().join("xtask/callgrind").display()));
    counted.arg(format!("--toggle-collect={function}"));
    counted.arg(target().join(PROFILE).join("warm_path")).args([method, &PAIRS.to_string(), &bytes.to_string()]);
    let output = outputs(counted.env("FREEHOLD_DEVICE", "soft").stderr(Stdio::piped()))
        .map_err(|error| format!("cannot start {counted:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("{counted:?} counted nothing, {}:\n{said}", output.status))
}
