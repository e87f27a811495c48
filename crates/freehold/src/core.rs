//! What all handles of a device share: the driver, the ledger, the tracks of the streams.
//!
//! The books are locked for moments, never while the driver is called.

use std::collections::{BTreeMap, HashMap};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use freehold_driver::handle::{self, Event};
use freehold_driver::{Backend, CallError};

use crate::counters::{Counters, Slot};
use crate::error::{Error, Result};
use crate::fault::{Fault, Suspect};
use crate::fork::Family;
use crate::holding::Holding;
use crate::lane::{Lane, Lanes};
use crate::later::Later;
use crate::ledger::{BlockId, ContextId, Kind, Ledger, Mark, NotEntered, Owner, State, StreamId, WrongRelease};
use crate::pool::record::{Seen, Stage};
use crate::pool::{Pool, Totals};
use crate::staging::Staging;
use crate::stream::Stream;
use crate::tags::{Full, Tags};
use crate::timeline::Timeline;
use crate::track::{ThreadId, Track, Trust};
use crate::uses::Access;

/// The primary context of the device.
pub(crate) const PRIMARY: ContextId = ContextId(0);

/// How many failures of drops are kept until somebody asks for them: the first ones, which say most.
const TROUBLES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Core {
    /// The primary context, kept for as long as this lives, or one of other people's that serves in its place.
    pub(crate) backend: Arc<dyn Backend>,
    /// Whether the host reaches the memory of blocks where the device does, once somebody has asked.
    pub(crate) is_host_visible: OnceLock<bool>,
    pub(crate) process: u32,
    opened: Instant,
    /// Who owns what is not of the pool.
    ledger: Mutex<Ledger>,
    tracks: Mutex<Tracks>,
    /// Who is lent memory, and is no stream.
    pub(crate) lanes: Lanes,
    pub(crate) counters: Counters,
    pub(crate) staging: Staging,
    /// What waits until nothing of its context is pending.
    pub(crate) later: Mutex<Vec<Later>>,
    fault: OnceLock<Arc<Fault>>,
    /// The names of kernels by number, for faults.
    kernels: Mutex<Vec<Arc<str>>>,
    /// What failed in drops, which have nobody to tell.
    troubles: Mutex<Vec<Error>>,
    contexts: AtomicU32,
    pub(crate) tags: Tags,
    pub(crate) timeline: Timeline,
    pub(crate) pool: Pool,
    /// The pool of blocks that other processes can have.
    pub(crate) shareable: OnceLock<Pool>,
    /// Blocks that other people's code has by their addresses.
    let_go: Mutex<HashMap<u64, Holding>>,
}

#[derive(Debug, Default)]
pub(crate) struct Tracks {
    last: u32,
    pub(crate) live: BTreeMap<StreamId, Arc<Track>>,
}

/// A context and what guards it.
#[derive(Debug)]
pub(crate) struct Hall {
    pub(crate) id: ContextId,
    pub(crate) backend: Arc<dyn Backend>,
    /// Held shared while work is put into a stream of the context, and alone while a call is made that waits for all work:
    /// such a call is made only where none is pending.
    pub(crate) gate: RwLock<()>,
    /// Written with the gate held alone.
    pub(crate) is_destroyed: AtomicBool,
}

impl Hall {
    pub(crate) fn new(id: ContextId, backend: Arc<dyn Backend>) -> Self {
        Self { id, backend, gate: RwLock::new(()), is_destroyed: AtomicBool::new(false) }
    }

    /// Keeps the context from being destroyed until the guard is dropped. The gate is never waited for by who wants it
    /// alone, so that a thread may enter twice.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Takes a context over, and closes it when it goes, or cannot be.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        let core = Self::over(backend.clone());
        // SAFETY: whoever hands a context over does not use it any more, and what was made of it here is gone.
        core.or_else(|error| unsafe { backend.close() }.map_err(Error::from).and(Err(error)))
    }

    fn over(backend: Arc<dyn Backend>) -> Result<Self> {
        let family = Family::new().map_err(|error| Error::System { kind: error.kind() })?;
        let pool = Pool::new(backend.clone(), family)?;
        Ok(Self {
            backend,
            is_host_visible: OnceLock::new(),
            process: std::process::id(),
            opened: Instant::now(),
            ledger: Mutex::default(),
            tracks: Mutex::default(),
            lanes: Lanes::default(),
            counters: Counters::default(),
            staging: Staging::default(),
            later: Mutex::default(),
            fault: OnceLock::new(),
            kernels: Mutex::default(),
            troubles: Mutex::default(),
            contexts: AtomicU32::new(1),
            tags: Tags::default(),
            timeline: Timeline::default(),
            pool,
            shareable: OnceLock::new(),
            let_go: Mutex::default(),
        })
    }

    /// Whether streams write words.
    pub(crate) fn writes_words(&self) -> bool {
        self.backend.words().is_some()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the device was opened.
    pub(crate) fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Refuses a call in a forked child, and after a fault.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_child() {
            return Err(Error::ForkedChild { process: self.process });
        }
        match self.fault.get() {
            None => Ok(()),
            Some(fault) => Err(Error::Faulted(fault.clone())),
        }
    }

    /// Whether the driver can be called at all: not in a forked child, and not after a fault.
    #[inline]
    pub(crate) fn is_good(&self) -> bool {
        self.pool.book.family.is_well()
    }

    pub(crate) fn is_child(&self) -> bool {
        self.pool.book.family.is_child()
    }

    /// What a refused call means. The first fault that stays is kept, with the kernels that may have made it.
    pub(crate) fn failed(&self, error: CallError) -> Error {
        if !error.stays() {
            return Error::Call(error);
        }
        self.failed_for_good(error)
    }

    fn failed_for_good(&self, error: CallError) -> Error {
        let fault = self.fault.get_or_init(|| Arc::new(self.fault_of(error)));
        self.pool.book.family.note_failure();
        Error::Faulted(fault.clone())
    }

    /// What it means that the driver twice refused to wait: whether the device still uses memory of the host nobody can tell,
    /// so that it is taken for failed, whatever the code.
    pub(crate) fn lost(&self, error: CallError) -> Error {
        self.failed_for_good(error)
    }

    fn fault_of(&self, noticed: CallError) -> Fault {
        let names = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut suspects, mut unnamed) = (Vec::new(), 0);
        for track in self.tracks().live.values() {
            let (launches, forgotten) = track.pending_launches();
            unnamed += forgotten;
            suspects.extend(launches.into_iter().map(|(position, kernel)| Suspect {
                kernel: names[kernel as usize].clone(),
                stream: track.id,
                position,
            }));
        }
        Fault { noticed, details: self.backend.fault(), suspects, unnamed }
    }

    /// A number for a kernel's name.
    pub(crate) fn number_kernel(&self, name: &Arc<str>) -> u32 {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let number = kernels.iter().position(|known| known == name).unwrap_or_else(|| {
            kernels.push(name.clone());
            kernels.len() - 1
        });
        u32::try_from(number).expect("a program has fewer kernels than a u32 counts")
    }

    /// Keeps what went wrong in a drop.
    pub(crate) fn trouble(&self, error: Error) {
        tracing::warn!(target: "freehold", %error, "a drop failed");
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() < TROUBLES_MAX {
            troubles.push(error);
        }
    }

    pub(crate) fn take_troubles(&self) -> Vec<Error> {
        std::mem::take(&mut *self.troubles.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn next_context(&self) -> ContextId {
        ContextId(self.contexts.fetch_add(1, Ordering::Relaxed))
    }

    // Streams.

    /// Makes a stream and its track.
    pub(crate) fn add_stream(&self, hall: &Arc<Hall>) -> Result<Arc<Track>> {
        let make = || crate::stream::make(&*hall.backend);
        self.add_track(make, |id, made, slot| Track::new(id, hall.clone(), made, slot))
    }

    /// Makes the track of a stream that others made.
    pub(crate) fn add_foreign_stream(
        &self,
        raw: handle::Stream,
        thread: Option<ThreadId>,
        trust: Trust,
    ) -> Result<Arc<Track>> {
        let make = || Ok((raw, self.backend.make_event()?));
        let hall = Arc::new(Hall::new(PRIMARY, self.backend.clone()));
        self.add_track(make, |id, made, slot| Track::foreign(id, hall, made, slot, thread, trust))
    }

    /// Makes a track of what `make` makes, with a word where streams write them.
    fn add_track(
        &self,
        make: impl FnOnce() -> std::result::Result<(handle::Stream, Event), CallError>,
        track: impl FnOnce(StreamId, (handle::Stream, Event), Option<Slot>) -> Track,
    ) -> Result<Arc<Track>> {
        let slot = match self.backend.words() {
            Some(words) => Some(self.counters.take(words).map_err(|error| self.failed(error))?),
            None => None,
        };
        let made = match make() {
            Ok(made) => made,
            Err(error) => {
                if let Some(slot) = &slot {
                    self.counters.give_back(slot);
                }
                return Err(self.failed(error));
            }
        };
        let mut tracks = self.tracks();
        tracks.last += 1;
        let id = StreamId(tracks.last);
        let track = Arc::new(track(id, made, slot));
        tracks.live.insert(id, track.clone());
        Ok(track)
    }

    pub(crate) fn track(&self, id: StreamId) -> Option<Arc<Track>> {
        self.tracks().live.get(&id).cloned()
    }

    pub(crate) fn tracks_of(&self, context: ContextId) -> Vec<Arc<Track>> {
        self.tracks().live.values().filter(|track| track.context == context).cloned().collect()
    }

    /// Everything that was put into streams of all contexts so far, and all that was lent.
    pub(crate) fn marks_of_all(&self) -> Vec<Mark> {
        let mut marks: Vec<_> = self.tracks().live.values().map(|track| track.now()).collect();
        marks.extend(self.lanes.marks());
        marks
    }

    /// Whether the device has come to a mark, without asking the driver. A track that is gone has passed everything.
    pub(crate) fn has_passed(&self, mark: Mark) -> bool {
        if Lane::is_of_one(mark.stream) {
            return self.lanes.of(mark.stream).has_passed(mark.position);
        }
        self.track(mark.stream).is_none_or(|track| track.has_passed(mark.position))
    }

    /// Waits on the host until the device, or who was lent memory, has come to a mark.
    pub(crate) fn wait_for_mark(&self, mark: Mark) -> Result<()> {
        if Lane::is_of_one(mark.stream) {
            self.lanes.wait(mark);
        } else if let Some(track) = self.track(mark.stream) {
            track.wait_on_host(mark.position).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// As [`wait_for_mark`](Self::wait_for_mark), where the mark is on its way, and for no more than that.
    pub(crate) fn await_mark(&self, mark: Mark) -> Result<()> {
        match self.track(mark.stream) {
            Some(track) => track.await_mark(mark.position).map_err(|error| self.failed(error)),
            None => self.wait_for_mark(mark),
        }
    }

    /// A lane that serves nobody.
    pub(crate) fn take_lane(&self) -> Result<Arc<Lane>> {
        self.lanes.take(&self.counters, self.backend.words()).map_err(|error| self.failed(error))
    }

    /// Sees to it that the host will hear of these.
    pub(crate) fn mark(&self, marks: &[Mark]) -> Result<()> {
        self.mark_each(marks).map_err(|error| self.failed(error))
    }

    /// Sees to it that the host will hear of these sooner or later: at once where no mark is on its way, else with the next
    /// one, which a later release makes, or a request that finds nothing.
    pub(crate) fn mark_in_turn(&self, marks: &[Mark]) -> Result<()> {
        self.mark_each_in_turn(marks).map_err(|error| self.failed(error))
    }

    /// As [`mark`](Self::mark), for the pool, which knows calls only.
    pub(crate) fn mark_each(&self, marks: &[Mark]) -> std::result::Result<(), CallError> {
        self.at_each(marks, Track::mark)
    }

    /// As [`mark_in_turn`](Self::mark_in_turn), for the pool.
    pub(crate) fn mark_each_in_turn(&self, marks: &[Mark]) -> std::result::Result<(), CallError> {
        self.at_each(marks, Track::mark_in_turn)
    }

    /// Calls `act` for each mark whose track is still there.
    fn at_each(
        &self,
        marks: &[Mark],
        act: impl Fn(&Track, u64) -> std::result::Result<(), CallError>,
    ) -> std::result::Result<(), CallError> {
        let there = marks.iter().filter_map(|mark| Some((self.track(mark.stream)?, mark.position)));
        there.into_iter().try_for_each(|(track, position)| act(&track, position))
    }

    /// Asks the driver how far streams have come, on a device that writes no words. For the pool, as the two below.
    pub(crate) fn refresh_tracks(&self) -> std::result::Result<(), CallError> {
        if self.writes_words() { Ok(()) } else { self.each_track(Track::refresh) }
    }

    /// Asks the driver how far all streams have come.
    pub(crate) fn ask_tracks(&self) -> std::result::Result<(), CallError> {
        self.each_track(Track::ask)
    }

    /// Calls `act` for each track, without the lock of their list.
    fn each_track(
        &self,
        act: impl Fn(&Track) -> std::result::Result<(), CallError>,
    ) -> std::result::Result<(), CallError> {
        let tracks: Vec<_> = self.tracks().live.values().cloned().collect();
        tracks.iter().try_for_each(|track| act(track))
    }

    /// As [`each_track`](Self::each_track), outside of the pool.
    pub(crate) fn for_all_tracks(&self, act: impl Fn(&Track) -> std::result::Result<(), CallError>) -> Result<()> {
        self.each_track(act).map_err(|error| self.failed(error))
    }

    /// Whether the device has come to a mark, asking the driver if need be.
    pub(crate) fn has_passed_by_now(&self, mark: Mark) -> Result<bool> {
        if let Some(track) = self.track(mark.stream)
            && !track.has_passed(mark.position)
        {
            track.ask().map_err(|error| self.failed(error))?;
        }
        Ok(self.has_passed(mark))
    }

    /// Waits for all work of all streams.
    pub(crate) fn synchronize_all(&self) -> Result<()> {
        self.check()?;
        self.for_all_tracks(|track| track.wait_on_host(track.now().position))
    }

    pub(crate) fn tracks(&self) -> MutexGuard<'_, Tracks> {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Blocks by their addresses.

    /// Gives a block that nobody owns any more to its pool, in the order of its own stream and behind marks.
    pub(crate) fn put_back(&self, pool: &Pool, record: u32, marks: &[Mark]) {
        let own = StreamId(pool.book.records.at(record).stream());
        // A track that is gone has passed everything.
        pool.put(record, self.track(own).as_deref(), marks);
    }

    /// Who owns the block that an address lies in.
    pub(crate) fn owner_of(&self, address: u64) -> Option<Owner> {
        match self.seen_at(address) {
            Some((pool, record, seen)) => Some(self.owner(pool, record, seen)),
            None => self.ledger().owner_of(address),
        }
    }

    /// Refuses a span that meets the addresses of a pool: all memory there is the pool's own.
    pub(crate) fn check_beside_pools(&self, base: u64, bytes: u64) -> std::result::Result<(), NotEntered> {
        let end = base.saturating_add(bytes);
        match self.pools().find_map(|pool| pool.supply.first_within(base..end)) {
            None => Ok(()),
            Some(address) => {
                Err(NotEntered::OfPool { base, bytes, address, block: self.owner_of(address).map(Box::new) })
            }
        }
    }

    fn seen_at(&self, address: u64) -> Option<(&Pool, u32, Seen)> {
        self.pools().find_map(|pool| pool.seen_at(address).map(|(record, seen)| (pool, record, seen)))
    }

    /// Who owns a block of a pool, while one ownership of it lasts.
    pub(crate) fn owner_of_record(&self, pool: &Pool, record: u32, generation: u64) -> Option<Owner> {
        pool.book.records.at(record).owned_as(generation).map(|seen| self.owner(pool, record, seen))
    }

    /// All blocks of our own that somebody has, by address.
    pub(crate) fn owned(&self) -> Vec<Owner> {
        let of_pool = |pool| move |(record, seen)| self.owner(pool, record, seen);
        let pooled = self.pools().flat_map(|pool| pool.owned().into_iter().map(of_pool(pool)));
        let mut owned: Vec<_> = pooled.chain(self.ledger().owned()).collect();
        owned.sort_unstable_by_key(|owner| owner.base);
        owned
    }

    fn owner(&self, pool: &Pool, record: u32, seen: Seen) -> Owner {
        let number = pool.number_of(record);
        let state = match seen.state.stage() {
            Stage::Owned => State::Owned,
            Stage::Waiting => State::Released { waiting_for: seen.waiting_for },
            Stage::Parked | Stage::Vacant | Stage::Ended => State::Free,
        };
        Owner {
            base: seen.base,
            bytes: seen.bytes,
            context: pool.context_of(seen.lot),
            stream: Some(StreamId(seen.stream)),
            process: self.process,
            kind: Kind::Own,
            tag: seen.described.and_then(|described| self.tags.name(described.tag, number)),
            allocated_at: seen.described.map_or(Location::caller(), |described| described.allocated_at),
            state,
            block: BlockId::of_pool(number, seen.state.generation() as u32),
        }
    }

    /// Whether a release of an address would be right, and if not, what is wrong with it.
    pub(crate) fn releasable(&self, address: u64) -> std::result::Result<Owner, WrongRelease> {
        if let Some((pool, record, seen)) = self.seen_at(address)
            && seen.state.stage() == Stage::Owned
        {
            let of = self.owner(pool, record, seen);
            let offset_bytes = address - of.base;
            return if offset_bytes == 0 {
                Ok(of)
            } else {
                Err(WrongRelease::Interior { of: Box::new(of), offset_bytes })
            };
        }
        let Some(gone) = self.pools().find_map(|pool| pool.gone_at(address)) else {
            let ledger = self.ledger();
            let block = ledger.releasable(address)?;
            let of = ledger.owner(block).expect("a block that can be released has an owner");
            return Err(WrongRelease::Held { of: Box::new(of) });
        };
        let (base, bytes, offset_bytes) = (gone.base, gone.bytes, address - gone.base);
        let described = gone.described;
        let allocated_at = described.map_or(Location::caller(), |described| described.allocated_at);
        let when = described.and_then(|described| described.released);
        Err(match when {
            Some(when) if gone.is_ended => {
                WrongRelease::ContextDestroyed { base, bytes, allocated_at, when, offset_bytes }
            }
            _ => {
                let released_at = described.and_then(|described| described.released_at);
                WrongRelease::AlreadyReleased { base, bytes, allocated_at, released_at, when, offset_bytes }
            }
        })
    }

    /// How much memory there is in which state.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.pools().for_each(|pool| pool.add_to(&mut totals));
        let vectors = self.ledger().totals();
        totals.reserved_bytes = self.pool.supply.reserved_bytes();
        let taken_bytes = totals.owned_bytes + totals.released_bytes + vectors.held_bytes;
        totals.cached_bytes = totals.reserved_bytes.saturating_sub(taken_bytes);
        totals.owned_blocks += vectors.owned_blocks;
        totals.owned_bytes += vectors.owned_bytes;
        totals.released_blocks += vectors.released_blocks + vectors.free_blocks;
        totals.released_bytes += vectors.released_bytes + vectors.free_bytes;
        totals
    }

    /// Counts bytes for a name, unless that is more than it may have.
    pub(crate) fn charge(&self, tag: Option<&str>, wanted_bytes: u64) -> Result<u32> {
        self.tags.charge(tag, wanted_bytes).map_err(|full| budget_full(full, wanted_bytes))
    }

    /// Counts more bytes for a block that has a tag already, unless that is more than its name may have.
    pub(crate) fn charge_more(&self, tag: u32, wanted_bytes: u64) -> Result<()> {
        self.tags.charge_more(tag, wanted_bytes).map_err(|full| budget_full(full, wanted_bytes))
    }

    /// Why so many bytes of a pool cannot be had.
    pub(crate) fn short_of(&self, pool: &Pool, wanted_bytes: u64) -> Error {
        match self.shortage(pool, wanted_bytes) {
            Ok(shortage) => Error::OutOfMemory(Box::new(shortage)),
            Err(error) => error,
        }
    }

    pub(crate) fn let_go(&self, holding: Holding) -> u64 {
        let address = holding.address;
        let mut let_go = self.let_go_of();
        // A block that went with its context is nobody's any more, and its address may be another's.
        if !holding.home.context.inner.is_closed() {
            let_go.insert(address, holding);
        }
        address
    }

    /// Takes a block back by its address, or says why that cannot be.
    pub(crate) fn taken(&self, address: u64) -> Result<Holding> {
        if self.is_child() {
            return Err(WrongRelease::ForkedChild { address, process: self.process }.into());
        }
        self.check()?;
        self.releasable(address)?;
        let holding = self.let_go_of().remove(&address);
        holding.ok_or_else(|| self.held(address))
    }

    /// Notes a use of a block that was let go of.
    pub(crate) fn note_use(&self, address: u64, stream: &Stream) -> Result<()> {
        self.releasable(address)?;
        let position = stream.home.track.count();
        if let Some(holding) = self.let_go_of().get(&address) {
            holding.uses.note_unordered(Mark { stream: stream.home.track.id, position }, Access::Write);
            return Ok(());
        }
        Err(self.held(address))
    }

    /// Forgets the blocks of a context that is closed. They would keep the device, which keeps them, and be taken for later
    /// ones at their addresses.
    pub(crate) fn forget_let_go(&self, context: ContextId) {
        let gone: Vec<_> = self
            .let_go_of()
            .extract_if(|_, holding| holding.home.context.id() == context)
            .map(|(_, gone)| gone)
            .collect();
        drop(gone);
    }

    /// Why a block that nobody let go of is not released by its address. Another thread may have released it just now.
    fn held(&self, address: u64) -> Error {
        match self.releasable(address) {
            Err(wrong) => wrong.into(),
            Ok(of) => WrongRelease::Held { of: Box::new(of) }.into(),
        }
    }

    fn let_go_of(&self) -> MutexGuard<'_, HashMap<u64, Holding>> {
        self.let_go.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn budget_full(full: Full, wanted_bytes: u64) -> Error {
    let Full { tag, live_bytes, budget_bytes } = full;
    Error::BudgetFull { tag, wanted_bytes, live_bytes, budget_bytes }
}

impl Drop for Core {
    /// Gives back what the device's handles shared, where nothing is pending. What is pending stays as it is until the
    /// process ends: nothing here waits.
    fn drop(&mut self) {
        if !self.is_good() || self.tidy().is_err() {
            return;
        }
        if self.has_later() || !self.tracks().live.is_empty() {
            return;
        }
        let hall = Hall::new(PRIMARY, self.backend.clone());
        if self.trim(&hall, 0).is_err() || self.totals().reserved_bytes > 0 {
            return;
        }
        for pool in self.pools() {
            if pool.supply.free_addresses().is_err() {
                return;
            }
        }
        if let Some(words) = self.backend.words() {
            // SAFETY: every slot was of a track, and there are none any more.
            let freed = unsafe { self.counters.free(words) };
            if freed.is_err() {
                return;
            }
        }
        // A failure leaves the context to the end of the process, like all the returns above.
        // SAFETY: nothing is left that uses it: this is the last of what held it.
        if let Err(error) = unsafe { self.backend.close() } {
            tracing::warn!(target: "freehold", %error, "the primary context was not released");
        }
    }
}
