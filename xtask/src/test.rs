//! `cargo xtask test`: everything that must pass, on a machine that has Rust and gcc.

use std::fs;
use std::time::Instant;

use crate::command::{Failure, cargo, command, root, run};
use crate::cudarc;
use crate::fuzz;
use crate::grpc;
use crate::headers;
use crate::kernels;
use crate::mpi;
use crate::opencl;
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
    ("benchmarks, once each", || run(&mut cargo(&["test", "--workspace", "--benches"]))),
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
    ("the lab", || run(&mut cargo(&["run", "--", "lab", "--device", "soft"]))),
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

/// The packages that have numbered examples, and where those lie.
const EXAMPLES: [(&str, &str); 2] =
    [("freehold", "crates/freehold/examples"), ("freehold-broker", "crates/broker/examples")];

/// The numbered examples, in their order, on the software device.
fn examples() -> Result<(), Failure> {
    for (package, folder) in EXAMPLES {
        let folder = root().join(folder);
        let failed = |error| format!("{}: {error}", folder.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if let Some(name) =
                name.strip_suffix(".rs").filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        for name in names {
            println!("-- {name}");
            run(cargo(&["run", "--quiet", "--package", package, "--example", &name]).env("FREEHOLD_DEVICE", "soft"))?;
        }
    }
    Ok(())
}

/// The tests of the software driver under another schedule than its default one.
fn contract(schedule: &str) -> Result<(), Failure> {
    // Random calls choose their schedules themselves.
    let others = ["test", "--package", "freehold-softcuda", "--", "--skip", "random_calls"];
    run(cargo(&others).env("FREEHOLD_SOFT_SCHEDULE", schedule))
}
