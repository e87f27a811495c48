//! Device memory that grows at a fixed address, as a Python object.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, Shape};
use crate::block::{in_use, size};
use crate::dlpack::CUDA;
use crate::dtype::DType;
use crate::error::{self, check};
use crate::ffi;
use crate::memory::{Memory, order_after};
use crate::stream::Stream;

/// Elements in device memory, more of which can be added and removed: the address stays, nothing is copied, and nothing waits. Arrays
/// of it stay valid when it grows. The memory is freed with the last reference, after all work of the device.
#[pyclass(module = "freehold", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct DeviceVec {
    memory: Arc<VectorMemory>,
    dtype: DType,
}

#[derive(Debug)]
struct VectorMemory {
    device: i32,
    stream: Stream,
    address: usize,
    raw: Mutex<Raw>,
}

#[derive(Debug)]
struct Raw {
    /// None after the free.
    vector: Option<NonNull<ffi::Vector>>,
    elements: usize,
}

// SAFETY: the library's functions take a vector in any thread; the lock keeps two from doing so at the same time.
unsafe impl Send for Raw {}

impl VectorMemory {
    fn raw(&self) -> MutexGuard<'_, Raw> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory for VectorMemory {
    fn device(&self) -> i32 {
        self.device
    }

    fn stream(&self) -> Option<Stream> {
        Some(self.stream)
    }

    fn lend(&self, consumer: Stream) -> PyResult<()> {
        order_after(self.device, consumer, self.stream)
    }

    /// Its memory is released after all work anyway.
    fn lend_to_any(&self) {}

    fn name(&self) -> String {
        format!("a vector at {:#x}", self.address)
    }
}

fn free(raw: &mut Raw) -> i32 {
    // SAFETY: the vector is this object's, and is taken out of it.
    raw.vector.take().map_or(0, |vector| unsafe { ffi::freehold_vector_free(vector.as_ptr()) })
}

impl Drop for VectorMemory {
    fn drop(&mut self) {
        // The text of a failure is in the library's last error; a destructor cannot raise it.
        free(&mut self.raw());
    }
}

fn freed() -> PyErr {
    PyValueError::new_err("the vector was freed")
}

impl DeviceVec {
    fn array(&self, shape: Option<Shape>, offset: usize) -> PyResult<Array> {
        let raw = self.memory.raw();
        if raw.vector.is_none() {
            return Err(freed());
        }
        if offset > raw.elements {
            let text = format!("element {offset} is beyond the end: the vector has {}", raw.elements);
            return Err(PyIndexError::new_err(text));
        }
        let item = self.dtype.bytes();
        let place = (self.memory.address, raw.elements * item);
        Array::view_of(self.memory.clone(), place, self.dtype, shape, offset * item)
    }

    fn vector(&self, raw: &Raw) -> PyResult<*mut ffi::Vector> {
        raw.vector.map(NonNull::as_ptr).ok_or_else(freed)
    }
}

#[pymethods]
impl DeviceVec {
    /// Makes an empty vector, with addresses for `max_len` elements, or for as many as the device has memory for. Consumers of the
    /// vector's arrays are ordered after the work of `stream` that writes them.
    #[new]
    #[pyo3(signature = (dtype, max_len = None, *, device = 0, stream = None))]
    fn new(dtype: DType, max_len: Option<usize>, device: i32, stream: Option<Stream>) -> PyResult<Self> {
        if max_len == Some(0) {
            return Err(PyValueError::new_err("a vector has room for at least one element"));
        }
        let bytes_max = max_len.unwrap_or(0).checked_mul(dtype.bytes());
        let bytes_max =
            bytes_max.ok_or_else(|| PyOverflowError::new_err("max_len is larger than any device's memory"))?;
        // SAFETY: the call takes numbers.
        let vector = NonNull::new(unsafe { ffi::freehold_vector_new(device, bytes_max) }).ok_or_else(error::last)?;
        // SAFETY: the vector was just made.
        let address: *mut c_void = unsafe { ffi::freehold_vector_address(vector.as_ptr()) };
        let raw = Mutex::new(Raw { vector: Some(vector), elements: 0 });
        let stream = stream.unwrap_or(Stream(0));
        Ok(Self { memory: Arc::new(VectorMemory { device, stream, address: address.addr(), raw }), dtype })
    }

    /// The address of the first element, which stays the same.
    #[getter]
    fn ptr(&self) -> usize {
        self.memory.address
    }

    /// The size of the elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.raw().elements * self.dtype.bytes()
    }

    /// How many elements fit in the memory that it has.
    #[getter]
    fn capacity(&self) -> PyResult<usize> {
        let raw = self.memory.raw();
        let vector = self.vector(&raw)?;
        // SAFETY: the vector is not freed, and the lock is held.
        Ok(unsafe { ffi::freehold_vector_capacity(vector) } / self.dtype.bytes())
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name
    }

    /// The number of the device.
    #[getter]
    fn device(&self) -> i32 {
        self.memory.device
    }

    /// Whether it was freed.
    #[getter]
    fn is_freed(&self) -> bool {
        self.memory.raw().vector.is_none()
    }

    /// Changes the number of elements. Added ones have no defined value. Work of all streams may use the others meanwhile. Removed ones
    /// keep their memory: see shrink_to_fit.
    fn resize(&self, len: usize) -> PyResult<()> {
        let bytes = len.checked_mul(self.dtype.bytes());
        let bytes = bytes.ok_or_else(|| PyOverflowError::new_err("len is larger than any device's memory"))?;
        let mut raw = self.memory.raw();
        let vector = self.vector(&raw)?;
        // SAFETY: the vector is not freed, and the lock is held.
        check(unsafe { ffi::freehold_vector_resize(vector, bytes) })?;
        raw.elements = len;
        Ok(())
    }

    /// Gives memory beyond the elements back to the pool, in whole chunks of 2 MiB or more, after the work submitted so far; does not
    /// wait. Raises BufferError while arrays use the vector.
    fn shrink_to_fit(&self) -> PyResult<()> {
        let raw = self.memory.raw();
        let vector = self.vector(&raw)?;
        self.check_unused()?;
        // SAFETY: the vector is not freed, and the lock is held.
        check(unsafe { ffi::freehold_vector_shrink(vector) })
    }

    /// Frees the vector after the work submitted so far; does not wait. Freeing it again does nothing. Raises BufferError while arrays
    /// use it.
    fn free(&self) -> PyResult<()> {
        let mut raw = self.memory.raw();
        self.check_unused()?;
        check(free(&mut raw))
    }

    /// Returns the elements from number `offset` on as an array: of `shape`, or all of them.
    #[pyo3(signature = (shape = None, *, offset = 0))]
    fn view(&self, shape: Option<Shape>, offset: usize) -> PyResult<Array> {
        self.array(shape, offset)
    }

    /// The elements for CuPy, Numba and PyTorch.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.array(None, 0)?.interface(py)
    }

    /// Returns the device as DLPack names it.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CUDA, self.memory.device)
    }

    /// Returns the elements as a DLPack capsule: see Array.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.array(None, 0)?.export(py, stream, max_version, dl_device, copy)
    }

    fn __len__(&self) -> usize {
        self.memory.raw().elements
    }

    fn __repr__(&self) -> String {
        let raw = self.memory.raw();
        if raw.vector.is_none() {
            return format!("<freehold.DeviceVec of {}, freed>", self.dtype.name);
        }
        let bytes = size(raw.elements * self.dtype.bytes());
        let (count, name, device) = (raw.elements, self.dtype.name, self.memory.device);
        format!("<freehold.DeviceVec of {count} {name} ({bytes}) at {:#x}, device {device}>", self.memory.address)
    }
}

impl DeviceVec {
    /// Returns an error while arrays use the memory. No array begins to while the lock is held.
    fn check_unused(&self) -> PyResult<()> {
        match Arc::strong_count(&self.memory) - 1 {
            0 => Ok(()),
            count => Err(in_use("vector", count)),
        }
    }
}
