//! The step of `cargo xtask test` that counts the instructions of the warm path, so that a regression shows on any machine.
//!
//! valgrind counts all that a process executes. Two runs that differ in the number of pairs differ by those pairs alone.

use std::process::Stdio;

use crate::command::{Failure, cargo, command, quiet, run, target};

/// Pairs of the shorter run. The longer one has twice as many.
const PAIRS: u64 = 100_000;

/// The sizes of blocks, with their names.
const SIZES: [(&str, u64); 3] = [("512 B", 512), ("64 KiB", 64 << 10), ("2 MiB", 2 << 20)];

/// How a pair is asked for, and how many instructions it has at the most, with those of the loop. More than this is a mistake,
/// not another compiler.
const WAYS: [(&str, f64); 2] = [("c", 250.0), ("blocks", 330.0)];

/// Counts for each size, and prints what came out before it judges.
pub(crate) fn instructions() -> Result<(), Failure> {
    run(&mut cargo(&["build", "--release", "--package", "freehold-capi", "--example", "warm_path"]))?;
    valgrind()?;
    let mut above = Vec::new();
    for (way, instructions_max) in WAYS {
        for (name, bytes) in SIZES {
            let pair = (executed(way, 2 * PAIRS, bytes)? - executed(way, PAIRS, bytes)?) / PAIRS as f64;
            println!("allocate and free {name}, {way}: {pair:.1} instructions");
            if pair > instructions_max {
                above.push(format!("{name}, {way}, more than {instructions_max}"));
            }
        }
    }
    if above.is_empty() {
        return Ok(());
    }
    Err(format!("pairs with too many instructions: {}", above.join("; ")))
}

/// Installs valgrind where there is none.
fn valgrind() -> Result<(), Failure> {
    if quiet(&mut command("valgrind", &["--version"])).is_ok() {
        return Ok(());
    }
    println!("valgrind is installed");
    quiet(command("apt-get", &["install", "--yes", "valgrind"]).stdin(Stdio::null()))
        .map_err(|failure| format!("there is no valgrind, install it: {failure}"))
}

/// All instructions of a run.
fn executed(way: &str, pairs: u64, bytes: u64) -> Result<f64, Failure> {
    let mut counted = command("valgrind", &["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    counted.arg(target().join("release/examples/warm_path")).args([way, &pairs.to_string(), &bytes.to_string()]);
    let output = counted
        .env("FREEHOLD_DEVICE", "soft")
        .output()
        .map_err(|error| format!("{counted:?} does not start: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("{counted:?} counted nothing, {}:\n{said}", output.status))
}
