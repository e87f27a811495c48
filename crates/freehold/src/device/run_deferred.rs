//! Doing what waited, where it can be done without waiting; and giving back what the device has, in part or with its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use freehold_driver::CallError;

use crate::device::deferred::Deferred;
use crate::device::device_inner::DeviceInner;
use crate::device::pinned::Stopped;
use crate::error::Result;
use crate::ledger::ContextId;
use crate::ordering::context_state::{ContextState, PRIMARY};
use crate::ordering::stream_state::StreamState;
use crate::ordering::streams::Streams;
use crate::pool::PoolDevice;

impl PoolDevice for DeviceInner {
    fn streams(&self) -> &Streams {
        &self.streams
    }

    fn unmap_completed(&self) -> std::result::Result<bool, CallError> {
        let leaving = self.deferred.unmaps();
        let unmapped = leaving.iter().try_for_each(|leaving| leaving.attempt(self).map(drop));
        self.deferred.forget_unmapped();
        unmapped?;
        Ok(!leaving.is_empty())
    }
}

impl DeviceInner {
    /// Does what waited and can be done without waiting: streams that have passed their last work are forgotten, modules
    /// unloaded, contexts destroyed.
    pub(crate) fn run_deferred(&self) -> Result<()> {
        self.check()?;
        self.timeline.poll(&*self.backend).unwrap_or_else(|error| self.note_refusal(error));
        self.forget_ended_streams()?;
        let waiting = self.deferred.take();
        let mut outcome = Ok(());
        for what in waiting {
            // One of them may be what notices a fault: then nothing is asked of the device any more.
            match self.check().and_then(|()| self.attempt(&what)) {
                Ok(true) => {}
                Ok(false) => self.deferred.push(what),
                Err(error) => {
                    self.deferred.push(what);
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Forgets streams that are gone and have passed their last work: others have their memory.
    pub(crate) fn forget_ended_streams(&self) -> Result<()> {
        let ended = self.streams.forget_ended(|ended| self.pools().for_each(|pool| pool.end_stream(ended)));
        ended.map_err(|error| self.failed(error))
    }

    /// Whether it was done.
    fn attempt(&self, what: &Deferred) -> Result<bool> {
        let failed = |error| self.failed(error);
        match what {
            Deferred::Unmap { leaving } => leaving.attempt(self).map_err(failed),
            Deferred::Unregister { stopped } => stopped.attempt(self),
            Deferred::Retire { stream_state } => stream_state.retire_uncaptured().map_err(failed),
            Deferred::Unload { context_state, raw, asked, .. } => {
                let unload = || {
                    // Another thread may have destroyed the context, and the module with it.
                    if context_state.is_destroyed.load(Ordering::Acquire) {
                        return Ok(());
                    }
                    // SAFETY: the last handle of the module has gone, and no work of the context is pending.
                    unsafe { context_state.backend.unload(*raw) }
                };
                let unloaded = self.streams.with_idle_context(context_state, unload).map_err(failed)?;
                if unloaded && self.timeline.is_on() {
                    self.timeline.of_module("unload", raw.as_raw(), *asked, self.now());
                }
                Ok(unloaded)
            }
            Deferred::Close { context_state, fences } => {
                if fences.get().is_none() {
                    let Ok(_alone) = context_state.gate.try_write() else { return Ok(false) };
                    fences.get_or_init(|| self.streams.fences_of_all());
                }
                for &fence in fences.get().into_iter().flatten() {
                    if !self.is_complete_by_now(fence)? {
                        return Ok(false);
                    }
                }
                let closed = self.streams.with_idle_context(context_state, || {
                    let streams = self.forget_context(context_state.id);
                    // SAFETY: no thread is within the context, and none enters it any more; its streams and events were forgotten.
                    unsafe { context_state.backend.close() }?;
                    context_state.is_destroyed.store(true, Ordering::Release);
                    self.pools().for_each(|pool| pool.end_context(context_state.id));
                    self.streams.give_back_words(&streams);
                    Ok(())
                });
                closed.map_err(failed)
            }
        }
    }

    /// Forgets all that lived in a context that is about to be destroyed, so that nobody asks the driver about it. Its
    /// streams, whose words may still be written until it is.
    fn forget_context(&self, context: ContextId) -> Vec<Arc<StreamState>> {
        self.timeline.forget_context(&*self.backend, context).unwrap_or_else(|error| self.note_refusal(error));
        self.end_blocks(context);
        let streams = self.streams.forget_context(context);
        self.deferred.forget_context(context);
        streams
    }

    /// Ends all blocks of a context: what is done with them later says so. Their memory stays until the context is gone.
    pub(crate) fn end_blocks(&self, context: ContextId) {
        let now = self.now();
        for pool in self.pools() {
            for (record, seen) in pool.disown_context(context, now) {
                if let Some(described) = seen.debug_info {
                    self.tags.discharge(described.tag, pool.number_of(record), seen.bytes);
                }
            }
        }
        self.ledger().end_context(context, now);
    }

    /// Gives memory that nobody has back to the driver until the pools have no more than `keep_bytes`. How many bytes went.
    pub(crate) fn trim_pools(&self, keep_bytes: u64) -> Result<u64> {
        let trimmed = self.pools().map(|pool| pool.trim(&self.streams, keep_bytes)).sum::<std::result::Result<_, _>>();
        trimmed.map_err(|error| self.failed(error))
    }

    /// Gives memory that nobody has back to the driver until the pools have no more than `keep_bytes`, and what uploads went
    /// through where nothing of the context is pending. How many bytes of the device went.
    pub(crate) fn trim(&self, context_state: &ContextState, keep_bytes: u64) -> Result<u64> {
        let freed_bytes = self.trim_pools(keep_bytes)?;
        let Ok(_alone) = context_state.gate.try_write() else { return Ok(freed_bytes) };
        if context_state.id == PRIMARY && self.streams.is_idle(context_state.id) {
            let freed = self.staging.free(&*context_state.backend, |fence| self.streams.is_complete(fence));
            freed.map_err(|error| self.failed(error))?;
        }
        Ok(freed_bytes)
    }
}

impl Stopped {
    /// Unregisters the memory where all work with it has passed, and nothing else is pending that the driver would wait for.
    fn attempt(&self, device: &DeviceInner) -> Result<bool> {
        for &fence in &self.fences {
            if !device.is_complete_by_now(fence)? {
                return Ok(false);
            }
        }
        let by = device.backend.host_registration().expect("what was registered can be unregistered");
        // SAFETY: all work with the memory has passed, and no more comes: its owner is gone.
        let unregister = || unsafe { by.unregister(self.pinned.start) };
        let is_done =
            device.streams.with_idle_context(&self.context_state, unregister).map_err(|error| device.failed(error))?;
        if is_done {
            // SAFETY: the owner, and the registration, are gone; work has passed.
            unsafe { self.pinned.unmap() };
        }
        Ok(is_done)
    }
}

impl Drop for DeviceInner {
    /// Gives back what the device's handles shared, where nothing is pending. What is pending stays as it is until the
    /// process ends: nothing here waits.
    fn drop(&mut self) {
        if !self.is_good() || self.run_deferred().is_err() {
            return;
        }
        if !self.deferred.is_empty() || !self.streams.is_empty() {
            return;
        }
        let context_state = ContextState::new(PRIMARY, self.backend.clone());
        if self.trim(&context_state, 0).is_err() || self.stats().reserved_bytes > 0 {
            return;
        }
        for pool in self.pools() {
            if pool.chunks.free_addresses().is_err() {
                return;
            }
        }
        // SAFETY: every word was of a stream, and there are none any more.
        if unsafe { self.streams.free_words() }.is_err() {
            return;
        }
        // A failure leaves the context to the end of the process, like all the returns above.
        // SAFETY: nothing is left that uses it: this is the last of what held it.
        if let Err(error) = unsafe { self.backend.close() } {
            tracing::warn!(target: "freehold", %error, "the primary context was not released");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::device::Device;
    use crate::api::vector::DeviceVec;

    #[test]
    fn a_vector_that_gives_memory_back_again_and_again_waits_in_one_place() {
        let opened = crate::api::open::opened(None).unwrap();
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(opened.api, opened.device) }.unwrap();
        let (stream, device) = (device.new_stream().unwrap(), &device.primary.inner.device);
        let mut vec = DeviceVec::<u8>::new(&stream).unwrap();
        for _ in 0..10 {
            vec.reserve(&stream, 4 << 20).unwrap();
            vec.shrink_to_fit().unwrap();
            assert!(device.unmap_completed().unwrap());
        }
        let waiting = device.deferred.len();
        assert!(waiting <= 1, "{waiting} wait");
    }
}
