//! The primary context of a device, which all code in a process shares, and which counts its retains.

use super::api::Api;
use super::call::{DriverError, call};
use super::types::{CUcontext, CUdevice};

/// The state of a primary context, which may not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The flags that it has, or will be created with: [`ctx_flags`](super::ctx_flags).
    pub flags: u32,
    /// Whether it exists.
    pub active: bool,
}

/// Creates the primary context if necessary, and retains it. It does not become current.
pub fn retain(api: &Api, device: CUdevice) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuDevicePrimaryCtxRetain(&mut context, device)) }?;
    Ok(context)
}

/// Undoes one [`retain`]. The last one destroys the context and everything in it.
pub fn release(api: &Api, device: CUdevice) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDevicePrimaryCtxRelease_v2(device)) }
}

/// Destroys everything in the primary context, even while it is retained.
pub fn reset(api: &Api, device: CUdevice) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDevicePrimaryCtxReset_v2(device)) }
}

/// Returns the flags of the primary context, and whether it is active.
pub fn state(api: &Api, device: CUdevice) -> Result<State, DriverError> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: `flags` and `active` outlive the call, which writes one word to each.
    unsafe { call!(api.cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }?;
    Ok(State { flags, active: active != 0 })
}

/// Sets the flags of the primary context.
pub fn set_flags(api: &Api, device: CUdevice, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDevicePrimaryCtxSetFlags_v2(device, flags)) }
}
