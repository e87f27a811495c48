//! A stream's heap: its extents, its slabs, and the blocks that wait for fences before they can be reused. Except for
//! those, everything free here is free in the order of the heap's stream.
//!
//! Calls no driver: the pool does that for it. `stream_heap/chunks.rs` has what the pool does with a heap's chunks, and what
//! it reports.

#[path = "stream_heap/chunks.rs"]
mod chunks;

use std::sync::{Arc, PoisonError};

use super::attached_caches::AttachedCaches;
use super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot, Placement};
use super::block_table::BlockTable;
use super::extent_map::{AllocatedExtent, ExtentMap, GRANULE_BYTES};
use super::imports::{ContextId, Fence, StreamId, StreamState};
use super::size_class::{CLASSES, SMALL_BYTES_MAX, SizeClass};
use super::stats::Counters;
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

/// How many metas a heap creates at once.
const META_BATCH: u32 = 64;

/// How many freed blocks a heap remembers.
const FREED_MAX: usize = 256;

/// Empty slabs are freed if they are more than this fraction of the mapped memory.
const IDLE_SLABS_PART: u64 = 4;

/// A heap is resting if no block was requested from it while the pool counted this many misses.
const RESTING_MISSES: u64 = 64;

/// How many pending blocks are examined for one request.
const LOOKS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct StreamHeap {
    pub(crate) number: u32,
    /// The context of its stream.
    context: AtomicU32,
    locked: Mutex<LockedHeap>,
    pub(crate) caches: AttachedCaches,
    pub(crate) counters: Counters,
}

#[derive(Debug)]
struct LockedHeap {
    stream: Arc<StreamState>,
    /// Whether the stream is gone, so that another may adopt the heap.
    is_orphan: bool,
    /// Whether its context is gone too, so that a stream of any context may.
    is_context_gone: bool,
    extents: ExtentMap,
    /// Slabs with free blocks.
    partial_slabs: [Vec<u32>; CLASSES],
    /// Slabs without an extent, to be reused.
    unused_slabs: [Vec<u32>; CLASSES],
    /// How many blocks the placed slabs of each class have.
    slab_blocks: [u32; CLASSES],
    /// Metas of no block, to be reused.
    free_metas: Vec<u32>,
    /// Released blocks that wait for fences. `StreamHeap::reclaim` (the slow path, a few blocks at a time),
    /// `reclaim_all` (before chunks are unmapped) and `reclaim_after_wait` (the heap's stream waits for them on the
    /// device) take out those that may be reused.
    pending: Vec<PendingBlock>,
    /// When a block was last requested, by the table's miss count.
    asked: u64,
    /// Whether pending blocks were examined since blocks were last taken.
    is_reclaimed: bool,
    /// The extents' blocks that were freed last, as a ring, and the next index.
    freed: Vec<FreedBlock>,
    next_freed: usize,
}

/// A block that was released with fences.
#[derive(Debug)]
struct PendingBlock {
    meta: u32,
    fences: Vec<Fence>,
}

impl StreamHeap {
    pub(crate) fn new(number: u32, stream: Arc<StreamState>, extents: ExtentMap) -> Self {
        Self {
            number,
            context: AtomicU32::new(stream.context.0),
            locked: Mutex::new(LockedHeap {
                stream,
                is_orphan: false,
                is_context_gone: false,
                extents,
                partial_slabs: [const { Vec::new() }; CLASSES],
                unused_slabs: [const { Vec::new() }; CLASSES],
                slab_blocks: [0; CLASSES],
                free_metas: Vec::new(),
                pending: Vec::new(),
                asked: 0,
                is_reclaimed: false,
                freed: Vec::new(),
                next_freed: 0,
            }),
            caches: AttachedCaches::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn context(&self) -> ContextId {
        ContextId(self.context.load(Ordering::Relaxed))
    }

    pub(crate) fn stream(&self) -> Arc<StreamState> {
        self.lock().stream.clone()
    }

    /// If the heap's stream is gone, gives the heap to another stream. Returns whether it did.
    pub(crate) fn adopt(&self, stream: &Arc<StreamState>) -> bool {
        let mut locked = self.lock();
        if !locked.is_orphan || self.context() != stream.context && !locked.is_context_gone {
            return false;
        }
        locked.is_context_gone = false;
        self.context.store(stream.context.0, Ordering::Relaxed);
        locked.is_orphan = false;
        locked.stream = stream.clone();
        // Seqs are the new stream's from now on; the old one has completed all of its own.
        locked.extents.clear_seqs();
        true
    }

    pub(crate) fn orphan(&self) {
        self.lock().is_orphan = true;
    }

    // Blocks.

    /// Takes up to `count` blocks of a class from the slabs, for a stream. Takes none if another stream has adopted the
    /// heap.
    pub(crate) fn alloc_small(
        &self,
        table: &BlockTable,
        stream: u32,
        class: SizeClass,
        count: usize,
        mut found: impl FnMut(u32),
    ) -> usize {
        let locked = &mut *self.lock();
        // Pending blocks may be complete: the caller can tell, and tries again.
        if locked.stream.id.0 != stream || !locked.pending.is_empty() && !locked.is_reclaimed {
            return 0;
        }
        locked.asked = table.misses.load(Ordering::Relaxed);
        let partial = &mut locked.partial_slabs[class.index()];
        let mut taken = 0;
        while taken < count
            && let Some(&number) = partial.last()
        {
            let slab = table.slabs.at(number);
            let meta = table.metas.at(slab.alloc().expect("a slab that is listed has free blocks"));
            if meta.stream() != locked.stream.id.0 {
                // The stream that used it before has completed all of its work.
                meta.set_stream(locked.stream.id.0);
                meta.set_seq(0);
            }
            found(meta.number());
            taken += 1;
            // At once: the next free into the slab lists it again.
            if slab.is_full() {
                partial.pop();
            }
        }
        // A caller that finds nothing reclaims once, and comes back with a slab.
        locked.is_reclaimed &= taken == 0;
        taken
    }

    /// Allocates a block that fits no class, from the extents.
    pub(crate) fn alloc_large(&self, table: &BlockTable, bytes: u64) -> Option<u32> {
        let locked = &mut *self.lock();
        if !locked.has_meta(table) {
            return None;
        }
        let taken = locked.extents.alloc(bytes)?;
        Some(locked.new_block(table, self.number, taken, locked.stream.id.0))
    }

    /// Whether a meta is left for a new block.
    pub(crate) fn has_meta(&self, table: &BlockTable) -> bool {
        self.lock().has_meta(table)
    }

    /// Takes back blocks that `from` released in its order, and allocates one that fits no class.
    pub(crate) fn exchange(&self, table: &BlockTable, given: &[u32], from: &StreamState, bytes: u64) -> Option<u32> {
        let locked = &mut *self.lock();
        locked.asked = table.misses.load(Ordering::Relaxed);
        if from.id != locked.stream.id {
            given.iter().for_each(|&meta| locked.free_from(table, meta, from, &[]));
            return None;
        }
        given.iter().for_each(|&meta| locked.free(table, meta));
        if !locked.has_meta(table) {
            return None;
        }
        let taken = locked.extents.alloc(bytes)?;
        Some(locked.new_block(table, self.number, taken, locked.stream.id.0))
    }

    /// Allocates an extent for another stream, from a range that this heap's stream has completed.
    pub(crate) fn lend(
        &self,
        table: &BlockTable,
        bytes: u64,
        to: u32,
        is_complete: impl Fn(Fence) -> bool,
    ) -> Option<u32> {
        let locked = &mut *self.lock();
        if !locked.has_meta(table) {
            return None;
        }
        let stream = locked.stream.id;
        let taken = locked.extents.alloc_if(bytes, |seq| is_complete(Fence { stream, seq }))?;
        let taken = AllocatedExtent { seq: 0, ..taken };
        Some(locked.new_block(table, self.number, taken, to))
    }

    /// Allocates a block of a class for another stream, one that this heap's stream, whose work is counted, has
    /// completed.
    pub(crate) fn lend_small(
        &self,
        table: &BlockTable,
        class: SizeClass,
        to: u32,
        is_complete: impl Fn(Fence) -> bool,
    ) -> Option<u32> {
        let locked = &mut *self.lock();
        // Another stream may have adopted the heap since the earlier one was seen to be idle.
        if locked.stream.is_foreign() {
            return None;
        }
        let (stream, partial) = (locked.stream.id, &mut locked.partial_slabs[class.index()]);
        let slab = table.slabs.at(*partial.last()?);
        let meta = table.metas.at(slab.alloc().expect("a slab that is listed has free blocks"));
        // It may have been used and released since the stream was seen to be idle.
        if meta.stream() == stream.0 && !is_complete(Fence { stream, seq: meta.seq() }) {
            slab.free(meta.number());
            return None;
        }
        if slab.is_full() {
            partial.pop();
        }
        meta.set_stream(to);
        meta.set_seq(0);
        Some(meta.number())
    }

    /// Whether no block was requested here for a while.
    pub(crate) fn is_resting(&self, table: &BlockTable) -> bool {
        self.lock().asked + RESTING_MISSES < table.misses.load(Ordering::Relaxed)
    }

    /// Whether the heap's stream, if its work is counted, has completed everything submitted. The error is the fence
    /// that it has yet to reach.
    pub(crate) fn is_idle(&self, is_complete: impl Fn(Fence) -> bool) -> Result<(), Option<Fence>> {
        let locked = self.lock();
        if locked.stream.is_foreign() {
            return Err(None);
        }
        let edge = Fence { stream: locked.stream.id, seq: locked.stream.released_seq() };
        if is_complete(edge) { Ok(()) } else { Err(Some(edge)) }
    }

    /// Like [`lend`](Self::lend), from a range that the heap's stream has not completed: the caller has to wait for it.
    /// Returns `None` if the heap's stream is not `stream`, which the caller can wait for.
    pub(crate) fn lend_incomplete(
        &self,
        table: &BlockTable,
        bytes: u64,
        to: u32,
        stream: StreamId,
    ) -> Option<(u32, Fence)> {
        let locked = &mut *self.lock();
        if locked.stream.id != stream || !locked.has_meta(table) {
            return None;
        }
        let taken = locked.extents.alloc(bytes)?;
        // Whatever the range's own seq is, this one comes after everything submitted so far.
        let fence = Fence { stream: locked.stream.id, seq: locked.stream.released_seq() };
        let taken = AllocatedExtent { seq: 0, ..taken };
        Some((locked.new_block(table, self.number, taken, to), fence))
    }

    /// The length of the extent for the next slab of a class.
    pub(crate) fn next_slab_bytes(&self, class: SizeClass) -> u64 {
        class.slab_bytes(class.slab_blocks(self.lock().slab_blocks[class.index()]))
    }

    /// Makes a slab of a block of this heap's extents. Returns whether metas were left for its blocks; otherwise the
    /// block is unchanged.
    #[must_use]
    pub(crate) fn add_slab(&self, table: &BlockTable, class: SizeClass, block: u32) -> bool {
        let block = table.metas.at(block);
        let (base, placement, seq) = (block.base(), block.placement(), block.seq());
        assert_eq!(block.heap(), self.number, "a slab lies in its own heap");
        let locked = &mut *self.lock();
        let blocks = (block.capacity_bytes() / class.bytes()) as u32;
        let bare = &mut locked.unused_slabs[class.index()];
        let fitting = bare.iter().position(|&number| table.slabs.at(number).blocks() == blocks);
        if fitting.is_none() && table.metas.is_full() {
            return false;
        }
        let number = fitting.map(|index| bare.swap_remove(index)).unwrap_or_else(|| {
            let number = table.slabs.add(1);
            table.slabs.at(number).set_layout(class, blocks, table.metas.add(blocks));
            number
        });
        let slab = table.slabs.at(number);
        locked.slab_blocks[class.index()] += blocks;
        for (index, meta) in slab.metas().enumerate() {
            let at = base + index as u64 * class.bytes();
            let meta = table.metas.at(meta);
            let placement = Placement::in_slab(number, class.index());
            meta.begin(at, class.bytes(), locked.stream.id.0, self.number, placement, seq);
        }
        slab.set_extent(base, placement.extent().expect("a slab is made of an extent"));
        table.pages.set_slab(base, block.capacity_bytes(), number);
        locked.list(table, number);
        // The extent is the slab's now.
        block.end();
        locked.free_metas.push(block.number());
        true
    }

    /// Takes back a block that `from` released in its order, after fences of other streams.
    pub(crate) fn free(&self, table: &BlockTable, meta: u32, from: &StreamState, fences: &[Fence]) {
        self.lock().free_from(table, meta, from, fences);
    }

    /// Like [`free`](Self::free), for blocks without fences.
    pub(crate) fn free_all(&self, table: &BlockTable, metas: impl Iterator<Item = u32>, from: &StreamState) {
        let locked = &mut *self.lock();
        metas.for_each(|meta| locked.free_from(table, meta, from, &[]));
    }

    /// Takes back pending blocks whose fences are complete, of at most `LOOKS_MAX`. Returns the incomplete fences of
    /// the others it examined.
    pub(crate) fn reclaim(&self, table: &BlockTable, is_complete: impl Fn(Fence) -> bool) -> Vec<Fence> {
        self.reclaim_some(table, LOOKS_MAX, None, is_complete)
    }

    /// Like [`reclaim`](Self::reclaim), of all pending blocks.
    pub(crate) fn reclaim_all(&self, table: &BlockTable, is_complete: impl Fn(Fence) -> bool) -> Vec<Fence> {
        self.reclaim_some(table, usize::MAX, None, is_complete)
    }

    /// Takes back pending blocks whose fences are complete, or which `stream`, the heap's own, waits for before its
    /// next work: other streams use them after that wait. If another stream has adopted the heap by now, `stream` has
    /// completed its waits.
    pub(crate) fn reclaim_after_wait(
        &self,
        table: &BlockTable,
        stream: &StreamState,
        is_before: impl Fn(Fence) -> bool,
    ) {
        self.reclaim_some(table, usize::MAX, Some(stream), is_before);
    }

    fn reclaim_some(
        &self,
        table: &BlockTable,
        looks: usize,
        waits: Option<&StreamState>,
        is_complete: impl Fn(Fence) -> bool,
    ) -> Vec<Fence> {
        let locked = &mut *self.lock();
        let mut left = Vec::new();
        let looked = locked.pending.len().min(looks);
        let mut index = 0;
        for _ in 0..looked {
            let waiting = &mut locked.pending[index];
            waiting.fences.retain(|&fence| !is_complete(fence));
            if waiting.fences.is_empty() {
                let PendingBlock { meta, .. } = locked.pending.swap_remove(index);
                let reclaimed = table.metas.at(meta);
                // A wait that was just found is counted by now.
                if let Some(Fence { stream, seq }) = waits.map(StreamState::current_fence) {
                    reclaimed.set_stream(stream.0);
                    reclaimed.set_seq(seq);
                }
                reclaimed.set_state(BlockState::Free);
                locked.free(table, meta);
            } else {
                table.metas.at(waiting.meta).set_waiting_for(waiting.fences.len());
                left.extend_from_slice(&waiting.fences);
                index += 1;
            }
        }
        // The next request examines others first.
        locked.pending.rotate_left(index);
        locked.is_reclaimed = true;
        left
    }

    /// Resizes a block in place, if it can while one ownership of it lasts: if the context has ended it, the extent may
    /// be another block's. What is added or removed is in the order of the heap's stream.
    pub(crate) fn resize(&self, meta: &BlockMeta, generation: u64, bytes: u64) -> bool {
        let locked = &mut *self.lock();
        let Some(MetaSnapshot { bytes: before, .. }) = meta.owned_as(generation) else { return false };
        let extent = meta.placement().extent().filter(|_| bytes > SMALL_BYTES_MAX);
        let seq = locked.stream.released_seq();
        let is_moved_end = extent
            .is_some_and(|extent| meta.stream() == locked.stream.id.0 && locked.extents.resize(extent, bytes, seq));
        if is_moved_end {
            meta.resize(bytes, bytes.next_multiple_of(GRANULE_BYTES));
        } else if bytes <= meta.capacity_bytes() {
            meta.resize(bytes, meta.capacity_bytes());
        } else {
            return false;
        }
        self.counters.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        true
    }

    /// Calls `act` while one ownership of a block here lasts; its context cannot end it during the call. Returns `None`
    /// if it has ended.
    pub(crate) fn while_owned<R>(&self, meta: &BlockMeta, generation: u64, act: impl FnOnce() -> R) -> Option<R> {
        let _locked = self.lock();
        meta.owned_as(generation).map(|_| act())
    }

    /// Returns the last fence of each stream that pending blocks wait for.
    pub(crate) fn pending_fences(&self) -> Vec<Fence> {
        let locked = self.lock();
        let mut fences: Vec<_> = locked.pending.iter().flat_map(|waiting| waiting.fences.iter().copied()).collect();
        fences.sort_unstable_by_key(|fence| (fence.stream, std::cmp::Reverse(fence.seq)));
        fences.dedup_by_key(|fence| fence.stream);
        fences
    }

    /// Frees all empty slabs, if they are a large part of the mapped memory. This keeps slabs from being created and
    /// freed every few requests.
    pub(crate) fn free_idle_slabs(&self, table: &BlockTable) {
        let locked = &mut *self.lock();
        let empty = locked.empty_slabs(table);
        let empty_bytes: u64 = empty.iter().map(|&slab| table.slabs.at(slab).bytes()).sum();
        if empty_bytes >= locked.extents.mapped_bytes() / IDLE_SLABS_PART {
            empty.into_iter().for_each(|slab| locked.free_slab(table, slab));
        }
    }

    /// Frees all empty slabs.
    pub(crate) fn free_empty_slabs(&self, table: &BlockTable) {
        let locked = &mut *self.lock();
        locked.empty_slabs(table).into_iter().for_each(|slab| locked.free_slab(table, slab));
    }

    fn lock(&self) -> MutexGuard<'_, LockedHeap> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockedHeap {
    /// Whether a meta is left for a new block.
    fn has_meta(&self, table: &BlockTable) -> bool {
        !self.free_metas.is_empty() || !table.metas.is_full()
    }

    /// Makes a block of an extent.
    fn new_block(&mut self, table: &BlockTable, heap: u32, taken: AllocatedExtent, stream: u32) -> u32 {
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
    fn free_from(&mut self, table: &BlockTable, meta: u32, from: &StreamState, fences: &[Fence]) {
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
    fn free(&mut self, table: &BlockTable, number: u32) {
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
    fn seq_of(&self, meta: &BlockMeta) -> u64 {
        let is_known = meta.stream() == self.stream.id.0 && !self.stream.is_foreign();
        if is_known { meta.seq() } else { self.stream.released_seq() }
    }

    /// Remembers a freed block, so that a second release can be explained.
    fn note_freed(&mut self, gone: FreedBlock) {
        if self.freed.len() < FREED_MAX {
            self.freed.push(gone);
        } else {
            self.freed[self.next_freed] = gone;
            self.next_freed = (self.next_freed + 1) % FREED_MAX;
        }
    }

    /// Lists a slab that has free blocks.
    fn list(&mut self, table: &BlockTable, number: u32) {
        let slab = table.slabs.at(number);
        let partial = &mut self.partial_slabs[slab.class().index()];
        slab.set_list_index(partial.len());
        partial.push(number);
    }

    fn empty_slabs(&self, table: &BlockTable) -> Vec<u32> {
        self.partial_slabs.iter().flatten().copied().filter(|&slab| table.slabs.at(slab).is_empty()).collect()
    }

    /// Frees the extent of a slab, all of whose blocks are free.
    fn free_slab(&mut self, table: &BlockTable, number: u32) {
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
