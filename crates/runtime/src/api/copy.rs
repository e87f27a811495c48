//! Copies.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdeviceptr, CUstream};

use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::thread;
use crate::types::cudaMemcpyKind;

pub(crate) unsafe fn cudaMemcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    if kind.0 > cudaMemcpyKind::DEFAULT.0 {
        return Err(CudaError::INVALID_MEMCPY_DIRECTION);
    }
    let process = process::with_context()?;
    // SAFETY: the C caller vouches for both ranges.
    Ok(unsafe { (process.api.cuMemcpy)(CUdeviceptr(to as u64), CUdeviceptr(from as u64), bytes) }?)
}

pub(crate) unsafe fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    if kind.0 > cudaMemcpyKind::DEFAULT.0 {
        return Err(CudaError::INVALID_MEMCPY_DIRECTION);
    }
    let process = process::with_context()?;
    let stream = thread::stream(stream);
    // SAFETY: the C caller vouches for both ranges, until the stream is done with them.
    Ok(unsafe { (process.api.cuMemcpyAsync)(CUdeviceptr(to as u64), CUdeviceptr(from as u64), bytes, stream) }?)
}
