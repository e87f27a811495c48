//! Memory mapped to reserved addresses.

use super::api::Api;
use super::call::{DriverError, call};
use super::mapping_types::CUmemGenericAllocationHandle;
use super::types::{CUdeviceptr, CUmemAccessDesc, CUmemLocation};

/// Maps memory, from `offset` on, to reserved addresses. They are inaccessible until [`set_access`].
pub fn map(
    api: &Api,
    start: CUdeviceptr,
    bytes: usize,
    offset: usize,
    allocation: CUmemGenericAllocationHandle,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuMemMap(start, bytes, offset, allocation, 0)) }
}

/// Removes whole mappings, without waiting for work that uses them.
pub fn unmap(api: &Api, start: CUdeviceptr, bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuMemUnmap(start, bytes)) }
}

/// Sets which devices may access mapped addresses, and how.
pub fn set_access(api: &Api, start: CUdeviceptr, bytes: usize, access: &[CUmemAccessDesc]) -> Result<(), DriverError> {
    // SAFETY: `access` is readable for its length and outlives the call.
    unsafe { call!(api.cuMemSetAccess(start, bytes, access.as_ptr(), access.len())) }
}

/// Returns how a location may access a mapped address: one of `CUmemAccess_flags`.
pub fn access(api: &Api, location: CUmemLocation, start: CUdeviceptr) -> Result<u64, DriverError> {
    let mut flags = 0;
    // SAFETY: `flags` and `location` outlive the call, which writes one `u64` to the first and reads the second.
    unsafe { call!(api.cuMemGetAccess(&mut flags, &location, start)) }?;
    Ok(flags)
}
