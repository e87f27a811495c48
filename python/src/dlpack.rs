//! DLPack: arrays of bytes for other libraries.

use std::ffi::{CStr, c_void};
use std::ptr;

use pyo3::ffi as python;
use pyo3::prelude::*;

/// `kDLCUDA`.
pub(crate) const CUDA: i32 = 2;

const UINT: u8 = 1;
const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

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
    _owner: Py<PyAny>,
    shape: [i64; 1],
    strides: [i64; 1],
}

fn tensor(address: usize, bytes: usize, device: i32, kept: &mut Kept) -> Tensor {
    kept.shape = [bytes as i64];
    kept.strides = [1];
    Tensor {
        data: ptr::without_provenance_mut(address),
        device: (CUDA, device),
        dimensions: 1,
        code: UINT,
        bits: 8,
        lanes: 1,
        shape: kept.shape.as_mut_ptr(),
        strides: kept.strides.as_mut_ptr(),
        offset: 0,
    }
}

/// Returns a capsule with the memory as an array of bytes, which keeps `owner` alive.
pub(crate) fn capsule(
    py: Python<'_>,
    address: usize,
    bytes: usize,
    device: i32,
    owner: Py<PyAny>,
    is_versioned: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let mut kept = Box::new(Kept { _owner: owner, shape: [0], strides: [0] });
    let tensor = tensor(address, bytes, device, &mut kept);
    let context = Box::into_raw(kept).cast();
    let (object, name, destructor): (*mut c_void, _, python::PyCapsule_Destructor) = if is_versioned {
        let managed =
            ManagedVersioned { version: (1, 0), context, deleter: Some(delete_versioned), flags: 0, tensor };
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

/// Drops what an array kept alive, in whatever thread its consumer dropped it.
fn release(context: *mut c_void) {
    // SAFETY: the pointer is that of a box which `capsule` leaked, and a deleter is called once.
    let kept = unsafe { Box::from_raw(context.cast::<Kept>()) };
    let mut kept = Some(kept);
    // The owner stays alive if the interpreter has ended: the memory goes with the process.
    if Python::try_attach(|_| drop(kept.take())).is_none() {
        std::mem::forget(kept);
    }
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

/// Returns the object of a capsule that no consumer took: one that did has renamed it.
unsafe fn untaken(capsule: *mut python::PyObject, name: &'static CStr) -> Option<*mut c_void> {
    // SAFETY: the argument is a capsule, and the name ends with a zero byte.
    let is_untaken = unsafe { python::PyCapsule_IsValid(capsule, name.as_ptr()) } == 1;
    // SAFETY: the capsule has this name.
    is_untaken.then(|| unsafe { python::PyCapsule_GetPointer(capsule, name.as_ptr()) })
}

unsafe extern "C" fn destroy(capsule: *mut python::PyObject) {
    // SAFETY: Python passes the capsule.
    if let Some(object) = unsafe { untaken(capsule, PLAIN) } {
        // SAFETY: no consumer took the object.
        unsafe { delete(object.cast()) };
    }
}

unsafe extern "C" fn destroy_versioned(capsule: *mut python::PyObject) {
    // SAFETY: Python passes the capsule.
    if let Some(object) = unsafe { untaken(capsule, VERSIONED) } {
        // SAFETY: no consumer took the object.
        unsafe { delete_versioned(object.cast()) };
    }
}
