//! Streams, and their work other than copies, fills and allocations.

use std::ffi::c_void;

use super::api::Api;
use super::call::{DriverError, call, ready};
use super::code::CUresult;
use super::kernel_types::CUlaunchAttributeID;
use super::node_types::CUlaunchAttributeValue;
use super::types::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream, CUstreamBatchMemOpParams, CUstreamCaptureStatus,
};

/// Creates a stream in the current context; `flags` as in [`stream_flags`](super::stream_flags).
pub fn create(api: &Api, flags: u32) -> Result<CUstream, DriverError> {
    let mut stream = CUstream::NULL;
    // SAFETY: `stream` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuStreamCreate(&mut stream, flags)) }?;
    Ok(stream)
}

/// [`create`] with one of [`context::stream_priorities`](super::context::stream_priorities).
pub fn create_with_priority(api: &Api, flags: u32, priority: i32) -> Result<CUstream, DriverError> {
    let mut stream = CUstream::NULL;
    // SAFETY: `stream` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuStreamCreateWithPriority(&mut stream, flags, priority)) }?;
    Ok(stream)
}

/// Destroys a stream without waiting; its work completes. The handle may be reused.
pub fn destroy(api: &Api, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuStreamDestroy_v2(stream)) }
}

/// Returns the priority of a stream.
pub fn priority(api: &Api, stream: CUstream) -> Result<i32, DriverError> {
    let mut priority = 0;
    // SAFETY: `priority` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuStreamGetPriority(stream, &mut priority)) }?;
    Ok(priority)
}

/// Returns the flags of a stream.
pub fn flags(api: &Api, stream: CUstream) -> Result<u32, DriverError> {
    let mut flags = 0;
    // SAFETY: `flags` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuStreamGetFlags(stream, &mut flags)) }?;
    Ok(flags)
}

/// Returns an id that distinguishes a stream from another with the same handle.
pub fn id(api: &Api, stream: CUstream) -> Result<u64, DriverError> {
    let mut id = 0;
    // SAFETY: `id` outlives the call, which writes one `u64` to it.
    unsafe { call!(api.cuStreamGetId(stream, &mut id)) }?;
    Ok(id)
}

/// Returns the context of a stream.
pub fn context(api: &Api, stream: CUstream) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuStreamGetCtx(stream, &mut context)) }?;
    Ok(context)
}

/// Returns the context of a stream, and its green context, if it has one.
pub fn contexts(api: &Api, stream: CUstream) -> Result<(CUcontext, usize), DriverError> {
    let (mut context, mut green) = (CUcontext::NULL, 0);
    // SAFETY: both outlive the call, which writes one handle to each.
    unsafe { call!(api.cuStreamGetCtx_v2(stream, &mut context, &mut green)) }?;
    Ok((context, green))
}

/// Returns the device of a stream.
pub fn device(api: &Api, stream: CUstream) -> Result<CUdevice, DriverError> {
    let mut device = CUdevice(0);
    // SAFETY: `device` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuStreamGetDevice(stream, &mut device)) }?;
    Ok(device)
}

/// Returns whether the stream's work is being captured into a graph.
pub fn capture_status(api: &Api, stream: CUstream) -> Result<CUstreamCaptureStatus, DriverError> {
    let mut status = CUstreamCaptureStatus::default();
    // SAFETY: `status` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuStreamIsCapturing(stream, &mut status)) }?;
    Ok(status)
}

/// Returns an attribute of the stream.
pub fn attribute(api: &Api, stream: CUstream, id: CUlaunchAttributeID) -> Result<CUlaunchAttributeValue, DriverError> {
    let mut value = CUlaunchAttributeValue::default();
    // SAFETY: `value` outlives the call, which writes one value to it.
    unsafe { call!(api.cuStreamGetAttribute(stream, id, &mut value)) }?;
    Ok(value)
}

/// Sets an attribute of the stream.
pub fn set_attribute(
    api: &Api,
    stream: CUstream,
    id: CUlaunchAttributeID,
    value: CUlaunchAttributeValue,
) -> Result<(), DriverError> {
    // SAFETY: `value` outlives the call, which reads one value.
    unsafe { call!(api.cuStreamSetAttribute(stream, id, &value)) }
}

/// Gives a stream all attributes of another.
pub fn copy_attributes(api: &Api, to: CUstream, from: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuStreamCopyAttributes(to, from)) }
}

/// Returns whether all work of a stream is done. `NOT_READY` is `false`, not an error.
pub fn query(api: &Api, stream: CUstream) -> Result<bool, DriverError> {
    // SAFETY: the call takes no pointer.
    ready(unsafe { call!(api.cuStreamQuery(stream)) })
}

/// Waits for all work of a stream.
pub fn synchronize(api: &Api, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuStreamSynchronize(stream)) }
}

/// Makes later work of the stream wait until the event has completed.
pub fn wait_event(api: &Api, stream: CUstream, event: CUevent, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuStreamWaitEvent(stream, event, flags)) }
}

/// Enqueues a call of `work`. It is not made if the context has failed by then.
///
/// # Safety
/// `work` may be called with `data` once, on another thread, at any time until the stream has completed it. It does not
/// unwind, and does not call the driver.
pub unsafe fn launch_host(
    api: &Api,
    stream: CUstream,
    work: unsafe extern "C" fn(data: *mut c_void),
    data: *mut c_void,
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that `work` may be called with `data` for as long as the driver may do so.
    unsafe { call!(api.cuLaunchHostFunc(stream, Some(work), data)) }
}

/// The older form of [`launch_host`]: the callback is called even if the context has failed, and receives the error.
/// `flags` is zero.
///
/// # Safety
/// As for [`launch_host`].
pub unsafe fn add_callback(
    api: &Api,
    stream: CUstream,
    callback: unsafe extern "C" fn(stream: CUstream, status: CUresult, data: *mut c_void),
    data: *mut c_void,
    flags: u32,
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that `callback` may be called with `data` for as long as the driver may do so.
    unsafe { call!(api.cuStreamAddCallback(stream, Some(callback), data, flags)) }
}

/// Makes the stream wait until the word at `address` compares to `value` as
/// [`wait_value_flags`](super::wait_value_flags) say.
///
/// The address is a device's, like that of any fill: it may be the device's address of pinned memory, which the host
/// then accesses with atomics.
pub fn wait_value_32(
    api: &Api,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: u32,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuStreamWaitValue32_v2(stream, address, value, flags)) }
}

/// [`wait_value_32`] of a 64-bit word.
pub fn wait_value_64(
    api: &Api,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: u32,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuStreamWaitValue64_v2(stream, address, value, flags)) }
}

/// Enqueues the write of a word; `flags` as in [`write_value_flags`](super::write_value_flags). The address is as in
/// [`wait_value_32`].
pub fn write_value_32(
    api: &Api,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: u32,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuStreamWriteValue32_v2(stream, address, value, flags)) }
}

/// [`write_value_32`] of a 64-bit word.
pub fn write_value_64(
    api: &Api,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: u32,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuStreamWriteValue64_v2(stream, address, value, flags)) }
}

/// Enqueues several waits and writes at once. `flags` is zero. The driver may use the `alias` of each.
///
/// # Panics
/// If there are more operations than `u32::MAX`.
pub fn batch_mem_op(
    api: &Api,
    stream: CUstream,
    operations: &mut [CUstreamBatchMemOpParams],
    flags: u32,
) -> Result<(), DriverError> {
    let count = u32::try_from(operations.len()).expect("the number of operations fits a u32");
    // SAFETY: `operations` outlives the call, which reads and writes the `count` that it holds before it returns; a
    // wrong address in one is the driver's to refuse.
    unsafe { call!(api.cuStreamBatchMemOp_v2(stream, count, operations.as_mut_ptr(), flags)) }
}
