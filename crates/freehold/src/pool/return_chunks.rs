//! Returns memory to the driver: cached and pending blocks become free extents, free extents become free chunks, and
//! free chunks are cached or freed.

use std::ops::Range;
use std::sync::Arc;

use freehold_driver::CallError;

use super::chunk_source::LockedChunks;
use super::device_pool::Pool;
use super::extent_map::Chunk;
use super::pool_device::PoolDevice;
use super::stream_heap::StreamHeap;

impl Pool {
    /// Gathers the free memory of some heaps, and unmaps chunks until `bytes` are cached.
    pub(super) fn unmap_free_chunks(
        &self,
        device: &dyn PoolDevice,
        locked: &mut LockedChunks,
        heaps: &[Arc<StreamHeap>],
        bytes: u64,
    ) -> Result<(), CallError> {
        self.gather_free(device, heaps)?;
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

    /// Unmaps a chunk outside all heaps that is no longer used, and caches its memory.
    pub(crate) fn unmap_outside(&self, chunk: Chunk) -> Result<(), CallError> {
        self.chunks.unmap_and_cache(&mut self.chunks.lock(), chunk)
    }

    /// Returns the blocks that threads cache to the heaps, reclaims blocks whose fences are complete, and queries the
    /// device.
    pub(super) fn gather_free(&self, device: &dyn PoolDevice, heaps: &[Arc<StreamHeap>]) -> Result<(), CallError> {
        heaps.iter().flat_map(|heap| heap.caches.all()).for_each(|cache| cache.flush());
        // Only now: the query covers everything that other threads submitted before.
        device.query()?;
        for heap in heaps {
            heap.reclaim_all(&self.table, |fence| device.is_complete(fence));
            heap.free_empty_slabs(&self.table);
        }
        // What was just returned comes after all work that is in its stream now, including other threads'.
        device.query()
    }

    /// Unmaps chunks that were removed from a heap, and caches them. Chunks that the driver refuses to unmap go back to
    /// the heap.
    pub(super) fn unmap_and_cache(
        &self,
        locked: &mut LockedChunks,
        heap: &StreamHeap,
        chunks: &[Chunk],
    ) -> Result<(), CallError> {
        for (index, &chunk) in chunks.iter().enumerate() {
            if let Err(error) = self.chunks.unmap_and_cache(locked, chunk) {
                heap.restore_chunks(&chunks[index..]);
                return Err(error);
            }
        }
        if !self.chunks.can_map() {
            // A chunk is a region, and its addresses go with it.
            drop(heap.take_bare_regions());
        }
        Ok(())
    }

    /// Returns free memory to the driver until the pool has at most `keep_bytes`. Returns how many bytes were returned.
    pub(crate) fn trim(&self, device: &dyn PoolDevice, keep_bytes: u64) -> Result<u64, CallError> {
        let heaps = self.heaps.all();
        self.gather_free(device, &heaps)?;
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

    /// Like [`trim`](Self::trim), for memory that came with its addresses. What cannot be freed yet stays cached.
    fn trim_when_idle(
        &self,
        device: &dyn PoolDevice,
        heaps: &[Arc<StreamHeap>],
        keep_bytes: u64,
    ) -> Result<u64, CallError> {
        if !device.is_idle() {
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

    /// Returns the chunks in a span that are entirely free to the driver.
    pub(crate) fn trim_range(&self, device: &dyn PoolDevice, span: Range<u64>) -> Result<(), CallError> {
        let heaps = self.heaps.all();
        self.gather_free(device, &heaps)?;
        let mut locked = self.chunks.lock();
        for heap in &heaps {
            let chunks = heap.take_free_chunks_within(&span, |fence| device.is_complete(fence));
            self.unmap_and_cache(&mut locked, heap, &chunks)?;
            // Memory that is not mapped is freed when nothing is pending: see `release_when_idle`.
            for _ in chunks.iter().filter(|_| self.chunks.can_map()) {
                self.chunks.release_one(&mut locked)?;
            }
        }
        Ok(())
    }

    /// Frees cached memory that came with its addresses until the pool has at most `keep_bytes`. The driver's free
    /// waits for all work, so this does nothing while work is pending. Not for callers that hold a destroy lock.
    /// Returns how many bytes were freed.
    pub(crate) fn release_when_idle(&self, device: &dyn PoolDevice, keep_bytes: u64) -> Result<u64, CallError> {
        let mut freed_bytes = 0;
        if self.chunks.can_map() {
            return Ok(0);
        }
        device.when_idle(&mut || {
            // The thread that has the lock may be about to take a destroy lock.
            if let Some(mut locked) = self.chunks.try_lock() {
                freed_bytes = self.chunks.release(&mut locked, keep_bytes)?;
            }
            Ok(())
        })?;
        Ok(freed_bytes)
    }
}
