//! Copies. A copy with `_async` in its name is enqueued in a stream. The others have finished with host memory when
//! they return.

use std::ffi::c_void;

use super::api::Api;
use super::call::{DriverError, call};
use super::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUstream};

/// Copies between any two addresses of the unified address space.
///
/// # Safety
/// If an address is in host memory, `bytes` there may be read (`from`) or written (`to`) until the copy is done.
pub unsafe fn unified(api: &Api, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that a host address is valid; the driver checks any other.
    unsafe { call!(api.cuMemcpy(to, from, bytes)) }
}

/// Enqueues [`unified`] in a stream.
///
/// # Safety
/// As for [`unified`]; the copy is done when the stream has completed it.
pub unsafe fn unified_async(
    api: &Api,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that a host address is valid until the stream has completed the copy; the driver
    // checks any other.
    unsafe { call!(api.cuMemcpyAsync(to, from, bytes, stream)) }
}

/// Copies from memory of one context to memory of another.
pub fn peer(
    api: &Api,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemcpyPeer(to, to_context, from, from_context, bytes)) }
}

/// Enqueues [`peer`] in a stream.
pub fn peer_async(
    api: &Api,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream)) }
}

/// Copies a slice to a device.
pub fn host_to_device(api: &Api, to: CUdeviceptr, from: &[u8]) -> Result<(), DriverError> {
    // SAFETY: `from` is readable for its length and outlives the call, which has read it when it returns.
    unsafe { call!(api.cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len())) }
}

/// Fills a slice with a copy from a device.
pub fn device_to_host(api: &Api, to: &mut [u8], from: CUdeviceptr) -> Result<(), DriverError> {
    // SAFETY: `to` is writable for its length and outlives the call, which has written it when it returns.
    unsafe { call!(api.cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len())) }
}

/// Copies from device memory to device memory. It may return before the copy is done.
pub fn device_to_device(api: &Api, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemcpyDtoD_v2(to, from, bytes)) }
}

/// Enqueues a copy from the host to a device.
///
/// # Safety
/// `bytes` at `from` may be read, and nothing writes there, until the stream has completed the copy.
pub unsafe fn host_to_device_async(
    api: &Api,
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that `from` is readable for `bytes` until the stream has completed the copy.
    unsafe { call!(api.cuMemcpyHtoDAsync_v2(to, from, bytes, stream)) }
}

/// Enqueues a copy from a device to the host.
///
/// # Safety
/// `bytes` at `to` may be written, and nothing else reads or writes there, until the stream has completed the copy.
pub unsafe fn device_to_host_async(
    api: &Api,
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that `to` is writable for `bytes`, and used by the copy alone, until the stream has
    // completed it.
    unsafe { call!(api.cuMemcpyDtoHAsync_v2(to, from, bytes, stream)) }
}

/// Enqueues a copy from device memory to device memory.
pub fn device_to_device_async(
    api: &Api,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemcpyDtoDAsync_v2(to, from, bytes, stream)) }
}

/// Copies a rectangle.
///
/// # Safety
/// If a side of `copy` is host memory, each of its rows may be read or written until the copy is done.
pub unsafe fn rectangle(api: &Api, copy: &CUDA_MEMCPY2D) -> Result<(), DriverError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller guarantees that the host rows that it names are
    // valid.
    unsafe { call!(api.cuMemcpy2D_v2(copy)) }
}

/// Copies a rectangle whose pitch need not meet the device's alignment.
///
/// # Safety
/// As for [`rectangle`].
pub unsafe fn rectangle_unaligned(api: &Api, copy: &CUDA_MEMCPY2D) -> Result<(), DriverError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller guarantees that the host rows that it names are
    // valid.
    unsafe { call!(api.cuMemcpy2DUnaligned_v2(copy)) }
}

/// Enqueues [`rectangle`] in a stream.
///
/// # Safety
/// As for [`rectangle`]; the copy is done when the stream has completed it.
pub unsafe fn rectangle_async(api: &Api, copy: &CUDA_MEMCPY2D, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call reads `copy` before it returns; the caller guarantees that its host rows are valid until the
    // stream has completed the copy.
    unsafe { call!(api.cuMemcpy2DAsync_v2(copy, stream)) }
}

/// Copies a box.
///
/// # Safety
/// If a side of `copy` is host memory, each of its rows may be read or written until the copy is done.
pub unsafe fn volume(api: &Api, copy: &CUDA_MEMCPY3D) -> Result<(), DriverError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller guarantees that the host rows that it names are
    // valid.
    unsafe { call!(api.cuMemcpy3D_v2(copy)) }
}

/// Enqueues [`volume`] in a stream.
///
/// # Safety
/// As for [`volume`]; the copy is done when the stream has completed it.
pub unsafe fn volume_async(api: &Api, copy: &CUDA_MEMCPY3D, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call reads `copy` before it returns; the caller guarantees that its host rows are valid until the
    // stream has completed the copy.
    unsafe { call!(api.cuMemcpy3DAsync_v2(copy, stream)) }
}

/// Copies a box from one context to another.
///
/// # Safety
/// As for [`volume`].
pub unsafe fn volume_peer(api: &Api, copy: &CUDA_MEMCPY3D_PEER) -> Result<(), DriverError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller guarantees that the host rows that it names are
    // valid.
    unsafe { call!(api.cuMemcpy3DPeer(copy)) }
}

/// Enqueues [`volume_peer`] in a stream.
///
/// # Safety
/// As for [`volume`]; the copy is done when the stream has completed it.
pub unsafe fn volume_peer_async(api: &Api, copy: &CUDA_MEMCPY3D_PEER, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call reads `copy` before it returns; the caller guarantees that its host rows are valid until the
    // stream has completed the copy.
    unsafe { call!(api.cuMemcpy3DPeerAsync(copy, stream)) }
}
