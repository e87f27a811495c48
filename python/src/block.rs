//! A block of device memory as a Python object.

use std::ffi::{CString, c_void};
use std::sync::Mutex;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::dlpack::{self, CUDA};
use crate::error::{self, check};
use crate::ffi;
use crate::stream::Stream;

/// Device memory with an owner. It is freed when the last reference is gone, in the order of its stream: work that was submitted to the
/// stream before may still use it, and the free does not wait.
#[pyclass(module = "freehold", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Block {
    device: i32,
    stream: Stream,
    tag: Option<String>,
    memory: Mutex<Memory>,
}

/// The address is 0 after the free.
#[derive(Clone, Copy, Debug)]
struct Memory {
    address: usize,
    bytes: usize,
}

impl Block {
    pub(crate) fn alloc(bytes: usize, device: i32, stream: Stream, tag: Option<String>, zeroed: bool) -> PyResult<Self> {
        let size = isize::try_from(bytes).map_err(|_| PyValueError::new_err("nbytes is larger than any device's memory"))?;
        if zeroed && tag.is_some() {
            return Err(PyValueError::new_err("a tagged block cannot be zeroed by the allocation: fill it afterwards"));
        }
        let pointer = match &tag {
            Some(tag) => {
                let tag = CString::new(tag.as_str()).map_err(|_| PyValueError::new_err("a tag contains no zero bytes"))?;
                // SAFETY: the tag ends with a zero byte; the stream is valid, as the caller guarantees.
                unsafe { ffi::freehold_alloc_tagged(size, device, stream.pointer(), tag.as_ptr()) }
            }
            // SAFETY: the stream is valid, as the caller guarantees.
            None if zeroed => unsafe { ffi::freehold_alloc_zeroed(size, device, stream.pointer()) },
            // SAFETY: as above.
            None => unsafe { ffi::freehold_alloc(size, device, stream.pointer()) },
        };
        if pointer.is_null() {
            return Err(error::last());
        }
        Ok(Self { device, stream, tag, memory: Mutex::new(Memory { address: pointer.addr(), bytes }) })
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the address and the size, unless the block was freed.
    fn live(&self) -> PyResult<Memory> {
        let memory = *self.memory();
        if memory.address == 0 { Err(PyValueError::new_err("the block was freed")) } else { Ok(memory) }
    }

    /// Makes `consumer` wait for the work of the block's stream, and keeps the block from reuse until its work is done.
    fn lend_to(&self, consumer: Stream, address: usize) -> PyResult<()> {
        if consumer == self.stream {
            return Ok(());
        }
        // SAFETY: the streams are valid, as the caller guarantees.
        check(unsafe { ffi::freehold_order_after(self.device, consumer.pointer(), self.stream.pointer()) })?;
        // SAFETY: as above.
        check(unsafe { ffi::freehold_record_use(pointer(address), consumer.pointer()) })
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(address)
}

#[pymethods]
impl Block {
    /// The address on the device.
    #[getter]
    fn ptr(&self) -> PyResult<usize> {
        Ok(self.live()?.address)
    }

    /// The size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.memory().bytes
    }

    /// The number of the device.
    #[getter]
    fn device(&self) -> i32 {
        self.device
    }

    /// The handle of the stream in whose order the block is freed.
    #[getter]
    fn stream(&self) -> usize {
        self.stream.0
    }

    /// The tag under which the block is counted.
    #[getter]
    fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Whether the block was freed.
    #[getter]
    fn is_freed(&self) -> bool {
        self.memory().address == 0
    }

    /// Frees the block now, in the order of a stream: its own, unless another is given. Freeing it again does nothing.
    #[pyo3(signature = (stream = None))]
    fn free(&self, stream: Option<Stream>) -> PyResult<()> {
        let mut memory = self.memory();
        if memory.address == 0 {
            return Ok(());
        }
        let stream = stream.unwrap_or(self.stream);
        // SAFETY: the block is this object's, and the stream is valid, as the caller guarantees.
        check(unsafe { ffi::freehold_try_free(pointer(memory.address), 0, self.device, stream.pointer()) })?;
        memory.address = 0;
        Ok(())
    }

    /// Records that work in another stream uses the block: the memory is not reused before the work that is submitted there until
    /// the free is done.
    fn record_use(&self, stream: Stream) -> PyResult<()> {
        // SAFETY: the stream is valid, as the caller guarantees.
        check(unsafe { ffi::freehold_record_use(pointer(self.live()?.address), stream.pointer()) })
    }

    /// Changes the size. The contents stay, and are copied in the order of the block's stream if the block moves; `ptr` is then
    /// another.
    fn resize(&self, nbytes: usize) -> PyResult<()> {
        let size = isize::try_from(nbytes).map_err(|_| PyValueError::new_err("nbytes is larger than any device's memory"))?;
        self.live()?;
        let mut memory = self.memory();
        // SAFETY: the block is this object's, and its stream is valid.
        let moved = unsafe { ffi::freehold_realloc(pointer(memory.address), size, self.device, self.stream.pointer()) };
        if moved.is_null() {
            return Err(error::last());
        }
        *memory = Memory { address: moved.addr(), bytes: nbytes };
        Ok(())
    }

    /// The block as an array of bytes, for CuPy, Numba and PyTorch.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let memory = self.live()?;
        let interface = PyDict::new(py);
        interface.set_item("shape", (memory.bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (memory.address, false))?;
        interface.set_item("version", 3)?;
        // Consumers wait for the work of this stream; 1 is the legacy default stream.
        interface.set_item("stream", self.stream.0.max(1))?;
        Ok(interface)
    }

    /// Returns the device as DLPack names it.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CUDA, self.device)
    }

    /// Returns the block as an array of bytes. Work of the consumer's `stream` waits for the work of the block's stream, and the
    /// memory is not reused before it is done. -1 means no stream: then the caller orders the work.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        slf: Bound<'py, Self>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let block = slf.get();
        let memory = block.live()?;
        if copy == Some(true) {
            return Err(PyBufferError::new_err("a block is exported without a copy only: copy the consumer's array"));
        }
        if dl_device.is_some_and(|wanted| wanted != (CUDA, block.device)) {
            return Err(PyBufferError::new_err("a block is exported on its own device only"));
        }
        match stream {
            Some(-1) => {}
            Some(number) if number < 0 => return Err(PyValueError::new_err("a stream is -1, or not negative")),
            None => block.lend_to(Stream(0), memory.address)?,
            Some(number) => block.lend_to(Stream::of_protocol(number.unsigned_abs()), memory.address)?,
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let py = slf.py();
        dlpack::capsule(py, memory.address, memory.bytes, block.device, slf.into_any().unbind(), is_versioned)
    }

    fn __len__(&self) -> usize {
        self.nbytes()
    }

    fn __repr__(&self) -> String {
        let Memory { address, bytes } = *self.memory();
        if address == 0 {
            return format!("<freehold.Block of {}, freed>", size(bytes));
        }
        let tag = self.tag.as_ref().map(|tag| format!(", tag {tag:?}")).unwrap_or_default();
        let stream = if self.stream.0 == 0 { "the default stream".into() } else { format!("stream {:#x}", self.stream.0) };
        format!("<freehold.Block of {} at {address:#x}, device {}, {stream}{tag}>", size(bytes), self.device)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let memory = *self.memory();
        if memory.address != 0 {
            // The text of a failure is in the library's last error; a destructor cannot raise it.
            // SAFETY: the block is this object's, and its stream was valid when it was allocated.
            unsafe { ffi::freehold_try_free(pointer(memory.address), 0, self.device, self.stream.pointer()) };
        }
    }
}

/// Returns a size as people read it.
fn size(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() == 0.0 { format!("{value:.0} {}", UNITS[unit]) } else { format!("{value:.1} {}", UNITS[unit]) }
}
