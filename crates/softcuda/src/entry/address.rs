//! Addresses without memory.

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUresult};

use crate::boundary::Out;

pub(crate) fn cuMemAddressReserve(
    _start: Out<CUdeviceptr>,
    _bytes: usize,
    _alignment: usize,
    _wish: CUdeviceptr,
    _flags: u64,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemAddressFree(_start: CUdeviceptr, _bytes: usize) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}
