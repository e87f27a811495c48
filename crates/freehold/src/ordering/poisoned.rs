//! Memory with undefined content, because a transfer into it failed. Pure.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ledger::Fence;

/// The transfers into a block that have not succeeded, in the order in which they began. A transfer whose range was
/// overwritten since is removed: however it ends, its data is no longer there.
#[derive(Debug, Default)]
pub(crate) struct PoisonedRanges {
    transfers: Mutex<Vec<Transfer>>,
    /// Whether any has failed.
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct Transfer {
    fence: Fence,
    range: Range<u64>,
    has_failed: bool,
}

impl PoisonedRanges {
    /// Records a transfer. One of no bytes leaves nothing undefined.
    pub(crate) fn begin(&self, fence: Fence, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.transfers().push(Transfer { fence, range: range.clone(), has_failed: false });
    }

    /// Ends a transfer that wrote all of its range.
    pub(crate) fn succeed(&self, fence: Fence) {
        let mut transfers = self.transfers();
        let Some(index) = transfers.iter().position(|transfer| transfer.fence == fence) else { return };
        let written = transfers.remove(index).range;
        if self.has_failed.load(Ordering::Acquire) {
            let mut before = index;
            transfers.retain(|transfer| {
                let is_before = before > 0;
                before = before.saturating_sub(1);
                !(is_before && transfer.has_failed && is_within(&transfer.range, &written))
            });
            self.look(&transfers);
        }
    }

    /// Ends a transfer that may have written anything to its range, or nothing.
    pub(crate) fn fail(&self, fence: Fence) {
        let mut transfers = self.transfers();
        if let Some(transfer) = transfers.iter_mut().find(|transfer| transfer.fence == fence) {
            transfer.has_failed = true;
            self.has_failed.store(true, Ordering::Release);
        }
    }

    /// Records an operation that writes all of a range, after the transfers so far. A transfer that it covers only in
    /// part stays.
    pub(crate) fn fill(&self, written: &Range<u64>) {
        let mut transfers = self.transfers();
        transfers.retain(|transfer| !is_within(&transfer.range, written));
        self.look(&transfers);
    }

    /// Returns the first range of a failed transfer that overlaps a range.
    #[inline]
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<Range<u64>> {
        if self.has_failed.load(Ordering::Acquire) { self.find(range) } else { None }
    }

    #[cold]
    fn find(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let transfers = self.transfers();
        let meets = |found: &Range<u64>| found.start < range.end && range.start < found.end && !range.is_empty();
        transfers.iter().find(|transfer| transfer.has_failed && meets(&transfer.range)).map(|found| found.range.clone())
    }

    fn look(&self, transfers: &[Transfer]) {
        self.has_failed.store(transfers.iter().any(|transfer| transfer.has_failed), Ordering::Release);
    }

    fn transfers(&self) -> MutexGuard<'_, Vec<Transfer>> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_within(range: &Range<u64>, written: &Range<u64>) -> bool {
    written.start <= range.start && range.end <= written.end
}
