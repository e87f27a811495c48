//! Memory mapped to reserved addresses.

use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUmemAccessDesc, CUmemGenericAllocationHandle, CUmemLocation, CUresult,
};

use crate::boundary::{In, List, Out};

pub(crate) fn cuMemMap(
    _start: CUdeviceptr,
    _bytes: usize,
    _offset: usize,
    _allocation: CUmemGenericAllocationHandle,
    _flags: u64,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemUnmap(_start: CUdeviceptr, _bytes: usize) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemSetAccess(
    _start: CUdeviceptr,
    _bytes: usize,
    _access: List<CUmemAccessDesc>,
    _count: usize,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemGetAccess(_flags: Out<u64>, _location: In<CUmemLocation>, _start: CUdeviceptr) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}
