//! The slow path of an allocation, when the thread's magazines are empty. The header of the pool lists its sources and
//! says why they are tried in that order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use freehold_driver::{BlockChange, CallError};

use super::block_meta::OwnedBy;
use super::device_pool::{AllocError, AllocatedBlock, Pool};
use super::device_work::DeviceWork;
use super::size_class::SizeClass;
use super::stream_heap::StreamHeap;
use super::thread_caches::{self, CacheKey};
use crate::ordering::stream_state::StreamState;

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
        device: &dyn DeviceWork,
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
        device: &dyn DeviceWork,
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
        if thread_caches::with(key, |entered| entered.cache.counters.add_live(bytes)).is_none() {
            heap.counters.add_live_shared(bytes);
        }
        self.chunks.announce(BlockChange::HandedOut { address: meta.base(), bytes });
        AllocatedBlock::of(meta)
    }

    /// Allocates an extent for a block: from the stream's own heap, from another heap, or newly mapped.
    fn alloc_extent(
        &self,
        device: &dyn DeviceWork,
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
        device: &dyn DeviceWork,
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
}
