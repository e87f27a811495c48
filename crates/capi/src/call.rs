//! What the functions of the interface have in common: pools by device and by address, and results as codes.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use freehold::foreign::ForeignPool;

use crate::last_error::{self, Failure, FreeholdError};
use crate::pools;

/// The driver's type behind a stream handle.
#[derive(Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "named as the driver names it")]
pub struct CUstream_st {
    _private: [u8; 0],
}

/// A stream handle of the driver.
pub type CUstream = *mut CUstream_st;

#[inline]
pub(crate) fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

pub(crate) fn pool(device: c_int) -> Result<&'static ForeignPool, Failure> {
    match pools::known_pool(device) {
        Some(pool) => Ok(pool),
        None => pools::pool(device).map_err(Failure::from),
    }
}

/// Returns the pool of the device that an address belongs to.
pub(crate) fn pool_at(address: u64) -> Option<&'static ForeignPool> {
    let has = pools::known_pools().find(|pool| pool.has(address));
    has.or_else(|| pools::known_pools().find(|pool| pool.had(address)))
}

/// Makes a call, and stores its failure.
pub(crate) fn to_code(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_panic(call) {
        Ok(()) => FreeholdError::None as c_int,
        Err(failure) => last_error::set(failure) as c_int,
    }
}

/// Makes a call, and turns a panic into an error, so that none unwinds into C. A lock that the panic poisoned stays in
/// use.
pub(crate) fn catch_panic<R>(call: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Failure::from_panic(panic)))
}

/// Reads a C string.
///
/// # Safety
/// `at` is null or points to a string that ends in a NUL and outlives `'a`.
pub(crate) unsafe fn c_str<'a>(name: &'static str, at: *const c_char) -> Result<&'a str, Failure> {
    if at.is_null() {
        return Err(Failure::NullArgument { name });
    }
    // SAFETY: it is not null, and the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Failure::InvalidUtf8 { name })
}
