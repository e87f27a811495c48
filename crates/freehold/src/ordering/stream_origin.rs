//! Whose a stream is, and the thread whose default stream it is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread: no two of a process ever have the same number. It can be asked for until the last destructor of the thread has run,
/// which the standard library's cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadId(u64);

impl ThreadId {
    /// That of the calling thread.
    pub(crate) fn current() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            /// Zero until it is asked for.
            static NUMBER: Cell<u64> = const { Cell::new(0) };
        }
        if NUMBER.get() == 0 {
            NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Self(NUMBER.get())
    }
}

/// Whose a stream is, and for how long its handle means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamOrigin {
    /// The library made it, and counts all of its work.
    Own,
    /// Others made it, put work into it that is not counted here, and say when it is gone.
    Told,
    /// As above, but nobody says when it is gone: its handle is used only in calls whose caller names the stream, and what is
    /// released in it is marked at once.
    Untold,
    /// A stream in the private pool of a capture. Launches of the graph use the same memory again, so what is released or used here
    /// waits until the pool is released.
    Captured,
}
