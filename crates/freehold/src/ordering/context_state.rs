//! A context as its streams know it: the backend, and the gate that keeps it from being destroyed while it is called.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use freehold_driver::Backend;

use crate::ledger::ContextId;

/// The primary context of the device.
pub(crate) const PRIMARY: ContextId = ContextId(0);

/// A context and what guards it.
#[derive(Debug)]
pub(crate) struct ContextState {
    pub(crate) id: ContextId,
    pub(crate) backend: Arc<dyn Backend>,
    /// Held shared while work is put into a stream of the context, and alone while a call is made that waits for all work:
    /// such a call is made only where none is pending.
    pub(crate) gate: RwLock<()>,
    /// Written with the gate held alone.
    pub(crate) is_destroyed: AtomicBool,
}

impl ContextState {
    pub(crate) fn new(id: ContextId, backend: Arc<dyn Backend>) -> Self {
        Self { id, backend, gate: RwLock::new(()), is_destroyed: AtomicBool::new(false) }
    }

    /// Keeps the context from being destroyed until the guard is dropped. The gate is never waited for by who wants it
    /// alone, so that a thread may enter twice.
    pub(crate) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }
}
