//! Contexts that a program creates, and the current context of a thread. Below, "the context" is the current one.

use super::api::Api;
use super::call::{DriverError, call};
use super::kernel_types::CUsharedconfig;
use super::managed_types::{CUctxCreateParams, CUexecAffinityParam};
use super::types::{CUcontext, CUdevice, CUevent, CUfunc_cache, CUlimit};

/// The range of stream priorities. A smaller number is a higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// The priority of the streams that run last.
    pub least: i32,
    /// The priority of the streams that run first.
    pub greatest: i32,
}

/// Creates a context and makes it current; `flags` as in [`ctx_flags`](super::ctx_flags).
pub fn create(api: &Api, device: CUdevice, flags: u32) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuCtxCreate_v2(&mut context, flags, device)) }?;
    Ok(context)
}

/// [`create`] with a subset of the multiprocessors, if `affinities` is not empty.
///
/// # Panics
/// If there are more affinities than `i32::MAX`.
pub fn create_with_affinity(
    api: &Api,
    device: CUdevice,
    affinities: &mut [CUexecAffinityParam],
    flags: u32,
) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    let count = i32::try_from(affinities.len()).expect("the number of affinities fits an i32");
    // SAFETY: `context` and the list, which has `count` elements, outlive the call, which writes one handle.
    unsafe { call!(api.cuCtxCreate_v3(&mut context, affinities.as_mut_ptr(), count, flags, device)) }?;
    Ok(context)
}

/// [`create`] in the form of CUDA 12.5 and later.
///
/// # Safety
/// The addresses in `params` are zero, or point to values of the types that the fields state.
pub unsafe fn create_with_params(
    api: &Api,
    device: CUdevice,
    params: Option<&mut CUctxCreateParams>,
    flags: u32,
) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    let params = params.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: `context` and `params` outlive the call; the caller guarantees that what `params` points to is valid.
    unsafe { call!(api.cuCtxCreate_v4(&mut context, params, flags, device)) }?;
    Ok(context)
}

/// Adds a reference to the current context, and returns the context. `flags` is zero.
pub fn attach(api: &Api, flags: u32) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuCtxAttach(&mut context, flags)) }?;
    Ok(context)
}

/// Drops a reference to the current context, which is destroyed with the last one.
pub fn detach(api: &Api, context: CUcontext) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxDetach(context)) }
}

/// Returns the width of the shared memory banks.
pub fn shared_config(api: &Api) -> Result<CUsharedconfig, DriverError> {
    let mut config = CUsharedconfig::default();
    // SAFETY: `config` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuCtxGetSharedMemConfig(&mut config)) }?;
    Ok(config)
}

/// Sets the width of the shared memory banks, on devices that support several.
pub fn set_shared_config(api: &Api, config: CUsharedconfig) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxSetSharedMemConfig(config)) }
}

/// Resets the persisting lines of the L2 cache.
pub fn reset_persisting_l2_cache(api: &Api) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxResetPersistingL2Cache()) }
}

/// Destroys a context, and all memory that was allocated in it, once its work is done.
pub fn destroy(api: &Api, context: CUcontext) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxDestroy_v2(context)) }
}

/// Pushes a context onto the thread's stack and makes it current.
pub fn push_current(api: &Api, context: CUcontext) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxPushCurrent_v2(context)) }
}

/// Pops the current context off the thread's stack, and returns it.
pub fn pop_current(api: &Api) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuCtxPopCurrent_v2(&mut context)) }?;
    Ok(context)
}

/// Replaces the current context. `NULL` leaves none.
pub fn set_current(api: &Api, context: CUcontext) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxSetCurrent(context)) }
}

/// Returns the current context, `NULL` if there is none.
pub fn current(api: &Api) -> Result<CUcontext, DriverError> {
    let mut context = CUcontext::NULL;
    // SAFETY: `context` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuCtxGetCurrent(&mut context)) }?;
    Ok(context)
}

/// Returns the device of the context.
pub fn device(api: &Api) -> Result<CUdevice, DriverError> {
    let mut device = CUdevice::default();
    // SAFETY: `device` outlives the call, which writes one device to it.
    unsafe { call!(api.cuCtxGetDevice(&mut device)) }?;
    Ok(device)
}

/// Returns the device of a context, or of the current one for null.
pub fn device_of(api: &Api, context: CUcontext) -> Result<CUdevice, DriverError> {
    let mut device = CUdevice::default();
    // SAFETY: `device` outlives the call, which writes one device to it.
    unsafe { call!(api.cuCtxGetDevice_v2(&mut device, context)) }?;
    Ok(device)
}

/// Returns the flags of the context.
pub fn flags(api: &Api) -> Result<u32, DriverError> {
    let mut flags = 0;
    // SAFETY: `flags` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuCtxGetFlags(&mut flags)) }?;
    Ok(flags)
}

/// Sets the flags of the context.
pub fn set_flags(api: &Api, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxSetFlags(flags)) }
}

/// Returns an id that no other context of the process ever has.
pub fn id(api: &Api, context: CUcontext) -> Result<u64, DriverError> {
    let mut id = 0;
    // SAFETY: `id` outlives the call, which writes one `u64` to it.
    unsafe { call!(api.cuCtxGetId(context, &mut id)) }?;
    Ok(id)
}

/// Waits for all work of the context.
pub fn synchronize(api: &Api) -> Result<(), DriverError> {
    // SAFETY: the call takes no argument.
    unsafe { call!(api.cuCtxSynchronize()) }
}

/// Waits for all work of a context, or of the current one for null.
pub fn synchronize_other(api: &Api, context: CUcontext) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxSynchronize_v2(context)) }
}

/// Records an event after all work of a context, in all of its streams.
pub fn record_event(api: &Api, context: CUcontext, event: CUevent) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxRecordEvent(context, event)) }
}

/// Sets a limit; the driver may round the value.
pub fn set_limit(api: &Api, limit: CUlimit, value: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxSetLimit(limit, value)) }
}

/// Returns the value of a limit.
pub fn limit(api: &Api, limit: CUlimit) -> Result<usize, DriverError> {
    let mut value = 0;
    // SAFETY: `value` outlives the call, which writes one `usize` to it.
    unsafe { call!(api.cuCtxGetLimit(&mut value, limit)) }?;
    Ok(value)
}

/// Returns the preferred split between L1 and shared memory.
pub fn cache_config(api: &Api) -> Result<CUfunc_cache, DriverError> {
    let mut config = CUfunc_cache::default();
    // SAFETY: `config` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuCtxGetCacheConfig(&mut config)) }?;
    Ok(config)
}

/// Sets the preferred split between L1 and shared memory.
pub fn set_cache_config(api: &Api, config: CUfunc_cache) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxSetCacheConfig(config)) }
}

/// Returns the version of the API that a context was created with.
pub fn api_version(api: &Api, context: CUcontext) -> Result<u32, DriverError> {
    let mut version = 0;
    // SAFETY: `version` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuCtxGetApiVersion(context, &mut version)) }?;
    Ok(version)
}

/// Returns the priorities that streams of the context can have.
pub fn stream_priorities(api: &Api) -> Result<Priorities, DriverError> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: `least` and `greatest` outlive the call, which writes one `i32` to each.
    unsafe { call!(api.cuCtxGetStreamPriorityRange(&mut least, &mut greatest)) }?;
    Ok(Priorities { least, greatest })
}

/// Lets the context access the memory of `peer`, a context on another device.
pub fn enable_peer_access(api: &Api, peer: CUcontext, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxEnablePeerAccess(peer, flags)) }
}

/// Undoes [`enable_peer_access`].
pub fn disable_peer_access(api: &Api, peer: CUcontext) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuCtxDisablePeerAccess(peer)) }
}
