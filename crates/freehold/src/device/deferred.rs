//! What waits until nothing is pending: modules to unload, contexts to destroy, memory to give back. The driver waits for all
//! work of a context in each of these calls, so they are made where there is none.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use freehold_driver::CallError;
use freehold_driver::handle::Module;

use crate::device::device_inner::DeviceInner;
use crate::device::pending_unmap::PendingUnmap;
use crate::device::pinned::Stopped;
use crate::error::Result;
use crate::ledger::{ContextId, Fence};
use crate::ordering::context_state::{ContextState, PRIMARY};
use crate::ordering::stream_state::StreamState;
use crate::ordering::streams::Streams;
use crate::pool::PoolDevice;

/// What is to be done when nothing of its context is pending.
#[derive(Debug)]
pub(crate) enum Deferred {
    Unload {
        context_state: Arc<ContextState>,
        raw: Module,
        asked: Duration,
        /// Whoever waits for the module to be unloaded sees when this is gone.
        _loaded: Arc<()>,
    },
    /// The context itself, with all that is left in it. Work of other contexts up to these fences may use its memory: they
    /// are known once nobody puts in work any more that began before the context was closed.
    Close { context_state: Arc<ContextState>, fences: OnceLock<Vec<Fence>> },
    /// Memory of a vector or an import, which its work is to pass first.
    Unmap { leaving: Arc<PendingUnmap> },
    /// Memory of the host that streams of several processes used.
    Unregister { stopped: Stopped },
    /// A stream that could not be marked when it was dropped, or that others captured.
    Retire { stream_state: Arc<StreamState> },
}

impl PoolDevice for DeviceInner {
    fn streams(&self) -> &Streams {
        &self.streams
    }

    fn unmap_completed(&self) -> std::result::Result<bool, CallError> {
        Self::unmap_completed(self)
    }
}

impl DeviceInner {
    pub(crate) fn defer(&self, what: Deferred) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Does what waited and can be done without waiting: streams that have passed their last work are forgotten, modules
    /// unloaded, contexts destroyed.
    pub(crate) fn run_deferred(&self) -> Result<()> {
        self.check()?;
        self.timeline.poll(&*self.backend).unwrap_or_else(|error| self.note_refusal(error));
        self.forget_ended_streams()?;
        let waiting = std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner));
        let mut outcome = Ok(());
        for what in waiting {
            // One of them may be what notices a fault: then nothing is asked of the device any more.
            match self.check().and_then(|()| self.attempt(&what)) {
                Ok(true) => {}
                Ok(false) => self.defer(what),
                Err(error) => {
                    self.defer(what);
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

    /// Unmaps memory of vectors and imports that their work has passed. Whether any waited for that.
    pub(crate) fn unmap_completed(&self) -> std::result::Result<bool, CallError> {
        let waiting = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let leaving = waiting.iter().filter_map(|what| match what {
            Deferred::Unmap { leaving } => Some(leaving.clone()),
            _ => None,
        });
        let leaving: Vec<_> = leaving.collect();
        drop(waiting);
        let unmapped = leaving.iter().try_for_each(|leaving| leaving.attempt(self).map(drop));
        // What has gone is listed anew when there is more.
        let is_there = |what: &Deferred| !matches!(what, Deferred::Unmap { leaving } if !leaving.is_listed());
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).retain(is_there);
        unmapped?;
        Ok(!leaving.is_empty())
    }

    /// Forgets all that lived in a context that is about to be destroyed, so that nobody asks the driver about it. Its
    /// streams, whose words may still be written until it is.
    fn forget_context(&self, context: ContextId) -> Vec<Arc<StreamState>> {
        self.timeline.forget_context(&*self.backend, context).unwrap_or_else(|error| self.note_refusal(error));
        self.end_blocks(context);
        let streams = self.streams.forget_context(context);
        let mut later = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        later.retain(|what| match what {
            Deferred::Unload { context_state, .. } | Deferred::Close { context_state, .. } => {
                context_state.id != context
            }
            Deferred::Retire { stream_state } => stream_state.context != context,
            // Memory that is mapped is the device's, and memory of the host the primary context's.
            Deferred::Unmap { .. } | Deferred::Unregister { .. } => true,
        });
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
        let (stream, device) = (device.stream().unwrap(), &device.primary.inner.device);
        let mut vec = DeviceVec::<u8>::new(&stream).unwrap();
        for _ in 0..10 {
            vec.reserve(&stream, 4 << 20).unwrap();
            vec.shrink_to_fit().unwrap();
            assert!(device.unmap_completed().unwrap());
        }
        let waiting = device.deferred.lock().unwrap_or_else(PoisonError::into_inner).len();
        assert!(waiting <= 1, "{waiting} wait");
    }
}
