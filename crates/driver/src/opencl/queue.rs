//! Command queues: work in order, and points of it to wait for.

use opencl3::command_queue as cl;
use opencl3::types::cl_queue_properties;

use super::call::check;
use super::handle::{ContextId, DeviceId, Event, Queue};
use crate::error::CallError;

/// The queue notes when its commands begin and end.
const PROFILING: [cl_queue_properties; 3] =
    [cl::CL_QUEUE_PROPERTIES as cl_queue_properties, cl::CL_QUEUE_PROFILING_ENABLE as cl_queue_properties, 0];

/// A queue whose commands run in their order.
pub fn create(context: ContextId, device: DeviceId) -> Result<Queue, CallError> {
    // SAFETY: no properties are given, and nothing is read or written but through the handles.
    let made = unsafe { cl::create_command_queue_with_properties(context.raw(), device.raw(), std::ptr::null()) };
    check("clCreateCommandQueueWithProperties", made).map(Queue::of)
}

/// As [`create`]; events of its commands tell times.
pub fn create_timed(context: ContextId, device: DeviceId) -> Result<Queue, CallError> {
    // SAFETY: the list of properties ends with a zero and outlives the call.
    let made = unsafe { cl::create_command_queue_with_properties(context.raw(), device.raw(), PROFILING.as_ptr()) };
    check("clCreateCommandQueueWithProperties", made).map(Queue::of)
}

pub fn retain(queue: Queue) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clRetainCommandQueue", unsafe { cl::retain_command_queue(queue.raw()) })
}

/// Takes one count.
pub fn release(queue: Queue) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clReleaseCommandQueue", unsafe { cl::release_command_queue(queue.raw()) })
}

/// Sends what was put in to the device. Without it the device may never begin.
pub fn flush(queue: Queue) -> Result<(), CallError> {
    check("clFlush", cl::flush(queue.raw()))
}

/// Waits until all that was put in is done.
pub fn finish(queue: Queue) -> Result<(), CallError> {
    check("clFinish", cl::finish(queue.raw()))
}

/// A point behind all that was put in so far, and behind `after`.
pub fn marker(queue: Queue, after: &[Event]) -> Result<Event, CallError> {
    // SAFETY: the list outlives the call, and its length is told.
    let made = unsafe { cl::enqueue_marker_with_wait_list(queue.raw(), length(after), list(after)) };
    check("clEnqueueMarkerWithWaitList", made).map(Event::of)
}

/// Lets what is put in from now on wait for `after`, and for all that was put in so far.
pub fn barrier(queue: Queue, after: &[Event]) -> Result<Event, CallError> {
    // SAFETY: the list outlives the call, and its length is told.
    let made = unsafe { cl::enqueue_barrier_with_wait_list(queue.raw(), length(after), list(after)) };
    check("clEnqueueBarrierWithWaitList", made).map(Event::of)
}

/// The length of a list of events, as OpenCL is told it.
pub(super) fn length(events: &[Event]) -> u32 {
    u32::try_from(events.len()).expect("nobody waits for more events than a u32 counts")
}

/// A list of events as OpenCL takes it: null where it is empty.
pub(super) fn list(events: &[Event]) -> *const *mut std::ffi::c_void {
    if events.is_empty() { std::ptr::null() } else { events.as_ptr().cast() }
}
