//! All streams of a device, and the transfer slots: which fences are complete, how they are recorded, and whether
//! anything is pending.
//!
//! The list's lock is held briefly, never during a driver call. The device interprets the errors of refused calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::handle::{self, Event};
use freehold_driver::{Backend, CallError, StreamMemOps};

use crate::ledger::{ContextId, Fence, StreamId};
use crate::ordering::context_state::{ContextState, PRIMARY};
use crate::ordering::fence_words::{FenceWord, FenceWords};
use crate::ordering::stream_origin::{StreamOrigin, ThreadId};
use crate::ordering::stream_state::StreamState;
use crate::ordering::transfer_slot::{TransferSlot, TransferSlots};

#[derive(Debug)]
pub(crate) struct Streams {
    /// The primary context.
    backend: Arc<dyn Backend>,
    states: Mutex<States>,
    /// Accesses that are not in a stream.
    pub(crate) transfer_slots: TransferSlots,
    fence_words: FenceWords,
    /// Whether foreign code has the handle of a stream, and may capture it.
    has_handed_out: AtomicBool,
    /// Whether streams are known by their ids: those write no words.
    has_ids: AtomicBool,
}

#[derive(Debug, Default)]
struct States {
    last: u32,
    live: BTreeMap<StreamId, Arc<StreamState>>,
}

impl Streams {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            states: Mutex::default(),
            transfer_slots: TransferSlots::default(),
            fence_words: FenceWords::default(),
            has_handed_out: AtomicBool::new(false),
            has_ids: AtomicBool::new(false),
        }
    }

    /// Returns the operations that write fence words, unless the device lacks them or is checked: a checker cannot tell
    /// when the host reads a word that a stream has written, so a checked device uses events.
    fn fence_word_ops(&self) -> Option<&dyn StreamMemOps> {
        self.backend.stream_mem_ops().filter(|_| !self.backend.is_checked())
    }

    /// Creates a stream and its state.
    pub(crate) fn add(&self, context_state: &Arc<ContextState>) -> Result<Arc<StreamState>, CallError> {
        let make = || make(&*context_state.backend);
        self.add_state(make, |id, made, slot| StreamState::new(id, context_state.clone(), made, slot))
    }

    /// Makes the state of a stream that foreign code created.
    pub(crate) fn add_foreign(
        &self,
        raw: handle::Stream,
        thread: Option<ThreadId>,
        origin: StreamOrigin,
    ) -> Result<Arc<StreamState>, CallError> {
        let make = || Ok((raw, self.backend.create_event()?));
        let context_state = Arc::new(ContextState::new(PRIMARY, self.backend.clone()));
        if let StreamOrigin::ById(_) = origin {
            self.has_ids.store(true, Ordering::Relaxed);
            let state = |id, made, slot| StreamState::foreign(id, context_state, made, slot, thread, origin);
            return Ok(self.add_state_with(make()?, None, state));
        }
        self.add_state(make, |id, made, slot| StreamState::foreign(id, context_state, made, slot, thread, origin))
    }

    /// Adds the state that `make` returns, with a fence word if streams write words.
    fn add_state(
        &self,
        make: impl FnOnce() -> Result<(handle::Stream, Event), CallError>,
        new_state: impl FnOnce(StreamId, (handle::Stream, Event), Option<FenceWord>) -> StreamState,
    ) -> Result<Arc<StreamState>, CallError> {
        let slot = self.fence_word_ops().map(|words| self.fence_words.take(words)).transpose()?;
        let made = make().inspect_err(|_| slot.iter().for_each(|slot| self.fence_words.give_back(slot)))?;
        Ok(self.add_state_with(made, slot, new_state))
    }

    fn add_state_with(
        &self,
        made: (handle::Stream, Event),
        slot: Option<FenceWord>,
        new_state: impl FnOnce(StreamId, (handle::Stream, Event), Option<FenceWord>) -> StreamState,
    ) -> Arc<StreamState> {
        let mut states = self.states();
        states.last += 1;
        let id = StreamId(states.last);
        let stream_state = Arc::new(new_state(id, made, slot));
        states.live.insert(id, stream_state.clone());
        stream_state
    }

    /// Returns the stream with a number, unless it has ended and was forgotten.
    pub(crate) fn get(&self, id: StreamId) -> Option<Arc<StreamState>> {
        self.states().live.get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<StreamState>> {
        self.states().live.values().cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.states().live.is_empty()
    }

    pub(crate) fn of_context(&self, context: ContextId) -> Vec<Arc<StreamState>> {
        self.states().live.values().filter(|stream_state| stream_state.context == context).cloned().collect()
    }

    /// Returns a fence after everything submitted to all streams of all contexts, and the fences of all transfers.
    pub(crate) fn fences_of_all(&self) -> Vec<Fence> {
        let mut fences: Vec<_> = self.states().live.values().map(|stream_state| stream_state.current_fence()).collect();
        fences.extend(self.transfer_slots.fences());
        fences
    }

    /// Whether a fence is known to be complete, without calling the driver. A forgotten stream has completed
    /// everything.
    pub(crate) fn is_complete(&self, fence: Fence) -> bool {
        if TransferSlot::is_transfer(fence.stream) {
            return self.transfer_slots.of(fence.stream).is_complete(fence.seq);
        }
        self.get(fence.stream).is_none_or(|stream_state| stream_state.is_complete(fence.seq))
    }

    /// Whether captured graphs may still do the work before a fence, each time they are launched: the private pool of
    /// their captures is not released.
    pub(crate) fn is_for_graphs(&self, fence: Fence) -> bool {
        self.get(fence.stream).is_some_and(|stream_state| stream_state.is_for_graphs(fence.seq))
    }

    /// Whether a fence is complete, calling the driver if necessary.
    pub(crate) fn is_complete_by_now(&self, fence: Fence) -> Result<bool, CallError> {
        if let Some(stream_state) = self.get(fence.stream)
            && !stream_state.is_complete(fence.seq)
        {
            stream_state.query()?;
        }
        Ok(self.is_complete(fence))
    }

    /// Notes that foreign code gets the handle of a stream.
    pub(crate) fn hand_out(&self, stream_state: &StreamState) {
        stream_state.hand_out();
        self.has_handed_out.store(true, Ordering::Relaxed);
    }

    /// Whether a wait for a fence would be recorded in a stream that is being captured.
    pub(crate) fn is_captured_before(&self, fence: Fence) -> Result<bool, CallError> {
        self.is_captured(fence, StreamState::is_captured_before)
    }

    /// Whether a capture keeps a fence from being recorded.
    pub(crate) fn is_captured_before_fence(&self, fence: Fence) -> Result<bool, CallError> {
        self.is_captured(fence, StreamState::is_captured_before_fence)
    }

    /// Whether a stream that is handed out is being captured: waiting for the context would invalidate the capture.
    pub(crate) fn is_any_captured(&self) -> Result<bool, CallError> {
        self.all().iter().try_fold(false, |found, stream_state| Ok(found || stream_state.is_captured()?))
    }

    fn is_captured(
        &self,
        fence: Fence,
        is_captured: impl Fn(&StreamState, u64) -> Result<bool, CallError>,
    ) -> Result<bool, CallError> {
        if !self.has_handed_out.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.get(fence.stream).map_or(Ok(false), |stream_state| is_captured(&stream_state, fence.seq))
    }

    /// Waits on the host until a fence is complete.
    pub(crate) fn wait_on_host(&self, fence: Fence) -> Result<(), CallError> {
        if TransferSlot::is_transfer(fence.stream) {
            self.transfer_slots.wait(fence);
        } else if let Some(stream_state) = self.get(fence.stream) {
            stream_state.wait_on_host(fence.seq)?;
        }
        Ok(())
    }

    /// Takes a free transfer slot.
    pub(crate) fn take_transfer_slot(&self) -> Result<Arc<TransferSlot>, CallError> {
        self.transfer_slots.take(&self.fence_words, self.fence_word_ops())
    }

    /// Records these fences, so that the host sees when they are complete.
    pub(crate) fn record_fences(&self, fences: &[Fence]) -> Result<(), CallError> {
        self.at_each(fences, StreamState::record_fence)
    }

    /// Records each fence now, unless its stream already has one pending: then the next release, or the next request
    /// that finds no memory, records it.
    pub(crate) fn record_fences_coalesced(&self, fences: &[Fence]) -> Result<(), CallError> {
        self.at_each(fences, StreamState::record_fence_coalesced)
    }

    /// Calls `act` for each fence whose stream still exists.
    fn at_each(
        &self,
        fences: &[Fence],
        act: impl Fn(&StreamState, u64) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let there = fences.iter().filter_map(|fence| Some((self.get(fence.stream)?, fence.seq)));
        there.into_iter().try_for_each(|(stream_state, seq)| act(&stream_state, seq))
    }

    /// Queries all streams that write no words.
    pub(crate) fn refresh(&self) -> Result<(), CallError> {
        let write_words = self.fence_word_ops().is_some() && !self.has_ids.load(Ordering::Relaxed);
        if write_words { Ok(()) } else { self.each(StreamState::refresh) }
    }

    /// Asks the driver how far all streams have come.
    pub(crate) fn query(&self) -> Result<(), CallError> {
        self.each(StreamState::query)
    }

    /// Calls `act` for each stream, without holding the list's lock.
    fn each(&self, act: impl Fn(&StreamState) -> Result<(), CallError>) -> Result<(), CallError> {
        self.all().iter().try_for_each(|stream_state| act(stream_state))
    }

    /// Whether nothing that the library submitted is pending in a context.
    pub(crate) fn is_idle(&self, context: ContextId) -> bool {
        self.of_context(context).iter().all(|stream_state| stream_state.is_idle())
    }

    /// Whether nothing that the library submitted is pending anywhere.
    pub(crate) fn is_all_idle(&self) -> bool {
        self.states().live.values().all(|stream_state| stream_state.is_idle())
    }

    /// Makes a call that waits for all work of a context, if nothing is pending.
    pub(crate) fn with_idle_context(
        &self,
        context_state: &ContextState,
        call: impl FnOnce() -> Result<(), CallError>,
    ) -> Result<bool, CallError> {
        // Queried before the lock is held, since a query takes it.
        for stream_state in self.of_context(context_state.id) {
            stream_state.query()?;
            if !stream_state.is_idle() {
                return Ok(false);
            }
        }
        let Ok(_alone) = context_state.destroy_lock.try_write() else { return Ok(false) };
        if !self.is_idle(context_state.id) {
            return Ok(false);
        }
        call().map(|()| true)
    }

    /// Makes a call that waits for all work of the device, if nothing is pending. The caller must not hold a destroy
    /// lock.
    pub(crate) fn with_idle_device(&self, call: impl FnOnce() -> Result<(), CallError>) -> Result<bool, CallError> {
        let streams = self.all();
        // Queried before the locks are held, since a query enters them.
        for stream_state in &streams {
            if !stream_state.is_quiet()? {
                return Ok(false);
            }
        }
        let mut contexts: Vec<_> = streams.iter().map(|stream_state| stream_state.context_state()).collect();
        contexts.sort_unstable_by_key(|context_state| Arc::as_ptr(context_state));
        contexts.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let locks: Option<Vec<_>> =
            contexts.iter().map(|context_state| context_state.destroy_lock.try_write().ok()).collect();
        if locks.is_none() || !self.is_all_idle() {
            return Ok(false);
        }
        call().map(|()| true)
    }

    /// Forgets streams that are gone and have completed their last work, calling `end` for each first.
    pub(crate) fn forget_ended(&self, end: impl Fn(&StreamState)) -> Result<(), CallError> {
        let is_of_interest =
            |stream_state: &&Arc<StreamState>| stream_state.is_retired() || stream_state.fence_word().is_none();
        let streams: Vec<_> = self.states().live.values().filter(is_of_interest).cloned().collect();
        for stream_state in streams {
            stream_state.refresh()?;
            if !stream_state.has_ended() {
                continue;
            }
            let slot = stream_state.end()?;
            end(&stream_state);
            for other in self.states().live.values() {
                other.forget(stream_state.id);
            }
            if self.states().live.remove(&stream_state.id).is_some()
                && let Some(slot) = slot
            {
                self.fence_words.give_back(slot);
            }
        }
        Ok(())
    }

    /// Forgets the streams of a context that is about to be destroyed, so that the driver is not asked about them, and
    /// returns them. Their words may still be written until then.
    pub(crate) fn forget_context(&self, context: ContextId) -> Vec<Arc<StreamState>> {
        let streams = self.of_context(context);
        for stream_state in &streams {
            stream_state.end_with_context();
            self.states().live.remove(&stream_state.id);
        }
        streams
    }

    /// Takes back the words of streams whose context is gone.
    pub(crate) fn give_back_words(&self, streams: &[Arc<StreamState>]) {
        for stream_state in streams {
            stream_state.fence_word().into_iter().for_each(|slot| self.fence_words.give_back(slot));
        }
    }

    /// Frees the words of all streams and transfers, which waits for all work of the primary context.
    ///
    /// # Safety
    /// No streams and no transfers are left, and none will be created.
    pub(crate) unsafe fn free_words(&self) -> Result<(), CallError> {
        match self.fence_word_ops() {
            // SAFETY: every word was of a stream or a transfer, and the caller guarantees that there are none.
            Some(words) => unsafe { self.fence_words.free(words) },
            None => Ok(()),
        }
    }

    /// Holds the lock of the list.
    #[cfg(test)]
    pub(crate) fn locked(&self) -> impl Drop {
        self.states()
    }

    fn states(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a stream, and an event by which others wait for it.
fn make(backend: &dyn Backend) -> Result<(handle::Stream, handle::Event), CallError> {
    let raw = backend.create_stream()?;
    match backend.create_event() {
        Ok(event) => Ok((raw, event)),
        // SAFETY: the stream was created above, and nothing else uses it.
        Err(error) => unsafe { backend.destroy_stream(raw) }.and(Err(error)),
    }
}
