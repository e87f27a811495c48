//! For every byte, its last write and the reads since then.
//!
//! Addresses are divided into chunks of 4 KiB. A chunk whose bytes were always accessed together has one list of records. The first
//! access to a part of it gives it lines of 64 bytes: each has a write and a read, with masks of their bytes, and more records
//! beside it when there are more. An access that its task has made before, which is the common case in a kernel, changes nothing and
//! takes no lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::access::{AccessKind, Spot};
use crate::tasks::TaskId;

pub(crate) const LINE_BYTES: u64 = 64;
const CHUNK_BYTES: u64 = 4096;
const LINES: usize = (CHUNK_BYTES / LINE_BYTES) as usize;
const GRANULE_BYTES: u64 = 2 << 20;
const CHUNKS: usize = (GRANULE_BYTES / CHUNK_BYTES) as usize;

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
        }
    }

    pub(crate) fn is_allocation(self) -> bool {
        matches!(self, Self::Allocate | Self::AllocateDefined)
    }

    /// Returns whether the bytes belong to nobody afterwards.
    fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::Release)
    }

    pub(crate) fn is_read(self) -> bool {
        self == Self::Read
    }

    fn code(self) -> u32 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Atomic => 2,
            Self::Allocate => 3,
            Self::AllocateDefined => 4,
            Self::Free => 5,
            Self::Release => 6,
            Self::HandOut => 7,
        }
    }

    fn from_code(code: u32) -> Self {
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
    /// Which bytes of the line. All bits for a whole chunk.
    pub(crate) mask: u64,
    pub(crate) task: TaskId,
    pub(crate) effect: Effect,
    pub(crate) spot: Spot,
}

/// The bits of a slot's word that are the effect.
const EFFECT_BITS: u32 = 3;

impl Record {
    fn word(self) -> u32 {
        self.task.0 << EFFECT_BITS | self.effect.code()
    }
}

/// A record that is read without a lock.
#[derive(Debug, Default)]
struct Slot {
    mask: AtomicU64,
    spot: AtomicU64,
    word: AtomicU32,
}

impl Slot {
    fn get(&self) -> Option<Record> {
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
    fn set(&self, record: Option<Record>) {
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
    fn covers(&self, word: u32, mask: u64) -> bool {
        self.mask.load(Ordering::Acquire) & mask == mask && self.word.load(Ordering::Acquire) == word
    }
}

#[derive(Debug, Default)]
struct Line {
    /// Bytes that have no defined value.
    undefined: AtomicU64,
    write: Slot,
    read: Slot,
}

#[derive(Debug, Default)]
struct Chunk {
    lines: OnceLock<Box<[Line; LINES]>>,
    state: Mutex<ChunkState>,
}

#[derive(Debug, Default)]
struct ChunkState {
    /// Of the whole chunk, until it has lines.
    whole: Vec<Record>,
    is_undefined: bool,
    /// The records of lines that have more than a write and a read, by the number of the line.
    more: Vec<(u8, Record)>,
}

impl Chunk {
    fn state(&self) -> MutexGuard<'_, ChunkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lines, created from what is known of the whole chunk.
    fn lines(&self, state: &mut ChunkState) -> &[Line; LINES] {
        self.lines.get_or_init(|| {
            let lines: Box<[Line; LINES]> = Box::new(std::array::from_fn(|_| Line::default()));
            let whole = std::mem::take(&mut state.whole);
            for (number, line) in lines.iter().enumerate() {
                if state.is_undefined {
                    line.undefined.store(u64::MAX, Ordering::Relaxed);
                }
                line.set_records(number as u8, &whole, state);
            }
            lines
        })
    }
}

impl Line {
    /// Appends all records of the line to a list.
    fn records(&self, number: u8, state: &ChunkState, records: &mut Vec<Record>) {
        records.extend(self.write.get());
        records.extend(self.read.get());
        records.extend(state.more.iter().filter(|(line, _)| *line == number).map(|(_, record)| *record));
    }

    /// Replaces all records of the line: the last write and the last read are those that a task meets again.
    fn set_records(&self, number: u8, records: &[Record], state: &mut ChunkState) {
        if !state.more.is_empty() {
            state.more.retain(|(line, _)| *line != number);
        }
        let last = |is_read: bool| records.iter().rposition(|record| record.effect.is_read() == is_read);
        let (write, read) = (last(false), last(true));
        self.write.set(write.map(|index| records[index]));
        self.read.set(read.map(|index| records[index]));
        for (index, record) in records.iter().enumerate() {
            if Some(index) != write && Some(index) != read {
                state.more.push((number, *record));
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Granule {
    chunks: Box<[Chunk]>,
}

/// What an access met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// A record that the access does not come after, or that freed the bytes.
    With(Record),
    /// Bytes without a defined value.
    Undefined,
}

/// An access to bytes of one line or of a whole chunk.
#[derive(Clone, Copy, Debug)]
struct Touch {
    effect: Effect,
    task: TaskId,
    spot: Spot,
    mask: u64,
}

/// Adds an access to the records of the same bytes. Returns the first record that it conflicts with.
fn apply(records: &mut Vec<Record>, touch: Touch, is_before: &mut dyn FnMut(TaskId) -> bool) -> Option<Record> {
    let Touch { effect, task, spot, mask } = touch;
    match effect {
        // The other records stay, for the accesses of the next owner.
        Effect::Release => {
            records.push(Record { mask, task, effect, spot });
            return None;
        }
        Effect::HandOut => {
            records.iter_mut().filter(|record| record.effect.is_free()).for_each(|record| record.mask &= !mask);
            records.retain(|record| record.mask != 0);
            return None;
        }
        _ => {}
    }
    let mut conflict = None;
    let mut is_covered = false;
    for record in records.iter_mut().filter(|record| record.mask & mask != 0) {
        if record.task == task && !record.effect.is_free() {
            if effect.is_read() {
                is_covered |= record.mask & mask == mask;
            } else {
                record.mask &= !mask;
            }
            continue;
        }
        let may_overlap =
            record.effect.is_read() && effect.is_read() || record.effect == Effect::Atomic && effect == Effect::Atomic;
        let is_ordered = is_before(record.task);
        if may_overlap {
            if is_ordered {
                record.mask &= !mask;
            }
            continue;
        }
        let is_conflict = match record.effect {
            // Work that was submitted before the pool got the block back may still use it.
            Effect::Release => is_ordered && !effect.is_allocation() && !effect.is_free(),
            Effect::Free => !is_ordered || !effect.is_allocation() && !effect.is_free(),
            _ => !is_ordered,
        };
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

/// The records of all memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    granules: RwLock<HashMap<u64, Arc<Granule>>>,
}

impl Shadow {
    fn granule(&self, number: u64) -> Arc<Granule> {
        if let Some(granule) = self.granules.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Arc::clone(granule);
        }
        let new = || Arc::new(Granule { chunks: (0..CHUNKS).map(|_| Chunk::default()).collect() });
        Arc::clone(self.granules.write().unwrap_or_else(PoisonError::into_inner).entry(number).or_insert_with(new))
    }
}

impl Shadow {
    /// Returns the task that wrote a byte last.
    pub(crate) fn last_writer(&self, address: u64) -> Option<TaskId> {
        let granule = self.granule(address / GRANULE_BYTES);
        let chunk = &granule.chunks[(address % GRANULE_BYTES / CHUNK_BYTES) as usize];
        let state = chunk.state();
        let (mut records, bit) = (state.whole.clone(), 1 << (address % LINE_BYTES));
        if let Some(lines) = chunk.lines.get() {
            let number = (address % CHUNK_BYTES / LINE_BYTES) as usize;
            lines[number].records(number as u8, &state, &mut records);
        }
        let written = records.iter().filter(|record| record.mask & bit != 0 && !record.effect.is_read());
        written.map(|record| record.task).max_by_key(|task| task.0)
    }
}

/// How many granules a view remembers.
const CACHED: usize = 8;

/// Makes accesses for one task.
#[derive(Debug)]
pub(crate) struct ShadowView<'s> {
    shadow: &'s Shadow,
    task: TaskId,
    cached: [Option<(u64, Arc<Granule>)>; CACHED],
    records: Vec<Record>,
}

/// The mask of `bytes` bytes of a line from `offset` on, at most to the end of the line.
pub(crate) fn mask_of(offset: u64, bytes: u64) -> u64 {
    let ones = if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 };
    ones << offset
}

impl<'s> ShadowView<'s> {
    pub(crate) fn new(shadow: &'s Shadow, task: TaskId) -> Self {
        Self { shadow, task, cached: [const { None }; CACHED], records: Vec::new() }
    }

    fn chunk(&mut self, address: u64) -> &'_ Chunk {
        let number = address / GRANULE_BYTES;
        let slot = number as usize % CACHED;
        if !matches!(&self.cached[slot], Some((cached, _)) if *cached == number) {
            self.cached[slot] = Some((number, self.shadow.granule(number)));
        }
        let (_, granule) = self.cached[slot].as_ref().expect("the slot was just filled");
        &granule.chunks[(address % GRANULE_BYTES / CHUNK_BYTES) as usize]
    }

    /// Accesses bytes of the line at `address`, a multiple of its size.
    #[inline]
    pub(crate) fn touch_line(
        &mut self,
        address: u64,
        mask: u64,
        effect: Effect,
        spot: Spot,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<Conflict> {
        let word = self.task.0 << EFFECT_BITS;
        let number = (address % CHUNK_BYTES / LINE_BYTES) as usize;
        let chunk = self.chunk(address);
        if let Some(lines) = chunk.lines.get() {
            let line = &lines[number];
            let is_known = match effect {
                Effect::Read => {
                    line.read.covers(word | Effect::Read.code(), mask)
                        || line.write.covers(word | Effect::Write.code(), mask)
                }
                Effect::Write | Effect::Atomic => line.write.covers(word | effect.code(), mask),
                _ => false,
            };
            if is_known {
                return None;
            }
        }
        self.touch_line_slow(address, mask, effect, spot, is_before)
    }

    #[cold]
    fn touch_line_slow(
        &mut self,
        address: u64,
        mask: u64,
        effect: Effect,
        spot: Spot,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<Conflict> {
        let touch = Touch { effect, task: self.task, spot, mask };
        let mut records = std::mem::take(&mut self.records);
        let number = (address % CHUNK_BYTES / LINE_BYTES) as usize;
        let chunk = self.chunk(address);
        let mut state = chunk.state();
        let line = &chunk.lines(&mut state)[number];
        records.clear();
        line.records(number as u8, &state, &mut records);
        let conflict = apply(&mut records, touch, is_before);
        line.set_records(number as u8, &records, &mut state);
        let undefined = line.undefined.load(Ordering::Relaxed);
        let is_undefined = effect.is_read() && undefined & mask != 0;
        let left = match effect {
            Effect::Allocate | Effect::HandOut => undefined | mask,
            Effect::Read => undefined,
            _ => undefined & !mask,
        };
        if left != undefined {
            line.undefined.store(left, Ordering::Relaxed);
        }
        drop(state);
        self.records = records;
        conflict.map(Conflict::With).or_else(|| is_undefined.then_some(Conflict::Undefined))
    }

    /// Returns the bytes of the line at `address` that have no defined value.
    pub(crate) fn undefined(&mut self, address: u64) -> u64 {
        let number = (address % CHUNK_BYTES / LINE_BYTES) as usize;
        let chunk = self.chunk(address);
        match chunk.lines.get() {
            Some(lines) => lines[number].undefined.load(Ordering::Relaxed),
            None if chunk.state().is_undefined => u64::MAX,
            None => 0,
        }
    }

    /// Accesses a range. Returns the first conflict, and its address.
    pub(crate) fn touch_range(
        &mut self,
        address: u64,
        bytes: u64,
        effect: Effect,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<(u64, Conflict)> {
        let mut first = None;
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            let chunk_end = (at / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES).min(end);
            let is_whole = at.is_multiple_of(CHUNK_BYTES) && chunk_end - at == CHUNK_BYTES;
            let whole = if is_whole { self.touch_whole(at, effect, is_before) } else { None };
            match whole {
                Some(conflict) => first = first.or(conflict.map(|conflict| (at, conflict))),
                None => {
                    while at < chunk_end {
                        let line = at / LINE_BYTES * LINE_BYTES;
                        let mask = mask_of(at - line, chunk_end - at);
                        let met = self.touch_line(line, mask, effect, Spot::default(), is_before);
                        first = first.or(met.map(|conflict| (at, conflict)));
                        at = line + LINE_BYTES;
                    }
                }
            }
            at = chunk_end;
        }
        first
    }

    /// Accesses a whole chunk. Returns `None` if it has lines, which stay unless nothing of them is needed.
    fn touch_whole(
        &mut self,
        address: u64,
        effect: Effect,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<Option<Conflict>> {
        let touch = Touch { effect, task: self.task, spot: Spot::default(), mask: u64::MAX };
        let chunk = self.chunk(address);
        let mut state = chunk.state();
        if chunk.lines.get().is_some() {
            return None;
        }
        let conflict = apply(&mut state.whole, touch, is_before);
        let was_undefined = state.is_undefined;
        state.is_undefined = matches!(effect, Effect::Allocate | Effect::HandOut) || was_undefined && effect.is_read();
        let undefined = || (effect.is_read() && was_undefined).then_some(Conflict::Undefined);
        Some(conflict.map(Conflict::With).or_else(undefined))
    }
}

#[cfg(test)]
mod tests;
