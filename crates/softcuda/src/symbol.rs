//! What stands behind a symbol of the driver's library: a function of the list, an older form of one, or a refusal.

use std::ffi::{c_char, c_void};
use std::ptr;

use freehold_driver::cuda::symbols::Symbol;
use freehold_driver::cuda::{CUerror, CUresult, Function};

use crate::table::{API, PER_THREAD_API};

/// What the null stream is to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    Legacy,
    PerThread,
}

/// Stands behind every symbol that this driver does not serve. C lets it be called with any arguments: they are the
/// caller's to clean up, and are not looked at.
pub extern "C" fn not_supported() -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

/// `cuGetProcAddress` as CUDA 11 had it, without a status.
///
/// # Safety
/// As the driver API says: `name` is null or ends in a NUL, and `function` is null or a place for one pointer.
#[allow(non_snake_case, reason = "named as C names the function")]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller keeps the conditions of `name` and `function`; the status may be null.
    unsafe { (API.cuGetProcAddress_v2)(name, function, version, flags, ptr::null_mut()) }
}

/// The address of a symbol's function.
pub(crate) fn address(symbol: &Symbol, streams: DefaultStream) -> usize {
    match (Function::named(symbol.name), streams, symbol.per_thread) {
        (Some(function), DefaultStream::PerThread, Some(_)) => PER_THREAD_API.address(function),
        (Some(function), _, _) => API.address(function),
        (None, _, _) if symbol.name == "cuGetProcAddress" => cuGetProcAddress as *const () as usize,
        (None, _, _) => not_supported as *const () as usize,
    }
}
