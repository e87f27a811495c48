//! The blocks of a foreign pool that are freed when all work that was submitted before is complete.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold_driver::handle::Event;

use super::pending_free::PendingFree;

/// Freed blocks that work may still use.
#[derive(Default)]
pub(super) struct WaitingFrees {
    pub(super) frees: Mutex<Frees>,
    /// How many blocks there are, for callers that do not take the lock.
    pub(super) count: AtomicUsize,
}

#[derive(Default)]
pub(super) struct Frees {
    /// The oldest first, whose event is complete first.
    pub(super) recorded: VecDeque<(Event, Vec<PendingFree>)>,
    /// Blocks after which no event could be recorded, because a stream was being captured or the driver lacks the call.
    pub(super) unrecorded: Vec<PendingFree>,
}

impl fmt::Debug for WaitingFrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingFrees").field("count", &self.count).finish_non_exhaustive()
    }
}

impl WaitingFrees {
    pub(super) fn lock(&self) -> MutexGuard<'_, Frees> {
        self.frees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
