//! The allocators that benchmarks and replays compare: Freehold's pool through the C interface, `cuMemAllocAsync` and
//! `cuMemAlloc`. Each allocates and frees in the order of a stream, except `cuMemAlloc`, which has no streams.
//!
//! Knows nothing about workloads and timing.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use freehold::open;
use freehold_capi::{
    FreeholdError, freehold_alloc, freehold_announce_captures, freehold_last_error, freehold_last_error_code,
    freehold_record_use, freehold_reserved_bytes, freehold_stream_retire, freehold_trim, freehold_try_free,
};
use freehold_driver::cuda::{
    Api, CUdevice, CUdeviceptr, CUerror, CUmemoryPool, CUstream, DriverError, context, device, memory, pool,
};

/// Why an allocator call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("Freehold's pool: {0}")]
    Pool(Box<str>),
}

/// The error of a timed call: small enough for registers. Convert it to a [`Failure`] in the same thread, before that
/// thread's next call.
pub(crate) trait AllocError: Into<Failure> {
    /// Returns whether the only reason is a lack of memory.
    fn is_out_of_memory(&self) -> bool;
}

/// Allocates and frees memory. Its calls are timed, so nothing is added to them.
pub(crate) trait Allocator {
    const NAME: &'static str;

    type Refusal: AllocError;

    fn alloc(&self, bytes: u64, stream: CUstream) -> Result<CUdeviceptr, Self::Refusal>;

    /// `bytes` is the size of the allocation.
    fn free(&self, start: CUdeviceptr, bytes: u64, stream: CUstream) -> Result<(), Self::Refusal>;

    /// Records that another stream uses a block. Allocators without this leave the order of streams to the caller.
    #[inline]
    fn record_use(&self, _start: CUdeviceptr, _stream: CUstream) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Returns the device memory that the allocator holds, in use or not.
    fn reserved_bytes(&self) -> Result<u64, Failure>;
}

/// An allocator that caches freed memory.
pub(crate) trait CachingAllocator: Allocator {
    /// Returns cached memory to the device.
    fn trim(&self) -> Result<(), Failure>;
}

/// Freehold's pool, through its C interface.
#[derive(Debug)]
pub(crate) struct FreeholdAllocator<'a> {
    api: &'a Api,
    device: c_int,
}

/// An error of the C interface; the thread's last error has the details.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CApiError(());

impl AllocError for CApiError {
    fn is_out_of_memory(&self) -> bool {
        freehold_last_error_code() == FreeholdError::OutOfMemory as c_int
    }
}

impl From<CApiError> for Failure {
    #[cold]
    fn from(CApiError(()): CApiError) -> Self {
        // SAFETY: the text ends in a NUL and is valid until this thread's next call, which happens after it is copied.
        let text = unsafe { CStr::from_ptr(freehold_last_error()) };
        Self::Pool(text.to_string_lossy().into())
    }
}

impl<'a> FreeholdAllocator<'a> {
    /// Opens the device here instead of in the first allocation.
    pub(crate) fn new(api: &'a Api, on: CUdevice) -> freehold::Result<Self> {
        // SAFETY: streams are registered only through the C interface, by the code that created them.
        unsafe { open::foreign_pool(on.0) }?;
        // No stream here captures. Without this promise each call asks the driver whether its stream is capturing.
        freehold_announce_captures();
        Ok(Self { api, device: on.0 })
    }

    /// Tells the pool that streams are about to be destroyed.
    pub(crate) fn close(self, streams: &[CUstream]) -> Result<(), Failure> {
        let retired = streams.iter().try_for_each(|&stream| check(freehold_stream_retire(handle(stream).cast())));
        Ok(retired?)
    }
}

impl Allocator for FreeholdAllocator<'_> {
    const NAME: &'static str = "freehold";

    type Refusal = CApiError;

    #[inline]
    fn alloc(&self, bytes: u64, stream: CUstream) -> Result<CUdeviceptr, CApiError> {
        // The C interface takes signed sizes. No device has as much memory as the largest.
        let size = isize::try_from(bytes).unwrap_or(isize::MAX);
        let start = freehold_alloc(size, self.device, handle(stream).cast());
        if start.is_null() { Err(CApiError(())) } else { Ok(CUdeviceptr(start.addr() as u64)) }
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, bytes: u64, stream: CUstream) -> Result<(), CApiError> {
        check(freehold_try_free(pointer(start), bytes.cast_signed() as isize, self.device, handle(stream).cast()))
    }

    #[inline]
    fn record_use(&self, start: CUdeviceptr, stream: CUstream) -> Result<(), CApiError> {
        check(freehold_record_use(pointer(start), handle(stream).cast()))
    }

    fn reserved_bytes(&self) -> Result<u64, Failure> {
        Ok(freehold_reserved_bytes(self.device) as u64)
    }
}

impl CachingAllocator for FreeholdAllocator<'_> {
    fn trim(&self) -> Result<(), Failure> {
        // The first call enqueues fences, which complete while the streams are synchronized.
        check(freehold_trim(self.device, 0))?;
        context::synchronize(self.api)?;
        Ok(check(freehold_trim(self.device, 0))?)
    }
}

#[inline]
fn pointer(start: CUdeviceptr) -> *mut c_void {
    ptr::without_provenance_mut(start.0 as usize)
}

#[inline]
fn handle(stream: CUstream) -> *mut c_void {
    ptr::without_provenance_mut(stream.0)
}

#[inline]
fn check(code: c_int) -> Result<(), CApiError> {
    if code == FreeholdError::None as c_int { Ok(()) } else { Err(CApiError(())) }
}

impl AllocError for DriverError {
    fn is_out_of_memory(&self) -> bool {
        self.code == CUerror::OUT_OF_MEMORY
    }
}

/// `cuMemAllocAsync` and `cuMemFreeAsync`, from the device's default pool, which keeps what is freed.
#[derive(Debug)]
pub(crate) struct AsyncAllocator<'a> {
    api: &'a Api,
    pool: CUmemoryPool,
    threshold_bytes: u64,
}

impl<'a> AsyncAllocator<'a> {
    pub(crate) fn new(api: &'a Api, on: CUdevice) -> Result<Self, DriverError> {
        let pool = device::default_pool(api, on)?;
        let threshold_bytes = pool::release_threshold_bytes(api, pool)?;
        pool::set_release_threshold(api, pool, u64::MAX)?;
        Ok(Self { api, pool, threshold_bytes })
    }

    /// Returns the memory to the device. All blocks are freed, and the streams are idle.
    pub(crate) fn close(self) -> Result<(), DriverError> {
        pool::set_release_threshold(self.api, self.pool, self.threshold_bytes)?;
        pool::trim(self.api, self.pool, 0)
    }
}

impl Allocator for AsyncAllocator<'_> {
    const NAME: &'static str = "cuMemAllocAsync";

    type Refusal = DriverError;

    #[inline]
    fn alloc(&self, bytes: u64, stream: CUstream) -> Result<CUdeviceptr, DriverError> {
        memory::alloc_async(self.api, bytes as usize, stream)
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, _bytes: u64, stream: CUstream) -> Result<(), DriverError> {
        memory::free_async(self.api, start, stream)
    }

    fn reserved_bytes(&self) -> Result<u64, Failure> {
        Ok(pool::reserved_bytes(self.api, self.pool)?)
    }
}

impl CachingAllocator for AsyncAllocator<'_> {
    fn trim(&self) -> Result<(), Failure> {
        Ok(pool::trim(self.api, self.pool, 0)?)
    }
}

/// `cuMemAlloc` and `cuMemFree`, which have no streams: a free waits for all of them.
#[derive(Debug)]
pub(crate) struct DriverAllocator<'a> {
    api: &'a Api,
    /// The device's free memory at the start.
    free_bytes: usize,
}

impl<'a> DriverAllocator<'a> {
    pub(crate) fn new(api: &'a Api) -> Result<Self, DriverError> {
        Ok(Self { api, free_bytes: memory::info(api)?.free_bytes })
    }
}

impl Allocator for DriverAllocator<'_> {
    const NAME: &'static str = "cuMemAlloc";

    type Refusal = DriverError;

    #[inline]
    fn alloc(&self, bytes: u64, _stream: CUstream) -> Result<CUdeviceptr, DriverError> {
        memory::alloc(self.api, bytes as usize)
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, _bytes: u64, _stream: CUstream) -> Result<(), DriverError> {
        memory::free(self.api, start)
    }

    /// Returns the decrease of the device's free memory: the driver does not report it per process.
    fn reserved_bytes(&self) -> Result<u64, Failure> {
        Ok(self.free_bytes.saturating_sub(memory::info(self.api)?.free_bytes) as u64)
    }
}
