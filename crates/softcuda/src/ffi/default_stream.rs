//! What the null stream is to the call that the calling thread is in.

use std::cell::Cell;

use freehold_driver::cuda::CUresult;

thread_local! {
    /// Set while this thread is in a call that was compiled for per-thread default streams.
    static PER_THREAD_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call for which the null stream is the calling thread's own.
pub(crate) fn with_per_thread_default(call: impl FnOnce() -> CUresult) -> CUresult {
    PER_THREAD_DEFAULT.set(true);
    let result = call();
    PER_THREAD_DEFAULT.set(false);
    result
}

pub(crate) fn is_per_thread_default() -> bool {
    PER_THREAD_DEFAULT.get()
}
