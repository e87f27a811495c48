//! Settings from environment variables. No other module reads the environment for them.

use std::env;

use crate::error::{Error, Result};
use crate::raw::Threads;

/// The environment variable that forces a path.
pub const PATH_VARIABLE: &str = "FREEHOLD_MPI";
const CHUNK_VARIABLE: &str = "FREEHOLD_MPI_CHUNK";
const DEPTH_VARIABLE: &str = "FREEHOLD_MPI_DEPTH";
const THREADS_VARIABLE: &str = "FREEHOLD_MPI_THREADS";
const APART_VARIABLE: &str = "FREEHOLD_MPI_APART";

const CHUNK_BYTES: usize = 1 << 20;
const DEPTH: usize = 8;
const EAGER_BYTES: usize = 64 << 10;
/// Longer than a chunk: only devices copy these slots, and processes take turns on a device.
const HOST_SLOT_BYTES: usize = 4 << 20;
const DEVICE_SLOT_BYTES: usize = 16 << 20;
const DEVICE_SLOTS: usize = 4;

/// How bytes travel from device to device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// MPI reads and writes device memory.
    Direct,
    /// Through device memory that both ranks have mapped, for ranks that share a machine and a device; otherwise
    /// staged.
    Shared,
    /// In chunks through pinned host memory.
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

    /// Describes the path in a few words.
    pub fn description(self) -> &'static str {
        match self {
            Self::Direct => "MPI reads and writes device memory",
            Self::Shared => {
                "through device memory between ranks that share a device, otherwise in chunks through pinned host memory"
            }
            Self::Staged => "in chunks through pinned host memory",
        }
    }
}

/// The slots that a rank shares: locations for pieces of messages, used by all its messages together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The forced path.
    pub(crate) path: Option<Path>,
    pub(crate) threads: Threads,
    /// The length of a staging buffer, equal at all ranks.
    pub(crate) chunk_bytes: usize,
    /// How many buffers of one message are in flight.
    pub(crate) depth: usize,
    /// How much of a message is sent with its envelope.
    pub(crate) eager_bytes: usize,
    /// Host memory that ranks of one machine share, and device memory that ranks of one device share.
    pub(crate) host_slots: Slots,
    pub(crate) device_slots: Slots,
    /// Whether ranks share nothing, as if each had its own machine.
    pub(crate) is_sharing_disabled: bool,
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
        let said_bytes = match variable(CHUNK_VARIABLE) {
            None => None,
            Some(value) => {
                let bytes = value.parse().ok().filter(|bytes: &usize| (64..=1 << 30).contains(bytes));
                let bytes = bytes.filter(|bytes| bytes.is_multiple_of(64)).ok_or(Error::Misconfigured {
                    variable: CHUNK_VARIABLE,
                    value,
                    wanted: "a number of bytes, a multiple of 64 up to 1073741824",
                })?;
                Some(bytes)
            }
        };
        let depth = match variable(DEPTH_VARIABLE) {
            None => DEPTH,
            Some(value) => {
                let depth = value.parse().ok().filter(|depth| (1..=64).contains(depth));
                depth.ok_or(Error::Misconfigured {
                    variable: DEPTH_VARIABLE,
                    value,
                    wanted: "a number from 1 to 64",
                })?
            }
        };
        let are_apart = match variable(APART_VARIABLE) {
            None => false,
            Some(value) => match value.as_str() {
                "0" => false,
                "1" => true,
                _ => return Err(Error::Misconfigured { variable: APART_VARIABLE, value, wanted: "0 or 1" }),
            },
        };
        let chunk_bytes = said_bytes.unwrap_or(CHUNK_BYTES);
        let eager_bytes = EAGER_BYTES.min(chunk_bytes);
        let host_slots = Slots { bytes: said_bytes.unwrap_or(HOST_SLOT_BYTES).min(HOST_SLOT_BYTES), count: depth };
        // Sixteen chunks, and at most sixteen of the default length.
        let device_slot_bytes = (DEVICE_SLOT_BYTES / CHUNK_BYTES * chunk_bytes).min(DEVICE_SLOT_BYTES);
        let device_slots = Slots { bytes: device_slot_bytes, count: DEVICE_SLOTS };
        Ok(Self {
            path,
            threads,
            chunk_bytes,
            depth,
            eager_bytes,
            host_slots,
            device_slots,
            is_sharing_disabled: are_apart,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<Settings> {
        Settings::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn unset_variables_are_the_default() {
        let settings = Settings::read(|_| None).expect("an empty environment is valid");
        let wanted = Settings {
            path: None,
            threads: Threads::Multiple,
            chunk_bytes: 1 << 20,
            depth: 8,
            eager_bytes: 64 << 10,
            host_slots: Slots { bytes: 4 << 20, count: 8 },
            device_slots: Slots { bytes: 16 << 20, count: 4 },
            is_sharing_disabled: false,
        };
        assert_eq!(settings, wanted);
    }

    #[test]
    fn a_configured_length_applies_to_chunks_and_slots() {
        let settings = read("FREEHOLD_MPI_CHUNK", "4160").expect("a valid length");
        let lengths = [settings.chunk_bytes, settings.host_slots.bytes, settings.device_slots.bytes];
        assert_eq!(lengths, [4160, 4160, 16 * 4160]);
        let long = read("FREEHOLD_MPI_CHUNK", "1073741824").expect("a valid length");
        assert_eq!([long.host_slots.bytes, long.device_slots.bytes], [4 << 20, 16 << 20]);
        assert_eq!(
            read("FREEHOLD_MPI_DEPTH", "3").expect("a valid depth").host_slots,
            Slots { bytes: 4 << 20, count: 3 }
        );
    }

    #[test]
    fn each_variable_error_names_the_expected_value() {
        assert_eq!(read("FREEHOLD_MPI", "direct").expect("a valid path").path, Some(Path::Direct));
        assert_eq!(read("FREEHOLD_MPI", "shared").expect("a valid path").path, Some(Path::Shared));
        assert_eq!(read("FREEHOLD_MPI", "staged").expect("a valid path").path, Some(Path::Staged));
        assert_eq!(read("FREEHOLD_MPI_CHUNK", "4096").expect("a valid length").eager_bytes, 4096);
        let said = |name, value| read(name, value).expect_err("the value is invalid").to_string();
        assert_eq!(said("FREEHOLD_MPI", "fast"), "FREEHOLD_MPI is 'fast': expected direct, shared or staged");
        assert_eq!(
            said("FREEHOLD_MPI_CHUNK", "100"),
            "FREEHOLD_MPI_CHUNK is '100': expected a number of bytes, a multiple of 64 up to 1073741824"
        );
        assert_eq!(said("FREEHOLD_MPI_DEPTH", "0"), "FREEHOLD_MPI_DEPTH is '0': expected a number from 1 to 64");
        assert!(read("FREEHOLD_MPI_APART", "1").expect("a valid value").is_sharing_disabled);
        assert_eq!(said("FREEHOLD_MPI_APART", "yes"), "FREEHOLD_MPI_APART is 'yes': expected 0 or 1");
        assert_eq!(
            said("FREEHOLD_MPI_THREADS", "many"),
            "FREEHOLD_MPI_THREADS is 'many': expected multiple or serialized"
        );
    }
}
