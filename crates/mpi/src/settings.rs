//! What the environment says. The only place that reads it.

use std::env;

use crate::error::{Error, Result};
use crate::node_peers::Slots;
use crate::raw::Threads;

/// The variable that forces a path.
pub const PATH_VARIABLE: &str = "FREEHOLD_MPI";
const CHUNK_VARIABLE: &str = "FREEHOLD_MPI_CHUNK";
const DEPTH_VARIABLE: &str = "FREEHOLD_MPI_DEPTH";
const THREADS_VARIABLE: &str = "FREEHOLD_MPI_THREADS";
const APART_VARIABLE: &str = "FREEHOLD_MPI_APART";

const CHUNK_BYTES: usize = 1 << 20;
const DEPTH: usize = 8;
const EAGER_BYTES: usize = 64 << 10;
/// Longer than chunks: nobody but the devices copies what lies there, and processes take turns on a device.
const HOST_SLOT_BYTES: usize = 4 << 20;
const DEVICE_SLOT_BYTES: usize = 16 << 20;
const DEVICE_SLOTS: usize = 4;

/// How bytes go from device to device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The library is given device memory.
    Direct,
    /// Between ranks of one machine and device through memory of the device that both have, between others staged.
    Shared,
    /// Through pinned memory of the host, in pieces.
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
    pub fn description(self) -> &'static str {
        match self {
            Self::Direct => "the library is given device memory",
            Self::Shared => {
                "within the device between ranks that share it, else through pinned memory of the host, in pieces"
            }
            Self::Staged => "through pinned memory of the host, in pieces",
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
    /// How many buffers of one message are on their way.
    pub(crate) depth: usize,
    /// What of a message goes with its envelope.
    pub(crate) eager_bytes: usize,
    /// What ranks of one machine share of the host's memory, and of the device's where they have one.
    pub(crate) host_slots: Slots,
    pub(crate) device_slots: Slots,
    /// Whether ranks share nothing, as if each had a machine of its own.
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
                depth.ok_or(Error::Misconfigured { variable: DEPTH_VARIABLE, value, wanted: "from 1 to 64" })?
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
        // Sixteen chunks, and no more than sixteen of the usual ones.
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
        let settings = Settings::read(|_| None).expect("nothing is wrong with nothing");
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
        let settings = read("FREEHOLD_MPI_CHUNK", "4160").expect("a length");
        let lengths = [settings.chunk_bytes, settings.host_slots.bytes, settings.device_slots.bytes];
        assert_eq!(lengths, [4160, 4160, 16 * 4160]);
        let long = read("FREEHOLD_MPI_CHUNK", "1073741824").expect("a length");
        assert_eq!([long.host_slots.bytes, long.device_slots.bytes], [4 << 20, 16 << 20]);
        assert_eq!(read("FREEHOLD_MPI_DEPTH", "3").expect("a number").host_slots, Slots { bytes: 4 << 20, count: 3 });
    }

    #[test]
    fn each_variable_error_names_the_expected_value() {
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
        assert!(read("FREEHOLD_MPI_APART", "1").expect("a word").is_sharing_disabled);
        assert_eq!(said("FREEHOLD_MPI_APART", "yes"), "FREEHOLD_MPI_APART is 'yes', but should be 0 or 1");
        assert_eq!(
            said("FREEHOLD_MPI_THREADS", "many"),
            "FREEHOLD_MPI_THREADS is 'many', but should be multiple or serialized"
        );
    }
}
