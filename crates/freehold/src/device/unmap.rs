//! Unmapping the memory of vectors and imports after its work.

use std::sync::Arc;

use freehold_driver::CallError;

use crate::device::deferred::Deferred;
use crate::device::device_inner::DeviceInner;
use crate::device::pending_unmap::{AddressRange, Mappings, PendingUnmap};
use crate::ledger::{EndReason, Fence, Release};
use crate::pool::Chunk;

impl PendingUnmap {
    /// Unmaps chunks once fences are complete. They lie before those that are pending already.
    pub(crate) fn unmap_after(self: &Arc<Self>, device: &DeviceInner, chunks: Vec<Chunk>, fences: &[Fence]) {
        self.lock().add(chunks, fences);
        self.list(device);
    }

    /// Unmaps everything that is left once fences are complete, and records these fences.
    pub(crate) fn end(self: &Arc<Self>, device: &DeviceInner, mappings: Mappings, fences: &[Fence]) {
        if device.is_good()
            && let Err(error) = device.record_fences(fences)
        {
            // Without fences, it is unmapped when their streams are idle.
            device.note_drop_error(error);
        }
        let mut ledger = device.ledger();
        // It no longer exists if its context is gone.
        if let Some(block) = mappings.block.filter(|&block| ledger.owner(block).is_some()) {
            ledger.release(block, Release { fences: fences.to_vec(), released_at: None, when: device.now() });
        }
        drop(ledger);
        let mut locked = self.lock();
        locked.add(mappings.chunks, fences);
        // Only a vector has pending chunks from before, and a vector has nothing else.
        let chunks = std::mem::take(&mut locked.mappings.chunks);
        locked.mappings = Mappings { chunks, ..mappings };
        locked.has_ended = true;
        drop(locked);
        self.list(device);
        if device.is_good() {
            self.unmap_now(device);
        }
    }

    /// Unmaps memory whose work is complete by now. Failures are retried later.
    pub(crate) fn unmap_now(&self, device: &DeviceInner) {
        if let Err(error) = self.attempt(device) {
            device.note_refusal(error);
        }
    }

    /// Unmaps memory whose work is complete. Returns whether nothing is left.
    pub(crate) fn attempt(&self, device: &DeviceInner) -> std::result::Result<bool, CallError> {
        let mut locked = self.lock();
        for &fence in &locked.fences {
            if !device.streams.is_complete(fence)
                && let Some(stream_state) = device.streams.get(fence.stream)
            {
                stream_state.query()?;
            }
            if !device.streams.is_complete(fence) {
                return Ok(false);
            }
        }
        locked.fences.clear();
        locked.mappings.give_back(device)?;
        locked.is_listed = false;
        Ok(true)
    }

    /// Whether all of it is unmapped, for good. First unmaps memory whose work is complete.
    pub(crate) fn is_over(&self, device: &DeviceInner) -> std::result::Result<bool, CallError> {
        if !self.lock().has_ended {
            return Ok(false);
        }
        self.attempt(device)
    }

    fn list(self: &Arc<Self>, device: &DeviceInner) {
        if !std::mem::replace(&mut self.lock().is_listed, true) {
            device.defer(Deferred::Unmap { leaving: self.clone() });
        }
    }
}

impl Mappings {
    fn give_back(&mut self, device: &DeviceInner) -> std::result::Result<(), CallError> {
        let mapping = || device.mapping();
        while let Some(&chunk) = self.chunks.last() {
            device.pool.unmap_outside(chunk)?;
            self.chunks.pop();
        }
        if let Some(handle) = self.handle {
            // SAFETY: the handle was imported here, and is not used again.
            unsafe { mapping().release(handle) }?;
            self.handle = None;
        }
        if let Some(AddressRange { base, bytes }) = self.mapping {
            // SAFETY: it is one mapping, and all work with it is complete.
            unsafe { mapping().unmap(base, bytes) }?;
            self.mapping = None;
        }
        if let Some(AddressRange { base, bytes }) = self.addresses {
            // SAFETY: they were reserved as a whole, and nothing is still mapped there.
            unsafe { mapping().unreserve(base, bytes) }?;
            self.addresses = None;
        }
        let mut ledger = device.ledger();
        // It no longer exists if its context is gone, or if the addresses belong to others by now.
        if let Some(block) = self.block.take().filter(|&block| ledger.owner(block).is_some()) {
            ledger.forget(block, EndReason::Returned);
        }
        Ok(())
    }
}
