//! Streams.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdevice, CUevent, CUlaunchAttributeID, CUlaunchAttributeValue, CUstream, stream_flags};

use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::runtime_pool;
use crate::thread;
use crate::types::{cudaStreamCallback_t, write};

forward! {
    fn cudaStreamCreate(stream: *mut CUstream) = cuStreamCreate(stream, stream_flags::DEFAULT);
    fn cudaStreamCreateWithFlags(stream: *mut CUstream, flags: u32) = cuStreamCreate(stream, flags);
    fn cudaStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32) =
        cuStreamCreateWithPriority(stream, flags, priority);
    fn cudaStreamSynchronize(stream: CUstream) = cuStreamSynchronize(thread::stream(stream));
    fn cudaStreamQuery(stream: CUstream) = cuStreamQuery(thread::stream(stream));
    fn cudaStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) =
        cuStreamWaitEvent(thread::stream(stream), event, flags);
    fn cudaStreamAddCallback(stream: CUstream, callback: cudaStreamCallback_t, data: *mut c_void, flags: u32) =
        cuStreamAddCallback(thread::stream(stream), callback, data, flags);
    fn cudaStreamGetPriority(stream: CUstream, priority: *mut i32) =
        cuStreamGetPriority(thread::stream(stream), priority);
    fn cudaStreamGetFlags(stream: CUstream, flags: *mut u32) = cuStreamGetFlags(thread::stream(stream), flags);
    fn cudaStreamGetId(stream: CUstream, id: *mut u64) = cuStreamGetId(thread::stream(stream), id);
    fn cudaStreamGetAttribute(
        stream: CUstream,
        attribute: CUlaunchAttributeID,
        value: *mut CUlaunchAttributeValue,
    ) = cuStreamGetAttribute(thread::stream(stream), attribute, value);
    fn cudaStreamSetAttribute(
        stream: CUstream,
        attribute: CUlaunchAttributeID,
        value: *const CUlaunchAttributeValue,
    ) = cuStreamSetAttribute(thread::stream(stream), attribute, value);
    fn cudaStreamCopyAttributes(to: CUstream, from: CUstream) =
        cuStreamCopyAttributes(thread::stream(to), thread::stream(from));
}

pub(crate) unsafe fn cudaStreamDestroy(stream: CUstream) -> cudaError_t {
    let process = process::with_context()?;
    runtime_pool::retire(&process.api, stream);
    // SAFETY: the C caller guarantees that the stream is valid.
    Ok(unsafe { (process.api.cuStreamDestroy_v2)(stream) }?)
}

pub(crate) unsafe fn cudaStreamGetDevice(stream: CUstream, device: *mut i32) -> cudaError_t {
    let process = process::with_context()?;
    let mut handle = CUdevice(0);
    // SAFETY: the C caller guarantees that the stream is valid, and `handle` is a valid place for the answer.
    unsafe { (process.api.cuStreamGetDevice)(thread::stream(stream), &raw mut handle) }?;
    let ordinal = process.ordinal(handle).ok_or(CudaError::INVALID_DEVICE)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(device, ordinal) }?)
}
