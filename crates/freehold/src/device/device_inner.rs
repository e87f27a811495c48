//! The state that all handles of a device share: the driver, the ledger, the streams and the pools.
//!
//! The ledger's lock is held briefly, never during a driver call.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use freehold_driver::{Backend, CallError, VirtualMemory, handle};

use crate::base::fork::ForkGuard;
use crate::base::pool_stats::PoolStats;
use crate::base::tags::{Full, Tags};
use crate::device::deferred::{Deferred, DeferredQueue};
use crate::device::sleepers::Sleepers;
use crate::device::staging::{Buffer, Staging};
use crate::error::fault::{Fault, Suspect};
use crate::error::{Error, Result};
use crate::ledger::{
    BlockId, ContextId, EndReason, Fence, Kind, Ledger, NotEntered, Owner, State, StreamId, WrongRelease,
};
use crate::ordering::context_state::ContextState;
use crate::ordering::stream_origin::{StreamOrigin, ThreadId};
use crate::ordering::stream_state::StreamState;
use crate::ordering::streams::Streams;
use crate::ordering::transfer_slot::TransferSlot;
use crate::pool::block_meta::{BlockState, MetaSnapshot};
use crate::pool::{NewPoolError, Pool, PoolIndex};
use crate::trace::Timeline;

/// How many errors of drops are kept until they are read: the first ones, which are the most informative.
const DROP_ERRORS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct DeviceInner {
    /// The primary context, kept for as long as this lives, or a context of foreign code in its place.
    pub(crate) backend: Arc<dyn Backend>,
    /// Whether the host can access blocks at their device addresses; unset until first asked.
    pub(crate) is_host_visible: OnceLock<bool>,
    pub(crate) process: u32,
    opened: Instant,
    /// The owners of everything that is not in a pool.
    ledger: Mutex<Ledger>,
    pub(crate) streams: Streams,
    pub(crate) staging: Staging,
    /// Operations that wait until nothing of their context is pending.
    pub(crate) deferred: DeferredQueue,
    fault: OnceLock<Arc<Fault>>,
    /// The names of kernels by number, for faults.
    kernels: Mutex<Vec<Arc<str>>>,
    /// The errors of drops, which cannot return them.
    drop_errors: Mutex<Vec<Error>>,
    contexts: AtomicU32,
    pub(crate) tags: Tags,
    pub(crate) timeline: Timeline,
    pub(crate) pool: Pool,
    /// The pool of blocks that other processes can map.
    pub(crate) shareable: OnceLock<Pool>,
    /// The pools of names whose blocks sleep together.
    pub(crate) sleepers: Sleepers,
    /// Blocks that foreign code owns by their addresses.
    by_address: Mutex<HashMap<u64, Box<dyn LeakedBlock>>>,
}

/// A block that foreign code owns by its address. It keeps the device alive, and the device keeps it.
pub(crate) trait LeakedBlock: Any + Debug + Send {
    fn context(&self) -> ContextId;

    /// Records a use that did not wait.
    fn note_use(&self, fence: Fence);
}

/// Converts the error of a pool that could not be created.
fn no_pool(error: NewPoolError) -> Error {
    match error {
        NewPoolError::Short { wanted_bytes } => Error::Short { wanted_bytes },
        NewPoolError::System(error) => Error::System { kind: error.kind() },
        NewPoolError::Call(error) => Error::Call(error),
    }
}

impl DeviceInner {
    /// Takes over a context. Closes it when dropped, or if this fails.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Result<Self> {
        let device = Self::over(backend.clone());
        // SAFETY: the caller handed the context over and no longer uses it, and everything created in it here is gone.
        device.or_else(|error| unsafe { backend.close() }.map_err(Error::from).and(Err(error)))
    }

    fn over(backend: Arc<dyn Backend>) -> Result<Self> {
        let fork_guard = ForkGuard::new().map_err(|error| Error::System { kind: error.kind() })?;
        let pool = Pool::new(backend.clone(), fork_guard).map_err(no_pool)?;
        Ok(Self {
            streams: Streams::new(backend.clone()),
            backend,
            is_host_visible: OnceLock::new(),
            process: std::process::id(),
            opened: Instant::now(),
            ledger: Mutex::default(),
            staging: Staging::default(),
            deferred: DeferredQueue::default(),
            fault: OnceLock::new(),
            kernels: Mutex::default(),
            drop_errors: Mutex::default(),
            contexts: AtomicU32::new(1),
            tags: Tags::default(),
            timeline: Timeline::default(),
            pool,
            shareable: OnceLock::new(),
            sleepers: Sleepers::default(),
            by_address: Mutex::default(),
        })
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the device was opened.
    pub(crate) fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Returns an error in a forked child, and after a fault.
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
        self.pool.table.fork_guard.is_well()
    }

    pub(crate) fn is_child(&self) -> bool {
        self.pool.table.fork_guard.is_child()
    }

    /// Converts the error of a refused call. The first sticky fault is kept, with the kernels that may have caused it.
    pub(crate) fn failed(&self, error: CallError) -> Error {
        if !error.is_sticky() {
            return Error::Call(error);
        }
        self.failed_for_good(error)
    }

    fn failed_for_good(&self, error: CallError) -> Error {
        let fault = self.fault.get_or_init(|| Arc::new(self.fault_of(error)));
        self.pool.table.fork_guard.note_failure();
        Error::Faulted(fault.clone())
    }

    /// Converts the error after the driver refused twice to wait. It is unknown whether the device still uses host
    /// memory, so the device is treated as failed, whatever the code.
    pub(crate) fn lost(&self, error: CallError) -> Error {
        self.failed_for_good(error)
    }

    fn fault_of(&self, noticed: CallError) -> Fault {
        let names = self.kernels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut suspects, mut unnamed) = (Vec::new(), 0);
        for stream_state in self.streams.all() {
            let (launches, forgotten) = stream_state.pending_launches();
            unnamed += forgotten;
            suspects.extend(launches.into_iter().map(|(seq, kernel)| Suspect {
                kernel: names[kernel as usize].clone(),
                stream: stream_state.id,
                seq,
            }));
        }
        Fault { noticed, details: self.backend.fault(), suspects, unnamed }
    }

    /// Returns a number for a kernel's name.
    pub(crate) fn number_kernel(&self, name: &Arc<str>) -> u32 {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let number = kernels.iter().position(|known| known == name).unwrap_or_else(|| {
            kernels.push(name.clone());
            kernels.len() - 1
        });
        u32::try_from(number).expect("fewer than 2^32 kernels")
    }

    /// Keeps the error of a drop.
    pub(crate) fn note_drop_error(&self, error: Error) {
        tracing::warn!(target: "freehold", %error, "a drop failed");
        let mut troubles = self.drop_errors.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() < DROP_ERRORS_MAX {
            troubles.push(error);
        }
    }

    /// Keeps the error of a refused call that cannot be returned.
    pub(crate) fn note_refusal(&self, error: CallError) {
        self.note_drop_error(self.failed(error));
    }

    pub(crate) fn take_drop_errors(&self) -> Vec<Error> {
        std::mem::take(&mut *self.drop_errors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn next_context(&self) -> ContextId {
        ContextId(self.contexts.fetch_add(1, Ordering::Relaxed))
    }

    /// Only for callers that have mapped memory.
    pub(crate) fn mapping(&self) -> &dyn VirtualMemory {
        self.backend.virtual_memory().expect("mapped memory belongs to a device that can map")
    }

    /// Records addresses in the ledger that are reserved here. Any other entry there is stale, and is removed: foreign
    /// memory that was freed, or the library's own whose addresses were freed just now.
    pub(crate) fn entering<R>(&self, mut enter: impl FnMut(&mut Ledger) -> Result<R>) -> Result<R> {
        let mut ledger = self.ledger();
        loop {
            match enter(&mut ledger) {
                Err(Error::NotEntered(NotEntered::Overlap { with, .. }))
                    if with.kind != Kind::Own || with.state != State::Owned =>
                {
                    ledger.forget(with.block, EndReason::Returned);
                }
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn defer(&self, what: Deferred) {
        self.deferred.push(what);
    }

    // Streams, with errors converted.

    /// Creates a stream and its state.
    pub(crate) fn add_stream(&self, context_state: &Arc<ContextState>) -> Result<Arc<StreamState>> {
        self.streams.add(context_state).map_err(|error| self.failed(error))
    }

    /// Makes the state of a stream that foreign code created.
    pub(crate) fn add_foreign_stream(
        &self,
        raw: handle::Stream,
        thread: Option<ThreadId>,
        origin: StreamOrigin,
    ) -> Result<Arc<StreamState>> {
        self.streams.add_foreign(raw, thread, origin).map_err(|error| self.failed(error))
    }

    /// Returns an error if a wait for a fence would be recorded in a stream that is being captured.
    pub(crate) fn check_uncaptured(&self, fence: Fence) -> Result<()> {
        let is_captured = self.streams.is_captured_before(fence).map_err(|error| self.failed(error))?;
        if is_captured { Err(Error::StreamCaptured) } else { Ok(()) }
    }

    /// Records these fences. Fails if a capture keeps one from being recorded.
    pub(crate) fn record_fences_uncaptured(&self, fences: &[Fence]) -> Result<()> {
        for &fence in fences {
            if self.streams.is_captured_before_fence(fence).map_err(|error| self.failed(error))? {
                return Err(Error::StreamCaptured);
            }
        }
        self.record_fences(fences)
    }

    /// Waits on the host until a fence is complete.
    pub(crate) fn wait_for_fence(&self, fence: Fence) -> Result<()> {
        self.check_uncaptured(fence)?;
        self.streams.wait_on_host(fence).map_err(|error| self.failed(error))
    }

    /// Like [`wait_for_fence`](Self::wait_for_fence), for a fence that was recorded, and for no work after it.
    pub(crate) fn wait_for_recorded_fence(&self, fence: Fence) -> Result<()> {
        match self.streams.get(fence.stream) {
            Some(stream_state) => stream_state.wait_recorded(fence.seq).map_err(|error| self.failed(error)),
            None => self.wait_for_fence(fence),
        }
    }

    /// Takes a staging buffer with space for `bytes`.
    pub(crate) fn take_staging(&self, bytes: usize) -> Result<Buffer> {
        self.staging.take(&*self.backend, &self.streams, bytes).map_err(|error| self.failed(error))
    }

    /// Takes a free transfer slot.
    pub(crate) fn take_transfer_slot(&self) -> Result<Arc<TransferSlot>> {
        self.streams.take_transfer_slot().map_err(|error| self.failed(error))
    }

    /// Records these fences, so that the host sees when they are complete.
    pub(crate) fn record_fences(&self, fences: &[Fence]) -> Result<()> {
        self.streams.record_fences(fences).map_err(|error| self.failed(error))
    }

    /// Records these fences, at once if no fence is pending in their stream, otherwise with the next one, which a later
    /// release or a request that finds no memory records.
    pub(crate) fn record_fences_coalesced(&self, fences: &[Fence]) -> Result<()> {
        self.streams.record_fences_coalesced(fences).map_err(|error| self.failed(error))
    }

    /// Whether a fence is complete, calling the driver if necessary.
    pub(crate) fn is_complete_by_now(&self, fence: Fence) -> Result<bool> {
        self.streams.is_complete_by_now(fence).map_err(|error| self.failed(error))
    }

    /// Waits for all work of all streams.
    pub(crate) fn synchronize_all(&self) -> Result<()> {
        self.check()?;
        self.streams.all().iter().try_for_each(|stream_state| self.wait_for_fence(stream_state.current_fence()))
    }

    // Blocks by address.

    /// Returns the owner of the block that contains an address.
    pub(crate) fn owner_of(&self, address: u64) -> Option<Owner> {
        match self.snapshot_at(address) {
            Some((pool, meta, seen)) => Some(self.owner(pool, meta, seen)),
            None => self.ledger().owner_of(address),
        }
    }

    /// Returns an error if a span overlaps the addresses of a pool: all memory there is the pool's own.
    pub(crate) fn check_outside_pools(&self, base: u64, bytes: u64) -> std::result::Result<(), NotEntered> {
        let end = base.saturating_add(bytes);
        match self.pools().find_map(|pool| pool.chunks.first_within(base..end)) {
            None => Ok(()),
            Some(address) => {
                Err(NotEntered::OfPool { base, bytes, address, block: self.owner_of(address).map(Box::new) })
            }
        }
    }

    fn snapshot_at(&self, address: u64) -> Option<(&Pool, u32, MetaSnapshot)> {
        self.pools().find_map(|pool| pool.snapshot_at(address).map(|(meta, seen)| (pool, meta, seen)))
    }

    /// Returns the owner of a pool's block, while one ownership of it lasts.
    pub(crate) fn owner_of_meta(&self, pool: &Pool, meta: u32, generation: u64) -> Option<Owner> {
        pool.table.metas.at(meta).owned_as(generation).map(|seen| self.owner(pool, meta, seen))
    }

    /// Returns the library's own blocks that have an owner, by address.
    pub(crate) fn owned(&self) -> Vec<Owner> {
        let of_pool = |pool| move |(meta, seen)| self.owner(pool, meta, seen);
        let pooled = self.pools().flat_map(|pool| pool.owned().into_iter().map(of_pool(pool)));
        let mut owned: Vec<_> = pooled.chain(self.ledger().owned()).collect();
        owned.sort_unstable_by_key(|owner| owner.base);
        owned
    }

    fn owner(&self, pool: &Pool, meta: u32, seen: MetaSnapshot) -> Owner {
        let number = pool.number_of(meta);
        let state = match seen.state.state() {
            BlockState::Owned if self.sleepers.is_asleep(pool.index) => State::Asleep,
            BlockState::Owned => State::Owned,
            BlockState::Pending => State::Released { waiting_for: seen.waiting_for },
            BlockState::Free | BlockState::Vacant | BlockState::Ended => State::Free,
        };
        Owner {
            base: seen.base,
            bytes: seen.bytes,
            context: pool.context_of(seen.heap),
            stream: Some(StreamId(seen.stream)),
            process: self.process,
            kind: Kind::Own,
            tag: seen.debug_info.and_then(|described| self.tags.name(described.tag, number)),
            allocated_at: seen.debug_info.map(|described| described.allocated_at),
            state,
            block: BlockId::of_pool(number, seen.state.generation() as u32),
        }
    }

    /// Returns the block that a release of an address would release, or the error that the release would return.
    pub(crate) fn releasable(&self, address: u64) -> std::result::Result<Owner, WrongRelease> {
        if let Some((pool, meta, seen)) = self.snapshot_at(address)
            && seen.state.state() == BlockState::Owned
        {
            let of = self.owner(pool, meta, seen);
            let offset_bytes = address - of.base;
            return if offset_bytes == 0 {
                Ok(of)
            } else {
                Err(WrongRelease::Interior { of: Box::new(of), offset_bytes })
            };
        }
        let Some(gone) = self.pools().find_map(|pool| pool.freed_at(address)) else {
            let ledger = self.ledger();
            let block = ledger.releasable(address)?;
            let of = ledger.owner(block).expect("a block that can be released has an owner");
            return Err(WrongRelease::Held { of: Box::new(of) });
        };
        let (base, bytes, offset_bytes) = (gone.base, gone.bytes, address - gone.base);
        let described = gone.described;
        let allocated_at = described.map(|described| described.allocated_at);
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

    /// Returns the pools that exist.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        std::iter::once(&self.pool).chain(self.shareable.get()).chain(self.sleepers.pools())
    }

    /// Returns the pool of blocks that were allocated.
    #[inline]
    pub(crate) fn pool_of(&self, index: PoolIndex) -> &Pool {
        let pool = match index {
            PoolIndex::MAIN => Some(&self.pool),
            PoolIndex::SHAREABLE => self.shareable.get(),
            index => self.sleepers.pool(index),
        };
        pool.expect("a pool with blocks exists")
    }

    /// Like [`pool_of`](Self::pool_of), creating the pool if there is none yet.
    pub(crate) fn pool_for(&self, index: PoolIndex) -> Result<&Pool> {
        match index {
            PoolIndex::SHAREABLE => self.shareable(),
            index => Ok(self.pool_of(index)),
        }
    }

    #[cold]
    fn shareable(&self) -> Result<&Pool> {
        if let Some(pool) = self.shareable.get() {
            return Ok(pool);
        }
        if !self.pool.chunks.can_map() || self.backend.sharing().is_none() {
            return Err(Error::CannotShare);
        }
        let made = self.pool.shareable().map_err(|error| self.failed_pool(error))?;
        if let Err(made) = self.shareable.set(made) {
            // Another thread was faster.
            made.chunks.free_addresses().map_err(|error| self.failed(error))?;
        }
        Ok(self.pool_of(PoolIndex::SHAREABLE))
    }

    /// Converts the error of a further pool that could not be created.
    pub(crate) fn failed_pool(&self, error: NewPoolError) -> Error {
        match error {
            NewPoolError::Call(error) => self.failed(error),
            error => no_pool(error),
        }
    }

    /// Returns how much memory is in each state.
    pub(crate) fn stats(&self) -> PoolStats {
        let mut stats = PoolStats::default();
        self.pools().for_each(|pool| pool.add_stats(&mut stats));
        let vectors = self.ledger().stats();
        stats.reserved_bytes = self.pool.chunks.reserved_bytes();
        self.sleepers.add_stats(&mut stats);
        let asleep_bytes = stats.asleep_kept_bytes + stats.asleep_dropped_bytes;
        let taken_bytes = (stats.owned_bytes + stats.released_bytes + vectors.held_bytes).saturating_sub(asleep_bytes);
        stats.cached_bytes = stats.reserved_bytes.saturating_sub(taken_bytes);
        stats.owned_blocks += vectors.owned_blocks;
        stats.owned_bytes += vectors.owned_bytes;
        stats.released_blocks += vectors.released_blocks + vectors.free_blocks;
        stats.released_bytes += vectors.released_bytes + vectors.free_bytes;
        stats
    }

    /// Counts bytes for a name, unless they exceed its limit.
    pub(crate) fn charge(&self, tag: Option<&str>, wanted_bytes: u64) -> Result<u32> {
        self.tags.charge(tag, wanted_bytes).map_err(|full| budget_full(full, wanted_bytes))
    }

    /// Counts more bytes for a block that has a tag already, unless they exceed its name's limit.
    pub(crate) fn charge_more(&self, tag: u32, wanted_bytes: u64) -> Result<()> {
        self.tags.charge_more(tag, wanted_bytes).map_err(|full| budget_full(full, wanted_bytes))
    }

    /// Forgets the leaked blocks of a closed context. Otherwise the blocks and the device would keep each other alive,
    /// and the blocks would be taken for later blocks at their addresses.
    pub(crate) fn forget_by_address(&self, context: ContextId) {
        let gone: Vec<_> =
            self.by_address().extract_if(|_, leaked| leaked.context() == context).map(|(_, gone)| gone).collect();
        drop(gone);
    }

    pub(super) fn by_address(&self) -> MutexGuard<'_, HashMap<u64, Box<dyn LeakedBlock>>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn budget_full(full: Full, wanted_bytes: u64) -> Error {
    let Full { tag, live_bytes, budget_bytes } = full;
    Error::BudgetFull { tag, wanted_bytes, live_bytes, budget_bytes }
}
