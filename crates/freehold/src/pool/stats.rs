//! Counters of live blocks and bytes: for a thread cache, for a heap, and as totals.

use std::sync::atomic::{AtomicU64, Ordering};

/// Allocated less freed. A thread's counter may be negative, if it freed what others allocated: the wrapping sum over
/// all threads is the live amount.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) blocks: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Counters {
    /// Only for the one thread that writes them.
    #[inline]
    pub(crate) fn add_live(&self, bytes: u64) {
        bump(&self.blocks, 1);
        bump(&self.bytes, bytes);
    }

    /// Only for the one thread that writes them.
    #[inline]
    pub(crate) fn sub_live(&self, bytes: u64) {
        bump(&self.blocks, 1_u64.wrapping_neg());
        bump(&self.bytes, bytes.wrapping_neg());
    }

    /// For any thread.
    pub(crate) fn add_live_shared(&self, bytes: u64) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// For any thread.
    pub(crate) fn sub_live_shared(&self, bytes: u64) {
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, other: &Self) {
        self.blocks.fetch_add(other.blocks.load(Ordering::Relaxed), Ordering::Relaxed);
        self.bytes.fetch_add(other.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[inline]
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}
