//! Prevents fences after all work of a context from being recorded while a stream is captured, because that would
//! invalidate the capture.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// Counts running captures. While there are any, no fence after all work of a context is recorded.
#[derive(Debug, Default)]
pub struct CaptureGate {
    captures: AtomicUsize,
    /// Held shared while a fence is recorded.
    recording: RwLock<()>,
}

impl CaptureGate {
    /// Makes a gate without captures.
    pub const fn new() -> Self {
        Self { captures: AtomicUsize::new(0), recording: RwLock::new(()) }
    }

    /// Counts a capture that is about to begin, and waits for fences that other threads are recording.
    pub fn begin(&self) {
        self.captures.fetch_add(1, Ordering::SeqCst);
        drop(self.recording.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends what [`begin`](Self::begin) began.
    pub fn end(&self) {
        self.captures.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether no capture runs.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.captures.load(Ordering::SeqCst) == 0
    }

    /// Makes a call during which no capture begins. Returns `None`, without the call, if one runs.
    pub fn while_open<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        let _recording = self.recording.read().unwrap_or_else(PoisonError::into_inner);
        self.is_open().then(call)
    }
}

/// Gates are the same if they count the same captures.
impl PartialEq for CaptureGate {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for CaptureGate {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_recorded_while_a_capture_runs() {
        let gate = CaptureGate::new();
        assert_eq!(gate.while_open(|| 7), Some(7));
        gate.begin();
        gate.begin();
        assert_eq!(gate.while_open(|| 7), None);
        gate.end();
        assert!(!gate.is_open());
        gate.end();
        assert_eq!(gate.while_open(|| 7), Some(7));
    }
}
