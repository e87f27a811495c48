//! What waits until nothing is pending: modules to unload, contexts to destroy, memory to give back. The driver waits for all
//! work of a context in each of these calls, so they are made where there is none.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use freehold_driver::CallError;
use freehold_driver::handle::Module;

use crate::core::{Core, Hall, PRIMARY};
use crate::error::Result;
use crate::leaving::Leaving;
use crate::ledger::{ContextId, Mark};
use crate::pinned::Stopped;
use crate::track::Track;

/// What is to be done when nothing of its context is pending.
#[derive(Debug)]
pub(crate) enum Later {
    Unload {
        hall: Arc<Hall>,
        raw: Module,
        asked: Duration,
        /// Whoever waits for the module to be unloaded sees when this is gone.
        _loaded: Arc<()>,
    },
    /// The context itself, with all that is left in it. Work of other contexts up to these marks may use its memory: they
    /// are known once nobody puts in work any more that began before the context was closed.
    Close { hall: Arc<Hall>, marks: OnceLock<Vec<Mark>> },
    /// Memory of a vector or an import, which its work is to pass first.
    Unmap { leaving: Arc<Leaving> },
    /// Memory of the host that streams of several processes used.
    Unregister { stopped: Stopped },
    /// A stream that could not be marked when it was dropped.
    Retire { track: Arc<Track> },
}

impl Core {
    pub(crate) fn later(&self, what: Later) {
        self.later.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn has_later(&self) -> bool {
        !self.later.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether nothing of ours is pending in a context.
    pub(crate) fn is_idle(&self, context: ContextId) -> bool {
        self.tracks_of(context).iter().all(|track| track.is_idle())
    }

    /// Whether nothing of ours is pending anywhere.
    pub(crate) fn is_all_idle(&self) -> bool {
        self.tracks().live.values().all(|track| track.is_idle())
    }

    /// Does what waited and can be done without waiting: streams that have passed their last work are forgotten, modules
    /// unloaded, contexts destroyed.
    pub(crate) fn tidy(&self) -> Result<()> {
        self.check()?;
        self.timeline.poll(self);
        self.forget_passed_streams()?;
        let waiting = std::mem::take(&mut *self.later.lock().unwrap_or_else(PoisonError::into_inner));
        let mut outcome = Ok(());
        for what in waiting {
            // One of them may be what notices a fault: then nothing is asked of the device any more.
            match self.check().and_then(|()| self.attempt(&what)) {
                Ok(true) => {}
                Ok(false) => self.later(what),
                Err(error) => {
                    self.later(what);
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Forgets streams that are gone and have passed their last work: others have their memory.
    pub(crate) fn forget_passed_streams(&self) -> Result<()> {
        let is_of_interest = |track: &&Arc<Track>| track.is_retired() || track.slot().is_none();
        let tracks: Vec<_> = self.tracks().live.values().filter(is_of_interest).cloned().collect();
        for track in tracks {
            track.refresh().map_err(|error| self.failed(error))?;
            if !track.has_ended() {
                continue;
            }
            let slot = track.end().map_err(|error| self.failed(error))?;
            self.pools().for_each(|pool| pool.end_stream(&track));
            for other in self.tracks().live.values() {
                other.forget(track.id);
            }
            if self.tracks().live.remove(&track.id).is_some()
                && let Some(slot) = slot
            {
                self.counters.give_back(slot);
            }
        }
        Ok(())
    }

    /// Whether it was done.
    fn attempt(&self, what: &Later) -> Result<bool> {
        let failed = |error| self.failed(error);
        match what {
            Later::Unmap { leaving } => leaving.attempt(self).map_err(failed),
            Later::Unregister { stopped } => stopped.attempt(self),
            Later::Retire { track } => track.retire().map(|()| true).map_err(failed),
            Later::Unload { hall, raw, asked, .. } => {
                let unload = || {
                    // Another thread may have destroyed the context, and the module with it.
                    if hall.is_destroyed.load(Ordering::Acquire) {
                        return Ok(());
                    }
                    // SAFETY: the last handle of the module has gone, and no work of the context is pending.
                    unsafe { hall.backend.unload(*raw) }
                };
                let unloaded = self.alone(hall, unload).map_err(failed)?;
                if unloaded && self.timeline.is_on() {
                    self.timeline.of_module("unload", raw.as_raw(), *asked, self.now());
                }
                Ok(unloaded)
            }
            Later::Close { hall, marks } => {
                if marks.get().is_none() {
                    let Ok(_alone) = hall.gate.try_write() else { return Ok(false) };
                    marks.get_or_init(|| self.marks_of_all());
                }
                for &mark in marks.get().into_iter().flatten() {
                    if !self.has_passed_by_now(mark)? {
                        return Ok(false);
                    }
                }
                let closed = self.alone(hall, || {
                    let tracks = self.forget_context(hall.id);
                    // SAFETY: no thread is within the context, and none enters it any more; its streams and events were forgotten.
                    unsafe { hall.backend.close() }?;
                    hall.is_destroyed.store(true, Ordering::Release);
                    self.pools().for_each(|pool| pool.end_context(hall.id));
                    for track in &tracks {
                        track.slot().into_iter().for_each(|slot| self.counters.give_back(slot));
                    }
                    Ok(())
                });
                closed.map_err(failed)
            }
        }
    }

    /// Unmaps memory of vectors and imports that their work has passed. Whether any waited for that.
    pub(crate) fn unmap_passed(&self) -> std::result::Result<bool, CallError> {
        let waiting = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let leaving = waiting.iter().filter_map(|what| match what {
            Later::Unmap { leaving } => Some(leaving.clone()),
            _ => None,
        });
        let leaving: Vec<_> = leaving.collect();
        drop(waiting);
        let unmapped = leaving.iter().try_for_each(|leaving| leaving.attempt(self).map(drop));
        // What has gone is listed anew when there is more.
        let is_there = |what: &Later| !matches!(what, Later::Unmap { leaving } if !leaving.is_listed());
        self.later.lock().unwrap_or_else(PoisonError::into_inner).retain(is_there);
        unmapped?;
        Ok(!leaving.is_empty())
    }

    /// Makes a call that waits for all work of a context, if there is none.
    pub(crate) fn alone(
        &self,
        hall: &Hall,
        call: impl FnOnce() -> std::result::Result<(), CallError>,
    ) -> std::result::Result<bool, CallError> {
        // Asked before the gate is taken, which asking enters.
        for track in self.tracks_of(hall.id) {
            track.ask()?;
            if !track.is_idle() {
                return Ok(false);
            }
        }
        let Ok(_alone) = hall.gate.try_write() else { return Ok(false) };
        if !self.is_idle(hall.id) {
            return Ok(false);
        }
        call().map(|()| true)
    }

    /// Makes a call that waits for all work of the device, if there is none. The caller is in no gate.
    pub(crate) fn all_alone(
        &self,
        call: impl FnOnce() -> std::result::Result<(), CallError>,
    ) -> std::result::Result<bool, CallError> {
        let tracks: Vec<_> = self.tracks().live.values().cloned().collect();
        // Asked before the gates are taken, which asking enters.
        for track in &tracks {
            if !track.is_quiet()? {
                return Ok(false);
            }
        }
        let mut halls: Vec<_> = tracks.iter().map(|track| track.hall()).collect();
        halls.sort_unstable_by_key(|hall| Arc::as_ptr(hall));
        halls.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let gates: Option<Vec<_>> = halls.iter().map(|hall| hall.gate.try_write().ok()).collect();
        if gates.is_none() || !self.is_all_idle() {
            return Ok(false);
        }
        call().map(|()| true)
    }

    /// Forgets all that lived in a context that is about to be destroyed, so that nobody asks the driver about it. Its
    /// tracks, whose words may still be written until it is.
    fn forget_context(&self, context: ContextId) -> Vec<Arc<Track>> {
        self.timeline.poll(self);
        self.timeline.forget_context(context);
        self.end_blocks(context);
        let tracks = self.tracks_of(context);
        for track in &tracks {
            track.end_with_context();
            self.tracks().live.remove(&track.id);
        }
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        later.retain(|what| match what {
            Later::Unload { hall, .. } | Later::Close { hall, .. } => hall.id != context,
            Later::Retire { track } => track.context != context,
            // Memory that is mapped is the device's, and memory of the host the primary context's.
            Later::Unmap { .. } | Later::Unregister { .. } => true,
        });
        tracks
    }

    /// Ends all blocks of a context: what is done with them later says so. Their memory stays until the context is gone.
    pub(crate) fn end_blocks(&self, context: ContextId) {
        let now = self.now();
        for pool in self.pools() {
            for (record, seen) in pool.disown_context(context, now) {
                if let Some(described) = seen.described {
                    self.tags.discharge(described.tag, pool.number_of(record), seen.bytes);
                }
            }
        }
        self.ledger().end_context(context, now);
    }

    /// Gives memory that nobody has back to the driver until the pools have no more than `keep_bytes`. How many bytes went.
    pub(crate) fn trim_pools(&self, keep_bytes: u64) -> Result<u64> {
        let trimmed = self.pools().map(|pool| pool.trim(self, keep_bytes)).sum::<std::result::Result<_, _>>();
        trimmed.map_err(|error| self.failed(error))
    }

    /// Gives memory that nobody has back to the driver until the pools have no more than `keep_bytes`, and what uploads went
    /// through where nothing of the context is pending. How many bytes of the device went.
    pub(crate) fn trim(&self, hall: &Hall, keep_bytes: u64) -> Result<u64> {
        let freed_bytes = self.trim_pools(keep_bytes)?;
        let Ok(_alone) = hall.gate.try_write() else { return Ok(freed_bytes) };
        if hall.id == PRIMARY && self.is_idle(hall.id) {
            let freed = self.staging.free(&*hall.backend, |mark| self.has_passed(mark));
            freed.map_err(|error| self.failed(error))?;
        }
        Ok(freed_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::vector::DeviceVec;

    #[test]
    fn a_vector_that_gives_memory_back_again_and_again_waits_in_one_place() {
        let opened = crate::open::opened(None).unwrap();
        let device = Device::new(opened.api, opened.device).unwrap();
        let (stream, core) = (device.stream().unwrap(), &device.primary.inner.core);
        let mut vec = DeviceVec::<u8>::new(&stream).unwrap();
        for _ in 0..10 {
            vec.reserve(&stream, 4 << 20).unwrap();
            vec.shrink_to_fit().unwrap();
            assert!(core.unmap_passed().unwrap());
        }
        let waiting = core.later.lock().unwrap_or_else(PoisonError::into_inner).len();
        assert!(waiting <= 1, "{waiting} wait");
    }
}
