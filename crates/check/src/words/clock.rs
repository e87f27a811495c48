//! A vector clock of the blocks of a kernel: what happens before the next access of a block.

use std::collections::HashMap;

use super::slot::Slot;
use crate::access::LANES;

/// A clock of more blocks than this is replaced by one that knows all blocks.
pub(crate) const CLOCK_BLOCKS_MAX: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct BlockClock {
    /// When the whole block synchronized last.
    pub(crate) since: u32,
    /// When each warp did.
    pub(crate) warps: Vec<u32>,
    pub(crate) known: Known,
    /// What the block publishes with its next strong write: what it had done and knew at its last fence.
    pub(crate) fenced: Option<Known>,
    /// The flag that was published to last since the fence.
    pub(crate) published: Option<u64>,
    /// The versions of flags that it has read.
    pub(crate) read: HashMap<u64, u64>,
}

impl BlockClock {
    pub(crate) fn new(warps: usize) -> Self {
        let known = Known::default();
        Self { since: 0, warps: vec![0; warps], known, fenced: None, published: None, read: HashMap::new() }
    }

    /// Forgets all, for a block that starts.
    pub(crate) fn restart(&mut self) {
        self.since = 0;
        self.warps.fill(0);
        self.known.blocks.clear();
        self.known.floor = 0;
        self.fenced = None;
        self.published = None;
        self.read.clear();
    }

    /// Returns whether the accesses of another block until a time happen before what this one does now.
    #[inline]
    pub(crate) fn knows(&self, block: u32, time: u32) -> bool {
        time <= self.known.floor || self.known.blocks.get(&block).is_some_and(|&known| time <= known)
    }

    /// Returns whether an access of a warp of this block at a time happens before what a warp does now.
    #[inline]
    pub(crate) fn orders(&self, time: u32, earlier_warp: usize, warp: usize) -> bool {
        time < self.since || earlier_warp == warp && time < self.warps.get(warp).copied().unwrap_or(0)
    }

    /// Returns whether an access happens before one of a thread of this block that is executed now.
    #[inline]
    pub(crate) fn is_ordered(&self, before: Slot, block: u32, thread: u16) -> bool {
        if before.time == 0 {
            return true;
        }
        if before.block != block {
            return self.knows(before.block, before.time);
        }
        let warp = |thread: u16| usize::from(thread) / LANES;
        before.thread() == thread || self.orders(before.time, warp(before.thread()), warp(thread))
    }
}

/// Until when the accesses of other blocks are known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) blocks: HashMap<u32, u32>,
    /// Of all blocks.
    floor: u32,
}

impl Known {
    pub(crate) fn join(&mut self, other: &Self, now: u32) {
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
