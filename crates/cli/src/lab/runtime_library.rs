//! Which CUDA runtime the experiments ask, and the environment in which it finds its driver.

use std::env;
use std::path::{Path, PathBuf};

use freehold::open::Kind;
use freehold_lab::{LoadError, RuntimeLibrary, open_runtime};

use crate::run::{self, LibraryDirError};

/// What `--runtime` says for the runtime within this program.
const OURS: &str = "freehold";

/// The name of NVIDIA's runtime, which the dynamic linker looks for.
const NAME: &str = "libcudart.so.13";

/// Room for the thread-local variables of two copies of a runtime, which glibc reserves when a process starts.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=8192");

/// The runtime under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundRuntime {
    pub(crate) library: RuntimeLibrary,
    /// One sentence: which runtime, and why.
    pub(crate) why: String,
    /// Nothing else was found: its answers on a GPU are not those of NVIDIA's runtime.
    pub(crate) is_fallback: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Folder(#[from] LibraryDirError),
}

impl FoundRuntime {
    /// Finds the runtime for a device: the requested one; else, on a GPU, the one that the dynamic linker finds; else
    /// the one within this program.
    pub(crate) fn find(requested: Option<&str>, kind: Kind, ordinal: i32) -> Result<Self, RuntimeError> {
        let mut variables = match kind {
            Kind::Soft => run::driver_variables(&run::libraries()?),
            Kind::Cuda => run::device_variables(ordinal),
        };
        if env::var_os(TUNABLES.0).is_none() {
            variables.push((TUNABLES.0, TUNABLES.1.into()));
        }
        let (path, why) = match requested {
            Some(OURS) => (ours()?, "Freehold's CUDA runtime (as --runtime says)".to_owned()),
            Some(other) => {
                open_runtime(Path::new(other))?;
                (other.into(), format!("CUDA runtime {other} (as --runtime says)"))
            }
            None if kind == Kind::Cuda && open_runtime(Path::new(NAME)).is_ok() => {
                (NAME.into(), format!("CUDA runtime {NAME} (found by the dynamic linker)"))
            }
            None => (ours()?, "Freehold's CUDA runtime".to_owned()),
        };
        let is_fallback = requested.is_none() && kind == Kind::Cuda && path != Path::new(NAME);
        Ok(Self { library: RuntimeLibrary { path, variables }, why, is_fallback })
    }
}

fn ours() -> Result<PathBuf, LibraryDirError> {
    Ok(run::libraries()?.join(NAME))
}
