//! `cargo xtask test`: everything that must pass, on a machine that has Rust and gcc.

use std::process::Command;
use std::time::Instant;

use crate::command::{Failure, cargo, command, run};
use crate::cudarc;
use crate::fuzz;
use crate::grpc;
use crate::headers;
use crate::kernels;
use crate::mpi;
use crate::opencl;
use crate::programs::{Kind, freehold, tested};
use crate::pycuda;
use crate::warm_path;

/// A step with the words that announce it.
type Step = (&'static str, fn() -> Result<(), Failure>);

const STEPS: &[Step] = &[
    ("the tools: rustfmt and clippy", tools),
    ("formatting", || run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("lints", || run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    ("tests and doc tests", || run(&mut cargo(&["test", "--workspace"]))),
    ("the examples", examples),
    ("benchmarks, once each", || run(&mut cargo(&["test", "--workspace", "--bench", "*"]))),
    ("the driver's contract, work at once", || contract("eager")),
    ("the driver's contract, by a seed", || contract("seed:1")),
    ("the kernels of the test data, by ptxas", kernels::assemble),
    ("our library and header, by NVIDIA's headers", headers::agree),
    ("the tests of cudarc on our library", cudarc::tests),
    ("a PyCUDA program on our library", pycuda::program),
    ("a gate, by Python's gRPC", grpc::peer),
    ("OpenCL, on PoCL", opencl::contract),
    ("device buffers through Open MPI", mpi::open_mpi),
    ("device buffers through MPICH", mpi::mpich),
    ("the instructions of the warm path", warm_path::instructions),
    ("fuzz targets, for 20 seconds each", fuzz::short_runs),
    ("documentation", || run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))),
    ("the lab", || run(Command::new(freehold()?).args(["lab", "--device", "soft"]))),
];

/// Runs the steps whose names have these words: all, where there are no words.
pub(crate) fn steps(words: &str) -> Result<(), Failure> {
    let start = Instant::now();
    let chosen: Vec<_> = STEPS.iter().filter(|(name, _)| name.contains(words)).collect();
    if chosen.is_empty() {
        return Err(format!("no step is called {words:?}"));
    }
    for (index, (name, step)) in chosen.iter().enumerate() {
        println!("\n== {} of {}: {name}", index + 1, chosen.len());
        let start = Instant::now();
        step()?;
        println!("== {name}: passed in {:.0} s", start.elapsed().as_secs_f64());
    }
    println!("\nAll {} steps passed in {:.0} s.", chosen.len(), start.elapsed().as_secs_f64());
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

/// The numbered examples, in their order, on the software device.
fn examples() -> Result<(), Failure> {
    let numbered = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    let mut programs = tested()?;
    programs.retain(|program| program.kind == Kind::Example && numbered(&program.name));
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    if programs.is_empty() {
        return Err("cargo built no numbered example".to_owned());
    }
    for program in programs {
        println!("-- {}", program.name);
        run(program.command().env("FREEHOLD_DEVICE", "soft"))?;
    }
    Ok(())
}

/// The tests of the software driver under another schedule than its default one.
fn contract(schedule: &str) -> Result<(), Failure> {
    let mut programs = tested()?;
    programs.retain(|program| program.kind == Kind::Test && program.name.starts_with("softcuda."));
    if programs.is_empty() {
        return Err("cargo built no tests of the software driver".to_owned());
    }
    for program in programs {
        println!("-- {}", program.name);
        // Random calls choose their schedules themselves.
        run(program.command().args(["--skip", "random_calls"]).env("FREEHOLD_SOFT_SCHEDULE", schedule))?;
    }
    Ok(())
}
