//! The context that is current in a thread: made ours for a call that needs one, and then the thread's own again. And calls
//! that a capture in any thread does not bear, made so that it does.
//!
//! Work that names its stream needs no current context: the driver takes the stream's.

use super::api::Api;
use super::call::CallError;
use super::graph_types::CUstreamCaptureMode;
use super::types::CUcontext;
use super::{capture, context};

/// Calls `act` with `wanted` current. The thread's own current context, or none, is current again afterwards; where the driver
/// refuses that, `wanted` stays current. The outcome is that of `act`, which was carried out.
pub(super) fn with_current<R>(
    api: &Api,
    wanted: CUcontext,
    act: impl FnOnce() -> Result<R, CallError>,
) -> Result<R, CallError> {
    if context::current(api)? == wanted {
        return act();
    }
    context::push_current(api, wanted)?;
    let outcome = act();
    // A refusal that may be of the moment is asked for again.
    let _stays_current = context::pop_current(api).or_else(|_| context::pop_current(api)).is_err();
    outcome
}

/// Calls the driver with a context current, and so that a capture in any thread does not mind. The outcome is that of `call`, as in
/// [`within`].
pub(super) fn with_current_relaxed<R>(
    api: &Api,
    current: CUcontext,
    call: impl FnOnce() -> Result<R, CallError>,
) -> Result<R, CallError> {
    with_current(api, current, || {
        let before = capture::exchange_mode(api, CUstreamCaptureMode::RELAXED)?;
        let outcome = call();
        let _stays_relaxed =
            capture::exchange_mode(api, before).or_else(|_| capture::exchange_mode(api, before)).is_err();
        outcome
    })
}
