//! Buffers and sub-buffers, and commands that copy and fill them.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use opencl3::command_queue as move_;
use opencl3::memory as cl;
use opencl3::types::{CL_FALSE, CL_TRUE, cl_mem_flags};

use super::call::check;
use super::device::from_bytes;
use super::handle::{ContextId, Event, Memory, Queue};
use super::queue::{length, list};
use crate::error::CallError;

pub use cl::{CL_MEM_READ_ONLY as READ_ONLY, CL_MEM_READ_WRITE as READ_WRITE};

/// Allocates a buffer of device memory.
pub fn create(context: ContextId, bytes: usize) -> Result<Memory, CallError> {
    // SAFETY: no host memory is given.
    let made = unsafe { cl::create_buffer(context.raw(), READ_WRITE, bytes, ptr::null_mut()) };
    check("clCreateBuffer", made).map(Memory::of)
}

/// Creates a buffer over memory that has an address already: shared virtual memory, or host memory.
///
/// # Safety
/// At `start` are `bytes` bytes, which stay allocated until the buffer is deleted, and which are accessed only as
/// OpenCL permits.
pub unsafe fn create_from_host(context: ContextId, start: *mut c_void, bytes: usize) -> Result<Memory, CallError> {
    let flags = READ_WRITE | cl::CL_MEM_USE_HOST_PTR;
    // SAFETY: the caller guarantees that the memory is valid.
    let made = unsafe { cl::create_buffer(context.raw(), flags, bytes, start) };
    check("clCreateBuffer", made).map(Memory::of)
}

/// Allocates a buffer of host memory from and to which copies are fast, for [`map`].
pub fn create_host_visible(context: ContextId, bytes: usize) -> Result<Memory, CallError> {
    let flags = READ_WRITE | cl::CL_MEM_ALLOC_HOST_PTR;
    // SAFETY: no host memory is given.
    let made = unsafe { cl::create_buffer(context.raw(), flags, bytes, ptr::null_mut()) };
    check("clCreateBuffer", made).map(Memory::of)
}

/// Maps a buffer for reading and writing by the host, and returns its address. This waits for the queue.
pub fn map(queue: Queue, memory: Memory, bytes: usize) -> Result<NonNull<u8>, CallError> {
    let flags = cl::CL_MAP_READ | cl::CL_MAP_WRITE;
    let mut start = ptr::null_mut();
    // SAFETY: `start` outlives the call, which writes one address to it.
    let put = unsafe {
        let (queue, memory) = (queue.raw(), memory.raw());
        move_::enqueue_map_buffer(queue, memory, CL_TRUE, flags, 0, bytes, &mut start, 0, ptr::null())
    };
    super::event::release(Event::of(check("clEnqueueMapBuffer", put)?))?;
    Ok(NonNull::new(start.cast()).expect("a mapping is not at null"))
}

/// Undoes [`map`], in the order of the queue.
pub fn unmap(queue: Queue, memory: Memory, start: usize) -> Result<(), CallError> {
    let start = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the driver looks the address up among those that it mapped.
    let put = unsafe { move_::enqueue_unmap_mem_object(queue.raw(), memory.raw(), start, 0, ptr::null()) };
    super::event::release(Event::of(check("clEnqueueUnmapMemObject", put)?))
}

/// Creates a sub-buffer of a buffer that is not a sub-buffer itself. `flags` of 0 are the buffer's.
pub fn sub_buffer(of: Memory, flags: cl_mem_flags, offset: usize, bytes: usize) -> Result<Memory, CallError> {
    let region = cl::cl_buffer_region { origin: offset, size: bytes };
    let region = ptr::from_ref(&region).cast();
    // SAFETY: the region outlives the call, which reads it as a region of a sub-buffer.
    let made = unsafe { cl::create_sub_buffer(of.raw(), flags, cl::CL_BUFFER_CREATE_TYPE_REGION, region) };
    check("clCreateSubBuffer", made).map(Memory::of)
}

/// Adds one to its reference count.
pub fn retain(memory: Memory) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clRetainMemObject", unsafe { cl::retain_mem_object(memory.raw()) })
}

/// Releases one reference. Memory without references is freed when no command uses it.
pub fn release(memory: Memory) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clReleaseMemObject", unsafe { cl::release_mem_object(memory.raw()) })
}

/// Returns the number of references.
pub fn reference_count(memory: Memory) -> Result<u64, CallError> {
    let bytes = cl::get_mem_object_data(memory.raw(), cl::CL_MEM_REFERENCE_COUNT);
    check("clGetMemObjectInfo", bytes).map(|bytes| from_bytes(&bytes))
}

/// Returns its length in bytes.
pub fn bytes(memory: Memory) -> Result<u64, CallError> {
    let bytes = cl::get_mem_object_data(memory.raw(), cl::CL_MEM_SIZE);
    check("clGetMemObjectInfo", bytes).map(|bytes| from_bytes(&bytes))
}

/// Copies from the host, in the order of the queue.
///
/// # Safety
/// At `from` are `bytes` bytes, which nothing writes until the event is complete.
pub unsafe fn write(
    queue: Queue,
    to: Memory,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    after: &[Event],
) -> Result<Event, CallError> {
    let (count, list) = (length(after), list(after));
    // SAFETY: the caller guarantees that the host memory is valid; the list outlives the call.
    let put = unsafe { move_::enqueue_write_buffer(queue.raw(), to.raw(), CL_FALSE, offset, bytes, from, count, list) };
    check("clEnqueueWriteBuffer", put).map(Event::of)
}

/// Copies to the host, in the order of the queue.
///
/// # Safety
/// At `to` is room for `bytes` bytes, which nothing else reads or writes until the event is complete.
pub unsafe fn read(
    queue: Queue,
    from: Memory,
    offset: usize,
    to: *mut c_void,
    bytes: usize,
    after: &[Event],
) -> Result<Event, CallError> {
    let (count, list) = (length(after), list(after));
    // SAFETY: the caller guarantees that the host memory is valid; the list outlives the call.
    let put = unsafe { move_::enqueue_read_buffer(queue.raw(), from.raw(), CL_FALSE, offset, bytes, to, count, list) };
    check("clEnqueueReadBuffer", put).map(Event::of)
}

/// Copies between buffers, in the order of the queue.
pub fn copy(
    queue: Queue,
    (from, from_offset): (Memory, usize),
    (to, to_offset): (Memory, usize),
    bytes: usize,
    after: &[Event],
) -> Result<Event, CallError> {
    let (count, list) = (length(after), list(after));
    // SAFETY: the list outlives the call, which takes only handles and numbers otherwise.
    let put = unsafe {
        move_::enqueue_copy_buffer(queue.raw(), from.raw(), to.raw(), from_offset, to_offset, bytes, count, list)
    };
    check("clEnqueueCopyBuffer", put).map(Event::of)
}

/// Fills with a repeated pattern of 1, 2, 4 or more bytes, in the order of the queue.
pub fn fill(
    queue: Queue,
    to: Memory,
    offset: usize,
    bytes: usize,
    pattern: &[u8],
    after: &[Event],
) -> Result<Event, CallError> {
    let (count, list) = (length(after), list(after));
    // SAFETY: the call reads the pattern, whose length it receives, before it returns; the list outlives the call.
    let put = unsafe {
        let (start, size) = (pattern.as_ptr().cast(), pattern.len());
        move_::enqueue_fill_buffer(queue.raw(), to.raw(), start, size, offset, bytes, count, list)
    };
    check("clEnqueueFillBuffer", put).map(Event::of)
}
