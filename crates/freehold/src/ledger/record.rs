//! The storage of the records of blocks. Knows nothing of addresses or of allowed transitions.
//!
//! A record is two cache lines, stored separately: the fields that `owner_of` needs, and the rest. Records lie in
//! chunks that never move, so that the millionth block costs no more than the first.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::entry::{BlockId, ContextId, Entry, Fence, Kind, Owner, State, StreamId};

/// Marks the absence of a record.
pub(super) const NONE: u32 = u32::MAX;

/// Records in a chunk: 64 KiB of lines.
const CHUNK: usize = 1024;

/// The stage of a record. The last two are traces: the block is gone, and only a late release looks it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Vacant,
    Owned,
    Released,
    Free,
    Returned,
    ContextDestroyed,
}

/// The fields that `owner_of` needs, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Record {
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) tag: Option<Arc<str>>,
    pub(super) allocated_at: &'static Location<'static>,
    pub(super) context: ContextId,
    /// Meaningless if `streamless`: an `Option` would not fit.
    stream: StreamId,
    pub(super) process: u32,
    pub(super) generation: u32,
    /// How many fences a released block still waits for.
    pub(super) waiting_for: u32,
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    streamless: bool,
}

const _: () = assert!(size_of::<Record>() == 64, "a record is one cache line");

/// The fields that only changes of a block need.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Rest {
    pub(super) capacity_bytes: u64,
    pub(super) fences: Vec<Fence>,
    pub(super) released_at: Option<&'static Location<'static>>,
    /// When the block was released or ended with its context; `NEVER` if neither happened.
    when_ns: u64,
    /// The record with the next lower base that begins in the same granule.
    pub(super) sibling: u32,
    /// Neighbours in the list of traces. `newer` also links vacant records.
    pub(super) older: u32,
    pub(super) newer: u32,
}

const _: () = assert!(size_of::<Rest>() == 64, "the rest of a record is one cache line");

const NEVER: u64 = u64::MAX;

impl Record {
    pub(super) fn stream(&self) -> Option<StreamId> {
        (!self.streamless).then_some(self.stream)
    }

    pub(super) fn set_stream(&mut self, stream: Option<StreamId>) {
        self.streamless = stream.is_none();
        self.stream = stream.unwrap_or(StreamId(0));
    }

    /// Whether an address is among the block's first `bytes`.
    #[inline]
    pub(super) fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    pub(super) fn is_trace(&self) -> bool {
        matches!(self.stage, Stage::Returned | Stage::ContextDestroyed)
    }

    /// Returns the owner of the block, or `None` for a trace.
    #[inline]
    pub(super) fn owner(&self, index: u32) -> Option<Owner> {
        let state = if self.stage == Stage::Owned { State::Owned } else { self.unowned_state()? };
        Some(Owner {
            base: self.base,
            bytes: self.bytes,
            context: self.context,
            stream: self.stream(),
            process: self.process,
            kind: self.kind,
            tag: self.tag.clone(),
            allocated_at: Some(self.allocated_at),
            state,
            block: self.id(index),
        })
    }

    /// Returns the state of a block that was released and still exists. Not inlined, because `owner_of` waits for
    /// memory, and the fewer instructions it has, the more lookups a processor can overlap.
    #[inline(never)]
    fn unowned_state(&self) -> Option<State> {
        match self.stage {
            Stage::Released => Some(State::Released { waiting_for: self.waiting_for }),
            Stage::Free => Some(State::Free),
            Stage::Owned | Stage::Vacant | Stage::Returned | Stage::ContextDestroyed => None,
        }
    }

    pub(super) fn id(&self, index: u32) -> BlockId {
        BlockId { index, generation: self.generation }
    }

    fn vacant() -> Self {
        Self {
            base: 0,
            bytes: 0,
            tag: None,
            allocated_at: Location::caller(),
            context: ContextId(0),
            stream: StreamId(0),
            process: 0,
            generation: 0,
            waiting_for: 0,
            kind: Kind::Own,
            stage: Stage::Vacant,
            streamless: true,
        }
    }
}

impl Rest {
    pub(super) fn when(&self) -> Option<Duration> {
        (self.when_ns != NEVER).then(|| Duration::from_nanos(self.when_ns))
    }

    /// Durations beyond 584 years saturate.
    pub(super) fn set_when(&mut self, when: Duration) {
        self.when_ns = u64::try_from(when.as_nanos()).unwrap_or(NEVER - 1);
    }

    pub(super) fn unset_release(&mut self) {
        self.released_at = None;
        self.when_ns = NEVER;
    }

    fn vacant() -> Self {
        Self {
            capacity_bytes: 0,
            fences: Vec::new(),
            released_at: None,
            when_ns: NEVER,
            sibling: NONE,
            older: NONE,
            newer: NONE,
        }
    }
}

/// All records, by index.
#[derive(Debug)]
pub(super) struct Records {
    lines: Vec<Box<[Record; CHUNK]>>,
    rests: Vec<Box<[Rest; CHUNK]>>,
    /// Records that were ever in use: those from here on are vacant and in no list.
    used: u32,
    /// The first of the list of vacant records below `used`.
    vacant: u32,
}

impl Records {
    pub(super) fn new() -> Self {
        Self { lines: Vec::new(), rests: Vec::new(), used: 0, vacant: NONE }
    }

    #[inline]
    pub(super) fn line(&self, index: u32) -> &Record {
        &self.lines[index as usize / CHUNK][index as usize % CHUNK]
    }

    #[inline]
    pub(super) fn line_mut(&mut self, index: u32) -> &mut Record {
        &mut self.lines[index as usize / CHUNK][index as usize % CHUNK]
    }

    #[inline]
    pub(super) fn rest(&self, index: u32) -> &Rest {
        &self.rests[index as usize / CHUNK][index as usize % CHUNK]
    }

    #[inline]
    pub(super) fn rest_mut(&mut self, index: u32) -> &mut Rest {
        &mut self.rests[index as usize / CHUNK][index as usize % CHUNK]
    }

    /// Returns the last address of the block's capacity.
    pub(super) fn last(&self, index: u32) -> u64 {
        self.line(index).base + (self.rest(index).capacity_bytes - 1)
    }

    /// Returns the record of an id, if the id's generation is not over.
    pub(super) fn live(&self, block: BlockId) -> Option<&Record> {
        if block.index >= self.used {
            return None;
        }
        let record = self.line(block.index);
        let live = matches!(record.stage, Stage::Owned | Stage::Released | Stage::Free);
        (live && record.generation == block.generation).then_some(record)
    }

    /// Returns all records that were ever in use, including vacant ones and traces.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Record)> {
        (0..self.used).zip(self.lines.iter().flat_map(|chunk| chunk.iter()))
    }

    /// Makes an owned block of an entry.
    pub(super) fn add(&mut self, entry: Entry) -> u32 {
        let index = self.take();
        let line = self.line_mut(index);
        line.base = entry.base;
        line.bytes = entry.bytes;
        line.tag = entry.tag;
        line.allocated_at = entry.allocated_at;
        line.context = entry.context;
        line.process = entry.process;
        line.kind = entry.kind;
        line.stage = Stage::Owned;
        line.waiting_for = 0;
        line.set_stream(entry.stream);
        let rest = self.rest_mut(index);
        rest.capacity_bytes = entry.capacity_bytes;
        rest.sibling = NONE;
        rest.unset_release();
        index
    }

    /// Frees the record for another block.
    pub(super) fn vacate(&mut self, index: u32) {
        self.line_mut(index).stage = Stage::Vacant;
        self.rest_mut(index).newer = self.vacant;
        self.vacant = index;
    }

    fn take(&mut self) -> u32 {
        if self.vacant != NONE {
            let index = self.vacant;
            self.vacant = self.rest(index).newer;
            return index;
        }
        let index = self.used;
        assert!(index < NONE, "fewer than 2^32 - 1 blocks are alive");
        if index as usize / CHUNK == self.lines.len() {
            self.lines.push(chunk(Record::vacant));
            self.rests.push(chunk(Rest::vacant));
        }
        self.used += 1;
        index
    }
}

fn chunk<T>(vacant: fn() -> T) -> Box<[T; CHUNK]> {
    let items: Box<[T]> = (0..CHUNK).map(|_| vacant()).collect();
    let Ok(items) = items.try_into() else { unreachable!("the chunk has the length of its records") };
    items
}
