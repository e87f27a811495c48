//! The context that is current in a thread: made ours for a call that needs one, and then the thread's own again.
//!
//! Work that names its stream needs no current context: the driver takes the stream's.

use freehold_driver::cuda::{Api, CUcontext, CallError, context};

/// Calls `act` with `wanted` current. The thread's own current context, or none, is current again afterwards.
pub(crate) fn within<R>(
    api: &Api,
    wanted: CUcontext,
    act: impl FnOnce() -> Result<R, CallError>,
) -> Result<R, CallError> {
    if context::current(api)? == wanted {
        return act();
    }
    context::push_current(api, wanted)?;
    let outcome = act();
    // What `act` made is lost with an error here, so one that may be of the moment is asked for again.
    match context::pop_current(api).or_else(|_| context::pop_current(api)) {
        Ok(_) => outcome,
        Err(error) => outcome.and(Err(error)),
    }
}
