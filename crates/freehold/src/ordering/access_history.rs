//! The uses of a block by streams: the last write, and the reads since. They decide what the next use waits for, and
//! which fences a release needs.
//!
//! A block has a home stream, in which it was allocated. A use in that stream costs two atomic operations; a use in
//! another stream takes a lock. The borrow checker ensures that a write excludes all other uses of the same elements
//! while it is submitted; reads, and writes to disjoint parts, come from several threads at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use once_cell::race::OnceBox;

use crate::ledger::{Fence, StreamId};
use crate::ordering::poisoned::PoisonedRanges;

/// How an operation accesses a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes, and may read.
    Write,
}

#[derive(Debug)]
pub(crate) struct AccessHistory {
    home_stream: StreamId,
    /// The seq of the last use in the home stream, and of the last write there.
    last: AtomicU64,
    last_write: AtomicU64,
    /// State that most blocks never need. Allocated on first use.
    rare: OnceBox<RareState>,
}

/// Uses in other streams, and accesses that are not in a stream.
#[derive(Debug, Default)]
struct RareState {
    /// Whether `other_streams` holds anything.
    has_other_streams: AtomicBool,
    other_streams: Mutex<OtherStreams>,
    /// Transfers into the block that have not succeeded. Allocated on first use.
    poisoned: OnceLock<Arc<PoisonedRanges>>,
}

impl RareState {
    fn other_streams(&self) -> MutexGuard<'_, OtherStreams> {
        self.other_streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether a locked list holds anything.
    fn note(&self, elsewhere: &OtherStreams) {
        self.has_other_streams.store(!elsewhere.is_empty(), Ordering::Release);
    }
}

/// Uses in streams other than the block's own.
#[derive(Debug, Default)]
struct OtherStreams {
    /// The last write, if it was in another stream.
    write: Option<Fence>,
    /// The last write since that one in each other stream, among the writes that did not wait.
    unordered: Vec<Fence>,
    /// The last read since that write in each other stream.
    reads: Vec<Fence>,
}

impl OtherStreams {
    fn writes(&self) -> impl Iterator<Item = &Fence> {
        self.write.iter().chain(&self.unordered)
    }

    fn is_empty(&self) -> bool {
        self.write.is_none() && self.unordered.is_empty() && self.reads.is_empty()
    }

    /// Removes the uses that come before a write. Other threads may have added uses of other parts of the block since.
    fn remove_ordered(&mut self, is_before: impl Fn(Fence) -> bool) {
        if let Some(write) = self.write.take() {
            note_latest(&mut self.unordered, write);
        }
        self.unordered.retain(|&fence| !is_before(fence));
        self.reads.retain(|&fence| !is_before(fence));
    }
}

impl AccessHistory {
    /// Makes the history of a block that was just allocated in a stream, at a seq there: nothing uses it before.
    #[inline]
    pub(crate) fn begin(own: Fence) -> Self {
        Self {
            home_stream: own.stream,
            last: AtomicU64::new(own.seq),
            last_write: AtomicU64::new(own.seq),
            rare: OnceBox::new(),
        }
    }

    fn rare(&self) -> &RareState {
        self.rare.get_or_init(Box::default)
    }

    /// The uses in other streams, if there are any.
    #[inline]
    fn rare_in_use(&self) -> Option<&RareState> {
        self.rare.get().filter(|beside| beside.has_other_streams.load(Ordering::Acquire))
    }

    /// Whether other streams have used the block since a write in its home stream came after all of them.
    #[inline]
    pub(crate) fn has_other_streams(&self) -> bool {
        self.rare_in_use().is_some()
    }

    /// The record of failed transfers into the block.
    pub(crate) fn poisoned(&self) -> &Arc<PoisonedRanges> {
        self.rare().poisoned.get_or_init(Arc::default)
    }

    /// Returns the first range overlapping `range` that a failed transfer left undefined.
    #[inline]
    pub(crate) fn poisoned_within(&self, range: impl FnOnce() -> Range<u64>) -> Option<Range<u64>> {
        self.rare.get()?.poisoned.get()?.within(&range())
    }

    /// Notes an operation that writes all of a range.
    pub(crate) fn note_filled(&self, range: impl FnOnce() -> Range<u64>) {
        if let Some(undefined) = self.rare.get().and_then(|beside| beside.poisoned.get()) {
            undefined.fill(&range());
        }
    }

    /// Passes to `wait` each fence that an operation in `stream` has to wait for before this access. Fences of `stream`
    /// itself are not among them.
    pub(crate) fn before(&self, stream: StreamId, access: Access, mut wait: impl FnMut(Fence)) {
        if stream != self.home_stream {
            let seq = match access {
                Access::Read => self.last_write.load(Ordering::Acquire),
                Access::Write => self.last.load(Ordering::Acquire),
            };
            wait(Fence { stream: self.home_stream, seq });
        }
        let Some(beside) = self.rare_in_use() else { return };
        let elsewhere = beside.other_streams();
        let reads = elsewhere.reads.iter().filter(|_| access == Access::Write);
        for &fence in elsewhere.writes().chain(reads).filter(|fence| fence.stream != stream) {
            wait(fence);
        }
    }

    /// Records a use that was submitted, at its seq. `is_before` says whether the use comes after a fence of another
    /// stream.
    pub(crate) fn note(&self, used: Fence, access: Access, is_before: impl Fn(Fence) -> bool) {
        let is_before = |fence: Fence| {
            if fence.stream == used.stream { fence.seq <= used.seq } else { is_before(fence) }
        };
        if used.stream == self.home_stream {
            self.last.fetch_max(used.seq, Ordering::AcqRel);
            if access == Access::Write {
                self.last_write.fetch_max(used.seq, Ordering::AcqRel);
                if let Some(beside) = self.rare_in_use() {
                    let mut elsewhere = beside.other_streams();
                    elsewhere.remove_ordered(is_before);
                    beside.note(&elsewhere);
                }
            }
            return;
        }
        let beside = self.rare();
        let mut elsewhere = beside.other_streams();
        match access {
            Access::Write => {
                elsewhere.remove_ordered(is_before);
                elsewhere.write = Some(used);
            }
            Access::Read => note_latest(&mut elsewhere.reads, used),
        }
        beside.note(&elsewhere);
    }

    /// Records a use that did not wait: it removes nothing from the list, so that later uses wait for all of it.
    pub(crate) fn note_unordered(&self, used: Fence, access: Access) {
        if used.stream == self.home_stream {
            self.last.fetch_max(used.seq, Ordering::AcqRel);
            if access == Access::Write {
                self.last_write.fetch_max(used.seq, Ordering::AcqRel);
            }
            return;
        }
        let beside = self.rare();
        let mut elsewhere = beside.other_streams();
        match access {
            Access::Write => note_latest(&mut elsewhere.unordered, used),
            Access::Read => note_latest(&mut elsewhere.reads, used),
        }
        beside.note(&elsewhere);
    }

    /// Returns the last use in the home stream.
    #[inline]
    pub(crate) fn last_home_use(&self) -> Fence {
        Fence { stream: self.home_stream, seq: self.last.load(Ordering::Acquire) }
    }

    /// Returns the last use in each stream.
    pub(crate) fn all(&self) -> Vec<Fence> {
        // Seqs start at 1.
        let mut fences: Vec<Fence> = Some(self.last_home_use()).filter(|fence| fence.seq > 0).into_iter().collect();
        self.in_other_streams().into_iter().for_each(|fence| note_latest(&mut fences, fence));
        fences
    }

    /// Returns the uses in other streams that may be pending.
    pub(crate) fn in_other_streams(&self) -> Vec<Fence> {
        let Some(beside) = self.rare_in_use() else { return Vec::new() };
        let elsewhere = beside.other_streams();
        elsewhere.writes().chain(&elsewhere.reads).copied().collect()
    }
}

/// The uses of ranges that are free again: the last use in each stream, and the span of addresses of its uses.
#[derive(Debug, Default)]
pub(crate) struct RangeFences {
    last: Vec<(Fence, Range<u64>)>,
}

impl RangeFences {
    pub(crate) fn note(&mut self, fence: Fence, range: &Range<u64>) {
        match self.last.iter_mut().find(|(known, _)| known.stream == fence.stream) {
            Some((known, known_range)) => {
                known.seq = known.seq.max(fence.seq);
                *known_range = known_range.start.min(range.start)..known_range.end.max(range.end);
            }
            None => self.last.push((fence, range.clone())),
        }
    }

    /// Forgets uses that are complete.
    pub(crate) fn forget(&mut self, is_complete: impl Fn(Fence) -> bool) {
        self.last.retain(|&(fence, _)| !is_complete(fence));
    }

    /// Returns the uses that may overlap a range.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Fence> {
        let meets = move |used: &Range<u64>| used.start < range.end && range.start < used.end;
        self.last.iter().filter(move |(_, used)| meets(used)).map(|&(fence, _)| fence)
    }

    pub(crate) fn fences(&self) -> impl Iterator<Item = Fence> {
        self.last.iter().map(|&(fence, _)| fence)
    }
}

/// Records a use in a list of the last use of each stream.
pub(crate) fn note_latest(list: &mut Vec<Fence>, used: Fence) {
    match list.iter_mut().find(|fence| fence.stream == used.stream) {
        Some(fence) => fence.seq = fence.seq.max(used.seq),
        None => list.push(used),
    }
}
