//! The caches of a thread, one for each stream that it allocates in: how it finds them, what it allocates and frees there
//! without a lock or a driver call, and how they end.
//!
//! `tls` has one pointer for each thread, to the slots with the caches that were found last. When a thread exits, the
//! destructors of its lists, `ThreadCaches` and `DefaultStreamCaches`, close its caches: every block returns to the heap
//! that it lies in.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use super::attached_caches::AttachedCache;
use super::block_meta::{BlockMeta, OwnedBy};
use super::device_pool::{AllocatedBlock, Pool};
use super::thread_cache::{CacheGuard, ThreadCache};
use super::tls;
use crate::ordering::stream_state::StreamState;

/// How many caches a thread finds without a search.
const SLOTS: usize = 16;

impl Pool {
    /// The key by which this thread finds its magazines for one of the library's streams.
    #[inline]
    pub(crate) fn key(&self, stream_state: &StreamState) -> CacheKey {
        CacheKey::own(self.table.number, stream_state.id.0)
    }

    /// Allocates from this thread's magazines for an owner that has a handle: the warm path. It makes no calls.
    #[inline(always)]
    pub(crate) fn try_alloc_cached(
        key: CacheKey,
        bytes: u64,
        at: &'static Location<'static>,
    ) -> Option<AllocatedBlock> {
        try_with(key, |entered| {
            let by = OwnedBy::Handle { allocated_at: at, tag: 0 };
            let (meta, generation) = entered.alloc(bytes, by)?;
            let has_stream_ref = entered.take_stream_ref();
            Some(AllocatedBlock { meta: meta.number(), base: meta.base(), generation, seq: meta.seq(), has_stream_ref })
        })
    }

    /// Frees a block of [`try_alloc_cached`](Self::try_alloc_cached) in the order of this thread cache's stream, after
    /// a seq there, if the magazine has space: the warm path. Returns `None` if it could not, and then nothing has
    /// changed. Otherwise returns whether the cache also kept a reference count of the stream, which `lends` allows.
    #[inline(always)]
    pub(crate) fn try_free_cached(
        key: CacheKey,
        (meta, generation): (u32, u64),
        seq: u64,
        lends: impl FnOnce() -> bool,
    ) -> Option<bool> {
        try_with(key, |entered| {
            let cache = entered.cache;
            let meta = entered.table.metas.at(meta);
            let state = meta.held_by(generation)?;
            if meta.stream() != cache.stream || !entered.try_free(meta, state) {
                return None;
            }
            // Nothing takes the block before this thread has left the cache.
            meta.set_seq(seq);
            Some(lends() && entered.keep_stream_ref())
        })
    }

    /// Like [`try_alloc_cached`](Self::try_alloc_cached), for an owner that refers to the block by its address, which
    /// is returned.
    #[inline(always)]
    pub(crate) fn try_alloc_address(key: CacheKey, bytes: u64) -> Option<u64> {
        try_with(key, |entered| entered.alloc(bytes, OwnedBy::Address).map(|(meta, _)| meta.base()))
    }

    /// Frees a block by its address in the order of this thread cache's stream, if the magazine has space: the warm
    /// path. It makes no calls. Returns whether it could; otherwise nothing has changed.
    #[inline(always)]
    pub(crate) fn try_free_address(key: CacheKey, address: u64) -> bool {
        try_with(key, |entered| {
            let cache = entered.cache;
            let meta = entered.table.meta_at(address)?;
            let state = meta.owned_at(address)?;
            (meta.stream() == cache.stream && entered.try_free(meta, state)).then_some(())
        })
        .is_some()
    }

    /// Allocates from this thread's magazines, refilled from the stream's heap if nothing there fits. Calls no driver.
    pub(crate) fn try_alloc_local(key: CacheKey, bytes: u64, by: OwnedBy) -> Option<AllocatedBlock> {
        with(key, |entered| {
            // The warm path did not search them if another thread was revoking the cache.
            let cached = entered.alloc(bytes, by).map(|(meta, _)| meta);
            let found = cached.or_else(|| entered.refill(bytes, by));
            found.map(AllocatedBlock::of)
        })?
    }

    /// Like [`try_free_address`](Self::try_free_address), but makes space. Returns whether it could; otherwise nothing
    /// has changed.
    pub(crate) fn try_free_local(key: CacheKey, address: u64) -> bool {
        let put = with(key, |entered| {
            let cache = entered.cache;
            let meta = entered.table.meta_at(address)?;
            let state = meta.owned_at(address)?;
            let is_here = meta.stream() == cache.stream && meta.disown_from(state);
            is_here.then(|| entered.free(meta))
        });
        put.flatten().is_some()
    }

    /// Caches a released block in this thread, in the order of the block's home stream. Returns whether it could.
    pub(crate) fn try_cache(&self, key: CacheKey, meta: &BlockMeta) -> bool {
        let put = with(key, |entered| {
            let is_own = meta.stream() == entered.cache.stream;
            if is_own {
                entered.free(meta);
            }
            is_own
        });
        put == Some(true)
    }

    /// Gives this thread magazines for a stream, if it has none. A thread that is ending gets none.
    pub(crate) fn add_thread_cache(&self, key: CacheKey, stream_state: &Arc<StreamState>) {
        if !exists(key) {
            add(key, Arc::new(ThreadCache::new(self.heaps.clone(), self.heap_of(stream_state), stream_state.clone())));
        }
    }

    /// Whether this thread has begun to end its default streams. Never true in a thread that has none of its own.
    pub(crate) fn is_thread_ending() -> bool {
        IS_ENDING.get()
    }
}

/// The key by which a thread finds its caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheKey {
    /// A number or a handle, with all of its bits: a driver may distinguish its handles by any of them.
    stream: u64,
    /// The namespace of the number, handle or id: a pool or a device, and in the bits above that, which of them it is,
    /// and whether the caller has checked for a capture.
    space: u64,
}

const OWN: u64 = 1 << 32;
const CHECKED: u64 = 1 << 33;
const BY_ID: u64 = 1 << 34;

impl CacheKey {
    /// For a stream of the library's own: its number is never reused.
    #[inline]
    pub(crate) fn own(pool: u32, stream: u32) -> Self {
        Self { stream: u64::from(stream), space: OWN | u64::from(pool) }
    }

    /// For a stream that foreign code names by its handle. The handle may be reused: then the cache is closed first.
    #[inline]
    pub(crate) fn foreign(device: i32, handle: u64) -> Self {
        Self { stream: handle, space: u64::from(device as u32) }
    }

    /// Like [`foreign`](Self::foreign), for a caller that has checked whether the stream is capturing. The warm path,
    /// which does not check, finds no cache by this key.
    pub(crate) fn foreign_checked(device: i32, handle: u64) -> Self {
        Self { stream: handle, space: CHECKED | u64::from(device as u32) }
    }

    /// For a stream of foreign code by its id, which is never reused.
    #[inline]
    pub(crate) fn foreign_id(device: i32, id: u64) -> Self {
        Self { stream: id, space: BY_ID | u64::from(device as u32) }
    }

    /// The key of no stream.
    const fn none() -> Self {
        Self { stream: 0, space: u64::MAX }
    }

    #[inline]
    fn slot(self) -> usize {
        let word = self.stream ^ self.space << 32;
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SLOTS
    }
}

thread_local! {
    /// The caches that this thread finds without a search, through `tls`. Separate from its list of caches, which is
    /// dropped when the thread ends.
    static SLOTS_OF_THREAD: [CacheSlot; SLOTS] = const { [const { CacheSlot::empty() }; SLOTS] };

    /// The caches of this thread.
    static CACHES: ThreadCaches = const { ThreadCaches { caches: RefCell::new(Vec::new()) } };

    /// The caches of this thread's own default streams. Created when the thread first uses one, after the driver's own
    /// thread-local state: thread-local state is dropped in reverse order. Such a cache is also in `CACHES`; closing it
    /// again finds nothing.
    static DEFAULT_STREAM_CACHES: DefaultStreamCaches = const { DefaultStreamCaches { caches: RefCell::new(Vec::new()) } };

    /// Whether [`DefaultStreamCaches::drop`] has begun: it sets this before anything else. Reading it creates nothing,
    /// whereas reading `DEFAULT_STREAM_CACHES` would register a destructor in a thread that never used a default stream
    /// of its own.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// A cache that was found by its key. An empty slot has the key of no stream and a dangling pointer: it is never null,
/// so that a lookup compares the key and nothing else.
#[repr(align(32))]
struct CacheSlot {
    key: Cell<CacheKey>,
    cache: Cell<NonNull<ThreadCache>>,
}

impl CacheSlot {
    const fn empty() -> Self {
        Self { key: Cell::new(CacheKey::none()), cache: Cell::new(NonNull::dangling()) }
    }

    fn set(&self, key: CacheKey, cache: &ThreadCache) {
        self.key.set(key);
        self.cache.set(NonNull::from(cache));
    }

    fn clear(&self) {
        self.key.set(CacheKey::none());
        self.cache.set(NonNull::dangling());
    }
}

struct ThreadCaches {
    caches: RefCell<Vec<(CacheKey, Arc<ThreadCache>)>>,
}

struct DefaultStreamCaches {
    caches: RefCell<Vec<Arc<ThreadCache>>>,
}

/// Calls `act` inside this thread's cache for a key, if it is found without a search and no thread is revoking it.
#[inline(always)]
fn try_with<R>(key: CacheKey, act: impl FnOnce(&mut CacheGuard<'_>) -> Option<R>) -> Option<R> {
    lookup(key, |cache| act(&mut cache?.try_enter()?))
}

/// Calls `act` inside this thread's cache for a key. Returns `None` if there is none, or if the thread is ending.
#[inline]
pub(super) fn with<R>(key: CacheKey, act: impl FnOnce(&mut CacheGuard<'_>) -> R) -> Option<R> {
    lookup(key, |cache| match cache.and_then(ThreadCache::enter) {
        Some(mut entered) => Some(act(&mut entered)),
        None => with_listed(key, act),
    })
}

/// Calls `act` with the cache that this thread finds without a search.
#[inline(always)]
fn lookup<R>(key: CacheKey, act: impl FnOnce(Option<&ThreadCache>) -> R) -> R {
    // SAFETY: null, or the slots of this thread, which need no drop and so last until it has ended; no other thread
    // touches them.
    let slots = unsafe { tls::get().cast::<[CacheSlot; SLOTS]>().as_ref() };
    let slot = slots.map(|slots| &slots[key.slot()]).filter(|slot| slot.key.get() == key);
    // SAFETY: a slot with a stream's key has a cache that is in the list of the same thread, which keeps it, until it
    // is taken from both.
    let cache = slot.map(|slot| unsafe { slot.cache.get().as_ref() });
    // Called in one place, so that it is inlined into the caller.
    act(cache)
}

/// Whether this thread has a cache for a key.
fn exists(key: CacheKey) -> bool {
    find_listed(key).is_some()
}

/// Gives this thread a cache for a key. Returns whether it took it: a thread that is ending takes none.
fn add(key: CacheKey, cache: Arc<ThreadCache>) -> bool {
    if cache.stream_state.is_of_thread() && !DefaultStreamCaches::add(&cache) {
        return false;
    }
    let added = CACHES.try_with(|own| {
        let known: Weak<ThreadCache> = Arc::downgrade(&cache);
        cache.heap.caches.add(known);
        own.caches.borrow_mut().push((key, cache));
    });
    added.is_ok()
}

#[cold]
fn with_listed<R>(key: CacheKey, act: impl FnOnce(&mut CacheGuard<'_>) -> R) -> Option<R> {
    let cache = find_listed(key)?;
    SLOTS_OF_THREAD.with(|slots| {
        slots[key.slot()].set(key, &cache);
        tls::set(ptr::from_ref(slots).cast());
    });
    let mut entered = cache.enter()?;
    Some(act(&mut entered))
}

/// Returns this thread's cache for a key, unless it is closed or the thread is ending.
fn find_listed(key: CacheKey) -> Option<Arc<ThreadCache>> {
    let caches = CACHES.try_with(|own| {
        own.forget_closed();
        own.caches.borrow().iter().find(|(found, _)| *found == key).map(|(_, cache)| cache.clone())
    });
    caches.ok()?
}

impl ThreadCaches {
    fn forget_closed(&self) {
        // In a fork, the locks that are needed to find out may be held forever.
        let is_closed = |cache: &ThreadCache| !cache.table.fork_guard.is_child() && cache.is_closed();
        let closed: Vec<_> = self.caches.borrow_mut().extract_if(.., |(_, cache)| is_closed(cache)).collect();
        for (key, _) in closed {
            SLOTS_OF_THREAD.with(|found| found[key.slot()].clear());
        }
    }
}

impl Drop for ThreadCaches {
    /// Returns an ending thread's cached blocks to the heaps. In a forked child it does nothing: the blocks are the
    /// parent's.
    fn drop(&mut self) {
        let process = std::process::id();
        SLOTS_OF_THREAD.with(|found| found.iter().for_each(CacheSlot::clear));
        for (_, cache) in self.caches.borrow_mut().drain(..) {
            if cache.table.process == process {
                cache.close();
            }
        }
    }
}

impl DefaultStreamCaches {
    /// Returns whether the thread is not ending.
    fn add(cache: &Arc<ThreadCache>) -> bool {
        let added = DEFAULT_STREAM_CACHES.try_with(|defaults| {
            let mut caches = defaults.caches.borrow_mut();
            caches.retain(|cache| !cache.stream_state.is_retired());
            caches.push(cache.clone());
        });
        added.is_ok()
    }
}

impl Drop for DefaultStreamCaches {
    /// Records a last fence in the default streams of an ending thread, so that others get their memory once it is
    /// complete.
    fn drop(&mut self) {
        IS_ENDING.set(true);
        for cache in self.caches.get_mut().drain(..) {
            // A driver is called neither in a fork nor on a device that has failed.
            if !cache.table.fork_guard.is_well() {
                continue;
            }
            // Before the fence: nothing is allocated in the stream's order after it.
            cache.close();
            if let Err(error) = cache.stream_state.end_with_thread() {
                tracing::warn!(target: "freehold", %error, "could not record a fence in an ending thread's default stream");
            }
        }
    }
}
