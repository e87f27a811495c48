//! How much was handed out and taken back: by a thread, by a lot, by all.

use std::sync::atomic::{AtomicU64, Ordering};

/// How much was handed out and taken back, ever. A rack's are written by its thread alone.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handed_blocks: AtomicU64,
    pub(crate) handed_bytes: AtomicU64,
    pub(crate) taken_blocks: AtomicU64,
    pub(crate) taken_bytes: AtomicU64,
}

impl Counts {
    /// For the one thread that writes them.
    #[inline]
    pub(crate) fn hand(&self, bytes: u64) {
        bump(&self.handed_blocks, 1);
        bump(&self.handed_bytes, bytes);
    }

    /// For the one thread that writes them.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) {
        bump(&self.taken_blocks, 1);
        bump(&self.taken_bytes, bytes);
    }

    pub(crate) fn add(&self, other: &Self) {
        for (to, from) in self.all().into_iter().zip(other.all()) {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn all(&self) -> [&AtomicU64; 4] {
        [&self.handed_blocks, &self.handed_bytes, &self.taken_blocks, &self.taken_bytes]
    }
}

#[inline]
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}
