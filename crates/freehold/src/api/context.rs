//! The public operations of a context.

use crate::api::image::Image;
use crate::api::module::Module;
use crate::api::stream::Stream;
use crate::device::context::Context;
use crate::error::{CloseError, Error, Result};

impl Context {
    /// Creates a stream in this context.
    pub fn new_stream(&self) -> Result<Stream> {
        Stream::new(self.clone())
    }

    /// Loads an image. The driver waits for running kernels of the context: load before launching.
    pub fn module(&self, image: &Image) -> Result<Module> {
        Module::load(self.clone(), image)
    }

    /// Waits until all work of the context is complete, including foreign work.
    pub fn synchronize(&self) -> Result<()> {
        self.inner.check()?;
        let shared = self.inner.enter()?;
        let device = &self.inner.device;
        let fences: Vec<_> = device
            .streams
            .of_context(self.id())
            .into_iter()
            .map(|stream_state| (stream_state.current_fence().seq, stream_state))
            .collect();
        self.inner.state.backend.synchronize().map_err(|error| device.failed(error))?;
        for (seq, stream_state) in fences {
            stream_state.note_complete(seq);
        }
        // Deferred operations may need the context exclusively.
        drop(shared);
        device.run_deferred()
    }

    /// Closes the context, unless it has live blocks, which the error lists. The context is destroyed after its pending
    /// work; this call does not wait for that. The primary context, which the device shares with foreign code, stays:
    /// only the handle is dropped.
    ///
    /// # Errors
    /// [`Error::ContextInUse`] with the list of the blocks.
    pub fn close(self) -> std::result::Result<(), CloseError<Self>> {
        if let Err(error) = self.inner.check() {
            return Err(CloseError::new(self, error));
        }
        let mut blocks = self.inner.device.owned();
        blocks.retain(|owner| owner.context == self.id());
        if !blocks.is_empty() {
            let context = self.id();
            return Err(CloseError::new(self, Error::ContextInUse { context, blocks }));
        }
        self.close_with_blocks()
    }

    /// Closes the context and its blocks: later uses of them fail.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// let context = device.new_context()?;
    /// let x = context.new_stream()?.upload(&[1u8, 2, 3])?;
    /// context.close_with_blocks()?;
    /// assert!(device.new_stream()?.download(&x).is_err()); // the block ended with its context
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn close_with_blocks(self) -> std::result::Result<(), CloseError<Self>> {
        match self.inner.close() {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError::new(self, error)),
        }
    }
}
