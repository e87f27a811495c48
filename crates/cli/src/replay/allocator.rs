//! The allocators that a log is replayed on: each takes and gives memory in the order of a stream, as far as it knows streams.

use freehold_driver::cuda::{Api, CUdevice, CUdeviceptr, CUerror, CUstream, CallError, device, memory, pool};

pub(super) trait Allocator {
    const NAME: &'static str;

    /// Memory, or `None` where there is not enough.
    fn allocate(&self, bytes: u64, stream: CUstream) -> Result<Option<CUdeviceptr>, CallError>;

    fn free(&self, start: CUdeviceptr, bytes: u64, stream: CUstream) -> Result<(), CallError>;

    /// Says that another stream uses a block. An allocator that cannot be told leaves it to its user to order the streams.
    #[inline]
    fn note_use(&self, _start: CUdeviceptr, _stream: CUstream) {}

    /// The memory of the device that the allocator holds, in use or not.
    fn reserved_bytes(&self) -> Result<u64, CallError>;
}

/// `cuMemAllocAsync`, from the device's pool, which gives nothing back of itself.
#[derive(Debug)]
pub(super) struct Ordered<'a> {
    api: &'a Api,
    pool: freehold_driver::cuda::CUmemoryPool,
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
    fn allocate(&self, bytes: u64, stream: CUstream) -> Result<Option<CUdeviceptr>, CallError> {
        granted(memory::alloc_async(self.api, bytes as usize, stream))
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, _bytes: u64, stream: CUstream) -> Result<(), CallError> {
        memory::free_async(self.api, start, stream)
    }

    fn reserved_bytes(&self) -> Result<u64, CallError> {
        pool::reserved_bytes(self.api, self.pool)
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
    fn allocate(&self, bytes: u64, _stream: CUstream) -> Result<Option<CUdeviceptr>, CallError> {
        granted(memory::alloc(self.api, bytes as usize))
    }

    #[inline]
    fn free(&self, start: CUdeviceptr, _bytes: u64, _stream: CUstream) -> Result<(), CallError> {
        memory::free(self.api, start)
    }

    /// What the device has lost since: nobody tells it of one process alone.
    fn reserved_bytes(&self) -> Result<u64, CallError> {
        Ok(self.free_bytes.saturating_sub(memory::info(self.api)?.free_bytes) as u64)
    }
}

#[inline]
fn granted(outcome: Result<CUdeviceptr, CallError>) -> Result<Option<CUdeviceptr>, CallError> {
    match outcome {
        Ok(start) => Ok(Some(start)),
        Err(CallError { code: CUerror::OUT_OF_MEMORY, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
