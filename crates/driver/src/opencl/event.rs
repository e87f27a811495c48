//! Events: the states of commands, and user events, which the host completes.

use opencl3::event as cl;

use super::call::check;
use super::device::from_bytes;
use super::handle::{ContextId, Event};
use crate::error::CallError;

/// The state of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is in its queue.
    Queued,
    /// The device has it.
    Submitted,
    /// The device executes it.
    Running,
    /// It has ended well.
    Complete,
    /// It ended with this code.
    Failed(i32),
}

/// Creates an event that the host completes.
pub fn create_user(context: ContextId) -> Result<Event, CallError> {
    check("clCreateUserEvent", cl::create_user_event(context.raw())).map(Event::of)
}

/// Marks a user event as complete (0), or as failed (a negative number).
pub fn set_status(event: Event, status: i32) -> Result<(), CallError> {
    check("clSetUserEventStatus", cl::set_user_event_status(event.raw(), status))
}

/// How far the command of an event has come.
pub fn status(event: Event) -> Result<Status, CallError> {
    let bytes = cl::get_event_data(event.raw(), cl::CL_EVENT_COMMAND_EXECUTION_STATUS);
    let bytes = check("clGetEventInfo", bytes)?;
    // A status is a signed four-byte number.
    let number = from_bytes(&bytes) as u32 as i32;
    Ok(match number {
        cl::CL_QUEUED => Status::Queued,
        cl::CL_SUBMITTED => Status::Submitted,
        cl::CL_RUNNING => Status::Running,
        0 => Status::Complete,
        failed => Status::Failed(failed),
    })
}

/// Waits until all are complete.
pub fn wait(events: &[Event]) -> Result<(), CallError> {
    let raw: Vec<_> = events.iter().map(|event| event.raw()).collect();
    check("clWaitForEvents", cl::wait_for_events(&raw))
}

/// Adds one to its reference count.
pub fn retain(event: Event) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clRetainEvent", unsafe { cl::retain_event(event.raw()) })
}

/// Releases one reference. The command still runs.
pub fn release(event: Event) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clReleaseEvent", unsafe { cl::release_event(event.raw()) })
}

/// Returns when a completed command began and ended, in nanoseconds of the device's clock. Its queue must be a
/// profiling one.
pub fn times_ns(event: Event) -> Result<(u64, u64), CallError> {
    let ask = |what| {
        let bytes = cl::get_event_profiling_data(event.raw(), what);
        check("clGetEventProfilingInfo", bytes).map(|bytes| from_bytes(&bytes))
    };
    Ok((ask(cl::CL_PROFILING_COMMAND_START)?, ask(cl::CL_PROFILING_COMMAND_END)?))
}
