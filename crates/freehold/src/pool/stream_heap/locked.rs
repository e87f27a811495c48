//! The data that a heap's lock guards: the extents, the slabs, the blocks that wait for fences, and the recently freed
//! blocks. Except for the blocks that wait, everything free here is free in the order of the heap's stream.

use std::sync::Arc;

use super::super::block_meta::{BlockMeta, BlockState, FreedBlock, Placement};
use super::super::block_table::BlockTable;
use super::super::extent_map::{AllocatedExtent, ExtentMap};
use super::super::imports::{Fence, StreamState};
use super::super::size_class::CLASSES;

/// How many metas a heap creates at once.
const META_BATCH: u32 = 64;

/// How many freed blocks a heap remembers.
const FREED_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct LockedHeap {
    pub(super) stream: Arc<StreamState>,
    /// Whether the stream is gone, so that another may adopt the heap.
    pub(super) is_orphan: bool,
    /// Whether its context is gone too, so that a stream of any context may.
    pub(super) is_context_gone: bool,
    pub(super) extents: ExtentMap,
    /// Slabs with free blocks.
    pub(super) partial_slabs: [Vec<u32>; CLASSES],
    /// Slabs without an extent, to be reused.
    pub(super) unused_slabs: [Vec<u32>; CLASSES],
    /// How many blocks the placed slabs of each class have.
    pub(super) slab_blocks: [u32; CLASSES],
    /// Metas of no block, to be reused.
    pub(super) free_metas: Vec<u32>,
    /// Released blocks that wait for fences. `StreamHeap::reclaim` (the slow path, a few blocks at a time),
    /// `reclaim_all` (before chunks are unmapped) and `reclaim_after_wait` (the heap's stream waits for them on the
    /// device) take out those that may be reused.
    pub(super) pending: Vec<PendingBlock>,
    /// When a block was last requested, by the table's miss count.
    pub(super) asked: u64,
    /// Whether pending blocks were examined since blocks were last taken.
    pub(super) is_reclaimed: bool,
    /// The extents' blocks that were freed last, as a ring, and the next index.
    pub(super) freed: Vec<FreedBlock>,
    pub(super) next_freed: usize,
}

/// A block that was released with fences.
#[derive(Debug)]
pub(super) struct PendingBlock {
    pub(super) meta: u32,
    pub(super) fences: Vec<Fence>,
}

impl LockedHeap {
    /// Whether a meta is left for a new block.
    pub(super) fn has_meta(&self, table: &BlockTable) -> bool {
        !self.free_metas.is_empty() || !table.metas.is_full()
    }

    /// Makes a block of an extent.
    pub(super) fn new_block(&mut self, table: &BlockTable, heap: u32, taken: AllocatedExtent, stream: u32) -> u32 {
        if self.free_metas.is_empty() {
            let first = table.metas.add(META_BATCH);
            self.free_metas.extend((first..first + META_BATCH).rev());
        }
        let number = self.free_metas.pop().expect("metas were just made");
        let placement = Placement::in_extent(taken.extent);
        table.metas.at(number).begin(taken.base, taken.bytes, stream, heap, placement, taken.seq);
        table.pages.set_block(taken.base, number);
        number
    }

    /// Takes back a block that was released in the order of stream `from`. It also waits for `fences`, of other
    /// streams.
    pub(super) fn free_from(&mut self, table: &BlockTable, meta: u32, from: &StreamState, fences: &[Fence]) {
        if from.id == self.stream.id && fences.is_empty() {
            return self.free(table, meta);
        }
        let mut fences = fences.to_vec();
        if from.id != self.stream.id {
            fences.push(Fence { stream: from.id, seq: from.released_seq() });
        }
        let waiting = table.metas.at(meta);
        waiting.set_waiting_for(fences.len());
        waiting.set_state(BlockState::Pending);
        self.pending.push(PendingBlock { meta, fences });
    }

    /// Takes back a block that is free in the order of the heap's stream.
    pub(super) fn free(&mut self, table: &BlockTable, number: u32) {
        let meta = table.metas.at(number);
        let placement = meta.placement();
        if let Some(extent) = placement.extent() {
            self.note_freed(FreedBlock::of(meta));
            table.pages.clear(meta.base(), 1);
            let seq = self.seq_of(meta);
            meta.end();
            self.free_metas.push(number);
            return self.extents.free(extent, seq);
        }
        let slab = table.slabs.at(placement.slab().expect("a block without an extent is a slab's"));
        let was_full = slab.is_full();
        slab.free(number);
        if was_full {
            self.list(table, slab.number());
        }
    }

    /// Returns the seq after which nothing uses a block: its last use if work is counted; otherwise, or if the block
    /// came from another stream, all work so far.
    pub(super) fn seq_of(&self, meta: &BlockMeta) -> u64 {
        let is_known = meta.stream() == self.stream.id.0 && !self.stream.is_foreign();
        if is_known { meta.seq() } else { self.stream.released_seq() }
    }

    /// Remembers a freed block, so that a second release can be explained.
    pub(super) fn note_freed(&mut self, gone: FreedBlock) {
        if self.freed.len() < FREED_MAX {
            self.freed.push(gone);
        } else {
            self.freed[self.next_freed] = gone;
            self.next_freed = (self.next_freed + 1) % FREED_MAX;
        }
    }

    /// Lists a slab that has free blocks.
    pub(super) fn list(&mut self, table: &BlockTable, number: u32) {
        let slab = table.slabs.at(number);
        let partial = &mut self.partial_slabs[slab.class().index()];
        slab.set_list_index(partial.len());
        partial.push(number);
    }

    pub(super) fn empty_slabs(&self, table: &BlockTable) -> Vec<u32> {
        self.partial_slabs.iter().flatten().copied().filter(|&slab| table.slabs.at(slab).is_empty()).collect()
    }

    /// Frees the extent of a slab, all of whose blocks are free.
    pub(super) fn free_slab(&mut self, table: &BlockTable, number: u32) {
        let slab = table.slabs.at(number);
        let class = slab.class();
        let partial = &mut self.partial_slabs[class.index()];
        let spot = slab.list_index();
        partial.swap_remove(spot);
        if let Some(&moved) = partial.get(spot) {
            table.slabs.at(moved).set_list_index(spot);
        }
        table.pages.clear(slab.base(), slab.bytes());
        self.slab_blocks[class.index()] -= slab.blocks();
        let mut seq = 0;
        for meta in slab.metas() {
            let meta = table.metas.at(meta);
            seq = seq.max(self.seq_of(meta));
            meta.end();
        }
        self.unused_slabs[class.index()].push(number);
        self.extents.free(slab.extent(), seq);
    }
}
