//! Memory of captures. A graph uses the addresses that its capture saw each time it is launched, so memory that is
//! allocated or freed in a capturing stream belongs to a private pool: only captures of that pool use it until the pool
//! is released.
//!
//! A private pool has its own stream state for each stream that was captured with it. That state completes nothing
//! before the pool is released, so no other stream reuses its free memory.

use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use freehold_driver::cuda::CUstream;
use freehold_driver::handle::Event;
use freehold_driver::{CallError, StreamCapture};

use super::captures::{Captures, OpenPool, PoolId, PrivatePool};
use super::{ForeignPool, is_legacy, thread_of};
use crate::api::open::foreign_pools::{self, POOLS_OPEN};
use crate::error::{Error, Result};
use crate::ordering::stream_origin::{StreamOrigin, ThreadId};
use crate::ordering::stream_state::StreamState;

impl ForeignPool {
    /// Promises that each capture, on any device, is announced by [`begin_pool`](Self::begin_pool) before it begins and
    /// on the same thread. Without this promise, each call that names a stream other than the legacy default one asks
    /// the driver whether the stream is capturing.
    ///
    /// # Safety
    /// The promise is kept. Memory that an unannounced capture allocates would be reused by other work, and launches of
    /// the capture's graph would overwrite it.
    pub unsafe fn announce_captures(&self) {
        self.is_announced.store(true, Ordering::SeqCst);
    }

    /// Makes captures that this thread begins from now on allocate from a private pool, until
    /// [`end_pool`](Self::end_pool). Other threads that name a stream of such a capture allocate from the pool, too. If
    /// a thread has begun several pools, the last one is used. The pool contains memory of this device only: on another
    /// device the capture has a pool of its own, unless one was begun there too. If a thread begins the same pool again
    /// after a capture with it is over, without [`end_pool`](Self::end_pool), both calls count as one: the capture must
    /// have failed, and has no graph.
    ///
    /// # Errors
    /// [`Error::ForkedChild`], [`Error::Faulted`], and those of the driver.
    pub fn begin_pool(&self, id: PoolId) -> Result<()> {
        self.device.check()?;
        let here = ThreadId::current();
        let capturing = self.capturing_pools(here)?;
        let mut captures = self.captures();
        // With the lock: the driver is asked with a capture, which a release of another pool would invalidate.
        let newest_before = self.foreign().newest_capture().map_err(|error| self.device.failed(error))?;
        for open in captures.open.iter_mut().filter(|open| open.thread == here && !capturing.contains(&open.id)) {
            open.is_passed_over = true;
        }
        let has_failed =
            |open: &OpenPool| (open.id, open.thread) == (id, here) && open.is_passed_over && open.capture.is_some();
        if let Some(index) = captures.open.iter().position(has_failed) {
            captures.open.remove(index);
        } else {
            captures.pools.entry(id).or_default().users += 1;
            POOLS_OPEN.fetch_add(1, Ordering::SeqCst);
        }
        captures.open.push(OpenPool { id, thread: here, newest_before, capture: None, is_passed_over: false });
        drop(captures);
        self.close_caches_of_all_devices();
        Ok(())
    }

    /// Ends what [`begin_pool`](Self::begin_pool) began. Memory that was allocated and freed in between stays in the
    /// pool.
    ///
    /// # Errors
    /// [`Error::NoSuchPool`] if it was not begun.
    pub fn end_pool(&self, id: PoolId) -> Result<()> {
        self.device.check()?;
        let mut captures = self.captures();
        let here = ThreadId::current();
        let own = captures.open.iter().rposition(|open| (open.id, open.thread) == (id, here));
        let index = own.or_else(|| captures.open.iter().rposition(|open| open.id == id)).ok_or(Error::NoSuchPool)?;
        captures.open.remove(index);
        if captures.open.iter().all(|open| open.id != id) {
            captures.end_captures_of(id);
        }
        drop(captures);
        self.close_caches_of_all_devices();
        POOLS_OPEN.fetch_sub(1, Ordering::SeqCst);
        self.settle_if_possible();
        Ok(())
    }

    /// Releases a private pool. Call it once for each [`begin_pool`](Self::begin_pool), when no graph that was captured
    /// with the pool will be launched again. This waits for all work on the device; then the pool's free memory can be
    /// reused, and its live blocks once they are freed. While a stream is capturing, or if the driver refuses to wait,
    /// the memory stays until a later call of this function or of [`trim`](Self::trim).
    ///
    /// # Errors
    /// [`Error::NoSuchPool`] if it was not begun, [`Error::PoolOpen`] if it was not ended.
    pub fn release_pool(&self, id: PoolId) -> Result<()> {
        self.device.check()?;
        let mut captures = self.captures();
        let begun = captures.open.iter().filter(|open| open.id == id).count();
        let pool = captures.pools.get_mut(&id).ok_or(Error::NoSuchPool)?;
        if pool.users == begun {
            return Err(Error::PoolOpen);
        }
        pool.users -= 1;
        if pool.users == 0 {
            let released = captures.pools.remove(&id).expect("it was found");
            captures.end_captures_of(id);
            captures.of_capture.retain(|_, of| *of != id);
            captures.leaving.push(released);
        }
        drop(captures);
        self.settle_if_possible();
        Ok(())
    }

    /// Returns the addresses and sizes of the live blocks of a private pool.
    ///
    /// # Errors
    /// [`Error::NoSuchPool`] if it was not begun, or was released.
    pub fn pool_blocks(&self, id: PoolId) -> Result<Vec<(u64, u64)>> {
        self.device.check()?;
        let captures = self.captures();
        let pool = captures.pools.get(&id).ok_or(Error::NoSuchPool)?;
        let streams: Vec<u32> = pool.all_tracks().map(|stream_state| stream_state.id.0).collect();
        drop(captures);
        let owned = self.device.pools().flat_map(|pool| pool.owned());
        let of_streams = owned.filter(|(_, seen)| streams.contains(&seen.stream));
        Ok(of_streams.map(|(_, seen)| (seen.base, seen.bytes)).collect())
    }

    /// Whether a call that names a stream must ask the driver whether it is capturing. The legacy default stream never
    /// is.
    pub(super) fn asks(&self, stream: CUstream) -> bool {
        let is_told = self.is_announced.load(Ordering::SeqCst) && POOLS_OPEN.load(Ordering::SeqCst) == 0;
        !is_legacy(stream) && (self.is_checked || !is_told)
    }

    /// Returns the capture that a stream takes part in, if this call must ask.
    pub(super) fn capture_if_asked(&self, stream: CUstream) -> Result<Option<StreamCapture>> {
        if self.asks(stream) || (!is_legacy(stream) && !self.knows(stream)) {
            self.capture_of(stream)
        } else {
            Ok(None)
        }
    }

    /// Returns the capture that a stream takes part in. Fails for a handle that the driver does not know.
    pub(super) fn capture_of(&self, stream: CUstream) -> Result<Option<StreamCapture>> {
        // SAFETY: the holder of a foreign pool guarantees that the streams that it names are valid.
        let capture = unsafe { self.foreign().capture_id(stream.into()) }.map_err(|error| self.device.failed(error))?;
        if self.is_checked {
            let name = (stream.0, thread_of(stream));
            match capture {
                None => self.captures().last_seen.remove(&name),
                Some(StreamCapture::Active(id)) => self.captures().last_seen.insert(name, id),
                Some(_) => None,
            };
        }
        Ok(capture)
    }

    /// Returns the state of a stream in the private pool of its capture.
    pub(super) fn captured_stream(&self, stream: CUstream, capture: StreamCapture) -> Result<Arc<StreamState>> {
        let name = (stream.0, thread_of(stream));
        let mut captures = self.captures();
        let pool = match capture {
            StreamCapture::Active(capture) => captures.pool_of(capture, self.is_announced.load(Ordering::SeqCst)),
            _ => &mut captures.spoilt,
        };
        if let Some(stream_state) = pool.streams.get(&name) {
            return Ok(stream_state.clone());
        }
        let stream_state = self.device.add_foreign_stream(stream.into(), thread_of(stream), StreamOrigin::Captured)?;
        pool.streams.insert(name, stream_state.clone());
        Ok(stream_state)
    }

    /// Like [`settle_captures`](Self::settle_captures), for calls that succeed even if waiting for the device is
    /// impossible.
    fn settle_if_possible(&self) {
        if let Err(error) = self.settle_captures() {
            self.device.note_drop_error(error);
        }
    }

    /// Makes the memory of released pools reusable, after all work on the device.
    pub(super) fn settle_captures(&self) -> Result<()> {
        if !self.captures().has_leaving() || self.is_any_capturing()? {
            return Ok(());
        }
        let backend = &self.device.backend;
        let after_all = backend.create_event().map_err(|error| self.device.failed(error))?;
        let taken = self.take_leaving_after(after_all);
        // Without the lock: the work may wait for a thread that needs it.
        let waited = match &taken {
            // SAFETY: the event is destroyed below.
            Ok(Some((_, true))) => unsafe { backend.wait(after_all) },
            Ok(Some((_, false))) => backend.synchronize(),
            Ok(None) | Err(_) => Ok(()),
        };
        // SAFETY: the event is this call's own, and nothing uses it any more.
        let ended = waited.and(unsafe { backend.destroy_event(after_all) });
        let left = taken.map_err(|error| self.device.failed(error))?.map_or_else(Vec::new, |(left, _)| left);
        if let Err(error) = ended {
            self.captures().leaving.extend(left);
            return Err(self.device.failed(error));
        }
        for stream_state in left.iter().flat_map(PrivatePool::all_tracks) {
            stream_state.release_capture();
            self.device.pools().for_each(|pool| pool.close_caches(stream_state));
        }
        self.device.run_deferred()
    }

    /// Takes the released pools, and records an event after all work on the device, which includes all work of the
    /// pools. Returns the pools, and whether the event was recorded: drivers before CUDA 12.5 cannot record it. Returns
    /// `None` while a stream is capturing.
    fn take_leaving_after(&self, after_all: Event) -> std::result::Result<Option<(Vec<PrivatePool>, bool)>, CallError> {
        // With the lock, so that no thread begins a pool before the event is recorded, which would invalidate its
        // captures.
        let mut captures = self.captures();
        if captures.open.iter().any(|open| !open.is_passed_over) {
            return Ok(None);
        }
        // SAFETY: the caller's event is valid.
        let is_recorded = match unsafe { self.foreign().record_after_all(after_all) } {
            Ok(false) => return Ok(None),
            Err(error) if error.is_unsupported() => false,
            recorded => recorded?,
        };
        Ok(Some((captures.take_leaving(), is_recorded)))
    }

    /// Whether a stream with this handle was named while it was captured.
    pub(super) fn has_captured(&self, stream: CUstream) -> bool {
        let name = (stream.0, thread_of(stream));
        self.captures().all().any(|pool| pool.streams.contains_key(&name))
    }

    /// Notes that a stream is about to be destroyed. Memory of its captures stays in their pools.
    pub(super) fn forget_captured(&self, stream: CUstream) {
        let name = (stream.0, thread_of(stream));
        let mut captures = self.captures();
        captures.last_seen.remove(&name);
        for pool in captures.all() {
            let gone = pool.streams.remove(&name);
            pool.gone.extend(gone);
        }
    }

    /// Whether a known stream is capturing: waiting for the device would then invalidate the capture.
    pub(super) fn is_any_capturing(&self) -> Result<bool> {
        if self.captures().open.iter().any(|open| !open.is_passed_over) {
            return Ok(true);
        }
        if self.is_checked {
            // A handle that is not named in this call is not trusted.
            return Ok(!self.captures().last_seen.is_empty());
        }
        let mut known: Vec<_> = self.streams().values().cloned().collect();
        known.extend(self.captures().all().flat_map(|pool| pool.streams.values().cloned()));
        for stream_state in known.iter().filter(|stream_state| stream_state.is_this_threads()) {
            // SAFETY: the stream was not retired, and so it was not destroyed.
            let takes_marks = unsafe { self.foreign().can_record(stream_state.raw) };
            if !takes_marks.map_err(|error| self.device.failed(error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the private pools that a thread has begun and not ended, and that a running capture may use.
    fn capturing_pools(&self, thread: ThreadId) -> Result<Vec<PoolId>> {
        let captures = self.captures();
        if self.is_checked {
            return Ok(captures
                .last_seen
                .values()
                .filter_map(|capture| captures.of_capture.get(capture).copied())
                .collect());
        }
        let begun = captures.open.iter().filter(|open| open.thread == thread).map(|open| open.id);
        let streams: Vec<_> =
            begun.flat_map(|id| captures.pools[&id].streams.values().map(move |state| (id, state.clone()))).collect();
        drop(captures);
        let mut capturing = Vec::new();
        for (id, stream_state) in streams {
            // Not another thread's stream, which cannot be queried.
            if !stream_state.can_record_fence().map_err(|error| self.device.failed(error))? {
                capturing.push(id);
            }
        }
        Ok(capturing)
    }

    /// Makes every thread look up its streams again, on every device: a capture may include streams of several.
    fn close_caches_of_all_devices(&self) {
        self.close_caches();
        foreign_pools::foreign_pools().filter(|other| !ptr::eq(*other, self)).for_each(Self::close_caches);
    }

    fn close_caches(&self) {
        let streams: Vec<_> = self.streams().values().cloned().collect();
        for stream_state in streams.iter().filter(|stream_state| !is_legacy(stream_state.raw.into())) {
            self.device.pools().for_each(|pool| pool.close_caches(stream_state));
        }
    }

    pub(super) fn captures(&self) -> MutexGuard<'_, Captures> {
        self.captures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
