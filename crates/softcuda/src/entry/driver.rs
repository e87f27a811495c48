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
    if version > DRIVER_VERSION {
        return Err(CUerror::INVALID_VALUE);
    }
    let (address, outcome) = match Function::ALL.iter().find(|function| base_name(function.name()) == name.0) {
        Some(&found) if version < since(found) => (0, CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT),
        Some(&found) if version < until(found) => (table.address(found), CUdriverProcAddressQueryResult::SUCCESS),
        _ => (0, CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND),
    };
    // A name that is not found is no error: the address is null.
    function.set(address as *mut c_void);
    if let Some(status) = status {
        status.set(outcome);
    }
    Ok(())
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
        cuLogsRegisterCallback | cuLogsUnregisterCallback | cuLogsCurrent | cuLogsDumpToFile | cuLogsDumpToMemory => {
            12090
        }
        cuKernelGetLibrary => 12050,
        cuModuleGetFunctionCount
        | cuModuleEnumerateFunctions
        | cuLibraryGetKernelCount
        | cuLibraryEnumerateKernels
        | cuKernelGetParamInfo
        | cuFuncGetParamInfo
        | cuFuncIsLoaded
        | cuFuncLoad => 12040,
        cuKernelGetName | cuFuncGetName => 12030,
        cuGetProcAddress_v2
        | cuCtxGetId
        | cuStreamGetId
        | cuLibraryLoadData
        | cuLibraryLoadFromFile
        | cuLibraryUnload
        | cuLibraryGetKernel
        | cuLibraryGetModule
        | cuLibraryGetGlobal
        | cuLibraryGetManaged
        | cuLibraryGetUnifiedFunction
        | cuKernelGetFunction
        | cuKernelGetAttribute
        | cuKernelSetAttribute
        | cuKernelSetCacheConfig => 12000,
        cuCtxSetFlags => 12010,
        cuStreamWaitValue32_v2
        | cuStreamWaitValue64_v2
        | cuStreamWriteValue32_v2
        | cuStreamWriteValue64_v2
        | cuStreamBatchMemOp_v2 => 11070,
        cuModuleGetLoadingMode => 11070,
        cuLaunchKernelEx => 11060,
        cuDeviceGetUuid_v2 => 11040,
        cuMemPoolExportToShareableHandle
        | cuMemPoolImportFromShareableHandle
        | cuMemPoolExportPointer
        | cuMemPoolImportPointer
        | cuMemAllocAsync
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
        cuMemRetainAllocationHandle | cuIpcOpenMemHandle_v2 => 11000,
        cuDevicePrimaryCtxRelease_v2 | cuDevicePrimaryCtxReset_v2 | cuDevicePrimaryCtxSetFlags_v2 | cuFuncGetModule => {
            11000
        }
        cuOccupancyAvailableDynamicSMemPerBlock
        | cuMemAddressReserve
        | cuMemAddressFree
        | cuMemCreate
        | cuMemRelease
        | cuMemMap
        | cuMemUnmap
        | cuMemSetAccess
        | cuMemGetAccess
        | cuMemGetAllocationGranularity
        | cuMemGetAllocationPropertiesFromHandle
        | cuMemExportToShareableHandle
        | cuMemImportFromShareableHandle => 10020,
        cuLaunchHostFunc | cuStreamIsCapturing => 10000,
        cuStreamGetCtx => 9020,
        cuFuncSetAttribute | cuLaunchCooperativeKernel => 9000,
        cuDeviceGetP2PAttribute => 8000,
        cuDevicePrimaryCtxRetain
        | cuDevicePrimaryCtxGetState
        | cuCtxGetFlags
        | cuPointerGetAttributes
        | cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        | cuOccupancyMaxPotentialBlockSizeWithFlags => 7000,
        cuMemHostRegister_v2
        | cuLinkCreate_v2
        | cuLinkAddData_v2
        | cuLinkAddFile_v2
        | cuOccupancyMaxActiveBlocksPerMultiprocessor
        | cuOccupancyMaxPotentialBlockSize => 6050,
        cuGetErrorName | cuGetErrorString | cuMemAllocManaged | cuPointerSetAttribute => 6000,
        cuStreamCreateWithPriority
        | cuStreamGetPriority
        | cuStreamGetFlags
        | cuCtxGetStreamPriorityRange
        | cuStreamAddCallback
        | cuLinkComplete
        | cuLinkDestroy => 5050,
        cuFuncSetSharedMemConfig => 4020,
        cuDeviceGetByPCIBusId
        | cuDeviceGetPCIBusId
        | cuIpcGetMemHandle
        | cuIpcCloseMemHandle
        | cuIpcGetEventHandle
        | cuIpcOpenEventHandle => 4010,
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
        | cuMemHostUnregister
        | cuLaunchKernel => 4000,
        other if other.name().ends_with("_v2") => 3020,
        cuMemsetD8Async | cuMemsetD16Async | cuMemsetD32Async | cuMemsetD2D8Async | cuMemsetD2D16Async
        | cuMemsetD2D32Async | cuStreamWaitEvent | cuCtxGetCacheConfig | cuCtxSetCacheConfig | cuCtxGetApiVersion
        | cuCtxSetLimit | cuCtxGetLimit => 3020,
        cuFuncSetCacheConfig => 3000,
        cuDriverGetVersion | cuMemHostAlloc | cuMemHostGetFlags | cuFuncGetAttribute => 2020,
        cuModuleLoadDataEx => 2010,
        _ => 2000,
    }
}

/// The version of CUDA from which on the name means another form, with other arguments, which this driver has not.
fn until(function: Function) -> i32 {
    match function {
        Function::cuCtxCreate_v2 => 11040,
        Function::cuStreamGetCtx => 12050,
        Function::cuCtxGetDevice | Function::cuCtxSynchronize => 13000,
        _ => i32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_ends_in_its_version_or_has_none() {
        assert_eq!(base_name("cuMemAlloc_v2"), "cuMemAlloc");
        assert_eq!(base_name("cuInit"), "cuInit");
        assert_eq!(base_name("cuMemcpyHtoDAsync_v2"), "cuMemcpyHtoDAsync");
        assert_eq!(base_name("cu_value"), "cu_value");
    }

    #[test]
    fn no_two_functions_share_a_name() {
        let mut names: Vec<_> = Function::ALL.iter().map(|function| base_name(function.name())).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Function::ALL.len());
    }
}
