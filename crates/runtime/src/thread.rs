//! Per-thread state: the current device, the last error, and pending launch configurations.

use std::cell::{Cell, RefCell};

use freehold_driver::cuda::CUstream;

use crate::code::CudaError;
use crate::types::Dim3;

/// A launch configuration between `__cudaPushCallConfiguration` and `__cudaPopCallConfiguration`.
#[derive(Clone, Copy)]
pub(crate) struct CallConfiguration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared_bytes: usize,
    pub(crate) stream: CUstream,
}

thread_local! {
    /// The ordinal that `cudaSetDevice` set. `None` until then: the first device.
    static DEVICE: Cell<Option<i32>> = const { Cell::new(None) };
    static LAST_ERROR: Cell<Option<CudaError>> = const { Cell::new(None) };
    static CONFIGURATIONS: RefCell<Vec<CallConfiguration>> = const { RefCell::new(Vec::new()) };
}

/// Returns the device that the thread chose.
pub(crate) fn device() -> Option<i32> {
    DEVICE.get()
}

pub(crate) fn set_device(ordinal: i32) {
    DEVICE.set(Some(ordinal));
}

pub(crate) fn last_error() -> Option<CudaError> {
    LAST_ERROR.get()
}

/// Remembers the error of a failed call. `cudaErrorNotReady` is an answer, not an error.
pub(crate) fn set_last_error(error: CudaError) {
    if error != CudaError::NOT_READY {
        LAST_ERROR.set(Some(error));
    }
}

/// Returns the last error, and forgets it. The error of a device that has failed comes back with the next call.
pub(crate) fn take_last_error() -> Option<CudaError> {
    LAST_ERROR.take()
}

pub(crate) fn push_configuration(configuration: CallConfiguration) {
    CONFIGURATIONS.with_borrow_mut(|all| all.push(configuration));
}

pub(crate) fn pop_configuration() -> Option<CallConfiguration> {
    CONFIGURATIONS.with_borrow_mut(Vec::pop)
}

thread_local! {
    /// Whether stream zero is the thread's own default stream, during a call of a function for such programs.
    static IS_PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function in which stream zero is the per-thread default stream.
pub(crate) fn with_per_thread_stream<R>(run: impl FnOnce() -> R) -> R {
    /// Restores the meaning of stream zero, after a panic too.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_PER_THREAD.set(self.0);
        }
    }
    let _restore = Restore(IS_PER_THREAD.replace(true));
    run()
}

/// Returns whether stream zero is the per-thread default stream in this call.
pub(crate) fn is_per_thread_stream() -> bool {
    IS_PER_THREAD.get()
}

/// Returns the stream that a handle names in this call: stream zero is one of the two default streams.
pub(crate) fn stream(handle: CUstream) -> CUstream {
    if handle == CUstream::NULL && is_per_thread_stream() { CUstream::PER_THREAD } else { handle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_zero_is_per_thread_only_within_the_call() {
        assert_eq!(stream(CUstream::NULL), CUstream::NULL);
        let named = CUstream(0x40);
        assert_eq!(with_per_thread_stream(|| stream(CUstream::NULL)), CUstream::PER_THREAD);
        assert_eq!(with_per_thread_stream(|| stream(CUstream::LEGACY)), CUstream::LEGACY);
        assert_eq!(with_per_thread_stream(|| stream(named)), named);
        assert_eq!(stream(CUstream::NULL), CUstream::NULL);
    }

    #[test]
    fn a_panic_in_a_call_restores_the_legacy_stream() {
        let result = std::panic::catch_unwind(|| with_per_thread_stream(|| panic!("in the call")));
        assert!(result.is_err());
        assert!(!is_per_thread_stream());
    }
}
