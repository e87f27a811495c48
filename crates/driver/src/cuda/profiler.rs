//! The two calls that start and stop a profiler.

use super::api::Api;
use super::call::{DriverError, call};

/// Starts collection by an attached profiler.
pub fn start(api: &Api) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuProfilerStart()) }
}

/// Stops collection by an attached profiler.
pub fn stop(api: &Api) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuProfilerStop()) }
}
