//! A block between the two steps of a deferred free.

use crate::pool::block_meta::StateWord;

/// A block whose ownership has ended, and which work may still use. Dropping it leaks the memory.
#[derive(Debug)]
#[must_use = "the memory is reused only after `finish_free` or `cancel_free`"]
pub struct PendingFree {
    /// Its number among the device's blocks.
    pub(super) block: u32,
    pub(super) state: StateWord,
    pub(super) bytes: u64,
}

impl PendingFree {
    /// Returns how many bytes the owner had requested.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
