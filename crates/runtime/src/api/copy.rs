//! Copies of linear memory, in one device and between devices.
//!
//! A direction decides the driver's call, which checks the addresses: device memory must be memory that the driver knows,
//! host memory may be any.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdeviceptr, CUmemorytype, CUstream};

use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::runtime_pool;
use crate::thread;
use crate::types::cudaMemcpyKind;

/// Returns the kinds of memory of the source and the destination.
pub(super) fn memory_types(kind: cudaMemcpyKind) -> [CUmemorytype; 2] {
    match kind {
        cudaMemcpyKind::HOST_TO_HOST => [CUmemorytype::HOST, CUmemorytype::HOST],
        cudaMemcpyKind::HOST_TO_DEVICE => [CUmemorytype::HOST, CUmemorytype::DEVICE],
        cudaMemcpyKind::DEVICE_TO_HOST => [CUmemorytype::DEVICE, CUmemorytype::HOST],
        cudaMemcpyKind::DEVICE_TO_DEVICE => [CUmemorytype::DEVICE, CUmemorytype::DEVICE],
        _ => [CUmemorytype::UNIFIED, CUmemorytype::UNIFIED],
    }
}

pub(crate) unsafe fn cudaMemcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let api = process::with_context()?.default_stream_api();
    if bytes == 0 {
        return Ok(());
    }
    check_kind(kind)?;
    check_ranges(to, from, bytes)?;
    let (to_address, from_address) = (CUdeviceptr(to as u64), CUdeviceptr(from as u64));
    let result = match kind {
        // SAFETY: the C caller guarantees that both ranges are valid.
        cudaMemcpyKind::HOST_TO_DEVICE => unsafe { (api.cuMemcpyHtoD_v2)(to_address, from, bytes) },
        // SAFETY: as above.
        cudaMemcpyKind::DEVICE_TO_HOST => unsafe { (api.cuMemcpyDtoH_v2)(to, from_address, bytes) },
        // SAFETY: as above.
        cudaMemcpyKind::DEVICE_TO_DEVICE => unsafe { (api.cuMemcpyDtoD_v2)(to_address, from_address, bytes) },
        // SAFETY: as above.
        _ => unsafe { (api.cuMemcpy)(to_address, from_address, bytes) },
    };
    Ok(result?)
}

pub(crate) unsafe fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    check_kind(kind)?;
    let api = &process::with_context()?.api;
    if bytes == 0 {
        return Ok(());
    }
    let stream = thread::stream(stream);
    check_ranges(to, from, bytes)?;
    let (to_address, from_address) = (CUdeviceptr(to as u64), CUdeviceptr(from as u64));
    let result = match kind {
        // SAFETY: the C caller guarantees that the stream is valid, and both ranges until the stream has copied.
        cudaMemcpyKind::HOST_TO_DEVICE => unsafe { (api.cuMemcpyHtoDAsync_v2)(to_address, from, bytes, stream) },
        // SAFETY: as above.
        cudaMemcpyKind::DEVICE_TO_HOST => unsafe { (api.cuMemcpyDtoHAsync_v2)(to, from_address, bytes, stream) },
        // SAFETY: as above.
        cudaMemcpyKind::DEVICE_TO_DEVICE => unsafe {
            (api.cuMemcpyDtoDAsync_v2)(to_address, from_address, bytes, stream)
        },
        // SAFETY: as above.
        _ => unsafe { (api.cuMemcpyAsync)(to_address, from_address, bytes, stream) },
    };
    Ok(result?)
}

/// Checks that both ranges lie in one block each, if they are memory of the pool.
pub(super) fn check_ranges(to: *const c_void, from: *const c_void, bytes: usize) -> cudaError_t {
    runtime_pool::check_range(to, bytes)?;
    runtime_pool::check_range(from, bytes)
}

/// Checks that a direction exists.
pub(super) fn check_kind(kind: cudaMemcpyKind) -> cudaError_t {
    if kind.0 > cudaMemcpyKind::DEFAULT.0 { Err(CudaError::INVALID_MEMCPY_DIRECTION) } else { Ok(()) }
}

pub(crate) unsafe fn cudaMemcpyPeer(
    to: *mut c_void,
    to_device: i32,
    from: *const c_void,
    from_device: i32,
    bytes: usize,
) -> cudaError_t {
    let process = process::with_context()?;
    let (to_context, from_context) = (process.primary(to_device)?, process.primary(from_device)?);
    if bytes == 0 {
        return Ok(());
    }
    check_ranges(to, from, bytes)?;
    let (to, from) = (CUdeviceptr(to as u64), CUdeviceptr(from as u64));
    // SAFETY: both contexts are retained, and the C caller guarantees that both ranges are valid.
    Ok(unsafe { (process.api.cuMemcpyPeer)(to, to_context, from, from_context, bytes) }?)
}

pub(crate) unsafe fn cudaMemcpyPeerAsync(
    to: *mut c_void,
    to_device: i32,
    from: *const c_void,
    from_device: i32,
    bytes: usize,
    stream: CUstream,
) -> cudaError_t {
    let process = process::with_context()?;
    let (to_context, from_context) = (process.primary(to_device)?, process.primary(from_device)?);
    if bytes == 0 {
        return Ok(());
    }
    check_ranges(to, from, bytes)?;
    let (to, from, stream) = (CUdeviceptr(to as u64), CUdeviceptr(from as u64), thread::stream(stream));
    // SAFETY: both contexts are retained, and the C caller guarantees that the stream is valid, and both ranges until
    // it has copied.
    Ok(unsafe { (process.api.cuMemcpyPeerAsync)(to, to_context, from, from_context, bytes, stream) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_direction_is_invalid() {
        for kind in 0..=4 {
            assert_eq!(check_kind(cudaMemcpyKind(kind)), Ok(()));
        }
        for kind in [5, u32::MAX] {
            assert_eq!(check_kind(cudaMemcpyKind(kind)), Err(CudaError::INVALID_MEMCPY_DIRECTION));
        }
    }
}
