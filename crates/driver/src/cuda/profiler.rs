//! The two calls that tell a profiler where to look.

use super::api::Api;
use super::call::{CallError, call};

/// From here on a profiler that is attached collects.
pub fn start(api: &Api) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuProfilerStart()) }
}

/// From here on it does not.
pub fn stop(api: &Api) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuProfilerStop()) }
}
