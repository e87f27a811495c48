//! The thread caches that keep blocks of a heap, as the heap knows them: what it asks of them, and what it keeps for those that are
//! closed.

use std::sync::{Arc, PoisonError, Weak};

use super::stats::Counters;
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

/// A thread's cache for one stream.
pub(crate) trait HeapCache: Send + Sync {
    /// The stream whose order the blocks there are in.
    fn stream(&self) -> u32;

    /// Gives all blocks there to the heaps that they lie on, from any thread but within the cache. With `close` the cache is used no
    /// more.
    fn empty(&self, close: bool);

    /// Takes all counts of the stream that were kept there, from any thread but within the cache.
    fn take_stream_refs(&self) -> u32;

    /// What was handed out there, less what was taken back.
    fn counters(&self) -> &Counters;

    /// Whether the heap's counters hold those of the cache, which is closed.
    fn is_counted(&self) -> bool;

    /// Notes that they do, under the lock of the heap's caches.
    fn set_counted(&self);
}

#[derive(Debug)]
pub(crate) struct HeapCaches {
    caches: Mutex<Vec<Weak<dyn HeapCache>>>,
    /// How many counts of the stream were kept in caches that are closed. Written under the lock of the caches.
    stream_refs: AtomicU32,
}

impl HeapCaches {
    pub(crate) fn new() -> Self {
        Self { caches: Mutex::new(Vec::new()), stream_refs: AtomicU32::new(0) }
    }

    pub(crate) fn add(&self, cache: Weak<dyn HeapCache>) {
        let mut caches = self.lock();
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    /// Adds what a cache has counted, which is closed and counts no more, to its heap's counters.
    pub(crate) fn count_closed(&self, cache: &dyn HeapCache, heap: &Counters) {
        let _caches = self.lock();
        if !cache.is_counted() {
            cache.set_counted();
            heap.add(cache.counters());
        }
    }

    /// Adds what was counted in the heap and in all caches to a total, each once, whichever of them are closed meanwhile.
    pub(crate) fn add_counters(&self, heap: &Counters, total: &Counters) {
        let caches = self.lock();
        let open = caches.iter().filter_map(Weak::upgrade).filter(|cache| !cache.is_counted());
        open.for_each(|cache| total.add(cache.counters()));
        total.add(heap);
    }

    /// Keeps counts of the stream for a cache that is being closed.
    pub(crate) fn keep_stream_refs(&self, count: u32) {
        let _caches = self.lock();
        self.stream_refs.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes all counts of `stream` that are kept here and in its caches.
    pub(crate) fn take_stream_refs(&self, stream: u32) -> u32 {
        // In this order: those of a cache that is gone are here.
        let caches = self.all();
        let kept: u32 =
            caches.iter().filter(|cache| cache.stream() == stream).map(|cache| cache.take_stream_refs()).sum();
        let _caches = self.lock();
        kept + self.stream_refs.swap(0, Ordering::Relaxed)
    }

    /// The caches of all threads.
    pub(crate) fn all(&self) -> Vec<Arc<dyn HeapCache>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn HeapCache>>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
