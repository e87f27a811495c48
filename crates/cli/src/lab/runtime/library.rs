//! Which CUDA runtime the experiments ask, and the environment in which it finds its driver.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use freehold::open::Kind;

use super::functions::{self, LoadError};
use crate::run::{self, LibraryDirError};

/// What `--runtime` says for the runtime within this program.
const OURS: &str = "freehold";

/// The name of NVIDIA's runtime, which the dynamic linker looks for.
const NAME: &str = "libcudart.so.13";

/// The runtime under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeLibrary {
    pub(crate) path: PathBuf,
    /// Environment variables of the experiments' processes.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// One sentence: which runtime, and why.
    pub(crate) why: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Folder(#[from] LibraryDirError),
}

impl RuntimeLibrary {
    /// Finds the runtime for a device: the requested one; else, on a GPU, the one that the dynamic linker finds; else
    /// the one within this program.
    pub(crate) fn find(requested: Option<&str>, kind: Kind, ordinal: i32) -> Result<Self, RuntimeError> {
        let variables = match kind {
            Kind::Soft => run::driver_variables(&run::libraries()?),
            Kind::Cuda => run::device_variables(ordinal),
        };
        let (path, why) = match requested {
            Some(OURS) => (ours()?, "Freehold's CUDA runtime (as --runtime says)".to_owned()),
            Some(other) => {
                functions::open(Path::new(other))?;
                (other.into(), format!("CUDA runtime {other} (as --runtime says)"))
            }
            None if kind == Kind::Cuda && functions::open(Path::new(NAME)).is_ok() => {
                (NAME.into(), format!("CUDA runtime {NAME} (found by the dynamic linker)"))
            }
            None => (ours()?, "Freehold's CUDA runtime".to_owned()),
        };
        Ok(Self { path, variables, why })
    }
}

fn ours() -> Result<PathBuf, LibraryDirError> {
    Ok(run::libraries()?.join(NAME))
}
