//! One access of a thread.

use crate::access::LANES;

/// One access. That of an unused slot is before all others.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slot {
    pub(crate) time: u32,
    pub(crate) block: u32,
    /// The thread, and `ATOMIC`.
    pub(crate) thread_and_kind: u16,
    pub(crate) instruction: u16,
}

pub(crate) const ATOMIC: u16 = 1 << 15;

impl Slot {
    #[inline]
    pub(crate) fn thread(self) -> u16 {
        self.thread_and_kind & !ATOMIC
    }

    #[inline]
    pub(crate) fn warp(self) -> usize {
        usize::from(self.thread()) / LANES
    }

    #[inline]
    pub(crate) fn is_atomic(self) -> bool {
        self.thread_and_kind & ATOMIC != 0
    }
}
