//! Who is asked for memory: the library through its C interface, and the driver's two pairs of calls.
//!
//! What is asked of them, and how it is timed, is not known here.

use std::ffi::c_int;

use freehold::open;
use freehold_driver::cuda::{
    Api, CUdeviceptr, CUmemoryPool, CUstream, CallError, context, device as driver_device, memory, pool,
};

use super::super::{BenchError, Result};
use super::rig::Rig;

/// One that gives memory and takes it back. What it does on the way is what is timed, so nothing is added to it.
pub(super) trait Allocator: Sync {
    /// Short, so that it comes back in registers.
    type Failure: Into<BenchError> + Send;

    fn allocate(&self, bytes: usize, stream: CUstream) -> std::result::Result<u64, Self::Failure>;

    /// `bytes` and `stream` are those of the allocation.
    fn free(&self, address: u64, bytes: usize, stream: CUstream) -> std::result::Result<(), Self::Failure>;
}

/// One that keeps what it took back.
pub(super) trait Keeper: Allocator {
    /// What it has of the device, allocated or kept.
    fn reserved_bytes(&self) -> Result<u64>;

    /// Gives back to the device what is kept.
    fn trim(&self) -> Result<()>;
}

/// `freehold_alloc` and `freehold_free`.
pub(super) struct Ours {
    api: Api,
    device: c_int,
}

/// The C interface answered with null.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    bytes: usize,
}

impl From<Refused> for BenchError {
    fn from(Refused { bytes }: Refused) -> Self {
        Self::Refused { bytes }
    }
}

impl Ours {
    pub(super) fn new(rig: &Rig) -> Self {
        Self { api: rig.opened.api, device: rig.opened.device.0 }
    }
}

impl Allocator for Ours {
    type Failure = Refused;

    #[inline]
    fn allocate(&self, bytes: usize, stream: CUstream) -> std::result::Result<u64, Refused> {
        let address = freehold_capi::freehold_alloc(bytes.cast_signed(), self.device, stream.0 as _);
        if address.is_null() { Err(Refused { bytes }) } else { Ok(address as u64) }
    }

    #[inline]
    fn free(&self, address: u64, bytes: usize, stream: CUstream) -> std::result::Result<(), Refused> {
        freehold_capi::freehold_free(address as _, bytes.cast_signed(), self.device, stream.0 as _);
        Ok(())
    }
}

impl Keeper for Ours {
    fn reserved_bytes(&self) -> Result<u64> {
        Ok(open::guest(self.device)?.reserved_bytes())
    }

    fn trim(&self) -> Result<()> {
        let guest = open::guest(self.device)?;
        // The first call marks the streams, which pass the marks while they are waited for.
        guest.trim(0)?;
        context::synchronize(&self.api)?;
        guest.trim(0)?;
        Ok(())
    }
}

/// `cuMemAllocAsync` and `cuMemFreeAsync`, with a pool that keeps all that it ever had.
pub(super) struct Ordered {
    api: Api,
    pool: CUmemoryPool,
}

impl Ordered {
    pub(super) fn new(rig: &Rig) -> Result<Self> {
        let api = rig.opened.api;
        let pool = driver_device::default_pool(&api, rig.opened.device)?;
        pool::set_release_threshold(&api, pool, u64::MAX)?;
        Ok(Self { api, pool })
    }
}

impl Allocator for Ordered {
    type Failure = CallError;

    #[inline]
    fn allocate(&self, bytes: usize, stream: CUstream) -> std::result::Result<u64, CallError> {
        memory::alloc_async(&self.api, bytes, stream).map(|start| start.0)
    }

    #[inline]
    fn free(&self, address: u64, _bytes: usize, stream: CUstream) -> std::result::Result<(), CallError> {
        memory::free_async(&self.api, CUdeviceptr(address), stream)
    }
}

impl Keeper for Ordered {
    fn reserved_bytes(&self) -> Result<u64> {
        Ok(pool::reserved_bytes(&self.api, self.pool)?)
    }

    fn trim(&self) -> Result<()> {
        Ok(pool::trim(&self.api, self.pool, 0)?)
    }
}

/// `cuMemAlloc` and `cuMemFree`.
pub(super) struct Plain {
    api: Api,
}

impl Plain {
    pub(super) fn new(rig: &Rig) -> Self {
        Self { api: rig.opened.api }
    }
}

impl Allocator for Plain {
    type Failure = CallError;

    #[inline]
    fn allocate(&self, bytes: usize, _stream: CUstream) -> std::result::Result<u64, CallError> {
        memory::alloc(&self.api, bytes).map(|start| start.0)
    }

    #[inline]
    fn free(&self, address: u64, _bytes: usize, _stream: CUstream) -> std::result::Result<(), CallError> {
        memory::free(&self.api, CUdeviceptr(address))
    }
}
