//! Races on the shared memory of a thread block: for every word, the last accesses and when they were.
//!
//! Time counts synchronization. An access happens before a later one of another thread if the block has synchronized
//! since then, or, within a warp, the warp. Whatever is not modelled exactly counts as if the whole block had
//! synchronized: a barrier of some threads, a fence, an acquire or a release, an `mbarrier`. That can hide a race, but
//! never reports one that is not there.
//!
//! Words are checked as a whole until a smaller access splits them into bytes.

use crate::access::{AccessKind, Instructions, LANES, Race, ThreadAccess, WarpAccess, representative_lanes};

const WORD_BYTES: u64 = 4;

/// The accesses of one thread block to its shared memory.
#[derive(Debug)]
pub struct SharedCheck {
    clock: Clock,
    words: Vec<Cell>,
    /// The bytes of words that were split; empty until one is.
    bytes: Vec<Cell>,
    /// A bit for each word that is split.
    split: Vec<u64>,
    instructions: Instructions,
}

/// When the threads of the block synchronized.
#[derive(Debug)]
struct Clock {
    /// The number of synchronizations, from 1.
    now: u32,
    /// That of the last one of the whole block.
    block: u32,
    /// That of the last one of each warp.
    warps: Vec<u32>,
}

impl Clock {
    /// Returns whether an access happens before one of a thread that is executed now.
    #[inline]
    fn is_ordered(&self, slot: Slot, thread: u16) -> bool {
        slot.time < self.block
            || slot.thread() == thread
            || slot.thread() / LANES as u16 == thread / LANES as u16
                && slot.time < self.warps[usize::from(thread) / LANES]
    }
}

/// One access. That of an unused slot is before all others.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    time: u32,
    /// The thread, and `ATOMIC`.
    thread_and_kind: u16,
    instruction: u16,
}

const ATOMIC: u16 = 1 << 15;

impl Slot {
    #[inline]
    fn thread(self) -> u16 {
        self.thread_and_kind & !ATOMIC
    }
}

/// The last accesses to a word or a byte. Of two weak reads, one is of another warp than the other if there was such a
/// read: then a write of any thread races with one of them.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    write: Slot,
    strong_write: Slot,
    /// The time of the last access.
    latest: u32,
    /// The time of the older one of the two reads, if they are of different warps.
    many: u32,
    reads: [Slot; 2],
    strong_read: Slot,
}

impl Cell {
    /// Returns an access that races with one that is executed now, and what it does.
    #[inline]
    fn conflict(&self, clock: &Clock, how: How, thread: u16, is_unchanged: bool) -> Option<(Slot, AccessKind)> {
        if self.latest < clock.block {
            return None;
        }
        let races = |slot: Slot| !clock.is_ordered(slot, thread);
        let strong_kind =
            if self.strong_write.thread_and_kind & ATOMIC != 0 { AccessKind::Atomic } else { AccessKind::Write };
        if races(self.write) && !is_unchanged {
            return Some((self.write, AccessKind::Write));
        }
        if !how.is_strong && races(self.strong_write) && !is_unchanged {
            return Some((self.strong_write, strong_kind));
        }
        if how.is_write {
            let read = self.reads.iter().copied().find(|&slot| races(slot));
            let read = read.or_else(|| (!how.is_strong && races(self.strong_read)).then_some(self.strong_read));
            return read.map(|slot| (slot, AccessKind::Read));
        }
        None
    }

    #[inline]
    fn record(&mut self, clock: &Clock, how: How, slot: Slot) {
        self.latest = slot.time;
        match (how.is_write, how.is_strong) {
            (true, false) => self.write = slot,
            (true, true) => self.strong_write = slot,
            (false, true) => self.strong_read = slot,
            (false, false) => {
                let [last, other] = self.reads;
                if last.thread() != slot.thread() {
                    let warp = |slot: Slot| slot.thread() / LANES as u16;
                    let keeps = warp(last) == warp(slot) && warp(other) != warp(slot) && other.time >= clock.block;
                    if !keeps {
                        self.reads[1] = last;
                    }
                }
                self.reads[0] = slot;
                let is_of_two_warps = self.reads[1].thread() / LANES as u16 != slot.thread() / LANES as u16;
                self.many = if is_of_two_warps { self.reads[1].time } else { 0 };
            }
        }
    }

    /// Returns whether a weak read changes nothing: no write races with it, and two warps have read already, so that every
    /// write will race with one of them.
    #[inline]
    fn is_read_by_many(&self, clock: &Clock) -> bool {
        self.many >= clock.block && self.write.time < clock.block && self.strong_write.time < clock.block
    }
}

/// How an access counts.
#[derive(Debug, Clone, Copy)]
struct How {
    is_write: bool,
    is_strong: bool,
}

impl SharedCheck {
    /// Starts with a block of some threads that has not accessed its shared memory.
    pub fn new(shared_bytes: u64, threads: u32) -> Self {
        let words = shared_bytes.div_ceil(WORD_BYTES) as usize;
        let warps = threads.div_ceil(LANES as u32) as usize;
        Self {
            clock: Clock { now: 1, block: 1, warps: vec![1; warps] },
            words: vec![Cell::default(); words],
            bytes: Vec::new(),
            split: vec![0; words.div_ceil(64)],
            instructions: Instructions::default(),
        }
    }

    /// All threads of the block, or some of them, have synchronized: at a barrier, with a fence, or in another way.
    pub fn synchronize(&mut self) {
        self.clock.block = self.tick();
    }

    /// Threads of a warp have synchronized.
    pub fn synchronize_warp(&mut self, warp: u32) {
        let now = self.tick();
        if let Some(since) = self.clock.warps.get_mut(warp as usize) {
            *since = now;
        }
    }

    fn tick(&mut self) -> u32 {
        if self.clock.now == u32::MAX {
            self.words.fill(Cell::default());
            self.bytes.fill(Cell::default());
            self.clock.now = 1;
            self.clock.warps.fill(1);
            self.clock.block = 1;
        }
        self.clock.now += 1;
        self.clock.now
    }

    /// Records an access. Returns a race with an earlier one, if there is any.
    pub fn access(&mut self, access: &WarpAccess<'_>) -> Option<Race> {
        let is_atomic = access.kind == AccessKind::Atomic;
        let how = How { is_write: access.kind != AccessKind::Read, is_strong: access.is_strong || is_atomic };
        let instruction = self.instructions.number(access.instruction);
        let mut lanes = representative_lanes(access);
        if !how.is_write && !how.is_strong && access.bytes == WORD_BYTES && self.bytes.is_empty() {
            lanes = self.without_known_reads(access.addresses, lanes);
        }
        // Where a copy writes twice, the order of the writes is not known: this is not checked.
        let unchanged = if access.is_async { access.lanes } else { access.unchanged };
        let mut found = None;
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            lanes &= lanes - 1;
            let thread = (access.warp * LANES as u32 + lane) as u16 & !ATOMIC;
            let thread_and_kind = if is_atomic { thread | ATOMIC } else { thread };
            let slot = Slot { time: self.clock.now, thread_and_kind, instruction };
            let is_unchanged = how.is_write && unchanged >> lane & 1 != 0;
            let address = access.addresses[lane as usize];
            let race = self.one(how, slot, is_unchanged, address, access.bytes);
            if let Some((offset, first, kind)) = race
                && found.is_none()
            {
                let first = ThreadAccess {
                    block: access.block,
                    thread: first.thread().into(),
                    instruction: self.instructions.get(first.instruction),
                    kind,
                };
                let second = ThreadAccess {
                    block: access.block,
                    thread: thread.into(),
                    instruction: access.instruction,
                    kind: access.kind,
                };
                found = Some(Race { address: offset, first, second });
            }
        }
        if access.is_ordering {
            self.synchronize();
        }
        found
    }

    /// Returns the lanes whose reads of words have to be recorded.
    #[inline]
    fn without_known_reads(&self, addresses: &[u64; LANES], mut lanes: u32) -> u32 {
        let mut left = lanes;
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            lanes &= lanes - 1;
            let address = addresses[lane as usize];
            let cell = self.words.get((address / WORD_BYTES) as usize);
            let is_known =
                cell.is_some_and(|cell| cell.is_read_by_many(&self.clock)) && address.is_multiple_of(WORD_BYTES);
            left &= !(u32::from(is_known) << lane);
        }
        left
    }

    /// Records the access of one thread: word by word, or byte by byte where a word is split.
    #[inline]
    fn one(
        &mut self,
        how: How,
        slot: Slot,
        is_unchanged: bool,
        address: u64,
        bytes: u64,
    ) -> Option<(u64, Slot, AccessKind)> {
        if bytes == WORD_BYTES
            && address.is_multiple_of(WORD_BYTES)
            && self.bytes.is_empty()
            && let Some(cell) = self.words.get_mut((address / WORD_BYTES) as usize)
        {
            let conflict = cell.conflict(&self.clock, how, slot.thread(), is_unchanged);
            cell.record(&self.clock, how, slot);
            return conflict.map(|(first, kind)| (address, first, kind));
        }
        let end = address.saturating_add(bytes).min(self.words.len() as u64 * WORD_BYTES);
        let mut found = None;
        let mut at = address;
        while at < end {
            let word = (at / WORD_BYTES) as usize;
            let next = (at / WORD_BYTES + 1) * WORD_BYTES;
            let is_whole = at.is_multiple_of(WORD_BYTES) && end >= next;
            let is_split = self.split[word / 64] >> (word % 64) & 1 != 0;
            let cells = match is_whole && !is_split {
                true => &mut self.words[word..=word],
                false => {
                    if !is_split {
                        self.split_word(word);
                    }
                    &mut self.bytes[at as usize..end.min(next) as usize]
                }
            };
            for (index, cell) in cells.iter_mut().enumerate() {
                if found.is_none() {
                    let conflict = cell.conflict(&self.clock, how, slot.thread(), is_unchanged);
                    found = conflict.map(|(first, kind)| (at + index as u64, first, kind));
                }
                cell.record(&self.clock, how, slot);
            }
            at = next;
        }
        found
    }

    #[cold]
    fn split_word(&mut self, word: usize) {
        if self.bytes.is_empty() {
            self.bytes = vec![Cell::default(); self.words.len() * WORD_BYTES as usize];
        }
        let start = word * WORD_BYTES as usize;
        self.bytes[start..start + WORD_BYTES as usize].fill(self.words[word]);
        self.split[word / 64] |= 1 << (word % 64);
    }
}

#[cfg(test)]
mod tests;
