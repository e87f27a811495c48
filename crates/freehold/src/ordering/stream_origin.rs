//! The origin of a stream: the code that created it, and the thread whose default stream it is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::capture_gate::CaptureGate;

/// A thread's number, unique in the process. Unlike the standard library's id, it can be read until the last destructor
/// of the thread has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadId(u64);

impl ThreadId {
    /// Returns the calling thread's number.
    pub(crate) fn current() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            /// Zero until it is first read.
            static NUMBER: Cell<u64> = const { Cell::new(0) };
        }
        if NUMBER.get() == 0 {
            NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Self(NUMBER.get())
    }
}

/// Whether the library or foreign code created a stream, and how long its handle is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamOrigin {
    /// The library created it, and counts all of its work.
    Own,
    /// Foreign code created it, submits work that is not counted here, and announces its end: until then its handle is
    /// valid.
    Trusted,
    /// Like `Trusted`, but its end is not announced: its handle is used only in calls whose caller names the stream,
    /// and each release in it records a fence at once.
    Checked,
    /// A stream in the private pool of a capture. Launches of the graph use the same memory again, so memory that is
    /// released or used here waits until the pool is released.
    Captured,
    /// Foreign code created it, and it is identified by its id, which is never reused; its end may or may not be
    /// announced. Its handle is used only in calls whose caller names the stream, and its fences come after all work of
    /// the context, whenever no capture runs.
    ById(&'static CaptureGate),
}
