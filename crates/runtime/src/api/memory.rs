//! Linear memory.

use std::ffi::c_void;

use freehold_driver::cuda::CUdeviceptr;

use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::types::write;

pub(crate) unsafe fn cudaMalloc(start: *mut *mut c_void, bytes: usize) -> cudaError_t {
    if start.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    let process = process::with_context()?;
    let mut block = CUdeviceptr::NULL;
    if bytes > 0 {
        // SAFETY: `block` is a valid place for the answer.
        unsafe { (process.api.cuMemAlloc_v2)(&raw mut block, bytes) }?;
    }
    // SAFETY: the C caller vouches for `start`.
    Ok(unsafe { write(start, block.0 as *mut c_void) }?)
}

pub(crate) unsafe fn cudaFree(start: *mut c_void) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller vouches for the block.
    Ok(unsafe { (process.api.cuMemFree_v2)(CUdeviceptr(start as u64)) }?)
}

pub(crate) unsafe fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller vouches for both places.
    Ok(unsafe { (process.api.cuMemGetInfo_v2)(free, total) }?)
}
