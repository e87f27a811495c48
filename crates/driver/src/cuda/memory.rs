//! Device memory, allocated immediately or in stream order. Pinned memory is in [`host`](super::host).

use super::api::Api;
use super::call::{DriverError, call};
use super::types::{CUdeviceptr, CUmemoryPool, CUstream};

/// Free and total memory of the current context's device, across all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Free bytes.
    pub free_bytes: usize,
    /// Total bytes.
    pub total_bytes: usize,
}

/// Memory for a rectangle whose rows are `pitch_bytes` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    /// The address of the first row.
    pub start: CUdeviceptr,
    /// The distance between the starts of two rows, in bytes.
    pub pitch_bytes: usize,
}

/// A whole allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The address of its first byte.
    pub base: CUdeviceptr,
    /// Length in bytes.
    pub bytes: usize,
}

/// Returns the free and the total memory of the current context's device.
pub fn info(api: &Api) -> Result<Info, DriverError> {
    let (mut free_bytes, mut total_bytes) = (0, 0);
    // SAFETY: `free_bytes` and `total_bytes` outlive the call, which writes one `usize` to each.
    unsafe { call!(api.cuMemGetInfo_v2(&mut free_bytes, &mut total_bytes)) }?;
    Ok(Info { free_bytes, total_bytes })
}

/// Allocates in the current context. The memory is not zeroed.
pub fn alloc(api: &Api, bytes: usize) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuMemAlloc_v2(&mut start, bytes)) }?;
    Ok(start)
}

/// Allocates `height` rows, aligned for fast accesses of `element_bytes`.
pub fn alloc_pitch(api: &Api, width_bytes: usize, height: usize, element_bytes: u32) -> Result<Pitched, DriverError> {
    let (mut start, mut pitch_bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: `start` and `pitch_bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuMemAllocPitch_v2(&mut start, &mut pitch_bytes, width_bytes, height, element_bytes)) }?;
    Ok(Pitched { start, pitch_bytes })
}

/// Allocates managed memory, which migrates between host and devices; `flags` as in
/// [`attach_flags`](super::attach_flags).
pub fn alloc_managed(api: &Api, bytes: usize, flags: u32) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuMemAllocManaged(&mut start, bytes, flags)) }?;
    Ok(start)
}

/// Frees an allocation once all work of its context is done.
pub fn free(api: &Api, start: CUdeviceptr) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemFree_v2(start)) }
}

/// Returns the allocation that contains an address.
pub fn range(api: &Api, address: CUdeviceptr) -> Result<Range, DriverError> {
    let (mut base, mut bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: `base` and `bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuMemGetAddressRange_v2(&mut base, &mut bytes, address)) }?;
    Ok(Range { base, bytes })
}

/// Allocates in stream order, from the pool of the stream's device.
pub fn alloc_async(api: &Api, bytes: usize, stream: CUstream) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it before it returns.
    unsafe { call!(api.cuMemAllocAsync(&mut start, bytes, stream)) }?;
    Ok(start)
}

/// Allocates in stream order, from `pool`.
pub fn alloc_from_pool_async(
    api: &Api,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it before it returns.
    unsafe { call!(api.cuMemAllocFromPoolAsync(&mut start, bytes, pool, stream)) }?;
    Ok(start)
}

/// Frees an allocation in stream order, without waiting for other streams that use it.
pub fn free_async(api: &Api, start: CUdeviceptr, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemFreeAsync(start, stream)) }
}
