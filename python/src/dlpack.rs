//! DLPack: arrays for other libraries, and arrays of other libraries.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi as python;
use pyo3::prelude::*;

use crate::array::{Array, Layout};
use crate::dtype::DType;
use crate::memory::Memory;

/// `kDLCUDA`.
pub(crate) const CUDA: i32 = 2;

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_PLAIN: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
struct Tensor {
    data: *mut c_void,
    device: (i32, i32),
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
struct ManagedVersioned {
    version: (u32, u32),
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What an exported array keeps alive.
#[derive(Debug)]
struct Kept {
    _memory: Arc<dyn Memory>,
    layout: Layout,
}

/// Returns a capsule with an array, which keeps the memory alive.
pub(crate) fn capsule<'py>(py: Python<'py>, array: &Array, is_versioned: bool) -> PyResult<Bound<'py, PyAny>> {
    let mut kept = Box::new(Kept { _memory: array.memory.clone(), layout: array.layout.clone() });
    let dtype = array.layout.dtype;
    let tensor = Tensor {
        data: ptr::without_provenance_mut(array.address),
        device: (CUDA, array.memory.device()),
        dimensions: kept.layout.shape.len() as i32,
        code: dtype.code,
        bits: dtype.bits,
        lanes: 1,
        shape: kept.layout.shape.as_mut_ptr(),
        strides: kept.layout.strides.as_mut_ptr(),
        offset: 0,
    };
    let context = Box::into_raw(kept).cast();
    let flags = if array.memory.is_read_only() { READ_ONLY } else { 0 };
    let (object, name, destructor): (*mut c_void, _, python::PyCapsule_Destructor) = if is_versioned {
        let managed = ManagedVersioned { version: (1, 0), context, deleter: Some(delete_versioned), flags, tensor };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED, destroy_versioned)
    } else {
        let managed = Managed { tensor, context, deleter: Some(delete) };
        (Box::into_raw(Box::new(managed)).cast(), PLAIN, destroy)
    };
    // SAFETY: the name lives as long as the program, and the destructor takes a capsule with such an object.
    let capsule = unsafe { python::PyCapsule_New(object, name.as_ptr(), Some(destructor)) };
    // SAFETY: the call returned a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// Drops what an exported array kept alive, on the thread on which its consumer dropped it.
fn release(context: *mut c_void) {
    // SAFETY: the pointer is that of a box which `capsule` leaked, and a deleter is called once.
    drop(unsafe { Box::from_raw(context.cast::<Kept>()) });
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: the consumer passes the object that it got, once.
    let managed = unsafe { Box::from_raw(managed) };
    release(managed.context);
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: the consumer passes the object that it got, once.
    let managed = unsafe { Box::from_raw(managed) };
    release(managed.context);
}

fn has_name(capsule: *mut python::PyObject, name: &'static CStr) -> bool {
    // SAFETY: the call takes any object, and the name ends with a zero byte.
    unsafe { python::PyCapsule_IsValid(capsule, name.as_ptr()) == 1 }
}

/// Returns the object of a capsule that no consumer took: one that did has renamed it.
fn untaken(capsule: *mut python::PyObject, name: &'static CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the object is a capsule with this name.
    has_name(capsule, name).then(|| NonNull::new(unsafe { python::PyCapsule_GetPointer(capsule, name.as_ptr()) }))?
}

unsafe extern "C" fn destroy(capsule: *mut python::PyObject) {
    if let Some(object) = untaken(capsule, PLAIN) {
        // SAFETY: no consumer took the object.
        unsafe { delete(object.as_ptr().cast()) };
    }
}

unsafe extern "C" fn destroy_versioned(capsule: *mut python::PyObject) {
    if let Some(object) = untaken(capsule, VERSIONED) {
        // SAFETY: no consumer took the object.
        unsafe { delete_versioned(object.as_ptr().cast()) };
    }
}

/// An array of another library. Dropping it calls the library's deleter.
#[derive(Debug)]
pub(crate) struct Taken {
    managed: AnyManaged,
}

#[derive(Debug)]
enum AnyManaged {
    Plain(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

// SAFETY: a consumer may use and delete the object in any thread.
unsafe impl Send for Taken {}
// SAFETY: nothing is changed through a reference.
unsafe impl Sync for Taken {}

impl Taken {
    /// Takes the array of a capsule.
    pub(crate) fn from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let raw = capsule.as_ptr();
        let rename = |name: &'static CStr| {
            // SAFETY: the object is a capsule, and the name lives as long as the program.
            unsafe { python::PyCapsule_SetName(raw, name.as_ptr()) };
        };
        let managed = if let Some(object) = untaken(raw, VERSIONED) {
            rename(USED_VERSIONED);
            AnyManaged::Versioned(object.cast())
        } else if let Some(object) = untaken(raw, PLAIN) {
            rename(USED_PLAIN);
            AnyManaged::Plain(object.cast())
        } else if has_name(raw, USED_PLAIN) || has_name(raw, USED_VERSIONED) {
            return Err(PyValueError::new_err(
                "the capsule was consumed before: call __dlpack__ again for another one",
            ));
        } else {
            return Err(PyValueError::new_err("the capsule holds no DLPack array"));
        };
        let taken = Self { managed };
        let AnyManaged::Versioned(versioned) = &taken.managed else { return Ok(taken) };
        // SAFETY: the version is at the same place in every version of the structure, which the producer keeps.
        let (major, minor) = unsafe { versioned.as_ref() }.version;
        if major != 1 {
            return Err(PyBufferError::new_err(format!(
                "the array is of DLPack {major}.{minor}: version 1 is supported"
            )));
        }
        Ok(taken)
    }

    fn tensor(&self) -> &Tensor {
        match &self.managed {
            // SAFETY: the producer keeps the structure until it is deleted.
            AnyManaged::Plain(managed) => unsafe { &managed.as_ref().tensor },
            // SAFETY: as above.
            AnyManaged::Versioned(managed) => unsafe { &managed.as_ref().tensor },
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        match &self.managed {
            AnyManaged::Plain(_) => false,
            // SAFETY: the producer keeps the structure until it is deleted.
            AnyManaged::Versioned(managed) => unsafe { managed.as_ref().flags & READ_ONLY != 0 },
        }
    }

    /// Returns the number of the device.
    pub(crate) fn device(&self) -> PyResult<i32> {
        match self.tensor().device {
            (CUDA, device) => Ok(device),
            (kind, _) => Err(not_cuda(kind)),
        }
    }

    pub(crate) fn address(&self) -> usize {
        let tensor = self.tensor();
        tensor.data.addr() + tensor.offset as usize
    }

    pub(crate) fn layout(&self) -> PyResult<Layout> {
        let tensor = self.tensor();
        let dtype = DType::of_dlpack(tensor.code, tensor.bits, tensor.lanes)?;
        let count = usize::try_from(tensor.dimensions).unwrap_or_default();
        let numbers = |start: *mut i64| {
            // SAFETY: the producer keeps as many numbers there as the array has dimensions.
            if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(start, count) }.to_vec() }
        };
        let shape = numbers(tensor.shape);
        if tensor.strides.is_null() {
            return Layout::contiguous(dtype, shape);
        }
        Layout::strided(dtype, shape, numbers(tensor.strides))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        match self.managed {
            AnyManaged::Plain(managed) => {
                // SAFETY: the producer keeps the structure until it is deleted.
                if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: the structure is deleted once.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
            AnyManaged::Versioned(managed) => {
                // SAFETY: the deleter is at the same place in every version of the structure, which the producer keeps.
                if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: the structure is deleted once.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
        }
    }
}

/// Returns the error for an array on another kind of device.
pub(crate) fn not_cuda(kind: i32) -> PyErr {
    let of = match kind {
        1 => "the host's".to_owned(),
        3 => "pinned host memory".to_owned(),
        13 => "managed memory".to_owned(),
        kind => format!("of DLPack device type {kind}"),
    };
    PyBufferError::new_err(format!("the array is {of}, not CUDA memory: copy it to the device first"))
}
