//! For every byte, its last write and the reads since then.
//!
//! Addresses are divided into chunks of 4 KiB. A chunk whose bytes were always accessed together has one list of records. The first
//! access to a part of it gives it lines of 64 bytes: each has a write and a read, with masks of their bytes, and more records
//! beside it when there are more. An access that its task has made before, which is the common case in a kernel, changes nothing and
//! takes no lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::tasks::TaskId;

pub(crate) const LINE_BYTES: u64 = 64;
const CHUNK_BYTES: u64 = 4096;
const LINES: usize = (CHUNK_BYTES / LINE_BYTES) as usize;
const GRANULE_BYTES: u64 = 2 << 20;
const CHUNKS: usize = (GRANULE_BYTES / CHUNK_BYTES) as usize;

/// What an access does to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
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
    /// Takes them out of a pool's free memory.
    HandOut,
}

impl AccessKind {
    fn is_allocation(self) -> bool {
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

/// Where in a kernel an access is: the line of the PTX, the block, and the thread. Zero for other work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot(u64);

const THREAD_BITS: u32 = 10;
const BLOCK_BITS: u32 = 30;

impl Spot {
    /// A block beyond the first 2^30 counts as the last of these, as does a line beyond 2^24.
    pub fn new(line: u32, block: u64, thread: u32) -> Self {
        let line = u64::from(line.min((1 << 24) - 1));
        let block = block.min((1 << BLOCK_BITS) - 1);
        Self(line << (BLOCK_BITS + THREAD_BITS) | block << THREAD_BITS | u64::from(thread & ((1 << THREAD_BITS) - 1)))
    }

    pub(crate) fn line(self) -> u32 {
        (self.0 >> (BLOCK_BITS + THREAD_BITS)) as u32
    }

    pub(crate) fn block(self) -> u64 {
        self.0 >> THREAD_BITS & ((1 << BLOCK_BITS) - 1)
    }

    pub(crate) fn thread(self) -> u32 {
        (self.0 & ((1 << THREAD_BITS) - 1)) as u32
    }
}

/// An access that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Which bytes of the line. All bits for a whole chunk.
    pub(crate) mask: u64,
    pub(crate) task: TaskId,
    pub(crate) kind: AccessKind,
    pub(crate) spot: Spot,
}

/// The bits of a slot's word that are the kind of access.
const KIND_BITS: u32 = 3;

impl Record {
    fn word(self) -> u32 {
        self.task.0 << KIND_BITS | self.kind.code()
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
            task: TaskId(word >> KIND_BITS),
            kind: AccessKind::from_code(word & ((1 << KIND_BITS) - 1)),
            spot: Spot(self.spot.load(Ordering::Relaxed)),
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
        self.spot.store(record.spot.0, Ordering::Relaxed);
        self.mask.store(record.mask, Ordering::Release);
    }

    /// Returns whether a task has made an access of a kind to all bytes of a mask.
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
        let last = |is_read: bool| records.iter().rposition(|record| record.kind.is_read() == is_read);
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
    kind: AccessKind,
    task: TaskId,
    spot: Spot,
    mask: u64,
}

/// Adds an access to the records of the same bytes. Returns the first record that it conflicts with.
fn apply(records: &mut Vec<Record>, touch: Touch, is_before: &mut dyn FnMut(TaskId) -> bool) -> Option<Record> {
    let Touch { kind, task, spot, mask } = touch;
    match kind {
        // The other records stay, for the accesses of the next owner.
        AccessKind::Release => {
            records.push(Record { mask, task, kind, spot });
            return None;
        }
        AccessKind::HandOut => {
            records.iter_mut().filter(|record| record.kind.is_free()).for_each(|record| record.mask &= !mask);
            records.retain(|record| record.mask != 0);
            return None;
        }
        _ => {}
    }
    let mut conflict = None;
    let mut is_covered = false;
    for record in records.iter_mut().filter(|record| record.mask & mask != 0) {
        if record.task == task && !record.kind.is_free() {
            if kind.is_read() {
                is_covered |= record.mask & mask == mask;
            } else {
                record.mask &= !mask;
            }
            continue;
        }
        let may_overlap =
            record.kind.is_read() && kind.is_read() || record.kind == AccessKind::Atomic && kind == AccessKind::Atomic;
        let is_ordered = is_before(record.task);
        if may_overlap {
            if is_ordered {
                record.mask &= !mask;
            }
            continue;
        }
        let is_conflict = match record.kind {
            // Work that was submitted before the pool got the block back may still use it.
            AccessKind::Release => is_ordered && !kind.is_allocation() && !kind.is_free(),
            AccessKind::Free => !is_ordered || !kind.is_allocation() && !kind.is_free(),
            _ => !is_ordered,
        };
        if is_conflict {
            conflict.get_or_insert(*record);
        }
        if !kind.is_read() {
            record.mask &= !mask;
        }
    }
    if is_covered {
        return conflict;
    }
    records.retain(|record| record.mask != 0);
    let same = records
        .iter_mut()
        .find(|record| record.task == task && record.kind == kind && record.spot.line() == spot.line());
    match same {
        Some(record) => record.mask |= mask,
        None => records.push(Record { mask, task, kind, spot }),
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
        let written = records.iter().filter(|record| record.mask & bit != 0 && !record.kind.is_read());
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
fn mask_of(offset: u64, bytes: u64) -> u64 {
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
        kind: AccessKind,
        spot: Spot,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<Conflict> {
        let word = self.task.0 << KIND_BITS;
        let number = (address % CHUNK_BYTES / LINE_BYTES) as usize;
        let chunk = self.chunk(address);
        if let Some(lines) = chunk.lines.get() {
            let line = &lines[number];
            let is_known = match kind {
                AccessKind::Read => {
                    line.read.covers(word | AccessKind::Read.code(), mask)
                        || line.write.covers(word | AccessKind::Write.code(), mask)
                }
                AccessKind::Write | AccessKind::Atomic => line.write.covers(word | kind.code(), mask),
                _ => false,
            };
            if is_known {
                return None;
            }
        }
        self.touch_line_slow(address, mask, kind, spot, is_before)
    }

    #[cold]
    fn touch_line_slow(
        &mut self,
        address: u64,
        mask: u64,
        kind: AccessKind,
        spot: Spot,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<Conflict> {
        let touch = Touch { kind, task: self.task, spot, mask };
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
        let is_undefined = kind.is_read() && undefined & mask != 0;
        let left = match kind {
            AccessKind::Allocate => undefined | mask,
            AccessKind::HandOut => undefined,
            AccessKind::Read => undefined,
            _ => undefined & !mask,
        };
        if left != undefined {
            line.undefined.store(left, Ordering::Relaxed);
        }
        drop(state);
        self.records = records;
        conflict.map(Conflict::With).or_else(|| is_undefined.then_some(Conflict::Undefined))
    }

    /// Returns whether bytes of the line at `address` have no defined value.
    pub(crate) fn is_undefined(&mut self, address: u64, mask: u64) -> bool {
        let number = (address % CHUNK_BYTES / LINE_BYTES) as usize;
        let chunk = self.chunk(address);
        match chunk.lines.get() {
            Some(lines) => lines[number].undefined.load(Ordering::Relaxed) & mask != 0,
            None => chunk.state().is_undefined,
        }
    }

    /// Accesses a range. Returns the first conflict, and its address.
    pub(crate) fn touch_range(
        &mut self,
        address: u64,
        bytes: u64,
        kind: AccessKind,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<(u64, Conflict)> {
        let mut first = None;
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            let chunk_end = (at / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES).min(end);
            let is_whole = at.is_multiple_of(CHUNK_BYTES) && chunk_end - at == CHUNK_BYTES;
            let whole = if is_whole { self.touch_whole(at, kind, is_before) } else { None };
            match whole {
                Some(conflict) => first = first.or(conflict.map(|conflict| (at, conflict))),
                None => {
                    while at < chunk_end {
                        let line = at / LINE_BYTES * LINE_BYTES;
                        let mask = mask_of(at - line, chunk_end - at);
                        let met = self.touch_line(line, mask, kind, Spot::default(), is_before);
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
        kind: AccessKind,
        is_before: &mut dyn FnMut(TaskId) -> bool,
    ) -> Option<Option<Conflict>> {
        let touch = Touch { kind, task: self.task, spot: Spot::default(), mask: u64::MAX };
        let chunk = self.chunk(address);
        let mut state = chunk.state();
        if chunk.lines.get().is_some() {
            return None;
        }
        let conflict = apply(&mut state.whole, touch, is_before);
        let was_undefined = state.is_undefined;
        let is_kept = kind.is_read() || kind == AccessKind::HandOut;
        state.is_undefined = kind == AccessKind::Allocate || was_undefined && is_kept;
        let undefined = || (kind.is_read() && was_undefined).then_some(Conflict::Undefined);
        Some(conflict.map(Conflict::With).or_else(undefined))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Tasks happen before each other if their numbers are equal modulo 3, and the first is smaller.
    fn is_before(first: u32, second: u32) -> bool {
        first <= second && first % 3 == second % 3
    }

    /// What a byte met.
    #[derive(Default)]
    struct Byte {
        /// What a shadow of this byte alone keeps.
        records: Vec<Record>,
        is_undefined: bool,
        /// All accesses so far. The shadow forgets one that a later access replaces.
        history: Vec<(u32, AccessKind)>,
    }

    impl Byte {
        /// Returns whether an access races with any earlier one, or the byte was freed.
        fn is_conflict(&self, task: u32, kind: AccessKind) -> bool {
            let is_conflict = |&(first, earlier): &(u32, AccessKind)| match (earlier, kind) {
                (AccessKind::Read, AccessKind::Read) | (AccessKind::Atomic, AccessKind::Atomic) => false,
                (AccessKind::Free, AccessKind::Read | AccessKind::Write | AccessKind::Atomic) => true,
                _ => !is_before(first, task),
            };
            kind.is_read() && self.is_undefined || self.history.iter().any(is_conflict)
        }
    }

    /// A shadow with one list of records for every byte.
    #[derive(Default)]
    struct Model {
        bytes: BTreeMap<u64, Byte>,
    }

    impl Model {
        /// Returns whether there is a conflict, and whether there is one at a byte that the task has not accessed before.
        fn touch(&mut self, task: u32, start: u64, bytes: u64, kind: AccessKind) -> (bool, bool) {
            let (mut is_conflict, mut is_new) = (false, false);
            for at in start..start + bytes {
                let byte = self.bytes.entry(at).or_default();
                is_conflict |= byte.is_conflict(task, kind);
                let is_known = byte.history.iter().any(|(earlier, _)| *earlier == task);
                let touch = Touch { kind, task: TaskId(task), spot: Spot::default(), mask: 1 };
                let met = apply(&mut byte.records, touch, &mut |first| is_before(first.0, task)).is_some()
                    || kind.is_read() && byte.is_undefined;
                is_new |= met && !is_known;
                byte.is_undefined = kind == AccessKind::Allocate || kind.is_read() && byte.is_undefined;
                if kind == AccessKind::Allocate {
                    byte.history.retain(|(_, earlier)| *earlier != AccessKind::Free);
                }
                if !byte.history.contains(&(task, kind)) {
                    byte.history.push((task, kind));
                }
            }
            (is_conflict, is_new)
        }
    }

    fn kinds() -> impl Strategy<Value = AccessKind> {
        prop_oneof![
            4 => Just(AccessKind::Read),
            4 => Just(AccessKind::Write),
            1 => Just(AccessKind::Atomic),
            1 => Just(AccessKind::Allocate),
            1 => Just(AccessKind::Free),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn lines_and_chunks_find_what_single_bytes_find(
            accesses in proptest::collection::vec(
                (1..12u32, 0..40u64, prop_oneof![Just(1), Just(4), 1..300u64, Just(4096), 4000..9000u64], kinds()),
                1..40,
            ),
        ) {
            let shadow = Shadow::default();
            let mut model = Model::default();
            for (task, start, bytes, kind) in accesses {
                let start = 4096 * (start % 3) + start * 8 % 4096 * u64::from(bytes != 4096);
                let mut view = ShadowView::new(&shadow, TaskId(task));
                let met = view.touch_range(start, bytes, kind, &mut |first| is_before(first.0, task)).is_some();
                let (is_conflict, is_new) = model.touch(task, start, bytes, kind);
                prop_assert!(is_conflict || !met, "an access without a conflict was reported");
                prop_assert!(met || !is_new, "a conflict was not reported");
            }
        }
    }

    #[test]
    fn a_spot_keeps_line_block_and_thread() {
        let spot = Spot::new(70_000, 1 << 20, 1023);
        assert_eq!((spot.line(), spot.block(), spot.thread()), (70_000, 1 << 20, 1023));
        let last = Spot::new(u32::MAX, u64::MAX, 5);
        assert_eq!((last.line(), last.block(), last.thread()), ((1 << 24) - 1, (1 << 30) - 1, 5));
    }
}
