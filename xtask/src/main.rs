//! The tasks of this repository: `cargo xtask check`, `test`, `soak`, `library`, `bundle` and `kernels`.
//!
//! # Modules, from bottom to top
//!
//! - `cpu`, `command`, `apt`, `pip`: commands, their processor time, and packages that the tests need.
//! - `runner`: runs cases in parallel, each in a process of its own, and prints the command that repeats a failure.
//! - `programs`: what cargo builds, and the tests in it.
//! - `nvcc`: NVIDIA's compiler.
//! - A file for each step: `headers`, `kernels`, `cuda_programs`, `corpus`, `library`, `fuzz`, `grpc`, `mpi`, `opencl`, `cudarc`,
//!   `pycuda`, `numba_cupy`, `wheel`, `torch`, `rmm`, `checked`, `warm_path`, `dependencies`, `publish`, `bundle`.
//! - `steps`: what `check` and `test` do. `soak`: random tests and fuzz targets until the time is up.
//!
//! `check` and `test` prepare all steps first, in two lanes: one builds in cargo's target folder, the other downloads and
//! builds elsewhere. Then they run all cases together.
//!
//! # Invariants
//!
//! - A step installs what it needs, so that the tasks run on a fresh machine with Rust, a C compiler and Python.
//! - A test costs no other test: its process may hang, abort or be killed.
//! - Effort and seeds are passed to the tests in the environment: see the crate `freehold-testing`.
//! - `tests/docs.rs` checks links and quoted GPU answers of the documents.

mod apt;
mod bundle;
mod checked;
mod command;
mod corpus;
mod cpu;
mod cuda_programs;
mod cudarc;
mod dependencies;
mod fuzz;
mod grpc;
mod headers;
mod kernels;
mod library;
mod mpi;
mod numba_cupy;
mod nvcc;
mod opencl;
mod pip;
mod programs;
mod publish;
mod pycuda;
mod rmm;
mod runner;
mod soak;
mod steps;
mod torch;
mod warm_path;
mod wheel;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use steps::Tier;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of this repository")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run before each commit: formatting, lints, and all tests at quick effort
    Check {
        /// Run only the steps whose names contain WORDS
        #[arg(long, value_name = "WORDS", default_value = "")]
        only: String,
    },
    /// Run everything that must pass: tests at moderate effort, other projects' test suites, examples, lab, docs, fuzz targets
    Test {
        /// Run only the steps whose names contain WORDS
        #[arg(long, value_name = "WORDS", default_value = "")]
        only: String,
    },
    /// Run random tests and fuzz targets with fresh seeds for a while, and report what was covered
    Soak {
        /// How long to start new tests; running ones are finished
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        minutes: u64,
        /// Run only the tests and fuzz targets whose names contain WORDS
        #[arg(long, value_name = "WORDS", default_value = "")]
        only: String,
    },
    /// Build the C interface: libfreehold.so and freehold.h, side by side
    Library,
    /// Build the Python package: a wheel with the library, the command and the software device
    Wheel,
    /// Create a folder with the binary, the tests and a script, to run on a machine that has a GPU and no Rust
    Bundle {
        /// The folder to create; an older bundle there is replaced
        #[arg(default_value = "bundle")]
        folder: std::path::PathBuf,
    },
    /// Rebuild the PTX of the test data and of the example from its sources, with compilers installed by pip
    Kernels {
        /// Only report what would change
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    if let Some(cargo) = std::env::var_os(dependencies::REAL_CARGO) {
        return finish(dependencies::stand_in(&cargo));
    }
    let outcome = match Arguments::parse().task {
        Task::Check { only } => steps::run_all(Tier::Check, &only),
        Task::Test { only } => steps::run_all(Tier::Test, &only),
        Task::Soak { minutes, only } => soak::run(Duration::from_secs(60 * minutes), &only),
        Task::Library => {
            library::make(&[]).map(|library| println!("{}\n{}", library.object.display(), library.header.display()))
        }
        Task::Wheel => wheel::make(),
        Task::Bundle { folder } => bundle::make(&folder),
        Task::Kernels { check } => {
            kernels::make(if check { kernels::OutputMode::Compare } else { kernels::OutputMode::Write })
                .and_then(|()| kernels::assemble())
        }
    };
    finish(outcome)
}

fn finish(outcome: Result<(), command::Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
