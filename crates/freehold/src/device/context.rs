//! Contexts: the primary context of a device, and those it creates. Blocks, streams and modules keep theirs alive.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLockReadGuard};

use freehold_driver::Backend;

use crate::device::deferred::Deferred;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ledger::ContextId;
use crate::ordering::context_state::{ContextState, PRIMARY};

/// A handle to a context of a device. The context lives until its last handle, block, stream and module is dropped, and
/// then until its last work is complete.
///
/// ```
/// let device = freehold::open()?;
/// let (first, second) = (device.new_context()?, device.new_context()?);
/// let x = first.new_stream()?.upload(&[1u8, 2, 3])?;
/// assert_eq!(second.new_stream()?.download(&x)?, [1, 2, 3]); // memory of one is used in the other
/// let failed = first.close().expect_err("a block of it lives");
/// println!("{failed}");
/// drop(x);
/// failed.value.close()?;
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.inner.state.id).finish()
    }
}

#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) device: Arc<DeviceInner>,
    pub(crate) state: Arc<ContextState>,
    closed: AtomicBool,
}

impl Context {
    pub(crate) fn primary(device: Arc<DeviceInner>) -> Self {
        let backend = device.backend.clone();
        Self::new(device, PRIMARY, backend)
    }

    pub(crate) fn create(device: &Arc<DeviceInner>) -> Result<Self> {
        device.check()?;
        let contexts = device.backend.contexts().ok_or(Error::OneContext)?;
        let backend = contexts.create_context().map_err(|error| device.failed(error))?;
        Ok(Self::new(device.clone(), device.next_context(), backend))
    }

    fn new(device: Arc<DeviceInner>, id: ContextId, backend: Arc<dyn Backend>) -> Self {
        let context_state = Arc::new(ContextState::new(id, backend));
        Self { inner: Arc::new(ContextInner { device, state: context_state, closed: AtomicBool::new(false) }) }
    }

    /// Returns the library's number of the context, which is unique in the process.
    pub fn id(&self) -> ContextId {
        self.inner.state.id
    }
}

impl ContextInner {
    /// Returns an error if the context is closed or the device has failed.
    pub(crate) fn check(&self) -> Result<()> {
        self.device.check()?;
        if self.is_closed() { Err(Error::ContextClosed { context: self.state.id }) } else { Ok(()) }
    }

    /// Keeps the context from being destroyed until the guard is dropped. Fails if it is closed.
    #[inline]
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let shared = self.state.enter();
        if self.is_closed() { Err(Error::ContextClosed { context: self.state.id }) } else { Ok(shared) }
    }

    /// Keeps the context from being destroyed until the guard is dropped, even if it is closed. The device's primary
    /// context needs no guard.
    #[inline]
    pub(crate) fn kept_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (!self.stays()).then(|| self.state.enter())
    }

    /// Whether it is the device's primary context, which is never closed.
    #[inline]
    pub(crate) fn stays(&self) -> bool {
        self.state.id == PRIMARY
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the context and its blocks.
    pub(crate) fn close(&self) -> Result<()> {
        self.check()?;
        if self.state.id == PRIMARY {
            // The primary context belongs to the device and to foreign code: it stays.
            return Ok(());
        }
        // Work that is being submitted now is waited for before the context is destroyed; later work is refused.
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::ContextClosed { context: self.state.id });
        }
        let device = &self.device;
        device.end_blocks(self.state.id);
        device.forget_by_address(self.state.id);
        self.leave()
    }

    /// Defers the destruction of the context until its last work is complete, and other contexts' work with its memory.
    fn leave(&self) -> Result<()> {
        let device = &self.device;
        device.defer(Deferred::Close { context_state: self.state.clone(), fences: OnceLock::new() });
        device.run_deferred()
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        if self.state.id == PRIMARY || self.is_closed() || !self.device.is_good() {
            return;
        }
        if let Err(error) = self.leave() {
            self.device.note_drop_error(error);
        }
    }
}
