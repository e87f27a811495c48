//! Named points inside calls at which a test stops a thread, to set up an interleaving. They compile to nothing in
//! every other build.

/// A point between two steps of a call, at which no lock is held that the other thread of a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncPoint {
    /// A block was given to its owner, and its handle is about to be made.
    Alloc,
    /// A block was found to be owned, and is about to be resized in place.
    Resize,
    /// The bytes of a block are counted for its new name, which the block is about to get.
    Retag,
    /// A block was copied to another, which is about to get its name.
    LoseName,
    /// The stream of another heap was found to be one that can be waited for, and a block of that heap is about to be
    /// lent.
    LendIncomplete,
    /// Streams of other heaps were seen to be idle, and a small block of one is about to be lent.
    LendSmall,
    /// A stream was seen to be idle, and a copy from or to memory that is not pinned is about to be submitted.
    Copy,
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) fn reach(_: SyncPoint) {}

#[cfg(test)]
pub(crate) use stopping::{reach, within};

#[cfg(test)]
mod stopping {
    use std::cell::RefCell;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use freehold_testing::HANG_TIMEOUT;

    use super::SyncPoint;

    thread_local! {
        /// Where this thread stops next.
        static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
    }

    struct Stop {
        at: SyncPoint,
        come: Sender<()>,
        /// Closed when the thread may continue.
        go: Receiver<()>,
    }

    pub(crate) fn reach(point: SyncPoint) {
        let stop = STOP.with_borrow_mut(|stop| stop.take_if(|stop| stop.at == point));
        if let Some(Stop { come, go, .. }) = stop {
            come.send(()).expect("the test waits for this thread");
            // Nothing is ever sent: the test drops the other end, even if it fails.
            go.recv().expect_err("the test closes the channel");
        }
    }

    /// Makes `call` in another thread, stops it when it first reaches a point, calls `meanwhile`, and lets it continue.
    /// Returns the result of the call.
    pub(crate) fn within<R: Send>(point: SyncPoint, call: impl FnOnce() -> R + Send, meanwhile: impl FnOnce()) -> R {
        let ((come, has_come), (go, may_go)) = (channel(), channel());
        thread::scope(|scope| {
            let called = scope.spawn(move || {
                STOP.set(Some(Stop { at: point, come, go: may_go }));
                call()
            });
            has_come.recv_timeout(HANG_TIMEOUT).unwrap_or_else(|_| panic!("the call did not reach {point:?}"));
            meanwhile();
            drop(go);
            called.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
