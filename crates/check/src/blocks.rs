//! The blocks of memory that the program has allocated and freed, and the parts of them that its pools have handed out.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use crate::ages::Ages;
use crate::empty_parts::EmptyParts;
use crate::tasks::TaskId;

/// How many freed blocks are remembered.
const FREED_MAX: usize = 1 << 14;

/// Whose memory a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A device's, with undefined values.
    Device,
    /// A device's, or managed memory that the host writes too, with defined values.
    Defined,
    /// A device's that is mapped to reserved addresses: it has the values that it had elsewhere.
    Mapped,
    /// Pinned memory of the host.
    Host,
    /// Memory of the host that the program has registered, and keeps when it is not registered any more.
    Registered,
    /// Memory of another process.
    Imported,
    /// A part of a device's memory that a pool has handed out.
    Pool,
}

/// An error at an address further than this from every block is about none of them.
const NEAR_BYTES: u64 = 1 << 20;

/// How large a part of a pool can be whose memory is not known.
const UNKNOWN_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: BlockKind,
    /// The task that allocated it.
    pub(crate) allocated: TaskId,
    /// The task that freed it.
    pub(crate) freed: Option<TaskId>,
    /// The group of captures that a pool handed it out to.
    pub(crate) group: Option<u64>,
}

impl Block {
    pub(crate) fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes)
    }
}

/// Blocks that do not overlap, by address.
#[derive(Debug, Default)]
struct BlockMap(BTreeMap<u64, Block>);

impl BlockMap {
    fn insert(&mut self, block: Block) {
        self.0.insert(block.address, block);
    }

    fn remove(&mut self, address: u64) -> Option<Block> {
        self.0.remove(&address)
    }

    /// Returns the block that starts last at an address or before it.
    fn before(&self, address: u64) -> Option<&Block> {
        self.0.range(..=address).next_back().map(|(_, block)| block)
    }

    /// Returns the first block that starts after an address.
    fn after(&self, address: u64) -> Option<&Block> {
        self.0.range(address.saturating_add(1)..).next().map(|(_, block)| block)
    }

    /// Returns the blocks that share addresses with a range.
    fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = &Block> {
        let starts_before = self.0.range(..range.end).rev();
        starts_before.map(|(_, block)| block).take_while(move |block| block.range().end > range.start)
    }

    /// Removes the blocks that start in a range.
    fn remove_in(&mut self, range: Range<u64>) {
        self.remove_in_if(range, |_| true);
    }

    fn remove_in_if(&mut self, range: Range<u64>, is_wanted: impl Fn(&Block) -> bool) {
        self.0.extract_if(range, |_, block| is_wanted(block)).for_each(drop);
    }

    /// Returns the block that contains an address.
    fn around(&self, address: u64) -> Option<&Block> {
        let (_, block) = self.0.range(..=address).next_back()?;
        block.range().contains(&address).then_some(block)
    }
}

#[derive(Debug)]
pub(crate) struct Blocks {
    live: BlockMap,
    freed: BlockMap,
    /// Of the freed blocks.
    ages: Ages<Option<TaskId>>,
    /// The parts of live blocks that pools have handed out.
    handed_out: BlockMap,
    /// Those that went back to their pools.
    released: BlockMap,
    /// The live blocks that pools have handed out parts of.
    pooled: HashSet<u64>,
    /// What pools have handed out without bytes.
    pub(crate) empty: EmptyParts,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            live: BlockMap::default(),
            freed: BlockMap::default(),
            ages: Ages::new(FREED_MAX),
            handed_out: BlockMap::default(),
            released: BlockMap::default(),
            pooled: HashSet::default(),
            empty: EmptyParts::default(),
        }
    }
}

impl Blocks {
    /// Adds a block. `is_later` says which tasks the program has submitted after the allocation, which a stream may run late.
    pub(crate) fn allocate(&mut self, block: Block, is_later: impl Fn(TaskId) -> bool) {
        // What pools did with the memory before is past.
        self.handed_out.remove_in_if(block.range(), |part| !is_later(part.allocated));
        self.released.remove_in_if(block.range(), |part| !is_later(part.allocated));
        match self.handed_out.overlapping(block.range()).next() {
            Some(_) => self.pooled.insert(block.address),
            None => self.pooled.remove(&block.address),
        };
        self.freed.remove(block.address);
        self.live.insert(block);
    }

    /// Frees the block at an address, if there is one.
    pub(crate) fn free(&mut self, address: u64, task: TaskId) {
        let Some(block) = self.live.remove(address) else { return };
        if self.pooled.remove(&address) {
            self.handed_out.remove_in(block.range());
            self.released.remove_in(block.range());
        }
        let freed = &mut self.freed;
        freed.insert(Block { freed: Some(task), ..block });
        let is_kept = |address, task| freed.0.get(&address).is_some_and(|block| block.freed == task);
        if let Some(oldest) = self.ages.add(address, Some(task), freed.0.len(), is_kept) {
            freed.remove(oldest);
        }
    }

    /// Forgets a freed block.
    pub(crate) fn forget(&mut self, address: u64) {
        self.freed.remove(address);
    }

    /// Forgets the freed blocks that share addresses with a range.
    pub(crate) fn forget_range(&mut self, range: Range<u64>) {
        let starts: Vec<u64> = self.freed.overlapping(range).map(|block| block.address).collect();
        starts.into_iter().for_each(|start| _ = self.freed.remove(start));
    }

    /// Hands out a part of live blocks. Returns those of which it is the first part.
    pub(crate) fn hand_out(&mut self, part: Block) -> Vec<Block> {
        self.released.remove(part.address);
        self.handed_out.insert(part);
        let wholes = self.live.overlapping(part.range()).copied();
        wholes.filter(|whole| self.pooled.insert(whole.address)).collect()
    }

    /// Returns the groups of captures that had parts of a range last.
    pub(crate) fn groups_in(&self, range: Range<u64>) -> Vec<u64> {
        let mut groups: Vec<_> = self.released.overlapping(range).filter_map(|part| part.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Returns the bytes of a part that a pool announces, without those beyond the memory that it has. Its memory may not be allocated yet.
    pub(crate) fn clipped(&self, address: u64, bytes: u64) -> u64 {
        let range = address..address.saturating_add(bytes);
        let end = self.live.overlapping(range).map(|whole| whole.range().end).max();
        bytes.min(end.map_or(UNKNOWN_BYTES_MAX, |end| end - address))
    }

    /// Changes the size of a part that is handed out. Returns its old size.
    pub(crate) fn resize(&mut self, address: u64, bytes: u64) -> Option<u64> {
        let part = self.handed_out.0.get_mut(&address)?;
        Some(std::mem::replace(&mut part.bytes, bytes))
    }

    /// Gives a part back to its pool, and returns it.
    pub(crate) fn release(&mut self, address: u64, task: TaskId) -> Option<Block> {
        let part = self.handed_out.remove(address)?;
        self.released.insert(Block { freed: Some(task), ..part });
        Some(part)
    }

    /// Returns the block around an address: a pool's, a live or a freed one.
    pub(crate) fn around(&self, address: u64) -> Option<&Block> {
        self.part(address).or_else(|| self.live.around(address)).or_else(|| self.freed.around(address))
    }

    /// Returns the live block that is nearest to an address in none, unless all are far away. Of two at the same distance, the one
    /// before it: more errors are beyond an end.
    pub(crate) fn nearest(&self, address: u64) -> Option<&Block> {
        let maps = [&self.handed_out, &self.live];
        let before = maps.into_iter().filter_map(|map| map.before(address));
        let after = maps.into_iter().filter_map(|map| map.after(address));
        let distance = |block: &Block| match block.address {
            start if start > address => start - address,
            _ => address.saturating_sub(block.range().end),
        };
        let near = before.chain(after).filter(|block| distance(block) < NEAR_BYTES);
        near.min_by_key(|block| distance(block))
    }

    /// Returns the part around an address that a pool has handed out, even if it went back.
    pub(crate) fn part(&self, address: u64) -> Option<&Block> {
        self.handed_out.around(address).or_else(|| self.released.around(address))
    }

    /// Returns the part around an address that a pool has handed out, and the block that it is a part of.
    pub(crate) fn part_in_use(&self, address: u64) -> Option<(&Block, &Block)> {
        Some((self.handed_out.around(address)?, self.live.around(address)?))
    }

    /// Returns all blocks that are known.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Block> {
        let maps = [&self.live, &self.freed, &self.handed_out, &self.released];
        maps.into_iter().flat_map(|map| map.0.values())
    }

    /// Returns the blocks that have an owner: of memory that a pool divides, the parts that it has handed out.
    pub(crate) fn owned(&self) -> impl Iterator<Item = &Block> {
        let whole = self.live.0.values().filter(|block| !self.pooled.contains(&block.address));
        whole.chain(self.handed_out.0.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, bytes: u64, task: u64) -> Block {
        Block { address, bytes, kind: BlockKind::Device, allocated: TaskId(task), freed: None, group: None }
    }

    #[test]
    fn a_block_is_found_by_any_of_its_addresses_while_it_lives_and_after() {
        let mut blocks = Blocks::default();
        blocks.allocate(block(0x1000, 64, 1), |_| false);
        assert_eq!(blocks.around(0x103f).map(|block| block.allocated), Some(TaskId(1)));
        assert!(blocks.around(0x1040).is_none() && blocks.around(0xfff).is_none());
        blocks.free(0x1010, TaskId(2));
        assert_eq!(blocks.around(0x1001).and_then(|block| block.freed), None);
        blocks.free(0x1000, TaskId(2));
        assert_eq!(blocks.around(0x1001).and_then(|block| block.freed), Some(TaskId(2)));
        blocks.allocate(block(0x1000, 32, 3), |_| false);
        assert_eq!(blocks.around(0x1001).map(|block| (block.allocated, block.freed)), Some((TaskId(3), None)));
    }

    #[test]
    fn the_block_that_was_freed_first_is_forgotten_first() {
        let mut blocks = Blocks::default();
        let top = 64 * FREED_MAX as u64;
        for number in 0..=FREED_MAX as u64 {
            let address = 64 + top - 64 * number;
            blocks.allocate(block(address, 64, 1), |_| false);
            blocks.free(address, TaskId(2));
        }
        assert!(blocks.around(64).is_some() && blocks.around(top).is_some() && blocks.around(top + 64).is_none());
    }

    #[test]
    fn the_nearest_block_is_before_or_after_an_address_and_never_far_away() {
        let mut blocks = Blocks::default();
        blocks.allocate(block(0x10_0000, 0x100, 1), |_| false);
        blocks.allocate(block(0x10_0200, 0x100, 2), |_| false);
        let nearest = |address| blocks.nearest(address).map(|block| block.address);
        assert_eq!(nearest(0x10_0100), Some(0x10_0000));
        assert_eq!(nearest(0x10_0180), Some(0x10_0000));
        assert_eq!(nearest(0x10_01ff), Some(0x10_0200));
        assert_eq!(nearest(0xf_fffc), Some(0x10_0000));
        assert_eq!(nearest(0x10_0300 + NEAR_BYTES - 1), Some(0x10_0200));
        assert_eq!([nearest(0x10_0300 + NEAR_BYTES), nearest(0), nearest(u64::MAX)], [None; 3]);
    }

    #[test]
    fn a_pool_hands_out_parts_until_its_memory_is_allocated_again() {
        let mut blocks = Blocks::default();
        blocks.allocate(block(0x1000, 1024, 1), |_| false);
        assert_eq!(addresses(&blocks.hand_out(block(0x1100, 256, 2))), [0x1000]);
        assert!(blocks.hand_out(block(0x1200, 256, 3)).is_empty());
        assert_eq!(
            blocks.part_in_use(0x1180).map(|(part, whole)| (part.address, whole.address)),
            Some((0x1100, 0x1000))
        );
        assert_eq!(blocks.release(0x1100, TaskId(4)).map(|part| part.bytes), Some(256));
        assert!(blocks.part_in_use(0x1180).is_none());
        assert_eq!(blocks.part(0x1180).and_then(|part| part.freed), Some(TaskId(4)));
        blocks.free(0x1000, TaskId(5));
        blocks.allocate(block(0x1000, 1024, 6), |_| false);
        assert!(blocks.part(0x1180).is_none() && blocks.part(0x1280).is_none());
        assert_eq!(addresses(&blocks.hand_out(block(0x1100, 256, 7))), [0x1000]);
    }

    #[test]
    fn a_part_may_lie_in_several_blocks_that_are_mapped_side_by_side() {
        let mut blocks = Blocks::default();
        for address in [0x1000, 0x2000, 0x3000] {
            blocks.allocate(block(address, 0x1000, 1), |_| false);
        }
        assert_eq!(addresses(&blocks.hand_out(block(0x1800, 0x1000, 2))), [0x2000, 0x1000]);
        assert_eq!(addresses(&blocks.hand_out(block(0x2800, 0x1000, 3))), [0x3000]);
        assert_eq!(blocks.resize(0x1800, 0x900), Some(0x1000));
        assert!(blocks.part_in_use(0x2200).is_none() && blocks.part_in_use(0x2000).is_some());
    }

    #[test]
    fn the_parts_that_a_pool_has_handed_out_have_owners_and_the_block_that_it_divides_has_none() {
        let mut blocks = Blocks::default();
        blocks.allocate(block(0x1000, 1024, 1), |_| false);
        blocks.allocate(block(0x2000, 1024, 2), |_| false);
        blocks.hand_out(block(0x1100, 256, 3));
        blocks.hand_out(block(0x1200, 256, 4));
        blocks.release(0x1100, TaskId(5));
        let owned: Vec<_> = blocks.owned().map(|block| block.address).collect();
        assert_eq!(owned, [0x2000, 0x1200]);
        blocks.free(0x1000, TaskId(6));
        assert_eq!(blocks.owned().count(), 1);
    }

    fn addresses(blocks: &[Block]) -> Vec<u64> {
        blocks.iter().map(|block| block.address).collect()
    }
}
