//! The end of a stream: after it was destroyed or lost and its last work is complete, no driver call names it.

use std::sync::atomic::Ordering;

use freehold_driver::CallError;

use super::fence_words::FenceWord;
use super::stream_origin::StreamOrigin;
use super::stream_state::{POOL_RELEASED, StreamState};

/// A seq after all work.
const FOREVER: u64 = u64::MAX;

impl StreamState {
    /// Whether the stream is gone, all of its work is complete, no thread waits for it, and its word was written for
    /// the last time. A fence comes after the work that it covers, and that work may be known to be complete before the
    /// fence is.
    pub(crate) fn has_ended(&self) -> bool {
        // In a stream whose end is not announced, a release waits for its own fence.
        let last = self.released_seq().max(self.released.load(Ordering::Acquire));
        if !self.is_retired() || !self.is_idle() || !self.is_complete(last) {
            return false;
        }
        let signals = self.signals();
        signals.waiters == 0 && self.fence_word.as_ref().is_none_or(|slot| slot.read() >= signals.fenced)
    }

    /// Records the last fence in the calling thread's default stream: the thread ends, and no other thread can name the
    /// stream.
    pub(crate) fn end_with_thread(&self) -> Result<(), CallError> {
        // A captured stream takes no fence, and memory released in it stays with the capture.
        if self.is_retired() || self.origin == StreamOrigin::Captured || !self.can_record_fence()? {
            return Ok(());
        }
        self.retire()
    }

    /// Destroys the stream. Its work continues; the last fence and the event after it show when it ends.
    pub(crate) fn retire(&self) -> Result<(), CallError> {
        let _shared = self.context_state.enter();
        if self.is_retired() {
            return Ok(());
        }
        let mut now = self.next_seq();
        let mut signals = loop {
            self.record_fence_named(now)?;
            let signals = self.signals();
            // A concurrent query advanced `enqueued`: the last fence comes after that.
            if self.enqueued.load(Ordering::Acquire) <= now {
                break signals;
            }
            now = self.next_seq();
        };
        if signals.recorded < now && !self.is_complete(now) {
            // SAFETY: the stream was not retired before, and is not by another thread while the lock is held.
            unsafe { self.record_event(signals.event()) }?;
            signals.recorded = now;
        }
        // Under the lock, so that no thread queries the stream at the same time.
        if !self.is_foreign() {
            // SAFETY: the stream is the library's own, and is destroyed once: it is marked retired after this, under
            // the lock.
            unsafe { self.backend().destroy_stream(self.raw) }?;
        }
        self.retired.store(true, Ordering::Release);
        Ok(())
    }

    /// Calls [`retire`](Self::retire), unless the stream is being captured: destroying it would end the capture.
    /// Returns whether it did.
    pub(crate) fn retire_uncaptured(&self) -> Result<bool, CallError> {
        let _shared = self.context_state.enter();
        if self.is_handed_out() && !self.is_retired() && !self.can_record_fence()? {
            return Ok(false);
        }
        self.retire().map(|()| true)
    }

    /// Notes that the private pool was released, and that all work that used it is complete.
    pub(crate) fn release_capture(&self) {
        self.note_complete(POOL_RELEASED);
        self.lose();
    }

    /// Notes that foreign code turned out to have destroyed the stream. Its fences show when it ends.
    pub(crate) fn lose(&self) {
        let _signals = self.signals();
        self.retired.store(true, Ordering::Release);
    }

    /// Destroys the events of a stream that has ended. The driver is not asked about it afterwards.
    pub(crate) fn end(&self) -> Result<Option<&FenceWord>, CallError> {
        let _shared = self.context_state.enter();
        let mut signals = self.signals();
        while let Some(spare) = signals.spare.last().copied().or(signals.events.front().map(|&(event, _)| event)) {
            // SAFETY: the event is this state's own, and it is no longer used.
            unsafe { self.backend().destroy_event(spare) }?;
            if signals.spare.pop().is_none() {
                signals.events.pop_front();
            }
        }
        if let Some(event) = signals.event {
            // SAFETY: as above.
            unsafe { self.backend().destroy_event(event) }?;
            signals.event = None;
        }
        signals.recorded = FOREVER;
        signals.fenced = FOREVER;
        self.note_complete(FOREVER);
        Ok(self.fence_word.as_ref())
    }

    /// Notes that the context is being destroyed, and with it the stream and its events.
    pub(crate) fn end_with_context(&self) {
        let mut signals = self.signals();
        signals.recorded = FOREVER;
        signals.fenced = FOREVER;
        signals.event = None;
        signals.events.clear();
        signals.spare.clear();
        self.retired.store(true, Ordering::Release);
        self.note_complete(FOREVER);
    }
}
