//! Makes a context current for one call and restores the thread's own afterwards. Also makes calls that would
//! invalidate a capture of some thread, in the relaxed capture mode.
//!
//! Work that names its stream needs no current context: the driver uses the stream's.

use super::api::Api;
use super::call::DriverError;
use super::graph_types::CUstreamCaptureMode;
use super::types::CUcontext;
use super::{capture, context};

/// Calls `act` with `wanted` current, and then restores the thread's own current context, or none. If the driver
/// refuses to restore it, `wanted` stays current. Returns the result of `act`.
pub(super) fn with_current<R>(
    api: &Api,
    wanted: CUcontext,
    act: impl FnOnce() -> Result<R, DriverError>,
) -> Result<R, DriverError> {
    if context::current(api)? == wanted {
        return act();
    }
    context::push_current(api, wanted)?;
    let outcome = act();
    // Tries once more, in case the failure is transient.
    let _stays_current = context::pop_current(api).or_else(|_| context::pop_current(api)).is_err();
    outcome
}

/// Calls the driver with a context current, without invalidating a capture of any thread. Returns the result of `call`,
/// as [`with_current`] does.
pub(super) fn with_current_relaxed<R>(
    api: &Api,
    current: CUcontext,
    call: impl FnOnce() -> Result<R, DriverError>,
) -> Result<R, DriverError> {
    with_current(api, current, || {
        let before = capture::exchange_mode(api, CUstreamCaptureMode::RELAXED)?;
        let outcome = call();
        let _stays_relaxed =
            capture::exchange_mode(api, before).or_else(|_| capture::exchange_mode(api, before)).is_err();
        outcome
    })
}
