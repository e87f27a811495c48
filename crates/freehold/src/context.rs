//! Contexts: the primary one of a device, and created ones. Blocks, streams and modules keep theirs alive.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLockReadGuard};

use freehold_driver::Backend;

use crate::core::{Core, Hall, PRIMARY};
use crate::error::{Closed, Error, Result};
use crate::image::Image;
use crate::later::Later;
use crate::ledger::ContextId;
use crate::module::Module;
use crate::stream::Stream;

/// A context of a device. A handle: the context lives until the last handle, block, stream and module of it is gone, and
/// then until its last work has passed.
///
/// ```
/// let device = freehold::open()?;
/// let (first, second) = (device.context()?, device.context()?);
/// let x = first.stream()?.upload(&[1u8, 2, 3])?;
/// assert_eq!(second.stream()?.download(&x)?, [1, 2, 3]); // memory of one is used in the other
/// let (first, error) = first.close().expect_err("a block of it lives");
/// println!("{error}");
/// drop(x);
/// first.close().map_err(|(_, error)| error)?;
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.inner.hall.id).finish()
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) hall: Arc<Hall>,
    closed: AtomicBool,
}

impl Context {
    pub(crate) fn primary(core: Arc<Core>) -> Self {
        let backend = core.backend.clone();
        Self::new(core, PRIMARY, backend)
    }

    pub(crate) fn create(core: &Arc<Core>) -> Result<Self> {
        core.check()?;
        let contexts = core.backend.contexts().ok_or(Error::OneContext)?;
        let backend = contexts.another().map_err(|error| core.failed(error))?;
        Ok(Self::new(core.clone(), core.next_context(), backend))
    }

    fn new(core: Arc<Core>, id: ContextId, backend: Arc<dyn Backend>) -> Self {
        let hall = Arc::new(Hall::new(id, backend));
        Self { inner: Arc::new(Inner { core, hall, closed: AtomicBool::new(false) }) }
    }

    /// The library's number of it, which no other context of the process ever has.
    pub fn id(&self) -> ContextId {
        self.inner.hall.id
    }

    /// A stream of this context.
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self.clone())
    }

    /// Loads an image. The driver waits for kernels of the context that run meanwhile: load before they do.
    pub fn module(&self, image: &Image) -> Result<Module> {
        Module::load(self.clone(), image)
    }

    /// Waits until all work of the context is done, other people's too.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.check()?;
        let shared = self.inner.enter()?;
        let core = &self.inner.core;
        let marks: Vec<_> = core.tracks_of(self.id()).into_iter().map(|track| (track.now().position, track)).collect();
        self.inner.hall.backend.synchronize().map_err(|error| core.failed(error))?;
        for (position, track) in marks {
            track.note_passed(position);
        }
        // What is tidied may want the context alone.
        drop(shared);
        core.tidy()
    }

    /// Closes the context, unless blocks of it are live: then they are named. Work that is pending completes first, and
    /// nobody waits for that. The primary context, which is the device's and other people's, stays: only the handle goes.
    ///
    /// # Errors
    /// [`Error::ContextInUse`] with the list of the blocks.
    pub fn close(self) -> Closed<Self> {
        if let Err(error) = self.inner.check() {
            return Err((self, error));
        }
        let mut blocks = self.inner.core.owned();
        blocks.retain(|owner| owner.context == self.id());
        if !blocks.is_empty() {
            let context = self.id();
            return Err((self, Error::ContextInUse { context, blocks }));
        }
        self.close_with_blocks()
    }

    /// Closes the context and takes its blocks along: what is done with them later says so.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// let context = device.context()?;
    /// let x = context.stream()?.upload(&[1u8, 2, 3])?;
    /// context.close_with_blocks().map_err(|(_, error)| error)?;
    /// assert!(device.stream()?.download(&x).is_err()); // the block is gone, and says so
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn close_with_blocks(self) -> Closed<Self> {
        match self.inner.close() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }
}

impl Inner {
    /// Refuses a call that cannot be made any more.
    pub(crate) fn check(&self) -> Result<()> {
        self.core.check()?;
        if self.is_closed() { Err(Error::ContextClosed { context: self.hall.id }) } else { Ok(()) }
    }

    /// Keeps the context from being destroyed until the guard is dropped, unless it is closed.
    #[inline]
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let shared = self.hall.enter();
        if self.is_closed() { Err(Error::ContextClosed { context: self.hall.id }) } else { Ok(shared) }
    }

    /// Keeps the context from being destroyed until the guard is dropped, whether it is closed or not. The primary one, which
    /// is the device's, stays without a guard.
    #[inline]
    pub(crate) fn kept_open(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (!self.stays()).then(|| self.hall.enter())
    }

    /// Whether it is the device's, which nobody closes.
    #[inline]
    pub(crate) fn stays(&self) -> bool {
        self.hall.id == PRIMARY
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) -> Result<()> {
        self.check()?;
        if self.hall.id == PRIMARY {
            // The primary context is the device's, and other people's: it stays.
            return Ok(());
        }
        // Work that is being put in meanwhile is waited for before the context is destroyed; later work is refused.
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::ContextClosed { context: self.hall.id });
        }
        let core = &self.core;
        core.end_blocks(self.hall.id);
        core.forget_let_go(self.hall.id);
        self.leave()
    }

    /// Has the context destroyed when its last work has passed, and that of others with its memory.
    fn leave(&self) -> Result<()> {
        let core = &self.core;
        core.later(Later::Close { hall: self.hall.clone(), marks: OnceLock::new() });
        core.tidy()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.hall.id == PRIMARY || self.is_closed() || !self.core.is_good() {
            return;
        }
        if let Err(error) = self.leave() {
            self.core.trouble(error);
        }
    }
}
