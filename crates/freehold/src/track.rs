//! Tracks: what the library knows of a stream. Which work was put in, how far the device has come, and which other streams
//! it has waited for.
//!
//! Work has a position, counted from 1 after it was put in. So a mark that is written now with the position of now has
//! all work up to that position before it, whichever threads put it there. A mark is a word of pinned memory that the
//! device writes, or, where it cannot, an event.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::handle::{self, Event};
use freehold_driver::{Backend, CallError, Words};

use crate::core::Hall;
use crate::counters::Slot;
use crate::lane::Lanes;
use crate::ledger::{ContextId, Mark, StreamId};

/// How many launches a track remembers by name.
const RECENT: usize = 64;

/// Of so many looks at a word, one asks the driver too.
const ASKED_EVERY: u32 = 1024;

/// A position that every piece of work is before.
const FOREVER: u64 = u64::MAX;

/// The one position of a stream in a private pool: the release of the pool.
const POOL_RELEASED: u64 = 1;

/// A thread: no two of a process ever have the same number. It can be asked for until the last destructor of the thread has run,
/// which the standard library's cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadId(u64);

impl ThreadId {
    /// That of the calling thread.
    pub(crate) fn current() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            /// Zero until it is asked for.
            static NUMBER: Cell<u64> = const { Cell::new(0) };
        }
        if NUMBER.get() == 0 {
            NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Self(NUMBER.get())
    }
}

/// Whose a stream is, and for how long its handle means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The library made it, and counts all of its work.
    Own,
    /// Others made it, put work into it that is not counted here, and say when it is gone.
    Told,
    /// As above, but nobody says when it is gone: its handle is used only in calls whose caller names the stream, and what is
    /// released in it is marked at once.
    Untold,
    /// A stream in the private pool of a capture. Launches of the graph use the same memory again, so what is released or used here
    /// waits until the pool is released.
    Captured,
}

#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) id: StreamId,
    pub(crate) context: ContextId,
    pub(crate) raw: handle::Stream,
    /// Its gate is held wherever the driver is called about the stream, so that the context is not destroyed meanwhile.
    hall: Arc<Hall>,
    /// How many pieces of work, and waits for other streams, were put in.
    put: AtomicU64,
    /// The position up to which the device is known to have come.
    passed: AtomicU64,
    /// The kernel of each of the last launches: its position in the upper half, its number in the lower one.
    recent: [AtomicU64; RECENT],
    trust: Trust,
    /// The position that the last release waits for, in a stream whose end nobody tells.
    released: AtomicU64,
    /// The thread whose default stream it is: no other can name it.
    thread: Option<ThreadId>,
    /// Whether the stream itself is gone. No work is put in any more.
    retired: AtomicBool,
    /// Whether others were told the handle, and may capture the stream.
    handed_out: AtomicBool,
    signals: Mutex<Signals>,
    /// The positions of other streams that this one waits for before its next work.
    waited: Mutex<BTreeMap<StreamId, u64>>,
    /// How many waits were put in. Held while one is, and by who keeps others from it.
    waits: Mutex<u64>,
    /// The word that the device writes, where it can.
    slot: Option<Slot>,
}

/// What was put into the stream so that others hear of it.
#[derive(Debug)]
struct Signals {
    /// The position of the last mark.
    marked: u64,
    /// For streams that wait, recorded anew for each position that is not covered. Nothing of a stream that has ended.
    event: Option<Event>,
    recorded: u64,
    /// How many threads wait for that event.
    waiters: usize,
    /// Marks of a device that cannot write words, oldest first, and events to use again.
    events: VecDeque<(Event, u64)>,
    spare: Vec<Event>,
}

impl Signals {
    fn event(&self) -> Event {
        self.event.expect("who asks for the event of a stream has seen that it has not ended")
    }
}

impl Track {
    pub(crate) fn new(
        id: StreamId,
        hall: Arc<Hall>,
        (raw, event): (handle::Stream, Event),
        slot: Option<Slot>,
    ) -> Self {
        Self {
            id,
            context: hall.id,
            raw,
            hall,
            trust: Trust::Own,
            released: AtomicU64::new(0),
            thread: None,
            put: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            recent: [const { AtomicU64::new(0) }; RECENT],
            retired: AtomicBool::new(false),
            handed_out: AtomicBool::new(false),
            signals: Mutex::new(Signals {
                marked: 0,
                event: Some(event),
                recorded: 0,
                waiters: 0,
                events: VecDeque::new(),
                spare: Vec::new(),
            }),
            waited: Mutex::new(BTreeMap::new()),
            waits: Mutex::new(0),
            slot,
        }
    }

    /// The track of a stream that others made.
    pub(crate) fn foreign(
        id: StreamId,
        hall: Arc<Hall>,
        made: (handle::Stream, Event),
        slot: Option<Slot>,
        thread: Option<ThreadId>,
        trust: Trust,
    ) -> Self {
        Self { trust, thread, ..Self::new(id, hall, made, slot) }
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.trust != Trust::Own
    }

    /// The position behind everything that was put in so far, by others too: their work is not counted, so that in their
    /// streams it is one that nobody has come to before a mark is made. The last mark of a stream that is gone is behind
    /// everything.
    pub(crate) fn next(&self) -> u64 {
        if self.trust == Trust::Captured {
            return POOL_RELEASED;
        }
        self.put.load(Ordering::Acquire) + u64::from(self.is_foreign() && !self.is_retired())
    }

    /// The position behind all that was released. As [`next`](Self::next), but where every release is marked at once.
    pub(crate) fn edge(&self) -> u64 {
        match self.trust {
            Trust::Own | Trust::Told => self.next(),
            Trust::Untold => self.put.load(Ordering::Acquire).max(self.released.load(Ordering::Acquire)),
            Trust::Captured => POOL_RELEASED,
        }
    }

    /// Marks what was put in so far, if the stream may be gone before anybody asks how far it has come. For who releases
    /// something in it.
    pub(crate) fn mark_release(&self) -> Result<(), CallError> {
        if self.trust != Trust::Untold {
            return Ok(());
        }
        let position = self.next();
        self.released.fetch_max(position, Ordering::AcqRel);
        self.mark(position)
    }

    /// Whether this thread can name the stream: not where it is another thread's default stream.
    pub(crate) fn is_this_threads(&self) -> bool {
        self.thread.is_none_or(|thread| thread == ThreadId::current())
    }

    /// Whether it is the default stream of one thread.
    pub(crate) fn is_of_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Marks the default stream of the calling thread for the last time: the thread ends, and no other can name the stream.
    pub(crate) fn end_with_thread(&self) -> Result<(), CallError> {
        // What is captured takes no mark, and what was released in it stays with the capture.
        if self.is_retired() || self.trust == Trust::Captured || !self.can_be_marked()? {
            return Ok(());
        }
        self.retire()
    }

    /// Whether the stream can be named by this thread, and is not being captured: then no mark can be made.
    pub(crate) fn can_be_marked(&self) -> Result<bool, CallError> {
        if !self.is_this_threads() {
            return Ok(false);
        }
        // SAFETY: the stream is this library's own, or one for whose handle its user vouches.
        self.backend().foreign().map_or(Ok(true), |foreign| unsafe { foreign.takes_marks(self.raw) })
    }

    /// Whether the handle means the stream until somebody says otherwise, so that calls may name it which its user did not.
    fn can_be_named(&self) -> bool {
        matches!(self.trust, Trust::Own | Trust::Told)
    }

    /// The mark of everything that was put in so far.
    pub(crate) fn now(&self) -> Mark {
        Mark { stream: self.id, position: self.put.load(Ordering::Acquire) }
    }

    /// Counts a piece of work that was put in, and returns its position.
    pub(crate) fn count(&self) -> u64 {
        self.put.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Remembers that the work at `position` was a launch.
    pub(crate) fn remember_launch(&self, position: u64, kernel: u32) {
        let entry = (position << 32) | u64::from(kernel);
        self.recent[position as usize % RECENT].store(entry, Ordering::Relaxed);
    }

    /// The launches that the device is not known to have passed, as positions and numbers of kernels, and how many pieces
    /// of work there are of which that is not known any more.
    pub(crate) fn pending_launches(&self) -> (Vec<(u64, u32)>, u64) {
        let (passed, put) = (self.known(), self.put.load(Ordering::Acquire));
        let oldest = put.saturating_sub(RECENT as u64).max(passed);
        // A stream that has ended has passed everything, and more.
        let launches = (oldest.saturating_add(1)..=put).filter_map(|position| {
            let entry = self.recent[position as usize % RECENT].load(Ordering::Relaxed);
            (entry >> 32 == position & 0xffff_ffff).then_some((position, entry as u32))
        });
        (launches.collect(), oldest - passed)
    }

    /// Whether the device has come to `position`, as far as that can be told without the driver.
    pub(crate) fn has_passed(&self, position: u64) -> bool {
        self.passed.load(Ordering::Acquire) >= position || self.known() >= position
    }

    /// Whether everything that was put in has been done.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_passed(self.put.load(Ordering::Acquire))
    }

    /// Whether the stream is gone, all of its work is done, nobody waits for it, and its word is written for the last time. A
    /// mark comes behind
    /// the work that it tells of, and that work may be known to be done before the mark is.
    pub(crate) fn has_ended(&self) -> bool {
        // What was released in a stream that nobody tells the end of waits for its mark.
        let last = self.edge().max(self.released.load(Ordering::Acquire));
        if !self.is_retired() || !self.is_idle() || !self.has_passed(last) {
            return false;
        }
        let signals = self.signals();
        signals.waiters == 0 && self.slot.as_ref().is_none_or(|slot| slot.read() >= signals.marked)
    }

    /// The position up to which the device is known to have come.
    fn known(&self) -> u64 {
        match &self.slot {
            Some(slot) => {
                let written = slot.read();
                self.passed.fetch_max(written, Ordering::AcqRel).max(written)
            }
            None => self.passed.load(Ordering::Acquire),
        }
    }

    /// Notes that the device has come to `position`.
    pub(crate) fn note_passed(&self, position: u64) {
        self.passed.fetch_max(position, Ordering::AcqRel);
    }

    /// Asks the driver how far events have come, on a device that writes no words.
    pub(crate) fn refresh(&self) -> Result<(), CallError> {
        if self.slot.is_some() {
            return Ok(());
        }
        let _shared = self.hall.enter();
        let mut signals = self.signals();
        while let Some(&(mark, position)) = signals.events.front() {
            // SAFETY: the track destroys its events when it ends, behind this lock.
            if !unsafe { self.backend().has_passed(mark) }? {
                break;
            }
            self.note_passed(position);
            signals.events.pop_front();
            signals.spare.push(mark);
        }
        Ok(())
    }

    /// Sees to it that the host will hear when `position` has passed. One mark serves all positions up to it. A stream that is gone
    /// has had its last mark: its handle may mean another one.
    pub(crate) fn mark(&self, position: u64) -> Result<(), CallError> {
        if self.is_retired() || self.trust == Trust::Captured {
            return Ok(());
        }
        self.mark_named(position)
    }

    /// As [`mark`](Self::mark), for who knows that the handle means the stream.
    fn mark_named(&self, position: u64) -> Result<(), CallError> {
        if self.has_passed(position) {
            return Ok(());
        }
        let _shared = self.hall.enter();
        let mut signals = self.signals();
        // Asked again under the lock: the stream may have been destroyed meanwhile, behind its last mark.
        if signals.marked >= position || self.has_passed(position) {
            return Ok(());
        }
        if !self.can_be_marked()? {
            return Ok(());
        }
        if self.is_foreign() {
            self.put.fetch_max(position, Ordering::AcqRel);
        }
        let now = self.put.load(Ordering::Acquire);
        match &self.slot {
            // SAFETY: the stream is there while the lock is held, for it is retired behind it. Its slot stays until the track has ended.
            Some(slot) => unsafe { self.words().write_word(self.raw, slot.address, now) }?,
            None => {
                let mark = match signals.spare.pop() {
                    Some(event) => event,
                    None => self.backend().make_event()?,
                };
                // SAFETY: as above; the event is the track's own.
                if let Err(error) = unsafe { self.backend().record(mark, self.raw) } {
                    signals.spare.push(mark);
                    return Err(error);
                }
                signals.events.push_back((mark, now));
            }
        }
        signals.marked = now;
        Ok(())
    }

    /// [`mark`](Self::mark), unless an earlier mark is on its way: the next one, after that has passed, serves this position
    /// too. So a stream that works has one mark on its way, however much is released.
    pub(crate) fn mark_in_turn(&self, position: u64) -> Result<(), CallError> {
        let marked = self.signals().marked;
        if self.trust == Trust::Untold {
            return self.mark(position);
        }
        if marked > 0 && !self.has_passed(marked) { Ok(()) } else { self.mark(position) }
    }

    /// Asks the driver whether everything that was put in has been done, where that is not known.
    pub(crate) fn ask(&self) -> Result<(), CallError> {
        if !self.can_be_named() {
            return Ok(());
        }
        let now = self.edge();
        let _shared = self.hall.enter();
        // The stream is not destroyed by another thread while the lock is held.
        let _signals = self.signals();
        // The last mark of a stream that is gone tells of its end.
        if self.is_retired() || self.has_passed(now) || (self.is_foreign() && !self.can_be_marked()?) {
            return Ok(());
        }
        // Before the driver is asked: what others put in meanwhile is behind the next position.
        self.put.fetch_max(now, Ordering::AcqRel);
        // SAFETY: the stream is there while the lock is held, for it is retired behind it.
        if unsafe { self.backend().is_idle(self.raw) }? {
            self.note_passed(now);
        }
        Ok(())
    }

    /// Whether everything that was put in has been done, others' work too where they can be asked: not where the stream is another
    /// thread's, which may never ask again.
    pub(crate) fn is_quiet(&self) -> Result<bool, CallError> {
        self.refresh()?;
        let edge = self.edge();
        self.ask()?;
        Ok(self.has_passed(edge) || (self.is_idle() && self.is_foreign() && !self.can_be_marked()?))
    }

    /// Forgets what was waited for of a stream that has ended.
    pub(crate) fn forget(&self, ended: StreamId) {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner).remove(&ended);
    }

    /// Whether this stream can be told to wait for another: not where either is captured, or another thread's.
    pub(crate) fn can_wait_for(&self, other: &Self) -> Result<bool, CallError> {
        Ok(!other.is_retired() && other.can_be_named() && self.can_be_marked()? && other.can_be_marked()?)
    }

    /// Lets this stream's next work wait, on the device, until `other` has passed `position`. Whether it has to.
    pub(crate) fn wait_for(&self, other: &Track, position: u64) -> Result<bool, CallError> {
        if self.has_waited(other.id, position) || other.has_passed(position) {
            return Ok(false);
        }
        // Before the other's lock, which is held for moments.
        let mut waits = self.waits();
        let recorded = {
            let (_own, _shared) = (self.hall.enter(), other.hall.enter());
            // The context of this stream may have been destroyed meanwhile: then no work comes any more.
            if self.is_retired() {
                return Ok(false);
            }
            let mut signals = other.signals();
            // As in `mark`.
            if other.has_passed(position) {
                return Ok(false);
            }
            if signals.recorded < position {
                if other.is_foreign() {
                    other.put.fetch_max(position, Ordering::AcqRel);
                }
                let now = other.put.load(Ordering::Acquire);
                // SAFETY: the other stream is there while its lock is held: one that has retired has recorded its last position.
                unsafe { other.backend().record(signals.event(), other.raw) }?;
                signals.recorded = now;
            }
            // SAFETY: whoever puts work in holds this stream; the event is the other track's, which ends behind its lock.
            unsafe { self.backend().hold(self.raw, signals.event()) }?;
            signals.recorded
        };
        self.note_waited(other.id, recorded);
        *waits += 1;
        Ok(true)
    }

    /// [`wait_for`](Self::wait_for) the end of a transfer that the host tells of. A stream that awaits no words is held up by the
    /// host, which waits here.
    pub(crate) fn wait_for_lane(&self, lanes: &Lanes, mark: Mark) -> Result<bool, CallError> {
        let (lane, position) = (lanes.of(mark.stream), mark.position);
        if self.has_waited(mark.stream, position) || lane.has_passed(position) {
            return Ok(false);
        }
        let Some(address) = lane.address() else {
            lanes.wait(mark);
            return Ok(false);
        };
        let mut waits = self.waits();
        {
            let _own = self.hall.enter();
            // As above.
            if self.is_retired() {
                return Ok(false);
            }
            // SAFETY: whoever puts work in holds this stream. The words of lanes stay as long as the device.
            unsafe { self.words().wait_word(self.raw, address, position) }?;
        }
        self.note_waited(mark.stream, position);
        *waits += 1;
        Ok(true)
    }

    /// Notes that this stream's next work comes after `position` of another.
    fn note_waited(&self, other: StreamId, position: u64) {
        // The wait has a position like work: a mark of this stream's tells of the other's only behind it. Whoever finds it
        // in the list finds it counted.
        self.count();
        let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waited.entry(other).or_insert(0);
        *entry = position.max(*entry);
    }

    /// Whether this stream's next work comes after `position` of another, or of itself.
    pub(crate) fn has_waited(&self, other: StreamId, position: u64) -> bool {
        other == self.id
            || self
                .waited
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&other)
                .is_some_and(|&waited| waited >= position)
    }

    /// How many waits were put in. None is while the guard lives: who puts one in adds one to it, behind the count of its position.
    pub(crate) fn waits(&self) -> MutexGuard<'_, u64> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits on the host until everything that was put in so far is done. For who holds the stream: it is not destroyed
    /// meanwhile.
    pub(crate) fn synchronize(&self) -> Result<(), CallError> {
        let now = self.put.load(Ordering::Acquire);
        let _shared = self.hall.enter();
        if !self.has_passed(now) {
            // SAFETY: whoever calls this holds the stream, and the context is not destroyed while it is shared.
            unsafe { self.backend().wait_until_idle(self.raw) }?;
            self.note_passed(now);
        }
        Ok(())
    }

    /// Waits on the host until the stream has nothing left, neither to do nor to wait for. For who holds the stream.
    pub(crate) fn rest(&self) -> Result<(), CallError> {
        let now = self.put.load(Ordering::Acquire);
        let _shared = self.hall.enter();
        // SAFETY: as in `synchronize`.
        unsafe { self.backend().wait_until_idle(self.raw) }?;
        self.note_passed(now);
        Ok(())
    }

    /// Waits on the host until the device has come to `position`.
    pub(crate) fn wait_on_host(&self, position: u64) -> Result<(), CallError> {
        if self.has_passed(position) {
            return Ok(());
        }
        let _shared = self.hall.enter();
        let (event, recorded) = {
            let mut signals = self.signals();
            if self.has_passed(position) {
                return Ok(());
            }
            if signals.recorded < position {
                let now = self.put.load(Ordering::Acquire);
                // SAFETY: the stream is there while the lock is held: one that has retired has recorded its last position.
                unsafe { self.backend().record(signals.event(), self.raw) }?;
                signals.recorded = now;
            }
            signals.waiters += 1;
            (signals.event(), signals.recorded)
        };
        // SAFETY: a track with waiters does not end, and so keeps its event.
        let waited = unsafe { self.backend().wait(event) };
        self.signals().waiters -= 1;
        waited?;
        self.note_passed(recorded);
        Ok(())
    }

    /// Waits on the host until a mark at `position`, which is on its way, has passed. What was put in behind the mark, which may
    /// wait for the caller itself, is not waited for.
    pub(crate) fn await_mark(&self, position: u64) -> Result<(), CallError> {
        let mut looked = 0_u32;
        while !self.has_passed(position) {
            looked = looked.wrapping_add(1);
            // A word is looked at for nothing. The driver is asked seldom: a device that has failed says so, and writes no word
            // any more.
            if self.slot.is_none() || looked.is_multiple_of(ASKED_EVERY) {
                self.refresh()?;
                let _shared = self.hall.enter();
                let event = self.signals().event;
                if let Some(event) = event {
                    // SAFETY: the track has a mark on its way, and so has not ended: its event is there.
                    unsafe { self.backend().has_passed(event) }?;
                }
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Notes that others are told the handle.
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

    /// Destroys the stream. Its work goes on (fact 2.3): the last mark and the event behind it tell of its end.
    pub(crate) fn retire(&self) -> Result<(), CallError> {
        let _shared = self.hall.enter();
        if self.is_retired() {
            return Ok(());
        }
        let mut now = self.next();
        let mut signals = loop {
            self.mark_named(now)?;
            let signals = self.signals();
            // Who asked meanwhile how far the stream has come moved its edge: the last mark is behind that.
            if self.put.load(Ordering::Acquire) <= now {
                break signals;
            }
            now = self.next();
        };
        if signals.recorded < now && !self.has_passed(now) {
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

    /// Notes that the private pool is released, and all work that used it is done.
    pub(crate) fn release_capture(&self) {
        self.note_passed(POOL_RELEASED);
        self.lose();
    }

    /// Notes that the stream is gone, as others turned out to have destroyed it. Its marks tell of its end.
    pub(crate) fn lose(&self) {
        let _signals = self.signals();
        self.retired.store(true, Ordering::Release);
    }

    /// Destroys the events of a track that has ended. Nothing asks the device about it from then on.
    pub(crate) fn end(&self) -> Result<Option<&Slot>, CallError> {
        let _shared = self.hall.enter();
        let mut signals = self.signals();
        while let Some(spare) = signals.spare.last().copied().or(signals.events.front().map(|&(event, _)| event)) {
            // SAFETY: the event is the track's own, and nobody's any more.
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
        signals.marked = FOREVER;
        self.note_passed(FOREVER);
        Ok(self.slot.as_ref())
    }

    /// Notes that the context goes, and with it the stream and its events.
    pub(crate) fn end_with_context(&self) {
        let mut signals = self.signals();
        signals.recorded = FOREVER;
        signals.marked = FOREVER;
        signals.event = None;
        signals.events.clear();
        signals.spare.clear();
        self.retired.store(true, Ordering::Release);
        self.note_passed(FOREVER);
    }

    fn backend(&self) -> &dyn Backend {
        &*self.hall.backend
    }

    /// For who has seen that there are some.
    fn words(&self) -> &dyn Words {
        self.backend().words().expect("streams and lanes have words where the device writes them")
    }

    pub(crate) fn hall(&self) -> &Arc<Hall> {
        &self.hall
    }

    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.slot.as_ref()
    }

    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
