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
    let (address, outcome) = match form(&name.0, version) {
        Ok(found) => (table.address(found), CUdriverProcAddressQueryResult::SUCCESS),
        Err(outcome) => (0, outcome),
    };
    // A name that is not found is no error: the address is null.
    function.set(address as *mut c_void);
    if let Some(status) = status {
        status.set(outcome);
    }
    Ok(())
}

/// The function that a name means to a program of a version: of all forms of it, the last one that was there by then.
fn form(name: &str, version: i32) -> Result<Function, CUdriverProcAddressQueryResult> {
    let forms = || Function::ALL.iter().copied().filter(|&function| base_name(function.name()) == name);
    if forms().next().is_none() {
        return Err(CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND);
    }
    let there = forms().filter(|&form| since(form) <= version).max_by_key(|&form| since(form));
    match there {
        None => Err(CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT),
        Some(form) if version < until(form) => Ok(form),
        Some(_) => Err(CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND),
    }
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
        cuEventElapsedTime_v2 | cuStreamGetDevice => 12080,
        cuKernelGetLibrary | cuCtxCreate_v4 | cuStreamGetCtx_v2 => 12050,
        cuModuleGetFunctionCount
        | cuModuleEnumerateFunctions
        | cuLibraryGetKernelCount
        | cuLibraryEnumerateKernels
        | cuKernelGetParamInfo
        | cuFuncGetParamInfo
        | cuFuncIsLoaded
        | cuFuncLoad => 12040,
        cuKernelGetName | cuFuncGetName => 12030,
        cuMemPrefetchAsync_v2 | cuMemAdvise_v2 => 12020,
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
        cuModuleGetLoadingMode | cuOccupancyMaxPotentialClusterSize | cuOccupancyMaxActiveClusters => 11070,
        cuLaunchKernelEx => 11060,
        cuDeviceGetUuid_v2 | cuCtxCreate_v3 | cuGraphInstantiateWithFlags => 11040,
        cuStreamGetCaptureInfo_v2 => 11030,
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
        cuEventRecordWithFlags | cuGraphUpload => 11010,
        cuMemRetainAllocationHandle | cuIpcOpenMemHandle_v2 | cuCtxResetPersistingL2Cache => 11000,
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
        cuStreamBeginCapture_v2 | cuThreadExchangeStreamCaptureMode => 10010,
        cuLaunchHostFunc | cuStreamIsCapturing | cuStreamEndCapture | cuGraphCreate | cuGraphClone | cuGraphDestroy
        | cuGraphGetNodes | cuGraphExecDestroy | cuGraphLaunch => 10000,
        cuStreamGetCtx | cuDeviceGetUuid => 9020,
        cuFuncSetAttribute | cuLaunchCooperativeKernel => 9000,
        cuDeviceGetP2PAttribute
        | cuMemPrefetchAsync
        | cuMemAdvise
        | cuMemRangeGetAttribute
        | cuMemRangeGetAttributes => 8000,
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
        cuGetErrorName | cuGetErrorString | cuMemAllocManaged | cuPointerSetAttribute | cuStreamAttachMemAsync => 6000,
        cuStreamCreateWithPriority
        | cuStreamGetPriority
        | cuStreamGetFlags
        | cuCtxGetStreamPriorityRange
        | cuStreamAddCallback
        | cuLinkComplete
        | cuLinkDestroy => 5050,
        cuFuncSetSharedMemConfig | cuCtxGetSharedMemConfig | cuCtxSetSharedMemConfig => 4020,
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
        | cuProfilerStart
        | cuProfilerStop
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
        Function::cuStreamGetCaptureInfo_v2 => 12030,
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
    fn the_version_of_a_program_chooses_the_form_of_a_name() {
        let context = |version| form("cuCtxCreate", version);
        assert_eq!(context(3010), Err(CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT));
        assert_eq!(context(11030), Ok(Function::cuCtxCreate_v2));
        assert_eq!(context(12040), Ok(Function::cuCtxCreate_v3));
        assert_eq!(context(13000), Ok(Function::cuCtxCreate_v4));
        assert_eq!(form("cuMemAdvise", 12010), Ok(Function::cuMemAdvise));
        assert_eq!(form("cuMemAdvise", 12020), Ok(Function::cuMemAdvise_v2));
        assert_eq!(form("cuCtxSynchronize", 13000), Err(CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND));
    }

    #[test]
    fn no_two_forms_of_a_name_are_of_one_version() {
        let forms = Function::ALL.iter().map(|function| (base_name(function.name()), since(*function)));
        let mut names: Vec<_> = forms.collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Function::ALL.len());
    }
}
