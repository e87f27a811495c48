//! `freehold run`: this process becomes the program, with the software driver's `libcuda.so.1` in front of any other. So
//! its exit status, its signals and its terminal are the program's own.

mod library_dir;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use freehold::open::{self, OpenError, Target};

use library_dir::LibraryDirError;

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The device: soft, cuda or cuda:N; without it FREEHOLD_DEVICE, or the NVIDIA GPUs if there are any
    #[arg(long)]
    device: Option<String>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Device(#[from] OpenError),
    #[error(transparent)]
    Place(#[from] LibraryDirError),
    #[error("{} cannot be run: {source}", .program.display())]
    Program { program: OsString, source: io::Error },
}

impl RunError {
    /// As shells have it: 127 for a program that is not there, 126 for one that cannot be run. 2 is for the rest.
    fn status(&self) -> u8 {
        match self {
            Self::Program { source, .. } if source.kind() == ErrorKind::NotFound => 127,
            Self::Program { .. } => 126,
            Self::Device(_) | Self::Place(_) => 2,
        }
    }
}

/// Comes back only where the program could not be started.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let error = exec(arguments);
    eprintln!("error: {error}");
    ExitCode::from(error.status())
}

fn exec(arguments: &Arguments) -> RunError {
    let (program, rest) = arguments.words.split_first().expect("the command line demands a program");
    let mut command = Command::new(program);
    command.args(rest);
    match environment(arguments.device.as_deref()) {
        Ok(variables) => command.envs(variables),
        Err(error) => return error,
    };
    let source = command.exec();
    RunError::Program { program: program.clone(), source }
}

/// The variables that put the device in place. A GPU needs none, unless it is to be one of several.
fn environment(selector: Option<&str>) -> Result<Vec<(&'static str, OsString)>, RunError> {
    Ok(match open::target(selector)? {
        Target::Soft => {
            let path = prepend_path(&library_dir::library()?, env::var_os(LIBRARY_PATH).as_deref());
            // Said aloud, so that Freehold within the program does not take this library for NVIDIA's.
            vec![(LIBRARY_PATH, path), (open::VARIABLE, "soft".into())]
        }
        Target::Cuda { ordinal: None } => Vec::new(),
        Target::Cuda { ordinal: Some(ordinal) } => {
            vec![(VISIBLE_DEVICES, visible_devices(ordinal, env::var(VISIBLE_DEVICES).ok().as_deref()))]
        }
    })
}

/// The folders in which libraries are looked for. An empty one would mean the current folder.
fn prepend_path(folder: &Path, others: Option<&OsStr>) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

/// The device with this ordinal among those that are visible already.
fn visible_devices(ordinal: i32, already: Option<&str>) -> OsString {
    let chosen = usize::try_from(ordinal).ok().and_then(|index| already?.split(',').nth(index));
    chosen.map_or_else(|| ordinal.to_string(), |device| device.trim().to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_folder_goes_first_and_alone_adds_no_empty_one() {
        assert_eq!(prepend_path(Path::new("/ours"), None), "/ours");
        assert_eq!(prepend_path(Path::new("/ours"), Some(OsStr::new(""))), "/ours");
        assert_eq!(prepend_path(Path::new("/ours"), Some(OsStr::new("/a:/b"))), "/ours:/a:/b");
    }

    #[test]
    fn an_ordinal_counts_the_devices_that_are_visible() {
        assert_eq!(visible_devices(1, None), "1");
        assert_eq!(visible_devices(1, Some("4, 6")), "6");
    }
}
