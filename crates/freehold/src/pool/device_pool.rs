//! The pool of a device: its heaps, and what is known of their blocks. `thread_caches` and `alloc_slow` allocate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::{BlockChange, CallError, DeviceMemory};

use super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot};
use super::block_table::BlockTable;
use super::chunk_source::{ChunkSource, NewPoolError};
use super::device_work::DeviceWork;
use super::extent_map::{Chunk, ExtentMap};
use super::heaps::Heaps;
use super::stats::Counters;
use super::stream_heap::StreamHeap;
use crate::base::fork::ForkGuard;
use crate::base::pool_stats::PoolStats;
use crate::ledger::{ContextId, Fence};
use crate::ordering::stream_state::StreamState;

#[derive(Debug)]
pub(crate) struct Pool {
    /// Which of the device's pools it is.
    pub(crate) index: PoolIndex,
    pub(crate) table: Arc<BlockTable>,
    pub(super) heaps: Arc<Heaps>,
    pub(crate) chunks: ChunkSource,
    /// The heap of each stream.
    by_stream: Mutex<HashMap<u32, Arc<StreamHeap>>>,
    /// How much memory the pool keeps when the device is synchronized.
    threshold_bytes: AtomicU64,
    /// Which other heaps a stream searches first when it needs a block.
    pub(super) next_lender: AtomicUsize,
}

/// Which of a device's pools: 7 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolIndex(pub(crate) u32);

impl PoolIndex {
    pub(crate) const MAIN: Self = Self(0);
    /// The pool of blocks that other processes can map.
    pub(crate) const SHAREABLE: Self = Self(1);
    /// The first pool of blocks that sleep together.
    pub(crate) const SLEEPERS: Self = Self(2);
    /// One more than the last.
    pub(crate) const END: u32 = 1 << 7;

    /// Returns the pool and the meta whose number [`Pool::number_of`] returned.
    pub(crate) fn split(number: u32) -> (Self, u32) {
        (Self(number >> META_BITS), number & ((1 << META_BITS) - 1))
    }
}

/// A pool has fewer metas than this many bits count.
const META_BITS: u32 = 24;

/// Why an allocation failed.
#[derive(Debug)]
pub(crate) enum AllocError {
    /// Not enough memory, at least for now.
    Short,
    /// The pool's block metadata is exhausted.
    TooMany,
    Call(CallError),
}

impl From<CallError> for AllocError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Pool {
    /// Creates the pool of a device.
    pub(crate) fn new(memory: Arc<dyn DeviceMemory>, fork_guard: ForkGuard) -> Result<Self, NewPoolError> {
        Self::of(PoolIndex::MAIN, ChunkSource::new(memory)?, fork_guard)
    }

    /// Creates a second pool, whose blocks other processes can map.
    pub(crate) fn shareable(&self) -> Result<Self, NewPoolError> {
        Self::of(PoolIndex::SHAREABLE, self.chunks.shareable()?, self.table.fork_guard.clone())
    }

    /// Creates another pool like this one, whose chunks contain no blocks of others.
    pub(crate) fn separate(&self, index: PoolIndex) -> Result<Self, NewPoolError> {
        Self::of(index, self.chunks.separate()?, self.table.fork_guard.clone())
    }

    fn of(index: PoolIndex, chunks: ChunkSource, fork_guard: ForkGuard) -> Result<Self, NewPoolError> {
        let table = BlockTable::new(chunks.base, chunks.bytes, fork_guard).map(Arc::new);
        let (table, heaps) = match table.and_then(|table| Ok((table.clone(), Arc::new(Heaps::new(table)?)))) {
            Ok(made) => made,
            Err(error) => {
                chunks.close()?;
                return Err(NewPoolError::System(error));
            }
        };
        // Each change of a block passes the slow path, which announces it.
        if chunks.is_checked() {
            table.fork_guard.forbid_caches();
        }
        let known = heaps.clone();
        chunks.describe(Box::new(move |address| known.bounds_at(address)));
        Ok(Self {
            index,
            table,
            heaps,
            chunks,
            by_stream: Mutex::default(),
            threshold_bytes: AtomicU64::new(u64::MAX),
            next_lender: AtomicUsize::new(0),
        })
    }

    /// Returns a number for a meta of this pool that is unique among the device's pools.
    pub(crate) fn number_of(&self, meta: u32) -> u32 {
        meta | self.index.0 << META_BITS
    }

    /// Returns the chunk that a live block lies in.
    pub(crate) fn chunk_of(&self, meta: &BlockMeta) -> Chunk {
        self.chunk_at(meta.heap(), meta.base())
    }

    /// Returns the chunk at an address of a live block in a heap.
    pub(crate) fn chunk_at(&self, heap: u32, address: u64) -> Chunk {
        self.heaps.get(heap).chunk_at(address).expect("a live block lies in chunks")
    }

    /// Returns the mapped chunks of each stream's heap, in the order of their addresses.
    pub(crate) fn chunks_by_stream(&self) -> Vec<(Arc<StreamState>, Vec<Chunk>)> {
        self.heaps.all().iter().map(|heap| heap.chunks()).collect()
    }

    /// Makes the pool's memory accessible to the devices with these numbers.
    pub(crate) fn permit_peers(&self, peers: &[i32]) -> Result<(), CallError> {
        let locked = &mut *self.chunks.lock();
        let chunks: Vec<_> = self.chunks_by_stream().into_iter().flat_map(|(_, chunks)| chunks).collect();
        self.chunks.permit_peers(locked, peers, &chunks)
    }

    pub(crate) fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_threshold_bytes(&self, bytes: u64) {
        self.threshold_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the length of the longest free range that has memory.
    pub(crate) fn longest_bytes(&self) -> u64 {
        if self.is_asleep() {
            return 0;
        }
        self.heaps.all().iter().map(|heap| heap.free_bytes().1).max().unwrap_or(0)
    }

    /// Returns how much of the free memory can be mapped elsewhere.
    pub(crate) fn movable_bytes(&self, device: &dyn DeviceWork) -> u64 {
        // Memory that is not mapped stays where it is.
        if !self.chunks.can_map() || self.is_asleep() {
            return 0;
        }
        let heaps = self.heaps.all();
        let free_bytes: u64 = heaps.iter().map(|heap| heap.free_chunk_bytes(|fence| device.is_complete(fence))).sum();
        free_bytes + self.chunks.spare_bytes()
    }

    /// Resizes a block in place while one ownership of it lasts. Returns whether it could.
    pub(crate) fn resize(&self, meta: &BlockMeta, generation: u64, bytes: u64) -> bool {
        // All blocks of a meta belong to one heap.
        let is_resized = self.heaps.get(meta.heap()).resize(meta, generation, bytes);
        if is_resized {
            self.chunks.announce(BlockChange::Resized { address: meta.base(), bytes });
        }
        is_resized
    }

    /// Calls `act` while one ownership of a block lasts; it cannot end during the call. Returns `None` if it has ended.
    pub(crate) fn while_owned<R>(&self, meta: &BlockMeta, generation: u64, act: impl FnOnce() -> R) -> Option<R> {
        self.heaps.get(meta.heap()).while_owned(meta, generation, act)
    }

    /// Frees a released block in the order of its home stream, unless that has ended, after fences.
    pub(crate) fn free(&self, home: Option<&StreamState>, meta: u32, fences: &[Fence]) {
        let meta = self.table.metas.at(meta);
        let heap = self.heaps.get(meta.heap());
        heap.counters.sub_live_shared(meta.bytes());
        match home {
            Some(home) => heap.free(&self.table, meta.number(), home, fences),
            // A stream that has ended has completed all of its work.
            None => heap.free(&self.table, meta.number(), &heap.stream(), fences),
        }
    }

    /// Takes all reference counts of a stream that threads have cached.
    pub(crate) fn take_stream_refs(&self, stream_state: &StreamState) -> u32 {
        self.heap_if_any(stream_state).map_or(0, |heap| heap.caches.take_stream_refs(stream_state.id.0))
    }

    fn heap_if_any(&self, stream_state: &StreamState) -> Option<Arc<StreamHeap>> {
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner).get(&stream_state.id.0).cloned()
    }

    /// Closes all threads' magazines for a stream.
    pub(crate) fn close_caches(&self, stream_state: &StreamState) {
        let heap = self.heap_if_any(stream_state);
        for cache in heap.iter().flat_map(|heap| heap.caches.all()).filter(|cache| cache.stream() == stream_state.id.0)
        {
            cache.close();
        }
    }

    /// Returns the blocks that all threads have cached to the heaps.
    pub(crate) fn flush_caches(&self) {
        self.heaps.all().iter().flat_map(|heap| heap.caches.all()).for_each(|cache| cache.flush());
    }

    /// Returns the meta of the block that contains an address, owned or freed and not reused yet.
    pub(crate) fn snapshot_at(&self, address: u64) -> Option<(u32, MetaSnapshot)> {
        let meta = self.heaps.meta_around(address)?;
        let seen = meta.snapshot();
        let is_there = matches!(seen.state.state(), BlockState::Owned | BlockState::Free | BlockState::Pending);
        (is_there && address.wrapping_sub(seen.base) < seen.bytes).then(|| (meta.number(), seen))
    }

    /// Returns the record of the freed block at an address.
    pub(crate) fn freed_at(&self, address: u64) -> Option<FreedBlock> {
        let freed = self.heaps.meta_around(address);
        let freed = freed.filter(|meta| meta.state().state() != BlockState::Vacant).map(FreedBlock::of);
        freed.filter(|gone| gone.bytes > 0).or_else(|| self.heaps.freed_at(address))
    }

    /// Returns all blocks that have an owner.
    pub(crate) fn owned(&self) -> Vec<(u32, MetaSnapshot)> {
        let all = self.table.metas.iter().map(|meta| (meta.number(), meta.snapshot()));
        all.filter(|(_, seen)| seen.state.state() == BlockState::Owned).collect()
    }

    pub(crate) fn context_of(&self, heap: u32) -> ContextId {
        self.heaps.context_of(heap)
    }

    /// Returns the heap of a stream: an orphaned heap if there is one, otherwise a new one.
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

    /// Orphans the heap of a stream that has completed all of its work, so that another stream can adopt it.
    pub(crate) fn end_stream(&self, stream_state: &StreamState) {
        let heap = self.by_stream.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream_state.id.0);
        if let Some(heap) = heap {
            heap.caches.all().iter().for_each(|cache| cache.close());
            heap.orphan();
        }
    }

    /// Takes all blocks of a context from their owners and returns them. The memory stays until
    /// [`end_context`](Self::end_context).
    pub(crate) fn disown_context(&self, context: ContextId, when: Duration) -> Vec<(u32, MetaSnapshot)> {
        let heaps = self.heaps.all().into_iter().filter(|heap| heap.context() == context);
        heaps.flat_map(|heap| heap.disown_all(&self.table, when)).collect()
    }

    /// Frees all memory of a context's heaps, owned or not: the context is gone, and all work with it.
    pub(crate) fn end_context(&self, context: ContextId) {
        let heaps: Vec<_> = self.heaps.all().into_iter().filter(|heap| heap.context() == context).collect();
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, heap| heap.context() != context);
        // A cache may hold blocks of another heap.
        heaps.iter().flat_map(|heap| heap.caches.all()).for_each(|cache| cache.close());
        if self.chunks.is_checked() {
            // Not before: calls that had begun when the context was closed could still use the blocks.
            let is_here = |meta: &&BlockMeta| heaps.iter().any(|heap| heap.number == meta.heap());
            let ended = |meta: &&BlockMeta| meta.state().state() == BlockState::Ended;
            let blocks = self.table.metas.iter().filter(is_here).filter(ended);
            blocks.for_each(|meta| self.chunks.announce(BlockChange::Freed { address: meta.base() }));
        }
        heaps.iter().for_each(|heap| heap.clear(&self.table));
    }

    /// Adds this pool's owned blocks, and those that wait for fences.
    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        let total = Counters::default();
        for heap in self.heaps.all() {
            heap.caches.add_counters(&heap.counters, &total);
            let (blocks, bytes) = heap.pending(&self.table);
            stats.released_blocks += blocks;
            stats.released_bytes += bytes;
        }
        // While threads run, one thread's free may be seen before another's allocation.
        let [blocks, bytes] = [&total.blocks, &total.bytes].map(|sum| sum.load(Ordering::Relaxed).cast_signed().max(0));
        stats.owned_blocks += blocks.cast_unsigned();
        stats.owned_bytes += bytes.cast_unsigned();
    }
}

/// A block that was allocated: the data of its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedBlock {
    pub(crate) meta: u32,
    pub(crate) base: u64,
    /// Which ownership of the block this is.
    pub(crate) generation: u64,
    /// The seq in the stream after which nothing used it before.
    pub(crate) seq: u64,
    /// Whether a reference count of the stream comes with it.
    pub(crate) has_stream_ref: bool,
}

impl AllocatedBlock {
    /// Only while the block cannot be given to another owner: inside the cache, or while its context is kept open.
    #[inline]
    pub(super) fn of(meta: &BlockMeta) -> Self {
        let generation = meta.state().generation();
        Self { meta: meta.number(), base: meta.base(), generation, seq: meta.seq(), has_stream_ref: false }
    }
}
