//! Errors of the library as Python exceptions.

use std::ffi::{CStr, c_int};

use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;

use crate::ffi;

pyo3::create_exception!(freehold, Error, PyRuntimeError, "A call of the library that failed.");
pyo3::create_exception!(
    freehold,
    OutOfMemoryError,
    PyMemoryError,
    "The device, its budget or the budget of a tag has no room; the text says who holds the memory."
);

/// Returns the exception for the last failed call of this thread.
pub(crate) fn last() -> PyErr {
    // SAFETY: the call has no conditions.
    let code = unsafe { ffi::freehold_last_error_code() };
    // SAFETY: as above.
    let text = unsafe { ffi::freehold_last_error() };
    // SAFETY: the text ends with a zero byte, and stays until this thread's next call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    match code {
        ffi::OUT_OF_MEMORY | ffi::TAG_BUDGET => OutOfMemoryError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// Returns the exception for a call that returned this code.
pub(crate) fn check(code: c_int) -> PyResult<()> {
    if code == 0 { Ok(()) } else { Err(last()) }
}
