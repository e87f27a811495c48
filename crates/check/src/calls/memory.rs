//! The blocks that the program has allocated, and the parts of them that its pools have handed out.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::blocks::BlockKind;
use crate::clock::{Epoch, QueueId};

use super::history::{Entry, History, Task};

/// How many freed blocks, and blocks that went back to a pool, are remembered.
const FREED_MAX: usize = 1 << 12;

/// A block of the driver, or a part of one that a pool has handed out.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) range: Range<u64>,
    pub(super) kind: BlockKind,
    /// Whether it is from a pool of the driver, so that its free waits for nothing.
    pub(super) is_pooled: bool,
    /// Whether it is memory that the program has mapped itself.
    pub(super) is_mapped: bool,
    pub(super) allocated: Task,
    pub(super) freed: Option<Task>,
    pub(super) history: History,
    pub(super) parts: Option<Box<Parts>>,
}

/// The parts of a block that a pool has handed out, and those that it got back.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) live: BlockMap,
    pub(super) released: BlockMap,
}

/// Blocks that do not overlap, by address.
#[derive(Debug, Default)]
pub(super) struct BlockMap(BTreeMap<u64, Box<Block>>);

impl BlockMap {
    pub(super) fn insert(&mut self, block: Box<Block>) {
        self.0.insert(block.range.start, block);
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<Box<Block>> {
        self.0.remove(&address)
    }

    /// Returns the block around an address.
    pub(super) fn around(&self, address: u64) -> Option<&Block> {
        let (_, block) = self.0.range(..=address).next_back()?;
        block.range.contains(&address).then_some(block)
    }

    pub(super) fn around_mut(&mut self, address: u64) -> Option<&mut Block> {
        let (_, block) = self.0.range_mut(..=address).next_back()?;
        block.range.contains(&address).then_some(block)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Block> {
        self.0.values().map(|block| &**block)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.0.values_mut().map(|block| &mut **block)
    }

    /// Removes the blocks that overlap a range, and returns them.
    fn take_overlapping(&mut self, range: Range<u64>) -> Vec<Block> {
        let overlapping = self.0.range(..range.end).rev().take_while(|(_, block)| block.range.end > range.start);
        let starts: Vec<u64> = overlapping.map(|(start, _)| *start).collect();
        starts.iter().filter_map(|start| self.0.remove(start)).map(|block| *block).collect()
    }

    fn limit(&mut self) {
        if self.0.len() > FREED_MAX {
            self.0.pop_first();
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) live: BlockMap,
    freed: BlockMap,
    /// All live and freed blocks are in this range, so that most numbers are no addresses of theirs.
    span: Range<u64>,
}

impl Memory {
    pub(super) fn allocate(&mut self, block: Box<Block>) {
        let range = block.range.clone();
        if self.span.is_empty() {
            self.span = range.clone();
        }
        self.span = self.span.start.min(range.start)..self.span.end.max(range.end);
        // What is left of them was freed in a way that was not seen.
        drop(self.live.take_overlapping(range.clone()));
        drop(self.freed.take_overlapping(range));
        self.live.insert(block);
    }

    /// Returns whether a number may be an address of a block.
    #[inline]
    pub(super) fn may_have(&self, address: u64) -> bool {
        self.span.contains(&address)
    }

    /// Remembers a block that was freed.
    pub(super) fn keep_freed(&mut self, block: Box<Block>) {
        self.freed.insert(block);
        self.freed.limit();
    }

    pub(super) fn freed(&self, address: u64) -> Option<&Block> {
        self.freed.around(address)
    }

    /// Returns the innermost block around an address: a part, a live block, or a freed one.
    pub(super) fn around(&self, address: u64) -> Option<&Block> {
        let Some(block) = self.live.around(address) else { return self.freed.around(address) };
        let part = block
            .parts
            .as_ref()
            .and_then(|parts| parts.live.around(address).or_else(|| parts.released.around(address)));
        Some(part.unwrap_or(block))
    }
}

impl Block {
    /// Hands out a part.
    pub(super) fn hand_out(&mut self, range: Range<u64>, allocated: Task) {
        let parts = self.parts.get_or_insert_default();
        // A pool that does not announce frees hands out what it has handed out before.
        let before = [parts.live.take_overlapping(range.clone()), parts.released.take_overlapping(range.clone())];
        let mut history = History::default();
        history.inherit(self.history.handed_on(range.start, range.end).collect::<Vec<Entry>>());
        for old in before.into_iter().flatten() {
            history.inherit(old.history.handed_on(range.start, range.end).collect::<Vec<Entry>>());
            for rest in [old.range.start..range.start, range.end..old.range.end] {
                if rest.start < rest.end {
                    let mut left = History::default();
                    left.inherit(old.history.handed_on(rest.start, rest.end).collect::<Vec<Entry>>());
                    parts.released.insert(Box::new(Block { range: rest, history: left, ..old.without_history() }));
                }
            }
        }
        let kind = BlockKind::Pool;
        let part =
            Block { range, kind, is_pooled: true, is_mapped: false, allocated, freed: None, history, parts: None };
        parts.live.insert(Box::new(part));
    }

    /// Takes a part back. Returns whether it was handed out.
    pub(super) fn release(&mut self, address: u64, freed: Task) -> bool {
        let Some(parts) = &mut self.parts else { return false };
        let Some(mut part) = parts.live.remove(address) else { return false };
        part.freed = Some(freed);
        parts.released.insert(part);
        parts.released.limit();
        true
    }

    /// Forgets the work that the host has waited for.
    pub(super) fn forget_observed(&mut self, is_observed: impl Fn(Epoch) -> bool) {
        if is_observed(self.allocated.epoch) {
            self.allocated.epoch = Epoch { queue: QueueId::HOST, seq: 0 };
        }
        self.history.forget_observed(is_observed);
    }

    fn without_history(&self) -> Self {
        Self {
            range: self.range.clone(),
            kind: self.kind,
            is_pooled: self.is_pooled,
            is_mapped: self.is_mapped,
            allocated: self.allocated,
            freed: self.freed,
            history: History::default(),
            parts: None,
        }
    }
}

impl Memory {
    /// Calls a function for each block.
    pub(super) fn for_each_block(&mut self, mut visit: impl FnMut(&mut Block)) {
        for block in self.live.values_mut() {
            visit(block);
            let parts = block.parts.iter_mut().flat_map(|parts| {
                let Parts { live, released } = &mut **parts;
                live.values_mut().chain(released.values_mut())
            });
            parts.for_each(&mut visit);
        }
    }

    /// Forgets the live blocks in a range.
    pub(super) fn forget_within(&mut self, range: Range<u64>) {
        drop(self.live.take_overlapping(range));
    }

    /// Forgets all live blocks.
    pub(super) fn forget_live(&mut self) {
        self.live = BlockMap::default();
    }
}
