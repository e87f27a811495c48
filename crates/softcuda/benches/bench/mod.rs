//! Shared by the benchmarks: a context.

use freehold_driver::cuda::{self, Api, CUcontext, CUdevice};

// SAFETY: the benchmark names streams, memory and handles that it made.
const API: Api = unsafe { freehold_softcuda::api() };

/// A context of this thread, destroyed at the end.
pub(crate) struct Bench {
    context: CUcontext,
}

impl Bench {
    pub(crate) fn new() -> Self {
        cuda::driver::init(&API, 0).expect("the software driver starts");
        let context = cuda::context::create(&API, CUdevice(0), 0).expect("a context can be created");
        Self { context }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        cuda::context::destroy(&API, self.context).expect("the context is alive");
    }
}
