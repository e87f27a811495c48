//! What waits until nothing is pending: modules to unload, contexts to destroy, memory to give back. The driver waits for all
//! work of a context in each of these calls, so they are made where there is none.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use freehold_driver::handle::Module;

use crate::device::pending_unmap::PendingUnmap;
use crate::device::pinned::Stopped;
use crate::ledger::{ContextId, Fence};
use crate::ordering::context_state::ContextState;
use crate::ordering::stream_state::StreamState;

/// What is to be done when nothing of its context is pending.
#[derive(Debug)]
pub(crate) enum Deferred {
    Unload {
        context_state: Arc<ContextState>,
        raw: Module,
        asked: Duration,
        /// Whoever waits for the module to be unloaded sees when this is gone.
        _loaded: Arc<()>,
    },
    /// The context itself, with all that is left in it. Work of other contexts up to these fences may use its memory: they
    /// are known once nobody puts in work any more that began before the context was closed.
    Close { context_state: Arc<ContextState>, fences: OnceLock<Vec<Fence>> },
    /// Memory of a vector or an import, which its work is to pass first.
    Unmap { leaving: Arc<PendingUnmap> },
    /// Memory of the host that streams of several processes used.
    Unregister { stopped: Stopped },
    /// A stream that could not be marked when it was dropped, or that others captured.
    Retire { stream_state: Arc<StreamState> },
}

/// All that waits of a device.
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

    /// Strikes memory that has gone. It is listed anew when there is more.
    pub(crate) fn forget_unmapped(&self) {
        let is_there = |what: &Deferred| !matches!(what, Deferred::Unmap { leaving } if !leaving.is_listed());
        self.lock().retain(is_there);
    }

    /// Strikes what goes with a context.
    pub(crate) fn forget_context(&self, context: ContextId) {
        self.lock().retain(|what| match what {
            Deferred::Unload { context_state, .. } | Deferred::Close { context_state, .. } => {
                context_state.id != context
            }
            Deferred::Retire { stream_state } => stream_state.context != context,
            // Memory that is mapped is the device's, and memory of the host the primary context's.
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
