//! The native module of the Python package `freehold`, over libfreehold.so.
//!
//! - `ffi`: the functions of the library.
//! - `error`: its errors as exceptions.
//! - `stream`: handles from the streams of other libraries. `dtype`: element types.
//! - `memory`: what arrays refer to, and how it is ordered with its users.
//! - `array`: `freehold.Array`. `dlpack`: arrays for other libraries, and of them. `import`: `from_dlpack`, `asarray`.
//! - `block`, `vector`: `freehold.Block`, `freehold.DeviceVec`.
//! - `broker`: connections to a broker, and leases, for `freehold/broker.py`.
//! - this file: the functions of the module. `raw_alloc` and `raw_free` are for the allocators of other libraries.

mod array;
mod block;
mod broker;
mod dlpack;
mod dtype;
mod error;
mod ffi;
mod import;
mod memory;
mod stream;
mod vector;

use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use block::Block;
use error::check;
use stream::Stream;

/// The memory around an address: who owns it.
#[pyclass(module = "freehold", frozen, get_all)]
#[derive(Clone, Copy, Debug)]
struct Owner {
    /// The first address of the block.
    ptr: usize,
    /// The size that was requested.
    nbytes: usize,
    /// The number of the device.
    device: i32,
    /// The process id.
    process: u32,
    /// Whether the block is allocated; otherwise it was freed.
    is_live: bool,
}

#[pymethods]
impl Owner {
    fn __repr__(&self) -> String {
        let Self { ptr, nbytes, device, process, is_live } = self;
        let state = if *is_live { "allocated" } else { "freed" };
        format!("<freehold.Owner: process {process}, {nbytes} bytes at {ptr:#x} on device {device}, {state}>")
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(address)
}

/// Allocates `nbytes` bytes of device memory for work in a stream.
///
/// The memory is freed with the last reference to the block, in the order of the stream. With a tag, the block counts for the tag's
/// budget. Raises OutOfMemoryError, with the holders of the memory, if there is no room.
#[pyfunction]
#[pyo3(signature = (nbytes, *, device = 0, stream = None, tag = None, zeroed = false))]
fn alloc(nbytes: usize, device: i32, stream: Option<Stream>, tag: Option<String>, zeroed: bool) -> PyResult<Block> {
    Block::alloc(nbytes, device, stream.unwrap_or(Stream(0)), tag, zeroed)
}

/// Allocates memory without an object; the caller frees it with raw_free. Returns 0 for 0 bytes.
#[pyfunction]
#[pyo3(signature = (nbytes, device = 0, stream = None))]
fn raw_alloc(nbytes: usize, device: i32, stream: Option<Stream>) -> PyResult<usize> {
    if nbytes == 0 {
        return Ok(0);
    }
    let size =
        isize::try_from(nbytes).map_err(|_| PyValueError::new_err("nbytes is larger than any device's memory"))?;
    // SAFETY: the stream is valid, as the caller guarantees.
    let block = unsafe { ffi::freehold_alloc(size, device, stream.unwrap_or(Stream(0)).pointer()) };
    if block.is_null() { Err(error::last()) } else { Ok(block.addr()) }
}

/// Frees memory of raw_alloc in the order of a stream. 0 is ignored.
#[pyfunction]
#[pyo3(signature = (ptr, device = 0, stream = None))]
fn raw_free(ptr: usize, device: i32, stream: Option<Stream>) -> PyResult<()> {
    // SAFETY: the stream is valid, as the caller guarantees; the library checks the address.
    check(unsafe { ffi::freehold_try_free(pointer(ptr), 0, device, stream.unwrap_or(Stream(0)).pointer()) })
}

/// Frees memory of raw_alloc after all work that was submitted to the device before. Does not wait. 0 is ignored.
#[pyfunction]
#[pyo3(signature = (ptr, device = 0))]
fn free_after_all(ptr: usize, device: i32) -> PyResult<()> {
    // SAFETY: the library checks the address.
    check(unsafe { ffi::freehold_free_after_all(pointer(ptr), device) })
}

/// Records that work in a stream uses the block at an address: the memory is not reused before that work is done.
#[pyfunction]
fn record_use(ptr: usize, stream: Stream) -> PyResult<()> {
    // SAFETY: the stream is valid, as the caller guarantees; the library checks the address.
    check(unsafe { ffi::freehold_record_use(pointer(ptr), stream.pointer()) })
}

/// Makes work that is submitted to one stream from now on wait, on the device, for earlier work of another.
#[pyfunction]
#[pyo3(signature = (later, earlier, *, device = 0))]
fn order_after(later: Stream, earlier: Stream, device: i32) -> PyResult<()> {
    // SAFETY: the streams are valid, as the caller guarantees.
    check(unsafe { ffi::freehold_order_after(device, later.pointer(), earlier.pointer()) })
}

/// Tells the library that a stream is about to be destroyed. Streams of PyTorch live as long as the process.
#[pyfunction]
fn retire_stream(stream: Stream) -> PyResult<()> {
    // SAFETY: the stream is valid, as the caller guarantees.
    check(unsafe { ffi::freehold_stream_retire(stream.pointer()) })
}

/// Returns the bytes that the pool has reserved from the driver on a device.
#[pyfunction]
#[pyo3(signature = (device = 0))]
fn reserved_bytes(device: i32) -> usize {
    // SAFETY: the call takes a number.
    unsafe { ffi::freehold_reserved_bytes(device) }
}

/// Returns the bytes that were requested on a device and are not freed.
#[pyfunction]
#[pyo3(signature = (device = 0))]
fn live_bytes(device: i32) -> usize {
    // SAFETY: the call takes a number.
    unsafe { ffi::freehold_live_bytes(device) }
}

/// Returns free memory to the driver until at most `keep` bytes are reserved.
#[pyfunction]
#[pyo3(signature = (keep = 0, *, device = 0))]
fn trim(keep: usize, device: i32) -> PyResult<()> {
    // SAFETY: the call takes numbers.
    check(unsafe { ffi::freehold_trim(device, keep) })
}

/// Limits the memory that this process reserves on a device, for all libraries that use Freehold. None means no limit.
#[pyfunction]
#[pyo3(signature = (nbytes, *, device = 0))]
fn set_budget(nbytes: Option<usize>, device: i32) -> PyResult<()> {
    // SAFETY: the call takes numbers.
    check(unsafe { ffi::freehold_set_budget(device, nbytes.unwrap_or(usize::MAX)) })
}

fn tag_name(tag: &str) -> PyResult<CString> {
    CString::new(tag).map_err(|_| PyValueError::new_err("a tag contains no zero bytes"))
}

/// Limits the live bytes under a tag and the tags within it. None means no limit.
#[pyfunction]
#[pyo3(signature = (tag, nbytes, *, device = 0))]
fn set_tag_budget(tag: &str, nbytes: Option<usize>, device: i32) -> PyResult<()> {
    let tag = tag_name(tag)?;
    // SAFETY: the tag ends with a zero byte.
    check(unsafe { ffi::freehold_set_tag_budget(device, tag.as_ptr(), nbytes.unwrap_or(usize::MAX)) })
}

/// Returns the live bytes under a tag and the tags within it.
#[pyfunction]
#[pyo3(signature = (tag, *, device = 0))]
fn tag_bytes(tag: &str, device: i32) -> PyResult<usize> {
    let tag = tag_name(tag)?;
    // SAFETY: the tag ends with a zero byte.
    Ok(unsafe { ffi::freehold_tag_bytes(device, tag.as_ptr()) })
}

/// Returns the owner of the block that contains an address.
#[pyfunction]
fn owner_of(ptr: usize) -> PyResult<Owner> {
    let mut owner = MaybeUninit::uninit();
    // SAFETY: `owner` outlives the call, which writes one value to it.
    check(unsafe { ffi::freehold_owner_of(pointer(ptr), owner.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it has written the value.
    let ffi::Owner { base, size, device, process, is_live, .. } = unsafe { owner.assume_init() };
    Ok(Owner { ptr: base.addr(), nbytes: size, device, process, is_live })
}

#[pymodule]
fn _freehold(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // SAFETY: the call has no conditions.
    let version = unsafe { ffi::freehold_version() };
    // SAFETY: the text ends with a zero byte and lives as long as the program.
    let version = unsafe { CStr::from_ptr(version) };
    module.add("__version__", version.to_string_lossy())?;
    module.add("Error", module.py().get_type::<error::Error>())?;
    module.add("OutOfMemoryError", module.py().get_type::<error::OutOfMemoryError>())?;
    module.add_class::<array::Array>()?;
    module.add_class::<Block>()?;
    module.add_class::<vector::DeviceVec>()?;
    module.add_class::<Owner>()?;
    module.add_class::<broker::Connection>()?;
    module.add_class::<broker::Lease>()?;
    macro_rules! functions {
        ($($name:ident)*) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    functions!(alloc raw_alloc raw_free free_after_all record_use order_after retire_stream reserved_bytes live_bytes trim);
    module.add_function(wrap_pyfunction!(import::from_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(import::asarray, module)?)?;
    functions!(set_budget set_tag_budget tag_bytes owner_of);
    Ok(())
}
