//! Races on global memory between the threads of a kernel: for every word, the last accesses and when they were.
//!
//! Time counts synchronization of any kind in the whole grid. Within a block, accesses are ordered as on shared memory
//! (see [`shared`](crate::shared)). Between blocks, a fence is followed by a strong access to a flag, which publishes what
//! the block has done before the fence; a strong read of the flag by another block orders that before what it does next.
//! Each block has a vector clock: the time until which it knows what another has done.
//!
//! All threads of a block count as one for fences and flags, and every strong read counts as one that sees all writes of
//! the flag before. That can hide a race, but never reports one that is not there. The blocks must be run one at a time,
//! so that they are told about in the order in which they accessed memory.

use std::collections::HashMap;

use crate::access::{AccessKind, Instructions, LANES, Race, ThreadAccess, WarpAccess, representative_lanes};

const WORD_BYTES: u64 = 4;
const PAGE_BYTES: u64 = 4096;
const PAGE_WORDS: usize = (PAGE_BYTES / WORD_BYTES) as usize;

/// A clock of more blocks than this is replaced by one that knows all blocks.
const CLOCK_BLOCKS_MAX: usize = 256;

/// Which threads a fence is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceScope {
    /// Those of the block.
    Block,
    /// Those of the device, or more.
    Device,
}

/// The accesses of one kernel to global memory.
#[derive(Debug)]
pub struct GridCheck {
    /// The number of synchronizations, from 1.
    now: u32,
    blocks: HashMap<u32, BlockClock>,
    flags: HashMap<u64, Flag>,
    shadow: Shadow,
    instructions: Instructions,
}

/// What happens before the next access of a block.
#[derive(Debug, Clone)]
struct BlockClock {
    /// When the whole block synchronized last.
    since: u32,
    /// When each warp did.
    warps: Vec<u32>,
    known: Known,
    /// What the block publishes with its next strong write: what it had done and knew at its last fence.
    fenced: Option<Known>,
    /// The flag that was published to last since the fence.
    published: Option<u64>,
    /// The versions of flags that it has read.
    read: HashMap<u64, u64>,
}

impl BlockClock {
    fn new(warps: usize) -> Self {
        let known = Known::default();
        Self { since: 0, warps: vec![0; warps], known, fenced: None, published: None, read: HashMap::new() }
    }
}

/// Until when the accesses of other blocks are known.
#[derive(Debug, Clone, Default)]
struct Known {
    blocks: HashMap<u32, u32>,
    /// Of all blocks.
    floor: u32,
}

impl Known {
    fn join(&mut self, other: &Self, now: u32) {
        self.floor = self.floor.max(other.floor);
        for (&block, &time) in &other.blocks {
            let known = self.blocks.entry(block).or_default();
            *known = time.max(*known);
        }
        if self.blocks.len() > CLOCK_BLOCKS_MAX {
            self.blocks.clear();
            self.floor = now;
        }
    }
}

/// A word that blocks synchronize with.
#[derive(Debug, Default)]
struct Flag {
    known: Known,
    /// The number of times that it was published to.
    version: u64,
}

/// One access. That of an unused slot is before all others.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    time: u32,
    block: u32,
    /// The thread, and `ATOMIC`.
    thread_and_kind: u16,
    instruction: u16,
}

const ATOMIC: u16 = 1 << 15;

impl Slot {
    fn thread(self) -> u16 {
        self.thread_and_kind & !ATOMIC
    }

    /// Returns whether it happens before an access of a thread that is executed now.
    #[inline]
    fn is_before(self, clock: &BlockClock, block: u32, thread: u16) -> bool {
        if self.time == 0 {
            return true;
        }
        if self.block != block {
            return self.time <= clock.known.floor
                || clock.known.blocks.get(&self.block).is_some_and(|&known| self.time <= known);
        }
        let warp = usize::from(thread) / LANES;
        self.time < clock.since
            || self.thread() == thread
            || usize::from(self.thread()) / LANES == warp && self.time < clock.warps[warp]
    }
}

/// The last accesses to a word or a byte. Of the two weak reads, one is of another block if there was such a read.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    write: Slot,
    strong_write: Slot,
    reads: [Slot; 2],
}

/// One access to a cell.
#[derive(Debug, Clone, Copy)]
struct Now {
    slot: Slot,
    is_write: bool,
    is_strong: bool,
    is_unchanged: bool,
}

impl Cell {
    /// Records an access. Returns one that races with it, and what that does.
    #[inline]
    fn access(&mut self, clock: &BlockClock, now: Now) -> Option<(Slot, AccessKind)> {
        let Now { slot, is_write, is_strong, is_unchanged } = now;
        let races = |before: Slot| !before.is_before(clock, slot.block, slot.thread());
        let mut found = None;
        if !is_unchanged && races(self.write) {
            found = Some((self.write, AccessKind::Write));
        } else if !is_unchanged && !is_strong && races(self.strong_write) {
            let is_atomic = self.strong_write.thread_and_kind & ATOMIC != 0;
            found = Some((self.strong_write, if is_atomic { AccessKind::Atomic } else { AccessKind::Write }));
        } else if is_write && let Some(&read) = self.reads.iter().find(|&&read| races(read)) {
            found = Some((read, AccessKind::Read));
        }
        match (is_write, is_strong) {
            (true, false) => self.write = slot,
            (true, true) => self.strong_write = slot,
            (false, true) => {}
            (false, false) => {
                let [last, other] = self.reads;
                let is_same = last.block == slot.block && last.thread() == slot.thread();
                let keeps = last.block == slot.block && other.block != slot.block && other.time != 0;
                if !is_same && !keeps {
                    self.reads[1] = last;
                }
                self.reads[0] = slot;
            }
        }
        found
    }
}

/// The cells of 4096 bytes.
#[derive(Debug)]
struct Page {
    words: Box<[Cell]>,
    /// The bytes of words that were split; empty until one is.
    bytes: Box<[Cell]>,
    /// A bit for each word that is split.
    split: [u64; PAGE_WORDS / 64],
}

impl Page {
    fn new() -> Self {
        Self { words: vec![Cell::default(); PAGE_WORDS].into(), bytes: Box::default(), split: [0; PAGE_WORDS / 64] }
    }

    /// Returns the cells of bytes of one word: a single one, unless it is split or the bytes are a part of it.
    #[inline]
    fn cells(&mut self, start: usize, end: usize) -> &mut [Cell] {
        let word = start / WORD_BYTES as usize;
        let is_split = self.split[word / 64] >> (word % 64) & 1 != 0;
        if !is_split && end - start == WORD_BYTES as usize {
            return &mut self.words[word..=word];
        }
        if !is_split {
            if self.bytes.is_empty() {
                self.bytes = vec![Cell::default(); PAGE_BYTES as usize].into();
            }
            let first = word * WORD_BYTES as usize;
            self.bytes[first..first + WORD_BYTES as usize].fill(self.words[word]);
            self.split[word / 64] |= 1 << (word % 64);
        }
        &mut self.bytes[start..end]
    }
}

/// The pages that were accessed.
#[derive(Debug, Default)]
struct Shadow {
    pages: Vec<Page>,
    /// The index of each page.
    numbers: HashMap<u64, usize>,
    /// The number and index of the page that was accessed last.
    last: Option<(u64, usize)>,
    /// The number of pages that may be added.
    pages_left: u64,
}

impl Shadow {
    /// Records the access of one thread: word by word, or byte by byte where a word is split.
    fn access(&mut self, clock: &BlockClock, now: Now, address: u64, bytes: u64) -> Option<(u64, Slot, AccessKind)> {
        let end = address.checked_add(bytes).filter(|&end| end < u64::MAX - PAGE_BYTES)?;
        let mut found = None;
        let mut at = address;
        while at < end {
            let page_end = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(end);
            let Some(page) = self.page(at / PAGE_BYTES) else { return found };
            while at < page_end {
                let next = ((at / WORD_BYTES + 1) * WORD_BYTES).min(page_end);
                let start = (at % PAGE_BYTES) as usize;
                for (index, cell) in page.cells(start, start + (next - at) as usize).iter_mut().enumerate() {
                    let race = cell.access(clock, now);
                    found = found.or(race.map(|(first, kind)| (at + index as u64, first, kind)));
                }
                at = next;
            }
        }
        found
    }

    /// Returns a page; `None` if it is one too many.
    #[inline]
    fn page(&mut self, number: u64) -> Option<&mut Page> {
        let index = match self.last {
            Some((last, index)) if last == number => index,
            _ => {
                let index = match self.numbers.get(&number) {
                    Some(&index) => index,
                    None => {
                        self.pages_left = self.pages_left.checked_sub(1)?;
                        self.pages.push(Page::new());
                        self.numbers.insert(number, self.pages.len() - 1);
                        self.pages.len() - 1
                    }
                };
                self.last = Some((number, index));
                index
            }
        };
        Some(&mut self.pages[index])
    }

    fn clear(&mut self) {
        self.pages_left += self.pages.len() as u64;
        self.pages.clear();
        self.numbers.clear();
        self.last = None;
    }
}

impl GridCheck {
    /// Starts with a kernel that has not accessed memory. At most about `memory_bytes` of it are watched, those that are
    /// accessed first; each needs 12 bytes here, or 60 if it is accessed in parts of a word.
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            now: 1,
            blocks: HashMap::new(),
            flags: HashMap::new(),
            shadow: Shadow { pages_left: memory_bytes.div_ceil(PAGE_BYTES), ..Shadow::default() },
            instructions: Instructions::default(),
        }
    }

    /// A block starts. Nothing that others have done is ordered before it.
    pub fn start(&mut self, block: u64, threads: u32) {
        self.blocks.insert(block as u32, BlockClock::new(threads.div_ceil(LANES as u32) as usize));
    }

    /// All threads of a block have ended.
    pub fn end(&mut self, block: u64) {
        self.blocks.remove(&(block as u32));
    }

    /// Threads of a block have synchronized at a barrier.
    pub fn synchronize(&mut self, block: u64) {
        let now = self.tick();
        if let Some(clock) = self.blocks.get_mut(&(block as u32)) {
            clock.since = now;
        }
    }

    /// Threads of a warp have synchronized.
    pub fn synchronize_warp(&mut self, block: u64, warp: u32) {
        let now = self.tick();
        let clock = self.blocks.get_mut(&(block as u32));
        if let Some(since) = clock.and_then(|clock| clock.warps.get_mut(warp as usize)) {
            *since = now;
        }
    }

    /// A thread of a block has executed a fence: what the block has done until now is published by its next strong write.
    pub fn fence(&mut self, block: u64, scope: FenceScope) {
        let (before, now) = (self.now, self.tick());
        let Some(clock) = self.blocks.get_mut(&(block as u32)) else { return };
        clock.since = now;
        if scope == FenceScope::Device {
            let mut done = clock.known.clone();
            done.blocks.insert(block as u32, before);
            clock.fenced = Some(done);
            clock.published = None;
        }
    }

    /// Forgets the accesses to memory that was allocated or freed by the kernel.
    pub fn forget(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        for (&number, &index) in &self.shadow.numbers {
            let page = &mut self.shadow.pages[index];
            let start = number * PAGE_BYTES;
            let within = address.max(start)..end.min(start + PAGE_BYTES);
            if within.is_empty() {
                continue;
            }
            let offsets = (within.start - start) as usize..(within.end - start) as usize;
            if !page.bytes.is_empty() {
                page.bytes[offsets.clone()].fill(Cell::default());
            }
            let words = offsets.start / WORD_BYTES as usize..offsets.end.div_ceil(WORD_BYTES as usize);
            page.words[words].fill(Cell::default());
        }
        self.flags.retain(|flag, _| !(address..end).contains(flag));
    }

    /// Counts a synchronization. When all numbers are used up, everything before counts as ordered.
    fn tick(&mut self) -> u32 {
        if self.now == u32::MAX {
            self.shadow.clear();
            self.flags.clear();
            for clock in self.blocks.values_mut() {
                *clock = BlockClock::new(clock.warps.len());
            }
            self.now = 1;
        }
        self.now += 1;
        self.now
    }

    /// Records an access of a block. Returns a race with an earlier one, if there is any.
    pub fn access(&mut self, access: &WarpAccess<'_>) -> Option<Race> {
        let block = access.block;
        let is_atomic = access.kind == AccessKind::Atomic;
        let is_strong = access.is_strong || is_atomic;
        let is_write = access.kind != AccessKind::Read;
        if access.is_ordering {
            self.fence(block, FenceScope::Device);
        }
        if is_strong {
            self.synchronize_by_flags(block, access, is_write);
        }
        let clock = self.blocks.get(&(block as u32))?;
        let instruction = self.instructions.number(access.instruction);
        let unchanged = if access.is_async { access.lanes } else { access.unchanged };
        let mut found = None;
        let mut lanes = representative_lanes(access);
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            lanes &= lanes - 1;
            let thread = (access.warp * LANES as u32 + lane) as u16 & !ATOMIC;
            let thread_and_kind = if is_atomic { thread | ATOMIC } else { thread };
            let slot = Slot { time: self.now, block: block as u32, thread_and_kind, instruction };
            let is_unchanged = is_write && unchanged >> lane & 1 != 0;
            let now = Now { slot, is_write, is_strong, is_unchanged };
            let race = self.shadow.access(clock, now, access.addresses[lane as usize], access.bytes);
            if let Some((address, first, kind)) = race
                && found.is_none()
            {
                let second =
                    ThreadAccess { block, thread: thread.into(), instruction: access.instruction, kind: access.kind };
                let instruction = self.instructions.get(first.instruction);
                let first =
                    ThreadAccess { block: first.block.into(), thread: first.thread().into(), instruction, kind };
                found = Some(Race { address, first, second });
            }
        }
        found
    }

    /// Publishes what the block has done before its last fence, and learns what others have published, at the words of a
    /// strong access.
    fn synchronize_by_flags(&mut self, block: u64, access: &WarpAccess<'_>, is_write: bool) {
        let now = self.now;
        let Some(clock) = self.blocks.get_mut(&(block as u32)) else { return };
        let mut has_learned = false;
        let mut previous = None;
        for lane in (0..LANES).filter(|lane| access.lanes >> lane & 1 != 0) {
            let word = access.addresses[lane] / WORD_BYTES * WORD_BYTES;
            if previous.replace(word) == Some(word) {
                continue;
            }
            if access.kind != AccessKind::Write
                && let Some(flag) = self.flags.get(&word)
                && clock.read.get(&word) != Some(&flag.version)
            {
                clock.known.join(&flag.known, now);
                clock.read.insert(word, flag.version);
                has_learned = true;
            }
            if is_write
                && clock.published != Some(word)
                && let Some(fenced) = &clock.fenced
            {
                let flag = self.flags.entry(word).or_default();
                flag.known.join(fenced, now);
                flag.version += 1;
                clock.published = Some(word);
            }
        }
        if has_learned {
            self.synchronize(block);
        }
    }
}

#[cfg(test)]
mod tests;
