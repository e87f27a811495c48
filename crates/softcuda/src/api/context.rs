//! Contexts: the primary context of a device, created contexts, and the current context of a thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use freehold_driver::cuda::{
    CUcontext, CUctxCreateParams, CUdevice, CUerror, CUexecAffinityParam, CUfunc_cache, CUlimit, CUresult,
    CUsharedconfig, ctx_flags,
};

use crate::base::sync::lock;
use crate::ffi::args::{In, InArray, Out};
use crate::objects::attributes::{LIMIT_LAST, PRIORITY_GREATEST};
use crate::objects::context::{self, Context, PrimaryContext, current};
use crate::state::driver_state::{DriverState, driver};

/// Returns the context with a handle, or the last one that had it.
fn find_or_destroyed(driver: &DriverState, handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    driver.contexts.find_or_removed(handle.0).ok_or(CUerror::INVALID_CONTEXT)
}

pub(crate) fn cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) -> CUresult {
    let driver = driver()?;
    let mut primary = driver.primary(device)?;
    let device = driver.space.device(device)?;
    // A primary context always maps host memory.
    let flags = primary.flags | ctx_flags::MAP_HOST;
    let own = primary.context.get_or_insert_with(|| driver.create_context(device, flags, true));
    context.set(own.handle);
    primary.retain_count += 1;
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult {
    let driver = driver()?;
    let mut primary = driver.primary(device)?;
    primary.retain_count = primary.retain_count.checked_sub(1).ok_or(CUerror::INVALID_CONTEXT)?;
    if primary.retain_count == 0 { destroy_primary(driver, primary) } else { Ok(()) }
}

pub(crate) fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult {
    let driver = driver()?;
    let mut primary = driver.primary(device)?;
    primary.retain_count = 0;
    destroy_primary(driver, primary)
}

fn destroy_primary(driver: &DriverState, mut primary: MutexGuard<'_, PrimaryContext>) -> CUresult {
    let ended = primary.context.take();
    drop(primary);
    ended.map_or(Ok(()), |context| driver.destroy_context(&context))
}

pub(crate) fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<u32>, active: Out<i32>) -> CUresult {
    let primary = driver()?.primary(device)?;
    flags.set(primary.flags);
    active.set(primary.context.is_some().into());
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32) -> CUresult {
    let driver = driver()?;
    driver.space.device(device)?;
    check_flags(flags)?;
    let mut primary = driver.primary(device)?;
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.flags.store(flags | ctx_flags::MAP_HOST, Ordering::Relaxed);
    }
    Ok(())
}

fn check_flags(flags: u32) -> CUresult {
    let sched = flags & ctx_flags::SCHED_MASK;
    if flags & !ctx_flags::ALL != 0 || !(sched == 0 || sched.is_power_of_two()) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(())
}

pub(crate) fn cuCtxCreate_v2(context: Out<CUcontext>, flags: u32, device: CUdevice) -> CUresult {
    let driver = driver()?;
    check_flags(flags)?;
    let device = driver.space.device(device)?;
    let made = driver.create_context(device, flags, false);
    made.push();
    context.set(made.handle);
    Ok(())
}

pub(crate) fn cuCtxCreate_v3(
    context: Out<CUcontext>,
    affinities: InArray<CUexecAffinityParam>,
    count: i32,
    flags: u32,
    device: CUdevice,
) -> CUresult {
    // An array of length zero is not accessed.
    match usize::try_from(count) {
        Ok(0) => cuCtxCreate_v2(context, flags, device),
        Ok(1) => affinities.read(1).and(Err(CUerror::UNSUPPORTED_EXEC_AFFINITY)),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

pub(crate) fn cuCtxCreate_v4(
    context: Out<CUcontext>,
    params: Option<In<CUctxCreateParams>>,
    flags: u32,
    device: CUdevice,
) -> CUresult {
    match params {
        Some(In(params)) if params.cigParams != 0 => Err(CUerror::NOT_SUPPORTED),
        Some(In(params)) if params.numExecAffinityParams != 0 => Err(CUerror::UNSUPPORTED_EXEC_AFFINITY),
        _ => cuCtxCreate_v2(context, flags, device),
    }
}

pub(crate) fn cuCtxAttach(context: Out<CUcontext>, flags: u32) -> CUresult {
    let current = current()?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    current.attach_count.fetch_add(1, Ordering::AcqRel);
    context.set(current.handle);
    Ok(())
}

pub(crate) fn cuCtxDetach(context: CUcontext) -> CUresult {
    let found = driver()?.contexts.get(context.0)?;
    if !found.is_current() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let fewer = found.attach_count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    if fewer.is_ok() { Ok(()) } else { cuCtxDestroy_v2(context) }
}

pub(crate) fn cuCtxGetSharedMemConfig(config: Out<CUsharedconfig>) -> CUresult {
    current()?;
    // The memory banks of this hardware have one width.
    config.set(CUsharedconfig::FOUR_BYTE_BANK_SIZE);
    Ok(())
}

pub(crate) fn cuCtxSetSharedMemConfig(config: CUsharedconfig) -> CUresult {
    current()?;
    if config.0 > CUsharedconfig::EIGHT_BYTE_BANK_SIZE.0 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuCtxResetPersistingL2Cache() -> CUresult {
    current().map(|_| ())
}

pub(crate) fn cuProfilerStart() -> CUresult {
    current().map(|_| ())
}

pub(crate) fn cuProfilerStop() -> CUresult {
    current().map(|_| ())
}

pub(crate) fn cuCtxDestroy_v2(context: CUcontext) -> CUresult {
    let driver = driver()?;
    let found = find_or_destroyed(driver, context)?;
    found.check_alive()?;
    if found.is_primary {
        return Err(CUerror::INVALID_CONTEXT);
    }
    if found.is_current() {
        context::pop();
    }
    driver.destroy_context(&found)
}

// The real driver accepts a destroyed context here and in `cuCtxSetCurrent`; operations in it then fail.
pub(crate) fn cuCtxPushCurrent_v2(context: CUcontext) -> CUresult {
    find_or_destroyed(driver()?, context)?.push();
    Ok(())
}

pub(crate) fn cuCtxPopCurrent_v2(context: Option<Out<CUcontext>>) -> CUresult {
    let popped = context::pop().ok_or(CUerror::INVALID_CONTEXT)?;
    if let Some(context) = context {
        context.set(popped.handle);
    }
    Ok(())
}

pub(crate) fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
    let driver = driver()?;
    let next = if context == CUcontext::NULL { None } else { Some(find_or_destroyed(driver, context)?) };
    context::pop();
    if let Some(next) = next {
        next.push();
    }
    Ok(())
}

pub(crate) fn cuCtxGetCurrent(context: Out<CUcontext>) -> CUresult {
    context.set(context::top().map_or(CUcontext::NULL, |top| top.handle));
    Ok(())
}

pub(crate) fn cuCtxGetDevice(device: Out<CUdevice>) -> CUresult {
    let context = context::top().ok_or(CUerror::INVALID_CONTEXT)?;
    device.set(CUdevice(context.device.ordinal as i32));
    Ok(())
}

pub(crate) fn cuCtxGetDevice_v2(device: Out<CUdevice>, context: CUcontext) -> CUresult {
    device.set(CUdevice(named_or_current(context)?.device.ordinal as i32));
    Ok(())
}

pub(crate) fn cuCtxGetFlags(flags: Out<u32>) -> CUresult {
    flags.set(current()?.flags.load(Ordering::Relaxed));
    Ok(())
}

pub(crate) fn cuCtxSetFlags(flags: u32) -> CUresult {
    let context = current()?;
    check_flags(flags)?;
    context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

/// Returns the context that a handle names, or the current one for null.
pub(super) fn named_or_current(context: CUcontext) -> Result<Arc<Context>, CUerror> {
    if context == CUcontext::NULL { current() } else { driver()?.contexts.get(context.0) }
}

pub(crate) fn cuCtxGetId(context: CUcontext, id: Out<u64>) -> CUresult {
    id.set(named_or_current(context)?.id);
    Ok(())
}

pub(crate) fn cuCtxGetApiVersion(context: CUcontext, version: Out<u32>) -> CUresult {
    named_or_current(context)?;
    // The API version of `cuCtxCreate_v2`, not the driver's version.
    version.set(3020);
    Ok(())
}

pub(crate) fn cuCtxSynchronize() -> CUresult {
    cuCtxSynchronize_v2(CUcontext::NULL)
}

pub(crate) fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult {
    let driver = driver()?;
    let context = named_or_current(context)?;
    driver.captures.refuse_context_sync(context.id)?;
    context.synchronize(&driver.engine);
    driver.after_sync(&context)
}

pub(crate) fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult {
    let context = current()?;
    if limit == CUlimit::STACK_SIZE {
        // Kernels that run have their stacks.
        context.synchronize(&driver()?.engine);
    }
    let mut settings = lock(&context.settings);
    let slot = settings.limits.get_mut(&limit.0).ok_or(limit_error(limit))?;
    if limit == CUlimit::MALLOC_HEAP_SIZE && context.malloc_is_used.load(Ordering::Relaxed) {
        return Err(CUerror::INVALID_VALUE);
    }
    *slot = value;
    Ok(())
}

pub(crate) fn cuCtxGetLimit(value: Out<usize>, limit: CUlimit) -> CUresult {
    let context = current()?;
    let found = lock(&context.settings).limits.get(&limit.0).copied();
    value.set(found.ok_or(limit_error(limit))?);
    Ok(())
}

fn limit_error(limit: CUlimit) -> CUerror {
    if limit.0 <= LIMIT_LAST { CUerror::UNSUPPORTED_LIMIT } else { CUerror::INVALID_VALUE }
}

pub(crate) fn cuCtxGetCacheConfig(config: Out<CUfunc_cache>) -> CUresult {
    let context = current()?;
    config.set(CUfunc_cache(lock(&context.settings).cache_config));
    Ok(())
}

pub(crate) fn cuCtxSetCacheConfig(config: CUfunc_cache) -> CUresult {
    let context = current()?;
    if config.0 > CUfunc_cache::PREFER_EQUAL.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    lock(&context.settings).cache_config = config.0;
    Ok(())
}

pub(crate) fn cuCtxGetStreamPriorityRange(least: Option<Out<i32>>, greatest: Option<Out<i32>>) -> CUresult {
    current()?;
    if let Some(least) = least {
        least.set(0);
    }
    if let Some(greatest) = greatest {
        greatest.set(PRIORITY_GREATEST);
    }
    Ok(())
}

pub(crate) fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32) -> CUresult {
    let driver = driver()?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (context, peer) = (current()?, driver.contexts.get(peer.0)?);
    if context.device.ordinal == peer.device.ordinal {
        return Err(CUerror::PEER_ACCESS_UNSUPPORTED);
    }
    if !lock(&context.peers).insert(peer.id) {
        return Err(CUerror::PEER_ACCESS_ALREADY_ENABLED);
    }
    Ok(())
}

pub(crate) fn cuCtxDisablePeerAccess(peer: CUcontext) -> CUresult {
    let driver = driver()?;
    let (context, peer) = (current()?, driver.contexts.get(peer.0)?);
    if !lock(&context.peers).remove(&peer.id) {
        return Err(CUerror::PEER_ACCESS_NOT_ENABLED);
    }
    Ok(())
}
