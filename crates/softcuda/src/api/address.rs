//! Reservation of addresses without memory.

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUresult};

use crate::ffi::args::Out;
use crate::memory::page_heap::PAGE_BYTES;
use crate::state::driver_state::driver;

pub(crate) fn cuMemAddressReserve(
    start: Out<CUdeviceptr>,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: u64,
) -> CUresult {
    let driver = driver()?;
    let (bytes, alignment) = (bytes as u64, alignment as u64);
    let is_alignment = alignment == 0 || alignment.is_power_of_two();
    let are_pages = bytes.is_multiple_of(PAGE_BYTES) && hint.0.is_multiple_of(PAGE_BYTES);
    if bytes == 0 || !are_pages || !is_alignment || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let taken = driver.space.reservations.reserve(bytes, alignment, hint.0).ok_or(CUerror::OUT_OF_MEMORY)?;
    start.set(CUdeviceptr(taken));
    Ok(())
}

pub(crate) fn cuMemAddressFree(start: CUdeviceptr, bytes: usize) -> CUresult {
    let driver = driver()?;
    let bytes = bytes as u64;
    if bytes == 0 || start.0.checked_add(bytes).is_none() {
        return Err(CUerror::INVALID_VALUE);
    }
    // The lock ensures that no mapping is created between the check and the end of the reservation.
    let spans = driver.space.spans_mut();
    if spans.overlapping(start.0, bytes).is_some() || !driver.space.reservations.free(start.0, bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    driver.block_lookup.forget_range(&(start.0..start.0 + bytes));
    Ok(())
}
