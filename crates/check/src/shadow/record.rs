//! Access records, and how an access updates the records of the same bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::{AccessKind, Spot};
use crate::tasks::TaskId;

/// What an access does to bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reads them.
    Read,
    /// Writes them.
    Write,
    /// Changes them atomically.
    Atomic,
    /// Allocates them: their values are undefined.
    Allocate,
    /// Allocates them with defined values, such as zeros.
    AllocateDefined,
    /// Frees them.
    Free,
    /// Makes them part of a pool's free memory, for work that is submitted later.
    Release,
    /// Takes them out of a pool's free memory: their values are undefined.
    HandOut,
    /// Makes them memory of the driver: nothing is known of them any more.
    Forget,
}

impl From<AccessKind> for Effect {
    fn from(kind: AccessKind) -> Self {
        match kind {
            AccessKind::Read => Self::Read,
            AccessKind::Write => Self::Write,
            AccessKind::Atomic => Self::Atomic,
        }
    }
}

impl Effect {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Read => AccessKind::Read.verb(),
            Self::Write => AccessKind::Write.verb(),
            Self::Atomic => AccessKind::Atomic.verb(),
            Self::Allocate | Self::AllocateDefined | Self::HandOut => "allocates",
            Self::Free | Self::Release => "frees",
            Self::Forget => "forgets",
        }
    }

    pub(crate) fn is_allocation(self) -> bool {
        matches!(self, Self::Allocate | Self::AllocateDefined)
    }

    /// Returns whether the bytes have no owner afterwards.
    pub(super) fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::Release)
    }

    pub(crate) fn is_read(self) -> bool {
        self == Self::Read
    }

    pub(super) fn code(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Atomic => 2,
            Self::Allocate => 3,
            Self::AllocateDefined => 4,
            Self::Free => 5,
            Self::Release => 6,
            Self::HandOut => 7,
            Self::Forget => unreachable!("it leaves no record"),
        }
    }

    fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Atomic,
            3 => Self::Allocate,
            4 => Self::AllocateDefined,
            5 => Self::Free,
            6 => Self::Release,
            _ => Self::HandOut,
        }
    }
}

/// An access that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Which bytes of the line, or which lines of the chunk.
    pub(crate) mask: u64,
    pub(crate) task: TaskId,
    pub(crate) effect: Effect,
    pub(crate) spot: Spot,
}

/// The bits of a slot's word that are the effect.
pub(super) const EFFECT_BITS: u32 = 3;

impl Record {
    pub(super) fn word(self) -> u64 {
        self.task.0 << EFFECT_BITS | self.effect.code()
    }
}

/// A record that is read without a lock.
#[derive(Debug, Default)]
pub(super) struct Slot {
    mask: AtomicU64,
    spot: AtomicU64,
    word: AtomicU64,
}

impl Slot {
    pub(super) fn get(&self) -> Option<Record> {
        let mask = self.mask.load(Ordering::Relaxed);
        let word = self.word.load(Ordering::Relaxed);
        (mask != 0).then(|| Record {
            mask,
            task: TaskId(word >> EFFECT_BITS),
            effect: Effect::from_code(word & ((1 << EFFECT_BITS) - 1)),
            spot: Spot::from_bits(self.spot.load(Ordering::Relaxed)),
        })
    }

    /// Replaces the record. The caller has the lock of the chunk.
    #[inline]
    pub(super) fn set(&self, record: Option<Record>) {
        let Some(record) = record else { return self.mask.store(0, Ordering::Relaxed) };
        if self.word.load(Ordering::Relaxed) != record.word() {
            // A reader without the lock never sees the new mask with the old task.
            self.mask.store(0, Ordering::Release);
            self.word.store(record.word(), Ordering::Release);
        }
        self.spot.store(record.spot.bits(), Ordering::Relaxed);
        self.mask.store(record.mask, Ordering::Release);
    }

    /// Returns whether a task has made an access with an effect to all bytes of a mask.
    #[inline]
    pub(super) fn covers(&self, word: u64, mask: u64) -> bool {
        // The word before and after: the mask is of this word, and not of the one that a writer is replacing.
        self.word.load(Ordering::Acquire) == word
            && self.mask.load(Ordering::Acquire) & mask == mask
            && self.word.load(Ordering::Acquire) == word
    }
}

/// An access to bytes of one line or of a whole chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) effect: Effect,
    pub(super) task: TaskId,
    pub(super) spot: Spot,
    pub(super) mask: u64,
}

/// Returns whether the order of two accesses does not matter.
pub(super) fn may_overlap(earlier: Effect, effect: Effect) -> bool {
    earlier.is_read() && effect.is_read() || earlier == Effect::Atomic && effect == Effect::Atomic
}

/// Returns whether an access conflicts with an earlier one whose order matters.
pub(super) fn is_conflict(earlier: Effect, effect: Effect, is_ordered: bool) -> bool {
    let is_owned = !effect.is_allocation() && !effect.is_free();
    match earlier {
        // Work that was submitted before the pool got the block back may still use it.
        Effect::Release => is_ordered && is_owned,
        Effect::Free => !is_ordered || is_owned,
        Effect::HandOut => false,
        _ => !is_ordered,
    }
}

/// Returns the bytes that an access writes late: a pool has handed them out since it was submitted, so the new owner has still written
/// nothing there.
pub(super) fn written_late(records: &[Record], touch: Touch, is_before: &mut dyn FnMut(TaskId) -> bool) -> u64 {
    if !matches!(touch.effect, Effect::Write | Effect::Atomic) {
        return 0;
    }
    let handed_out = records.iter().filter(|record| record.effect == Effect::HandOut && record.mask & touch.mask != 0);
    handed_out.filter(|record| !is_before(record.task)).fold(0, |late, record| late | record.mask & touch.mask)
}

/// Adds an access to the records of the same bytes. Returns the first record that it conflicts with.
pub(super) fn apply(
    records: &mut Vec<Record>,
    touch: Touch,
    is_before: &mut dyn FnMut(TaskId) -> bool,
) -> Option<Record> {
    let Touch { effect, task, spot, mask } = touch;
    match effect {
        Effect::Forget => {
            records.iter_mut().for_each(|record| record.mask &= !mask);
            records.retain(|record| record.mask != 0);
            return None;
        }
        // The other records stay, for the accesses of the next owner.
        Effect::Release => {
            records.push(Record { mask, task, effect, spot });
            return None;
        }
        // It stays until the new owner writes: until then, work of the old one may run late.
        Effect::HandOut => {
            let is_past = |record: &&mut Record| record.effect.is_free() || record.effect == Effect::HandOut;
            records.iter_mut().filter(is_past).for_each(|record| record.mask &= !mask);
            records.retain(|record| record.mask != 0);
            records.push(Record { mask, task, effect, spot });
            return None;
        }
        _ => {}
    }
    let mut conflict = None;
    let mut is_covered = false;
    for record in records.iter_mut().filter(|record| record.mask & mask != 0) {
        if record.task == task && !record.effect.is_free() {
            if effect.is_read() {
                // An atomic access of another task may race with this one, and not with an atomic one before.
                is_covered |= record.effect != Effect::Atomic && record.mask & mask == mask;
            } else {
                record.mask &= !mask;
            }
            continue;
        }
        let is_ordered = is_before(record.task);
        if record.effect == Effect::HandOut {
            if !effect.is_read() && (is_ordered || effect.is_allocation() || effect.is_free()) {
                record.mask &= !mask;
            }
            continue;
        }
        if may_overlap(record.effect, effect) {
            if is_ordered {
                record.mask &= !mask;
            }
            continue;
        }
        let is_conflict = is_conflict(record.effect, effect, is_ordered);
        if is_conflict {
            conflict.get_or_insert(*record);
        }
        // An atomic access that comes later may race with what was before this one, and not with this one. A write may be one of the
        // old owner that runs late: the pool has the bytes until it hands them out.
        let is_of_pool = record.effect == Effect::Release && !effect.is_allocation() && !effect.is_free();
        if !effect.is_read() && effect != Effect::Atomic && !is_of_pool {
            record.mask &= !mask;
        }
    }
    if is_covered {
        return conflict;
    }
    records.retain(|record| record.mask != 0);
    let same = records
        .iter_mut()
        .find(|record| record.task == task && record.effect == effect && record.spot.line() == spot.line());
    match same {
        Some(record) => record.mask |= mask,
        None => records.push(Record { mask, task, effect, spot }),
    }
    conflict
}
