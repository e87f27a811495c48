//! Modules, kernels and launches, which this driver does not have yet.

use freehold_driver::cuda::{CUerror, CUresult};

use crate::boundary::Ignored;

pub(crate) fn cuModuleLoad(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleLoadData(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleLoadDataEx(_: Ignored, _: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleLoadFatBinary(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleUnload(_: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleGetLoadingMode(_: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleGetFunction(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleGetFunctionCount(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleEnumerateFunctions(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuModuleGetGlobal_v2(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryLoadData(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryLoadFromFile(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryUnload(_: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryGetKernel(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryGetKernelCount(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryEnumerateKernels(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryGetModule(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryGetGlobal(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryGetManaged(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLibraryGetUnifiedFunction(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuKernelGetFunction(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuKernelGetLibrary(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuKernelGetAttribute(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuKernelSetAttribute(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuKernelSetCacheConfig(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuKernelGetName(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuKernelGetParamInfo(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLinkCreate_v2(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLinkAddData_v2(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLinkAddFile_v2(_: Ignored, _: Ignored, _: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLinkComplete(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLinkDestroy(_: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncGetAttribute(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncSetAttribute(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncSetCacheConfig(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncSetSharedMemConfig(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncGetModule(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncGetName(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncGetParamInfo(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncIsLoaded(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuFuncLoad(_: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuOccupancyMaxPotentialBlockSize(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuOccupancyAvailableDynamicSMemPerBlock(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLaunchKernel(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLaunchKernelEx(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLaunchCooperativeKernel(
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
    _: Ignored,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLogsRegisterCallback(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLogsUnregisterCallback(_: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLogsCurrent(_: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLogsDumpToFile(_: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuLogsDumpToMemory(_: Ignored, _: Ignored, _: Ignored, _: Ignored) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}
