//! Initialisation, versions, names of codes, addresses of functions.

use std::ffi::{c_char, c_void};
use std::ptr;

use freehold_driver::cuda::{CUdriverProcAddressQueryResult, CUerror, CUresult, Function, proc_address_flags};

use crate::attributes::DRIVER_VERSION;
use crate::boundary::{Out, Text};
use crate::table::{API, PER_THREAD_API};
use crate::world;

pub(crate) fn cuInit(flags: u32) -> CUresult {
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    world::init()
}

pub(crate) fn cuDriverGetVersion(version: Out<i32>) -> CUresult {
    version.set(DRIVER_VERSION);
    Ok(())
}

pub(crate) fn cuGetErrorName(error: u32, text: Out<*const c_char>) -> CUresult {
    let name = match CUerror::new(error) {
        None => Some(c"CUDA_SUCCESS"),
        Some(code) => code.name(),
    };
    text.set(name.map_or(ptr::null(), |name| name.as_ptr()));
    name.map(|_| ()).ok_or(CUerror::INVALID_VALUE)
}

pub(crate) fn cuGetErrorString(error: u32, text: Out<*const c_char>) -> CUresult {
    let said = match CUerror::new(error) {
        None => Some(c"no error"),
        Some(code) => code.description(),
    };
    text.set(said.map_or(ptr::null(), |said| said.as_ptr()));
    said.map(|_| ()).ok_or(CUerror::INVALID_VALUE)
}

pub(crate) fn cuGetProcAddress_v2(
    name: Text,
    function: Out<*mut c_void>,
    version: i32,
    flags: u64,
    status: Option<Out<CUdriverProcAddressQueryResult>>,
) -> CUresult {
    let table = match flags {
        proc_address_flags::DEFAULT | proc_address_flags::LEGACY_STREAM => &API,
        proc_address_flags::PER_THREAD_DEFAULT_STREAM => &PER_THREAD_API,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    let (address, outcome) = match versions(&name.0) {
        None => (0, CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND),
        Some((_, since)) if version < since => (0, CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT),
        Some((found, _)) => (table.address(found), CUdriverProcAddressQueryResult::SUCCESS),
    };
    function.set(address as *mut c_void);
    let found = outcome == CUdriverProcAddressQueryResult::SUCCESS;
    match status {
        Some(status) => status.set(outcome),
        None if !found => return Err(CUerror::NOT_FOUND),
        None => {}
    }
    if found { Ok(()) } else { Err(CUerror::NOT_FOUND) }
}

/// The function behind a name without its version, and the version of CUDA since which it is that one.
fn versions(name: &str) -> Option<(Function, i32)> {
    let function = Function::ALL.iter().copied().find(|function| base_name(function.name()) == name)?;
    Some((function, since(function)))
}

/// A symbol without its version.
fn base_name(symbol: &str) -> &str {
    match symbol.rfind("_v") {
        Some(at) if symbol[at + 2..].bytes().all(|byte| byte.is_ascii_digit()) => &symbol[..at],
        _ => symbol,
    }
}

/// The version of CUDA, as `cuDriverGetVersion` counts, that first had the function in this form.
fn since(function: Function) -> i32 {
    use Function::*;
    match function {
        cuGetProcAddress_v2 => 12000,
        cuCtxGetId | cuStreamGetId => 12000,
        cuCtxSetFlags => 12010,
        cuStreamWaitValue32_v2
        | cuStreamWaitValue64_v2
        | cuStreamWriteValue32_v2
        | cuStreamWriteValue64_v2
        | cuStreamBatchMemOp_v2 => 11070,
        cuDeviceGetUuid_v2 => 11040,
        cuMemAllocAsync
        | cuMemFreeAsync
        | cuMemAllocFromPoolAsync
        | cuMemPoolCreate
        | cuMemPoolDestroy
        | cuMemPoolSetAttribute
        | cuMemPoolGetAttribute
        | cuMemPoolTrimTo
        | cuMemPoolSetAccess
        | cuMemPoolGetAccess
        | cuDeviceGetDefaultMemPool
        | cuDeviceGetMemPool
        | cuDeviceSetMemPool => 11020,
        cuEventRecordWithFlags => 11010,
        cuDevicePrimaryCtxRelease_v2 | cuDevicePrimaryCtxReset_v2 | cuDevicePrimaryCtxSetFlags_v2 => 11000,
        cuLaunchHostFunc | cuStreamIsCapturing => 10000,
        cuStreamGetCtx => 9020,
        cuDeviceGetP2PAttribute => 8000,
        cuDevicePrimaryCtxRetain | cuDevicePrimaryCtxGetState | cuCtxGetFlags | cuPointerGetAttributes => 7000,
        cuMemHostRegister_v2 => 6050,
        cuGetErrorName | cuGetErrorString | cuMemAllocManaged | cuPointerSetAttribute => 6000,
        cuStreamCreateWithPriority
        | cuStreamGetPriority
        | cuStreamGetFlags
        | cuCtxGetStreamPriorityRange
        | cuStreamAddCallback => 5050,
        cuDeviceGetByPCIBusId | cuDeviceGetPCIBusId => 4010,
        cuCtxDestroy_v2
        | cuCtxPushCurrent_v2
        | cuCtxPopCurrent_v2
        | cuCtxSetCurrent
        | cuCtxGetCurrent
        | cuStreamDestroy_v2
        | cuEventDestroy_v2
        | cuPointerGetAttribute
        | cuDeviceCanAccessPeer
        | cuCtxEnablePeerAccess
        | cuCtxDisablePeerAccess
        | cuMemcpy
        | cuMemcpyAsync
        | cuMemcpyPeer
        | cuMemcpyPeerAsync
        | cuMemcpy3DPeer
        | cuMemcpy3DPeerAsync
        | cuMemHostUnregister => 4000,
        other if other.name().ends_with("_v2") => 3020,
        cuMemsetD8Async | cuMemsetD16Async | cuMemsetD32Async | cuMemsetD2D8Async | cuMemsetD2D16Async
        | cuMemsetD2D32Async | cuStreamWaitEvent | cuCtxGetCacheConfig | cuCtxSetCacheConfig | cuCtxGetApiVersion
        | cuCtxSetLimit | cuCtxGetLimit => 3020,
        cuDriverGetVersion | cuMemHostAlloc | cuMemHostGetFlags => 2020,
        _ => 2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_the_newest_form() {
        assert_eq!(versions("cuMemAlloc"), Some((Function::cuMemAlloc_v2, 3020)));
        assert_eq!(versions("cuInit"), Some((Function::cuInit, 2000)));
        assert_eq!(versions("cuMemcpyHtoDAsync"), Some((Function::cuMemcpyHtoDAsync_v2, 3020)));
    }

    #[test]
    fn a_name_with_its_version_is_none() {
        assert_eq!(versions("cuMemAlloc_v2"), None);
        assert_eq!(versions("cuNoSuchThing"), None);
    }
}
