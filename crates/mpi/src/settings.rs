//! What the environment says. The only place that reads it.

use std::env;

use crate::error::{Error, Result};
use crate::raw::Threads;

/// The variable that forces a path.
pub const PATH_VARIABLE: &str = "FREEHOLD_MPI";
const CHUNK_VARIABLE: &str = "FREEHOLD_MPI_CHUNK";
const SLOT_BYTES: usize = 16 << 20;
const THREADS_VARIABLE: &str = "FREEHOLD_MPI_THREADS";

const CHUNK_BYTES: usize = 1 << 20;
const EAGER_BYTES: usize = 64 << 10;

/// How bytes go from device to device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The library is given device memory.
    Direct,
    /// Between ranks of one machine and device through memory of the device that both have, between others staged.
    Shared,
    /// Through pinned memory of the host, in chunks.
    Staged,
}

impl Path {
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Shared => "shared",
            Self::Staged => "staged",
        }
    }

    /// In words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Direct => "the library is given device memory",
            Self::Shared => {
                "within the device between ranks that share it, else through pinned memory of the host, in chunks"
            }
            Self::Staged => "through pinned memory of the host, in chunks",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The path that is forced.
    pub(crate) path: Option<Path>,
    pub(crate) threads: Threads,
    /// The length of a staging buffer: the same at all ranks.
    pub(crate) chunk_bytes: usize,
    /// What of a message goes with its envelope.
    pub(crate) eager_bytes: usize,
    /// The length of a piece in memory of the device that ranks share: sixteen chunks, and no more than sixteen of the usual ones.
    pub(crate) slot_bytes: usize,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Self> {
        Self::read(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let path = match variable(PATH_VARIABLE) {
            None => None,
            Some(value) => Some(match value.as_str() {
                "direct" => Path::Direct,
                "shared" => Path::Shared,
                "staged" => Path::Staged,
                _ => return Err(Error::UnknownPath { value }),
            }),
        };
        let threads = match variable(THREADS_VARIABLE) {
            None => Threads::Multiple,
            Some(value) => match value.as_str() {
                "multiple" => Threads::Multiple,
                "serialized" => Threads::Serialized,
                _ => {
                    let wanted = "multiple or serialized";
                    return Err(Error::Misconfigured { variable: THREADS_VARIABLE, value, wanted });
                }
            },
        };
        let chunk_bytes = match variable(CHUNK_VARIABLE) {
            None => CHUNK_BYTES,
            Some(value) => {
                let bytes = value.parse().ok().filter(|bytes: &usize| (64..=1 << 30).contains(bytes));
                bytes.filter(|bytes| bytes.is_multiple_of(64)).ok_or(Error::Misconfigured {
                    variable: CHUNK_VARIABLE,
                    value,
                    wanted: "a number of bytes, a multiple of 64 up to 1073741824",
                })?
            }
        };
        let slot_bytes = (SLOT_BYTES / CHUNK_BYTES * chunk_bytes).min(SLOT_BYTES);
        Ok(Self { path, threads, chunk_bytes, eager_bytes: EAGER_BYTES.min(chunk_bytes), slot_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<Settings> {
        Settings::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn nothing_said_is_the_default() {
        let settings = Settings::read(|_| None).expect("nothing is wrong with nothing");
        let threads = Threads::Multiple;
        let (chunk_bytes, eager_bytes, slot_bytes) = (1 << 20, 64 << 10, 16 << 20);
        assert_eq!(settings, Settings { path: None, threads, chunk_bytes, eager_bytes, slot_bytes });
    }

    #[test]
    fn each_variable_says_what_it_takes() {
        assert_eq!(read("FREEHOLD_MPI", "direct").expect("a path").path, Some(Path::Direct));
        assert_eq!(read("FREEHOLD_MPI", "shared").expect("a path").path, Some(Path::Shared));
        assert_eq!(read("FREEHOLD_MPI", "staged").expect("a path").path, Some(Path::Staged));
        assert_eq!(read("FREEHOLD_MPI_CHUNK", "4096").expect("a length").eager_bytes, 4096);
        let said = |name, value| read(name, value).expect_err("it is wrong").to_string();
        assert_eq!(said("FREEHOLD_MPI", "fast"), "FREEHOLD_MPI is 'fast', but should be direct, shared or staged");
        assert_eq!(
            said("FREEHOLD_MPI_CHUNK", "100"),
            "FREEHOLD_MPI_CHUNK is '100', but should be a number of bytes, a multiple of 64 up to 1073741824"
        );
        assert_eq!(
            said("FREEHOLD_MPI_THREADS", "many"),
            "FREEHOLD_MPI_THREADS is 'many', but should be multiple or serialized"
        );
    }
}
