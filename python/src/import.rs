//! Arrays of other libraries: `freehold.from_dlpack` and `freehold.asarray`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::array::{Array, Layout};
use crate::dlpack::{CUDA, Taken, not_cuda};
use crate::dtype::DType;
use crate::ffi;
use crate::memory::{Memory, Release, order_after};
use crate::stream::Stream;

/// Memory of another library.
#[derive(Debug)]
struct Imported {
    device: i32,
    /// The stream that waits for the library's work.
    stream: Option<Stream>,
    is_read_only: bool,
    /// Whether other streams may use it.
    is_lent: AtomicBool,
    /// Empty when it is dropped.
    holder: Option<Holder>,
}

/// What keeps the memory.
#[derive(Debug)]
enum Holder {
    Taken(Taken),
    Object(Py<PyAny>),
}

impl Holder {
    fn release(self) {
        match self {
            Self::Taken(taken) => drop(taken),
            Self::Object(object) => {
                let mut object = Some(object);
                // The memory goes with the process if the interpreter has ended.
                if Python::try_attach(|_| drop(object.take())).is_none() {
                    std::mem::forget(object);
                }
            }
        }
    }
}

impl Memory for Imported {
    fn device(&self) -> i32 {
        self.device
    }

    fn stream(&self) -> Option<Stream> {
        self.stream
    }

    fn lend(&self, consumer: Stream) -> PyResult<()> {
        if let Some(stream) = self.stream {
            order_after(self.device, consumer, stream)?;
        }
        if self.stream != Some(consumer) {
            self.lend_to_any();
        }
        Ok(())
    }

    fn lend_to_any(&self) {
        self.is_lent.store(true, Ordering::Relaxed);
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn name(&self) -> String {
        "memory of another library".into()
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        let Some(holder) = self.holder.take() else { return };
        match self.stream {
            // The library reuses the memory in the order of its stream.
            Some(stream) if self.is_lent.load(Ordering::Relaxed) => {
                Release { device: self.device, stream, release: Box::new(|| holder.release()) }.run();
            }
            _ => holder.release(),
        }
    }
}

/// Returns the array of a DLPack capsule, or of an object with `__dlpack__`, without a copy.
///
/// Work in `stream` (default: the legacy default stream) is ordered after the library's work with the array, and so is work of
/// consumers of the returned array. Raises BufferError for memory that is not a CUDA device's, and ValueError for a capsule
/// that was consumed before.
#[pyfunction]
#[pyo3(signature = (array, /, *, stream = None))]
pub(crate) fn from_dlpack(array: &Bound<'_, PyAny>, stream: Option<Stream>) -> PyResult<Array> {
    let stream = stream.unwrap_or(Stream(0));
    if array.is_instance_of::<PyCapsule>() {
        return of_capsule(array, stream);
    }
    let Ok(device) = array.getattr("__dlpack_device__") else { return Err(no_array(array, "__dlpack__")) };
    let (kind, _): (i32, i32) = device.call0()?.extract()?;
    if kind != CUDA {
        return Err(not_cuda(kind));
    }
    let arguments = PyDict::new(array.py());
    arguments.set_item("stream", stream.to_protocol())?;
    arguments.set_item("max_version", (1, 0))?;
    let capsule = match array.call_method("__dlpack__", (), Some(&arguments)) {
        // Producers before DLPack 1.0 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(array.py()) => {
            arguments.del_item("max_version")?;
            array.call_method("__dlpack__", (), Some(&arguments))?
        }
        capsule => capsule?,
    };
    of_capsule(&capsule, stream)
}

fn of_capsule(capsule: &Bound<'_, PyAny>, stream: Stream) -> PyResult<Array> {
    let taken = Taken::from_capsule(capsule)?;
    let (device, address, layout, is_read_only) =
        (taken.device()?, taken.address(), taken.layout()?, taken.is_read_only());
    let holder = Some(Holder::Taken(taken));
    let memory = Imported { device, stream: Some(stream), is_read_only, is_lent: AtomicBool::new(false), holder };
    Ok(Array { memory: Arc::new(memory), address, layout })
}

fn no_array(object: &Bound<'_, PyAny>, method: &str) -> PyErr {
    match object.get_type().name() {
        Ok(kind) => PyTypeError::new_err(format!("{kind} is not an array of a device: it has no {method}")),
        Err(error) => error,
    }
}

/// Returns the array of an object with `__cuda_array_interface__`, or else with `__dlpack__`, without a copy.
///
/// Work in `stream` (the legacy default stream, unless another is given) then follows the stream that the interface names. The
/// interface names no device: `device` is that of memory which is not Freehold's.
#[pyfunction]
#[pyo3(signature = (array, /, *, device = 0, stream = None))]
pub(crate) fn asarray(array: &Bound<'_, PyAny>, device: i32, stream: Option<Stream>) -> PyResult<Array> {
    let Ok(interface) = array.getattr("__cuda_array_interface__") else {
        if array.hasattr("__dlpack__")? {
            return from_dlpack(array, stream);
        }
        return Err(no_array(array, "__cuda_array_interface__ and no __dlpack__"));
    };
    let invalid = |what: &str| PyValueError::new_err(format!("{what} in __cuda_array_interface__"));
    let interface = interface.cast_into::<PyDict>().map_err(|_| invalid("no dictionary"))?;
    let need = |name: &str| interface.get_item(name)?.ok_or_else(|| invalid(&format!("no {name}")));
    let optional = |name: &str| interface.get_item(name).map(|found| found.filter(|value| !value.is_none()));
    if optional("mask")?.is_some() {
        return Err(PyBufferError::new_err(
            "an array with a mask is not supported: take its data and its mask one by one",
        ));
    }
    let (address, is_read_only): (usize, bool) = need("data")?.extract()?;
    let (dtype, shape): (DType, Vec<i64>) = (need("typestr")?.extract()?, need("shape")?.extract()?);
    let layout = match optional("strides")? {
        None => Layout::contiguous(dtype, shape)?,
        Some(strides) => {
            let strides: Vec<i64> = strides.extract()?;
            let item = dtype.bytes() as i64;
            if strides.iter().any(|stride| stride % item != 0) {
                return Err(invalid("strides that are not whole elements"));
            }
            Layout::strided(dtype, shape, strides.into_iter().map(|stride| stride / item).collect())?
        }
    };
    let device = owner(address).unwrap_or(device);
    let stream = stream.unwrap_or(Stream(0));
    let own = match optional("stream")? {
        None => None,
        Some(theirs) => {
            order_after(device, stream, Stream::of_protocol(theirs.extract()?)?)?;
            Some(stream)
        }
    };
    let holder = Some(Holder::Object(array.clone().unbind()));
    let memory = Imported { device, stream: own, is_read_only, is_lent: AtomicBool::new(false), holder };
    Ok(Array { memory: Arc::new(memory), address, layout })
}

/// Returns the device of Freehold's memory at an address.
fn owner(address: usize) -> Option<i32> {
    let mut owner = std::mem::MaybeUninit::<ffi::Owner>::uninit();
    // SAFETY: there is room for an owner.
    let code = unsafe { ffi::freehold_owner_of(std::ptr::without_provenance(address), owner.as_mut_ptr()) };
    // SAFETY: the call succeeded, and has written it.
    (code == 0).then(|| unsafe { owner.assume_init() }.device)
}
