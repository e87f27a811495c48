//! Memory of captures. A graph uses the addresses that its capture saw each time it is launched, so what is handed out or freed in
//! a capturing stream belongs to a private pool: it serves captures of that pool alone until the pool is released.
//!
//! A private pool has a stream_state of its own for each stream that was captured with it. Nothing passes that stream_state before the pool is
//! released, so nobody else takes what is free there.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use freehold_driver::cuda::CUstream;

use super::{ForeignPool, is_legacy, thread_of};
use crate::error::{Error, Result};
use crate::stream_state::{StreamOrigin, StreamState, ThreadId};

/// What a private pool is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolId {
    /// Two numbers that the caller chose, as PyTorch does.
    Named(u64, u64),
    /// The pool of a capture that was not announced, by the driver's id of the capture.
    Capture(u64),
}

/// The private pools of a device.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pools: HashMap<PoolId, PrivatePool>,
    /// The pool of each capture that was seen.
    of_capture: HashMap<u64, PoolId>,
    /// Pools that were released, until all work that may use their memory is known to be done.
    leaving: Vec<PrivatePool>,
}

#[derive(Debug, Default)]
struct PrivatePool {
    /// How often it was begun and not released.
    users: usize,
    /// The threads that have begun it and not ended it.
    open: Vec<ThreadId>,
    /// By handle, and by thread for per-thread default streams.
    streams: HashMap<(usize, Option<ThreadId>), Arc<StreamState>>,
    /// Those whose stream was destroyed: their handles may be other streams'.
    gone: Vec<Arc<StreamState>>,
}

impl PrivatePool {
    fn all_tracks(&self) -> impl Iterator<Item = &Arc<StreamState>> {
        self.streams.values().chain(&self.gone)
    }
}

impl Captures {
    /// The pool of a capture: the one that this thread has begun, or the only one that is begun. Where that does not tell, one of its
    /// own.
    fn pool_of(&mut self, capture: u64) -> PoolId {
        if let Some(&id) = self.of_capture.get(&capture) {
            return id;
        }
        let open = || self.pools.iter().filter(|(_, pool)| !pool.open.is_empty());
        let mut own = open().filter(|(_, pool)| pool.open.contains(&ThreadId::current()));
        let chosen = match (own.next(), own.next()) {
            (Some((&id, _)), None) => Some(id),
            (None, _) if open().count() == 1 => open().next().map(|(&id, _)| id),
            _ => None,
        };
        let id = chosen.unwrap_or_else(|| {
            self.pools.insert(PoolId::Capture(capture), PrivatePool { users: 1, ..PrivatePool::default() });
            PoolId::Capture(capture)
        });
        self.of_capture.insert(capture, id);
        id
    }

    /// All pools whose streams are still of interest.
    fn all(&mut self) -> impl Iterator<Item = &mut PrivatePool> {
        self.pools.values_mut().chain(&mut self.leaving)
    }
}

impl ForeignPool {
    /// Promises that each capture is announced by [`begin_pool`](Self::begin_pool) before it begins. Until then the driver is
    /// asked in each call that names another stream than the legacy default one whether the stream is capturing.
    ///
    /// # Safety
    /// The promise is kept: what a capture takes that was not announced is handed out to others, and launches of its graph
    /// overwrite it.
    pub unsafe fn announce_captures(&self) {
        self.is_announced.store(true, Ordering::SeqCst);
    }

    /// Lets captures that begin from now on have their memory from a private pool, until [`end_pool`](Self::end_pool).
    ///
    /// # Errors
    /// [`Error::ForkedChild`] and [`Error::Faulted`].
    pub fn begin_pool(&self, id: PoolId) -> Result<()> {
        self.device.check()?;
        let mut captures = self.captures();
        let pool = captures.pools.entry(id).or_default();
        pool.users += 1;
        pool.open.push(ThreadId::current());
        self.pools_open.fetch_add(1, Ordering::SeqCst);
        drop(captures);
        self.close_all_racks();
        Ok(())
    }

    /// Ends what [`begin_pool`](Self::begin_pool) began. What was handed out and freed meanwhile stays the pool's.
    ///
    /// # Errors
    /// [`Error::NoSuchPool`] where it was not begun.
    pub fn end_pool(&self, id: PoolId) -> Result<()> {
        self.device.check()?;
        let mut captures = self.captures();
        let here = ThreadId::current();
        let pool = captures.pools.get_mut(&id).filter(|pool| !pool.open.is_empty()).ok_or(Error::NoSuchPool)?;
        let index = pool.open.iter().position(|&thread| thread == here).unwrap_or(pool.open.len() - 1);
        pool.open.remove(index);
        if pool.open.is_empty() {
            captures.of_capture.retain(|_, of| *of != id);
        }
        drop(captures);
        self.close_all_racks();
        self.pools_open.fetch_sub(1, Ordering::SeqCst);
        self.settle_captures()
    }

    /// Releases a private pool, as often as it was begun: no graph that was captured with it is launched any more. Its free memory
    /// is anybody's when all work on the device is done, for which this waits; its live blocks are when they are freed. While a
    /// stream is capturing nothing can be waited for, and the memory stays until a later call of this kind.
    ///
    /// # Errors
    /// [`Error::NoSuchPool`] where it was not begun, or is still to be ended.
    pub fn release_pool(&self, id: PoolId) -> Result<()> {
        self.device.check()?;
        let mut captures = self.captures();
        let pool = captures.pools.get_mut(&id).filter(|pool| pool.users > pool.open.len()).ok_or(Error::NoSuchPool)?;
        pool.users -= 1;
        if pool.users == 0 {
            let released = captures.pools.remove(&id).expect("it was found");
            captures.of_capture.retain(|_, of| *of != id);
            captures.leaving.push(released);
        }
        drop(captures);
        self.settle_captures()
    }

    /// The first addresses and the bytes of the live blocks of a private pool.
    ///
    /// # Errors
    /// [`Error::NoSuchPool`] where it was not begun, or was released.
    pub fn pool_blocks(&self, id: PoolId) -> Result<Vec<(u64, u64)>> {
        self.device.check()?;
        let captures = self.captures();
        let pool = captures.pools.get(&id).ok_or(Error::NoSuchPool)?;
        let streams: Vec<u32> = pool.all_tracks().map(|stream_state| stream_state.id.0).collect();
        drop(captures);
        let is_of = |&(meta, _): &(u32, _)| streams.contains(&self.device.pool.table.metas.at(meta).stream());
        Ok(self.device.pool.owned().into_iter().filter(is_of).map(|(_, seen)| (seen.base, seen.bytes)).collect())
    }

    /// Whether a call that names a stream must ask the driver whether it is capturing. The legacy default stream never is.
    pub(super) fn asks(&self, stream: CUstream) -> bool {
        let is_told = self.is_announced.load(Ordering::SeqCst) && self.pools_open.load(Ordering::SeqCst) == 0;
        !is_legacy(stream) && (self.is_checked || !is_told)
    }

    /// The capture that a stream takes part in, as far as this call must ask.
    pub(super) fn capture_if_asked(&self, stream: CUstream) -> Result<Option<u64>> {
        if self.asks(stream) || (!is_legacy(stream) && !self.knows(stream)) {
            self.capture_of(stream)
        } else {
            Ok(None)
        }
    }

    /// The id of the capture that a stream takes part in. Refuses a handle that the driver does not know.
    pub(super) fn capture_of(&self, stream: CUstream) -> Result<Option<u64>> {
        // SAFETY: whoever has a foreign pool vouches for the streams that it names.
        unsafe { self.foreign().capture_of(stream.into()) }.map_err(|error| self.device.failed(error))
    }

    /// The stream_state of a stream in the private pool of its capture.
    pub(super) fn captured_stream(&self, stream: CUstream, capture: u64) -> Result<Arc<StreamState>> {
        let name = (stream.0, thread_of(stream));
        let mut captures = self.captures();
        let id = captures.pool_of(capture);
        let pool = captures.pools.get_mut(&id).expect("a capture is of a pool that is there");
        if let Some(stream_state) = pool.streams.get(&name) {
            return Ok(stream_state.clone());
        }
        let stream_state = self.device.add_foreign_stream(stream.into(), thread_of(stream), StreamOrigin::Captured)?;
        pool.streams.insert(name, stream_state.clone());
        Ok(stream_state)
    }

    /// Lets the memory of released pools be anybody's, behind all work on the device.
    pub(super) fn settle_captures(&self) -> Result<()> {
        if self.captures().leaving.is_empty() || self.is_any_capturing()? {
            return Ok(());
        }
        // Not under the lock: the work may wait for a thread that asks for it.
        let left = std::mem::take(&mut self.captures().leaving);
        if let Err(error) = self.device.backend.synchronize() {
            self.captures().leaving.extend(left);
            return Err(self.device.failed(error));
        }
        for stream_state in left.iter().flat_map(PrivatePool::all_tracks) {
            stream_state.release_capture();
            self.device.pools().for_each(|pool| pool.close_caches(stream_state));
        }
        self.device.run_deferred()
    }

    /// Whether a stream of this handle was named while it was captured.
    pub(super) fn has_captured(&self, stream: CUstream) -> bool {
        let name = (stream.0, thread_of(stream));
        self.captures().all().any(|pool| pool.streams.contains_key(&name))
    }

    /// Notes that a stream is about to be destroyed. What its captures took stays their pools'.
    pub(super) fn forget_captured(&self, stream: CUstream) {
        let name = (stream.0, thread_of(stream));
        for pool in self.captures().all() {
            let gone = pool.streams.remove(&name);
            pool.gone.extend(gone);
        }
    }

    /// Whether a stream is capturing, of those that are known: who waits for the device then would spoil the capture.
    fn is_any_capturing(&self) -> Result<bool> {
        if self.pools_open.load(Ordering::SeqCst) > 0 {
            return Ok(true);
        }
        if self.is_checked {
            // No handle is trusted that is not named in this call.
            return Ok(self.captures().pools.keys().any(|id| matches!(id, PoolId::Capture(_))));
        }
        let mut known: Vec<_> = self.streams().values().cloned().collect();
        known.extend(self.captures().all().flat_map(|pool| pool.streams.values().cloned()));
        for stream_state in known.iter().filter(|stream_state| stream_state.is_this_threads()) {
            // SAFETY: the stream was not retired, and so it was not destroyed.
            let takes_marks = unsafe { self.foreign().takes_marks(stream_state.raw) };
            if !takes_marks.map_err(|error| self.device.failed(error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Has every thread ask again what a stream is.
    fn close_all_racks(&self) {
        let streams: Vec<_> = self.streams().values().cloned().collect();
        for stream_state in streams.iter().filter(|stream_state| !is_legacy(stream_state.raw.into())) {
            self.device.pools().for_each(|pool| pool.close_caches(stream_state));
        }
    }

    fn captures(&self) -> MutexGuard<'_, Captures> {
        self.captures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
