//! A context as its streams see it: the backend, and the lock that keeps it from being destroyed during a call.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use freehold_driver::Backend;

use crate::ledger::ContextId;

/// The primary context of the device.
pub(crate) const PRIMARY: ContextId = ContextId(0);

/// A context and the lock that guards it.
#[derive(Debug)]
pub(crate) struct ContextState {
    pub(crate) id: ContextId,
    pub(crate) backend: Arc<dyn Backend>,
    /// Held shared while work is submitted to a stream of the context, and exclusively during a call that waits for all
    /// work: such a call is made only when none is pending.
    pub(crate) destroy_lock: RwLock<()>,
    /// Written with `destroy_lock` held exclusively.
    pub(crate) is_destroyed: AtomicBool,
}

impl ContextState {
    pub(crate) fn new(id: ContextId, backend: Arc<dyn Backend>) -> Self {
        Self { id, backend, destroy_lock: RwLock::new(()), is_destroyed: AtomicBool::new(false) }
    }

    /// Keeps the context from being destroyed until the guard is dropped. Exclusive access only ever tries the lock and
    /// never waits for it, so a thread may enter twice.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.destroy_lock.read().unwrap_or_else(PoisonError::into_inner)
    }
}
