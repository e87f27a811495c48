//! The driver's log of error messages.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::from_mut;

use super::api::Api;
use super::call::{DriverError, call};
use super::kernel_types::{CUlogIterator, CUlogLevel, CUlogsCallbackHandle};

/// Registers `callback`, which is called with every message from now on.
///
/// # Safety
/// `callback` may be called with `data` on any thread, until [`unregister`] has returned. It does not unwind, and does
/// not call the driver.
pub unsafe fn register(
    api: &Api,
    callback: unsafe extern "C" fn(data: *mut c_void, level: CUlogLevel, message: *mut c_char, length: usize),
    data: *mut c_void,
) -> Result<CUlogsCallbackHandle, DriverError> {
    let mut handle = CUlogsCallbackHandle::NULL;
    // SAFETY: `handle` outlives the call, which writes one handle to it; the caller guarantees that it allows calls of
    // `callback` with `data`.
    unsafe { call!(api.cuLogsRegisterCallback(Some(callback), data, &mut handle)) }?;
    Ok(handle)
}

/// Removes a callback.
pub fn unregister(api: &Api, handle: CUlogsCallbackHandle) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuLogsUnregisterCallback(handle)) }
}

/// Returns the current end of the log. `flags` is zero.
pub fn current(api: &Api, flags: u32) -> Result<CUlogIterator, DriverError> {
    let mut iterator = 0;
    // SAFETY: `iterator` outlives the call, which writes one value to it.
    unsafe { call!(api.cuLogsCurrent(&mut iterator, flags)) }?;
    Ok(iterator)
}

/// Writes the log to a file: from `iterator` on, which moves to the end, or all of it. `flags` is zero.
pub fn dump_to_file(
    api: &Api,
    iterator: Option<&mut CUlogIterator>,
    path: &CStr,
    flags: u32,
) -> Result<(), DriverError> {
    let iterator = iterator.map_or(std::ptr::null_mut(), from_mut);
    // SAFETY: `iterator` is null or outlives the call, which reads and writes one value there; `path` ends in a NUL.
    unsafe { call!(api.cuLogsDumpToFile(iterator, path.as_ptr(), flags)) }
}

/// Returns the log, from `iterator` on, which moves to the end, or all of it: at most `bytes`. `flags` is zero.
pub fn dump(api: &Api, iterator: Option<&mut CUlogIterator>, bytes: usize, flags: u32) -> Result<String, DriverError> {
    let iterator = iterator.map_or(std::ptr::null_mut(), from_mut);
    let mut text = vec![0u8; bytes];
    let mut length = bytes;
    // SAFETY: `iterator` is null or outlives the call, which reads and writes one value there; `text` holds the
    // `length` bytes that the call may write; `length` outlives the call, which writes one value to it.
    unsafe { call!(api.cuLogsDumpToMemory(iterator, text.as_mut_ptr().cast(), &mut length, flags)) }?;
    text.truncate(length.min(bytes));
    Ok(String::from_utf8_lossy(&text).into_owned())
}
