//! What the pool knows of a block, found by a number, read without a lock.
//!
//! A record is written by whoever has its block: the thread that hands it out, before it is owned; the one that takes it
//! back, after its release. Who only looks reads the state before and after, and believes what did not change.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::shelf::Numbered;

/// What a block is, in the low byte of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The record has no block.
    Vacant = 0,
    /// Somebody has the block.
    Owned = 1,
    /// Nobody has it: it waits in a thread's magazine or in a slab.
    Parked = 2,
    /// It was given up, and marks have not passed.
    Waiting = 3,
}

/// Whether streams beside the block's own have used it.
const USED: u64 = 1 << 8;
const STAGE: u64 = 0xff;
const GENERATION: u64 = 1 << 16;

/// A record's state: its stage, whether it is used elsewhere, and how often it changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

impl State {
    #[inline]
    pub(crate) fn stage(self) -> Stage {
        match self.0 & STAGE {
            1 => Stage::Owned,
            2 => Stage::Parked,
            3 => Stage::Waiting,
            _ => Stage::Vacant,
        }
    }

    #[inline]
    pub(crate) fn is_used_elsewhere(self) -> bool {
        self.0 & USED != 0
    }

    #[inline]
    fn with(self, stage: Stage) -> Self {
        Self(self.0 & !(STAGE | USED) | stage as u64)
    }

    pub(crate) fn generation(self) -> u64 {
        self.0 / GENERATION
    }
}

/// One block. A line of the cache to itself: neighbours are other threads'.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Record {
    state: AtomicU64,
    base: AtomicU64,
    /// What the owner asked for.
    bytes: AtomicU64,
    /// What the block has.
    capacity_bytes: AtomicU64,
    /// The stream whose order the block is in.
    stream: AtomicU32,
    /// The lot on whose ground it lies.
    lot: AtomicU32,
    /// Its place there, or its slab.
    place: AtomicU32,
    number: AtomicU32,
}

/// What a record says, all of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: State,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) stream: u32,
    pub(crate) lot: u32,
}

impl Numbered for Record {
    fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }
}

impl Record {
    #[inline]
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn stream(&self) -> u32 {
        self.stream.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn lot(&self) -> u32 {
        self.lot.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Gives a block that nobody has to an owner. For whoever took it from where it was parked.
    #[inline]
    pub(crate) fn own(&self, bytes: u64) {
        let state = State(self.state.load(Ordering::Relaxed));
        // Who read the state before does not believe what is written from here on.
        fence(Ordering::Release);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.state.store(state.with(Stage::Owned).0.wrapping_add(GENERATION), Ordering::Release);
    }

    /// Takes the block from its owner, once: who comes second is told the state.
    #[inline]
    pub(crate) fn disown(&self, base: u64) -> Result<State, State> {
        let state = self.state();
        if state.stage() != Stage::Owned || self.base() != base {
            return Err(state);
        }
        let parked = state.with(Stage::Parked).0;
        match self.state.compare_exchange(state.0, parked, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(state),
            Err(_) => self.disown_again(base),
        }
    }

    /// A use elsewhere may have been noted at the same time.
    #[cold]
    fn disown_again(&self, base: u64) -> Result<State, State> {
        self.disown(base)
    }

    /// Undoes a [`disown`](Self::disown) that came to nothing. For who did it.
    pub(crate) fn return_to_owner(&self, state: State) {
        self.state.store(state.0, Ordering::Release);
    }

    /// Notes that other streams use the block, if somebody has it.
    pub(crate) fn note_used_elsewhere(&self, base: u64) -> Result<(), State> {
        loop {
            let state = self.state();
            if state.stage() != Stage::Owned || self.base() != base {
                return Err(state);
            }
            if self.state.compare_exchange(state.0, state.0 | USED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(());
            }
        }
    }

    /// Says that a block which nobody has is parked, or waits for marks.
    pub(crate) fn set_stage(&self, stage: Stage) {
        let state = State(self.state.load(Ordering::Relaxed));
        self.state.store(state.with(stage).0, Ordering::Release);
    }

    /// Gives the record a block, which is parked.
    pub(crate) fn begin(&self, base: u64, capacity_bytes: u64, stream: u32, lot: u32, place: u32) {
        let state = State(self.state.load(Ordering::Relaxed));
        fence(Ordering::Release);
        self.base.store(base, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
        self.stream.store(stream, Ordering::Relaxed);
        self.lot.store(lot, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.state.store(state.with(Stage::Parked).0.wrapping_add(GENERATION), Ordering::Release);
    }

    /// Lets a parked block be in the order of another stream.
    pub(crate) fn set_stream(&self, stream: u32) {
        self.stream.store(stream, Ordering::Relaxed);
    }

    /// Makes a place of other capacity of a block that nobody but the caller has.
    pub(crate) fn resize(&self, bytes: u64, capacity_bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
    }

    /// Takes the block from the record.
    pub(crate) fn end(&self) {
        self.set_stage(Stage::Vacant);
    }

    /// All of the record, of one moment.
    pub(crate) fn seen(&self) -> Seen {
        loop {
            let state = self.state();
            let seen = Seen {
                state,
                base: self.base(),
                bytes: self.bytes(),
                capacity_bytes: self.capacity_bytes(),
                stream: self.stream(),
                lot: self.lot(),
            };
            fence(Ordering::Acquire);
            if self.state.load(Ordering::Relaxed) == state.0 {
                return seen;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::shelf::Shelf;

    #[test]
    fn a_block_is_disowned_once() {
        let records = Shelf::<Record>::new();
        let record = records.at(records.add(1));
        record.begin(4096, 1024, 7, 0, 0);
        assert_eq!(record.disown(4096).unwrap_err().stage(), Stage::Parked);
        record.own(1000);
        assert_eq!(record.disown(4097).unwrap_err().stage(), Stage::Owned);
        assert!(!record.disown(4096).unwrap().is_used_elsewhere());
        assert_eq!(record.disown(4096).unwrap_err().stage(), Stage::Parked);
        record.own(10);
        record.note_used_elsewhere(4096).unwrap();
        assert!(record.disown(4096).unwrap().is_used_elsewhere());
        assert_eq!(record.seen().bytes, 10);
    }
}
