//! The slow path: space for a block where the stream's magazines have none, and the way back from free chunks to the driver.
//!
//! Cheapest source first, with one exception: new memory comes before a wait on the device. A mapping costs the host a little
//! once. A wait holds one stream up for as long as another works, each time. Chunks are moved before new ones are made only
//! where much is free in streams that nobody has asked lately: a stream that works would need them again at once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use freehold_driver::CallError;

use super::chunk_source::{Locked, MapOutcome};
use super::extent_map::{self, Chunk, MapRequest};
use super::stream_heap::StreamHeap;
use super::{AllocError, Pool};
use crate::device::device_inner::DeviceInner;
use crate::ordering::stream_state::StreamState;

/// Chunks of streams that rest are moved to where they are needed, before new ones are made, if more than this part of
/// what the pool has is free there.
const IDLE_PART: u64 = 8;

/// A stream's own chunks are moved with them only if more than this part is free in its heap. A chunk that leaves the midst
/// of what a stream works with parts the free ranges on its two sides for good, so that fewer requests fit: where blocks
/// come and go at random, moving at an eighth ended with more memory than growing did.
const OWN_IDLE_PART: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchScope {
    /// The stream's own heap.
    Own,
    Any,
}

impl Pool {
    /// Gives what is free of the chunks in a span back to the driver, if all of a chunk is free.
    pub(crate) fn trim_range(&self, device: &DeviceInner, span: Range<u64>) -> Result<(), CallError> {
        let heaps = self.table.heaps();
        self.reclaim_all(device, &heaps)?;
        let mut locked = self.chunks.lock();
        for heap in &heaps {
            let chunks = heap.take_free_chunks_within(&span, |fence| device.is_complete(fence));
            self.unmap_and_cache(&mut locked, heap, &chunks)?;
            // What is not mapped goes where nothing is pending: see `release_alone`.
            for _ in chunks.iter().filter(|_| self.chunks.can_map()) {
                self.chunks.release_one(&mut locked)?;
            }
        }
        Ok(())
    }

    /// Gives memory that is kept, and came with its addresses, back to the driver until the pool has no more than `keep_bytes`. That
    /// waits for all work, so that it is done only where there is none. For who is in no context's gate. How many bytes went.
    pub(crate) fn release_when_idle(&self, device: &DeviceInner, keep_bytes: u64) -> Result<u64, CallError> {
        let mut freed_bytes = 0;
        if self.chunks.can_map() {
            return Ok(0);
        }
        device.with_idle_device(|| {
            // Who has the lock may be about to enter a gate.
            if let Some(mut locked) = self.chunks.try_lock() {
                freed_bytes = self.chunks.release(&mut locked, keep_bytes)?;
            }
            Ok(())
        })?;
        Ok(freed_bytes)
    }

    /// Ground for a block: of the stream's own heap, of another's, or newly mapped.
    pub(super) fn alloc_extent(
        &self,
        device: &DeviceInner,
        heap: &Arc<StreamHeap>,
        stream_state: &Arc<StreamState>,
        bytes: u64,
        origin: SearchScope,
    ) -> Result<u32, AllocError> {
        if let Some(meta) = heap.alloc_large(&self.table, bytes) {
            return Ok(meta);
        }
        self.table.misses.fetch_add(1, Ordering::Relaxed);
        let unmarked = heap.reclaim(&self.table, |fence| device.is_complete(fence));
        // A slab is little: for that nobody's magazines are emptied, and few slabs given up, before memory is short.
        if origin == SearchScope::Any {
            heap.all_caches().iter().for_each(|cache| cache.empty(false));
            heap.free_empty_slabs(&self.table);
        } else {
            heap.free_idle_slabs(&self.table);
        }
        if let Some(meta) = heap.alloc_large(&self.table, bytes) {
            return Ok(meta);
        }
        let found = self.alloc_extent_elsewhere(device, heap, stream_state, bytes, origin);
        // Not before streams were asked how far they have come: one that has a fence to write is not done.
        if let Err(error) = device.try_record_fences(&unmarked) {
            found.into_iter().flatten().for_each(|meta| self.free_unowned(meta, stream_state));
            return Err(error.into());
        }
        if let Some(meta) = found? {
            return Ok(meta);
        }
        // All that was kept somewhere has come back meanwhile.
        if let Some(meta) = heap.alloc_large(&self.table, bytes) {
            return Ok(meta);
        }
        // Vectors have given memory back that nobody has looked at since.
        if device.unmap_completed()?
            && let Some(meta) = self.grow(device, heap, bytes)?
        {
            return Ok(meta);
        }
        if let Some(meta) = self.alloc_after_wait(device, heap, stream_state, bytes)? {
            return Ok(meta);
        }
        if origin == SearchScope::Any
            && let Some(meta) = self.borrow_after_wait(heap, stream_state, bytes)?
        {
            return Ok(meta);
        }
        Err(if heap.has_meta(&self.table) { AllocError::Short } else { AllocError::TooMany })
    }

    /// Ground of another heap, or newly mapped.
    fn alloc_extent_elsewhere(
        &self,
        device: &DeviceInner,
        heap: &StreamHeap,
        stream_state: &StreamState,
        bytes: u64,
        origin: SearchScope,
    ) -> Result<Option<u32>, CallError> {
        if origin == SearchScope::Any
            && let Some(meta) = self.borrow(device, heap, stream_state, bytes)?
        {
            return Ok(Some(meta));
        }
        self.grow(device, heap, bytes)
    }

    /// Gives back ground that nobody had.
    pub(super) fn free_unowned(&self, meta: u32, stream_state: &StreamState) {
        self.table.heap(self.table.metas.at(meta).heap()).free(&self.table, meta, stream_state, &[]);
    }

    /// Maps memory for a block: what is kept, what lies free elsewhere, or what the driver makes.
    fn grow(&self, device: &DeviceInner, heap: &StreamHeap, bytes: u64) -> Result<Option<u32>, CallError> {
        let mut locked = self.chunks.lock();
        if let Some(meta) = self.grow_at(device, heap, &mut locked, bytes, 0)? {
            return Ok(Some(meta));
        }
        // Chunks that are kept may be too long for the room that there is. One that is not mapped is its own room.
        if !self.chunks.can_map() {
            return Ok(None);
        }
        match locked.longest_cached_bytes() {
            0 => Ok(None),
            longest => self.grow_at(device, heap, &mut locked, bytes, longest),
        }
    }

    /// Maps memory where there is room for `spare_bytes` more.
    fn grow_at(
        &self,
        device: &DeviceInner,
        heap: &StreamHeap,
        locked: &mut Locked,
        bytes: u64,
        spare_bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        if !heap.has_meta(&self.table) {
            return Ok(None);
        }
        let mut need = heap.map_request(bytes, spare_bytes);
        if need.is_none() {
            let room_bytes = bytes.next_multiple_of(extent_map::PAGE_BYTES) + spare_bytes;
            let Some((base, region_bytes)) = self.region(device, locked, room_bytes, heap.mapped_bytes())? else {
                return Ok(None);
            };
            heap.add_region(base, region_bytes);
            need = heap.map_request(bytes, spare_bytes);
        }
        let (need, claimed) = need.expect("a region was added that is long enough");
        // Nothing of its own is moved for little.
        let own = Some(heap).filter(|_| bytes >= extent_map::PAGE_BYTES);
        let grown = self.map_chunks(device, locked, own, need);
        match grown {
            Ok(MapOutcome::Chunks(chunks)) => {
                let meta = heap.add_chunks(&self.table, claimed, &chunks, bytes);
                Ok(Some(meta.expect("what was mapped is enough, with what was there")))
            }
            Ok(MapOutcome::OutOfMemory) => {
                heap.unclaim(claimed);
                Ok(None)
            }
            Err(error) => {
                heap.unclaim(claimed);
                Err(error)
            }
        }
    }

    /// Addresses for a heap: of those that are nobody's, or else of those that heaps have and nothing is mapped to.
    fn region(
        &self,
        device: &DeviceInner,
        locked: &mut Locked,
        room_bytes: u64,
        had_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        if !self.chunks.can_map() {
            return self.unmapped_region(device, locked, room_bytes);
        }
        if let Some(region) = self.chunks.region(locked, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        let heaps = self.table.heaps();
        heaps.iter().for_each(|heap| locked.free_regions(heap.take_bare_regions()));
        if let Some(region) = self.chunks.region(locked, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        self.reclaim_all(device, &heaps)?;
        for heap in &heaps {
            let chunks = heap.take_free_chunks(u64::MAX, |fence| device.is_complete(fence));
            self.unmap_and_cache(locked, heap, &chunks)?;
            locked.free_regions(heap.take_bare_regions());
        }
        Ok(self.chunks.region(locked, room_bytes, had_bytes))
    }

    /// A chunk for a region of its own, where memory comes with its addresses.
    fn unmapped_region(
        &self,
        device: &DeviceInner,
        locked: &mut Locked,
        room_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        let heaps = self.table.heaps();
        if let found @ Some(_) = self.chunks.find_unmapped(locked, room_bytes)? {
            return Ok(found);
        }
        self.reclaim_all(device, &heaps)?;
        for heap in &heaps {
            let chunks = heap.take_free_chunks(u64::MAX, |fence| device.is_complete(fence));
            self.unmap_and_cache(locked, heap, &chunks)?;
        }
        self.chunks.find_unmapped(locked, room_bytes)
    }

    fn map_chunks(
        &self,
        device: &DeviceInner,
        locked: &mut Locked,
        own: Option<&StreamHeap>,
        need: extent_map::MapRequest,
    ) -> Result<MapOutcome, CallError> {
        if !self.chunks.can_map() {
            return Ok(MapOutcome::Chunks(vec![self.chunks.take_unmapped(locked, need.base)]));
        }
        let heaps = self.table.heaps();
        let reserved_bytes = self.chunks.reserved_bytes();
        // What other streams that work have free they need again at once.
        let is_own = |heap: &StreamHeap| own.is_some_and(|own| own.number == heap.number);
        let has_much = |heap: &StreamHeap| heap.free_bytes().0 > reserved_bytes / OWN_IDLE_PART;
        let may_give =
            |heap: &&Arc<StreamHeap>| if is_own(heap) { has_much(heap) } else { heap.is_resting(&self.table) };
        let givers: Vec<_> = heaps.iter().filter(may_give).cloned().collect();
        let free_bytes: u64 = givers.iter().map(|heap| heap.free_bytes().0).sum();
        if free_bytes > reserved_bytes / IDLE_PART && free_bytes >= need.bytes {
            self.reclaim_bytes(device, locked, &givers, need.bytes)?;
            if locked.cached_bytes() >= need.bytes
                && let grown @ MapOutcome::Chunks(_) = self.chunks.assemble(locked, need)?
            {
                return Ok(grown);
            }
        }
        if let grown @ MapOutcome::Chunks(_) = self.chunks.grow(locked, need)? {
            return Ok(grown);
        }
        self.reclaim_bytes(device, locked, &heaps, need.bytes)?;
        self.chunks.assemble(locked, need)
    }

    /// Gets back everything that nobody has of some heaps, whoever keeps it, and unmaps as much as is lacking.
    fn reclaim_bytes(
        &self,
        device: &DeviceInner,
        locked: &mut Locked,
        heaps: &[Arc<StreamHeap>],
        bytes: u64,
    ) -> Result<(), CallError> {
        self.reclaim_all(device, heaps)?;
        let mut missing = bytes.saturating_sub(locked.cached_bytes());
        for heap in heaps {
            if missing == 0 {
                break;
            }
            let chunks = heap.take_free_chunks(missing, |fence| device.is_complete(fence));
            self.unmap_and_cache(locked, heap, &chunks)?;
            missing = missing.saturating_sub(chunks.iter().map(|chunk| chunk.bytes).sum());
        }
        Ok(())
    }

    /// Maps memory at addresses that are no heap's: a chunk that is kept, or else a new one.
    pub(crate) fn map_outside(&self, need: MapRequest) -> Result<MapOutcome, CallError> {
        self.chunks.grow(&mut self.chunks.lock(), need)
    }

    /// As [`map_beyond`](Self::map_beyond), of whatever nobody has.
    pub(crate) fn reclaim_outside(&self, device: &DeviceInner, need: MapRequest) -> Result<MapOutcome, CallError> {
        let locked = &mut *self.chunks.lock();
        if let grown @ MapOutcome::Chunks(_) = self.map_chunks(device, locked, None, need)? {
            return Ok(grown);
        }
        // What is kept and longer than the room there is goes back, so that the driver can make what fits.
        let keep_bytes = self.chunks.reserved_bytes().saturating_sub(need.bytes);
        match self.chunks.release(locked, keep_bytes)? {
            0 => Ok(MapOutcome::OutOfMemory),
            _ => self.chunks.assemble(locked, need),
        }
    }

    /// Unmaps a chunk of addresses that are no heap's, which nothing uses any more, and keeps its memory.
    pub(crate) fn unmap_outside(&self, chunk: Chunk) -> Result<(), CallError> {
        self.chunks.unmap_and_cache(&mut self.chunks.lock(), chunk)
    }

    /// Gets back what threads keep and what waits for fences that have passed, and asks how far streams have come.
    fn reclaim_all(&self, device: &DeviceInner, heaps: &[Arc<StreamHeap>]) -> Result<(), CallError> {
        heaps.iter().flat_map(|heap| heap.all_caches()).for_each(|cache| cache.empty(false));
        // Only then: what others put into their streams before is passed by who is asked now.
        device.query_streams()?;
        for heap in heaps {
            heap.reclaim_all(&self.table, |fence| device.is_complete(fence));
            heap.free_empty_slabs(&self.table);
        }
        // What was just given back is behind all that is in its stream now, others' work too.
        device.query_streams()
    }

    /// Unmaps chunks that a heap was emptied of, and keeps them. What the driver refuses to unmap is the heap's again.
    fn unmap_and_cache(&self, locked: &mut Locked, heap: &StreamHeap, chunks: &[Chunk]) -> Result<(), CallError> {
        for (index, &chunk) in chunks.iter().enumerate() {
            if let Err(error) = self.chunks.unmap_and_cache(locked, chunk) {
                heap.restore_chunks(&chunks[index..]);
                return Err(error);
            }
        }
        if !self.chunks.can_map() {
            // A chunk is a region, whose addresses go with it.
            drop(heap.take_bare_regions());
        }
        Ok(())
    }

    /// Gives memory that nobody has back to the driver until the pool has no more than `keep_bytes`. How many bytes went.
    pub(crate) fn trim(&self, device: &DeviceInner, keep_bytes: u64) -> Result<u64, CallError> {
        let heaps = self.table.heaps();
        self.reclaim_all(device, &heaps)?;
        if !self.chunks.can_map() {
            return self.trim_when_idle(device, &heaps, keep_bytes);
        }
        let mut locked = self.chunks.lock();
        let mut freed_bytes = self.chunks.release(&mut locked, keep_bytes)?;
        for heap in &heaps {
            let excess = self.chunks.reserved_bytes().saturating_sub(keep_bytes);
            if excess == 0 {
                break;
            }
            let chunks = heap.take_free_chunks(excess, |fence| device.is_complete(fence));
            self.unmap_and_cache(&mut locked, heap, &chunks)?;
            freed_bytes += self.chunks.release(&mut locked, keep_bytes)?;
        }
        Ok(freed_bytes)
    }

    /// As [`trim`](Self::trim), of memory that came with its addresses. What cannot go yet is kept for whoever asks.
    fn trim_when_idle(
        &self,
        device: &DeviceInner,
        heaps: &[Arc<StreamHeap>],
        keep_bytes: u64,
    ) -> Result<u64, CallError> {
        if !device.is_all_idle() {
            return Ok(0);
        }
        let mut locked = self.chunks.lock();
        for heap in heaps {
            let excess = self.chunks.reserved_bytes().saturating_sub(keep_bytes.saturating_add(locked.cached_bytes()));
            if excess == 0 {
                break;
            }
            let chunks = heap.take_free_chunks(excess, |fence| device.is_complete(fence));
            self.unmap_and_cache(&mut locked, heap, &chunks)?;
        }
        drop(locked);
        self.release_when_idle(device, keep_bytes)
    }
}
