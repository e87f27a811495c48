//! Initialisation, versions, names of codes, addresses of functions.

use std::ffi::{c_char, c_void};
use std::ptr;

use freehold_driver::cuda::{
    CUdriverProcAddressQueryResult, CUerror, CUresult, extension, proc_address_flags, symbols,
};

use crate::attributes::DRIVER_VERSION;
use crate::driver_state;
use crate::ffi::args::{InStr, Out};
use crate::ffi::default_stream::is_per_thread_default;
use crate::symbol::{self, DefaultStream};

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

pub(crate) fn cuGetProcAddress_v2(
    name: InStr,
    function: Out<*mut c_void>,
    version: i32,
    flags: u64,
    status: Option<Out<CUdriverProcAddressQueryResult>>,
) -> CUresult {
    let streams = match flags {
        proc_address_flags::DEFAULT if is_per_thread_default() => DefaultStream::PerThread,
        proc_address_flags::DEFAULT | proc_address_flags::LEGACY_STREAM => DefaultStream::Legacy,
        proc_address_flags::PER_THREAD_DEFAULT_STREAM => DefaultStream::PerThread,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    if version > DRIVER_VERSION {
        return Err(CUerror::INVALID_VALUE);
    }
    let forms = symbols::forms(&name.0);
    let is_extension = name.0.as_bytes() == extension::NAME.to_bytes();
    let (address, outcome) = match forms.iter().rfind(|form| form.since <= version) {
        Some(form) => (symbol::address(form, streams), CUdriverProcAddressQueryResult::SUCCESS),
        None if is_extension => (crate::extension::address(), CUdriverProcAddressQueryResult::SUCCESS),
        None if forms.is_empty() => (0, CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND),
        None => (0, CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT),
    };
    // A name that is not found is no error: the address is null.
    function.set(address as *mut c_void);
    if let Some(status) = status {
        status.set(outcome);
    }
    Ok(())
}
