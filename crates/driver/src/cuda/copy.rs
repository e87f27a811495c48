//! Copies. A copy with `_async` in its name is put into a stream; the others are done with the host's memory when they
//! return, if they are given any.

use std::ffi::c_void;

use super::api::Api;
use super::call::{CallError, call};
use super::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUstream};

/// Copies between any two places of the unified address space.
///
/// # Safety
/// Where an address is the host's, `bytes` there may be read (`from`) or written (`to`) until the copy is done.
pub unsafe fn unified(api: &Api, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<(), CallError> {
    // SAFETY: the caller vouches for an address of the host's; any other is the driver's to check.
    unsafe { call!(api.cuMemcpy(to, from, bytes)) }
}

/// Puts [`unified`] into a stream.
///
/// # Safety
/// As for [`unified`]; the copy is done when the stream has passed it.
pub unsafe fn unified_async(
    api: &Api,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), CallError> {
    // SAFETY: the caller vouches for an address of the host's until the stream has passed; any other is the driver's
    // to check.
    unsafe { call!(api.cuMemcpyAsync(to, from, bytes, stream)) }
}

/// Copies from memory of one context to that of another.
pub fn peer(
    api: &Api,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer of the host; a wrong address is the driver's to refuse.
    unsafe { call!(api.cuMemcpyPeer(to, to_context, from, from_context, bytes)) }
}

/// Puts [`peer`] into a stream.
pub fn peer_async(
    api: &Api,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer of the host; a wrong address is the driver's to refuse.
    unsafe { call!(api.cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream)) }
}

/// Copies a slice to a device.
pub fn host_to_device(api: &Api, to: CUdeviceptr, from: &[u8]) -> Result<(), CallError> {
    // SAFETY: `from` is readable for its length and outlives the call, which has read it when it returns.
    unsafe { call!(api.cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len())) }
}

/// Fills a slice from a device.
pub fn device_to_host(api: &Api, to: &mut [u8], from: CUdeviceptr) -> Result<(), CallError> {
    // SAFETY: `to` is writable for its length and outlives the call, which has written it when it returns.
    unsafe { call!(api.cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len())) }
}

/// Copies from device memory to device memory. The host may be ahead of it.
pub fn device_to_device(api: &Api, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer of the host; a wrong address is the driver's to refuse.
    unsafe { call!(api.cuMemcpyDtoD_v2(to, from, bytes)) }
}

/// Puts a copy from the host to a device into a stream.
///
/// # Safety
/// `bytes` at `from` may be read, and nothing writes there, until the stream has passed the copy.
pub unsafe fn host_to_device_async(
    api: &Api,
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result<(), CallError> {
    // SAFETY: the caller vouches that `from` is readable for `bytes` until the stream has passed the copy.
    unsafe { call!(api.cuMemcpyHtoDAsync_v2(to, from, bytes, stream)) }
}

/// Puts a copy from a device to the host into a stream.
///
/// # Safety
/// `bytes` at `to` may be written, and nothing else reads or writes there, until the stream has passed the copy.
pub unsafe fn device_to_host_async(
    api: &Api,
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), CallError> {
    // SAFETY: the caller vouches that `to` is writable for `bytes`, and the copy's alone, until the stream has passed it.
    unsafe { call!(api.cuMemcpyDtoHAsync_v2(to, from, bytes, stream)) }
}

/// Puts a copy from device memory to device memory into a stream.
pub fn device_to_device_async(
    api: &Api,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer of the host; a wrong address is the driver's to refuse.
    unsafe { call!(api.cuMemcpyDtoDAsync_v2(to, from, bytes, stream)) }
}

/// Copies a rectangle.
///
/// # Safety
/// Where a side of `copy` is the host's, each of its rows may be read or written until the copy is done.
pub unsafe fn rectangle(api: &Api, copy: &CUDA_MEMCPY2D) -> Result<(), CallError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller vouches for the rows that it names on the host.
    unsafe { call!(api.cuMemcpy2D_v2(copy)) }
}

/// Copies a rectangle whose pitch need not suit the device.
///
/// # Safety
/// As for [`rectangle`].
pub unsafe fn rectangle_unaligned(api: &Api, copy: &CUDA_MEMCPY2D) -> Result<(), CallError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller vouches for the rows that it names on the host.
    unsafe { call!(api.cuMemcpy2DUnaligned_v2(copy)) }
}

/// Puts [`rectangle`] into a stream.
///
/// # Safety
/// As for [`rectangle`]; the copy is done when the stream has passed it.
pub unsafe fn rectangle_async(api: &Api, copy: &CUDA_MEMCPY2D, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the call reads `copy` before it returns; the caller vouches for the rows that it names on the host until
    // the stream has passed.
    unsafe { call!(api.cuMemcpy2DAsync_v2(copy, stream)) }
}

/// Copies a box.
///
/// # Safety
/// Where a side of `copy` is the host's, each of its rows may be read or written until the copy is done.
pub unsafe fn volume(api: &Api, copy: &CUDA_MEMCPY3D) -> Result<(), CallError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller vouches for the rows that it names on the host.
    unsafe { call!(api.cuMemcpy3D_v2(copy)) }
}

/// Puts [`volume`] into a stream.
///
/// # Safety
/// As for [`volume`]; the copy is done when the stream has passed it.
pub unsafe fn volume_async(api: &Api, copy: &CUDA_MEMCPY3D, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the call reads `copy` before it returns; the caller vouches for the rows that it names on the host until
    // the stream has passed.
    unsafe { call!(api.cuMemcpy3DAsync_v2(copy, stream)) }
}

/// Copies a box from one context to another.
///
/// # Safety
/// As for [`volume`].
pub unsafe fn volume_peer(api: &Api, copy: &CUDA_MEMCPY3D_PEER) -> Result<(), CallError> {
    // SAFETY: `copy` outlives the call, which reads it; the caller vouches for the rows that it names on the host.
    unsafe { call!(api.cuMemcpy3DPeer(copy)) }
}

/// Puts [`volume_peer`] into a stream.
///
/// # Safety
/// As for [`volume`]; the copy is done when the stream has passed it.
pub unsafe fn volume_peer_async(api: &Api, copy: &CUDA_MEMCPY3D_PEER, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the call reads `copy` before it returns; the caller vouches for the rows that it names on the host until
    // the stream has passed.
    unsafe { call!(api.cuMemcpy3DPeerAsync(copy, stream)) }
}
