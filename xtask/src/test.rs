//! `cargo xtask test`: everything that must pass, on a machine that has Rust and gcc.

use std::time::Instant;

use crate::command::{Failure, cargo, command, run};
use crate::fuzz;
use crate::kernels;

/// A step with the words that announce it.
type Step = (&'static str, fn() -> Result<(), Failure>);

const STEPS: &[Step] = &[
    ("the tools: rustfmt and clippy", tools),
    ("formatting", || run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("lints", || run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    ("tests and doc tests", || run(&mut cargo(&["test", "--workspace"]))),
    ("benchmarks, once each", || run(&mut cargo(&["test", "--workspace", "--benches"]))),
    ("the driver's contract, work at once", || contract("eager")),
    ("the driver's contract, by a seed", || contract("seed:1")),
    ("the kernels of the test data, by ptxas", kernels::assemble),
    ("fuzz targets, for 20 seconds each", fuzz::short_runs),
    ("documentation", || run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))),
    ("the lab", || run(&mut cargo(&["run", "--", "lab", "--device", "soft"]))),
];

pub(crate) fn everything() -> Result<(), Failure> {
    let start = Instant::now();
    for (index, (name, step)) in STEPS.iter().enumerate() {
        println!("\n== {} of {}: {name}", index + 1, STEPS.len());
        let start = Instant::now();
        step()?;
        println!("== {name}: passed in {:.0} s", start.elapsed().as_secs_f64());
    }
    println!("\nAll {} steps passed in {:.0} s.", STEPS.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn tools() -> Result<(), Failure> {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if run(&mut cargo(&[tool, "--version"])).is_err() {
            run(&mut command("rustup", &["component", "add", component]))?;
        }
    }
    Ok(())
}

/// The tests of the software driver under another schedule than its default one.
fn contract(schedule: &str) -> Result<(), Failure> {
    run(cargo(&["test", "--package", "freehold-softcuda"]).env("FREEHOLD_SOFT_SCHEDULE", schedule))
}
