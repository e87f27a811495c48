//! What all measurements of allocators share: a device, its context, and streams.

use freehold::open::{self, Opened};
use freehold_driver::cuda::{CUcontext, CUstream, context, primary, stream, stream_flags};

use crate::bench::error::Result;

pub(super) struct Rig {
    pub(super) opened: Opened,
    context: CUcontext,
    /// One per thread.
    pub(super) streams: Vec<CUstream>,
}

impl Rig {
    /// Makes the context current in this thread.
    pub(super) fn new(selector: Option<&str>, streams: usize) -> Result<Self> {
        // SAFETY: direct driver calls use only streams, modules and memory that this rig creates.
        let opened = unsafe { open::open(selector) }?;
        let context = primary::retain(&opened.api, opened.device)?;
        context::set_current(&opened.api, context)?;
        let streams = (0..streams).map(|_| stream::create(&opened.api, stream_flags::NON_BLOCKING));
        let streams = streams.collect::<std::result::Result<_, _>>()?;
        Ok(Self { opened, context, streams })
    }

    /// Makes the context current in another thread.
    pub(super) fn make_current(&self) -> Result<()> {
        Ok(context::set_current(&self.opened.api, self.context)?)
    }

    /// Waits for all streams, so that the next measurement starts with nothing pending.
    pub(super) fn synchronize(&self) -> Result<()> {
        Ok(context::synchronize(&self.opened.api)?)
    }
}
