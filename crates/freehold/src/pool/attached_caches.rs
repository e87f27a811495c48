//! The thread caches that hold a heap's blocks, as the heap sees them, and the counts left by caches that are closed.

use std::sync::{Arc, PoisonError, Weak};

use super::stats::Counters;
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

/// A thread's cache for one stream.
pub(crate) trait AttachedCache: Send + Sync {
    /// The stream in whose order the cached blocks are.
    fn stream(&self) -> u32;

    /// Returns all cached blocks to their heaps. For any thread that is not inside the cache.
    fn flush(&self);

    /// Like [`flush`](Self::flush). The cache is not used afterwards.
    fn close(&self);

    /// Takes all cached reference counts of the stream. For any thread that is not inside the cache.
    fn take_stream_refs(&self) -> u32;

    /// Blocks allocated there, less blocks freed there.
    fn counters(&self) -> &Counters;

    /// Whether the heap's counters include those of this closed cache.
    fn is_counted(&self) -> bool;

    /// Notes that the heap's counters include those of this cache. Called with the lock of the heap's caches held.
    fn set_counted(&self);
}

#[derive(Debug)]
pub(crate) struct AttachedCaches {
    caches: Mutex<Vec<Weak<dyn AttachedCache>>>,
    /// Reference counts of the stream from closed caches. Written with the lock of the caches held.
    stream_refs: AtomicU32,
}

impl AttachedCaches {
    pub(crate) fn new() -> Self {
        Self { caches: Mutex::new(Vec::new()), stream_refs: AtomicU32::new(0) }
    }

    pub(crate) fn add(&self, cache: Weak<dyn AttachedCache>) {
        let mut caches = self.lock();
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    /// Adds the counters of a closed cache, which no longer change, to its heap's.
    pub(crate) fn count_closed(&self, cache: &dyn AttachedCache, heap: &Counters) {
        let _caches = self.lock();
        if !cache.is_counted() {
            cache.set_counted();
            heap.add(cache.counters());
        }
    }

    /// Adds the counters of the heap and of all caches to a total, each once, even if caches are closed concurrently.
    pub(crate) fn add_counters(&self, heap: &Counters, total: &Counters) {
        let caches = self.lock();
        let open = caches.iter().filter_map(Weak::upgrade).filter(|cache| !cache.is_counted());
        open.for_each(|cache| total.add(cache.counters()));
        total.add(heap);
    }

    /// Keeps the stream's reference counts of a cache that is being closed.
    pub(crate) fn keep_stream_refs(&self, count: u32) {
        let _caches = self.lock();
        self.stream_refs.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes all reference counts of `stream` that are kept here and in its caches.
    pub(crate) fn take_stream_refs(&self, stream: u32) -> u32 {
        // In this order: the counts of a cache that is gone are here.
        let caches = self.all();
        let kept: u32 =
            caches.iter().filter(|cache| cache.stream() == stream).map(|cache| cache.take_stream_refs()).sum();
        let _caches = self.lock();
        kept + self.stream_refs.swap(0, Ordering::Relaxed)
    }

    /// Returns the caches of all threads.
    pub(crate) fn all(&self) -> Vec<Arc<dyn AttachedCache>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn AttachedCache>>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
