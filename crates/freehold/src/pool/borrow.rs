//! Borrowing between streams: a stream takes memory of another stream's heap, once the other has completed its work
//! there, or after a wait on the device. Another stream may adopt a heap whenever its lock is not held.
//!
//! `tests/it/pool_heaps_loom.rs` checks this file and the heaps under loom.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device_pool::Pool;
use super::device_work::DeviceWork;
use super::imports::{CallError, Fence, StreamState, SyncPoint, sync_point};
use super::size_class::SizeClass;
use super::stream_heap::StreamHeap;

/// How many other heaps are searched for a block.
const OTHERS_MAX: usize = 16;

impl Pool {
    /// Takes a block of the stream's own heap that waits for other streams: the device waits for them before the
    /// stream's next work.
    pub(super) fn alloc_after_wait(
        &self,
        device: &dyn DeviceWork,
        heap: &StreamHeap,
        stream_state: &StreamState,
        bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        if heap.stream().id != stream_state.id {
            return Ok(None);
        }
        for fence in heap.pending_fences() {
            if device.can_wait(stream_state, fence.stream)? {
                device.wait_for(stream_state, fence)?;
            }
        }
        let is_before = |fence: Fence| device.is_complete(fence) || stream_state.has_waited(fence.stream, fence.seq);
        heap.reclaim_after_wait(&self.table, stream_state, is_before);
        Ok(heap.alloc_large(&self.table, bytes))
    }

    /// Takes a block of another heap of the context whose stream has completed its work there.
    pub(super) fn borrow(
        &self,
        device: &dyn DeviceWork,
        heap: &StreamHeap,
        stream_state: &StreamState,
        bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        self.idle_others(device, heap)?;
        for other in self.others(heap) {
            if let Some(meta) = other.lend(&self.table, bytes, stream_state.id.0, |fence| device.is_complete(fence)) {
                return Ok(Some(meta));
            }
        }
        Ok(None)
    }

    /// Like [`borrow`](Self::borrow), for a size class.
    pub(super) fn borrow_small(
        &self,
        device: &dyn DeviceWork,
        heap: &StreamHeap,
        stream_state: &StreamState,
        class: SizeClass,
    ) -> Result<Option<u32>, CallError> {
        let idle = self.idle_others(device, heap)?;
        sync_point::reach(SyncPoint::LendSmall);
        let is_complete = |fence| device.is_complete(fence);
        Ok(idle.iter().find_map(|other| other.lend_small(&self.table, class, stream_state.id.0, is_complete)))
    }

    /// Returns some other heaps of the context whose streams have completed all work, after reclaiming everything
    /// cached there. Records fences in the other streams, so that a later request finds them complete.
    fn idle_others(&self, device: &dyn DeviceWork, heap: &StreamHeap) -> Result<Vec<Arc<StreamHeap>>, CallError> {
        let others: Vec<_> = self.others(heap).collect();
        // A different part of them each time.
        let first = self.next_lender.fetch_add(OTHERS_MAX, Ordering::Relaxed);
        let mut idle = Vec::new();
        for index in 0..others.len().min(OTHERS_MAX) {
            let other = &others[first.wrapping_add(index) % others.len()];
            match other.is_idle(|fence| device.is_complete(fence)) {
                Ok(()) => {
                    other.caches.all().iter().for_each(|cache| cache.flush());
                    other.reclaim(&self.table, |fence| device.is_complete(fence));
                    idle.push(other.clone());
                }
                Err(Some(fence)) => device.record_fences_coalesced(&[fence])?,
                Err(None) => {}
            }
        }
        Ok(idle)
    }

    /// Takes a block of another heap of the context; the device waits for its stream before the borrower's next work.
    pub(super) fn borrow_after_wait(
        &self,
        device: &dyn DeviceWork,
        heap: &StreamHeap,
        stream_state: &StreamState,
        bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        for other in self.others(heap) {
            if let Some(meta) = self.borrow_from_after_wait(device, &other, stream_state, bytes)? {
                return Ok(Some(meta));
            }
        }
        Ok(None)
    }

    /// Takes a block of another heap, after the work of the stream that has the heap at that moment.
    fn borrow_from_after_wait(
        &self,
        device: &dyn DeviceWork,
        other: &StreamHeap,
        stream_state: &StreamState,
        bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        loop {
            let stream = other.stream();
            // This calls the driver, so the heap's lock is not held: another stream may adopt the heap during the call.
            if !device.can_wait(stream_state, stream.id)? {
                return Ok(None);
            }
            sync_point::reach(SyncPoint::LendIncomplete);
            let Some((meta, fence)) = other.lend_incomplete(&self.table, bytes, stream_state.id.0, stream.id) else {
                if other.stream().id == stream.id {
                    return Ok(None);
                }
                continue;
            };
            if let Err(error) = device.wait_for(stream_state, fence) {
                other.free(&self.table, meta, &stream, &[]);
                return Err(error);
            }
            // A third stream uses it after the wait.
            self.table.metas.at(meta).set_seq(stream_state.current_fence().seq);
            return Ok(Some(meta));
        }
    }

    fn others(&self, heap: &StreamHeap) -> impl Iterator<Item = Arc<StreamHeap>> {
        let (number, context) = (heap.number, heap.context());
        self.heaps.all().into_iter().filter(move |other| other.number != number && other.context() == context)
    }
}
