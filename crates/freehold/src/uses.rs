//! Uses of a block by streams: the last write, and the reads since. What the next use waits for, and what a release does.
//!
//! A block has a home, the stream it was allocated in. Uses in the home stream cost two atomic operations; those in other
//! streams take a lock. That a write excludes all other uses of the same elements while it is put into its stream is the
//! borrow checker's doing; reads, and writes to parts that share nothing, come from several threads at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use once_cell::race::OnceBox;

use crate::ledger::{Mark, StreamId};
use crate::undefined::Undefined;

/// What a piece of work does with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes, and may read.
    Write,
}

#[derive(Debug)]
pub(crate) struct Uses {
    home: StreamId,
    /// The position of the last use in the home stream, and of the last write there.
    last: AtomicU64,
    last_write: AtomicU64,
    /// What most blocks never have. Made for the first of it.
    beside: OnceBox<Beside>,
}

/// Uses in other streams than the home, and of others than streams.
#[derive(Debug, Default)]
struct Beside {
    /// Whether `elsewhere` holds anything.
    has_elsewhere: AtomicBool,
    elsewhere: Mutex<Elsewhere>,
    /// Transfers into the block that have not ended well. Made for the first one.
    undefined: OnceLock<Arc<Undefined>>,
}

impl Beside {
    fn elsewhere(&self) -> MutexGuard<'_, Elsewhere> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether a list that is held holds anything.
    fn note(&self, elsewhere: &Elsewhere) {
        self.has_elsewhere.store(!elsewhere.is_empty(), Ordering::Release);
    }
}

/// Uses in other streams than the home.
#[derive(Debug, Default)]
struct Elsewhere {
    /// The last write, if it was in another stream.
    write: Option<Mark>,
    /// The last write since that one in each other stream, of those that waited for nobody.
    unordered: Vec<Mark>,
    /// The last read since that write in each other stream.
    reads: Vec<Mark>,
}

impl Elsewhere {
    fn writes(&self) -> impl Iterator<Item = &Mark> {
        self.write.iter().chain(&self.unordered)
    }

    fn is_empty(&self) -> bool {
        self.write.is_none() && self.unordered.is_empty() && self.reads.is_empty()
    }

    /// Strikes what a write comes after. Uses of other parts of the block may have been put in by other threads meanwhile.
    fn strike(&mut self, is_before: impl Fn(Mark) -> bool) {
        if let Some(write) = self.write.take() {
            note_in(&mut self.unordered, write);
        }
        self.unordered.retain(|&mark| !is_before(mark));
        self.reads.retain(|&mark| !is_before(mark));
    }
}

impl Uses {
    /// A block that has just been allocated in `home`, at a position there: nobody uses it before.
    #[inline]
    pub(crate) fn begin(home: Mark) -> Self {
        Self {
            home: home.stream,
            last: AtomicU64::new(home.position),
            last_write: AtomicU64::new(home.position),
            beside: OnceBox::new(),
        }
    }

    fn beside(&self) -> &Beside {
        self.beside.get_or_init(Box::default)
    }

    /// What is used elsewhere, if anything is.
    #[inline]
    fn used_beside(&self) -> Option<&Beside> {
        self.beside.get().filter(|beside| beside.has_elsewhere.load(Ordering::Acquire))
    }

    /// Whether other streams have used the block since a write at home came after all of them.
    #[inline]
    pub(crate) fn has_elsewhere(&self) -> bool {
        self.used_beside().is_some()
    }

    /// Where transfers into the block note that they failed.
    pub(crate) fn undefined(&self) -> &Arc<Undefined> {
        self.beside().undefined.get_or_init(Arc::default)
    }

    /// The first range that a transfer left undefined, of those that `range` meets.
    #[inline]
    pub(crate) fn undefined_within(&self, range: impl FnOnce() -> Range<u64>) -> Option<Range<u64>> {
        self.beside.get()?.undefined.get()?.within(&range())
    }

    /// Notes work that writes all of a range.
    pub(crate) fn note_filled(&self, range: impl FnOnce() -> Range<u64>) {
        if let Some(undefined) = self.beside.get().and_then(|beside| beside.undefined.get()) {
            undefined.fill(&range());
        }
    }

    /// What work in `stream` has to wait for before it may use the block so. Marks of `stream` itself are not among them.
    pub(crate) fn before(&self, stream: StreamId, access: Access, mut wait: impl FnMut(Mark)) {
        if stream != self.home {
            let position = match access {
                Access::Read => self.last_write.load(Ordering::Acquire),
                Access::Write => self.last.load(Ordering::Acquire),
            };
            wait(Mark { stream: self.home, position });
        }
        let Some(beside) = self.used_beside() else { return };
        let elsewhere = beside.elsewhere();
        let reads = elsewhere.reads.iter().filter(|_| access == Access::Write);
        for &mark in elsewhere.writes().chain(reads).filter(|mark| mark.stream != stream) {
            wait(mark);
        }
    }

    /// Notes a use that was put into its stream, at its position. `is_before` says of a mark of another stream whether the
    /// use comes after it.
    pub(crate) fn note(&self, used: Mark, access: Access, is_before: impl Fn(Mark) -> bool) {
        let is_before = |mark: Mark| {
            if mark.stream == used.stream { mark.position <= used.position } else { is_before(mark) }
        };
        if used.stream == self.home {
            self.last.fetch_max(used.position, Ordering::AcqRel);
            if access == Access::Write {
                self.last_write.fetch_max(used.position, Ordering::AcqRel);
                if let Some(beside) = self.used_beside() {
                    let mut elsewhere = beside.elsewhere();
                    elsewhere.strike(is_before);
                    beside.note(&elsewhere);
                }
            }
            return;
        }
        let beside = self.beside();
        let mut elsewhere = beside.elsewhere();
        match access {
            Access::Write => {
                elsewhere.strike(is_before);
                elsewhere.write = Some(used);
            }
            Access::Read => note_in(&mut elsewhere.reads, used),
        }
        beside.note(&elsewhere);
    }

    /// Notes a use that waited for nothing: it takes nothing from the list, so that all of it is waited for later.
    pub(crate) fn note_unordered(&self, used: Mark, access: Access) {
        if used.stream == self.home {
            self.last.fetch_max(used.position, Ordering::AcqRel);
            if access == Access::Write {
                self.last_write.fetch_max(used.position, Ordering::AcqRel);
            }
            return;
        }
        let beside = self.beside();
        let mut elsewhere = beside.elsewhere();
        match access {
            Access::Write => note_in(&mut elsewhere.unordered, used),
            Access::Read => note_in(&mut elsewhere.reads, used),
        }
        beside.note(&elsewhere);
    }

    /// The last use in the home stream.
    #[inline]
    pub(crate) fn at_home(&self) -> Mark {
        Mark { stream: self.home, position: self.last.load(Ordering::Acquire) }
    }

    /// The last uses in all streams.
    pub(crate) fn all(&self) -> Vec<Mark> {
        // Work has positions from 1 on.
        let mut marks: Vec<Mark> = Some(self.at_home()).filter(|mark| mark.position > 0).into_iter().collect();
        self.abroad().into_iter().for_each(|mark| note_in(&mut marks, mark));
        marks
    }

    /// The uses in other streams that may still be pending.
    pub(crate) fn abroad(&self) -> Vec<Mark> {
        let Some(beside) = self.used_beside() else { return Vec::new() };
        let elsewhere = beside.elsewhere();
        elsewhere.writes().chain(&elsewhere.reads).copied().collect()
    }
}

/// What places were used for that nobody has any more: the last use in each stream, and between which addresses its uses lie.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    last: Vec<(Mark, Range<u64>)>,
}

impl Trail {
    pub(crate) fn note(&mut self, mark: Mark, range: &Range<u64>) {
        match self.last.iter_mut().find(|(known, _)| known.stream == mark.stream) {
            Some((known, known_range)) => {
                known.position = known.position.max(mark.position);
                *known_range = known_range.start.min(range.start)..known_range.end.max(range.end);
            }
            None => self.last.push((mark, range.clone())),
        }
    }

    /// Forgets uses that have passed.
    pub(crate) fn forget(&mut self, has_passed: impl Fn(Mark) -> bool) {
        self.last.retain(|&(mark, _)| !has_passed(mark));
    }

    /// The uses that may have been of a range.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Mark> {
        let meets = move |used: &Range<u64>| used.start < range.end && range.start < used.end;
        self.last.iter().filter(move |(_, used)| meets(used)).map(|&(mark, _)| mark)
    }

    pub(crate) fn marks(&self) -> impl Iterator<Item = Mark> {
        self.last.iter().map(|&(mark, _)| mark)
    }
}

/// Notes a use in a list of the last ones by stream.
pub(crate) fn note_in(list: &mut Vec<Mark>, used: Mark) {
    match list.iter_mut().find(|mark| mark.stream == used.stream) {
        Some(mark) => mark.position = mark.position.max(used.position),
        None => list.push(used),
    }
}
