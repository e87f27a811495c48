//! How a stream ends: it is destroyed or lost, its last work passes, and nothing asks the device about it any more.

use std::sync::atomic::Ordering;

use freehold_driver::CallError;

use super::fence_words::FenceWord;
use super::stream_origin::StreamOrigin;
use super::stream_state::{POOL_RELEASED, StreamState};

/// A seq that every piece of work is before.
const FOREVER: u64 = u64::MAX;

impl StreamState {
    /// Whether the stream is gone, all of its work is done, nobody waits for it, and its word is written for the last time. A
    /// fence comes behind
    /// the work that it tells of, and that work may be known to be done before the fence is.
    pub(crate) fn has_ended(&self) -> bool {
        // What was released in a stream that nobody tells the end of waits for its fence.
        let last = self.released_seq().max(self.released.load(Ordering::Acquire));
        if !self.is_retired() || !self.is_idle() || !self.is_complete(last) {
            return false;
        }
        let signals = self.signals();
        signals.waiters == 0 && self.fence_word.as_ref().is_none_or(|slot| slot.read() >= signals.fenced)
    }

    /// Marks the default stream of the calling thread for the last time: the thread ends, and no other can name the stream.
    pub(crate) fn end_with_thread(&self) -> Result<(), CallError> {
        // What is captured takes no fence, and what was released in it stays with the capture.
        if self.is_retired() || self.origin == StreamOrigin::Captured || !self.can_record_fence()? {
            return Ok(());
        }
        self.retire()
    }

    /// Destroys the stream. Its work goes on (fact 2.3): the last fence and the event behind it tell of its end.
    pub(crate) fn retire(&self) -> Result<(), CallError> {
        let _shared = self.context_state.enter();
        if self.is_retired() {
            return Ok(());
        }
        let mut now = self.next_seq();
        let mut signals = loop {
            self.record_fence_named(now)?;
            let signals = self.signals();
            // Who asked meanwhile how far the stream has come moved its edge: the last fence is behind that.
            if self.enqueued.load(Ordering::Acquire) <= now {
                break signals;
            }
            now = self.next_seq();
        };
        if signals.recorded < now && !self.is_complete(now) {
            // SAFETY: the stream was not retired before, and is not by another thread while the lock is held.
            unsafe { self.backend().record(signals.event(), self.raw) }?;
            signals.recorded = now;
        }
        // Under the lock, so that nobody asks for the stream meanwhile.
        if !self.is_foreign() {
            // SAFETY: it is this library's own, and destroyed once: it is retired behind this, under the lock.
            unsafe { self.backend().destroy_stream(self.raw) }?;
        }
        self.retired.store(true, Ordering::Release);
        Ok(())
    }

    /// [`retire`](Self::retire), unless others capture the stream, whose capture would end with it. Whether it was done.
    pub(crate) fn retire_uncaptured(&self) -> Result<bool, CallError> {
        let _shared = self.context_state.enter();
        if self.is_handed_out() && !self.is_retired() && !self.can_record_fence()? {
            return Ok(false);
        }
        self.retire().map(|()| true)
    }

    /// Notes that the private pool is released, and all work that used it is done.
    pub(crate) fn release_capture(&self) {
        self.note_complete(POOL_RELEASED);
        self.lose();
    }

    /// Notes that the stream is gone, as others turned out to have destroyed it. Its fences tell of its end.
    pub(crate) fn lose(&self) {
        let _signals = self.signals();
        self.retired.store(true, Ordering::Release);
    }

    /// Destroys the events of a stream_state that has ended. Nothing asks the device about it from then on.
    pub(crate) fn end(&self) -> Result<Option<&FenceWord>, CallError> {
        let _shared = self.context_state.enter();
        let mut signals = self.signals();
        while let Some(spare) = signals.spare.last().copied().or(signals.events.front().map(|&(event, _)| event)) {
            // SAFETY: the event is the stream_state's own, and nobody's any more.
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

    /// Notes that the context goes, and with it the stream and its events.
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
