//! How much memory of the device is free, against how much was.

use std::thread;
use std::time::Duration;

use freehold_driver::cuda::{CallError, memory};

use super::answer_text::{choose, size};
use super::fixture::Fixture;

/// Between two looks at whether memory has come back, and how many of them are enough to say that it does not: a driver
/// gives back the memory of a process that was killed some time after the process is gone (fact 1.7).
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const POLLS_MAX: u32 = 1500;

/// The free memory at a moment. Contexts and mappings take a little by themselves, so that questions are about blocks
/// of [`BLOCK`] and are answered to within half of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeMemory {
    free_bytes: usize,
}

/// A block whose presence is told from the free memory.
pub(crate) const BLOCK: usize = 256 << 20;

impl FreeMemory {
    pub(crate) fn now(b: &Fixture) -> Result<Self, CallError> {
        Ok(Self { free_bytes: memory::info(b)?.free_bytes })
    }

    /// How many more blocks are taken than were at this level.
    pub(crate) fn blocks(self, b: &Fixture) -> Result<String, CallError> {
        let taken = self.free_bytes.saturating_sub(memory::info(b)?.free_bytes);
        Ok(format!("{} taken", size(((taken + BLOCK / 2) / BLOCK * BLOCK) as u64)))
    }

    /// How many more blocks are taken, once it is no more than one: what a process that has ended had beside the block
    /// comes back first.
    pub(crate) fn settles_to_one_block(self, b: &Fixture) -> Result<String, CallError> {
        for _ in 0..POLLS_MAX {
            if memory::info(b)?.free_bytes + BLOCK + BLOCK / 2 > self.free_bytes {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.blocks(b)
    }

    /// Whether the free memory comes back to this level.
    pub(crate) fn recovers(self, b: &Fixture) -> Result<String, CallError> {
        for _ in 0..POLLS_MAX {
            if memory::info(b)?.free_bytes + BLOCK / 2 > self.free_bytes {
                return Ok("back".to_owned());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok("not back".to_owned())
    }

    /// How the free memory differs from this level, to the byte.
    pub(crate) fn exactly(self, b: &Fixture) -> Result<String, CallError> {
        let free_bytes = memory::info(b)?.free_bytes;
        let sign = choose(free_bytes > self.free_bytes, "more free", "taken");
        Ok(format!("{} {sign}", size(self.free_bytes.abs_diff(free_bytes) as u64)))
    }
}
