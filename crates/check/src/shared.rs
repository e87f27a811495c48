//! Races on the shared memory of a thread block: for every word, the last accesses and their times.
//!
//! Time counts synchronization. An access happens before a later one of another thread if the block has synchronized in
//! between, or, within a warp, the warp. Whatever is not modelled exactly counts as if the whole block had synchronized:
//! a barrier of some threads, a fence, an acquire or a release, an `mbarrier`. That can hide a race, but never reports
//! one that is not there.
//!
//! Reads of bytes that no thread of the block has written are also found (`written.rs`).
//!
//! As long as the block only reads between two barriers, nothing races: reads are queued, and recorded only at the first
//! write.

mod written;

use written::Written;

use crate::access::{AccessKind, Instruction, Instructions, LANES, Race, ThreadAccess, WarpAccess};
use crate::words::cell::How;
use crate::words::clock::BlockClock;
use crate::words::page::{Met, Page, Run, WORD_BYTES, for_each_run};
use crate::words::slot::{ATOMIC, Slot};

/// The number of reads that are noted at most.
const READS_MAX: usize = 4096;

const HALF: usize = LANES / 2;

/// The accesses of one thread block to its shared memory.
#[derive(Debug)]
pub struct SharedCheck {
    /// The number of synchronizations, from 1.
    now: u32,
    clock: BlockClock,
    memory: Page,
    written: Written,
    bytes: u64,
    instructions: Instructions,
    /// Reads since the whole block synchronized last. Empty once it has written since then.
    reads: Vec<NotedRead>,
    has_written: bool,
}

/// A weak read of all lanes of a warp. The addresses of each half of the warp are at equal distances.
#[derive(Debug, Clone, Copy)]
struct NotedRead {
    time: u32,
    warp: u32,
    instruction: u16,
    bytes: u16,
    first: [u32; 2],
    distance: [u32; 2],
}

/// A read of bytes of shared memory that no thread of the block has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnwrittenRead {
    /// The thread, and the instruction.
    pub access: ThreadAccess,
    /// Where the bytes are in the shared memory of the block.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
}

impl NotedRead {
    #[inline]
    fn new(access: &WarpAccess<'_>, time: u32, instruction: u16) -> Option<Self> {
        let (halves, _) = access.addresses.as_chunks::<HALF>();
        let (mut first, mut distance, mut differs) = ([0; 2], [0; 2], 0);
        for (half, addresses) in halves.iter().enumerate() {
            let apart = addresses[1].wrapping_sub(addresses[0]);
            for (at, next) in addresses[..HALF - 1].iter().zip(&addresses[1..]) {
                differs |= next.wrapping_sub(*at) ^ apart | at >> 32;
            }
            (first[half], distance[half]) = (addresses[0] as u32, apart as u32);
        }
        let is_noted = access.lanes == u32::MAX && differs == 0;
        is_noted.then_some(Self { time, warp: access.warp, instruction, bytes: access.bytes as u16, first, distance })
    }

    fn addresses(&self) -> [u64; LANES] {
        std::array::from_fn(|lane| {
            let half = lane / HALF;
            let distance = self.distance[half].wrapping_mul((lane % HALF) as u32);
            self.first[half].wrapping_add(distance).into()
        })
    }
}

impl SharedCheck {
    /// Starts with a block of some threads that has not accessed its shared memory.
    pub fn new(shared_bytes: u64, threads: u32) -> Self {
        Self {
            now: 1,
            clock: BlockClock::new(threads.div_ceil(LANES as u32) as usize),
            memory: Page::new(shared_bytes),
            written: Written::new(shared_bytes),
            bytes: shared_bytes,
            instructions: Instructions::default(),
            reads: Vec::new(),
            has_written: false,
        }
    }

    /// Another block starts, after all that this one has done.
    pub fn restart(&mut self) {
        self.synchronize();
        self.written.clear();
    }

    /// All threads of the block, or some of them, have synchronized: at a barrier, with a fence, or in another way.
    pub fn synchronize(&mut self) {
        self.reads.clear();
        self.has_written = false;
        self.clock.since = self.tick();
    }

    /// Threads of a warp have synchronized.
    pub fn synchronize_warp(&mut self, warp: u32) {
        let now = self.tick();
        if let Some(since) = self.clock.warps.get_mut(warp as usize) {
            *since = now;
        }
    }

    fn tick(&mut self) -> u32 {
        if self.now == u32::MAX {
            self.memory = Page::new(self.bytes);
            self.clock = BlockClock::new(self.clock.warps.len());
            self.reads.clear();
            self.now = 1;
        }
        self.now += 1;
        self.now
    }

    /// Notes which bytes an access writes. Returns a thread that reads bytes that the block has not written.
    #[inline]
    pub fn unwritten(&mut self, access: &WarpAccess<'_>) -> Option<UnwrittenRead> {
        let lane = self.written.access(access)?;
        let &WarpAccess { block, instruction, kind, bytes, .. } = access;
        let thread = access.warp * LANES as u32 + lane;
        let offset = access.addresses[lane as usize];
        Some(UnwrittenRead { access: ThreadAccess { block, thread, instruction, kind }, offset, bytes })
    }

    /// Records an access. Returns a race with an earlier one, if there is any.
    pub fn access(&mut self, access: &WarpAccess<'_>) -> Option<Race> {
        let instruction = self.instructions.number(access.instruction);
        let is_weak_read = access.kind == AccessKind::Read && !access.is_strong && !access.is_ordering;
        if is_weak_read && !self.has_written {
            if self.reads.len() == READS_MAX {
                self.record_reads(access.block);
            }
            if let Some(read) = NotedRead::new(access, self.now, instruction) {
                self.reads.push(read);
                return None;
            }
        }
        if !self.has_written {
            // Before this access, so that they do not replace what is later.
            self.record_reads(access.block);
            self.has_written = !is_weak_read;
        }
        let found = self.record(&access.with_range(), self.now, instruction);
        if access.is_ordering {
            self.synchronize();
        }
        found
    }

    /// Notes a weak read of words by all lanes of a warp: `first` is the offset of the first lane of each half, `distance` how far
    /// its lanes are apart. Returns `false`, and does nothing, if it has to be told to [`unwritten`](Self::unwritten) and recorded by
    /// [`access`](Self::access).
    #[inline]
    pub fn note_read(&mut self, warp: u32, instruction: Instruction, first: [u32; 2], distance: [u32; 2]) -> bool {
        if self.has_written || self.reads.len() == READS_MAX {
            return false;
        }
        if !self.written.has_words(first[0], distance[0]) || !self.written.has_words(first[1], distance[1]) {
            return false;
        }
        let instruction = self.instructions.number(instruction);
        let read = NotedRead { time: self.now, warp, instruction, bytes: WORD_BYTES as u16, first, distance };
        self.reads.push(read);
        true
    }

    /// Records the reads that were noted, which race with nothing yet.
    fn record_reads(&mut self, block: u64) {
        let reads = std::mem::take(&mut self.reads);
        for read in &reads {
            let access = WarpAccess {
                block,
                warp: read.warp,
                instruction: self.instructions.get(read.instruction),
                kind: AccessKind::Read,
                is_strong: false,
                is_ordering: false,
                is_async: false,
                bytes: read.bytes.into(),
                addresses: &read.addresses(),
                lanes: u32::MAX,
                unchanged: 0,
                is_range: false,
            };
            let access = access.with_range();
            self.record(&access, read.time, read.instruction);
        }
        self.reads = reads;
        self.reads.clear();
    }

    fn record(&mut self, access: &WarpAccess<'_>, time: u32, instruction: u16) -> Option<Race> {
        let is_atomic = access.kind == AccessKind::Atomic;
        let is_write = access.kind != AccessKind::Read;
        let how = How { is_write, is_strong: access.is_strong || is_atomic, is_shared: true };
        let kind = if is_atomic { ATOMIC } else { 0 };
        // Where a copy writes twice, the order of the writes is not known: this is not checked.
        let unchanged = if access.is_async { access.lanes } else { access.unchanged };
        let Self { memory, clock, bytes: end, .. } = self;
        let mut found = None;
        for_each_run(access, |lane, lanes| {
            let start = access.addresses[lane as usize];
            if start >= *end {
                return;
            }
            let thread = access.warp * LANES as u32 + lane;
            let slot = Slot { time, block: 0, thread_and_kind: kind | thread as u16 & !ATOMIC, instruction };
            let (bytes, lanes, unchanged) = (access.bytes, lanes.into(), unchanged >> lane);
            let met = memory.access(clock, how, &Run { slot, bytes, lanes, start, skipped: 0, unchanged });
            if found.is_none() {
                found = met.map(|met| (met, thread));
            }
        });
        let (Met { at, lane, first, kind }, thread) = found?;
        let block = access.block;
        let instruction = self.instructions.get(first.instruction);
        let first = ThreadAccess { block, thread: first.thread().into(), instruction, kind };
        let thread = thread + lane as u32;
        let second = ThreadAccess { block, thread, instruction: access.instruction, kind: access.kind };
        Some(Race { address: at, first, second })
    }
}

#[cfg(test)]
mod tests;
