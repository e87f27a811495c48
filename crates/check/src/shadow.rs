//! For every byte, its last write and the reads since then.
//!
//! Addresses are divided into chunks of 4 KiB, and these into lines of 64 bytes. A chunk that was only accessed in whole lines has one
//! list of records, with masks of their lines. The first access to a part of a line switches the chunk to a state per line: one write
//! and one read, with masks of their bytes, and a list for further records. An access that repeats one of the same task changes nothing
//! and takes no lock.

mod record;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

pub use record::Effect;
pub(crate) use record::Record;
use record::{EFFECT_BITS, Slot, Touch, apply, is_conflict, may_overlap, written_late};

use crate::access::Spot;
use crate::tasks::TaskId;

pub(crate) const LINE_BYTES: u64 = 64;
const CHUNK_BYTES: u64 = 4096;
const LINES: usize = (CHUNK_BYTES / LINE_BYTES) as usize;
const GRANULE_BYTES: u64 = 2 << 20;
const CHUNKS: usize = (GRANULE_BYTES / CHUNK_BYTES) as usize;

#[derive(Debug, Default)]
struct Line {
    /// Bytes that have no defined value.
    undefined: AtomicU64,
    write: Slot,
    read: Slot,
}

#[derive(Debug, Default)]
struct Chunk {
    /// The last write and the last read of the list of records, with masks of lines.
    write: Slot,
    read: Slot,
    lines: OnceLock<Box<[Line; LINES]>>,
    state: Mutex<ChunkState>,
}

#[derive(Debug, Default)]
struct ChunkState {
    /// Accesses of whole lines, until each line has a state.
    whole: Vec<Record>,
    /// Which thread made the accesses of kernels in `whole`.
    spots: Vec<Spots>,
    /// The lines that have no defined value.
    undefined: u64,
    /// The records of lines that have more than a write and a read, by the number of the line.
    more: Vec<(u8, Record)>,
}

/// The places of one record, by line.
#[derive(Debug)]
struct Spots {
    /// Of the record.
    word: u64,
    /// The line of the PTX.
    line: u32,
    of_lines: Box<[Spot; LINES]>,
}

impl Spots {
    fn is_of(&self, record: &Record) -> bool {
        self.word == record.word() && self.line == record.spot.line()
    }
}

impl ChunkState {
    /// Returns a record of whole lines as that of one of them.
    fn of_line(&self, record: &Record, number: usize) -> Record {
        let spots = self.spots.iter().find(|spots| spots.is_of(record));
        Record { mask: u64::MAX, spot: spots.map_or(record.spot, |spots| spots.of_lines[number]), ..*record }
    }

    /// Returns the records of a line, while it has no state of its own.
    fn whole_of(&self, number: usize) -> impl Iterator<Item = Record> {
        let has_line = move |record: &&Record| record.mask >> number & 1 != 0;
        self.whole.iter().filter(has_line).map(move |record| self.of_line(record, number))
    }

    /// Notes which thread has just accessed the lines of a mask.
    fn set_spots(&mut self, touch: Touch, mut spot_of: impl FnMut(usize) -> Spot) {
        if touch.spot == Spot::default() {
            return;
        }
        let Touch { effect, task, spot, mask } = touch;
        let record = Record { mask, task, effect, spot };
        let is_same = |other: &Record| other.word() == record.word() && other.spot.line() == spot.line();
        if !self.whole.iter().any(is_same) {
            return;
        }
        let known = self.spots.iter().position(|spots| spots.is_of(&record));
        let index = known.unwrap_or_else(|| {
            self.spots.retain(|spots| self.whole.iter().any(|record| spots.is_of(record)));
            let of_lines = Box::new([Spot::default(); LINES]);
            self.spots.push(Spots { word: record.word(), line: record.spot.line(), of_lines });
            self.spots.len() - 1
        });
        bits_of(mask).for_each(|number| self.spots[index].of_lines[number] = spot_of(number));
    }
}

impl Chunk {
    fn state(&self) -> MutexGuard<'_, ChunkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the states of lines, created from what is known of whole lines.
    fn lines(&self, state: &mut ChunkState) -> &[Line; LINES] {
        self.lines.get_or_init(|| {
            let lines: Box<[Line; LINES]> = Box::new(std::array::from_fn(|_| Line::default()));
            let mut records = Vec::new();
            for (number, line) in lines.iter().enumerate() {
                if state.undefined >> number & 1 != 0 {
                    line.undefined.store(u64::MAX, Ordering::Relaxed);
                }
                records.clear();
                records.extend(state.whole_of(number));
                line.set_records(number as u8, &records, state);
            }
            state.whole = Vec::new();
            state.spots = Vec::new();
            lines
        })
    }

    /// Sets what is found without the lock.
    fn set_slots(&self, state: &ChunkState) {
        let last = |is_read: bool| state.whole.iter().rev().find(|record| record.effect.is_read() == is_read).copied();
        self.write.set(last(false));
        self.read.set(last(true));
    }
}

/// Returns whether a task has made the access before, to all bytes or lines of a mask, after its last write.
#[inline]
fn is_known(write: &Slot, read: &Slot, task: TaskId, effect: Effect, mask: u64) -> bool {
    let word = task.0 << EFFECT_BITS;
    match effect {
        Effect::Read => {
            read.covers(word | Effect::Read.code(), mask) || write.covers(word | Effect::Write.code(), mask)
        }
        Effect::Write | Effect::Atomic => write.covers(word | effect.code(), mask),
        _ => false,
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
    /// Forgets the accesses to a range.
    pub(crate) fn forget(&self, address: u64, bytes: u64) {
        ShadowView::new(self, TaskId(0)).touch_range(address, bytes, Effect::Forget, &mut |_| true);
    }

    /// Returns how many granules are known.
    pub(crate) fn granule_count(&self) -> usize {
        self.granules.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Calls `each` with the tasks that records name.
    pub(crate) fn for_each_task(&self, mut each: impl FnMut(TaskId)) {
        let granules: Vec<_> = self.granules.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for chunk in granules.iter().flat_map(|granule| &granule.chunks) {
            let state = chunk.state();
            state.whole.iter().chain(state.more.iter().map(|(_, record)| record)).for_each(|record| each(record.task));
            let slots = chunk.lines.get().into_iter().flat_map(|lines| lines.iter());
            slots.flat_map(|line| [&line.write, &line.read]).filter_map(Slot::get).for_each(|record| each(record.task));
        }
    }

    /// Returns the task that wrote a byte last.
    pub(crate) fn last_writer(&self, address: u64) -> Option<TaskId> {
        let granule = self.granule(address / GRANULE_BYTES);
        let chunk = &granule.chunks[(address % GRANULE_BYTES / CHUNK_BYTES) as usize];
        let state = chunk.state();
        let (number, bit) = ((address % CHUNK_BYTES / LINE_BYTES) as usize, 1 << (address % LINE_BYTES));
        let mut records: Vec<_> = state.whole_of(number).collect();
        if let Some(lines) = chunk.lines.get() {
            lines[number].records(number as u8, &state, &mut records);
        }
        let is_write = |effect: Effect| !effect.is_read() && effect != Effect::HandOut;
        let written = records.iter().filter(|record| record.mask & bit != 0 && is_write(record.effect));
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
    /// The entry that was used last, and the one that was filled last.
    last: usize,
    newest: usize,
    records: Vec<Record>,
}

/// The mask of `bytes` bytes of a line from `offset` on, at most to the end of the line.
#[inline]
pub(crate) fn mask_of(offset: u64, bytes: u64) -> u64 {
    let ones = if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 };
    ones << offset
}

impl<'s> ShadowView<'s> {
    pub(crate) fn new(shadow: &'s Shadow, task: TaskId) -> Self {
        Self { shadow, task, cached: [const { None }; CACHED], last: 0, newest: 0, records: Vec::new() }
    }

    #[inline]
    fn chunk(&mut self, address: u64) -> &'_ Chunk {
        let number = address / GRANULE_BYTES;
        let is_cached =
            |cached: &Option<(u64, Arc<Granule>)>| cached.as_ref().is_some_and(|(cached, _)| *cached == number);
        if !is_cached(&self.cached[self.last]) {
            self.last = self.cached.iter().position(is_cached).unwrap_or_else(|| {
                self.newest = (self.newest + 1) % CACHED;
                self.cached[self.newest] = Some((number, self.shadow.granule(number)));
                self.newest
            });
        }
        let (_, granule) = self.cached[self.last].as_ref().expect("the entry was just found or filled");
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
        let task = self.task;
        let number = (address % CHUNK_BYTES / LINE_BYTES) as usize;
        let chunk = self.chunk(address);
        match chunk.lines.get() {
            Some(lines) if is_known(&lines[number].write, &lines[number].read, task, effect, mask) => None,
            None if mask == u64::MAX => {
                let mut met = None;
                let found = &mut |_, conflict| met = Some(conflict);
                self.touch_lines(address, 1 << number, effect, &mut |_| spot, is_before, found);
                met
            }
            _ => self.touch_line_slow(address, mask, effect, spot, is_before),
        }
    }

    /// Accesses whole lines of the chunk at `address`. `spot_of` says which thread accesses an address. Each conflict is passed to
    /// `found`, with its address.
    #[inline]
    fn touch_lines(
        &mut self,
        address: u64,
        mask: u64,
        effect: Effect,
        spot_of: &mut dyn FnMut(u64) -> Spot,
        is_before: &mut dyn FnMut(TaskId) -> bool,
        found: &mut dyn FnMut(u64, Conflict),
    ) {
        let task = self.task;
        let start = address / CHUNK_BYTES * CHUNK_BYTES;
        let chunk = self.chunk(address);
        if chunk.lines.get().is_none() {
            if is_known(&chunk.write, &chunk.read, task, effect, mask) {
                return;
            }
            let mut state = chunk.state();
            if chunk.lines.get().is_none() {
                let touch = Touch { effect, task, spot: Spot::default(), mask };
                return touch_whole(chunk, &mut state, start, touch, spot_of, is_before, found);
            }
        }
        for number in bits_of(mask) {
            let at = start + number as u64 * LINE_BYTES;
            if let Some(conflict) = self.touch_line(at, u64::MAX, effect, spot_of(at), is_before) {
                found(at, conflict);
            }
        }
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
        let undefined = line.undefined.load(Ordering::Relaxed);
        let late = if undefined & mask == 0 { 0 } else { written_late(&records, touch, is_before) };
        let conflict = apply(&mut records, touch, is_before);
        line.set_records(number as u8, &records, &mut state);
        let is_undefined = effect.is_read() && undefined & mask != 0;
        let left = match effect {
            Effect::Allocate | Effect::HandOut => undefined | mask,
            Effect::Read => undefined,
            _ => undefined & !(mask & !late),
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
            None if chunk.state().undefined >> number & 1 != 0 => u64::MAX,
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
        let found = &mut |at, conflict| _ = first.get_or_insert((at, conflict));
        self.touch_span(address, bytes, effect, &mut |_| Spot::default(), is_before, found);
        first
    }

    /// Accesses a range. `spot_of` says which thread accesses an address. Each conflict is passed to `found`, with its address.
    #[inline]
    pub(crate) fn touch_span(
        &mut self,
        address: u64,
        bytes: u64,
        effect: Effect,
        spot_of: &mut dyn FnMut(u64) -> Spot,
        is_before: &mut dyn FnMut(TaskId) -> bool,
        found: &mut dyn FnMut(u64, Conflict),
    ) {
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            let line = at / LINE_BYTES * LINE_BYTES;
            let chunk = at / CHUNK_BYTES * CHUNK_BYTES;
            let whole_end = chunk.saturating_add(CHUNK_BYTES).min(end / LINE_BYTES * LINE_BYTES);
            if at == line && whole_end > at {
                let mask = mask_of((at - chunk) / LINE_BYTES, (whole_end - at) / LINE_BYTES);
                self.touch_lines(at, mask, effect, spot_of, is_before, found);
                at = whole_end;
                continue;
            }
            let next = line.saturating_add(LINE_BYTES).min(end);
            if let Some(conflict) = self.touch_line(line, mask_of(at - line, next - at), effect, spot_of(at), is_before)
            {
                found(at, conflict);
            }
            at = next;
        }
    }
}

/// Accesses whole lines of the chunk at `start`, whose lines have no states: all at once if nothing can conflict.
fn touch_whole(
    chunk: &Chunk,
    state: &mut ChunkState,
    start: u64,
    touch: Touch,
    spot_of: &mut dyn FnMut(u64) -> Spot,
    is_before: &mut dyn FnMut(TaskId) -> bool,
    found: &mut dyn FnMut(u64, Conflict),
) {
    let Touch { effect, task, mask, .. } = touch;
    let mut may_conflict = |record: &Record| {
        let is_own = record.task == task && !record.effect.is_free();
        let is_apart = record.mask & mask == 0 || is_own || may_overlap(record.effect, effect);
        !is_apart && is_conflict(record.effect, effect, is_before(record.task))
    };
    let is_plain = matches!(effect, Effect::Release | Effect::HandOut | Effect::Forget)
        || !state.whole.iter().any(&mut may_conflict);
    let undefined = if effect.is_read() { state.undefined & mask } else { 0 };
    let late = if state.undefined & mask == 0 { 0 } else { written_late(&state.whole, touch, is_before) };
    let mut left = mask;
    while left != 0 {
        let part = if is_plain { left } else { left & left.wrapping_neg() };
        left &= !part;
        let number = part.trailing_zeros() as usize;
        let at = start + number as u64 * LINE_BYTES;
        let touch = Touch { mask: part, spot: spot_of(at), ..touch };
        if let Some(record) = apply(&mut state.whole, touch, is_before) {
            found(at, Conflict::With(state.of_line(&record, number)));
        } else if undefined & part != 0 {
            found(start + u64::from((undefined & part).trailing_zeros()) * LINE_BYTES, Conflict::Undefined);
        }
        state.set_spots(touch, |number| spot_of(start + number as u64 * LINE_BYTES));
    }
    chunk.set_slots(state);
    match effect {
        Effect::Allocate | Effect::HandOut => state.undefined |= mask,
        Effect::Read => {}
        _ => state.undefined &= !(mask & !late),
    }
}

/// Returns the numbers of the bits that are set.
fn bits_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let number = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(number)
    })
}

#[cfg(test)]
mod tests;
