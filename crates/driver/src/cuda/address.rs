//! Reserved addresses without memory.

use super::api::Api;
use super::call::{DriverError, call};
use super::types::CUdeviceptr;

/// Reserves `bytes` of addresses that start at a multiple of `alignment`, at `hint` if that range is free. Zero leaves
/// either choice to the driver.
pub fn reserve(api: &Api, bytes: usize, alignment: usize, hint: CUdeviceptr) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuMemAddressReserve(&mut start, bytes, alignment, hint, 0)) }?;
    Ok(start)
}

/// Releases addresses to which nothing is mapped.
pub fn free(api: &Api, start: CUdeviceptr, bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuMemAddressFree(start, bytes)) }
}
