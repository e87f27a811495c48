//! Memory of a device, allocated at once or in the order of a stream. Pinned memory is in [`host`](super::host).

use super::api::Api;
use super::call::{CallError, call};
use super::types::{CUdeviceptr, CUmemoryPool, CUstream};

/// How much memory the current context's device has, for all processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    pub free_bytes: usize,
    pub total_bytes: usize,
}

/// Memory for a rectangle, whose rows lie `pitch_bytes` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    pub start: CUdeviceptr,
    pub pitch_bytes: usize,
}

/// A whole allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub base: CUdeviceptr,
    pub bytes: usize,
}

/// The memory that the current context's device has, free and in all.
pub fn info(api: &Api) -> Result<Info, CallError> {
    let (mut free_bytes, mut total_bytes) = (0, 0);
    // SAFETY: `free_bytes` and `total_bytes` outlive the call, which writes one `usize` to each.
    unsafe { call!(api.cuMemGetInfo_v2(&mut free_bytes, &mut total_bytes)) }?;
    Ok(Info { free_bytes, total_bytes })
}

/// Allocates in the current context. The memory holds what was left there.
pub fn alloc(api: &Api, bytes: usize) -> Result<CUdeviceptr, CallError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuMemAlloc_v2(&mut start, bytes)) }?;
    Ok(start)
}

/// Allocates `height` rows that begin where accesses of `element_bytes` are fast.
pub fn alloc_pitch(api: &Api, width_bytes: usize, height: usize, element_bytes: u32) -> Result<Pitched, CallError> {
    let (mut start, mut pitch_bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: `start` and `pitch_bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuMemAllocPitch_v2(&mut start, &mut pitch_bytes, width_bytes, height, element_bytes)) }?;
    Ok(Pitched { start, pitch_bytes })
}

/// Allocates memory that moves between host and devices as it is used; `flags` as in
/// [`attach_flags`](super::attach_flags).
pub fn alloc_managed(api: &Api, bytes: usize, flags: u32) -> Result<CUdeviceptr, CallError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuMemAllocManaged(&mut start, bytes, flags)) }?;
    Ok(start)
}

/// Releases an allocation once all work of its context is done (fact 2.1).
pub fn free(api: &Api, start: CUdeviceptr) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer of the host; a wrong address is the driver's to refuse.
    unsafe { call!(api.cuMemFree_v2(start)) }
}

/// The allocation that an address lies in.
pub fn range(api: &Api, address: CUdeviceptr) -> Result<Range, CallError> {
    let (mut base, mut bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: `base` and `bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuMemGetAddressRange_v2(&mut base, &mut bytes, address)) }?;
    Ok(Range { base, bytes })
}

/// Allocates in the order of a stream, from the pool of the stream's device.
pub fn alloc_async(api: &Api, bytes: usize, stream: CUstream) -> Result<CUdeviceptr, CallError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it before it returns.
    unsafe { call!(api.cuMemAllocAsync(&mut start, bytes, stream)) }?;
    Ok(start)
}

/// Allocates in the order of a stream, from a pool of the caller's choice.
pub fn alloc_from_pool_async(
    api: &Api,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Result<CUdeviceptr, CallError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it before it returns.
    unsafe { call!(api.cuMemAllocFromPoolAsync(&mut start, bytes, pool, stream)) }?;
    Ok(start)
}

/// Releases an allocation in the order of a stream. Work of another stream that still uses it is not waited for
/// (fact 2.2).
pub fn free_async(api: &Api, start: CUdeviceptr, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer of the host; a wrong address is the driver's to refuse.
    unsafe { call!(api.cuMemFreeAsync(start, stream)) }
}
