//! Addresses without memory.

use super::api::Api;
use super::call::{CallError, call};
use super::types::CUdeviceptr;

/// Reserves `bytes` of addresses that start on a multiple of `alignment`, at `wish` if that is free. Zero leaves
/// either to the driver.
pub fn reserve(api: &Api, bytes: usize, alignment: usize, wish: CUdeviceptr) -> Result<CUdeviceptr, CallError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuMemAddressReserve(&mut start, bytes, alignment, wish, 0)) }?;
    Ok(start)
}

/// Gives back addresses to which nothing is mapped any more.
pub fn free(api: &Api, start: CUdeviceptr, bytes: usize) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuMemAddressFree(start, bytes)) }
}
