//! Host memory that devices can access: pinned memory, and registered memory of the program.

use std::ffi::c_void;

use freehold_driver::cuda::CUdeviceptr;

use crate::code::cudaError_t;
use crate::process;
use crate::types::{check, write};

pub(crate) unsafe fn cudaMallocHost(start: *mut *mut c_void, bytes: usize) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuMemAllocHost_v2)(start, bytes) }?)
}

pub(crate) unsafe fn cudaHostAlloc(start: *mut *mut c_void, bytes: usize, flags: u32) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuMemHostAlloc)(start, bytes, flags) }?)
}

pub(crate) unsafe fn cudaFreeHost(start: *mut c_void) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the block is valid.
    Ok(unsafe { (process.api.cuMemFreeHost)(start) }?)
}

pub(crate) unsafe fn cudaHostRegister(start: *mut c_void, bytes: usize, flags: u32) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees the memory until it is unregistered.
    Ok(unsafe { (process.api.cuMemHostRegister_v2)(start, bytes, flags) }?)
}

pub(crate) unsafe fn cudaHostUnregister(start: *mut c_void) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the memory is valid.
    Ok(unsafe { (process.api.cuMemHostUnregister)(start) }?)
}

pub(crate) unsafe fn cudaHostGetDevicePointer(
    pointer: *mut *mut c_void,
    start: *mut c_void,
    flags: u32,
) -> cudaError_t {
    check(pointer)?;
    let process = process::with_context()?;
    let mut address = CUdeviceptr::NULL;
    // SAFETY: `address` is a valid place for the answer. Any address may be asked about.
    unsafe { (process.api.cuMemHostGetDevicePointer_v2)(&raw mut address, start, flags) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(pointer, address.0 as *mut c_void) }?)
}

pub(crate) unsafe fn cudaHostGetFlags(flags: *mut u32, start: *mut c_void) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid. Any address may be asked about.
    Ok(unsafe { (process.api.cuMemHostGetFlags)(flags, start) }?)
}
