//! A stream's heap: its extents, its slabs, and the blocks that wait for fences before they can be reused. Except for
//! those, everything free here is free in the order of the heap's stream.
//!
//! Calls no driver: the pool does that for it.

#[path = "stream_heap/locked.rs"]
mod locked;

use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use self::locked::{LockedHeap, PendingBlock};
use super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot, Placement};
use super::block_table::BlockTable;
use super::extent_map::{AllocatedExtent, Chunk, ExtentMap, GRANULE_BYTES, MapRequest};
use super::heap_caches::HeapCaches;
use super::imports::{ContextId, Fence, StreamId, StreamState};
use super::size_class::{CLASSES, SMALL_BYTES_MAX, SizeClass};
use super::stats::Counters;
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

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
    pub(crate) caches: HeapCaches,
    pub(crate) counters: Counters,
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
            caches: HeapCaches::new(),
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
                reclaimed.set_state(BlockState::Cached);
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

    // Extents and chunks.

    pub(crate) fn add_region(&self, base: u64, bytes: u64) {
        self.lock().extents.add_region(base, bytes);
    }

    /// Removes whole regions in which nothing is mapped, and returns their bases and lengths.
    pub(crate) fn take_bare_regions(&self) -> Vec<(u64, u64)> {
        self.lock().extents.take_bare_regions()
    }

    /// Finds where to map memory for a request, and claims the free range before it, so that no other request takes it.
    pub(crate) fn map_request(&self, bytes: u64, spare_bytes: u64) -> Option<(MapRequest, Option<u32>)> {
        let locked = &mut *self.lock();
        let need = locked.extents.map_request(bytes, spare_bytes)?;
        Some((need, locked.extents.claim(need)))
    }

    /// Returns a claimed range.
    pub(crate) fn unclaim(&self, claimed: Option<u32>) {
        let locked = &mut *self.lock();
        if let Some(extent) = claimed {
            locked.extents.free(extent, locked.stream.released_seq());
        }
    }

    /// Adds chunks that were mapped, and allocates a block from them for this heap's stream.
    pub(crate) fn add_chunks(
        &self,
        table: &BlockTable,
        claimed: Option<u32>,
        chunks: &[Chunk],
        bytes: u64,
    ) -> Option<u32> {
        let locked = &mut *self.lock();
        let seq = locked.stream.released_seq();
        if let Some(extent) = claimed {
            locked.extents.free(extent, seq);
        }
        for &chunk in chunks {
            locked.extents.add_chunk(chunk, 0);
        }
        let taken = locked.extents.alloc(bytes)?;
        Some(locked.new_block(table, self.number, taken, locked.stream.id.0))
    }

    /// Removes chunks that are entirely free and complete, up to `wanted_bytes`. The caller unmaps them.
    pub(crate) fn take_free_chunks(&self, wanted_bytes: u64, is_complete: impl Fn(Fence) -> bool) -> Vec<Chunk> {
        let locked = &mut *self.lock();
        let stream = locked.stream.id;
        let mut free = locked.extents.free_chunks(|seq| is_complete(Fence { stream, seq }));
        free.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.bytes));
        let mut bytes = 0;
        let mut emptied = Vec::new();
        for chunk in free {
            if bytes >= wanted_bytes {
                break;
            }
            bytes += chunk.bytes;
            locked.extents.remove_chunk(chunk);
            emptied.push(chunk);
        }
        emptied
    }

    /// Removes the chunks in a span that are entirely free and complete.
    pub(crate) fn take_free_chunks_within(&self, span: &Range<u64>, is_complete: impl Fn(Fence) -> bool) -> Vec<Chunk> {
        let locked = &mut *self.lock();
        if !locked.extents.has(span.start) {
            return Vec::new();
        }
        let stream = locked.stream.id;
        let free = locked.extents.free_chunks(|seq| is_complete(Fence { stream, seq }));
        let within = |chunk: &Chunk| chunk.base < span.end && span.start < chunk.base + chunk.bytes;
        let chunks: Vec<_> = free.into_iter().filter(within).collect();
        chunks.iter().for_each(|&chunk| locked.extents.remove_chunk(chunk));
        chunks
    }

    /// Puts chunks back that could not be unmapped.
    pub(crate) fn restore_chunks(&self, chunks: &[Chunk]) {
        let locked = &mut *self.lock();
        chunks.iter().for_each(|&chunk| locked.extents.add_chunk(chunk, 0));
    }

    /// How many bytes of chunks could be removed.
    pub(crate) fn free_chunk_bytes(&self, is_complete: impl Fn(Fence) -> bool) -> u64 {
        let locked = self.lock();
        let stream = locked.stream.id;
        locked.extents.free_chunks(|seq| is_complete(Fence { stream, seq })).iter().map(|chunk| chunk.bytes).sum()
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.lock().extents.mapped_bytes()
    }

    /// Returns the free bytes of the extents, and the longest free range.
    pub(crate) fn free_bytes(&self) -> (u64, u64) {
        let locked = self.lock();
        (locked.extents.free_bytes(), locked.extents.longest_bytes())
    }

    /// Returns how many blocks wait for fences, and how many bytes their owners had requested.
    pub(crate) fn pending(&self, table: &BlockTable) -> (u64, u64) {
        let locked = self.lock();
        let bytes = locked.pending.iter().map(|waiting| table.metas.at(waiting.meta).bytes()).sum();
        (locked.pending.len() as u64, bytes)
    }

    /// Returns the base of the block that contains an address.
    pub(crate) fn allocated_at(&self, address: u64) -> Option<u64> {
        let locked = self.lock();
        if locked.extents.has(address) { locked.extents.allocated_at(address) } else { None }
    }

    /// Returns the heap's stream and its chunks, in the order of their addresses.
    pub(crate) fn chunks(&self) -> (Arc<StreamState>, Vec<Chunk>) {
        let locked = self.lock();
        (locked.stream.clone(), locked.extents.chunks().collect())
    }

    /// Returns the chunk that contains an address.
    pub(crate) fn chunk_at(&self, address: u64) -> Option<Chunk> {
        self.lock().extents.chunk_at(address)
    }

    /// Returns the last block freed at an address.
    pub(crate) fn freed_at(&self, address: u64) -> Option<FreedBlock> {
        let locked = self.lock();
        let (newer, older) = locked.freed.split_at(locked.next_freed);
        let mut gone = newer.iter().rev().chain(older.iter().rev());
        gone.find(|gone| address.wrapping_sub(gone.base) < gone.bytes.max(1)).copied()
    }

    /// Takes all blocks here from their owners, because their context is closed, and returns them. The memory stays as
    /// it is.
    pub(crate) fn disown_all(&self, table: &BlockTable, when: Duration) -> Vec<(u32, MetaSnapshot)> {
        let mut locked = self.lock();
        let mut disowned = Vec::new();
        for meta in table.metas.iter().filter(|meta| meta.heap() == self.number) {
            let state = meta.state();
            if state.state() == BlockState::Owned && meta.disown_with_info(state.generation(), None, when) {
                self.counters.sub_live_shared(meta.bytes());
                meta.set_state(BlockState::Ended);
                locked.note_freed(FreedBlock::of(meta));
                disowned.push((meta.number(), meta.snapshot()));
            }
        }
        disowned
    }

    /// Frees everything here, owned or not: the context is gone, and all work with it. Any stream may adopt the heap.
    pub(crate) fn clear(&self, table: &BlockTable) {
        let locked = &mut *self.lock();
        locked.pending.clear();
        locked.partial_slabs.iter_mut().for_each(Vec::clear);
        let is_here = |meta: &&BlockMeta| meta.heap() == self.number && meta.state().state() != BlockState::Vacant;
        for meta in table.metas.iter().filter(is_here) {
            match meta.placement().slab().map(|slab| table.slabs.at(slab)) {
                None => {
                    table.pages.clear(meta.base(), 1);
                    locked.free_metas.push(meta.number());
                }
                Some(slab) if meta.number() == slab.metas().start => {
                    table.pages.clear(slab.base(), slab.bytes());
                    locked.unused_slabs[slab.class().index()].push(slab.number());
                }
                Some(_) => {}
            }
            meta.end();
        }
        locked.slab_blocks = [0; CLASSES];
        locked.is_orphan = true;
        locked.is_context_gone = true;
        locked.extents.free_all();
    }

    fn lock(&self) -> MutexGuard<'_, LockedHeap> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
