//! Binds the program's calls of the CUDA driver to functions of `libcudart.so` that count memory, if there is a limit.
//!
//! An object says with its cookie what it is to this library. The dynamic linker tells of each binding of a function of the driver,
//! for a call or by `dlsym`; the exports of the runtime say which functions have a counterpart.

use std::collections::HashMap;
use std::env;
use std::ffi::{CStr, OsStr, c_char, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::file::{self, Mapped};
use crate::objects::{RUNTIME_13, is_driver};

/// Bindings from this object, and to it, are told.
const LA_FLG_BINDTO: c_uint = 1;
const LA_FLG_BINDFROM: c_uint = 2;
/// Calls need not be told.
const LA_SYMB_NOPLTENTER: c_uint = 1;
const LA_SYMB_NOPLTEXIT: c_uint = 2;

/// The limit in bytes, which the runtime reads.
const VARIABLE: &str = "FREEHOLD_LIMIT";

/// A symbol of an object of 64 bits. Its value is the address of the function.
#[repr(C)]
#[derive(Debug)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    bytes: u64,
}

/// What an object is: the values of its cookie.
mod kind {
    /// Its calls of the driver are redirected.
    pub(super) const OTHER: usize = 1;
    pub(super) const DRIVER: usize = 2;
    /// Our runtime, which calls the driver itself.
    pub(super) const RUNTIME: usize = 3;
}

static IS_LIMITED: LazyLock<bool> = LazyLock::new(|| env::var_os(VARIABLE).is_some_and(|value| !value.is_empty()));

/// The addresses of the counterparts, by the names of the driver's functions. `None` until the runtime is loaded.
static COUNTERPARTS: Mutex<Option<HashMap<Vec<u8>, usize>>> = Mutex::new(None);

/// Notes an object. Returns the cookie for it and which bindings are told, if there is a limit.
pub(crate) fn opened(base: usize, name: &[u8], folder: Option<&Path>) -> Option<(usize, c_uint)> {
    if !*IS_LIMITED {
        return None;
    }
    if is_driver(name) {
        return Some((kind::DRIVER, LA_FLG_BINDTO));
    }
    let path = Path::new(OsStr::from_bytes(name));
    let is_ours = folder.is_some() && path.parent() == folder;
    if is_ours && path.ends_with(RUNTIME_13) {
        let exports = Mapped::open(path).map(|file| file::counterparts(file.bytes())).unwrap_or_default();
        let found = exports.into_iter().map(|(name, address)| (name, base + address as usize)).collect();
        *COUNTERPARTS.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
    let kind = if is_ours { kind::RUNTIME } else { kind::OTHER };
    Some((kind, LA_FLG_BINDFROM))
}

/// Returns the address that a symbol is bound to.
///
/// # Safety
/// The symbol and both cookies must be valid, and `name` must be a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_symbind64(
    symbol: *const Symbol,
    _index: c_uint,
    from: *const usize,
    to: *const usize,
    flags: *mut c_uint,
    name: *const c_char,
) -> usize {
    // SAFETY: the caller vouches for the symbol.
    let value = unsafe { (*symbol).value };
    // SAFETY: the caller vouches for the cookie.
    let from = unsafe { *from };
    // SAFETY: as above.
    let to = unsafe { *to };
    if to != kind::DRIVER || from == kind::RUNTIME {
        return value;
    }
    // SAFETY: the caller vouches for the flags.
    unsafe { *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT };
    // SAFETY: the caller vouches for the name.
    let name = unsafe { CStr::from_ptr(name) };
    let counterparts = COUNTERPARTS.lock().unwrap_or_else(PoisonError::into_inner);
    counterparts.as_ref().and_then(|found| found.get(name.to_bytes()).copied()).unwrap_or(value)
}
