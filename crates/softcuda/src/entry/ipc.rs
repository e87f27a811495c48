//! Memory and events of another process, by handles that are bytes.

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUevent, CUipcEventHandle, CUipcMemHandle, CUresult};

use crate::boundary::Out;

pub(crate) fn cuIpcGetMemHandle(_handle: Out<CUipcMemHandle>, _start: CUdeviceptr) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuIpcOpenMemHandle_v2(_start: Out<CUdeviceptr>, _handle: CUipcMemHandle, _flags: u32) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuIpcCloseMemHandle(_start: CUdeviceptr) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuIpcGetEventHandle(_handle: Out<CUipcEventHandle>, _event: CUevent) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuIpcOpenEventHandle(_event: Out<CUevent>, _handle: CUipcEventHandle) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}
