//! Initialization, versions, and the names of error codes.

use std::ffi::c_char;
use std::ptr;

use freehold_driver::cuda::{CUerror, CUresult};

use crate::ffi::args::Out;
use crate::objects::attributes::DRIVER_VERSION;
use crate::state::driver_state;

pub(crate) fn cuInit(flags: u32) -> CUresult {
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    driver_state::init()
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
