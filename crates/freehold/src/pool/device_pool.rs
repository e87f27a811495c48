//! The pool of a device: blocks in and out, by thread, stream and address, and what is known of them all.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::{Backend, CallError};

use super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot};
use super::block_table::BlockTable;
use super::chunk_source::{ChunkSource, Visibility};
use super::extent_map::{Chunk, ExtentMap};
use super::heaps::Heaps;
use super::size_class::SizeClass;
use super::stats::Counters;
use super::stream_heap::StreamHeap;
use super::thread_cache::{self, CacheKey, ThreadCache};
use crate::base::fork::ForkGuard;
use crate::base::pool_stats::PoolStats;
use crate::error::Error;
use crate::ledger::{ContextId, Fence, StreamId};
use crate::ordering::stream_state::StreamState;
use crate::ordering::streams::Streams;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) table: Arc<BlockTable>,
    pub(super) heaps: Arc<Heaps>,
    pub(crate) chunks: ChunkSource,
    /// The heap of each stream.
    by_stream: Mutex<HashMap<u32, Arc<StreamHeap>>>,
    /// What is kept when the device is synchronised.
    threshold_bytes: AtomicU64,
    /// Which other heaps a stream that needs a block looks at first.
    pub(super) next_lender: AtomicUsize,
}

/// Why there is no block.
#[derive(Debug)]
pub(crate) enum AllocError {
    /// So much cannot be had, or not now.
    Short,
    /// There are as many blocks as the pool can tell apart.
    TooMany,
    Call(CallError),
}

impl From<CallError> for AllocError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Pool {
    /// The pool of a device.
    ///
    /// # Errors
    /// [`Error::System`] where the process may not have as many addresses as a pool notes its blocks at.
    pub(crate) fn new(backend: Arc<dyn Backend>, fork_guard: ForkGuard) -> Result<Self, Error> {
        Self::of(ChunkSource::new(backend)?, fork_guard)
    }

    /// A pool beside this one whose blocks other processes can have.
    pub(crate) fn shareable(&self) -> Result<Self, Error> {
        Self::of(self.chunks.shareable()?, self.table.fork_guard.clone())
    }

    fn of(chunks: ChunkSource, fork_guard: ForkGuard) -> Result<Self, Error> {
        let table = BlockTable::new(chunks.base, chunks.bytes, fork_guard).map(Arc::new);
        let (table, heaps) = match table.and_then(|table| Ok((table.clone(), Arc::new(Heaps::new(table)?)))) {
            Ok(made) => made,
            Err(error) => {
                chunks.close()?;
                return Err(Error::System { kind: error.kind() });
            }
        };
        let known = heaps.clone();
        chunks.describe(Box::new(move |address| known.bounds_at(address)));
        Ok(Self {
            table,
            heaps,
            chunks,
            by_stream: Mutex::default(),
            threshold_bytes: AtomicU64::new(u64::MAX),
            next_lender: AtomicUsize::new(0),
        })
    }

    /// A number for a meta of this pool that is no other's of the device.
    pub(crate) fn number_of(&self, meta: u32) -> u32 {
        match self.chunks.visibility {
            Visibility::Process => meta,
            // A pool has fewer than 2^24 metas.
            Visibility::Shareable => meta | 1 << 24,
        }
    }

    /// The chunk that the block of a meta lies in, which is live.
    pub(crate) fn chunk_of(&self, meta: &BlockMeta) -> Chunk {
        let chunk = self.heaps.get(meta.heap()).chunk_at(meta.base());
        chunk.expect("a block lies in a chunk")
    }

    pub(crate) fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_threshold_bytes(&self, bytes: u64) {
        self.threshold_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The longest range that is free anywhere.
    pub(crate) fn longest_bytes(&self) -> u64 {
        self.heaps.all().iter().map(|heap| heap.free_bytes().1).max().unwrap_or(0)
    }

    /// What can be mapped anew of what is free.
    pub(crate) fn movable_bytes(&self, streams: &Streams) -> u64 {
        // Where memory is not mapped, what is free stays where it is.
        if !self.chunks.can_map() {
            return 0;
        }
        let heaps = self.heaps.all();
        let free_bytes: u64 = heaps.iter().map(|heap| heap.free_chunk_bytes(|fence| streams.is_complete(fence))).sum();
        free_bytes + self.chunks.cached_bytes()
    }

    /// What this thread finds the magazines of one of the library's streams by.
    #[inline]
    pub(crate) fn key(&self, stream_state: &StreamState) -> CacheKey {
        CacheKey::own(self.table.number, stream_state.id.0)
    }

    /// A block that this thread keeps, for an owner: the warm path. It calls nothing.
    #[inline(always)]
    pub(crate) fn try_alloc_cached(key: CacheKey, bytes: u64) -> Option<Allocated> {
        thread_cache::try_with(key, |entered| entered.alloc(bytes, |meta| meta.own(bytes)).map(Allocated::of))
    }

    /// As [`try_alloc_cached`](Self::try_alloc_cached), for an owner without a name who says where it allocates.
    #[inline(always)]
    pub(crate) fn try_alloc_block_cached(
        key: CacheKey,
        bytes: u64,
        at: &'static Location<'static>,
    ) -> Option<CachedBlock> {
        thread_cache::try_with(key, |entered| {
            let held = entered.alloc(bytes, |meta| meta.hold(bytes, at)).map(CachedBlock::of)?;
            Some(CachedBlock { has_stream_ref: entered.take_stream_ref(), ..held })
        })
    }

    /// Takes back a block of [`try_alloc_block_cached`](Self::try_alloc_block_cached), in the order of the stream that this thread's cache is for,
    /// and behind a seq there, if there is room: the warm path. Nothing if it could not: then nothing has changed. Else
    /// whether a count of the stream's stream was kept with it, which `lends` allows.
    #[inline(always)]
    pub(crate) fn try_free_block_cached(
        key: CacheKey,
        (meta, generation): (u32, u64),
        seq: u64,
        lends: impl FnOnce() -> bool,
    ) -> Option<bool> {
        thread_cache::try_with(key, |entered| {
            let cache = entered.cache;
            let meta = cache.table.metas.at(meta);
            let state = meta.held_by(generation)?;
            if meta.stream() != cache.stream || !entered.try_free(meta, state) {
                return None;
            }
            // Nobody has the block before this thread is outside of the cache.
            meta.set_seq(seq);
            Some(lends() && entered.keep_stream_ref())
        })
    }

    /// A block that this thread keeps, or else one of the stream's heap, for an owner. Calls no driver.
    pub(crate) fn try_alloc_local(key: CacheKey, bytes: u64) -> Option<Allocated> {
        Self::try_alloc_cached(key, bytes).or_else(|| Self::refill(key, bytes))
    }

    /// A block of the stream's heap, for an owner. Calls no driver.
    pub(crate) fn refill(key: CacheKey, bytes: u64) -> Option<Allocated> {
        thread_cache::with(key, |entered| {
            let meta = match SizeClass::of(bytes) {
                // There may be some: the magazine was not looked at where another thread wanted in.
                Some(class) => entered.alloc(bytes, |meta| meta.own(bytes)).or_else(|| entered.refill(class, bytes)),
                None => entered.exchange_large(bytes),
            };
            meta.map(Allocated::of)
        })?
    }

    /// Gives this thread magazines for a stream, if it has none. A thread that is ending gets none.
    pub(crate) fn add_thread_cache(&self, key: CacheKey, stream_state: &Arc<StreamState>) {
        if !thread_cache::exists(key) {
            thread_cache::add(
                key,
                Arc::new(ThreadCache::new(self.heaps.clone(), self.heap_of(stream_state), stream_state.clone())),
            );
        }
    }

    /// Whether this thread is ending, and has marked its default streams for the last time.
    pub(crate) fn is_thread_ending() -> bool {
        thread_cache::is_thread_ending()
    }

    /// Lets a block be of other bytes where it lies, while one ownership of it lasts. Whether it could.
    pub(crate) fn resize(&self, meta: &BlockMeta, generation: u64, bytes: u64) -> bool {
        // A meta's blocks are all of one heap.
        self.heaps.get(meta.heap()).resize(meta, generation, bytes)
    }

    /// Calls `act` while one ownership of a block lasts, which nobody ends meanwhile. Nothing where it has ended.
    pub(crate) fn while_owned<R>(&self, meta: &BlockMeta, generation: u64, act: impl FnOnce() -> R) -> Option<R> {
        self.heaps.get(meta.heap()).while_owned(meta, generation, act)
    }

    /// Takes back a block by its address, in the order of the stream that this thread's cache is for, if there is room: the
    /// warm path. It calls nothing. Whether it could: otherwise nothing has changed.
    #[inline(always)]
    pub(crate) fn try_free_cached(key: CacheKey, address: u64) -> bool {
        thread_cache::try_with(key, |entered| {
            let cache = entered.cache;
            let meta = cache.table.meta_at(address)?;
            let state = meta.owned_at(address)?;
            (meta.stream() == cache.stream && entered.try_free(meta, state)).then_some(())
        })
        .is_some()
    }

    /// As [`try_free_cached`](Self::try_free_cached), with room made. Whether this thread has it now: otherwise nothing has changed.
    pub(crate) fn try_free_local(key: CacheKey, address: u64) -> bool {
        let put = thread_cache::with(key, |entered| {
            let cache = entered.cache;
            let meta = cache.table.meta_at(address)?;
            let state = meta.owned_at(address)?;
            let is_here = meta.stream() == cache.stream && meta.disown_from(state);
            is_here.then(|| entered.free(meta))
        });
        put.flatten().is_some()
    }

    /// Keeps a block that its owner has given up in this thread, in the order of the block's own stream. Whether it could.
    pub(crate) fn try_cache(&self, key: CacheKey, meta: &BlockMeta) -> bool {
        let put = thread_cache::with(key, |entered| {
            let is_own = meta.stream() == entered.cache.stream;
            if is_own {
                entered.free(meta);
            }
            is_own
        });
        put == Some(true)
    }

    /// Takes back a block that nobody owns any more, in the order of its own stream and behind fences.
    pub(crate) fn free(&self, streams: &Streams, meta: u32, fences: &[Fence]) {
        let meta = self.table.metas.at(meta);
        let heap = self.heaps.get(meta.heap());
        heap.counters.sub_live_shared(meta.bytes());
        match streams.get(StreamId(meta.stream())) {
            Some(from) => heap.free(&self.table, meta.number(), &from, fences),
            // A stream that is gone has passed all of its work.
            None => heap.free(&self.table, meta.number(), &heap.stream(), fences),
        }
    }

    /// Takes all counts of a stream's stream that threads keep.
    pub(crate) fn take_stream_refs(&self, stream_state: &StreamState) -> u32 {
        self.heap_if_any(stream_state).map_or(0, |heap| heap.caches.take_stream_refs(stream_state.id.0))
    }

    fn heap_if_any(&self, stream_state: &StreamState) -> Option<Arc<StreamHeap>> {
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner).get(&stream_state.id.0).cloned()
    }

    /// Closes the magazines of all threads for a stream.
    pub(crate) fn close_caches(&self, stream_state: &StreamState) {
        let heap = self.heap_if_any(stream_state);
        for cache in heap.iter().flat_map(|heap| heap.caches.all()).filter(|cache| cache.stream() == stream_state.id.0)
        {
            cache.empty(true);
        }
    }

    /// What is known of the block that an address lies in, owned or not yet anybody else's.
    pub(crate) fn snapshot_at(&self, address: u64) -> Option<(u32, MetaSnapshot)> {
        let meta = self.heaps.meta_around(address)?;
        let seen = meta.snapshot();
        let is_there = matches!(seen.state.state(), BlockState::Owned | BlockState::Cached | BlockState::Pending);
        (is_there && address.wrapping_sub(seen.base) < seen.bytes).then(|| (meta.number(), seen))
    }

    /// What is known of a block that is gone, or parked, by an address.
    pub(crate) fn freed_at(&self, address: u64) -> Option<FreedBlock> {
        let parked = self.heaps.meta_around(address);
        let parked = parked.filter(|meta| meta.state().state() != BlockState::Vacant).map(FreedBlock::of);
        parked.filter(|gone| gone.bytes > 0).or_else(|| self.heaps.freed_at(address))
    }

    /// All blocks that somebody has.
    pub(crate) fn owned(&self) -> Vec<(u32, MetaSnapshot)> {
        let all = self.table.metas.iter().map(|meta| (meta.number(), meta.snapshot()));
        all.filter(|(_, seen)| seen.state.state() == BlockState::Owned).collect()
    }

    pub(crate) fn context_of(&self, heap: u32) -> ContextId {
        self.heaps.context_of(heap)
    }

    /// The heap of a stream: one that lost its own stream, if there is one, or else new.
    pub(crate) fn heap_of(&self, stream_state: &Arc<StreamState>) -> Arc<StreamHeap> {
        let mut heaps = self.by_stream.lock().unwrap_or_else(PoisonError::into_inner);
        heaps
            .entry(stream_state.id.0)
            .or_insert_with(|| {
                let orphan = self.heaps.all().into_iter().find(|heap| heap.adopt(stream_state));
                orphan.iter().for_each(|heap| self.heaps.note_context(heap));
                let extents = || if self.chunks.can_assemble() { ExtentMap::new() } else { ExtentMap::chunked() };
                orphan.unwrap_or_else(|| {
                    self.heaps.add(|number| StreamHeap::new(number, stream_state.clone(), extents()))
                })
            })
            .clone()
    }

    /// Lets the heap of a stream that has passed all of its work serve others.
    pub(crate) fn end_stream(&self, stream_state: &StreamState) {
        let heap = self.by_stream.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream_state.id.0);
        if let Some(heap) = heap {
            heap.caches.all().iter().for_each(|cache| cache.empty(true));
            heap.orphan();
        }
    }

    /// Takes all blocks of a context from their owners: these. The memory stays until [`end_context`](Self::end_context).
    pub(crate) fn disown_context(&self, context: ContextId, when: Duration) -> Vec<(u32, MetaSnapshot)> {
        let heaps = self.heaps.all().into_iter().filter(|heap| heap.context() == context);
        heaps.flat_map(|heap| heap.disown_all(&self.table, when)).collect()
    }

    /// Takes all memory of a context's heaps from whoever has it: the context is gone, and all work with it.
    pub(crate) fn end_context(&self, context: ContextId) {
        let heaps: Vec<_> = self.heaps.all().into_iter().filter(|heap| heap.context() == context).collect();
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, heap| heap.context() != context);
        // What one keeps may lie on another's ground.
        heaps.iter().flat_map(|heap| heap.caches.all()).for_each(|cache| cache.empty(true));
        heaps.iter().for_each(|heap| heap.clear(&self.table));
    }

    /// Adds what somebody has of this pool, and what waits for fences.
    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        let total = Counters::default();
        for heap in self.heaps.all() {
            heap.caches.add_counters(&heap.counters, &total);
            let (blocks, bytes) = heap.pending(&self.table);
            stats.released_blocks += blocks;
            stats.released_bytes += bytes;
        }
        // While threads go on, what one took back may be seen before another handed it out.
        let [blocks, bytes] = [&total.blocks, &total.bytes].map(|sum| sum.load(Ordering::Relaxed).cast_signed().max(0));
        stats.owned_blocks += blocks.cast_unsigned();
        stats.owned_bytes += bytes.cast_unsigned();
    }
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) meta: u32,
    pub(crate) base: u64,
}

/// A block that was handed to an owner who has it by a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedBlock {
    pub(crate) meta: u32,
    pub(crate) base: u64,
    /// Which ownership of it this is.
    pub(crate) generation: u64,
    /// The seq in the stream behind which nobody used it before.
    pub(crate) seq: u64,
    /// Whether a count of the stream's stream comes with it.
    pub(crate) has_stream_ref: bool,
}

impl CachedBlock {
    #[inline]
    pub(crate) fn of(meta: &BlockMeta) -> Self {
        let generation = meta.state().generation();
        Self { meta: meta.number(), base: meta.base(), generation, seq: meta.seq(), has_stream_ref: false }
    }
}

impl Allocated {
    #[inline]
    pub(super) fn of(meta: &BlockMeta) -> Self {
        Self { meta: meta.number(), base: meta.base() }
    }
}
