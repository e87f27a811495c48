//! The allocators that a log is replayed on: each takes and gives memory in the order of a stream, as far as it knows streams.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use freehold::open;
use freehold_capi::{
    FreeholdError, freehold_alloc, freehold_last_error, freehold_last_error_code, freehold_record_use,
    freehold_reserved_bytes, freehold_stream_retire, freehold_try_free,
};
use freehold_driver::cuda::{
    Api, CUdevice, CUdeviceptr, CUerror, CUmemoryPool, CUstream, CallError, device, memory, pool,
};

/// Why an allocator cannot go on. That there is no memory left is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error("Freehold's pool: {0}")]
    Pool(Box<str>),
}

pub(super) trait Allocator {
    const NAME: &'static str;

    /// Memory, or `None` where there is not enough.
    fn allocate(&self, bytes: u64, stream: CUstream) -> Result<Option<CUdeviceptr>, Failure>;

    fn free(&self, start: CUdeviceptr, bytes: u64, stream: CUstream) -> Result<(), Failure>;

    /// Says that another stream uses a block. An allocator that cannot be told leaves it to its user to order the streams.
    #[inline]
    fn note_use(&self, _start: CUdeviceptr, _stream: CUstream) -> Result<(), Failure> {
        Ok(())
    }

    /// The memory of the device that the allocator holds, in use or not.
    fn reserved_bytes(&self) -> Result<u64, Failure>;
}

/// Freehold's pool, through its C interface.
#[derive(Debug)]
pub(super) struct Ours {
    device: c_int,
}

impl Ours {
    /// The device is opened here, not by the first allocation.
    pub(super) fn new(on: CUdevice) -> freehold::Result<Self> {
        open::guest(on.0)?;
        Ok(Self { device: on.0 })
    }

    /// Tells the pool that streams are about to be destroyed.
    pub(super) fn forget(self, streams: &[CUstream]) -> Result<(), Failure> {
        streams.iter().try_for_each(|&stream| done(freehold_stream_retire(handle(stream).cast())))
    }
}

impl Allocator for Ours {
    const NAME: &'static str = "freehold";

    #[inline]
    fn allocate(&self, bytes: u64, stream: CUstream) -> Result<Option<CUdeviceptr>, Failure> {
        // The C interface takes sizes with a sign, and so less than half of all numbers.
        let Ok(size) = isize::try_from(bytes) else { return Ok(None) };
        let start = freehold_alloc(size, self.device, handle(stream).cast());
        if start.is_null() { refused() } else { Ok(Some(CUdeviceptr(start.addr() as u64))) }
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, bytes: u64, stream: CUstream) -> Result<(), Failure> {
        done(freehold_try_free(pointer(start), bytes as isize, self.device, handle(stream).cast()))
    }

    #[inline]
    fn note_use(&self, start: CUdeviceptr, stream: CUstream) -> Result<(), Failure> {
        done(freehold_record_use(pointer(start), handle(stream).cast()))
    }

    fn reserved_bytes(&self) -> Result<u64, Failure> {
        Ok(freehold_reserved_bytes(self.device) as u64)
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

#[cold]
fn refused() -> Result<Option<CUdeviceptr>, Failure> {
    if freehold_last_error_code() == FreeholdError::OutOfMemory as c_int { Ok(None) } else { Err(last_failure()) }
}

#[inline]
fn done(code: c_int) -> Result<(), Failure> {
    if code == FreeholdError::None as c_int { Ok(()) } else { Err(last_failure()) }
}

#[cold]
fn last_failure() -> Failure {
    // SAFETY: the text ends in a NUL, and stays until the next call of this thread fails, which is after it was copied.
    let text = unsafe { CStr::from_ptr(freehold_last_error()) };
    Failure::Pool(text.to_string_lossy().into())
}

/// `cuMemAllocAsync`, from the device's pool, which gives nothing back of itself.
#[derive(Debug)]
pub(super) struct Ordered<'a> {
    api: &'a Api,
    pool: CUmemoryPool,
    threshold_bytes: u64,
}

impl<'a> Ordered<'a> {
    pub(super) fn new(api: &'a Api, on: CUdevice) -> Result<Self, CallError> {
        let pool = device::default_pool(api, on)?;
        let threshold_bytes = pool::release_threshold_bytes(api, pool)?;
        pool::set_release_threshold(api, pool, u64::MAX)?;
        Ok(Self { api, pool, threshold_bytes })
    }

    /// Gives the memory back to the device. All of it was freed, and the streams have passed that.
    pub(super) fn close(self) -> Result<(), CallError> {
        pool::set_release_threshold(self.api, self.pool, self.threshold_bytes)?;
        pool::trim(self.api, self.pool, 0)
    }
}

impl Allocator for Ordered<'_> {
    const NAME: &'static str = "cuMemAllocAsync";

    #[inline]
    fn allocate(&self, bytes: u64, stream: CUstream) -> Result<Option<CUdeviceptr>, Failure> {
        granted(memory::alloc_async(self.api, bytes as usize, stream))
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, _bytes: u64, stream: CUstream) -> Result<(), Failure> {
        Ok(memory::free_async(self.api, start, stream)?)
    }

    fn reserved_bytes(&self) -> Result<u64, Failure> {
        Ok(pool::reserved_bytes(self.api, self.pool)?)
    }
}

/// `cuMemAlloc`, which knows no streams: its release waits for all of them.
#[derive(Debug)]
pub(super) struct Plain<'a> {
    api: &'a Api,
    /// What the device had free before.
    free_bytes: usize,
}

impl<'a> Plain<'a> {
    pub(super) fn new(api: &'a Api) -> Result<Self, CallError> {
        Ok(Self { api, free_bytes: memory::info(api)?.free_bytes })
    }
}

impl Allocator for Plain<'_> {
    const NAME: &'static str = "cuMemAlloc";

    #[inline]
    fn allocate(&self, bytes: u64, _stream: CUstream) -> Result<Option<CUdeviceptr>, Failure> {
        granted(memory::alloc(self.api, bytes as usize))
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, _bytes: u64, _stream: CUstream) -> Result<(), Failure> {
        Ok(memory::free(self.api, start)?)
    }

    /// What the device has lost since: nobody tells it of one process alone.
    fn reserved_bytes(&self) -> Result<u64, Failure> {
        Ok(self.free_bytes.saturating_sub(memory::info(self.api)?.free_bytes) as u64)
    }
}

#[inline]
fn granted(outcome: Result<CUdeviceptr, CallError>) -> Result<Option<CUdeviceptr>, Failure> {
    match outcome {
        Ok(start) => Ok(Some(start)),
        Err(CallError { code: CUerror::OUT_OF_MEMORY, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
