//! The tasks of this repository: `cargo xtask test`, `cargo xtask library`, `cargo xtask bundle` and `cargo xtask kernels`.

mod apt;
mod bundle;
mod command;
mod cudarc;
mod fuzz;
mod grpc;
mod headers;
mod kernels;
mod library;
mod mpi;
mod opencl;
mod pip;
mod programs;
mod pycuda;
mod test;
mod warm_path;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of this repository")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything that must pass: formatting, lints, tests, doc tests, other people's programs, instruction counts, fuzz
    /// targets, the lab under its schedules
    Test {
        /// Only the steps whose names have these words
        #[arg(long, value_name = "WORDS", default_value = "")]
        only: String,
    },
    /// Build the C interface: libfreehold.so and freehold.h, side by side
    Library,
    /// Make a folder with the binary, the tests and a script, to run on a machine that has a GPU and no Rust
    Bundle {
        /// Where to make it; an older bundle there is replaced
        #[arg(default_value = "bundle")]
        folder: std::path::PathBuf,
    },
    /// Make the PTX of the test data and of the example anew from its sources, with compilers that pip brings
    Kernels {
        /// Only say what would change
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test { only } => test::steps(&only),
        Task::Library => {
            library::make(&[]).map(|library| println!("{}\n{}", library.object.display(), library.header.display()))
        }
        Task::Bundle { folder } => bundle::make(&folder),
        Task::Kernels { check } => kernels::make(if check { kernels::Aim::Compare } else { kernels::Aim::Write })
            .and_then(|()| kernels::assemble()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
