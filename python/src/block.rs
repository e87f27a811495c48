//! A block of device memory as a Python object.

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, Shape};
use crate::dlpack::CUDA;
use crate::dtype::{BYTE, DType};
use crate::error::{self, check};
use crate::ffi;
use crate::memory::{Memory, order_after};
use crate::stream::Stream;

/// Device memory with an owner. It is freed when the last reference is gone, in the order of its stream: work that was submitted to the
/// stream before may still use it, and the free does not wait.
#[pyclass(module = "freehold", frozen, weakref)]
#[derive(Debug)]
pub(crate) struct Block {
    memory: Arc<BlockMemory>,
}

/// The memory of a block and of its arrays.
#[derive(Debug)]
struct BlockMemory {
    device: i32,
    stream: Stream,
    tag: Option<String>,
    place: Mutex<Place>,
    /// Whether it was lent to a user that names no stream.
    is_lent_to_any: AtomicBool,
}

/// The address is 0 after the free.
#[derive(Clone, Copy, Debug)]
struct Place {
    address: usize,
    bytes: usize,
}

impl BlockMemory {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the memory in the order of a stream, or of its own and of all users.
    fn free(&self, address: usize, stream: Option<Stream>) -> i32 {
        match stream {
            // SAFETY: the block is this object's.
            None if self.is_lent_to_any.load(Ordering::Relaxed) => unsafe {
                ffi::freehold_free_after_all(pointer(address), self.device)
            },
            stream => {
                let stream = stream.unwrap_or(self.stream);
                // SAFETY: the block is this object's, and the stream is valid, as the caller guarantees.
                unsafe { ffi::freehold_try_free(pointer(address), 0, self.device, stream.pointer()) }
            }
        }
    }
}

impl Memory for BlockMemory {
    fn device(&self) -> i32 {
        self.device
    }

    fn stream(&self) -> Option<Stream> {
        Some(self.stream)
    }

    fn lend(&self, consumer: Stream) -> PyResult<()> {
        if consumer == self.stream {
            return Ok(());
        }
        order_after(self.device, consumer, self.stream)?;
        // SAFETY: the stream is valid, as the caller guarantees.
        check(unsafe { ffi::freehold_record_use(pointer(self.place().address), consumer.pointer()) })
    }

    fn lend_to_any(&self) {
        self.is_lent_to_any.store(true, Ordering::Relaxed);
    }

    fn name(&self) -> String {
        let tag = self.tag.as_ref().map(|tag| format!(" with tag {tag:?}")).unwrap_or_default();
        format!("a block of {}{tag}", size(self.place().bytes))
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        let address = self.place().address;
        if address != 0 {
            // The text of a failure is in the library's last error; a destructor cannot raise it.
            self.free(address, None);
        }
    }
}

impl Block {
    pub(crate) fn alloc(
        bytes: usize,
        device: i32,
        stream: Stream,
        tag: Option<String>,
        zeroed: bool,
    ) -> PyResult<Self> {
        let size =
            isize::try_from(bytes).map_err(|_| PyValueError::new_err("nbytes is larger than any device's memory"))?;
        if zeroed && tag.is_some() {
            return Err(PyValueError::new_err("a tagged block cannot be zeroed by the allocation: fill it afterwards"));
        }
        let pointer = match &tag {
            Some(tag) => {
                let tag =
                    CString::new(tag.as_str()).map_err(|_| PyValueError::new_err("a tag contains no zero bytes"))?;
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
        let place = Mutex::new(Place { address: pointer.addr(), bytes });
        let is_lent_to_any = AtomicBool::new(false);
        Ok(Self { memory: Arc::new(BlockMemory { device, stream, tag, place, is_lent_to_any }) })
    }

    /// Returns where the memory is, unless it was freed.
    fn live(&self) -> PyResult<Place> {
        let place = *self.memory.place();
        if place.address == 0 { Err(PyValueError::new_err("the block was freed")) } else { Ok(place) }
    }

    /// Returns where the memory is, unless it was freed, and locks it: no array begins to use it meanwhile.
    fn exclusive(&self) -> PyResult<MutexGuard<'_, Place>> {
        let place = self.memory.place();
        match Arc::strong_count(&self.memory) - 1 {
            0 => Ok(place),
            count => Err(in_use("block", count)),
        }
    }

    fn array(&self, dtype: DType, shape: Option<Shape>, offset: usize) -> PyResult<Array> {
        let place = self.memory.place();
        if place.address == 0 {
            return Err(PyValueError::new_err("the block was freed"));
        }
        Array::view_of(self.memory.clone(), (place.address, place.bytes), dtype, shape, offset)
    }
}

/// Returns the error for memory that arrays still use.
pub(crate) fn in_use(what: &str, count: usize) -> PyErr {
    let (arrays, them) = if count == 1 { ("1 array uses", "it") } else { (&*format!("{count} arrays use"), "them") };
    PyBufferError::new_err(format!("{arrays} the {what}: delete {them} first"))
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
        self.memory.place().bytes
    }

    /// The number of the device.
    #[getter]
    fn device(&self) -> i32 {
        self.memory.device
    }

    /// The handle of the stream in whose order the block is freed.
    #[getter]
    fn stream(&self) -> usize {
        self.memory.stream.0
    }

    /// The tag under which the block is counted.
    #[getter]
    fn tag(&self) -> Option<&str> {
        self.memory.tag.as_deref()
    }

    /// Whether the block was freed.
    #[getter]
    fn is_freed(&self) -> bool {
        self.memory.place().address == 0
    }

    /// Frees the block now, in the order of a stream: its own, unless another is given. Freeing it again does nothing. Raises
    /// BufferError while arrays use it.
    #[pyo3(signature = (stream = None))]
    fn free(&self, stream: Option<Stream>) -> PyResult<()> {
        let mut place = self.exclusive()?;
        if place.address == 0 {
            return Ok(());
        }
        check(self.memory.free(place.address, stream))?;
        place.address = 0;
        Ok(())
    }

    /// Records that work in another stream uses the block: the memory is not reused before the work that is submitted there until
    /// the free is done.
    fn record_use(&self, stream: Stream) -> PyResult<()> {
        // SAFETY: the stream is valid, as the caller guarantees.
        check(unsafe { ffi::freehold_record_use(pointer(self.live()?.address), stream.pointer()) })
    }

    /// Changes the size. The contents stay, and are copied in the order of the block's stream if the block moves; `ptr` is then
    /// another. Raises BufferError while arrays use it.
    fn resize(&self, nbytes: usize) -> PyResult<()> {
        let size =
            isize::try_from(nbytes).map_err(|_| PyValueError::new_err("nbytes is larger than any device's memory"))?;
        self.live()?;
        let mut place = self.exclusive()?;
        let stream = self.memory.stream.pointer();
        // SAFETY: the block is this object's, and its stream is valid.
        let moved = unsafe { ffi::freehold_realloc(pointer(place.address), size, self.memory.device, stream) };
        if moved.is_null() {
            return Err(error::last());
        }
        *place = Place { address: moved.addr(), bytes: nbytes };
        Ok(())
    }

    /// Returns the block from byte `offset` on as an array: of `shape`, or of as many elements as there are.
    #[pyo3(signature = (dtype, shape = None, *, offset = 0))]
    fn view(&self, dtype: DType, shape: Option<Shape>, offset: usize) -> PyResult<Array> {
        self.array(dtype, shape, offset)
    }

    /// The block as an array of bytes, for CuPy, Numba and PyTorch.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.array(BYTE, None, 0)?.interface(py)
    }

    /// Returns the device as DLPack names it.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CUDA, self.memory.device)
    }

    /// Returns the block as an array of bytes. Work of the consumer's `stream` waits for the work of the block's stream, and the
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
        self.array(BYTE, None, 0)?.export(py, stream, max_version, dl_device, copy)
    }

    fn __len__(&self) -> usize {
        self.nbytes()
    }

    fn __repr__(&self) -> String {
        let (Place { address, bytes }, BlockMemory { device, stream, tag, .. }) = (*self.memory.place(), &*self.memory);
        if address == 0 {
            return format!("<freehold.Block of {}, freed>", size(bytes));
        }
        let tag = tag.as_ref().map(|tag| format!(", tag {tag:?}")).unwrap_or_default();
        let stream = if stream.0 == 0 { "the default stream".into() } else { format!("stream {:#x}", stream.0) };
        format!("<freehold.Block of {} at {address:#x}, device {device}, {stream}{tag}>", size(bytes))
    }
}

/// Returns a size as people read it.
pub(crate) fn size(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}
