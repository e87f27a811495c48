//! Compares the device's free memory with an earlier state.

use std::thread;
use std::time::Duration;

use freehold_driver::cuda::{DriverError, memory};

use super::answer_text::{choose, size};
use super::fixture::Fixture;

/// The interval between checks whether memory has been returned, and how many checks are made: a driver returns a
/// killed process's memory some time after the process is gone (experiments 1.7).
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const POLLS_MAX: u32 = 1500;

/// The free memory at some time. Contexts and mappings use a little memory themselves, so experiments use blocks of
/// [`BLOCK`] bytes, and answers are rounded to blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeMemory {
    free_bytes: usize,
}

/// A block large enough to show in the free memory.
pub(crate) const BLOCK: usize = 256 << 20;

impl FreeMemory {
    pub(crate) fn now(b: &Fixture) -> Result<Self, DriverError> {
        Ok(Self { free_bytes: memory::info(b)?.free_bytes })
    }

    /// Formats how much more memory is taken than before, in blocks.
    pub(crate) fn blocks(self, b: &Fixture) -> Result<String, DriverError> {
        let taken = self.free_bytes.saturating_sub(memory::info(b)?.free_bytes);
        Ok(format!("{} taken", size(((taken + BLOCK / 2) / BLOCK * BLOCK) as u64)))
    }

    /// Formats how much more memory is taken, once it is at most one block: an ended process's other memory is returned
    /// first.
    pub(crate) fn settles_to_one_block(self, b: &Fixture) -> Result<String, DriverError> {
        for _ in 0..POLLS_MAX {
            if memory::info(b)?.free_bytes + BLOCK + BLOCK / 2 > self.free_bytes {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.blocks(b)
    }

    /// Formats whether the free memory returns to this level.
    pub(crate) fn recovers(self, b: &Fixture) -> Result<String, DriverError> {
        for _ in 0..POLLS_MAX {
            if memory::info(b)?.free_bytes + BLOCK / 2 > self.free_bytes {
                return Ok("back".to_owned());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok("not back".to_owned())
    }

    /// Formats the difference from this level, to the byte.
    pub(crate) fn exactly(self, b: &Fixture) -> Result<String, DriverError> {
        let free_bytes = memory::info(b)?.free_bytes;
        let sign = choose(free_bytes > self.free_bytes, "more free", "taken");
        Ok(format!("{} {sign}", size(self.free_bytes.abs_diff(free_bytes) as u64)))
    }
}
