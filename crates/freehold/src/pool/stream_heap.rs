//! A heap: the ground that a stream has of the pool. Its extents, the slabs on it, and the blocks that wait for fences before they
//! can be had again. Everything free here is free in the order of the heap's stream.
//!
//! Knows the table and streams, and calls no driver: what it needs is asked of the pool.

#[path = "stream_heap/locked.rs"]
mod locked;

use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use self::locked::{Locked, PendingBlock};
use super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot, Placement};
use super::block_table::BlockTable;
use super::extent_map::{AllocatedExtent, Chunk, ExtentMap, GRANULE_BYTES, MapRequest};
use super::heap_caches::HeapCaches;
use super::outside::{ContextId, Fence, StreamId, StreamState};
use super::size_class::{CLASSES, SMALL_BYTES_MAX, SizeClass};
use super::stats::Counters;
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

/// Slabs whose blocks nobody has are given up where they are more than this part of what is mapped.
const IDLE_SLABS_PART: u64 = 4;

/// A heap that was asked for nothing while others had nothing so often rests.
const RESTING_MISSES: u64 = 64;

/// How many blocks that wait are looked at for one request.
const LOOKS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct StreamHeap {
    pub(crate) number: u32,
    /// The context of its stream.
    context: AtomicU32,
    locked: Mutex<Locked>,
    pub(crate) caches: HeapCaches,
    pub(crate) counters: Counters,
}

impl StreamHeap {
    pub(crate) fn new(number: u32, stream: Arc<StreamState>, extents: ExtentMap) -> Self {
        Self {
            number,
            context: AtomicU32::new(stream.context.0),
            locked: Mutex::new(Locked {
                stream,
                is_orphan: false,
                is_anybodys: false,
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

    /// Whether the heap's stream is gone; then another has it from now on.
    pub(crate) fn adopt(&self, stream: &Arc<StreamState>) -> bool {
        let mut locked = self.lock();
        if !locked.is_orphan || self.context() != stream.context && !locked.is_anybodys {
            return false;
        }
        locked.is_anybodys = false;
        self.context.store(stream.context.0, Ordering::Relaxed);
        locked.is_orphan = false;
        locked.stream = stream.clone();
        // Positions are the new stream's from now on, and the old one has passed all of its own.
        locked.extents.clear_seqs();
        true
    }

    pub(crate) fn orphan(&self) {
        self.lock().is_orphan = true;
    }

    // Blocks.

    /// Blocks of a class for a stream, as many as there are in slabs here, up to `count`: none where the heap has become
    /// another stream's.
    pub(crate) fn alloc_small(
        &self,
        table: &BlockTable,
        stream: u32,
        class: SizeClass,
        count: usize,
        mut found: impl FnMut(u32),
    ) -> usize {
        let locked = &mut *self.lock();
        // What waits may have passed: who asks can tell, and comes again.
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
                // The stream that it was another's of has passed all of its work.
                meta.set_stream(locked.stream.id.0);
                meta.set_seq(0);
            }
            found(meta.number());
            taken += 1;
            // At once: the next block that comes back lists it again.
            if slab.is_full() {
                partial.pop();
            }
        }
        // Who finds nothing looks once, and comes again with a slab.
        locked.is_reclaimed &= taken == 0;
        taken
    }

    /// A block that fits no class, of the extents.
    pub(crate) fn alloc_large(&self, table: &BlockTable, bytes: u64) -> Option<u32> {
        let locked = &mut *self.lock();
        if !locked.has_meta(table) {
            return None;
        }
        let taken = locked.extents.alloc(bytes)?;
        Some(locked.new_block(table, self.number, taken, locked.stream.id.0))
    }

    /// Whether a block can be made here: a meta is left for one.
    pub(crate) fn has_meta(&self, table: &BlockTable) -> bool {
        self.lock().has_meta(table)
    }

    /// Takes back blocks that `from` gave up in its order, and takes one that fits no class.
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

    /// A block of this heap's extents for another stream: one that this heap's stream has passed.
    pub(crate) fn lend(
        &self,
        table: &BlockTable,
        bytes: u64,
        to: u32,
        has_passed: impl Fn(Fence) -> bool,
    ) -> Option<u32> {
        let locked = &mut *self.lock();
        if !locked.has_meta(table) {
            return None;
        }
        let stream = locked.stream.id;
        let taken = locked.extents.alloc_if(bytes, |seq| has_passed(Fence { stream, seq }))?;
        let taken = AllocatedExtent { seq: 0, ..taken };
        Some(locked.new_block(table, self.number, taken, to))
    }

    /// A block of a class for another stream: one that this heap's stream, whose work is counted, has passed.
    pub(crate) fn lend_small(
        &self,
        table: &BlockTable,
        class: SizeClass,
        to: u32,
        has_passed: impl Fn(Fence) -> bool,
    ) -> Option<u32> {
        let locked = &mut *self.lock();
        // The heap may have become another stream's since that of before was seen to have passed all of its work.
        if locked.stream.is_foreign() {
            return None;
        }
        let (stream, partial) = (locked.stream.id, &mut locked.partial_slabs[class.index()]);
        let slab = table.slabs.at(*partial.last()?);
        let meta = table.metas.at(slab.alloc().expect("a slab that is listed has free blocks"));
        // It may have been used and given up since the stream was seen to have passed all of its work.
        if meta.stream() == stream.0 && !has_passed(Fence { stream, seq: meta.seq() }) {
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

    /// Whether nobody has asked for a block here for a while.
    pub(crate) fn is_resting(&self, table: &BlockTable) -> bool {
        self.lock().asked + RESTING_MISSES < table.misses.load(Ordering::Relaxed)
    }

    /// Whether the heap's stream has passed all that was put in, where that is counted; else how far it has to come.
    pub(crate) fn is_idle(&self, has_passed: impl Fn(Fence) -> bool) -> Result<(), Option<Fence>> {
        let locked = self.lock();
        if locked.stream.is_foreign() {
            return Err(None);
        }
        let edge = Fence { stream: locked.stream.id, seq: locked.stream.released_seq() };
        if has_passed(edge) { Ok(()) } else { Err(Some(edge)) }
    }

    /// As [`lend`](Self::lend), of a range that the heap's stream has not passed: it has to be waited for. Nothing where that
    /// stream is not `stream`, which the caller can wait for.
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
        // Whatever the range's own seq, everything up to now is behind this one.
        let fence = Fence { stream: locked.stream.id, seq: locked.stream.released_seq() };
        let taken = AllocatedExtent { seq: 0, ..taken };
        Some((locked.new_block(table, self.number, taken, to), fence))
    }

    /// How long a place the next slab of a class is to have.
    pub(crate) fn next_slab_bytes(&self, class: SizeClass) -> u64 {
        class.slab_bytes(class.slab_blocks(self.lock().slab_blocks[class.index()]))
    }

    /// Makes a slab of a block that was taken of this heap's extents. Whether metas are left for its blocks: the block is as it was
    /// otherwise.
    #[must_use]
    pub(crate) fn add_slab(&self, table: &BlockTable, class: SizeClass, block: u32) -> bool {
        let block = table.metas.at(block);
        let (base, placement, seq) = (block.base(), block.placement(), block.seq());
        assert_eq!(block.heap(), self.number, "a slab lies on the ground of its heap");
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
        slab.set_extent(base, placement.extent().expect("a slab is made of a place"));
        table.pages.set_slab(base, block.capacity_bytes(), number);
        locked.list(table, number);
        // The place is the slab's now.
        block.end();
        locked.free_metas.push(block.number());
        true
    }

    /// Takes back a block that `from` gave up in its order, behind fences of other streams.
    pub(crate) fn free(&self, table: &BlockTable, meta: u32, from: &StreamState, fences: &[Fence]) {
        self.lock().free_from(table, meta, from, fences);
    }

    /// As [`free`](Self::free), of blocks without fences.
    pub(crate) fn free_all(&self, table: &BlockTable, metas: impl Iterator<Item = u32>, from: &StreamState) {
        let locked = &mut *self.lock();
        metas.for_each(|meta| locked.free_from(table, meta, from, &[]));
    }

    /// Takes back blocks whose fences have passed; the fences of others that were looked at.
    pub(crate) fn reclaim(&self, table: &BlockTable, has_passed: impl Fn(Fence) -> bool) -> Vec<Fence> {
        self.reclaim_some(table, LOOKS_MAX, None, has_passed)
    }

    pub(crate) fn reclaim_all(&self, table: &BlockTable, has_passed: impl Fn(Fence) -> bool) -> Vec<Fence> {
        self.reclaim_some(table, usize::MAX, None, has_passed)
    }

    /// Takes back blocks whose fences have passed, or which `stream`, the heap's own, waits for before its next work: others use
    /// them behind that wait. Where the heap has become another stream's meanwhile, `stream` has passed its waits.
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
        has_passed: impl Fn(Fence) -> bool,
    ) -> Vec<Fence> {
        let locked = &mut *self.lock();
        let mut left = Vec::new();
        let looked = locked.pending.len().min(looks);
        let mut index = 0;
        for _ in 0..looked {
            let waiting = &mut locked.pending[index];
            waiting.fences.retain(|&fence| !has_passed(fence));
            if waiting.fences.is_empty() {
                let PendingBlock { meta, .. } = locked.pending.swap_remove(index);
                let settled = table.metas.at(meta);
                // A wait that was just found is counted by now.
                if let Some(Fence { stream, seq }) = waits.map(StreamState::current_fence) {
                    settled.set_stream(stream.0);
                    settled.set_seq(seq);
                }
                settled.set_state(BlockState::Cached);
                locked.free(table, meta);
            } else {
                table.metas.at(waiting.meta).set_waiting_for(waiting.fences.len());
                left.extend_from_slice(&waiting.fences);
                index += 1;
            }
        }
        // The next request looks at others first.
        locked.pending.rotate_left(index);
        locked.is_reclaimed = true;
        left
    }

    /// Lets a block be of other bytes where it lies, if it can and one ownership of it lasts: where its context has ended that
    /// meanwhile, the place may be another block's. What is added or given up is in the order of the heap's stream.
    pub(crate) fn resize(&self, meta: &BlockMeta, generation: u64, bytes: u64) -> bool {
        let locked = &mut *self.lock();
        let Some(MetaSnapshot { bytes: before, .. }) = meta.owned_as(generation) else { return false };
        let place = meta.placement().extent().filter(|_| bytes > SMALL_BYTES_MAX);
        let seq = locked.stream.released_seq();
        let is_moved_end =
            place.is_some_and(|place| meta.stream() == locked.stream.id.0 && locked.extents.resize(place, bytes, seq));
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

    /// Calls `act` while one ownership of a block here lasts, which its context does not end meanwhile. Nothing where it has ended.
    pub(crate) fn while_owned<R>(&self, meta: &BlockMeta, generation: u64, act: impl FnOnce() -> R) -> Option<R> {
        let _inside = self.lock();
        meta.owned_as(generation).map(|_| act())
    }

    /// The last fences that blocks wait for, one for each stream.
    pub(crate) fn pending_fences(&self) -> Vec<Fence> {
        let locked = self.lock();
        let mut fences: Vec<_> = locked.pending.iter().flat_map(|waiting| waiting.fences.iter().copied()).collect();
        fences.sort_unstable_by_key(|fence| (fence.stream, std::cmp::Reverse(fence.seq)));
        fences.dedup_by_key(|fence| fence.stream);
        fences
    }

    /// Makes places again of all slabs whose blocks nobody has, if they are much of what is mapped: slabs do not come and go
    /// with each few requests.
    pub(crate) fn free_idle_slabs(&self, table: &BlockTable) {
        let locked = &mut *self.lock();
        let empty = locked.empty_slabs(table);
        let empty_bytes: u64 = empty.iter().map(|&slab| table.slabs.at(slab).bytes()).sum();
        if empty_bytes >= locked.extents.mapped_bytes() / IDLE_SLABS_PART {
            empty.into_iter().for_each(|slab| locked.free_slab(table, slab));
        }
    }

    /// Makes places again of all slabs whose blocks nobody has.
    pub(crate) fn free_empty_slabs(&self, table: &BlockTable) {
        let locked = &mut *self.lock();
        locked.empty_slabs(table).into_iter().for_each(|slab| locked.free_slab(table, slab));
    }

    // Ground.

    pub(crate) fn add_region(&self, base: u64, bytes: u64) {
        self.lock().extents.add_region(base, bytes);
    }

    /// Takes the addresses away that nothing is mapped to, in whole regions: their bases and lengths.
    pub(crate) fn take_bare_regions(&self) -> Vec<(u64, u64)> {
        self.lock().extents.take_bare_regions()
    }

    /// Where memory has to be mapped for a request, and the free range beside it, which nobody else takes meanwhile.
    pub(crate) fn map_request(&self, bytes: u64, spare_bytes: u64) -> Option<(MapRequest, Option<u32>)> {
        let locked = &mut *self.lock();
        let need = locked.extents.map_request(bytes, spare_bytes)?;
        Some((need, locked.extents.claim(need)))
    }

    /// Gives the range back that was kept for what was to be mapped.
    pub(crate) fn unclaim(&self, claimed: Option<u32>) {
        let locked = &mut *self.lock();
        if let Some(place) = claimed {
            locked.extents.free(place, locked.stream.released_seq());
        }
    }

    /// Notes chunks that were mapped, and takes a block of them for this heap's stream.
    pub(crate) fn add_chunks(
        &self,
        table: &BlockTable,
        claimed: Option<u32>,
        chunks: &[Chunk],
        bytes: u64,
    ) -> Option<u32> {
        let locked = &mut *self.lock();
        let seq = locked.stream.released_seq();
        if let Some(place) = claimed {
            locked.extents.free(place, seq);
        }
        for &chunk in chunks {
            locked.extents.add_chunk(chunk, 0);
        }
        let taken = locked.extents.alloc(bytes)?;
        Some(locked.new_block(table, self.number, taken, locked.stream.id.0))
    }

    /// Takes chunks away that are free as a whole and passed, up to so many bytes. They are to be unmapped.
    pub(crate) fn take_free_chunks(&self, wanted_bytes: u64, has_passed: impl Fn(Fence) -> bool) -> Vec<Chunk> {
        let locked = &mut *self.lock();
        let stream = locked.stream.id;
        let mut free = locked.extents.free_chunks(|seq| has_passed(Fence { stream, seq }));
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

    /// Takes the chunks away that lie in a span and are free as a whole and passed.
    pub(crate) fn take_free_chunks_within(&self, span: &Range<u64>, has_passed: impl Fn(Fence) -> bool) -> Vec<Chunk> {
        let locked = &mut *self.lock();
        if !locked.extents.has(span.start) {
            return Vec::new();
        }
        let stream = locked.stream.id;
        let free = locked.extents.free_chunks(|seq| has_passed(Fence { stream, seq }));
        let within = |chunk: &Chunk| chunk.base < span.end && span.start < chunk.base + chunk.bytes;
        let chunks: Vec<_> = free.into_iter().filter(within).collect();
        chunks.iter().for_each(|&chunk| locked.extents.remove_chunk(chunk));
        chunks
    }

    /// Notes that chunks are still mapped which were to be unmapped.
    pub(crate) fn restore_chunks(&self, chunks: &[Chunk]) {
        let locked = &mut *self.lock();
        chunks.iter().for_each(|&chunk| locked.extents.add_chunk(chunk, 0));
    }

    /// How much could be emptied.
    pub(crate) fn free_chunk_bytes(&self, has_passed: impl Fn(Fence) -> bool) -> u64 {
        let locked = self.lock();
        let stream = locked.stream.id;
        locked.extents.free_chunks(|seq| has_passed(Fence { stream, seq })).iter().map(|chunk| chunk.bytes).sum()
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.lock().extents.mapped_bytes()
    }

    /// What is free in the extents, and the longest range of it.
    pub(crate) fn free_bytes(&self) -> (u64, u64) {
        let locked = self.lock();
        (locked.extents.free_bytes(), locked.extents.longest_bytes())
    }

    /// How many blocks wait for fences, and how many bytes their owners had asked for.
    pub(crate) fn pending(&self, table: &BlockTable) -> (u64, u64) {
        let locked = self.lock();
        let bytes = locked.pending.iter().map(|waiting| table.metas.at(waiting.meta).bytes()).sum();
        (locked.pending.len() as u64, bytes)
    }

    /// The base of the block that an address lies in, if one does.
    pub(crate) fn allocated_at(&self, address: u64) -> Option<u64> {
        let locked = self.lock();
        if locked.extents.has(address) { locked.extents.allocated_at(address) } else { None }
    }

    /// The chunk that an address lies in.
    pub(crate) fn chunk_at(&self, address: u64) -> Option<Chunk> {
        self.lock().extents.chunk_at(address)
    }

    /// The block that went last from an address.
    pub(crate) fn freed_at(&self, address: u64) -> Option<FreedBlock> {
        let locked = self.lock();
        let (newer, older) = locked.freed.split_at(locked.next_freed);
        let mut gone = newer.iter().rev().chain(older.iter().rev());
        gone.find(|gone| address.wrapping_sub(gone.base) < gone.bytes.max(1)).copied()
    }

    /// Takes all blocks here from their owners: their context is closed. The memory stays as it is. What they were.
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

    /// Ends everything here, whoever has it: the context is gone, and all work with it. The memory is anybody's.
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
        locked.is_anybodys = true;
        locked.extents.free_all();
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
