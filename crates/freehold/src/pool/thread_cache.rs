//! Magazines: free blocks that a thread caches for one stream, so that most allocations and frees touch nothing that
//! other threads use.
//!
//! A cache belongs to its thread, which finds it in `thread_caches`. A thread that needs another's cached blocks revokes
//! it (`biased_lock`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::attached_caches::AttachedCache;
use super::biased_lock::{self, BiasedLock};
use super::block_meta::{BlockMeta, OwnedBy, StateWord};
use super::block_table::BlockTable;
use super::extent_map::GRANULE_BYTES;
use super::heaps::Heaps;
use super::size_class::{CLASSES, MAGAZINE_MAX, SizeClass};
use super::stats::Counters;
use super::stream_heap::StreamHeap;
use crate::ordering::stream_state::StreamState;

/// How many blocks that fit no class are cached.
const LARGE: usize = 8;

/// How many reference counts of a stream are cached. Taking one back from another thread costs as much as counting
/// once.
const STREAM_REFS_MAX: u32 = 1024;

/// In cache lines of its own: neighbours belong to other threads.
#[repr(C, align(128))]
pub(crate) struct ThreadCache {
    /// The stream in whose order the blocks here are.
    pub(crate) stream: u32,
    /// Written by the cache's thread only.
    pub(crate) counters: Counters,
    /// Whether the heap's counters include those of this closed cache. Written with the lock of the heap's caches held.
    is_counted: AtomicBool,
    pub(crate) table: Arc<BlockTable>,
    pub(crate) heap: Arc<StreamHeap>,
    /// The pool's heaps, to which blocks here may belong.
    heaps: Arc<Heaps>,
    pub(super) stream_state: Arc<StreamState>,
    magazines: BiasedLock<Magazines>,
}

impl std::fmt::Debug for ThreadCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadCache").field("stream", &self.stream).finish_non_exhaustive()
    }
}

#[repr(C)]
struct Magazines {
    /// How many reference counts of the stream were kept from freed blocks.
    stream_refs: u32,
    /// How many blocks of each class there are, and their metas.
    counts: [u8; CLASSES],
    small: [[u32; MAGAZINE_MAX]; CLASSES],
    /// The blocks that were freed last, by length in granules.
    large_granules: [u32; LARGE],
    large: [u32; LARGE],
    /// Where the next one goes.
    next_large: usize,
}

/// The exclusive access of the cache's thread.
pub(crate) struct CacheGuard<'a> {
    pub(crate) cache: &'a ThreadCache,
    /// The cache's table, loaded once: the compiler would load it again after the lock was entered.
    pub(crate) table: &'a BlockTable,
    guard: biased_lock::BiasedGuard<'a, Magazines>,
}

impl ThreadCache {
    pub(crate) fn new(heaps: Arc<Heaps>, heap: Arc<StreamHeap>, stream_state: Arc<StreamState>) -> Self {
        Self {
            stream: stream_state.id.0,
            counters: Counters::default(),
            is_counted: AtomicBool::new(false),
            table: heaps.table.clone(),
            heap,
            heaps,
            stream_state,
            magazines: BiasedLock::new(Magazines {
                stream_refs: 0,
                counts: [0; CLASSES],
                small: [[0; MAGAZINE_MAX]; CLASSES],
                large_granules: [0; LARGE],
                large: [0; LARGE],
                next_large: 0,
            }),
        }
    }

    /// Enters, unless another thread is revoking the cache, the device has failed, the process is checked, or this is a
    /// fork, in which locks may be held forever. Only for the cache's thread, which must not be inside already.
    #[inline]
    pub(super) fn try_enter(&self) -> Option<CacheGuard<'_>> {
        let table = &*self.table;
        if !table.fork_guard.may_cache() {
            return None;
        }
        Some(CacheGuard { cache: self, table, guard: self.magazines.try_enter()? })
    }

    /// Like [`try_enter`](Self::try_enter), but waits for a revoker. Returns `None` if the cache is closed; the caller
    /// looks for another.
    pub(super) fn enter(&self) -> Option<CacheGuard<'_>> {
        let table = &*self.table;
        if !table.fork_guard.may_cache() {
            return None;
        }
        Some(CacheGuard { cache: self, table, guard: self.magazines.enter().ok()? })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.magazines.is_closed()
    }

    /// Returns a free block to its heap.
    fn flush_one(&self, meta: u32) {
        let heap = self.table.metas.at(meta).heap();
        if heap == self.heap.number {
            self.heap.free(&self.table, meta, &self.stream_state, &[]);
        } else {
            self.heaps.get(heap).free(&self.table, meta, &self.stream_state, &[]);
        }
    }

    /// Like [`flush_one`](Self::flush_one), taking the lock of the cache's own heap once.
    fn flush_all(&self, metas: &[u32]) {
        let is_own = |meta: &u32| self.table.metas.at(*meta).heap() == self.heap.number;
        let own = metas.iter().copied().filter(is_own);
        self.heap.free_all(&self.table, own, &self.stream_state);
        metas.iter().filter(|meta| !is_own(meta)).for_each(|&meta| self.flush_one(meta));
    }
}

impl AttachedCache for ThreadCache {
    fn stream(&self) -> u32 {
        self.stream
    }

    fn flush(&self) {
        // With the cache revoked: a thread that closes it after this finds all blocks in their heaps.
        self.magazines.revoke(|locked| self.flush_all(&locked.drain()));
    }

    fn close(&self) {
        self.magazines.close(|locked| {
            self.heap.caches.keep_stream_refs(std::mem::take(&mut locked.stream_refs));
            self.flush_all(&locked.drain());
        });
        self.heap.caches.count_closed(self, &self.heap.counters);
    }

    fn take_stream_refs(&self) -> u32 {
        self.magazines.revoke(|locked| std::mem::take(&mut locked.stream_refs))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Relaxed)
    }

    fn set_counted(&self) {
        self.is_counted.store(true, Ordering::Relaxed);
    }
}

impl<'a> CacheGuard<'a> {
    #[inline]
    fn magazines(&mut self) -> &mut Magazines {
        self.guard.value()
    }

    /// Takes a block that fits, and gives it to an owner. Returns the generation of the ownership too.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, bytes: u64, by: OwnedBy) -> Option<(&'a BlockMeta, u64)> {
        let meta = match SizeClass::of(bytes) {
            Some(class) => self.pop_small(class),
            None => self.pop_large(bytes),
        }?;
        let generation = meta.own(bytes, by);
        self.cache.counters.add_live(bytes);
        Some((meta, generation))
    }

    /// Takes a cached reference count of the stream. Returns whether there was one.
    #[inline]
    pub(crate) fn take_stream_ref(&mut self) -> bool {
        let locked = self.magazines();
        let had = locked.stream_refs;
        locked.stream_refs = had.saturating_sub(1);
        had > 0
    }

    /// Caches a reference count of the stream. Returns whether there was space.
    #[inline]
    pub(crate) fn keep_stream_ref(&mut self) -> bool {
        let locked = self.magazines();
        let has_room = locked.stream_refs < STREAM_REFS_MAX;
        locked.stream_refs += u32::from(has_room);
        has_room
    }

    /// Takes a block of a class.
    #[inline]
    fn pop_small(&mut self, class: SizeClass) -> Option<&'a BlockMeta> {
        let table = self.table;
        let locked = self.magazines();
        let last = locked.counts[class.index()].checked_sub(1)?;
        locked.counts[class.index()] = last;
        Some(table.metas.at(locked.small[class.index()][usize::from(last) % MAGAZINE_MAX]))
    }

    /// Takes a block of exactly the length that a request needs.
    #[inline]
    fn pop_large(&mut self, bytes: u64) -> Option<&'a BlockMeta> {
        let table = self.table;
        let locked = self.magazines();
        let granules = u32::try_from(bytes.div_ceil(GRANULE_BYTES)).ok()?;
        let index = locked.large_granules.iter().position(|&length| length == granules)?;
        locked.large_granules[index] = 0;
        // The next one goes into the free entry.
        locked.next_large = index;
        Some(table.metas.at(locked.large[index]))
    }

    /// Takes a block from its owner and caches it, if its state is still `state` and there is space. Returns whether it
    /// did; otherwise nothing has changed.
    #[inline]
    pub(crate) fn try_free(&mut self, meta: &BlockMeta, state: StateWord) -> bool {
        let cache = self.cache;
        let locked = self.magazines();
        match meta.placement().class().map(SizeClass::at) {
            Some(class) => {
                if !locked.has_room(class) || !meta.disown_from(state) {
                    return false;
                }
                locked.add(class, meta.number());
            }
            None => {
                if !locked.has_large_room() || !meta.disown_from(state) {
                    return false;
                }
                locked.add_large(meta);
            }
        }
        cache.counters.sub_live(meta.bytes());
        true
    }

    /// Caches a released block, and returns others to the heaps if there is no space.
    pub(crate) fn free(&mut self, meta: &BlockMeta) {
        let cache = self.cache;
        cache.counters.sub_live(meta.bytes());
        match meta.placement().class().map(SizeClass::at) {
            Some(class) => {
                if !self.magazines().has_room(class) {
                    self.flush_half(class);
                }
                self.magazines().add(class, meta.number());
            }
            None => {
                if let Some(evicted) = self.magazines().evict() {
                    cache.flush_one(evicted);
                }
                self.magazines().add_large(meta);
            }
        }
    }

    /// Returns the older half of a magazine to the heaps.
    fn flush_half(&mut self, class: SizeClass) {
        let cache = self.cache;
        let locked = self.magazines();
        let (count, metas) = (&mut locked.counts[class.index()], &mut locked.small[class.index()]);
        let spilled = (*count / 2 + 1).min(*count);
        *count -= spilled;
        let older = *metas;
        metas.copy_within(usize::from(spilled).., 0);
        cache.flush_all(&older[..usize::from(spilled)]);
    }

    /// Returns all cached blocks that fit no class to the heaps, and allocates one from the heap, which coalesces them
    /// with their neighbours first: so caching never makes a request cut a longer range of the heap.
    #[inline(never)]
    fn exchange_large(&mut self, bytes: u64, by: OwnedBy) -> Option<&'a BlockMeta> {
        let cache = self.cache;
        let mut own = [0; LARGE];
        let mut count = 0;
        let locked = self.magazines();
        let bit = |(index, &granules)| u32::from(granules != 0) << index;
        // A bit for each: usually there is one, and only occupied entries are visited.
        let mut kept = (0..LARGE).zip(&locked.large_granules).map(bit).fold(0, |all, one| all | one);
        while kept != 0 {
            let meta = locked.large[kept.trailing_zeros() as usize % LARGE];
            kept &= kept - 1;
            if cache.table.metas.at(meta).heap() == cache.heap.number {
                own[count % LARGE] = meta;
                count += 1;
            } else {
                cache.flush_one(meta);
            }
        }
        locked.large_granules = [0; LARGE];
        let meta = cache.heap.exchange(&cache.table, &own[..count.min(LARGE)], &cache.stream_state, bytes)?;
        let meta = cache.table.metas.at(meta);
        meta.own(bytes, by);
        cache.counters.add_live(bytes);
        Some(meta)
    }

    /// Fetches blocks from the heap, and takes one.
    pub(crate) fn refill(&mut self, bytes: u64, by: OwnedBy) -> Option<&'a BlockMeta> {
        match SizeClass::of(bytes) {
            Some(class) => self.refill_small(class, bytes, by),
            None => self.exchange_large(bytes, by),
        }
    }

    /// Fetches blocks of a class from the heap's slabs, and takes one.
    #[cold]
    fn refill_small(&mut self, class: SizeClass, bytes: u64, by: OwnedBy) -> Option<&'a BlockMeta> {
        let cache = self.cache;
        let locked = self.magazines();
        let count = class.magazine_blocks() / 2 + 1;
        cache.heap.alloc_small(&cache.table, cache.stream, class, count, |meta| locked.add(class, meta));
        self.alloc(bytes, by).map(|(meta, _)| meta)
    }
}

impl Magazines {
    #[inline]
    fn has_room(&self, class: SizeClass) -> bool {
        usize::from(self.counts[class.index()]) < class.magazine_blocks()
    }

    /// Whether the next block that fits no class evicts none.
    #[inline]
    fn has_large_room(&self) -> bool {
        self.large_granules[self.next_large % LARGE] == 0
    }

    /// Caches a block that fits no class in a free entry.
    #[inline]
    fn add_large(&mut self, meta: &BlockMeta) {
        let index = self.next_large % LARGE;
        self.next_large = index + 1;
        self.large_granules[index] = (meta.capacity_bytes() / GRANULE_BYTES) as u32;
        self.large[index] = meta.number();
    }

    /// Makes space for a block that fits no class. Returns the evicted block.
    fn evict(&mut self) -> Option<u32> {
        let index = self.next_large % LARGE;
        (std::mem::take(&mut self.large_granules[index]) != 0).then_some(self.large[index])
    }

    /// Puts a block into a magazine that has space.
    #[inline]
    fn add(&mut self, class: SizeClass, meta: u32) {
        let count = &mut self.counts[class.index()];
        self.small[class.index()][usize::from(*count) % MAGAZINE_MAX] = meta;
        *count += 1;
    }

    fn drain(&mut self) -> Vec<u32> {
        let mut metas = Vec::new();
        for (count, magazine) in self.counts.iter_mut().zip(&self.small) {
            metas.extend_from_slice(&magazine[..usize::from(std::mem::take(count))]);
        }
        for (granules, meta) in self.large_granules.iter_mut().zip(self.large) {
            if std::mem::take(granules) != 0 {
                metas.push(meta);
            }
        }
        metas
    }
}
