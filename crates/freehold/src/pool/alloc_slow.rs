//! The slow path of an allocation, when the thread's magazines are empty. The header of the pool lists its sources and
//! says why they are tried in that order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use freehold_driver::{BlockChange, CallError};

use super::block_meta::OwnedBy;
use super::chunk_source::{LockedChunks, MapOutcome};
use super::device_pool::{AllocError, AllocatedBlock, Pool};
use super::extent_map::{self, MapRequest};
use super::pool_device::PoolDevice;
use super::size_class::SizeClass;
use super::stream_heap::StreamHeap;
use super::thread_cache::{self, CacheKey};
use crate::ordering::stream_state::StreamState;

/// Chunks of resting streams are moved, before new ones are created, if more than this fraction of the pool's memory is
/// free there.
const IDLE_PART: u64 = 8;

/// A stream's own chunks are moved with them only if more than this fraction is free in its heap. Removing a chunk from
/// the middle of a stream's working set splits the free ranges on both sides for good, so fewer requests fit: with
/// random lifetimes, moving at an eighth ended with more memory than growing did.
const OWN_IDLE_PART: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchScope {
    /// The stream's own heap.
    Own,
    Any,
}

impl Pool {
    /// Allocates a block for work in a stream, from any source.
    #[cold]
    pub(crate) fn alloc_slow(
        &self,
        device: &dyn PoolDevice,
        key: CacheKey,
        stream_state: &Arc<StreamState>,
        bytes: u64,
        by: OwnedBy,
    ) -> Result<AllocatedBlock, AllocError> {
        if bytes > self.chunks.most_bytes() {
            return Err(AllocError::Short);
        }
        device.refresh()?;
        let heap = self.heap_of(stream_state);
        self.add_thread_cache(key, stream_state);
        let Some(class) = SizeClass::of(bytes) else {
            if !heap.has_meta(&self.table) {
                return Err(AllocError::TooMany);
            }
            return self.alloc_whole_extent(device, key, &heap, stream_state, (bytes, by));
        };
        let incomplete = heap.reclaim(&self.table, |fence| device.is_complete(fence));
        device.record_fences(&incomplete)?;
        let mut has_borrowed = false;
        loop {
            if let Some(taken) = Self::try_alloc_local(key, bytes, by) {
                return Ok(taken);
            }
            // The magazines or the heap may have ended with the stream.
            if stream_state.is_retired() {
                return Err(AllocError::Short);
            }
            let mut found = None;
            if heap.alloc_small(&self.table, stream_state.id.0, class, 1, |meta| found = Some(meta)) == 1 {
                return Ok(self.grant(key, &heap, found.expect("a block was found"), (bytes, by)));
            }
            let slab_bytes = heap.next_slab_bytes(class);
            if let Some(block) = heap.alloc_large(&self.table, slab_bytes) {
                self.add_slab(&heap, stream_state, class, block)?;
                continue;
            }
            if !has_borrowed && let Some(meta) = self.borrow_small(device, &heap, stream_state, class)? {
                return Ok(self.grant(key, &heap, meta, (bytes, by)));
            }
            has_borrowed = true;
            match self.alloc_extent(device, &heap, stream_state, slab_bytes, SearchScope::Own) {
                Ok(block) => self.add_slab(&heap, stream_state, class, block)?,
                // No memory is left for a slab, but there may be some for this block alone, also in other streams'
                // heaps.
                Err(AllocError::Short) => {
                    return self.alloc_whole_extent(device, key, &heap, stream_state, (bytes, by));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Allocates a block that is an extent of its own.
    fn alloc_whole_extent(
        &self,
        device: &dyn PoolDevice,
        key: CacheKey,
        heap: &Arc<StreamHeap>,
        stream_state: &Arc<StreamState>,
        (bytes, by): (u64, OwnedBy),
    ) -> Result<AllocatedBlock, AllocError> {
        let meta = self.alloc_extent(device, heap, stream_state, bytes, SearchScope::Any)?;
        // Another stream may have adopted the heap by now: then the block is in that stream's order.
        if self.table.metas.at(meta).stream() != stream_state.id.0 {
            self.free_unowned(meta, stream_state);
            return Err(AllocError::Short);
        }
        Ok(self.grant(key, heap, meta, (bytes, by)))
    }

    /// Makes a slab of an allocated extent, or frees the extent again if no metas are left for the slab's blocks.
    fn add_slab(
        &self,
        heap: &StreamHeap,
        stream_state: &StreamState,
        class: SizeClass,
        block: u32,
    ) -> Result<(), AllocError> {
        if heap.add_slab(&self.table, class, block) {
            return Ok(());
        }
        heap.free(&self.table, block, stream_state, &[]);
        Err(AllocError::TooMany)
    }

    /// Gives a block that was taken from a heap to its owner.
    fn grant(&self, key: CacheKey, heap: &StreamHeap, meta: u32, (bytes, by): (u64, OwnedBy)) -> AllocatedBlock {
        let meta = self.table.metas.at(meta);
        meta.own(bytes, by);
        if thread_cache::with(key, |entered| entered.cache.counters.add_live(bytes)).is_none() {
            heap.counters.add_live_shared(bytes);
        }
        self.chunks.announce(BlockChange::HandedOut { address: meta.base(), bytes });
        AllocatedBlock::of(meta)
    }

    /// Allocates an extent for a block: from the stream's own heap, from another heap, or newly mapped.
    fn alloc_extent(
        &self,
        device: &dyn PoolDevice,
        heap: &Arc<StreamHeap>,
        stream_state: &Arc<StreamState>,
        bytes: u64,
        scope: SearchScope,
    ) -> Result<u32, AllocError> {
        if let Some(meta) = heap.alloc_large(&self.table, bytes) {
            return Ok(meta);
        }
        self.table.misses.fetch_add(1, Ordering::Relaxed);
        let incomplete = heap.reclaim(&self.table, |fence| device.is_complete(fence));
        // A slab is small: no thread cache is emptied for it, and few slabs are freed, until memory is short.
        if scope == SearchScope::Any {
            heap.caches.all().iter().for_each(|cache| cache.flush());
            heap.free_empty_slabs(&self.table);
        } else {
            heap.free_idle_slabs(&self.table);
        }
        if let Some(meta) = heap.alloc_large(&self.table, bytes) {
            return Ok(meta);
        }
        let found = self.alloc_extent_elsewhere(device, heap, stream_state, bytes, scope);
        // Only after the streams were queried: a stream that still needs a fence has not completed its work.
        if let Err(error) = device.record_fences(&incomplete) {
            found.into_iter().flatten().for_each(|meta| self.free_unowned(meta, stream_state));
            return Err(error.into());
        }
        if let Some(meta) = found? {
            return Ok(meta);
        }
        // Everything that was cached has been returned by now.
        if let Some(meta) = heap.alloc_large(&self.table, bytes) {
            return Ok(meta);
        }
        // Vectors may have given back memory that is not unmapped yet.
        if device.unmap_completed()?
            && let Some(meta) = self.grow(device, heap, bytes)?
        {
            return Ok(meta);
        }
        if let Some(meta) = self.alloc_after_wait(device, heap, stream_state, bytes)? {
            return Ok(meta);
        }
        if scope == SearchScope::Any
            && let Some(meta) = self.borrow_after_wait(device, heap, stream_state, bytes)?
        {
            return Ok(meta);
        }
        Err(if heap.has_meta(&self.table) { AllocError::Short } else { AllocError::TooMany })
    }

    /// Allocates an extent from another heap, or maps new memory.
    fn alloc_extent_elsewhere(
        &self,
        device: &dyn PoolDevice,
        heap: &StreamHeap,
        stream_state: &StreamState,
        bytes: u64,
        scope: SearchScope,
    ) -> Result<Option<u32>, CallError> {
        if scope == SearchScope::Any
            && let Some(meta) = self.borrow(device, heap, stream_state, bytes)?
        {
            return Ok(Some(meta));
        }
        self.grow(device, heap, bytes)
    }

    /// Returns an extent that never had an owner.
    fn free_unowned(&self, meta: u32, stream_state: &StreamState) {
        self.heaps.get(self.table.metas.at(meta).heap()).free(&self.table, meta, stream_state, &[]);
    }

    /// Maps memory in the heap's addresses and allocates an extent of it. [`map_chunks`](Self::map_chunks) says where
    /// the memory comes from. Returns `None` if there is none.
    fn grow(&self, device: &dyn PoolDevice, heap: &StreamHeap, bytes: u64) -> Result<Option<u32>, CallError> {
        let mut locked = self.chunks.lock();
        if let Some(meta) = self.grow_at(device, heap, &mut locked, bytes, 0)? {
            return Ok(Some(meta));
        }
        // A cached chunk may be longer than the hole: try again with addresses for the longest one. Memory that comes
        // with its addresses has no hole to fit into.
        if !self.chunks.can_map() {
            return Ok(None);
        }
        match locked.longest_cached_bytes() {
            0 => Ok(None),
            longest => self.grow_at(device, heap, &mut locked, bytes, longest),
        }
    }

    /// Maps memory for a block, at addresses after which `spare_bytes` more are free.
    fn grow_at(
        &self,
        device: &dyn PoolDevice,
        heap: &StreamHeap,
        locked: &mut LockedChunks,
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
        // Small requests do not move the heap's own chunks.
        let own = Some(heap).filter(|_| bytes >= extent_map::PAGE_BYTES);
        let grown = self.map_chunks(device, locked, own, need);
        match grown {
            Ok(MapOutcome::Chunks(chunks)) => {
                let meta = heap.add_chunks(&self.table, claimed, &chunks, bytes);
                Ok(Some(meta.expect("the new mapping and the claimed range are long enough")))
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

    /// Finds addresses for a heap: unused ones, or regions of other heaps in which nothing is mapped.
    fn region(
        &self,
        device: &dyn PoolDevice,
        locked: &mut LockedChunks,
        room_bytes: u64,
        had_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        if !self.chunks.can_map() {
            return self.unmapped_region(device, locked, room_bytes);
        }
        if let Some(region) = self.chunks.region(locked, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        let heaps = self.heaps.all();
        heaps.iter().for_each(|heap| locked.free_regions(heap.take_bare_regions()));
        if let Some(region) = self.chunks.region(locked, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        self.gather_free(device, &heaps)?;
        for heap in &heaps {
            let chunks = heap.take_free_chunks(u64::MAX, |fence| device.is_complete(fence));
            self.unmap_and_cache(locked, heap, &chunks)?;
            locked.free_regions(heap.take_bare_regions());
        }
        Ok(self.chunks.region(locked, room_bytes, had_bytes))
    }

    /// Finds a chunk to be a region of its own, on devices where memory comes with its addresses.
    fn unmapped_region(
        &self,
        device: &dyn PoolDevice,
        locked: &mut LockedChunks,
        room_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        let heaps = self.heaps.all();
        if let found @ Some(_) = self.chunks.find_unmapped(locked, room_bytes)? {
            return Ok(found);
        }
        self.gather_free(device, &heaps)?;
        for heap in &heaps {
            let chunks = heap.take_free_chunks(u64::MAX, |fence| device.is_complete(fence));
            self.unmap_and_cache(locked, heap, &chunks)?;
        }
        self.chunks.find_unmapped(locked, room_bytes)
    }

    /// Maps chunks: those of resting heaps if much memory is free there, else a cached or a new one, and last free
    /// chunks of any heap.
    fn map_chunks(
        &self,
        device: &dyn PoolDevice,
        locked: &mut LockedChunks,
        own: Option<&StreamHeap>,
        need: extent_map::MapRequest,
    ) -> Result<MapOutcome, CallError> {
        if !self.chunks.can_map() {
            return Ok(MapOutcome::Chunks(vec![self.chunks.take_unmapped(locked, need.base)]));
        }
        let heaps = self.heaps.all();
        let reserved_bytes = self.chunks.reserved_bytes();
        // Busy streams would need their free memory again at once.
        let is_own = |heap: &StreamHeap| own.is_some_and(|own| own.number == heap.number);
        let has_much = |heap: &StreamHeap| heap.free_bytes().0 > reserved_bytes / OWN_IDLE_PART;
        let may_give =
            |heap: &&Arc<StreamHeap>| if is_own(heap) { has_much(heap) } else { heap.is_resting(&self.table) };
        let givers: Vec<_> = heaps.iter().filter(may_give).cloned().collect();
        let free_bytes: u64 = givers.iter().map(|heap| heap.free_bytes().0).sum();
        if free_bytes > reserved_bytes / IDLE_PART && free_bytes >= need.bytes {
            self.unmap_free_chunks(device, locked, &givers, need.bytes)?;
            if locked.cached_bytes() >= need.bytes
                && let grown @ MapOutcome::Chunks(_) = self.chunks.assemble(locked, need)?
            {
                return Ok(grown);
            }
        }
        if let grown @ MapOutcome::Chunks(_) = self.chunks.grow(locked, need)? {
            return Ok(grown);
        }
        self.unmap_free_chunks(device, locked, &heaps, need.bytes)?;
        self.chunks.assemble(locked, need)
    }

    /// Maps memory at addresses outside all heaps: a cached chunk, or a new one.
    pub(crate) fn map_outside(&self, need: MapRequest) -> Result<MapOutcome, CallError> {
        self.chunks.grow(&mut self.chunks.lock(), need)
    }

    /// Like [`map_outside`](Self::map_outside), also with free chunks of the heaps.
    pub(crate) fn map_outside_from_heaps(
        &self,
        device: &dyn PoolDevice,
        need: MapRequest,
    ) -> Result<MapOutcome, CallError> {
        let locked = &mut *self.chunks.lock();
        if let grown @ MapOutcome::Chunks(_) = self.map_chunks(device, locked, None, need)? {
            return Ok(grown);
        }
        // Cached chunks that are too long for the hole go back to the driver, so that it can create one that fits.
        let keep_bytes = self.chunks.reserved_bytes().saturating_sub(need.bytes);
        match self.chunks.release(locked, keep_bytes)? {
            0 => Ok(MapOutcome::OutOfMemory),
            _ => self.chunks.assemble(locked, need),
        }
    }
}
