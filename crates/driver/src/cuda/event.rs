//! Events: points in a stream that can be waited for, and between which time can be told.

use super::api::Api;
use super::call::{CallError, call, ready};
use super::types::{CUevent, CUstream};

/// Creates an event in the current context; `flags` as in [`event_flags`](super::event_flags).
pub fn create(api: &Api, flags: u32) -> Result<CUevent, CallError> {
    let mut event = CUevent::NULL;
    // SAFETY: `event` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuEventCreate(&mut event, flags)) }?;
    Ok(event)
}

/// Moves the event to the end of what is in the stream now.
pub fn record(api: &Api, event: CUevent, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventRecord(event, stream)) }
}

/// [`record`] with flags; 1 asks, in a capture, for an event outside of the graph.
pub fn record_with_flags(api: &Api, event: CUevent, stream: CUstream, flags: u32) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventRecordWithFlags(event, stream, flags)) }
}

/// Whether the event's stream has passed it; one that was never recorded has. `NOT_READY` is `false`, not an error.
pub fn query(api: &Api, event: CUevent) -> Result<bool, CallError> {
    // SAFETY: the call takes no pointer.
    ready(unsafe { call!(api.cuEventQuery(event)) })
}

/// Waits until the event's stream has passed it.
pub fn synchronize(api: &Api, event: CUevent) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventSynchronize(event)) }
}

/// Destroys an event; what waits for it goes on waiting.
pub fn destroy(api: &Api, event: CUevent) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventDestroy_v2(event)) }
}

/// The time between two events that have passed, as CUDA 12.8 and later ask for it.
pub fn elapsed_ms_v2(api: &Api, start: CUevent, end: CUevent) -> Result<f32, CallError> {
    let mut milliseconds = 0.0;
    // SAFETY: `milliseconds` outlives the call, which writes one `f32` to it.
    unsafe { call!(api.cuEventElapsedTime_v2(&mut milliseconds, start, end)) }?;
    Ok(milliseconds)
}

/// The time between two events that have passed.
pub fn elapsed_ms(api: &Api, start: CUevent, end: CUevent) -> Result<f32, CallError> {
    let mut milliseconds = 0.0;
    // SAFETY: `milliseconds` outlives the call, which writes one `f32` to it.
    unsafe { call!(api.cuEventElapsedTime(&mut milliseconds, start, end)) }?;
    Ok(milliseconds)
}
