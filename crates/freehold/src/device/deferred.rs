//! Operations that wait until nothing is pending: unloading modules, destroying contexts, freeing memory. The driver
//! waits for all work of a context in each of these calls, so they are made only when nothing is pending.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use freehold_driver::handle::Module;

use crate::device::pending_unmap::PendingUnmap;
use crate::device::pinned::Stopped;
use crate::ledger::{ContextId, Fence};
use crate::ordering::context_state::ContextState;
use crate::ordering::stream_state::StreamState;

/// An operation to do when nothing of its context is pending.
#[derive(Debug)]
pub(crate) enum Deferred {
    Unload {
        context_state: Arc<ContextState>,
        raw: Module,
        asked: Duration,
        /// A thread that waits until the module is unloaded watches for this to be dropped.
        _loaded: Arc<()>,
    },
    /// Destroys the context with all that is left in it. Work of other contexts up to these fences may use its memory.
    /// The fences are known once all submissions that began before the context was closed have returned.
    Close { context_state: Arc<ContextState>, fences: OnceLock<Vec<Fence>> },
    /// Unmaps memory of a vector or an import, after its work.
    Unmap { leaving: Arc<PendingUnmap> },
    /// Unregisters host memory that streams of several processes used.
    Unregister { stopped: Stopped },
    /// Retires a stream whose last fence could not be recorded when it was dropped, or that was being captured.
    Retire { stream_state: Arc<StreamState> },
}

/// All deferred operations of a device.
#[derive(Debug, Default)]
pub(crate) struct DeferredQueue {
    waiting: Mutex<Vec<Deferred>>,
}

impl DeferredQueue {
    pub(crate) fn push(&self, what: Deferred) {
        self.lock().push(what);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Deferred> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn unmaps(&self) -> Vec<Arc<PendingUnmap>> {
        let unmaps = self.lock();
        let unmaps = unmaps.iter().filter_map(|what| match what {
            Deferred::Unmap { leaving } => Some(leaving.clone()),
            _ => None,
        });
        unmaps.collect()
    }

    /// Removes memory that was unmapped. It is listed again when there is more.
    pub(crate) fn forget_unmapped(&self) {
        let is_there = |what: &Deferred| !matches!(what, Deferred::Unmap { leaving } if !leaving.is_listed());
        self.lock().retain(is_there);
    }

    /// Removes the operations that end with a context.
    pub(crate) fn forget_context(&self, context: ContextId) {
        self.lock().retain(|what| match what {
            Deferred::Unload { context_state, .. } | Deferred::Close { context_state, .. } => {
                context_state.id != context
            }
            Deferred::Retire { stream_state } => stream_state.context != context,
            // Mapped memory belongs to the device, and host memory to the primary context.
            Deferred::Unmap { .. } | Deferred::Unregister { .. } => true,
        });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Deferred>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
