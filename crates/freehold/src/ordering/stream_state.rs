//! The library's state of a stream: the work that was submitted, how far the device has come, and the streams that it
//! has waited for.
//!
//! An operation's seq counts from 1 and is assigned after the operation was submitted. So a fence that is recorded with
//! the current seq comes after all work up to that seq, whichever threads submitted it. A fence is a word of pinned
//! memory that the device writes or, if it cannot, an event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::cuda::CUerror;
use freehold_driver::handle::{self, Event};
use freehold_driver::{Backend, CallError, ErrorKind, StreamMemOps};

use crate::ledger::{ContextId, Fence, StreamId};
use crate::ordering::context_state::ContextState;
use crate::ordering::fence_words::FenceWord;
use crate::ordering::stream_origin::{StreamOrigin, ThreadId};
use crate::ordering::transfer_slot::TransferSlots;

/// How many launches a stream remembers by kernel.
const RECENT: usize = 64;

/// How many reads of a word go by between two queries of the driver.
const ASKED_EVERY: u32 = 1024;

/// The one seq of a stream in a private pool: the release of the pool.
pub(super) const POOL_RELEASED: u64 = 1;

#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) id: StreamId,
    pub(crate) context: ContextId,
    pub(crate) raw: handle::Stream,
    /// Its destroy lock is held during driver calls about the stream, so that the context is not destroyed during them.
    pub(super) context_state: Arc<ContextState>,
    /// How many operations, including waits for other streams, were submitted.
    pub(super) enqueued: AtomicU64,
    /// The seq up to which work is known to be complete.
    completed: AtomicU64,
    /// The kernel of each of the last launches: its seq in the upper half, its number in the lower one.
    recent: [AtomicU64; RECENT],
    pub(super) origin: StreamOrigin,
    /// The seq that the last release waits for, in a stream whose end is not announced.
    pub(super) released: AtomicU64,
    /// The thread whose default stream it is: no other thread can name it.
    thread: Option<ThreadId>,
    /// Whether the stream itself is gone. No more work is submitted.
    pub(super) retired: AtomicBool,
    /// Whether foreign code has the handle, and may capture the stream.
    handed_out: AtomicBool,
    signals: Mutex<FenceSignals>,
    /// The seqs of other streams that this one waits for before its next work.
    waited: Mutex<BTreeMap<StreamId, u64>>,
    /// How many waits were submitted. Held while one is submitted, and to prevent that.
    waits: Mutex<u64>,
    /// The word that the device writes, if it can.
    pub(super) fence_word: Option<FenceWord>,
}

/// The fences and events that were recorded in the stream so that the host and other streams can wait for it.
#[derive(Debug)]
pub(super) struct FenceSignals {
    /// The seq of the last fence.
    pub(super) fenced: u64,
    /// For streams that wait; recorded again for each seq that it does not cover. `None` once the stream has ended.
    pub(super) event: Option<Event>,
    pub(super) recorded: u64,
    /// How many threads wait for that event.
    pub(super) waiters: usize,
    /// Fences of a device that cannot write words, oldest first, and events to reuse.
    pub(super) events: VecDeque<(Event, u64)>,
    pub(super) spare: Vec<Event>,
}

impl FenceSignals {
    pub(super) fn event(&self) -> Event {
        self.event.expect("the stream has not ended")
    }
}

impl StreamState {
    pub(crate) fn new(
        id: StreamId,
        context_state: Arc<ContextState>,
        (raw, event): (handle::Stream, Event),
        slot: Option<FenceWord>,
    ) -> Self {
        Self {
            id,
            context: context_state.id,
            raw,
            context_state,
            origin: StreamOrigin::Own,
            released: AtomicU64::new(0),
            thread: None,
            enqueued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            recent: [const { AtomicU64::new(0) }; RECENT],
            retired: AtomicBool::new(false),
            handed_out: AtomicBool::new(false),
            signals: Mutex::new(FenceSignals {
                fenced: 0,
                event: Some(event),
                recorded: 0,
                waiters: 0,
                events: VecDeque::new(),
                spare: Vec::new(),
            }),
            waited: Mutex::new(BTreeMap::new()),
            waits: Mutex::new(0),
            fence_word: slot,
        }
    }

    /// Makes the state of a stream that foreign code created.
    pub(crate) fn foreign(
        id: StreamId,
        context_state: Arc<ContextState>,
        made: (handle::Stream, Event),
        slot: Option<FenceWord>,
        thread: Option<ThreadId>,
        origin: StreamOrigin,
    ) -> Self {
        Self { origin, thread, ..Self::new(id, context_state, made, slot) }
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.origin != StreamOrigin::Own
    }

    /// Returns the seq after everything submitted so far. Foreign work is not counted, so in a foreign stream this is a
    /// seq that no work reaches before a fence is recorded. The last fence of a retired stream comes after everything.
    pub(crate) fn next_seq(&self) -> u64 {
        if self.origin == StreamOrigin::Captured {
            return POOL_RELEASED;
        }
        self.enqueued.load(Ordering::Acquire) + u64::from(self.is_foreign() && !self.is_retired())
    }

    /// Returns the seq after all releases. Like [`next_seq`](Self::next_seq), except where every release records a
    /// fence at once.
    pub(crate) fn released_seq(&self) -> u64 {
        match self.origin {
            StreamOrigin::Own | StreamOrigin::Trusted | StreamOrigin::ById(_) => self.next_seq(),
            StreamOrigin::Checked => self.enqueued.load(Ordering::Acquire).max(self.released.load(Ordering::Acquire)),
            StreamOrigin::Captured => POOL_RELEASED,
        }
    }

    /// Records a fence after a release, if the stream may be gone before anything queries it.
    pub(crate) fn fence_release(&self) -> Result<(), CallError> {
        if self.origin != StreamOrigin::Checked {
            return Ok(());
        }
        let seq = self.next_seq();
        self.released.fetch_max(seq, Ordering::AcqRel);
        self.record_fence(seq)
    }

    /// Whether this thread can name the stream: it is not another thread's default stream.
    pub(crate) fn is_this_threads(&self) -> bool {
        self.thread.is_none_or(|thread| thread == ThreadId::current())
    }

    /// Whether it is the default stream of one thread.
    pub(crate) fn is_of_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Whether a fence can be recorded: this thread can name the stream, and it is not being captured.
    pub(crate) fn can_record_fence(&self) -> Result<bool, CallError> {
        if let StreamOrigin::ById(gate) = self.origin {
            return Ok(gate.is_open());
        }
        if !self.is_this_threads() {
            return Ok(false);
        }
        // SAFETY: the stream is the library's own, or its user guarantees that the handle is valid.
        self.backend().foreign_streams().map_or(Ok(true), |foreign| unsafe { foreign.can_record(self.raw) })
    }

    /// Whether a wait for `seq` would record an event in a stream that is being captured, so that the waiter would join
    /// the capture.
    pub(crate) fn is_captured_before(&self, seq: u64) -> Result<bool, CallError> {
        self.is_captured_unless(seq, |signals| signals.recorded >= seq)
    }

    /// Whether no fence for `seq` was recorded, nor can be, because the stream is being captured.
    pub(crate) fn is_captured_before_fence(&self, seq: u64) -> Result<bool, CallError> {
        self.is_captured_unless(seq, |signals| signals.fenced >= seq)
    }

    /// Whether foreign code, which must have the handle, captures the stream.
    pub(crate) fn is_captured(&self) -> Result<bool, CallError> {
        if !self.is_handed_out() {
            return Ok(false);
        }
        let _shared = self.context_state.enter();
        // The stream is not destroyed while the lock is held.
        let _signals = self.signals();
        Ok(!self.is_retired() && !self.can_record_fence()?)
    }

    /// Whether foreign code, which must have the handle, captures the stream, and nothing recorded yet shows when it
    /// completes `seq`.
    fn is_captured_unless(&self, seq: u64, is_told: impl Fn(&FenceSignals) -> bool) -> Result<bool, CallError> {
        if !self.is_handed_out() || self.is_complete(seq) {
            return Ok(false);
        }
        let _shared = self.context_state.enter();
        // The stream is not destroyed while the lock is held. A retired stream has recorded its last seq.
        let signals = self.signals();
        Ok(!is_told(&signals) && !self.is_retired() && !self.can_record_fence()?)
    }

    /// Whether the handle stays valid until the stream's end is announced, so that it may be used in calls that its
    /// user did not make.
    fn can_be_named(&self) -> bool {
        matches!(self.origin, StreamOrigin::Own | StreamOrigin::Trusted)
    }

    /// Whether calls that its user did not make may record a fence.
    fn can_be_fenced(&self) -> bool {
        self.can_be_named() || matches!(self.origin, StreamOrigin::ById(_))
    }

    /// Records an event after all work submitted to the stream, or to its context if the handle may be gone. Returns
    /// whether it was recorded: a capture may prevent that.
    ///
    /// # Safety
    /// The event is this state's own, and the stream exists unless it is known by its id.
    unsafe fn try_record_event(&self, event: Event) -> Result<bool, CallError> {
        let StreamOrigin::ById(gate) = self.origin else {
            // SAFETY: the conditions are the same.
            return unsafe { self.backend().record(event, self.raw) }.map(|()| true);
        };
        let foreign = self.backend().foreign_streams().expect("a stream with an id belongs to a device that has them");
        // SAFETY: the event is valid.
        gate.while_open(|| unsafe { foreign.record_after_all(event) }).unwrap_or(Ok(false))
    }

    /// Like [`try_record_event`](Self::try_record_event), for callers that need the event.
    ///
    /// # Safety
    /// As for [`try_record_event`](Self::try_record_event).
    pub(super) unsafe fn record_event(&self, event: Event) -> Result<(), CallError> {
        let captured = || CallError {
            call: "cuCtxRecordEvent",
            code: CUerror::STREAM_CAPTURE_UNSUPPORTED.into(),
            kind: ErrorKind::Other,
        };
        // SAFETY: the conditions are the same.
        if unsafe { self.try_record_event(event) }? { Ok(()) } else { Err(captured()) }
    }

    /// Returns the fence after everything submitted so far.
    pub(crate) fn current_fence(&self) -> Fence {
        Fence { stream: self.id, seq: self.enqueued.load(Ordering::Acquire) }
    }

    /// Counts an operation that was submitted, and returns its seq.
    pub(crate) fn count_work(&self) -> u64 {
        self.enqueued.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Remembers that the operation at `seq` was a launch.
    pub(crate) fn remember_launch(&self, seq: u64, kernel: u32) {
        let entry = (seq << 32) | u64::from(kernel);
        self.recent[seq as usize % RECENT].store(entry, Ordering::Relaxed);
    }

    /// Returns the launches that are not known to be complete, as seqs and kernel numbers, and how many older
    /// operations are no longer remembered.
    pub(crate) fn pending_launches(&self) -> (Vec<(u64, u32)>, u64) {
        let (passed, put) = (self.completed_seq(), self.enqueued.load(Ordering::Acquire));
        let oldest = put.saturating_sub(RECENT as u64).max(passed);
        // The completed seq of an ended stream is beyond its work.
        let launches = (oldest.saturating_add(1)..=put).filter_map(|seq| {
            let entry = self.recent[seq as usize % RECENT].load(Ordering::Relaxed);
            (entry >> 32 == seq & 0xffff_ffff).then_some((seq, entry as u32))
        });
        (launches.collect(), oldest - passed)
    }

    /// Whether work up to `seq` is known to be complete, without calling the driver.
    pub(crate) fn is_complete(&self, seq: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= seq || self.completed_seq() >= seq
    }

    /// Whether this is the state of a private pool that is not released.
    pub(super) fn is_for_graphs(&self, seq: u64) -> bool {
        self.origin == StreamOrigin::Captured && !self.is_complete(seq)
    }

    /// Whether everything submitted is known to be complete.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_complete(self.enqueued.load(Ordering::Acquire))
    }

    /// Returns the seq up to which work is known to be complete.
    fn completed_seq(&self) -> u64 {
        match &self.fence_word {
            Some(slot) => {
                let written = slot.read();
                self.completed.fetch_max(written, Ordering::AcqRel).max(written)
            }
            None => self.completed.load(Ordering::Acquire),
        }
    }

    /// Notes that work up to `seq` is complete.
    pub(crate) fn note_complete(&self, seq: u64) {
        self.completed.fetch_max(seq, Ordering::AcqRel);
    }

    /// Queries the events of a device that writes no words.
    pub(crate) fn refresh(&self) -> Result<(), CallError> {
        if self.fence_word.is_some() {
            return Ok(());
        }
        let _shared = self.context_state.enter();
        let mut signals = self.signals();
        while let Some(&(fence, seq)) = signals.events.front() {
            // SAFETY: the events are destroyed when the stream ends, under this lock.
            if !unsafe { self.backend().is_complete(fence) }? {
                break;
            }
            self.note_complete(seq);
            signals.events.pop_front();
            signals.spare.push(fence);
        }
        Ok(())
    }

    /// Records a fence so that the host sees when `seq` is complete. One fence covers all seqs up to it. A retired
    /// stream has had its last fence: its handle may now name another stream.
    pub(crate) fn record_fence(&self, seq: u64) -> Result<(), CallError> {
        if self.is_retired() || self.origin == StreamOrigin::Captured {
            return Ok(());
        }
        self.record_fence_named(seq)
    }

    /// Like [`record_fence`](Self::record_fence), for callers that know that the handle is valid.
    pub(super) fn record_fence_named(&self, seq: u64) -> Result<(), CallError> {
        if self.is_complete(seq) {
            return Ok(());
        }
        let _shared = self.context_state.enter();
        let mut signals = self.signals();
        // Checked again under the lock: the stream may have been destroyed by now, after its last fence.
        if signals.fenced >= seq || self.is_complete(seq) {
            return Ok(());
        }
        if !self.can_record_fence()? {
            return Ok(());
        }
        if self.is_foreign() {
            self.enqueued.fetch_max(seq, Ordering::AcqRel);
        }
        let now = self.enqueued.load(Ordering::Acquire);
        match &self.fence_word {
            // SAFETY: the stream exists while the lock is held, since it is retired under it. Its word stays until the
            // stream has ended.
            Some(slot) => unsafe { self.words().write_value(self.raw, slot.address, now) }?,
            None => {
                let fence = match signals.spare.pop() {
                    Some(event) => event,
                    None => self.backend().create_event()?,
                };
                // SAFETY: as above; the event is this state's own.
                let recorded = unsafe { self.try_record_event(fence) };
                if recorded != Ok(true) {
                    signals.spare.push(fence);
                    return recorded.map(drop);
                }
                signals.events.push_back((fence, now));
            }
        }
        signals.fenced = now;
        Ok(())
    }

    /// Calls [`record_fence`](Self::record_fence), unless an earlier fence is pending: the next one, after that is
    /// complete, covers this seq too. So a busy stream has one pending fence, however many releases there are.
    pub(crate) fn record_fence_coalesced(&self, seq: u64) -> Result<(), CallError> {
        let marked = self.signals().fenced;
        if self.origin == StreamOrigin::Checked {
            return self.record_fence(seq);
        }
        if marked > 0 && !self.is_complete(marked) { Ok(()) } else { self.record_fence(seq) }
    }

    /// Asks the driver whether everything submitted is complete, unless that is known.
    pub(crate) fn query(&self) -> Result<(), CallError> {
        if matches!(self.origin, StreamOrigin::ById(_)) {
            self.record_fence_coalesced(self.released_seq())?;
            return self.refresh();
        }
        // Its events need no handle: they show when a stream that is gone has completed its work, too.
        self.refresh()?;
        if !self.can_be_named() {
            return Ok(());
        }
        let now = self.released_seq();
        let _shared = self.context_state.enter();
        // No other thread destroys the stream while the lock is held.
        let _signals = self.signals();
        // The last fence of a retired stream shows its end.
        let can_be_captured = self.is_foreign() || self.is_handed_out();
        if self.is_retired() || self.is_complete(now) || (can_be_captured && !self.can_record_fence()?) {
            return Ok(());
        }
        // Before the query: foreign work submitted during the query comes after the next seq.
        self.enqueued.fetch_max(now, Ordering::AcqRel);
        // SAFETY: the stream exists while the lock is held, since it is retired under it.
        if unsafe { self.backend().is_idle(self.raw) }? {
            self.note_complete(now);
        }
        Ok(())
    }

    /// Whether everything submitted is complete, including foreign work if the driver can be asked about it: it cannot
    /// if the stream is another thread's, which may never query it again. Nothing is submitted to the stream of a
    /// private pool, which may be gone.
    pub(crate) fn is_quiet(&self) -> Result<bool, CallError> {
        if self.origin == StreamOrigin::Captured {
            return Ok(true);
        }
        self.refresh()?;
        let edge = self.released_seq();
        self.query()?;
        if self.is_complete(edge) {
            return Ok(true);
        }
        Ok(self.is_idle() && self.origin == StreamOrigin::Trusted && !self.can_record_fence()?)
    }

    /// Forgets the waits for a stream that has ended.
    pub(crate) fn forget(&self, ended: StreamId) {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner).remove(&ended);
    }

    /// Whether this stream can wait for another: neither is being captured or belongs to another thread.
    pub(crate) fn can_wait_for(&self, other: &Self) -> Result<bool, CallError> {
        Ok(!other.is_retired() && other.can_be_fenced() && self.can_record_fence()? && other.can_record_fence()?)
    }

    /// Makes this stream's next work wait, on the device, until `other` has completed `seq`. Returns whether it has to.
    pub(crate) fn wait_for(&self, other: &StreamState, seq: u64) -> Result<bool, CallError> {
        if self.has_waited(other.id, seq) || other.is_complete(seq) {
            return Ok(false);
        }
        // Before the other's lock, which is held briefly.
        let mut waits = self.waits();
        let Some(recorded) = self.enqueue_wait(&mut waits, other, seq)? else { return Ok(false) };
        self.note_waited(other.id, recorded);
        Ok(true)
    }

    /// Like [`wait_for`](Self::wait_for), for a stream of another device of the same driver. Its number means another
    /// stream here, so the wait is not remembered.
    pub(crate) fn wait_for_peer(&self, other: &StreamState, seq: u64) -> Result<(), CallError> {
        if other.is_complete(seq) {
            return Ok(());
        }
        let mut waits = self.waits();
        self.enqueue_wait(&mut waits, other, seq).map(drop)
    }

    /// Enqueues a wait for a seq of another stream. Returns the seq that it waits for, unless that is complete.
    fn enqueue_wait(&self, waits: &mut u64, other: &StreamState, seq: u64) -> Result<Option<u64>, CallError> {
        let recorded = {
            let (_own, _shared) = (self.context_state.enter(), other.context_state.enter());
            // The context of this stream may have been destroyed by now: then no work follows.
            if self.is_retired() {
                return Ok(None);
            }
            let mut signals = other.signals();
            // As in `record_fence`.
            if other.is_complete(seq) {
                return Ok(None);
            }
            if signals.recorded < seq {
                if other.is_foreign() {
                    other.enqueued.fetch_max(seq, Ordering::AcqRel);
                }
                let now = other.enqueued.load(Ordering::Acquire);
                // SAFETY: the other stream exists while its lock is held: a retired stream has recorded its last seq.
                unsafe { other.record_event(signals.event()) }?;
                signals.recorded = now;
            }
            // SAFETY: the thread that submits work holds this stream; the event belongs to the other state, which ends
            // under its lock.
            unsafe { self.backend().stream_wait_event(self.raw, signals.event()) }?;
            signals.recorded
        };
        *waits += 1;
        Ok(Some(recorded))
    }

    /// Like [`wait_for`](Self::wait_for), for the end of a transfer that the host announces. If the stream cannot wait
    /// for words, this waits on the host.
    pub(crate) fn wait_for_transfer(&self, transfer_slots: &TransferSlots, fence: Fence) -> Result<bool, CallError> {
        let (slot, seq) = (transfer_slots.of(fence.stream), fence.seq);
        if self.has_waited(fence.stream, seq) || slot.is_complete(seq) {
            return Ok(false);
        }
        let Some(address) = slot.address() else {
            transfer_slots.wait(fence);
            return Ok(false);
        };
        let mut waits = self.waits();
        {
            let _own = self.context_state.enter();
            // As above.
            if self.is_retired() {
                return Ok(false);
            }
            // SAFETY: the thread that submits work holds this stream. The words of transfer slots stay as long as the
            // device.
            unsafe { self.words().wait_value(self.raw, address, seq) }?;
        }
        self.note_waited(fence.stream, seq);
        *waits += 1;
        Ok(true)
    }

    /// Notes that this stream's next work comes after `seq` of another.
    fn note_waited(&self, other: StreamId, seq: u64) {
        // The wait has a seq like an operation: only a fence of this stream after that seq covers the other's. A thread
        // that finds the wait in the list finds it counted.
        self.count_work();
        let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waited.entry(other).or_insert(0);
        *entry = seq.max(*entry);
    }

    /// Whether this stream's next work comes after `seq` of another, or of itself.
    pub(crate) fn has_waited(&self, other: StreamId, seq: u64) -> bool {
        other == self.id
            || self
                .waited
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&other)
                .is_some_and(|&waited| waited >= seq)
    }

    /// How many waits were submitted. None is submitted while the guard lives: a thread that submits one increments it,
    /// after counting its seq.
    pub(crate) fn waits(&self) -> MutexGuard<'_, u64> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits on the host until everything submitted so far is complete. The caller holds the stream, so it is not
    /// destroyed during the wait.
    pub(crate) fn synchronize(&self) -> Result<(), CallError> {
        let now = self.enqueued.load(Ordering::Acquire);
        let _shared = self.context_state.enter();
        if !self.is_complete(now) {
            // SAFETY: the caller holds the stream, and the context is not destroyed while its destroy lock is held
            // shared.
            unsafe { self.backend().wait_until_idle(self.raw) }?;
            self.note_complete(now);
        }
        Ok(())
    }

    /// Waits on the host until the stream is idle. The caller holds the stream.
    pub(crate) fn wait_until_idle(&self) -> Result<(), CallError> {
        let now = self.enqueued.load(Ordering::Acquire);
        let _shared = self.context_state.enter();
        // SAFETY: as in `synchronize`.
        unsafe { self.backend().wait_until_idle(self.raw) }?;
        self.note_complete(now);
        Ok(())
    }

    /// Waits on the host until work up to `seq` is complete.
    pub(crate) fn wait_on_host(&self, seq: u64) -> Result<(), CallError> {
        if self.is_complete(seq) {
            return Ok(());
        }
        let _shared = self.context_state.enter();
        let (event, recorded) = {
            let mut signals = self.signals();
            if self.is_complete(seq) {
                return Ok(());
            }
            if signals.recorded < seq {
                if self.is_foreign() {
                    self.enqueued.fetch_max(seq, Ordering::AcqRel);
                }
                let now = self.enqueued.load(Ordering::Acquire);
                // SAFETY: the stream exists while the lock is held: a retired stream has recorded its last seq.
                unsafe { self.record_event(signals.event()) }?;
                signals.recorded = now;
            }
            signals.waiters += 1;
            (signals.event(), signals.recorded)
        };
        // SAFETY: a stream with waiters does not end, and so keeps its event.
        let waited = unsafe { self.backend().wait(event) };
        self.signals().waiters -= 1;
        waited?;
        self.note_complete(recorded);
        Ok(())
    }

    /// Waits on the host until a recorded fence at `seq` is complete. Work after the fence, which may wait for the
    /// caller itself, is not waited for.
    pub(crate) fn wait_recorded(&self, seq: u64) -> Result<(), CallError> {
        let mut looked = 0_u32;
        while !self.is_complete(seq) {
            looked = looked.wrapping_add(1);
            // Reading a word is free. The driver is queried rarely: it reports a device that has failed, which no
            // longer writes words.
            if self.fence_word.is_none() || looked.is_multiple_of(ASKED_EVERY) {
                self.refresh()?;
                let _shared = self.context_state.enter();
                let event = self.signals().event;
                if let Some(event) = event {
                    // SAFETY: the stream has a pending fence, and so has not ended: its event exists.
                    unsafe { self.backend().is_complete(event) }?;
                }
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Notes that foreign code gets the handle.
    pub(crate) fn hand_out(&self) {
        self.handed_out.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_handed_out(&self) -> bool {
        self.handed_out.load(Ordering::Relaxed)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        &*self.context_state.backend
    }

    /// Only for callers that have seen that there are some.
    fn words(&self) -> &dyn StreamMemOps {
        self.backend().stream_mem_ops().expect("fence words exist only on devices that write them")
    }

    pub(crate) fn context_state(&self) -> &Arc<ContextState> {
        &self.context_state
    }

    pub(crate) fn fence_word(&self) -> Option<&FenceWord> {
        self.fence_word.as_ref()
    }

    pub(super) fn signals(&self) -> MutexGuard<'_, FenceSignals> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
