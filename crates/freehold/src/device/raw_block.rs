//! An owned block of device memory: its allocation, and its release.

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::{Arc, RwLockReadGuard};

use crate::base::sync_point::{self, SyncPoint};
use crate::device::exported::Exported;
use crate::device::make_room;
use crate::device::memory_use::MemoryUse;
use crate::device::stream_inner::StreamInner;
use crate::error::{Error, Result};
use crate::ledger::{Fence, Owner, StreamId};
use crate::ordering::access_history::{Access, AccessHistory};
use crate::pool::block_meta::{BlockMeta, OwnedBy};
use crate::pool::{AllocError, AllocatedBlock, BLOCKS_MAX, Pool, PoolIndex};
use crate::trace::Allocation;
use freehold_driver::{BlockChange, Permission};

/// One block, owned. Dropping it releases it, from any thread, without waiting.
#[derive(Debug)]
pub(crate) struct RawBlock {
    slot: PoolSlot,
    /// Which ownership of the meta this is.
    generation: u64,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    /// One reference count of the stream, which a thread cache keeps together with the memory.
    pub(crate) stream: ManuallyDrop<Arc<StreamInner>>,
    pub(crate) history: AccessHistory,
}

/// The pool of a block, the number of its meta there, and whether its memory was released other than by a drop. One
/// word: a `bool` field would become the niche in which a `Result` stores its discriminant, and split each copy of a
/// block there.
#[derive(Clone, Copy, Debug)]
struct PoolSlot(u32);

const RELEASED: u32 = 1 << 31;

/// A pool's index is above the meta's number, which is less than 2^24.
const POOL_SHIFT: u32 = 24;

impl PoolSlot {
    #[inline]
    fn new(pool: PoolIndex, meta: u32) -> Self {
        Self(pool.0 << POOL_SHIFT | meta)
    }

    #[inline]
    fn pool(self) -> PoolIndex {
        PoolIndex((self.0 & !RELEASED) >> POOL_SHIFT)
    }

    #[inline]
    fn meta(self) -> u32 {
        self.0 & ((1 << POOL_SHIFT) - 1)
    }

    #[inline]
    fn is_released(self) -> bool {
        self.0 & RELEASED != 0
    }
}

impl RawBlock {
    #[inline]
    pub(crate) fn alloc(
        stream: &Arc<StreamInner>,
        bytes: usize,
        pool: PoolIndex,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        let is_plain = tag.is_none() && pool == PoolIndex::MAIN && bytes > 0;
        let cached = if is_plain { try_alloc_untracked(stream, bytes, at) } else { None };
        match cached {
            Some(block) => Ok(Self::new(pool, block, bytes, stream)),
            None => Self::alloc_uncached(stream, bytes, pool, tag, at),
        }
    }

    /// Makes a block without memory. It counts as released from the start, so that nothing is returned to the pool.
    #[cold]
    pub(crate) fn empty(stream: &Arc<StreamInner>, pool: PoolIndex) -> Result<Self> {
        stream.context.inner.check()?;
        let PoolSlot(slot) = PoolSlot::new(pool, 0);
        Ok(Self {
            slot: PoolSlot(slot | RELEASED),
            generation: 0,
            address: 0,
            bytes: 0,
            history: AccessHistory::begin(Fence { stream: stream.state.id, seq: 0 }),
            stream: ManuallyDrop::new(stream.clone()),
        })
    }

    #[inline(never)]
    fn alloc_uncached(
        stream: &Arc<StreamInner>,
        bytes: usize,
        pool: PoolIndex,
        tag: Option<&str>,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        if bytes == 0 {
            return Self::empty(stream, pool);
        }
        stream.context.inner.check()?;
        let device = &stream.context.inner.device;
        let charged = device.charge(tag, bytes as u64)?;
        let pool =
            tag.and_then(|tag| device.sleepers.pool_of_tag(tag)).filter(|_| pool == PoolIndex::MAIN).unwrap_or(pool);
        let outcome = Self::alloc_charged(stream, bytes, pool, (charged, tag), at);
        let block = outcome.inspect_err(|_| device.tags.discharge(charged, u32::MAX, bytes as u64))?;
        Ok(Self::new(pool, block, bytes, stream))
    }

    #[inline]
    fn new(pool: PoolIndex, block: AllocatedBlock, bytes: usize, stream: &Arc<StreamInner>) -> Self {
        let AllocatedBlock { meta, base, generation, seq, has_stream_ref } = block;
        // SAFETY: the count is that of a block of the same stream which this thread freed, and was just given out.
        let stream = if has_stream_ref { unsafe { stream.take_cached_ref() } } else { stream.clone() };
        Self {
            slot: PoolSlot::new(pool, meta),
            generation,
            address: base,
            bytes,
            // The previous owner used the memory in this stream up to that seq, or its work is complete.
            history: AccessHistory::begin(Fence { stream: stream.state.id, seq }),
            stream: ManuallyDrop::new(stream),
        }
    }

    /// Like [`alloc_uncached`](Self::alloc_uncached), with a tag for which the bytes are counted already. If another
    /// thread closes the context meanwhile, the block ends with it.
    fn alloc_charged(
        stream: &Arc<StreamInner>,
        bytes: usize,
        pool: PoolIndex,
        (charged, tag): (u32, Option<&str>),
        at: &'static Location<'static>,
    ) -> Result<AllocatedBlock> {
        let context = &stream.context;
        let device = &context.inner.device;
        let (pool, stream_state) = (device.pool_for(pool)?, &stream.state);
        let asked = device.timeline.is_on().then(|| (device.now(), pool.chunks.reserved_bytes()));
        let wanted_bytes = bytes as u64;
        let key = pool.key(stream_state);
        let by = OwnedBy::Handle { allocated_at: at, tag: charged };
        let mut shared = context.inner.kept_open();
        let block = match Pool::try_alloc_local(key, wanted_bytes, by) {
            Some(block) => block,
            None => alloc_from_pool(stream, pool, (wanted_bytes, by), &mut shared)?,
        };
        sync_point::reach(SyncPoint::Alloc);
        device.tags.name_uncounted(charged, pool.number_of(block.meta), tag);
        if let Some((asked, reserved_bytes)) = asked {
            let is_reuse = pool.chunks.reserved_bytes() == reserved_bytes;
            let what = Allocation { base: block.base, bytes, tag, at, is_reuse, asked };
            device.timeline.allocated(what, stream_state, device.now(), device.stats());
        }
        Ok(block)
    }

    pub(crate) fn memory_use(&self, access: Access) -> MemoryUse<'_> {
        MemoryUse {
            uses: &self.history,
            context: &self.stream.context,
            base: self.address,
            start: self.address,
            bytes: self.bytes as u64,
            access,
            is_ordered: true,
            permission: Permission::ReadWrite,
        }
    }

    pub(crate) fn pool_index(&self) -> PoolIndex {
        self.slot.pool()
    }

    fn pool(&self) -> &Pool {
        self.stream.context.inner.device.pool_of(self.slot.pool())
    }

    /// Returns the data that another process needs to use the memory.
    pub(crate) fn export(&self) -> Result<Exported> {
        self.stream.context.inner.check()?;
        if self.slot.pool() != PoolIndex::SHAREABLE {
            return Err(Error::NotShareable { address: self.address });
        }
        if self.bytes == 0 {
            return Err(Error::NothingAsked);
        }
        // The chunk stays while the block does, and the block while its context is not closed.
        let _shared = self.stream.context.inner.enter()?;
        let (device, pool) = (&self.stream.context.inner.device, self.pool());
        let chunk = pool.chunk_of(pool.table.metas.at(self.slot.meta()));
        let exported = pool.chunks.export(chunk);
        Ok(Exported {
            descriptor: exported.map_err(|error| device.failed(error))?,
            chunk_bytes: chunk.bytes,
            offset_bytes: self.address - chunk.base,
            bytes: self.bytes as u64,
        })
    }

    /// Returns the block's owner, unless it is empty or ended with its context.
    pub(crate) fn owner(&self) -> Option<Owner> {
        let device = &self.stream.context.inner.device;
        if self.bytes == 0 {
            return None;
        }
        // In a fork the locks may be held forever, by threads that do not exist there.
        if device.is_child() { None } else { device.owner_of_meta(self.pool(), self.slot.meta(), self.generation) }
    }

    /// Gives the block another name.
    pub(crate) fn retag(&self, name: &str) {
        let device = &self.stream.context.inner.device;
        if self.owner().is_none() {
            return;
        }
        let bytes = self.bytes as u64;
        // A name's limit does not apply to a block that exists already.
        let tag = device.tags.charge_anyway(name, bytes);
        sync_point::reach(SyncPoint::Retag);
        let (pool, meta) = (self.pool(), self.meta());
        let number = pool.number_of(meta.number());
        let renamed = pool.while_owned(meta, self.generation, || {
            device.tags.discharge(meta.tag(), number, bytes);
            device.tags.name_uncounted(tag, number, Some(name));
            meta.set_tag(tag);
        });
        if renamed.is_none() {
            device.tags.discharge_part(tag, bytes);
        }
    }

    /// Resizes the memory in place. Returns whether it could.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<bool> {
        self.stream.context.inner.check()?;
        if bytes == 0 {
            return Ok(self.bytes == 0);
        }
        let device = &self.stream.context.inner.device;
        let (meta, had) = (self.meta(), self.bytes);
        if self.owner().is_none() {
            return Ok(false);
        }
        // The removed part becomes free in the order of the home stream alone.
        if bytes < had && !self.pending_in_other_streams().is_empty() {
            return Ok(false);
        }
        let (tag, more_bytes) = (self.tag(), bytes.saturating_sub(had) as u64);
        device.charge_more(tag, more_bytes)?;
        sync_point::reach(SyncPoint::Resize);
        if !self.pool().resize(meta, self.generation, bytes as u64) {
            device.tags.discharge_part(tag, more_bytes);
            return Ok(false);
        }
        device.tags.discharge_part(tag, had.saturating_sub(bytes) as u64);
        self.bytes = bytes;
        // Previous owners of the added part used it in the home stream, at the latest up to now.
        self.history.note_unordered(self.stream.state.current_fence(), Access::Write);
        Ok(true)
    }

    /// Replaces the memory by other memory under the same name, filled by `fill`. While the name has both, only the
    /// difference is counted. An error changes nothing.
    pub(crate) fn move_elsewhere(
        &mut self,
        stream: &Arc<StreamInner>,
        bytes: usize,
        at: &'static Location<'static>,
        fill: impl FnOnce(&Self, &mut Self) -> Result<()>,
    ) -> Result<()> {
        let name = self.owner().and_then(|owner| owner.tag);
        let device = self.stream.context.inner.device.clone();
        let (tag, more_bytes) = match name {
            Some(_) => (self.tag(), bytes.saturating_sub(self.bytes) as u64),
            None => (crate::base::tags::NONE, 0),
        };
        device.charge_more(tag, more_bytes)?;
        let pool = self.slot.pool();
        let moved = Self::alloc_charged(stream, bytes, pool, (tag, name.as_deref()), at).and_then(|block| {
            let mut other = Self::new(pool, block, bytes, stream);
            fill(self, &mut other).inspect_err(|_| other.lose_name(tag))?;
            Ok(other)
        });
        let other = moved.inspect_err(|_| device.tags.discharge_part(tag, more_bytes))?;
        sync_point::reach(SyncPoint::LoseName);
        if self.bytes > 0 {
            self.lose_name(tag);
        }
        device.tags.discharge_part(tag, self.bytes.saturating_sub(bytes) as u64);
        *self = other;
        Ok(())
    }

    /// Removes the name from the block. Its bytes stay counted, even if closing the context has uncounted them.
    fn lose_name(&self, tag: u32) {
        let (pool, meta) = (self.pool(), self.meta());
        let tags = &self.stream.context.inner.device.tags;
        let lost = pool.while_owned(meta, self.generation, || {
            tags.discharge(meta.tag(), pool.number_of(meta.number()), 0);
            meta.set_tag(crate::base::tags::NONE);
        });
        if lost.is_none() {
            tags.charge_more_anyway(tag, self.bytes as u64);
        }
    }

    /// Returns the block's tag while its ownership lasts, and none afterwards: its meta may be another block's.
    fn tag(&self) -> u32 {
        let described = self.meta().owned_as(self.generation).and_then(|seen| seen.debug_info);
        described.map_or(crate::base::tags::NONE, |described| described.tag)
    }

    fn meta(&self) -> &BlockMeta {
        self.pool().table.metas.at(self.slot.meta())
    }

    /// Returns all uses that may be pending, and the last one in the home stream.
    pub(crate) fn fences(&self) -> Vec<Fence> {
        let mut fences = self.history.in_other_streams();
        fences.push(self.history.last_home_use());
        fences
    }

    /// Releases the memory: records its fences, then returns it to the pool. An error changes nothing.
    pub(crate) fn release(&mut self, at: Option<&'static Location<'static>>) -> Result<()> {
        self.stream.context.inner.check()?;
        if self.bytes == 0 {
            return Ok(());
        }
        let device = &self.stream.context.inner.device;
        let fences = self.pending_in_other_streams();
        device.record_fences_coalesced(&fences)?;
        self.free(&fences, at);
        Ok(())
    }

    /// Waits for all uses of the memory and returns it to the driver, except chunks that contain other blocks. An error
    /// changes nothing. The pool keeps chunks that the driver refuses to unmap or free.
    pub(crate) fn release_now(&mut self, at: Option<&'static Location<'static>>) -> Result<()> {
        self.stream.context.inner.check()?;
        let inner = self.stream.context.inner.clone();
        let device = &inner.device;
        for fence in self.fences() {
            device.wait_for_fence(fence)?;
        }
        if self.bytes == 0 {
            return Ok(());
        }
        let shared = inner.enter()?;
        let span = self.address..self.address + self.bytes as u64;
        self.free(&[], at);
        let pool = device.pool_of(self.slot.pool());
        let kept_bytes = pool.chunks.spare_bytes();
        let given = pool.trim_range(&**device, span);
        drop(shared);
        let more_bytes = pool.chunks.spare_bytes().saturating_sub(kept_bytes);
        let keep_bytes = pool.chunks.reserved_bytes().saturating_sub(more_bytes);
        if let Err(error) = given.and_then(|()| pool.release_when_idle(&**device, keep_bytes)) {
            device.note_drop_error(device.failed(error));
        }
        Ok(())
    }

    /// Returns the uses in other streams that the next use in the home stream would have to wait for.
    fn pending_in_other_streams(&self) -> Vec<Fence> {
        let mut fences = self.history.in_other_streams();
        let device = &self.stream.context.inner.device;
        fences.retain(|fence| {
            !self.stream.state.has_waited(fence.stream, fence.seq) && !device.streams.is_complete(*fence)
        });
        fences
    }

    /// Returns the fence in the home stream after which nothing uses the memory, except for the fences of the release:
    /// if the home stream waited for others, it comes after these waits.
    fn last_home_fence(&self) -> Fence {
        if self.history.in_other_streams().is_empty() {
            self.history.last_home_use()
        } else {
            self.stream.state.current_fence()
        }
    }

    fn free(&mut self, fences: &[Fence], at: Option<&'static Location<'static>>) {
        let device = &self.stream.context.inner.device;
        self.slot.0 |= RELEASED;
        // The block has no owner until the pool has it, so the context is kept open.
        let _shared = self.stream.context.inner.kept_open();
        let when = device.now();
        let pool = device.pool_of(self.slot.pool());
        let meta = pool.table.metas.at(self.slot.meta());
        let tag = meta.tag();
        // Another thread may have closed the context, and the block with it.
        if !meta.disown_with_info(self.generation, at, when) {
            return;
        }
        pool.chunks.announce(BlockChange::Freed { address: self.address });
        meta.set_seq(self.last_home_fence().seq);
        device.tags.discharge(tag, pool.number_of(self.slot.meta()), self.bytes as u64);
        if !fences.is_empty() || !pool.try_cache(pool.key(&self.stream.state), meta) {
            pool.free(device.streams.get(StreamId(meta.stream())).as_deref(), self.slot.meta(), fences);
        }
        if device.timeline.is_on() {
            device.timeline.released(self.address, at, when, device.now(), device.stats());
        }
    }
}

/// Whether a block without a name can be allocated and freed without an observer and without keeping anything open.
#[inline]
fn is_untracked(stream: &StreamInner) -> bool {
    stream.stays_open && !stream.context.inner.device.timeline.is_on()
}

/// Allocates a block without a name from this thread's cache, if the stream is untracked: the warm path. It makes no
/// calls. Separate from the code that makes a handle of it, so that the handle is constructed in place and not moved.
#[inline(never)]
fn try_alloc_untracked(stream: &StreamInner, bytes: usize, at: &'static Location<'static>) -> Option<AllocatedBlock> {
    if is_untracked(stream) { Pool::try_alloc_cached(stream.key, bytes as u64, at) } else { None }
}

/// Allocates a block from a pool, if this thread has none cached. The caller may keep the context open.
fn alloc_from_pool<'a>(
    stream: &'a Arc<StreamInner>,
    pool: &Pool,
    (wanted_bytes, by): (u64, OwnedBy),
    shared: &mut Option<RwLockReadGuard<'a, ()>>,
) -> Result<AllocatedBlock> {
    let inner = &stream.context.inner;
    let (device, key) = (&inner.device, pool.key(&stream.state));
    // If the context is closed concurrently, the memory ends with it.
    let take = || {
        inner.enter().map(|_shared| make_room::alloc_or_make_room(device, pool, key, &stream.state, wanted_bytes, by))
    };
    let mut taken = take()?;
    if matches!(taken, Err(AllocError::Short)) && !pool.chunks.can_map() {
        // Memory goes back to the driver only while the destroy lock is not held.
        drop(shared.take());
        let has_room = make_room::make_room_alone(device, pool, wanted_bytes).map_err(|error| device.failed(error))?;
        *shared = inner.kept_open();
        if has_room {
            taken = take()?;
        }
    }
    taken.map_err(|refusal| match refusal {
        AllocError::Short => make_room::out_of_memory(device, pool, wanted_bytes),
        AllocError::TooMany => Error::TooManyBlocks { blocks_max: BLOCKS_MAX },
        AllocError::Call(error) => device.failed(error),
    })
}

impl RawBlock {
    /// Caches a block in this thread that has no name and was used in its home stream only: the warm path. It makes no
    /// calls, not even to a clock. Returns `None` if it could not, and then nothing has changed. Otherwise returns
    /// whether the cache also kept the stream's reference count.
    fn try_free_untracked(&self) -> Option<bool> {
        if !is_untracked(&self.stream) || self.slot.pool() != PoolIndex::MAIN || self.history.has_other_streams() {
            return None;
        }
        let block = (self.slot.meta(), self.generation);
        Pool::try_free_cached(self.stream.key, block, self.history.last_home_use().seq, || self.stream.may_cache_refs())
    }

    #[inline(never)]
    fn free_slow(&mut self) {
        let inner = &self.stream.context.inner;
        // The memory of a closed context ended with it; a forked child has none; and a device that has failed neither
        // allocates nor frees.
        if inner.is_closed() || inner.device.is_child() {
            return;
        }
        let fences = self.pending_in_other_streams();
        if inner.device.is_good()
            && let Err(error) = inner.device.record_fences_coalesced(&fences)
        {
            // The fences are not recorded yet. Until they are, the memory waits in the pool.
            inner.device.note_drop_error(error);
        }
        self.free(&fences, None);
    }
}

impl Drop for RawBlock {
    #[inline]
    fn drop(&mut self) {
        if !self.slot.is_released() {
            match self.try_free_untracked() {
                Some(true) => return,
                Some(false) => {}
                None => self.free_slow(),
            }
        }
        // SAFETY: this is the only place that drops it, and nothing uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.stream) };
    }
}

#[cfg(test)]
mod tests;
