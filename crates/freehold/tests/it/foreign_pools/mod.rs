//! Shared code of the foreign pool's tests: the device, and streams as foreign code creates them.

use freehold::foreign::ForeignPool;
use freehold_driver::cuda::{Api, CUcontext, CUstream, context, primary, stream, stream_flags};

pub(crate) const MIB: u64 = 1 << 20;

/// The device, and the driver below it.
pub(crate) struct Host {
    pub(crate) allocator: &'static ForeignPool,
    pub(crate) api: Api,
    primary: CUcontext,
}

impl Host {
    pub(crate) fn new() -> Self {
        let opened = crate::own::opened();
        // SAFETY: the tests name streams that they made, and retire them first.
        let allocator = unsafe { freehold::open::foreign_pool(0) }.unwrap();
        let primary = primary::retain(&opened.api, opened.device).unwrap();
        let host = Self { allocator, api: opened.api, primary };
        host.enter();
        host
    }

    /// Makes the context current in this thread.
    pub(crate) fn enter(&self) {
        context::push_current(&self.api, self.primary).unwrap();
    }

    /// A stream that the library knows nothing of.
    pub(crate) fn stream(&self) -> CUstream {
        stream::create(&self.api, stream_flags::NON_BLOCKING).unwrap()
    }

    /// Waits for all work of the context.
    pub(crate) fn synchronize(&self) {
        context::synchronize(&self.api).unwrap();
    }
}
