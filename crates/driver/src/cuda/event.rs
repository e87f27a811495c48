//! Events: positions in a stream that can be waited for, and that can record the time.

use super::api::Api;
use super::call::{DriverError, call, ready};
use super::types::{CUevent, CUstream};

/// Creates an event in the current context; `flags` as in [`event_flags`](super::event_flags).
pub fn create(api: &Api, flags: u32) -> Result<CUevent, DriverError> {
    let mut event = CUevent::NULL;
    // SAFETY: `event` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuEventCreate(&mut event, flags)) }?;
    Ok(event)
}

/// Records the event after all work submitted to the stream so far.
pub fn record(api: &Api, event: CUevent, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventRecord(event, stream)) }
}

/// [`record`] with flags; 1 records an external event node if the stream is captured.
pub fn record_with_flags(api: &Api, event: CUevent, stream: CUstream, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventRecordWithFlags(event, stream, flags)) }
}

/// Returns whether the event has completed; one that was never recorded has. `NOT_READY` is `false`, not an error.
pub fn query(api: &Api, event: CUevent) -> Result<bool, DriverError> {
    // SAFETY: the call takes no pointer.
    ready(unsafe { call!(api.cuEventQuery(event)) })
}

/// Waits until the event has completed.
pub fn synchronize(api: &Api, event: CUevent) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventSynchronize(event)) }
}

/// Destroys an event; streams and threads that wait for it keep waiting.
pub fn destroy(api: &Api, event: CUevent) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuEventDestroy_v2(event)) }
}

/// [`elapsed_ms`] in the form of CUDA 12.8 and later.
pub fn elapsed_ms_v2(api: &Api, start: CUevent, end: CUevent) -> Result<f32, DriverError> {
    let mut milliseconds = 0.0;
    // SAFETY: `milliseconds` outlives the call, which writes one `f32` to it.
    unsafe { call!(api.cuEventElapsedTime_v2(&mut milliseconds, start, end)) }?;
    Ok(milliseconds)
}

/// Returns the time between two completed events.
pub fn elapsed_ms(api: &Api, start: CUevent, end: CUevent) -> Result<f32, DriverError> {
    let mut milliseconds = 0.0;
    // SAFETY: `milliseconds` outlives the call, which writes one `f32` to it.
    unsafe { call!(api.cuEventElapsedTime(&mut milliseconds, start, end)) }?;
    Ok(milliseconds)
}
