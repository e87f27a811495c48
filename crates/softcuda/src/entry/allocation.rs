//! Memory without an address.

use freehold_driver::cuda::{
    CUerror, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUresult,
};

use crate::boundary::{Any, HostAddress, In, Out};

pub(crate) fn cuMemCreate(
    _allocation: Out<CUmemGenericAllocationHandle>,
    _bytes: usize,
    _prop: In<CUmemAllocationProp>,
    _flags: u64,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemRelease(_allocation: CUmemGenericAllocationHandle) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemGetAllocationGranularity(
    _bytes: Out<usize>,
    _prop: In<CUmemAllocationProp>,
    _option: CUmemAllocationGranularity_flags,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemGetAllocationPropertiesFromHandle(
    _prop: Out<CUmemAllocationProp>,
    _allocation: CUmemGenericAllocationHandle,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemRetainAllocationHandle(
    _allocation: Out<CUmemGenericAllocationHandle>,
    _start: HostAddress,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemExportToShareableHandle(
    _shareable: Any,
    _allocation: CUmemGenericAllocationHandle,
    _kind: CUmemAllocationHandleType,
    _flags: u64,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemImportFromShareableHandle(
    _allocation: Out<CUmemGenericAllocationHandle>,
    _shareable: HostAddress,
    _kind: CUmemAllocationHandleType,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}
