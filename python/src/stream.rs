//! The handle of a stream, from whatever a library calls a stream.

use std::ffi::c_void;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The handle of a stream of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream(pub(crate) usize);

impl Stream {
    pub(crate) fn pointer(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0)
    }

    /// Returns the stream with the number that `__dlpack__` and `__cuda_array_interface__` give it: 1 is the legacy default
    /// stream, 2 the default stream of the thread.
    pub(crate) fn of_protocol(number: isize) -> PyResult<Self> {
        match usize::try_from(number) {
            Ok(0) => Err(PyValueError::new_err(
                "stream 0 is ambiguous: pass 1 for the legacy default stream, or 2 for the default stream of the thread",
            )),
            Ok(1) => Ok(Self(0)),
            Ok(handle) => Ok(Self(handle)),
            Err(_) => Err(PyValueError::new_err("a stream is -1, or positive")),
        }
    }

    pub(crate) fn to_protocol(self) -> usize {
        self.0.max(1)
    }
}

impl<'py> FromPyObject<'_, 'py> for Stream {
    type Error = PyErr;

    /// Accepts a handle as a number, `None` for the legacy default stream, objects with `__cuda_stream__`, and the streams of
    /// PyTorch (`cuda_stream`), CuPy (`ptr`), and Numba, PyCUDA and cuda.core (`handle`).
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Self(0));
        }
        if let Ok(number) = object.extract::<usize>() {
            return Ok(Self(number));
        }
        if let Ok(protocol) = object.getattr("__cuda_stream__") {
            // A method, except in early versions of cuda.core, where it is an attribute.
            let answer = if protocol.is_callable() { protocol.call0()? } else { protocol };
            let (_, handle): (i64, usize) = answer.extract()?;
            return Ok(Self(handle));
        }
        for name in ["cuda_stream", "ptr", "handle"] {
            if let Ok(handle) = object.getattr(name) {
                // Numba's is a ctypes value, which is None for a null pointer.
                let handle = handle.getattr("value").unwrap_or(handle);
                if handle.is_none() {
                    return Ok(Self(0));
                }
                // A driver handle of cuda-bindings converts to a number.
                return handle.call_method0("__int__")?.extract().map(Self);
            }
        }
        let kind = object.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "{kind} is not a stream: pass a handle, or a stream of PyTorch, CuPy, Numba or cuda.core"
        )))
    }
}
