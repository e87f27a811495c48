//! Devices: choosing one, its limits and attributes, peers, and the profiler's switches.

use std::ffi::c_char;

use freehold_driver::cuda::{
    CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUfunc_cache, CUlimit, CUsharedconfig, ctx_flags,
};

use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::runtime_pool;
use crate::thread;
use crate::types::write;

/// The room that a bus id takes, with the NUL at its end.
const BUS_ID_BYTES: i32 = 13;

/// The version of the interface that the library has: 13.0.
pub(crate) const RUNTIME_VERSION: i32 = 13_000;

pub(crate) unsafe fn cudaGetDeviceCount(count: *mut i32) -> cudaError_t {
    match process::get() {
        // SAFETY: the C caller guarantees that the output pointer is valid.
        Ok(process) => Ok(unsafe { write(count, process.device_count() as i32) }?),
        Err(error) => {
            // SAFETY: as above.
            unsafe { write(count, 0) }?;
            Err(error)
        }
    }
}

pub(crate) unsafe fn cudaGetDevice(device: *mut i32) -> cudaError_t {
    let ordinal = process::get()?.current_ordinal()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(device, ordinal) }?)
}

pub(crate) unsafe fn cudaSetDevice(device: i32) -> cudaError_t {
    process::get()?.select(device)?;
    thread::set_device(device);
    Ok(())
}

pub(crate) unsafe fn cudaInitDevice(device: i32, device_flags: u32, flags: u32) -> cudaError_t {
    /// `cudaInitDeviceFlagsAreValid`: the device flags are to be set.
    const FLAGS_ARE_VALID: u32 = 1;
    let process = process::get()?;
    let handle = process.device(device)?;
    if flags & FLAGS_ARE_VALID != 0 {
        // SAFETY: the call takes no pointer.
        unsafe { (process.api.cuDevicePrimaryCtxSetFlags_v2)(handle, device_flags) }?;
    }
    process.primary(device).map(|_| ())
}

pub(crate) unsafe fn cudaDeviceSynchronize() -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuCtxSynchronize)() }?)
}

pub(crate) unsafe fn cudaDeviceReset() -> cudaError_t {
    let process = process::get()?;
    let ordinal = process.current_ordinal()?;
    runtime_pool::close(process, ordinal);
    process.reset(ordinal)
}

pub(crate) unsafe fn cudaDeviceGetAttribute(
    value: *mut i32,
    attribute: CUdevice_attribute,
    device: i32,
) -> cudaError_t {
    let process = process::get()?;
    let device = process.device(device)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceGetAttribute)(value, attribute, device) }?)
}

pub(crate) unsafe fn cudaDeviceGetLimit(value: *mut usize, limit: CUlimit) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuCtxGetLimit)(value, limit) }?)
}

pub(crate) unsafe fn cudaDeviceSetLimit(limit: CUlimit, value: usize) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuCtxSetLimit)(limit, value) }?)
}

pub(crate) unsafe fn cudaDeviceGetCacheConfig(config: *mut CUfunc_cache) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuCtxGetCacheConfig)(config) }?)
}

pub(crate) unsafe fn cudaDeviceSetCacheConfig(config: CUfunc_cache) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuCtxSetCacheConfig)(config) }?)
}

pub(crate) unsafe fn cudaDeviceGetSharedMemConfig(config: *mut CUsharedconfig) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuCtxGetSharedMemConfig)(config) }?)
}

pub(crate) unsafe fn cudaDeviceSetSharedMemConfig(config: CUsharedconfig) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuCtxSetSharedMemConfig)(config) }?)
}

pub(crate) unsafe fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that both output pointers are valid.
    Ok(unsafe { (process.api.cuCtxGetStreamPriorityRange)(least, greatest) }?)
}

pub(crate) unsafe fn cudaDeviceGetByPCIBusId(device: *mut i32, bus_id: *const c_char) -> cudaError_t {
    let process = process::get()?;
    let mut handle = CUdevice(0);
    // SAFETY: the C caller guarantees that the text is valid, and `handle` is a valid place for the answer.
    unsafe { (process.api.cuDeviceGetByPCIBusId)(&raw mut handle, bus_id) }?;
    let ordinal = process.ordinal(handle).ok_or(CudaError::INVALID_DEVICE)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(device, ordinal) }?)
}

pub(crate) unsafe fn cudaDeviceGetPCIBusId(bus_id: *mut c_char, length: i32, device: i32) -> cudaError_t {
    let process = process::get()?;
    let device = process.device(device)?;
    if length < BUS_ID_BYTES {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the C caller guarantees `length` bytes at `bus_id`.
    Ok(unsafe { (process.api.cuDeviceGetPCIBusId)(bus_id, length, device) }?)
}

pub(crate) unsafe fn cudaSetDeviceFlags(flags: u32) -> cudaError_t {
    let process = process::get()?;
    let ordinal = process.current_ordinal()?;
    // SAFETY: the call takes no pointer.
    unsafe { (process.api.cuDevicePrimaryCtxSetFlags_v2)(process.device(ordinal)?, flags) }?;
    // NVIDIA's runtime creates the context here.
    process.primary(ordinal).map(drop)
}

pub(crate) unsafe fn cudaGetDeviceFlags(flags: *mut u32) -> cudaError_t {
    let process = process::get()?;
    let ordinal = process.current_ordinal()?;
    let device = process.device(ordinal)?;
    let (mut is_active, mut found) = (0, 0);
    // SAFETY: both are valid places for the answer.
    unsafe { (process.api.cuDevicePrimaryCtxGetState)(device, &raw mut found, &raw mut is_active) }?;
    // The runtime always maps host memory, and says so, except between a reset and the next context.
    let is_reset = is_active == 0 && process.was_reset(ordinal)?;
    let mapped = if is_reset { 0 } else { ctx_flags::MAP_HOST };
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(flags, found | mapped) }?)
}

pub(crate) unsafe fn cudaDriverGetVersion(version: *mut i32) -> cudaError_t {
    match process::get() {
        // SAFETY: the C caller guarantees that the output pointer is valid.
        Ok(process) => Ok(unsafe { (process.api.cuDriverGetVersion)(version) }?),
        // The runtime documents zero for a machine without a driver.
        // SAFETY: as above.
        Err(_) => Ok(unsafe { write(version, 0) }?),
    }
}

pub(crate) unsafe fn cudaRuntimeGetVersion(version: *mut i32) -> cudaError_t {
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(version, RUNTIME_VERSION) }?)
}

pub(crate) unsafe fn cudaCtxResetPersistingL2Cache() -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuCtxResetPersistingL2Cache)() }?)
}

pub(crate) unsafe fn cudaDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> cudaError_t {
    let process = process::get()?;
    let (device, peer) = (process.device(device)?, process.device(peer)?);
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceCanAccessPeer)(can, device, peer) }?)
}

pub(crate) unsafe fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32) -> cudaError_t {
    let process = process::with_context()?;
    let peer = process.primary(peer)?;
    // SAFETY: the primary context is retained.
    Ok(unsafe { (process.api.cuCtxEnablePeerAccess)(peer, flags) }?)
}

pub(crate) unsafe fn cudaDeviceDisablePeerAccess(peer: i32) -> cudaError_t {
    let process = process::with_context()?;
    let peer = process.primary(peer)?;
    // SAFETY: the primary context is retained.
    Ok(unsafe { (process.api.cuCtxDisablePeerAccess)(peer) }?)
}

pub(crate) unsafe fn cudaDeviceGetP2PAttribute(
    value: *mut i32,
    attribute: CUdevice_P2PAttribute,
    from: i32,
    to: i32,
) -> cudaError_t {
    let process = process::get()?;
    let (from, to) = (process.device(from)?, process.device(to)?);
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceGetP2PAttribute)(value, attribute, from, to) }?)
}

pub(crate) unsafe fn cudaProfilerStart() -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuProfilerStart)() }?)
}

pub(crate) unsafe fn cudaProfilerStop() -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuProfilerStop)() }?)
}
