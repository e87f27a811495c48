//! A stream and its context, which every block of the stream keeps alive with one reference count.
//!
//! A thread that frees a block caches the block's reference with it, for the next block that it allocates: this saves
//! an atomic operation on a counter that all threads share. Dropping the stream's handle takes all cached references
//! back, so that the last one is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::context::Context;
use crate::ordering::stream_state::StreamState;
use crate::pool::CacheKey;

#[derive(Debug)]
pub(crate) struct StreamInner {
    pub(crate) state: Arc<StreamState>,
    pub(crate) context: Context,
    /// The key by which each thread finds its cache for the stream.
    pub(crate) key: CacheKey,
    /// Whether the context lives as long as the device does, so that nothing has to keep it open.
    pub(super) stays_open: bool,
    /// Whether the stream's handle is dropped: no more counts are cached.
    is_closing: AtomicBool,
}

impl StreamInner {
    pub(crate) fn new(stream_state: Arc<StreamState>, context: Context) -> Self {
        let (key, stays_open) = (context.inner.device.pool.key(&stream_state), context.inner.stays());
        Self { state: stream_state, context, key, stays_open, is_closing: AtomicBool::new(false) }
    }

    /// Whether a thread may cache a count. Only inside its cache: the thread that sets the flag visits all caches
    /// afterwards.
    #[inline]
    pub(crate) fn may_cache_refs(&self) -> bool {
        !self.is_closing.load(Ordering::Relaxed)
    }

    /// Returns a count that a thread had cached and has just given out.
    ///
    /// # Safety
    /// It was the count of a block of this stream, and nothing else owns it.
    #[inline]
    pub(crate) unsafe fn take_cached_ref(self: &Arc<Self>) -> Arc<Self> {
        // SAFETY: the copy owns the count that the caller guarantees.
        unsafe { std::ptr::read(self) }
    }

    /// Takes back all cached counts, and stops threads from caching more. For the stream's handle, which has a count of
    /// its own.
    pub(crate) fn release_cached_refs(self: &Arc<Self>) {
        let device = &self.context.inner.device;
        // In a fork the locks may be held forever, by threads that do not exist there.
        if device.is_child() {
            return;
        }
        self.is_closing.store(true, Ordering::Relaxed);
        for _ in 0..device.pool.take_stream_refs(&self.state) {
            // SAFETY: that many counts were cached and have no owner now; the caller's own is not among them.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::device::Device;
    use freehold_testing::at_effort;
    use std::sync::{Barrier, Weak, mpsc};
    use std::thread;

    fn device() -> Device {
        let opened = crate::api::open::opened(None).unwrap();
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        unsafe { Device::new(opened.api, opened.device) }.unwrap()
    }

    /// Gives the thread a cache, so that it caches the blocks that it frees.
    fn warm(stream: &crate::Stream) {
        (0..4).for_each(|_| drop(stream.alloc::<u8>(4096).unwrap()));
    }

    #[test]
    fn a_count_that_a_thread_keeps_is_the_next_blocks_and_the_streams_handle_takes_it_back() {
        let device = device();
        let stream = device.new_stream().unwrap();
        let weak: Weak<StreamInner> = Arc::downgrade(&stream.inner);
        warm(&stream);
        let kept = weak.strong_count() - 1;
        assert!(kept > 0, "what a thread takes back it keeps");
        let block = stream.alloc::<u8>(4096).unwrap();
        assert_eq!(weak.strong_count(), kept + 1, "no count was made");
        drop(block);
        let blocks: Vec<_> = (0..2000).map(|_| stream.alloc::<u8>(512).unwrap()).collect();
        assert_eq!(weak.strong_count(), 2001);
        drop(blocks);
        assert!(weak.strong_count() <= 1025, "no more are kept than a handle takes back soon: {}", weak.strong_count());
        let block = stream.alloc::<u8>(4096).unwrap();
        drop(stream);
        assert_eq!(weak.strong_count(), 1, "the block's");
        drop(block);
        assert_eq!(weak.strong_count(), 0, "a thread keeps none of a stream that is gone");
    }

    #[test]
    fn a_device_ends_though_threads_that_live_and_threads_that_ended_kept_counts() {
        let device = device();
        let inner = Arc::downgrade(&device.primary.inner.device);
        let stream = device.new_stream().unwrap();
        let (sender, blocks) = mpsc::channel::<crate::Block<u8>>();
        let (kept, ended) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| warm(&stream));
            let (kept, ended) = (&kept, &ended);
            let stream = &stream;
            scope.spawn(move || {
                warm(stream);
                // Those of another thread, too.
                blocks.iter().take(8).for_each(drop);
                kept.wait();
                ended.wait();
            });
            (0..8).for_each(|_| sender.send(stream.alloc(4096).unwrap()).unwrap());
            kept.wait();
            warm(stream);
            ended.wait();
        });
        drop((stream, device));
        assert_eq!(inner.strong_count(), 0, "nobody keeps the device");
    }

    #[test]
    fn counts_that_are_taken_back_while_threads_release_are_all_there() {
        for round in 0..at_effort(20, 200, 2000) {
            let device = device();
            let inner = Arc::downgrade(&device.primary.inner.device);
            let stream = Arc::new(device.new_stream().unwrap());
            let start = Barrier::new(3);
            thread::scope(|scope| {
                for _ in 0..2 {
                    let (stream, start) = (stream.clone(), &start);
                    scope.spawn(move || {
                        warm(&stream);
                        let blocks: Vec<_> = (0..20).map(|_| stream.alloc::<u8>(4096).unwrap()).collect();
                        drop(stream);
                        start.wait();
                        drop(blocks);
                    });
                }
                start.wait();
                drop(stream);
            });
            drop(device);
            assert_eq!(inner.strong_count(), 0, "round {round}");
        }
    }
}
