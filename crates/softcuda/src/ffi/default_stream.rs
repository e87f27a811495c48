//! The meaning of the null stream in the current call of this thread: legacy or per-thread default stream.

use std::cell::Cell;

use freehold_driver::cuda::CUresult;

thread_local! {
    /// Set while this thread is in a call that was compiled for per-thread default streams.
    static PER_THREAD_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call in which the null stream is the per-thread default stream.
pub(crate) fn with_per_thread_default(call: impl FnOnce() -> CUresult) -> CUresult {
    PER_THREAD_DEFAULT.set(true);
    let result = call();
    PER_THREAD_DEFAULT.set(false);
    result
}

pub(crate) fn is_per_thread_default() -> bool {
    PER_THREAD_DEFAULT.get()
}
