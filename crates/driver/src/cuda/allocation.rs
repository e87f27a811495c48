//! Memory without an address. It lives as long as a handle, a mapping or a descriptor of it.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::api::Api;
use super::call::{DriverError, call};
use super::mapping_types::{CUmemAllocationGranularity_flags, CUmemAllocationProp, CUmemGenericAllocationHandle};
use super::types::{CUdevice, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation};

/// Returns the unit of the sizes of such memory and of the addresses that it is mapped to.
pub fn granularity_bytes(
    api: &Api,
    prop: &CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> Result<usize, DriverError> {
    let mut bytes = 0;
    // SAFETY: `bytes` and `prop` outlive the call, which writes one number to the first and reads the second.
    unsafe { call!(api.cuMemGetAllocationGranularity(&mut bytes, prop, option)) }?;
    Ok(bytes)
}

/// Allocates memory of a device.
pub fn create(
    api: &Api,
    bytes: usize,
    prop: &CUmemAllocationProp,
) -> Result<CUmemGenericAllocationHandle, DriverError> {
    let mut allocation = CUmemGenericAllocationHandle::default();
    // SAFETY: `allocation` and `prop` outlive the call, which writes one handle to the first and reads the second.
    unsafe { call!(api.cuMemCreate(&mut allocation, bytes, prop, 0)) }?;
    Ok(allocation)
}

/// Releases a handle. The memory lives on while it is mapped or another handle or descriptor of it exists.
pub fn release(api: &Api, allocation: CUmemGenericAllocationHandle) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuMemRelease(allocation)) }
}

/// Returns the properties that the memory was created with.
pub fn properties(api: &Api, allocation: CUmemGenericAllocationHandle) -> Result<CUmemAllocationProp, DriverError> {
    let mut prop = CUmemAllocationProp {
        kind: CUmemAllocationType::INVALID,
        location: CUmemLocation::default(),
        ..CUmemAllocationProp::on_device(CUdevice(0), CUmemAllocationHandleType::NONE)
    };
    // SAFETY: `prop` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuMemGetAllocationPropertiesFromHandle(&mut prop, allocation)) }?;
    Ok(prop)
}

/// Returns one more handle of the memory that is mapped to an address.
pub fn retain(api: &Api, start: CUdeviceptr) -> Result<CUmemGenericAllocationHandle, DriverError> {
    let mut allocation = CUmemGenericAllocationHandle::default();
    let start = ptr::without_provenance_mut::<c_void>(start.0 as usize);
    // SAFETY: `allocation` outlives the call, which writes one handle to it; `start` is not followed.
    unsafe { call!(api.cuMemRetainAllocationHandle(&mut allocation, start)) }?;
    Ok(allocation)
}

/// Returns a descriptor of the memory. The descriptor alone keeps the memory alive.
pub fn export(api: &Api, allocation: CUmemGenericAllocationHandle) -> Result<OwnedFd, DriverError> {
    let mut descriptor: c_int = -1;
    let shareable = (&raw mut descriptor).cast::<c_void>();
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: `descriptor` outlives the call, which writes one descriptor to it for this kind.
    unsafe { call!(api.cuMemExportToShareableHandle(shareable, allocation, kind, 0)) }?;
    // SAFETY: the driver opened the descriptor for the caller, which owns it alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns the memory that a descriptor refers to. The descriptor may be closed afterwards.
pub fn import(api: &Api, descriptor: BorrowedFd<'_>) -> Result<CUmemGenericAllocationHandle, DriverError> {
    let mut allocation = CUmemGenericAllocationHandle::default();
    // The driver treats descriptor 0 as none. A duplicate has another number; without one, the driver rejects the call.
    let another = if descriptor.as_raw_fd() == 0 { descriptor.try_clone_to_owned().ok() } else { None };
    let descriptor = another.as_ref().map_or(descriptor, AsFd::as_fd);
    let shareable = ptr::without_provenance_mut::<c_void>(descriptor.as_raw_fd() as usize);
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: `allocation` outlives the call, which writes one handle to it; the pointer is the descriptor's number
    // for this kind and is not followed.
    unsafe { call!(api.cuMemImportFromShareableHandle(&mut allocation, shareable, kind)) }?;
    Ok(allocation)
}
