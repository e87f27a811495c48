//! Shared virtual memory: blocks with one address for the host and the devices of a context.

use std::ffi::c_void;
use std::ptr;

use opencl3::command_queue as move_;
use opencl3::memory as cl;
use opencl3::types::CL_FALSE;

use super::call::check;
use super::handle::{ContextId, Event, Queue};
use super::queue::{length, list};
use crate::error::CallError;

/// Allocates a block that the host may access while it is mapped. OpenCL does not say why it failed: the error is
/// always `CL_INVALID_VALUE`.
pub fn alloc(context: ContextId, bytes: usize, align: u32) -> Result<u64, CallError> {
    // SAFETY: the call takes no pointer but the handle.
    let made = unsafe { cl::svm_alloc(context.raw(), cl::CL_MEM_READ_WRITE, bytes, align) };
    check("clSVMAlloc", made).map(|start| start.expose_provenance() as u64)
}

/// Allocates a block that the host and kernels may access at the same time.
pub fn alloc_fine(context: ContextId, bytes: usize, align: u32) -> Result<u64, CallError> {
    let flags = cl::CL_MEM_READ_WRITE | cl::CL_MEM_SVM_FINE_GRAIN_BUFFER;
    // SAFETY: the call takes no pointer but the handle.
    let made = unsafe { cl::svm_alloc(context.raw(), flags, bytes, align) };
    check("clSVMAlloc", made).map(|start| start.expose_provenance() as u64)
}

/// Frees a block immediately, without waiting for commands that use it.
///
/// # Safety
/// `start` was returned by an allocation of the context, or is null, and neither a command nor the host still uses the
/// block.
pub unsafe fn free(context: ContextId, start: u64) -> Result<(), CallError> {
    // SAFETY: the caller guarantees that the block is valid.
    check("clSVMFree", unsafe { cl::svm_free(context.raw(), pointer(start)) })
}

/// Frees a block in the order of the queue.
///
/// # Safety
/// As for [`free`], when the queue reaches the command.
pub unsafe fn free_async(queue: Queue, start: u64, after: &[Event]) -> Result<Event, CallError> {
    let starts = [pointer(start).cast_const()];
    let (count, list) = (length(after), list(after));
    // SAFETY: the caller guarantees that the block is valid; the lists outlive the call. Without a callback, the driver
    // frees the block.
    let put = unsafe { move_::enqueue_svm_free(queue.raw(), 1, starts.as_ptr(), None, ptr::null_mut(), count, list) };
    check("clEnqueueSVMFree", put).map(Event::of)
}

/// Copies between blocks, or from or to host memory, in the order of the queue.
///
/// # Safety
/// At both addresses are `bytes` bytes. Until the event is complete, nothing writes those of the host, and nothing
/// reads those that are written to.
pub unsafe fn copy(queue: Queue, from: u64, to: u64, bytes: usize, after: &[Event]) -> Result<Event, CallError> {
    let (count, list) = (length(after), list(after));
    // SAFETY: the caller guarantees that both ends are valid; the list outlives the call.
    let put = unsafe {
        let (to, from) = (pointer(to), pointer(from).cast_const());
        move_::enqueue_svm_mem_cpy(queue.raw(), CL_FALSE, to, from, bytes, count, list)
    };
    check("clEnqueueSVMMemcpy", put).map(Event::of)
}

/// Fills with a repeated pattern of 1, 2, 4 or more bytes, in the order of the queue.
///
/// # Safety
/// At `to` are `bytes` bytes of a block, which stays allocated until the event is complete.
pub unsafe fn fill(queue: Queue, to: u64, bytes: usize, pattern: &[u8], after: &[Event]) -> Result<Event, CallError> {
    let (count, list) = (length(after), list(after));
    // SAFETY: the caller guarantees that the block is valid; the pattern, whose length the call receives, is read
    // before it returns.
    let put = unsafe {
        let (start, size) = (pattern.as_ptr().cast(), pattern.len());
        move_::enqueue_svm_mem_fill(queue.raw(), pointer(to), start, size, bytes, count, list)
    };
    check("clEnqueueSVMMemFill", put).map(Event::of)
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}
