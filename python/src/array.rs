//! A typed array in device memory of a block, of a vector, of a lease, or of another library.

use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dlpack::{self, CUDA};
use crate::dtype::DType;
use crate::memory::Memory;
use crate::stream::Stream;

/// A typed array in device memory, without a copy: of a block, a vector or a lease, or of another library. PyTorch, CuPy and Numba
/// take it through DLPack and `__cuda_array_interface__`. The memory lives as long as its arrays.
#[pyclass(module = "freehold", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) address: usize,
    pub(crate) layout: Layout,
}

/// The elements of an array, from its first one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    /// In elements.
    pub(crate) strides: Vec<i64>,
}

impl Layout {
    /// Returns the layout of elements that follow each other, the last dimension fastest.
    pub(crate) fn contiguous(dtype: DType, shape: Vec<i64>) -> PyResult<Self> {
        if shape.iter().any(|&length| length < 0) {
            return Err(PyValueError::new_err("a shape has no negative lengths"));
        }
        let too_many = || PyValueError::new_err("the shape has more elements than any device's memory");
        let mut strides = vec![1; shape.len()];
        let mut elements = 1_i64;
        for (stride, &length) in strides.iter_mut().zip(&shape).rev() {
            *stride = elements;
            elements = elements.checked_mul(length.max(1)).ok_or_else(too_many)?;
        }
        elements.checked_mul(dtype.bytes() as i64).ok_or_else(too_many)?;
        Ok(Self { dtype, shape, strides })
    }

    pub(crate) fn strided(dtype: DType, shape: Vec<i64>, strides: Vec<i64>) -> PyResult<Self> {
        if strides.len() != shape.len() {
            let text = format!("{} strides were given for {} dimensions", strides.len(), shape.len());
            return Err(PyValueError::new_err(text));
        }
        if shape.iter().any(|&length| length < 0) || strides.iter().any(|&stride| stride < 0) {
            return Err(PyValueError::new_err("an array has no negative lengths and strides"));
        }
        let layout = Self { dtype, shape, strides };
        layout.try_span().ok_or_else(|| PyValueError::new_err("the strides reach further than any device's memory"))?;
        Ok(layout)
    }

    fn try_span(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let mut last = 0_i64;
        for (&length, &stride) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add((length - 1).checked_mul(stride)?)?;
        }
        usize::try_from(last.checked_add(1)?.checked_mul(self.dtype.bytes() as i64)?).ok()
    }

    /// Returns the bytes from the first element to the end of the last one.
    pub(crate) fn span(&self) -> usize {
        self.try_span().expect("a layout was checked when it was made")
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.shape.contains(&0)
            || self.shape.iter().zip(&self.strides).rev().all(|(&length, &stride)| {
                let follows = length == 1 || stride == expected;
                expected *= length;
                follows
            })
    }
}

/// The dimensions of an array as an argument: a number or a sequence.
#[derive(Debug, FromPyObject)]
pub(crate) enum Shape {
    Length(i64),
    Lengths(Vec<i64>),
}

impl Shape {
    pub(crate) fn lengths(self) -> Vec<i64> {
        match self {
            Self::Length(length) => vec![length],
            Self::Lengths(lengths) => lengths,
        }
    }
}

impl Array {
    /// Returns an array of `memory`, whose first byte is at `base`.
    pub(crate) fn within(
        memory: Arc<dyn Memory>,
        (base, bytes): (usize, usize),
        offset: usize,
        layout: Layout,
    ) -> PyResult<Self> {
        let span = layout.span();
        if offset.checked_add(span).is_none_or(|end| end > bytes) {
            let text = format!("{span} bytes from byte {offset} on do not fit in {bytes} bytes");
            return Err(PyValueError::new_err(text));
        }
        let item = layout.dtype.bytes();
        if !(base + offset).is_multiple_of(item) {
            let text =
                format!("byte {offset} is not aligned for {}, whose elements have {item} bytes", layout.dtype.name);
            return Err(PyValueError::new_err(text));
        }
        Ok(Self { memory, address: base + offset, layout })
    }

    /// Returns the view that the methods of blocks, vectors and leases return.
    pub(crate) fn view_of(
        memory: Arc<dyn Memory>,
        (base, bytes): (usize, usize),
        dtype: DType,
        shape: Option<Shape>,
        offset: usize,
    ) -> PyResult<Self> {
        let shape = match shape {
            Some(shape) => shape.lengths(),
            None => vec![(bytes.saturating_sub(offset) / dtype.bytes()) as i64],
        };
        Self::within(memory, (base, bytes), offset, Layout::contiguous(dtype, shape)?)
    }

    pub(crate) fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dtype = self.layout.dtype;
        let missing = || PyAttributeError::new_err(format!("NumPy has no {}: use DLPack", dtype.name));
        let interface = PyDict::new(py);
        interface.set_item("shape", PyTuple::new(py, &self.layout.shape)?)?;
        interface.set_item("typestr", dtype.typestr.ok_or_else(missing)?)?;
        interface.set_item("data", (self.address, self.memory.is_read_only()))?;
        interface.set_item("version", 3)?;
        if !self.layout.is_contiguous() {
            interface.set_item("strides", self.strides(py)?)?;
        }
        // Consumers wait for the work of this stream, and do not say in which stream they use the memory.
        interface.set_item("stream", self.memory.stream().map(Stream::to_protocol))?;
        self.memory.lend_to_any();
        Ok(interface)
    }

    pub(crate) fn export<'py>(
        &self,
        py: Python<'py>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(true) {
            return Err(PyBufferError::new_err("memory is exported without a copy only: copy the consumer's array"));
        }
        if dl_device.is_some_and(|wanted| wanted != (CUDA, self.memory.device())) {
            return Err(PyBufferError::new_err("memory is exported on its own device only"));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if self.memory.is_read_only() && !is_versioned {
            let text = "the memory is read-only, which only DLPack 1.0 can say: copy it, or lease it for writing";
            return Err(PyBufferError::new_err(text));
        }
        match stream {
            Some(-1) => self.memory.lend_to_any(),
            None => self.memory.lend(Stream(0))?,
            Some(number) => self.memory.lend(Stream::of_protocol(number)?)?,
        }
        dlpack::capsule(py, self, is_versioned)
    }
}

#[pymethods]
impl Array {
    /// The address of the first element on the device.
    #[getter]
    fn ptr(&self) -> usize {
        self.address
    }

    /// The size of the elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.layout.elements() * self.layout.dtype.bytes()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.layout.elements()
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.layout.shape.len()
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.layout.shape)
    }

    /// The bytes from one element of each dimension to the next.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let item = self.layout.dtype.bytes() as i64;
        PyTuple::new(py, self.layout.strides.iter().map(|stride| stride * item))
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.layout.dtype.name
    }

    /// The number of the device.
    #[getter]
    fn device(&self) -> i32 {
        self.memory.device()
    }

    /// Whether the device refuses writes.
    #[getter]
    fn is_read_only(&self) -> bool {
        self.memory.is_read_only()
    }

    /// The array for CuPy, Numba and PyTorch.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.interface(py)
    }

    /// Returns the device as DLPack names it.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CUDA, self.memory.device())
    }

    /// Returns the array as a DLPack capsule. Work of the consumer's `stream` waits for the work of the memory's stream, and the
    /// memory is not reused before it is done. -1 means no stream: then the caller orders the work.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.export(py, stream, max_version, dl_device, copy)
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.layout.shape.first();
        first
            .map(|&length| length as usize)
            .ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("an array without dimensions has no length"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (dtype, shape, address) = (self.layout.dtype.name, self.shape(py)?.repr()?, self.address);
        let read_only = if self.memory.is_read_only() { ", read-only" } else { "" };
        let (device, of) = (self.memory.device(), self.memory.name());
        Ok(format!("<freehold.Array of {dtype} {shape} at {address:#x}, device {device}, in {of}{read_only}>"))
    }
}
