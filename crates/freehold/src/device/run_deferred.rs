//! Runs deferred operations that no longer have to wait, and frees the device's resources when they are trimmed or the
//! device is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::device::deferred::Deferred;
use crate::device::device_inner::DeviceInner;
use crate::device::pinned::Stopped;
use crate::error::Result;
use crate::ledger::ContextId;
use crate::ordering::context_state::{ContextState, PRIMARY};
use crate::ordering::stream_state::StreamState;

impl DeviceInner {
    /// Runs the deferred operations that no longer have to wait: forgets streams that have completed their last work,
    /// unloads modules, destroys contexts.
    pub(crate) fn run_deferred(&self) -> Result<()> {
        self.check()?;
        self.timeline.poll(&*self.backend).unwrap_or_else(|error| self.note_refusal(error));
        self.forget_ended_streams()?;
        let waiting = self.deferred.take();
        let mut outcome = Ok(());
        for what in waiting {
            // One of them may detect a fault: then the device is no longer called.
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

    /// Forgets streams that are gone and have completed their last work, so that other streams get their memory.
    pub(crate) fn forget_ended_streams(&self) -> Result<()> {
        let ended = self.streams.forget_ended(|ended| self.pools().for_each(|pool| pool.end_stream(ended)));
        ended.map_err(|error| self.failed(error))
    }

    /// Returns whether it was done.
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
                    // SAFETY: the last handle of the module is gone, and no work of the context is pending.
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
                    let Ok(_alone) = context_state.destroy_lock.try_write() else { return Ok(false) };
                    fences.get_or_init(|| self.streams.fences_of_all());
                }
                for &fence in fences.get().into_iter().flatten() {
                    if !self.is_complete_by_now(fence)? {
                        return Ok(false);
                    }
                }
                let closed = self.streams.with_idle_context(context_state, || {
                    let streams = self.forget_context(context_state.id);
                    // SAFETY: no thread is inside the context, and none can enter it; its streams and events were
                    // forgotten.
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

    /// Forgets everything in a context that is about to be destroyed, so that the driver is not asked about it. Returns
    /// its streams, whose words may still be written until then.
    fn forget_context(&self, context: ContextId) -> Vec<Arc<StreamState>> {
        self.timeline.forget_context(&*self.backend, context).unwrap_or_else(|error| self.note_refusal(error));
        self.end_blocks(context);
        let streams = self.streams.forget_context(context);
        self.deferred.forget_context(context);
        streams
    }

    /// Ends everything in the primary context, which is about to be destroyed, and returns all memory and addresses to
    /// the driver. No work is pending, and no other thread uses the device.
    pub(crate) fn end(&self) -> Result<()> {
        self.check()?;
        let streams = self.forget_context(PRIMARY);
        self.pools().for_each(|pool| pool.end_context(PRIMARY));
        self.streams.give_back_words(&streams);
        self.sleepers.free_saved(&*self.backend).map_err(|error| self.failed(error))?;
        self.trim_pools(0)?;
        // From now on no thread enters a cache.
        self.pool.table.fork_guard.note_failure();
        let failed = |error| self.failed(error);
        self.pools().try_for_each(|pool| pool.chunks.free_addresses()).map_err(failed)?;
        // SAFETY: every word was of a stream, and none are left.
        unsafe { self.streams.free_words() }.map_err(failed)
    }

    /// Ends all blocks of a context: later uses of them fail. Their memory stays until the context is gone.
    pub(crate) fn end_blocks(&self, context: ContextId) {
        let now = self.now();
        for pool in self.pools() {
            for (meta, seen) in pool.disown_context(context, now) {
                if let Some(described) = seen.debug_info {
                    self.tags.discharge(described.tag, pool.number_of(meta), seen.bytes);
                }
            }
        }
        self.ledger().end_context(context, now);
    }

    /// Returns free memory to the driver until the pools have at most `keep_bytes`. Returns how many bytes were
    /// returned.
    pub(crate) fn trim_pools(&self, keep_bytes: u64) -> Result<u64> {
        let trimmed = self.pools().map(|pool| pool.trim(self, keep_bytes)).sum::<std::result::Result<_, _>>();
        trimmed.map_err(|error| self.failed(error))
    }

    /// Returns free memory to the driver until the pools have at most `keep_bytes`, and frees the staging buffers if
    /// nothing of the context is pending. Returns how many bytes of device memory were returned.
    pub(crate) fn trim(&self, context_state: &ContextState, keep_bytes: u64) -> Result<u64> {
        let freed_bytes = self.trim_pools(keep_bytes)?;
        let Ok(_alone) = context_state.destroy_lock.try_write() else { return Ok(freed_bytes) };
        self.sleepers.free_unneeded(&*self.backend).map_err(|error| self.failed(error))?;
        if context_state.id == PRIMARY && self.streams.is_idle(context_state.id) {
            let freed = self.staging.free(&*context_state.backend, |fence| self.streams.is_complete(fence));
            freed.map_err(|error| self.failed(error))?;
        }
        Ok(freed_bytes)
    }
}

impl Stopped {
    /// Unregisters the memory if all work with it is complete, and nothing else is pending that the driver would wait
    /// for.
    fn attempt(&self, device: &DeviceInner) -> Result<bool> {
        for &fence in &self.fences {
            if !device.is_complete_by_now(fence)? {
                return Ok(false);
            }
        }
        let by = device.backend.host_registration().expect("what was registered can be unregistered");
        // SAFETY: all work with the memory is complete, and no more follows: its owner is gone.
        let unregister = || unsafe { by.unregister(self.pinned.start) };
        let is_done =
            device.streams.with_idle_context(&self.context_state, unregister).map_err(|error| device.failed(error))?;
        if is_done {
            // SAFETY: the owner and the registration are gone; the work is complete.
            unsafe { self.pinned.unmap() };
        }
        Ok(is_done)
    }
}

impl Drop for DeviceInner {
    /// Frees what the device's handles shared, if nothing is pending; otherwise it stays until the process ends,
    /// because this does not wait.
    fn drop(&mut self) {
        if !self.is_good() || self.run_deferred().is_err() {
            return;
        }
        if !self.deferred.is_empty() || !self.streams.is_empty() {
            return;
        }
        let context_state = ContextState::new(PRIMARY, self.backend.clone());
        if self.sleepers.free_saved(&*self.backend).is_err() {
            return;
        }
        if self.trim(&context_state, 0).is_err() || self.stats().reserved_bytes > 0 {
            return;
        }
        for pool in self.pools() {
            if pool.chunks.free_addresses().is_err() {
                return;
            }
        }
        // SAFETY: every word was of a stream, and none are left.
        if unsafe { self.streams.free_words() }.is_err() {
            return;
        }
        // A failure leaves the context until the process ends, like all the returns above.
        // SAFETY: nothing is left that uses it: this is its last owner.
        if let Err(error) = unsafe { self.backend.close() } {
            tracing::warn!(target: "freehold", %error, "could not release the primary context");
        }
    }
}
