//! Host memory for experiments.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use freehold_driver::cuda::CUdeviceptr;

const PAGE: usize = 4096;

/// Host memory that lives until the process ends, so that work in a stream may use it at any time. It is accessed
/// through atomics, because a device may access it at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostBuffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `start` is not `Send` because it is a pointer; the memory is never freed, and is used only through atomics.
unsafe impl Send for HostBuffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates memory that the driver does not know.
    pub(crate) fn pageable(bytes: usize) -> Self {
        let layout =
            Layout::from_size_align(bytes.max(1).next_multiple_of(PAGE), PAGE).expect("experiments use valid sizes");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, bytes }
    }

    /// Wraps memory created elsewhere, such as another process's or managed memory.
    ///
    /// # Safety
    /// `start` must be aligned for a `u64`, with `bytes` bytes that stay mapped for reading and writing until the
    /// process ends, and that this process uses only through atomics.
    pub(crate) unsafe fn shared(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub(crate) fn address(self) -> CUdeviceptr {
        CUdeviceptr(self.start.as_ptr() as u64)
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    pub(crate) fn byte(self, at: usize) -> &'static AtomicU8 {
        assert!(at < self.bytes, "byte {at} of {}", self.bytes);
        // SAFETY: the assertion keeps the byte inside the allocation.
        let byte = unsafe { self.start.add(at) };
        // SAFETY: the byte is readable and writable until the process ends, and used only through atomics.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    /// Returns the 32-bit word at the start.
    pub(crate) fn word(self) -> &'static AtomicU32 {
        assert!(self.bytes >= 4, "a word of {} bytes", self.bytes);
        // SAFETY: as for `byte`, aligned for a `u64`; words and bytes are not used at the same time.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast()) }
    }

    /// Returns the 64-bit word at the start.
    pub(crate) fn long(self) -> &'static AtomicU64 {
        assert!(self.bytes >= 8, "a long of {} bytes", self.bytes);
        // SAFETY: as for `byte`, aligned for a `u64`; longs and bytes are not used at the same time.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast()) }
    }

    pub(crate) fn fill(self, value: u8) {
        for at in 0..self.bytes {
            self.byte(at).store(value, Ordering::Relaxed);
        }
    }

    /// Sets byte `at` to `at` modulo 251, so that neighbouring rows and pages differ.
    pub(crate) fn count_up(self) {
        for at in 0..self.bytes {
            self.byte(at).store((at % 251) as u8, Ordering::Relaxed);
        }
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        (0..self.bytes).map(|at| self.byte(at).load(Ordering::Relaxed)).collect()
    }
}
