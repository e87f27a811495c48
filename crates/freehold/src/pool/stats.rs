//! How much owners have: of what a thread handed out and took back, of what a heap did, of all.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was handed out less what was taken back. Of one thread it may be less than nothing, where others handed out what it
/// took back: the sums of all wrap to what is there.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) blocks: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Counters {
    /// For the one thread that writes them.
    #[inline]
    pub(crate) fn add_live(&self, bytes: u64) {
        bump(&self.blocks, 1);
        bump(&self.bytes, bytes);
    }

    /// For the one thread that writes them.
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
