//! The primary context of a device: the one that all users in a process share, counted by its retains.

use super::api::Api;
use super::call::{CallError, call};
use super::types::{CUcontext, CUdevice};

/// What is known of a primary context that need not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The flags that it has, or will be made with: [`ctx_flags`](super::ctx_flags).
    pub flags: u32,
    pub active: bool,
}

/// Makes the primary context if there is none, and holds it. It does not become current.
pub fn retain(api: &Api, device: CUdevice) -> Result<CUcontext, CallError> {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuDevicePrimaryCtxRetain(&mut context, device)) }?;
    Ok(context)
}

/// Takes back one [`retain`]. The last one destroys the context and all that lives in it.
pub fn release(api: &Api, device: CUdevice) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDevicePrimaryCtxRelease_v2(device)) }
}

/// Destroys what lives in the primary context, whoever retains it.
pub fn reset(api: &Api, device: CUdevice) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDevicePrimaryCtxReset_v2(device)) }
}

/// The flags of the primary context, and whether it is there.
pub fn state(api: &Api, device: CUdevice) -> Result<State, CallError> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: `flags` and `active` outlive the call, which writes one word to each.
    unsafe { call!(api.cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }?;
    Ok(State { flags, active: active != 0 })
}

/// Sets the flags of the primary context.
pub fn set_flags(api: &Api, device: CUdevice, flags: u32) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDevicePrimaryCtxSetFlags_v2(device, flags)) }
}
