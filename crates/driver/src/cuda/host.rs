//! Pinned host memory: allocated by the driver, or registered memory of the program.

use std::ffi::c_void;

use super::api::Api;
use super::call::{DriverError, call};
use super::types::CUdeviceptr;

/// Allocates pinned memory. It lives until [`free`] or until its context is destroyed.
pub fn alloc(api: &Api, bytes: usize) -> Result<*mut c_void, DriverError> {
    let mut start = std::ptr::null_mut();
    // SAFETY: `start` outlives the call, which writes one pointer to it.
    unsafe { call!(api.cuMemAllocHost_v2(&mut start, bytes)) }?;
    Ok(start)
}

/// Allocates pinned memory; `flags` as in [`host_alloc_flags`](super::host_alloc_flags).
pub fn alloc_with_flags(api: &Api, bytes: usize, flags: u32) -> Result<*mut c_void, DriverError> {
    let mut start = std::ptr::null_mut();
    // SAFETY: `start` outlives the call, which writes one pointer to it.
    unsafe { call!(api.cuMemHostAlloc(&mut start, bytes, flags)) }?;
    Ok(start)
}

/// Frees memory of [`alloc`] or [`alloc_with_flags`] once all work of its context is done.
///
/// # Safety
/// If `start` is such memory, nothing on the host uses it from the call on, whether through a reference or a pointer.
pub unsafe fn free(api: &Api, start: *mut c_void) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that nothing uses the freed memory; the driver rejects any other pointer unread.
    unsafe { call!(api.cuMemFreeHost(start)) }
}

/// Returns the device's address of pinned memory that the host has at `start`. `flags` is zero.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "the driver looks the pointer up and never reads through it")]
pub fn device_address(api: &Api, start: *mut c_void, flags: u32) -> Result<CUdeviceptr, DriverError> {
    let mut address = CUdeviceptr::NULL;
    // SAFETY: `address` outlives the call, which writes one address to it; `start` is looked up, not read.
    unsafe { call!(api.cuMemHostGetDevicePointer_v2(&mut address, start, flags)) }?;
    Ok(address)
}

/// Returns the flags that pinned memory was allocated with.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "the driver looks the pointer up and never reads through it")]
pub fn flags(api: &Api, start: *mut c_void) -> Result<u32, DriverError> {
    let mut flags = 0;
    // SAFETY: `flags` outlives the call, which writes one `u32` to it; `start` is looked up, not read.
    unsafe { call!(api.cuMemHostGetFlags(&mut flags, start)) }?;
    Ok(flags)
}

/// Pins memory of the program; `flags` as in [`host_register_flags`](super::host_register_flags).
///
/// # Safety
/// If the call succeeds, the `bytes` at `start` stay mapped until [`unregister`] has returned or the context is
/// destroyed. While work of a device writes there, no reference to that memory is used; while it reads, nothing is
/// written through one.
pub unsafe fn register(api: &Api, start: *mut c_void, bytes: usize, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that the memory stays mapped while it is pinned, and keeps it apart from the
    // device's work.
    unsafe { call!(api.cuMemHostRegister_v2(start, bytes, flags)) }
}

/// Unpins memory of [`register`].
///
/// # Safety
/// No work that uses the memory is pending or running, and none begins later.
pub unsafe fn unregister(api: &Api, start: *mut c_void) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that no work uses the memory.
    unsafe { call!(api.cuMemHostUnregister(start)) }
}
