//! Memory and events of another process, by opaque handles.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle};

use crate::code::cudaError_t;
use crate::process;
use crate::runtime_pool;
use crate::shared_block;
use crate::types::{check, write};

pub(crate) unsafe fn cudaIpcGetMemHandle(handle: *mut CUipcMemHandle, start: *mut c_void) -> cudaError_t {
    let process = process::with_context()?;
    if let Some(pool) = runtime_pool::at(CUdeviceptr(start as u64)) {
        let (base, bytes) = pool.block_around(CUdeviceptr(start as u64))?;
        // SAFETY: the C caller guarantees that the place is valid.
        return Ok(unsafe { write(handle, shared_block::export(base, bytes)?) }?);
    }
    // SAFETY: the C caller guarantees that the place and the block are valid.
    Ok(unsafe { (process.api.cuIpcGetMemHandle)(handle, CUdeviceptr(start as u64)) }?)
}

pub(crate) unsafe fn cudaIpcOpenMemHandle(start: *mut *mut c_void, handle: CUipcMemHandle, flags: u32) -> cudaError_t {
    check(start)?;
    let process = process::with_context()?;
    if let Some(opened) = shared_block::open(process, &handle, flags) {
        // SAFETY: the C caller guarantees that the place is valid.
        return Ok(unsafe { write(start, opened? as *mut c_void) }?);
    }
    let mut block = CUdeviceptr::NULL;
    // SAFETY: `block` is a valid place for the answer.
    unsafe { (process.api.cuIpcOpenMemHandle_v2)(&raw mut block, handle, flags) }?;
    // SAFETY: the C caller guarantees that the place is valid.
    Ok(unsafe { write(start, block.0 as *mut c_void) }?)
}

pub(crate) unsafe fn cudaIpcCloseMemHandle(start: *mut c_void) -> cudaError_t {
    let process = process::with_context()?;
    if let Some(closed) = shared_block::close(process, start as u64) {
        return closed;
    }
    // SAFETY: the C caller guarantees that the block is valid.
    Ok(unsafe { (process.api.cuIpcCloseMemHandle)(CUdeviceptr(start as u64)) }?)
}

pub(crate) unsafe fn cudaIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the place and the event are valid.
    Ok(unsafe { (process.api.cuIpcGetEventHandle)(handle, event) }?)
}

pub(crate) unsafe fn cudaIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the place is valid.
    Ok(unsafe { (process.api.cuIpcOpenEventHandle)(event, handle) }?)
}
