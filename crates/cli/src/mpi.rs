//! `freehold mpi`: executes `freehold-mpi`, which is built separately on machines with MPI. This program needs no MPI,
//! and MPI launchers can start it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::help;

const PROGRAM: &str = "freehold-mpi";

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of freehold-mpi: none to show the path, `bench` to measure, `--help` for the rest (once it is built)
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
enum MpiError {
    #[error(
        "freehold-mpi is neither beside this program nor in PATH: on a machine with MPI and libclang (on Debian \
         libopenmpi-dev and libclang-dev), build it with cargo build --release -p freehold-mpi"
    )]
    NotBuilt,
    #[error("failed to run {}: {source}", .program.display())]
    Program { program: PathBuf, source: io::Error },
}

pub(crate) fn run(arguments: &Arguments, all: clap::Command) -> ExitCode {
    // freehold-mpi has its own help; without the program, this help says how to build it.
    if program().is_none() && arguments.words.iter().any(|word| word == "--help" || word == "-h") {
        return help::help(&["mpi"], all);
    }
    exec(&arguments.words)
}

/// Executes the program with these arguments. Returns only on failure.
pub(crate) fn exec(words: &[OsString]) -> ExitCode {
    let error = match program() {
        None => MpiError::NotBuilt,
        Some(program) => {
            let source = Command::new(&program).args(words).exec();
            MpiError::Program { program, source }
        }
    };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn program() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|program| program.is_file())
}
