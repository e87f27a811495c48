//! Memory for foreign code, which identifies a device by its number, a stream by its handle and a block by its address.
//! The C interface is built on this module.
//!
//! The streams here belong to foreign code. The library learns of a stream when a call first names it, and trusts its
//! handle until [`ForeignPool::retire`] announces its destruction, because the driver reuses handles. A checked foreign
//! pool asks the driver for the stream's id each time instead. Calls that name streams by their ids (`by_id`) trust no
//! handle after they return.

mod by_id;
mod capture;
mod captures;
mod deferred_free;
mod export;
mod exported_chunk;
mod free_after_all;
mod lent_block;
mod order;
mod pending_free;
mod resize;
mod segment;
mod segments;
mod sleep;
mod stream_by_id;
#[cfg(test)]
mod tests;
mod vector;
mod vectors;
mod waiting_frees;

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::panic::catch_unwind;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::cuda::CUstream;
use freehold_driver::{BlockChange, ForeignStreams, Pattern, StreamCapture, handle};

use self::captures::Captures;
use self::lent_block::LentBlock;
use self::vector::Vectors;
use self::waiting_frees::WaitingFrees;
use crate::api::device::Device;
use crate::device::context::Context;
use crate::device::device_inner::DeviceInner;
use crate::device::make_room;
use crate::error::{Error, Result};
use crate::ledger::{Fence, Owner, StreamId, WrongRelease};
use crate::ordering::stream_origin::{StreamOrigin, ThreadId};
use crate::ordering::stream_state::StreamState;
use crate::pool::block_meta::{BlockState, OwnedBy, StateWord};
use crate::pool::{AllocError, BLOCKS_MAX, CacheKey, DeviceWork, Pool};

pub use self::captures::PoolId;
pub use self::exported_chunk::ExportedChunk;
pub use self::pending_free::PendingFree;
pub use self::segment::Segment;
pub use self::stream_by_id::StreamById;
pub use self::vector::ForeignVector;
pub use crate::ordering::capture_gate::CaptureGate;

/// A device as foreign code sees it. A process has one for each device number.
pub struct ForeignPool {
    device: Arc<DeviceInner>,
    ordinal: i32,
    /// Whether a stream is identified by its id rather than by its handle.
    is_checked: bool,
    streams: Mutex<HashMap<Name, Arc<StreamState>>>,
    /// The streams that are known by their ids.
    by_id: Mutex<HashMap<u64, Arc<StreamState>>>,
    /// Whether each capture is announced before it begins.
    is_announced: AtomicBool,
    captures: Mutex<Captures>,
    /// The other streams that use a block, by the number of its meta.
    uses: Mutex<HashMap<u32, Vec<Arc<StreamState>>>>,
    /// The names under which blocks are counted, by the numbers of their metas. These metas also say that other streams
    /// use the block, so that its release takes the path that looks here.
    tagged: Mutex<HashMap<u32, u32>>,
    /// Blocks that become free when all work of the device is complete.
    waiting: WaitingFrees,
    /// The context of its own stream.
    primary: Context,
    vectors: Mutex<Vectors>,
}

impl fmt::Debug for ForeignPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignPool")
            .field("ordinal", &self.ordinal)
            .field("is_checked", &self.is_checked)
            .finish_non_exhaustive()
    }
}

/// The request sizes for which a thread cache is tried.
const IN_MAGAZINES: RangeInclusive<u64> = 1..=1 << 40;

/// How a stream is identified: by its handle or its id, and the thread for a per-thread default stream.
type Name = (u64, Option<ThreadId>);

/// The fallback of the warm path: called with bytes or an address, the number of the foreign pool, and a stream.
pub type Fallback<R> = extern "C" fn(u64, i32, CUstream) -> R;

/// Allocates from this thread's cache for a stream of the foreign pool with this number, like [`ForeignPool::alloc`].
/// If the cache is empty, the device has failed or the foreign pool is checked, returns what `fallback` returns for
/// the same arguments.
///
/// `fallback` is called by a tail call, and nothing unwinds, so no registers are spilled for either reason.
///
/// # Safety
/// As for [`open::foreign_pool`](crate::open::foreign_pool).
pub unsafe extern "C" fn alloc_cached(bytes: u64, ordinal: i32, stream: CUstream, fallback: Fallback<u64>) -> u64 {
    if !IN_MAGAZINES.contains(&bytes) {
        return fallback(bytes, ordinal, stream);
    }
    match Pool::try_alloc_address(CacheKey::foreign(ordinal, stream.0 as u64), bytes) {
        Some(base) => base,
        None => alloc_from_heap(bytes, ordinal, stream, fallback),
    }
}

/// Like [`alloc_cached`], if nothing cached fits: fetches blocks from the stream's heap.
#[inline(never)]
extern "C" fn alloc_from_heap(bytes: u64, ordinal: i32, stream: CUstream, fallback: Fallback<u64>) -> u64 {
    let key = CacheKey::foreign(ordinal, by_one_name(stream).0 as u64);
    // Nothing unwinds into C: a panic here occurs again on the path that reports it.
    match catch_unwind(|| Pool::try_alloc_local(key, bytes, OwnedBy::Address)) {
        Ok(Some(taken)) => taken.base,
        Ok(None) | Err(_) => fallback(bytes, ordinal, stream),
    }
}

/// Frees memory to this thread's cache in the order of a stream of the foreign pool with this number, like
/// [`ForeignPool::free`], and returns zero. If it cannot, returns what `fallback` returns for the same arguments.
///
/// # Safety
/// As for [`open::foreign_pool`](crate::open::foreign_pool).
pub unsafe extern "C" fn free_cached(address: u64, ordinal: i32, stream: CUstream, fallback: Fallback<i32>) -> i32 {
    if Pool::try_free_address(CacheKey::foreign(ordinal, stream.0 as u64), address) {
        return 0;
    }
    free_to_full_cache(address, ordinal, stream, fallback)
}

/// Like [`free_cached`], if the cache is full: makes space first.
#[inline(never)]
extern "C" fn free_to_full_cache(address: u64, ordinal: i32, stream: CUstream, fallback: Fallback<i32>) -> i32 {
    let key = CacheKey::foreign(ordinal, by_one_name(stream).0 as u64);
    match catch_unwind(|| Pool::try_free_local(key, address)) {
        Ok(true) => 0,
        Ok(false) | Err(_) => fallback(address, ordinal, stream),
    }
}

fn is_legacy(stream: CUstream) -> bool {
    stream == CUstream::NULL || stream == CUstream::LEGACY
}

/// Maps both handles of the legacy default stream to one, under which its cache is found: the warm path does not know
/// the other.
fn by_one_name(stream: CUstream) -> CUstream {
    if stream == CUstream::LEGACY { CUstream::NULL } else { stream }
}

/// Returns the thread whose default stream a handle names.
fn thread_of(stream: CUstream) -> Option<ThreadId> {
    (stream == CUstream::PER_THREAD).then(ThreadId::current)
}

impl ForeignPool {
    pub(crate) fn new(device: &Device, ordinal: i32, is_checked: bool) -> Self {
        let primary = device.primary.clone();
        let device = primary.inner.device.clone();
        Self {
            device,
            ordinal,
            is_checked,
            streams: Mutex::default(),
            by_id: Mutex::default(),
            is_announced: AtomicBool::new(false),
            captures: Mutex::default(),
            uses: Mutex::default(),
            tagged: Mutex::default(),
            waiting: WaitingFrees::default(),
            primary,
            vectors: Mutex::default(),
        }
    }

    /// Allocates memory for work in a stream, reusing freed memory if possible.
    ///
    /// # Errors
    /// [`Error::NothingAsked`] for zero bytes, [`Error::Short`] if there is not enough memory.
    #[inline]
    pub fn alloc(&self, bytes: u64, stream: CUstream) -> Result<u64> {
        let key = CacheKey::foreign(self.ordinal, stream.0 as u64);
        let in_magazines = Some(bytes).filter(|bytes| IN_MAGAZINES.contains(bytes));
        match in_magazines.and_then(|bytes| Pool::try_alloc_local(key, bytes, OwnedBy::Address)) {
            Some(block) => Ok(block.base),
            None => self.alloc_uncached(bytes, stream),
        }
    }

    /// Frees memory in the order of a stream: work that was submitted to it before may still use the block.
    ///
    /// # Errors
    /// [`Error::WrongRelease`], which explains the mistake; the block at the address is unchanged.
    #[inline]
    pub fn free(&self, address: u64, stream: CUstream) -> Result<()> {
        let is_kept = Pool::try_free_local(CacheKey::foreign(self.ordinal, stream.0 as u64), address);
        if is_kept { Ok(()) } else { self.free_uncached(address, stream) }
    }

    /// Like [`alloc`](Self::alloc), filled with zeros in the order of the stream.
    pub fn alloc_zeroed(&self, bytes: u64, stream: CUstream) -> Result<u64> {
        let base = self.alloc(bytes, stream)?;
        // SAFETY: the block was just allocated in the order of this stream, which its user guarantees to be valid.
        let filled = unsafe { self.device.backend.fill(base, Pattern::U8(0), bytes as usize, stream.into()) };
        match filled {
            Ok(()) => Ok(base),
            Err(error) => self.free(base, stream).and(Err(self.device.failed(error))),
        }
    }

    /// Like [`alloc`](Self::alloc), counted under a name until it is freed. Both the allocation and the release take a
    /// lock.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc), and [`Error::BudgetFull`] if the name, or one that contains it, would exceed
    /// its limit.
    pub fn alloc_tagged(&self, bytes: u64, stream: CUstream, tag: &str) -> Result<u64> {
        self.device.check()?;
        let number = self.device.charge(Some(tag), bytes)?;
        let discharge = |_: &Error| self.device.tags.discharge(number, u32::MAX, bytes);
        let base = match self.device.sleepers.pool_of_tag(tag) {
            None => self.alloc(bytes, stream),
            Some(index) => self.alloc_sleepable(index, bytes, stream),
        };
        let base = base.inspect_err(discharge)?;
        let block = LentBlock::at(&self.device, base).expect("a block that was just allocated has a meta");
        self.device.tags.name_uncounted(number, block.number(), Some(tag));
        // Inserted before the meta says that there is an entry.
        self.tagged().insert(block.number(), number);
        block.meta.note_used_in_other_stream(base).expect("no other thread has the block yet");
        Ok(base)
    }

    /// Limits the live bytes under a name and the names within it, from now on.
    ///
    /// # Errors
    /// [`Error::TooManyTags`] beyond 4096 names.
    pub fn set_tag_budget(&self, tag: &str, bytes: u64) -> Result<()> {
        self.device.check()?;
        if self.device.tags.set_budget(tag, bytes) { Ok(()) } else { Err(Error::TooManyTags { tag: tag.into() }) }
    }

    /// Returns the live bytes under a name and the names within it.
    pub fn tag_bytes(&self, tag: &str) -> u64 {
        // In a fork the locks may be held forever.
        if self.device.is_child() { 0 } else { self.device.tags.live_bytes(tag) }
    }

    /// Like [`alloc`](Self::alloc), if nothing in this thread's cache fits.
    #[cold]
    pub fn alloc_uncached(&self, bytes: u64, stream: CUstream) -> Result<u64> {
        self.check_request(bytes)?;
        self.reclaim_complete()?;
        let (capture, by) = (self.capture_if_asked(stream)?, OwnedBy::Address);
        let kept = self.key(stream).filter(|_| capture.is_none()).and_then(|key| Pool::try_alloc_local(key, bytes, by));
        if let Some(taken) = kept {
            return Ok(taken.base);
        }
        let (key, stream_state) = self.stream_in(stream, capture)?;
        if let Some(taken) = Pool::try_alloc_local(key, bytes, by) {
            return Ok(taken.base);
        }
        let _hidden = Hidden { foreign_pool: self, key, stream, stream_state: &stream_state };
        self.alloc_anywhere(&self.device.pool, bytes, key, &stream_state)
    }

    /// Returns an error for requests that cannot succeed, before any driver call.
    fn check_request(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        self.device.check()?;
        if bytes > self.device.pool.chunks.most_bytes() {
            return Err(Error::Short { wanted_bytes: bytes });
        }
        Ok(())
    }

    /// Allocates for a stream, from any source.
    fn alloc_anywhere(&self, pool: &Pool, bytes: u64, key: CacheKey, stream_state: &Arc<StreamState>) -> Result<u64> {
        let (device, by) = (&self.device, OwnedBy::Address);
        let take = || make_room::alloc_or_make_room(device, pool, key, stream_state, bytes, by);
        let mut taken = take();
        while matches!(taken, Err(AllocError::Short)) && self.reclaim_oldest()? {
            taken = take();
        }
        if matches!(taken, Err(AllocError::Short)) && make_room::make_room_alone(device, pool, bytes)? {
            taken = take();
        }
        match taken {
            Ok(taken) => Ok(taken.base),
            Err(AllocError::Short) => Err(Error::Short { wanted_bytes: bytes }),
            Err(AllocError::TooMany) => Err(Error::TooManyBlocks { blocks_max: BLOCKS_MAX }),
            Err(AllocError::Call(error)) => Err(self.device.failed(error)),
        }
    }

    /// Like [`free`](Self::free), if this thread could not cache the block as it was.
    #[cold]
    pub fn free_uncached(&self, address: u64, stream: CUstream) -> Result<()> {
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
        // A thread that only frees gets a cache, too.
        let _hidden = Hidden { foreign_pool: self, key, stream, stream_state: &stream_state };
        self.device.pool.add_thread_cache(key, &stream_state);
        if Pool::try_free_local(key, address) {
            return Ok(());
        }
        let (block, state) = self.disown(address)?;
        self.free_used(block, state, &stream_state)
    }

    /// Ends the ownership of the block at an address.
    #[inline]
    fn disown(&self, address: u64) -> Result<(LentBlock<'_>, StateWord)> {
        let lent = self.lent_at(address);
        let disowned = lent.and_then(|block| Ok((block, block.meta.disown(address).map_err(|_| self.wrong(address))?)));
        if self.device.pool.chunks.is_checked() && self.is_free_attempt(address, disowned.is_ok()) {
            let pool = disowned.as_ref().map_or(&self.device.pool, |(block, _)| block.pool);
            pool.chunks.announce(BlockChange::Freed { address });
        }
        disowned
    }

    /// Whether a free of an address concerns this pool: the block was freed, or its memory is or was the pool's and no
    /// handle holds it.
    fn is_free_attempt(&self, address: u64, is_freed: bool) -> bool {
        let is_held = || matches!(self.wrong_release(address), WrongRelease::Held { .. });
        is_freed || (self.has(address) || self.had(address)) && !is_held()
    }

    /// Returns the block at an address, unless it is held by a handle.
    fn lent_at(&self, address: u64) -> Result<LentBlock<'_>> {
        let block = LentBlock::at(&self.device, address).filter(|block| !block.meta.state().is_held());
        block.ok_or_else(|| self.wrong(address))
    }

    /// Frees a block that several streams have used, or that belongs to a stream other than `stream_state`.
    fn free_used(&self, block: LentBlock<'_>, state: StateWord, stream_state: &Arc<StreamState>) -> Result<()> {
        let (number, meta) = (block.number(), block.meta);
        let uses = if state.is_used_in_other_streams() { self.uses().remove(&number) } else { None };
        let mut users = uses.unwrap_or_default();
        let home_stream = meta.stream();
        if stream_state.id.0 != home_stream && !users.iter().any(|user| user.id == stream_state.id) {
            users.push(stream_state.clone());
        }
        let fences: Vec<Fence> = users.iter().map(|user| Fence { stream: user.id, seq: user.next_seq() }).collect();
        // The fences are recorded before the block can be reused.
        if let Err(error) = self.device.record_fences_coalesced(&fences) {
            // Inserted before the meta says that there is an entry.
            if state.is_used_in_other_streams() {
                self.uses().insert(number, users);
            }
            meta.return_to_owner(state);
            return Err(error);
        }
        if state.is_used_in_other_streams()
            && let Some(tag) = self.tagged().remove(&number)
        {
            self.device.tags.discharge(tag, number, meta.bytes());
        }
        let home = self.device.streams.get(StreamId(meta.stream()));
        block.pool.free(home.as_deref(), meta.number(), &fences);
        Ok(())
    }

    /// Records that work in another stream uses the block at an address: its memory is not reused before that work is
    /// complete, including all work submitted to that stream until the block is freed.
    ///
    /// # Errors
    /// [`Error::WrongUse`] if no block begins at the address.
    pub fn record_use(&self, address: u64, stream: CUstream) -> Result<()> {
        self.try_record_use(address, stream).map_err(Error::into_use)
    }

    fn try_record_use(&self, address: u64, stream: CUstream) -> Result<()> {
        self.device.check()?;
        let (_, stream_state) = self.stream(stream)?;
        let wrong = || self.wrong(address);
        let block = self.lent_at(address)?;
        let (number, meta) = (block.number(), block.meta);
        if meta.stream() == stream_state.id.0 {
            let seen = meta.snapshot();
            let is_there = seen.state.state() == BlockState::Owned && seen.base == address;
            return if is_there { Ok(()) } else { Err(wrong()) };
        }
        // Inserted before the meta says that there is an entry.
        let mut uses = self.uses();
        let users = uses.entry(number).or_default();
        let is_new = !users.iter().any(|user| user.id == stream_state.id);
        if is_new {
            users.push(stream_state.clone());
        }
        if meta.note_used_in_other_stream(address).is_ok() {
            return Ok(());
        }
        // The block that contains the address may have other uses, which stay.
        if is_new {
            users.pop();
        }
        if users.is_empty() {
            uses.remove(&number);
        }
        drop(uses);
        Err(wrong())
    }

    /// Announces that a stream is about to be destroyed, or was used for the last time: its handle names another stream
    /// from now on. Unknown handles are ignored.
    ///
    /// # Errors
    /// [`Error::StreamCaptured`] while the stream is being captured; it stays known.
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
        // Its last fence, which shows when memory released in it can be reused, could not be recorded.
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

    /// Returns free memory to the driver until at most `keep_bytes` are left. Returns how many bytes were returned.
    pub fn trim(&self, keep_bytes: u64) -> Result<u64> {
        self.device.check()?;
        self.reclaim_complete()?;
        self.settle_captures()?;
        // Memory of vectors.
        self.device.unmap_completed().map_err(|error| self.device.failed(error))?;
        self.device.trim_pools(keep_bytes)
    }

    /// Ends all blocks, and returns all memory to the driver. No work is pending, and the pool is not used any more.
    pub(crate) fn end(&self) -> Result<()> {
        *self.vectors.lock().unwrap_or_else(PoisonError::into_inner) = Vectors::default();
        self.by_id().clear();
        self.streams().clear();
        self.device.end()
    }

    pub(crate) fn device(&self) -> &Arc<DeviceInner> {
        &self.device
    }

    /// Limits the memory that the pool may reserve from the driver. Memory that is already reserved stays until it is
    /// trimmed.
    pub fn set_budget_bytes(&self, bytes: u64) {
        self.device.pool.chunks.set_budget_bytes(bytes);
    }

    /// Returns the number of the device.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Whether an address belongs to this device's blocks, and to no other device's.
    pub fn has(&self, address: u64) -> bool {
        // In a fork, in which every foreign pool refuses calls, the locks may be held forever.
        let is_child = self.device.is_child();
        self.device.pools().any(|pool| if is_child { pool.chunks.covers(address) } else { pool.chunks.has(address) })
    }

    /// Returns the address and the requested size of the block that contains an address, if it has an owner.
    pub fn block_around(&self, address: u64) -> Option<(u64, u64)> {
        // In a fork the locks may be held forever.
        let of_any = || self.device.pools().find_map(|pool| pool.snapshot_at(address));
        let seen = if self.device.is_child() { None } else { of_any() };
        seen.filter(|(_, seen)| seen.state.state() == BlockState::Owned).map(|(_, seen)| (seen.base, seen.bytes))
    }

    /// Whether a block of this device lay at an address, whatever is there now.
    pub fn had(&self, address: u64) -> bool {
        !self.device.is_child() && self.device.pools().any(|pool| pool.freed_at(address).is_some())
    }

    /// Returns why an address could not be released, for addresses without an owned block.
    pub fn wrong_release(&self, address: u64) -> WrongRelease {
        if self.device.is_child() {
            return WrongRelease::ForkedChild { address, process: self.device.process };
        }
        match self.device.releasable(address) {
            Err(wrong) => wrong,
            Ok(of) => WrongRelease::Held { of: Box::new(of) },
        }
    }

    /// Returns how many bytes the pool has reserved from the driver.
    pub fn reserved_bytes(&self) -> u64 {
        self.device.pool.chunks.reserved_bytes()
    }

    /// Returns how many bytes owners have requested and not freed.
    pub fn live_bytes(&self) -> u64 {
        // In a fork the locks may be held forever.
        if self.device.is_child() { 0 } else { self.device.stats().owned_bytes }
    }

    /// Explains why `wanted_bytes` cannot be allocated.
    pub fn explain(&self, wanted_bytes: u64) -> Result<String> {
        self.device.check()?;
        Ok(make_room::shortage(&self.device, &self.device.pool, wanted_bytes)?.to_string())
    }

    /// Returns the owner of the block that contains an address.
    pub fn owner_of(&self, address: u64) -> Option<Owner> {
        if self.device.is_child() { None } else { self.device.owner_of(address) }
    }

    /// Returns the error for a wrong release at an address. Another thread may have allocated there by now.
    fn wrong(&self, address: u64) -> Error {
        self.wrong_release(address).into()
    }

    /// Returns the state of a stream, and the key of this thread's cache for it. The default stream of a thread gets a
    /// cache at first use: dropping the cache records the last fence when the thread ends.
    fn stream(&self, stream: CUstream) -> Result<(CacheKey, Arc<StreamState>)> {
        self.stream_in(stream, self.capture_if_asked(stream)?)
    }

    /// Like [`stream`](Self::stream), if the capture that it takes part in is known.
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
            return Ok((key, self.known_stream(stream, name, StreamOrigin::Trusted)?));
        }
        if !self.streams().contains_key(&name) {
            self.lose_others(stream)?;
        }
        let stream_state = self.known_stream(stream, name, StreamOrigin::Checked)?;
        Ok((self.device.pool.key(&stream_state), stream_state))
    }

    /// Returns the key of this thread's cache for a stream that is not capturing. Returns `None` if streams are
    /// checked. If each call has to ask the driver, the key differs from that of the warm path, which does not ask.
    fn key(&self, stream: CUstream) -> Option<CacheKey> {
        let handle = by_one_name(stream).0 as u64;
        match (self.is_checked, self.asks(stream)) {
            (true, _) => None,
            (false, true) => Some(CacheKey::foreign_checked(self.ordinal, handle)),
            (false, false) => Some(CacheKey::foreign(self.ordinal, handle)),
        }
    }

    /// Returns the state of the stream with this name, creating it if there is none.
    fn known_stream(&self, stream: CUstream, name: Name, origin: StreamOrigin) -> Result<Arc<StreamState>> {
        // A thread's default stream is retired when the thread is ending; its last destructors may use it once more.
        if let Some(stream_state) = self.streams().get(&name).filter(|stream_state| !stream_state.is_retired()) {
            return Ok(stream_state.clone());
        }
        // An invalid handle is refused before anything is recorded. For the default stream of a thread, the driver
        // creates thread-local state in this call, which is then dropped after the library's.
        if !is_legacy(stream) && self.capture_of(stream)?.is_some() {
            return Err(Error::StreamCaptured);
        }
        let origin = if thread_of(stream).is_some() { self.begin_thread(origin)? } else { origin };
        let stream_state = self.device.add_foreign_stream(stream.into(), thread_of(stream), origin)?;
        let known = self.streams().entry(name).or_insert_with(|| stream_state.clone()).clone();
        if known.id != stream_state.id {
            // Another thread was faster.
            stream_state.retire().map_err(|error| self.device.failed(error))?;
        }
        Ok(known)
    }

    /// Whether a stream with this handle was named outside of captures.
    fn knows(&self, stream: CUstream) -> bool {
        let (name, raw) = (by_one_name(stream), handle::Stream::from(stream));
        match self.is_checked {
            true => self.streams().values().any(|stream_state| stream_state.raw == raw),
            false => self.streams().contains_key(&(name.0 as u64, thread_of(stream))),
        }
    }

    /// Forgets the default streams of threads that have ended, so that this thread's stream gets their memory. Returns
    /// the origin to use: the stream of an ending thread records a fence with each release, because nothing announces
    /// its end.
    fn begin_thread(&self, origin: StreamOrigin) -> Result<StreamOrigin> {
        self.streams().retain(|_, stream_state| !stream_state.is_retired());
        self.device.forget_ended_streams()?;
        Ok(if Pool::is_thread_ending() { StreamOrigin::Checked } else { origin })
    }

    /// Forgets earlier streams whose handle now names another stream.
    fn lose_others(&self, stream: CUstream) -> Result<()> {
        // Each thread has its own default stream, and all have one handle.
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

    /// Returns how a stream is identified. If streams are checked it must not be capturing: asking for its id would
    /// invalidate the capture.
    fn name(&self, stream: CUstream) -> Result<Name> {
        if !self.is_checked {
            return Ok((by_one_name(stream).0 as u64, thread_of(stream)));
        }
        // SAFETY: the holder of a foreign pool guarantees that the streams that it names are valid.
        let id = unsafe { self.foreign().id(stream.into()) }.map_err(|error| self.device.failed(error))?;
        Ok((id, None))
    }

    fn foreign(&self) -> &dyn ForeignStreams {
        self.device.backend.foreign_streams().expect("a foreign pool belongs to a device with foreign streams")
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

/// Closes the cache that a call created for a stream's handle, if a private pool was begun in between: a thread that
/// begins a pool closes the caches that it sees, and a thread that creates a cache sees that a pool was begun.
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
