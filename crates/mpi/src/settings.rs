//! What the environment says. The only place that reads it.

use std::env;

use crate::error::{Error, Result};
use crate::raw::Threads;

/// The variable that forces a path.
pub const PATH_VARIABLE: &str = "FREEHOLD_MPI";
const CHUNK_VARIABLE: &str = "FREEHOLD_MPI_CHUNK";
const SLOT_BYTES: usize = 16 << 20;
const THREADS_VARIABLE: &str = "FREEHOLD_MPI_THREADS";

const DEPTH_VARIABLE: &str = "FREEHOLD_MPI_DEPTH";

/// A message has at least so many chunks, or short ones: the copy of the first is not hidden behind others.
const CHUNKS_MIN: usize = 8;
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_BYTES_MAX: usize = 4 << 20;
const DEPTH: usize = 4;
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
    /// The length of a staging buffer, and of one for a long message: the same at all ranks.
    pub(crate) chunk_bytes: usize,
    pub(crate) chunk_bytes_max: usize,
    /// How many buffers of one message are on their way.
    pub(crate) depth: usize,
    /// What of a message goes with its envelope.
    pub(crate) eager_bytes: usize,
    /// The length of a piece in memory of the device that ranks share: sixteen chunks, and no more than sixteen of the usual ones.
    pub(crate) slot_bytes: usize,
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Self> {
        Self::read(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// The length of the chunks of a message of so many bytes.
    pub(crate) fn chunk_of(&self, bytes: usize) -> usize {
        let fitting = 1 << (bytes / CHUNKS_MIN).max(1).ilog2();
        self.chunk_bytes_max.min(fitting).max(self.chunk_bytes)
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
        let (chunk_bytes, chunk_bytes_max) = match variable(CHUNK_VARIABLE) {
            None => (CHUNK_BYTES, CHUNK_BYTES_MAX),
            Some(value) => {
                let bytes = value.parse().ok().filter(|bytes: &usize| (64..=1 << 30).contains(bytes));
                let bytes = bytes.filter(|bytes| bytes.is_multiple_of(64)).ok_or(Error::Misconfigured {
                    variable: CHUNK_VARIABLE,
                    value,
                    wanted: "a number of bytes, a multiple of 64 up to 1073741824",
                })?;
                (bytes, bytes)
            }
        };
        let depth = match variable(DEPTH_VARIABLE) {
            None => DEPTH,
            Some(value) => {
                let depth = value.parse().ok().filter(|depth| (1..=64).contains(depth));
                depth.ok_or(Error::Misconfigured { variable: DEPTH_VARIABLE, value, wanted: "from 1 to 64" })?
            }
        };
        let slot_bytes = (SLOT_BYTES / CHUNK_BYTES * chunk_bytes).min(SLOT_BYTES);
        let eager_bytes = EAGER_BYTES.min(chunk_bytes);
        Ok(Self { path, threads, chunk_bytes, chunk_bytes_max, depth, eager_bytes, slot_bytes })
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
        let wanted = Settings {
            path: None,
            threads: Threads::Multiple,
            chunk_bytes: 1 << 20,
            chunk_bytes_max: 4 << 20,
            depth: 4,
            eager_bytes: 64 << 10,
            slot_bytes: 16 << 20,
        };
        assert_eq!(settings, wanted);
    }

    #[test]
    fn chunks_grow_with_messages_unless_their_length_is_said() {
        let settings = Settings::read(|_| None).expect("nothing is wrong with nothing");
        let chunks =
            [65_537, 12 << 20, 16 << 20, (32 << 20) - 1, 32 << 20, 1 << 30].map(|bytes| settings.chunk_of(bytes));
        assert_eq!(chunks, [1 << 20, 1 << 20, 2 << 20, 2 << 20, 4 << 20, 4 << 20]);
        let said = read("FREEHOLD_MPI_CHUNK", "4160").expect("a length");
        assert_eq!([1, 5000, 1 << 30].map(|bytes| said.chunk_of(bytes)), [4160; 3]);
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
        assert_eq!(said("FREEHOLD_MPI_DEPTH", "0"), "FREEHOLD_MPI_DEPTH is '0', but should be from 1 to 64");
        assert_eq!(
            said("FREEHOLD_MPI_THREADS", "many"),
            "FREEHOLD_MPI_THREADS is 'many', but should be multiple or serialized"
        );
    }
}
