//! The blocks that the program has allocated, and the parts of them that its pools have handed out.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::blocks::BlockKind;
use crate::clock::{Epoch, QueueId};

use super::history::{Entry, History, Task};
use super::order::StreamKey;
use crate::ages::Ages;

/// How many freed blocks, and blocks that went back to a pool, are remembered.
const FREED_MAX: usize = 1 << 12;

/// What a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A context, which frees it when it is destroyed.
    Context(u64),
    /// A pool of the driver, which allocates it in the order of a stream.
    Pool(StreamKey),
    /// The program, which has mapped it.
    Mapping,
}

/// A block of the driver, or a part of one that a pool has handed out.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) range: Range<u64>,
    pub(super) kind: BlockKind,
    /// Whether it is from a pool of the driver, so that its free waits for nothing.
    pub(super) is_pooled: bool,
    /// Whether it is memory that the program has mapped itself.
    pub(super) is_mapped: bool,
    /// The context that frees it when it is destroyed.
    context: Option<u64>,
    /// Whether a pool handed it out during a capture: the graph uses it after it went back, too.
    pub(super) is_of_capture: bool,
    pub(super) allocated: Task,
    pub(super) freed: Option<Task>,
    pub(super) history: History,
    pub(super) parts: Option<Box<Parts>>,
}

/// The parts of a block that a pool has handed out, and those that it got back.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) live: BlockMap,
    pub(super) released: BlockMap,
}

impl Default for Parts {
    fn default() -> Self {
        Self { live: BlockMap::default(), released: BlockMap::of_freed() }
    }
}

/// Blocks that do not overlap, by address.
#[derive(Debug, Default)]
pub(super) struct BlockMap {
    /// Where each block is in `blocks`, by its address.
    indexes: BTreeMap<u64, usize>,
    blocks: Vec<Option<Box<Block>>>,
    /// The elements of `blocks` that are not used.
    vacant: Vec<usize>,
    /// The last addresses that were looked for, and the index of the block around each. Launches have the same arguments again and
    /// again.
    recent: [Option<(u64, usize)>; RECENT],
    /// If the map forgets old blocks: their ages.
    ages: Option<Ages<Option<Epoch>>>,
}

/// How many addresses are remembered, as a power of two.
const RECENT_BITS: u32 = 4;
const RECENT: usize = 1 << RECENT_BITS;

impl BlockMap {
    /// A map of freed blocks, which forgets the oldest of them.
    fn of_freed() -> Self {
        Self { ages: Some(Ages::new(FREED_MAX)), ..Self::default() }
    }

    pub(super) fn insert(&mut self, block: Box<Block>) {
        let (address, freed) = (block.range.start, block.freed_at());
        drop(self.remove(address));
        let index = self.vacant.pop().unwrap_or(self.blocks.len());
        self.indexes.insert(address, index);
        match self.blocks.get_mut(index) {
            Some(place) => *place = Some(block),
            None => self.blocks.push(Some(block)),
        }
        let (indexes, blocks) = (&self.indexes, &self.blocks);
        let is_kept = |address, freed| {
            let block = indexes.get(&address).and_then(|&index| blocks[index].as_ref());
            block.is_some_and(|block| block.freed_at() == freed)
        };
        let ages = self.ages.as_mut();
        if let Some(oldest) = ages.and_then(|ages| ages.add(address, freed, indexes.len(), is_kept)) {
            drop(self.remove(oldest));
        }
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<Box<Block>> {
        let index = self.indexes.remove(&address)?;
        self.recent = [None; RECENT];
        self.vacant.push(index);
        self.blocks[index].take()
    }

    fn at(&self, index: usize) -> &Block {
        self.blocks[index].as_deref().expect("the map has no index of a removed block")
    }

    fn find(&self, address: u64) -> Option<usize> {
        let (_, &index) = self.indexes.range(..=address).next_back()?;
        self.at(index).range.contains(&address).then_some(index)
    }

    /// Returns the block around an address.
    pub(super) fn around(&self, address: u64) -> Option<&Block> {
        self.find(address).map(|index| self.at(index))
    }

    #[inline]
    pub(super) fn around_mut(&mut self, address: u64) -> Option<&mut Block> {
        let number = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT_BITS)) as usize;
        let index = match self.recent[number] {
            Some((known, index)) if known == address => index,
            _ => {
                let index = self.find(address)?;
                self.recent[number] = Some((address, index));
                index
            }
        };
        Some(self.blocks[index].as_deref_mut().expect("a removed block is not remembered"))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Block> {
        self.indexes.values().map(|&index| self.at(index))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.blocks.iter_mut().flatten().map(|block| &mut **block)
    }

    /// Removes the blocks that overlap a range, and returns them.
    fn take_overlapping(&mut self, range: Range<u64>) -> Vec<Block> {
        let overlaps = |&(_, &index): &(&u64, &usize)| self.at(index).range.end > range.start;
        let overlapping = self.indexes.range(..range.end).rev().take_while(overlaps);
        let starts: Vec<u64> = overlapping.map(|(start, _)| *start).collect();
        starts.iter().filter_map(|start| self.remove(*start)).map(|block| *block).collect()
    }
}

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) live: BlockMap,
    freed: BlockMap,
    /// All live and freed blocks are in this range, so that most numbers are no addresses of theirs.
    span: Range<u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { live: BlockMap::default(), freed: BlockMap::of_freed(), span: 0..0 }
    }
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
    /// A block of the driver.
    pub(super) fn new(range: Range<u64>, kind: BlockKind, owner: Owner, allocated: Task) -> Self {
        let context = match owner {
            Owner::Context(context) => Some(context),
            Owner::Pool(_) | Owner::Mapping => None,
        };
        Self {
            range,
            kind,
            is_pooled: matches!(owner, Owner::Pool(_)),
            is_mapped: owner == Owner::Mapping,
            context,
            is_of_capture: false,
            allocated,
            freed: None,
            history: History::default(),
            parts: None,
        }
    }

    /// Hands out a part, during a capture or not.
    pub(super) fn hand_out(&mut self, range: Range<u64>, allocated: Task, is_of_capture: bool) {
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
        let part = Block {
            range,
            kind: BlockKind::Pool,
            is_pooled: true,
            is_mapped: false,
            context: None,
            is_of_capture,
            allocated,
            freed: None,
            history,
            parts: None,
        };
        parts.live.insert(Box::new(part));
    }

    /// Takes a part back. Returns whether it was handed out.
    pub(super) fn release(&mut self, address: u64, freed: Task) -> bool {
        let Some(parts) = &mut self.parts else { return false };
        let Some(mut part) = parts.live.remove(address) else { return false };
        part.freed = Some(freed);
        parts.released.insert(part);
        true
    }

    fn freed_at(&self) -> Option<Epoch> {
        self.freed.map(|task| task.epoch)
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
            context: self.context,
            is_of_capture: self.is_of_capture,
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

    /// Forgets the live blocks of a context that were allocated until a call of the host.
    pub(super) fn forget_context(&mut self, context: u64, host_seq: u64) {
        let is_gone = |block: &&Block| block.context == Some(context) && block.allocated.epoch.seq <= host_seq;
        let starts: Vec<u64> = self.live.values().filter(is_gone).map(|block| block.range.start).collect();
        starts.iter().for_each(|start| drop(self.live.remove(*start)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calls::history::Name;
    use crate::sites;

    fn block(start: u64, bytes: u64) -> Box<Block> {
        let epoch = Epoch { queue: QueueId::HOST, seq: bytes };
        let allocated = Task { epoch, name: Name::Function("alloc"), site: sites::capture_again() };
        Box::new(Block::new(start..start + bytes, BlockKind::Device, Owner::Context(1), allocated))
    }

    proptest! {
        #[test]
        fn the_block_around_an_address_is_found_again_until_it_is_gone(
            steps in proptest::collection::vec((0..4u8, 0..64u64, 1..5u64), 1..80),
        ) {
            let (mut map, mut model) = (BlockMap::default(), BTreeMap::new());
            for (what, start, bytes) in steps {
                match what {
                    0 => {
                        let overlaps = |other: &u64, len: &u64| *other < start + bytes && other + len > start;
                        let taken = map.take_overlapping(start..start + bytes).len();
                        let before = model.len();
                        model.retain(|other, len| !overlaps(other, len));
                        prop_assert_eq!(taken, before - model.len());
                        map.insert(block(start, bytes));
                        model.insert(start, bytes);
                    }
                    1 => prop_assert_eq!(map.remove(start).is_some(), model.remove(&start).is_some()),
                    _ => {
                        let expected = model.iter().find(|(other, len)| (**other..**other + **len).contains(&start));
                        let expected = expected.map(|(other, len)| *other..*other + *len);
                        prop_assert_eq!(map.around_mut(start).map(|block| block.range.clone()), expected.clone());
                        prop_assert_eq!(map.around(start).map(|block| block.range.clone()), expected);
                    }
                }
                let all: Vec<_> = map.values().map(|block| (block.range.start, block.range.end - block.range.start)).collect();
                prop_assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
            }
        }
    }
}
