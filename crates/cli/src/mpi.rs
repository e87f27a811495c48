//! `freehold mpi`: this process becomes `freehold-mpi`, the program that is built where MPI is. So the launcher of a run starts this one,
//! and it needs no MPI itself.

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
    /// What freehold-mpi is given: nothing for the path and why, `bench` to measure, `--help` for the rest
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
enum MpiError {
    #[error(
        "freehold-mpi lies neither beside this program nor in PATH: on a machine with MPI and libclang (on Debian \
         libopenmpi-dev and libclang-dev), build it with cargo build --release --manifest-path crates/mpi/Cargo.toml"
    )]
    NotBuilt,
    #[error("{} cannot be run: {source}", .program.display())]
    Program { program: PathBuf, source: io::Error },
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    // The program has a help of its own; where it is not there, this one says how it is had.
    if program().is_none() && arguments.words.iter().any(|word| word == "--help" || word == "-h") {
        return help::help(&["mpi"]);
    }
    exec(&arguments.words)
}

/// Becomes the program with these words. Comes back only where it could not be started.
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
