//! The tasks of this repository: `cargo xtask test` and `cargo xtask bundle`.

mod bundle;
mod command;
mod fuzz;
mod test;

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
    /// Run everything that must pass: formatting, lints, tests, doc tests, fuzz targets, the lab under its schedules
    Test,
    /// Make a folder with the binary, the tests and a script, to run on a machine that has a GPU and no Rust
    Bundle {
        /// Where to make it; an older bundle there is replaced
        #[arg(default_value = "bundle")]
        folder: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test => test::everything(),
        Task::Bundle { folder } => bundle::make(&folder),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
