//! Returns free memory to the driver.

use std::ops::Range;
use std::sync::Arc;

use freehold_driver::CallError;

use super::device_pool::Pool;
use super::device_work::DeviceWork;
use super::stream_heap::StreamHeap;

impl Pool {
    /// Returns free memory to the driver until the pool has at most `keep_bytes`. Returns how many bytes were returned.
    pub(crate) fn trim(&self, device: &dyn DeviceWork, keep_bytes: u64) -> Result<u64, CallError> {
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
            self.unmap_and_keep(&mut locked, heap, &chunks)?;
            freed_bytes += self.chunks.release(&mut locked, keep_bytes)?;
        }
        Ok(freed_bytes)
    }

    /// Like [`trim`](Self::trim), for memory that came with its addresses. What cannot be freed yet stays spare.
    fn trim_when_idle(
        &self,
        device: &dyn DeviceWork,
        heaps: &[Arc<StreamHeap>],
        keep_bytes: u64,
    ) -> Result<u64, CallError> {
        if !device.is_idle() {
            return Ok(0);
        }
        let mut locked = self.chunks.lock();
        for heap in heaps {
            let excess = self.chunks.reserved_bytes().saturating_sub(keep_bytes.saturating_add(locked.spare_bytes()));
            if excess == 0 {
                break;
            }
            let chunks = heap.take_free_chunks(excess, |fence| device.is_complete(fence));
            self.unmap_and_keep(&mut locked, heap, &chunks)?;
        }
        drop(locked);
        self.release_when_idle(device, keep_bytes)
    }

    /// Returns the chunks in a span that are entirely free to the driver.
    pub(crate) fn trim_range(&self, device: &dyn DeviceWork, span: Range<u64>) -> Result<(), CallError> {
        let heaps = self.heaps.all();
        self.gather_free(device, &heaps)?;
        let mut locked = self.chunks.lock();
        for heap in &heaps {
            let chunks = heap.take_free_chunks_within(&span, |fence| device.is_complete(fence));
            self.unmap_and_keep(&mut locked, heap, &chunks)?;
            // Memory that is not mapped is freed when nothing is pending: see `release_when_idle`.
            for _ in chunks.iter().filter(|_| self.chunks.can_map()) {
                self.chunks.release_one(&mut locked)?;
            }
        }
        Ok(())
    }

    /// Frees spare memory that came with its addresses until the pool has at most `keep_bytes`. The driver's free
    /// waits for all work, so this does nothing while work is pending. Not for callers that hold a destroy lock.
    /// Returns how many bytes were freed.
    pub(crate) fn release_when_idle(&self, device: &dyn DeviceWork, keep_bytes: u64) -> Result<u64, CallError> {
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
