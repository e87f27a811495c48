//! Command queues: ordered work, and markers to wait for.

use opencl3::command_queue as cl;
use opencl3::types::cl_queue_properties;

use super::call::check;
use super::handle::{ContextId, DeviceId, Event, Queue};
use crate::error::CallError;

/// Makes a queue record when its commands begin and end.
const PROFILING: [cl_queue_properties; 3] =
    [cl::CL_QUEUE_PROPERTIES as cl_queue_properties, cl::CL_QUEUE_PROFILING_ENABLE as cl_queue_properties, 0];

/// Creates an in-order queue.
pub fn create(context: ContextId, device: DeviceId) -> Result<Queue, CallError> {
    // SAFETY: no properties are given, and nothing is read or written but through the handles.
    let made = unsafe { cl::create_command_queue_with_properties(context.raw(), device.raw(), std::ptr::null()) };
    check("clCreateCommandQueueWithProperties", made).map(Queue::of)
}

/// [`create`] with profiling: events of its commands have times.
pub fn create_timed(context: ContextId, device: DeviceId) -> Result<Queue, CallError> {
    // SAFETY: the list of properties ends with a zero and outlives the call.
    let made = unsafe { cl::create_command_queue_with_properties(context.raw(), device.raw(), PROFILING.as_ptr()) };
    check("clCreateCommandQueueWithProperties", made).map(Queue::of)
}

/// Adds one to its reference count.
pub fn retain(queue: Queue) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clRetainCommandQueue", unsafe { cl::retain_command_queue(queue.raw()) })
}

/// Releases one reference.
pub fn release(queue: Queue) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clReleaseCommandQueue", unsafe { cl::release_command_queue(queue.raw()) })
}

/// Submits the enqueued commands to the device. Without it the device may never begin.
pub fn flush(queue: Queue) -> Result<(), CallError> {
    check("clFlush", cl::flush(queue.raw()))
}

/// Waits until all enqueued commands are done.
pub fn finish(queue: Queue) -> Result<(), CallError> {
    check("clFinish", cl::finish(queue.raw()))
}

/// Enqueues a marker that waits for all commands so far and for `after`, and returns its event.
pub fn marker(queue: Queue, after: &[Event]) -> Result<Event, CallError> {
    // SAFETY: the list outlives the call, which receives its length.
    let made = unsafe { cl::enqueue_marker_with_wait_list(queue.raw(), length(after), list(after)) };
    check("clEnqueueMarkerWithWaitList", made).map(Event::of)
}

/// Makes later commands wait for `after`, and for all commands so far.
pub fn barrier(queue: Queue, after: &[Event]) -> Result<Event, CallError> {
    // SAFETY: the list outlives the call, which receives its length.
    let made = unsafe { cl::enqueue_barrier_with_wait_list(queue.raw(), length(after), list(after)) };
    check("clEnqueueBarrierWithWaitList", made).map(Event::of)
}

/// Returns the length of a list of events, as OpenCL takes it.
pub(super) fn length(events: &[Event]) -> u32 {
    u32::try_from(events.len()).expect("the number of events fits a u32")
}

/// Returns a list of events as OpenCL takes it: null if it is empty.
pub(super) fn list(events: &[Event]) -> *const *mut std::ffi::c_void {
    if events.is_empty() { std::ptr::null() } else { events.as_ptr().cast() }
}
