//! Memory for other people's code: by the number of a device, the handle of a stream, and an address. What the C interface
//! is made of.
//!
//! Streams here belong to others. The library learns of one when it is first named, trusts its handle from then on, and is
//! told with [`ForeignPool::retire`] before it is destroyed, because the driver gives its handle to another stream later (fact 2.5). A
//! checked foreign pool asks the driver for the stream's id each time instead.

mod capture;
mod captures;
mod resize;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::panic::catch_unwind;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::cuda::CUstream;
use freehold_driver::{ForeignStreams, Pattern, StreamCapture, handle};

use self::captures::Captures;
use crate::api::device::Device;
use crate::device::alloc_slow;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ledger::{Fence, Owner, WrongRelease};
use crate::ordering::stream_origin::{StreamOrigin, ThreadId};
use crate::ordering::stream_state::StreamState;
use crate::pool::block_meta::{BlockMeta, BlockState, StateWord};
use crate::pool::{AllocError, BLOCKS_MAX, CacheKey, Pool};

pub use self::captures::PoolId;

/// A device as other people's code sees it. There is one for each number, for the whole of a process.
pub struct ForeignPool {
    device: Arc<DeviceInner>,
    ordinal: i32,
    /// Whether a stream is known by its id, not by its handle.
    is_checked: bool,
    streams: Mutex<HashMap<Name, Arc<StreamState>>>,
    /// Whether each capture is announced before it begins.
    is_announced: AtomicBool,
    captures: Mutex<Captures>,
    /// The streams that use a block beside its own, by its meta.
    uses: Mutex<HashMap<u32, Vec<Arc<StreamState>>>>,
    /// The names that blocks count for, by their records. These say that others use them, so that their release comes to where
    /// this is looked at.
    tagged: Mutex<HashMap<u32, u32>>,
}

impl fmt::Debug for ForeignPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignPool")
            .field("ordinal", &self.ordinal)
            .field("is_checked", &self.is_checked)
            .finish_non_exhaustive()
    }
}

/// What a thread may keep.
const IN_MAGAZINES: RangeInclusive<u64> = 1..=1 << 40;

/// What a stream is known by: its handle, or its id. The default stream of a thread is another for each.
type Name = (u64, Option<ThreadId>);

/// What is asked where the warm path has nothing: bytes or an address, the number of the foreign pool, and a stream.
pub type Otherwise<R> = extern "C" fn(u64, i32, CUstream) -> R;

/// Memory that this thread keeps for a stream of the foreign pool of this number, as [`ForeignPool::alloc`]. Where it keeps none, the device
/// has failed or the foreign pool is checked, what `otherwise` says, which is asked with the same arguments.
///
/// To ask it is the last thing that is done, and nothing unwinds, so that nothing has to be put aside for either.
///
/// # Safety
/// As for [`open::foreign_pool`](crate::open::foreign_pool).
pub unsafe extern "C" fn alloc_kept(bytes: u64, ordinal: i32, stream: CUstream, otherwise: Otherwise<u64>) -> u64 {
    if !IN_MAGAZINES.contains(&bytes) {
        return otherwise(bytes, ordinal, stream);
    }
    match Pool::try_alloc_cached(CacheKey::foreign(ordinal, stream.0 as u64), bytes) {
        Some(taken) => taken.base,
        None => alloc_fetched(bytes, ordinal, stream, otherwise),
    }
}

/// As [`alloc_kept`], where nothing is kept that fits: it is fetched of the stream's heap.
#[inline(never)]
extern "C" fn alloc_fetched(bytes: u64, ordinal: i32, stream: CUstream, otherwise: Otherwise<u64>) -> u64 {
    let key = CacheKey::foreign(ordinal, by_one_name(stream).0 as u64);
    // Nothing unwinds into C: what went wrong here goes wrong again where it is told of.
    match catch_unwind(|| Pool::refill(key, bytes)) {
        Ok(Some(taken)) => taken.base,
        Ok(None) | Err(_) => otherwise(bytes, ordinal, stream),
    }
}

/// Lets this thread keep memory in the order of a stream of the foreign pool of this number, as [`ForeignPool::free`]: zero. Where it cannot,
/// what `otherwise` says, which is asked with the same arguments.
///
/// # Safety
/// As for [`open::foreign_pool`](crate::open::foreign_pool).
pub unsafe extern "C" fn free_kept(address: u64, ordinal: i32, stream: CUstream, otherwise: Otherwise<i32>) -> i32 {
    if Pool::try_free_cached(CacheKey::foreign(ordinal, stream.0 as u64), address) {
        return 0;
    }
    free_making_room(address, ordinal, stream, otherwise)
}

/// As [`free_kept`], where there is no room: it is made.
#[inline(never)]
extern "C" fn free_making_room(address: u64, ordinal: i32, stream: CUstream, otherwise: Otherwise<i32>) -> i32 {
    let key = CacheKey::foreign(ordinal, by_one_name(stream).0 as u64);
    match catch_unwind(|| Pool::try_free_local(key, address)) {
        Ok(true) => 0,
        Ok(false) | Err(_) => otherwise(address, ordinal, stream),
    }
}

fn is_legacy(stream: CUstream) -> bool {
    stream == CUstream::NULL || stream == CUstream::LEGACY
}

/// The legacy default stream has two names, of which its magazines are found by one: the warm path does not know the other.
fn by_one_name(stream: CUstream) -> CUstream {
    if stream == CUstream::LEGACY { CUstream::NULL } else { stream }
}

/// The thread whose default stream a handle names.
fn thread_of(stream: CUstream) -> Option<ThreadId> {
    (stream == CUstream::PER_THREAD).then(ThreadId::current)
}

impl ForeignPool {
    pub(crate) fn new(device: &Device, ordinal: i32, is_checked: bool) -> Self {
        let device = device.primary.inner.device.clone();
        Self {
            device,
            ordinal,
            is_checked,
            streams: Mutex::default(),
            is_announced: AtomicBool::new(false),
            captures: Mutex::default(),
            uses: Mutex::default(),
            tagged: Mutex::default(),
        }
    }

    /// Memory for work in a stream, used again where it can be.
    ///
    /// # Errors
    /// [`Error::NothingAsked`] for no bytes, [`Error::Short`] where there is not so much.
    #[inline]
    pub fn alloc(&self, bytes: u64, stream: CUstream) -> Result<u64> {
        let key = CacheKey::foreign(self.ordinal, stream.0 as u64);
        match Some(bytes)
            .filter(|bytes| IN_MAGAZINES.contains(bytes))
            .and_then(|bytes| Pool::try_alloc_local(key, bytes))
        {
            Some(taken) => Ok(taken.base),
            None => self.alloc_unkept(bytes, stream),
        }
    }

    /// Takes memory back in the order of a stream: work that was put into it before may still use the block.
    ///
    /// # Errors
    /// [`Error::WrongRelease`], which says which wrong it is; the block at the address is as it was.
    #[inline]
    pub fn free(&self, address: u64, stream: CUstream) -> Result<()> {
        let is_kept = Pool::try_free_local(CacheKey::foreign(self.ordinal, stream.0 as u64), address);
        if is_kept { Ok(()) } else { self.free_unkept(address, stream) }
    }

    /// As [`alloc`](Self::alloc), of zeros: they are written in the order of the stream.
    pub fn alloc_zeroed(&self, bytes: u64, stream: CUstream) -> Result<u64> {
        let base = self.alloc(bytes, stream)?;
        // SAFETY: the block was just handed out in the order of this stream, for which its user vouches.
        let filled = unsafe { self.device.backend.fill(base, Pattern::U8(0), bytes as usize, stream.into()) };
        match filled {
            Ok(()) => Ok(base),
            Err(error) => self.free(base, stream).and(Err(self.device.failed(error))),
        }
    }

    /// As [`alloc`](Self::alloc), under a name that has it counted until it is freed. That takes a lock, and so does the release.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc), and [`Error::BudgetFull`] where the name, or one that it is within, may not have so much.
    pub fn alloc_tagged(&self, bytes: u64, stream: CUstream, tag: &str) -> Result<u64> {
        self.device.check()?;
        let number = self.device.charge(Some(tag), bytes)?;
        let discharge = |_: &Error| self.device.tags.discharge(number, u32::MAX, bytes);
        let base = self.alloc(bytes, stream).inspect_err(discharge)?;
        let meta = self.device.pool.table.meta_at(base).expect("a block that was just handed out has a meta");
        self.device.tags.name_uncounted(number, meta.number(), Some(tag));
        // In the list before the meta says that there is something.
        self.tagged().insert(meta.number(), number);
        meta.note_used_in_other_stream(base).expect("nobody else knows the block yet");
        Ok(base)
    }

    /// Says how much may be live under a name, and those within it, from now on.
    ///
    /// # Errors
    /// [`Error::TooManyTags`] beyond 4096 names.
    pub fn set_tag_budget(&self, tag: &str, bytes: u64) -> Result<()> {
        self.device.check()?;
        if self.device.tags.set_budget(tag, bytes) { Ok(()) } else { Err(Error::TooManyTags { tag: tag.into() }) }
    }

    /// What is live under a name, and those within it.
    pub fn tag_bytes(&self, tag: &str) -> u64 {
        // The locks may be held for ever in a fork.
        if self.device.is_child() { 0 } else { self.device.tags.live_bytes(tag) }
    }

    /// As [`alloc`](Self::alloc), where this thread keeps nothing that fits.
    #[cold]
    pub fn alloc_unkept(&self, bytes: u64, stream: CUstream) -> Result<u64> {
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        self.device.check()?;
        // Known before anything is asked of the driver.
        if bytes > self.device.pool.chunks.most_bytes() {
            return Err(Error::Short { wanted_bytes: bytes });
        }
        let capture = self.capture_if_asked(stream)?;
        let kept = self.key(stream).filter(|_| capture.is_none()).and_then(|key| Pool::try_alloc_local(key, bytes));
        if let Some(taken) = kept {
            return Ok(taken.base);
        }
        let (key, stream_state) = self.stream_in(stream, capture)?;
        if let Some(taken) = Pool::try_alloc_local(key, bytes) {
            return Ok(taken.base);
        }
        let _hidden = Hidden { foreign_pool: self, key, stream, stream_state: &stream_state };
        let take = || alloc_slow::alloc(&self.device, &self.device.pool, key, &stream_state, bytes);
        let taken = match take() {
            Err(AllocError::Short) => match alloc_slow::make_room_alone(&self.device, &self.device.pool, bytes) {
                Ok(true) => take(),
                Ok(false) => Err(AllocError::Short),
                Err(error) => Err(error.into()),
            },
            taken => taken,
        };
        match taken {
            Ok(taken) => Ok(taken.base),
            Err(AllocError::Short) => Err(Error::Short { wanted_bytes: bytes }),
            Err(AllocError::TooMany) => Err(Error::TooManyBlocks { blocks_max: BLOCKS_MAX }),
            Err(AllocError::Call(error)) => Err(self.device.failed(error)),
        }
    }

    /// As [`free`](Self::free), where this thread could not keep the block as it was.
    #[cold]
    pub fn free_unkept(&self, address: u64, stream: CUstream) -> Result<()> {
        if self.device.is_child() {
            return Err(WrongRelease::ForkedChild { address, process: self.device.process }.into());
        }
        self.device.check()?;
        let capture = self.capture_if_asked(stream)?;
        if capture.is_none() && self.key(stream).is_some_and(|key| Pool::try_free_local(key, address)) {
            return Ok(());
        }
        let (key, stream_state) = self.stream_in(stream, capture)?;
        stream_state.fence_release().map_err(|error| self.device.failed(error))?;
        // A thread that only frees keeps what it frees, too.
        let _hidden = Hidden { foreign_pool: self, key, stream, stream_state: &stream_state };
        self.device.pool.add_thread_cache(key, &stream_state);
        if Pool::try_free_local(key, address) {
            return Ok(());
        }
        let meta = self.lent_at(address)?;
        let state = meta.disown(address).map_err(|_| self.wrong(address))?;
        self.free_used(meta.number(), state, &stream_state)
    }

    /// The meta of an address, unless somebody in this process holds the block otherwise than by its address.
    fn lent_at(&self, address: u64) -> Result<&BlockMeta> {
        let meta = self.device.pool.table.meta_at(address).filter(|meta| !meta.state().is_held());
        meta.ok_or_else(|| self.wrong(address))
    }

    /// Takes back a block that several streams have used, or one whose own stream is another than `stream_state`.
    fn free_used(&self, meta: u32, state: StateWord, stream_state: &Arc<StreamState>) -> Result<()> {
        let uses = if state.is_used_in_other_streams() { self.uses().remove(&meta) } else { None };
        let mut users = uses.unwrap_or_default();
        let home = self.device.pool.table.metas.at(meta).stream();
        if stream_state.id.0 != home && !users.iter().any(|user| user.id == stream_state.id) {
            users.push(stream_state.clone());
        }
        let fences: Vec<Fence> = users.iter().map(|user| Fence { stream: user.id, seq: user.next_seq() }).collect();
        // The fences are made before anybody else can have the block.
        if let Err(error) = self.device.record_fences_coalesced(&fences) {
            // In the list before the meta says that there is one.
            if state.is_used_in_other_streams() {
                self.uses().insert(meta, users);
            }
            self.device.pool.table.metas.at(meta).return_to_owner(state);
            return Err(error);
        }
        if state.is_used_in_other_streams()
            && let Some(tag) = self.tagged().remove(&meta)
        {
            self.device.tags.discharge(tag, meta, self.device.pool.table.metas.at(meta).bytes());
        }
        self.device.pool.free(&self.device.streams, meta, &fences);
        Ok(())
    }

    /// Says that work in another stream uses the block at an address: it is not used again before that work has passed, and
    /// all that is put into that stream until the block is freed.
    ///
    /// # Errors
    /// [`Error::WrongRelease`] where no block begins at the address.
    pub fn record_use(&self, address: u64, stream: CUstream) -> Result<()> {
        self.device.check()?;
        let (_, stream_state) = self.stream(stream)?;
        let wrong = || self.wrong(address);
        let meta = self.lent_at(address)?;
        if meta.stream() == stream_state.id.0 {
            let seen = meta.snapshot();
            let is_there = seen.state.state() == BlockState::Owned && seen.base == address;
            return if is_there { Ok(()) } else { Err(wrong()) };
        }
        // In the list before the meta says that there is one.
        let mut uses = self.uses();
        let users = uses.entry(meta.number()).or_default();
        let is_new = !users.iter().any(|user| user.id == stream_state.id);
        if is_new {
            users.push(stream_state.clone());
        }
        if meta.note_used_in_other_stream(address).is_ok() {
            return Ok(());
        }
        // The block that the address lies in may have other uses, which stay.
        if is_new {
            users.pop();
        }
        if users.is_empty() {
            uses.remove(&meta.number());
        }
        drop(uses);
        Err(wrong())
    }

    /// Says that a stream is about to be destroyed, or was used for the last time: its handle means another one from now on.
    /// Unknown ones are none of ours.
    ///
    /// # Errors
    /// [`Error::StreamCaptured`] while the stream is captured, which is known as before.
    pub fn retire(&self, stream: CUstream) -> Result<()> {
        self.device.check()?;
        if !self.knows(stream) && !self.has_captured(stream) {
            return Ok(());
        }
        if !is_legacy(stream) && self.capture_of(stream)?.is_some() {
            return Err(Error::StreamCaptured);
        }
        let name = self.name(stream)?;
        self.forget_captured(stream);
        let known = self.streams().get(&name).cloned();
        let Some(stream_state) = known else { return Ok(()) };
        let failed = |error| self.device.failed(error);
        // Its last fence could not be made, and tells when others may have what was released in it.
        if !stream_state.can_record_fence().map_err(failed)? {
            return Err(Error::StreamCaptured);
        }
        self.streams().remove(&name);
        if let Err(error) = stream_state.retire() {
            self.streams().entry(name).or_insert(stream_state);
            return Err(failed(error));
        }
        self.device.pools().for_each(|pool| pool.close_caches(&stream_state));
        self.device.run_deferred()
    }

    /// Gives memory that nobody has back to the driver until no more than `keep_bytes` are left. How many bytes went.
    pub fn trim(&self, keep_bytes: u64) -> Result<u64> {
        self.device.check()?;
        self.settle_captures()?;
        self.device.trim_pools(keep_bytes)
    }

    /// Lets the pool have no more than so many bytes of the driver from now on. What it has stays until it is trimmed.
    pub fn set_budget_bytes(&self, bytes: u64) {
        self.device.pool.chunks.set_budget_bytes(bytes);
    }

    /// The number of the device.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Whether an address is one of those that this device's blocks lie at, and no other device's.
    pub fn has(&self, address: u64) -> bool {
        // The locks may be held for ever in a fork, in which any foreign pool refuses.
        let is_child = self.device.is_child();
        self.device.pools().any(|pool| if is_child { pool.chunks.covers(address) } else { pool.chunks.has(address) })
    }

    /// Whether a block of this device lay at an address, whoever has the address now.
    pub fn had(&self, address: u64) -> bool {
        !self.device.is_child() && self.device.pools().any(|pool| pool.freed_at(address).is_some())
    }

    /// Why an address could not be released: for those at which nobody has a block.
    pub fn wrong_release(&self, address: u64) -> WrongRelease {
        if self.device.is_child() {
            return WrongRelease::ForkedChild { address, process: self.device.process };
        }
        match self.device.releasable(address) {
            Err(wrong) => wrong,
            Ok(of) => WrongRelease::Held { of: Box::new(of) },
        }
    }

    /// The bytes that the driver gave.
    pub fn reserved_bytes(&self) -> u64 {
        self.device.pool.chunks.reserved_bytes()
    }

    /// The bytes that owners have asked for and not given back.
    pub fn live_bytes(&self) -> u64 {
        // The locks may be held for ever in a fork.
        if self.device.is_child() { 0 } else { self.device.stats().owned_bytes }
    }

    /// Why so many bytes cannot be had, in words.
    pub fn explain(&self, wanted_bytes: u64) -> Result<String> {
        self.device.check()?;
        Ok(alloc_slow::shortage(&self.device, &self.device.pool, wanted_bytes)?.to_string())
    }

    /// Who owns the block that an address lies in.
    pub fn owner_of(&self, address: u64) -> Option<Owner> {
        if self.device.is_child() { None } else { self.device.owner_of(address) }
    }

    /// What is wrong with a release at an address. Another thread may have allocated there meanwhile.
    fn wrong(&self, address: u64) -> Error {
        self.wrong_release(address).into()
    }

    /// The stream_state of a stream, and what this thread finds its magazines by. The default stream of a thread has magazines from the
    /// first time on: with them it is marked when the thread ends.
    fn stream(&self, stream: CUstream) -> Result<(CacheKey, Arc<StreamState>)> {
        self.stream_in(stream, self.capture_if_asked(stream)?)
    }

    /// As [`stream`](Self::stream), for who knows which capture it takes part in.
    fn stream_in(&self, stream: CUstream, capture: Option<StreamCapture>) -> Result<(CacheKey, Arc<StreamState>)> {
        let (key, stream_state) = self.named_stream(stream, capture)?;
        if stream_state.is_of_thread() {
            let _hidden = Hidden { foreign_pool: self, key, stream, stream_state: &stream_state };
            self.device.pool.add_thread_cache(key, &stream_state);
        }
        Ok((key, stream_state))
    }

    fn named_stream(&self, stream: CUstream, capture: Option<StreamCapture>) -> Result<(CacheKey, Arc<StreamState>)> {
        if let Some(capture) = capture {
            let stream_state = self.captured_stream(stream, capture)?;
            return Ok((self.device.pool.key(&stream_state), stream_state));
        }
        let name = self.name(stream)?;
        if let Some(key) = self.key(stream) {
            return Ok((key, self.known_stream(stream, name, StreamOrigin::Told)?));
        }
        if !self.streams().contains_key(&name) {
            self.lose_others(stream)?;
        }
        let stream_state = self.known_stream(stream, name, StreamOrigin::Untold)?;
        Ok((self.device.pool.key(&stream_state), stream_state))
    }

    /// What this thread finds the magazines by of a stream that is not capturing. Nothing where streams are checked. Where each call
    /// asks, another key than that of the warm path, which does not.
    fn key(&self, stream: CUstream) -> Option<CacheKey> {
        let handle = by_one_name(stream).0 as u64;
        match (self.is_checked, self.asks(stream)) {
            (true, _) => None,
            (false, true) => Some(CacheKey::foreign_checked(self.ordinal, handle)),
            (false, false) => Some(CacheKey::foreign(self.ordinal, handle)),
        }
    }

    /// The stream_state of a stream that has this name, which is made if there is none.
    fn known_stream(&self, stream: CUstream, name: Name, trust: StreamOrigin) -> Result<Arc<StreamState>> {
        // That of a thread is retired where the thread is ending, and its last destructors use it once more.
        if let Some(stream_state) = self.streams().get(&name).filter(|stream_state| !stream_state.is_retired()) {
            return Ok(stream_state.clone());
        }
        // A handle that means no stream is refused before anything is noted. For the default stream of a thread the driver keeps
        // something from this call on, which goes behind what is kept here.
        if !is_legacy(stream) && self.capture_of(stream)?.is_some() {
            return Err(Error::StreamCaptured);
        }
        let trust = if thread_of(stream).is_some() { self.begin_thread(trust)? } else { trust };
        let stream_state = self.device.add_foreign_stream(stream.into(), thread_of(stream), trust)?;
        let known = self.streams().entry(name).or_insert_with(|| stream_state.clone()).clone();
        if known.id != stream_state.id {
            // Another thread was faster.
            stream_state.retire().map_err(|error| self.device.failed(error))?;
        }
        Ok(known)
    }

    /// Whether a stream of this handle was named outside of captures.
    fn knows(&self, stream: CUstream) -> bool {
        let (name, raw) = (by_one_name(stream), handle::Stream::from(stream));
        match self.is_checked {
            true => self.streams().values().any(|stream_state| stream_state.raw == raw),
            false => self.streams().contains_key(&(name.0 as u64, thread_of(stream))),
        }
    }

    /// Forgets the default streams of threads that have ended, so that this thread's has their memory. How far the handle is
    /// trusted: that of a thread which is ending is marked with each release, because nobody else tells of its end.
    fn begin_thread(&self, trust: StreamOrigin) -> Result<StreamOrigin> {
        self.streams().retain(|_, stream_state| !stream_state.is_retired());
        self.device.forget_ended_streams()?;
        Ok(if Pool::is_thread_ending() { StreamOrigin::Untold } else { trust })
    }

    /// Forgets the streams that had a handle before it came to mean one that is not known yet.
    fn lose_others(&self, stream: CUstream) -> Result<()> {
        // The default stream of each thread is another, and all have one handle.
        if stream == CUstream::PER_THREAD {
            return Ok(());
        }
        let raw = handle::Stream::from(stream);
        let lost: Vec<_> = self
            .streams()
            .extract_if(|_, stream_state| stream_state.raw == raw)
            .map(|(_, stream_state)| stream_state)
            .collect();
        for stream_state in &lost {
            stream_state.lose();
            self.device.pools().for_each(|pool| pool.close_caches(stream_state));
        }
        if lost.is_empty() { Ok(()) } else { self.device.run_deferred() }
    }

    /// What a stream is known by. Where streams are checked it must not be capturing: asking for its id would spoil the capture.
    fn name(&self, stream: CUstream) -> Result<Name> {
        if !self.is_checked {
            return Ok((by_one_name(stream).0 as u64, thread_of(stream)));
        }
        // SAFETY: whoever has a foreign pool vouches for the streams that it names.
        let id = unsafe { self.foreign().id(stream.into()) }.map_err(|error| self.device.failed(error))?;
        Ok((id, None))
    }

    fn foreign(&self) -> &dyn ForeignStreams {
        self.device.backend.foreign_streams().expect("a foreign pool is of a device whose streams others make")
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<Name, Arc<StreamState>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tagged(&self) -> MutexGuard<'_, HashMap<u32, u32>> {
        self.tagged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<u32, Vec<Arc<StreamState>>>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the magazines that a call has given this thread by the handle of a stream, if a private pool was begun meanwhile: whoever
/// begins one closes those that it sees, and whoever gives some sees that one was begun.
struct Hidden<'a> {
    foreign_pool: &'a ForeignPool,
    key: CacheKey,
    stream: CUstream,
    stream_state: &'a StreamState,
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let Self { foreign_pool, key, stream, stream_state } = *self;
        if key == CacheKey::foreign(foreign_pool.ordinal, by_one_name(stream).0 as u64) && foreign_pool.asks(stream) {
            foreign_pool.device.pools().for_each(|pool| pool.close_caches(stream_state));
        }
    }
}
