//! Managed memory: attaching it to a stream, prefetching it, and advice on its use.

use std::ffi::c_void;

use super::api::Api;
use super::call::{DriverError, call};
use super::managed_types::{CUmem_advise, CUmem_range_attribute};
use super::types::{CUdevice, CUdeviceptr, CUmemLocation, CUstream};

/// Sets which work uses an allocation, in stream order; `flags` as in [`attach_flags`](super::attach_flags). `bytes` is
/// zero, or the size of the allocation.
pub fn attach(api: &Api, stream: CUstream, start: CUdeviceptr, bytes: usize, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuStreamAttachMemAsync(stream, start, bytes, flags)) }
}

/// Enqueues a migration of memory to a device, or to [`CUdevice::CPU`].
pub fn prefetch(
    api: &Api,
    start: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemPrefetchAsync(start, bytes, device, stream)) }
}

/// [`prefetch`] to any location. `flags` is zero.
pub fn prefetch_to(
    api: &Api,
    start: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemPrefetchAsync_v2(start, bytes, location, flags, stream)) }
}

/// Advises the driver how a device, or [`CUdevice::CPU`], will use memory.
pub fn advise(
    api: &Api,
    start: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemAdvise(start, bytes, advice, device)) }
}

/// [`advise`] for any location.
pub fn advise_for(
    api: &Api,
    start: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer; the driver refuses a wrong address.
    unsafe { call!(api.cuMemAdvise_v2(start, bytes, advice, location)) }
}

/// Returns an attribute of a whole range: as many numbers as fit into `data`. Only `ACCESSED_BY` has more than one.
pub fn range_attribute(
    api: &Api,
    data: &mut [i32],
    attribute: CUmem_range_attribute,
    start: CUdeviceptr,
    bytes: usize,
) -> Result<(), DriverError> {
    let room = size_of_val(data);
    let data = data.as_mut_ptr().cast::<c_void>();
    // SAFETY: the call writes `room` bytes at the most, which `data` has.
    unsafe { call!(api.cuMemRangeGetAttribute(data, room, attribute, start, bytes)) }
}

/// Returns several attributes of one number each, as [`range_attribute`] does.
pub fn range_attributes(
    api: &Api,
    attributes: &mut [CUmem_range_attribute],
    start: CUdeviceptr,
    bytes: usize,
) -> Result<Vec<i32>, DriverError> {
    let mut numbers = vec![0i32; attributes.len()];
    let mut places: Vec<_> = numbers.iter_mut().map(|number| std::ptr::from_mut(number).cast::<c_void>()).collect();
    let mut rooms = vec![size_of::<i32>(); attributes.len()];
    let (data, sizes, list) = (places.as_mut_ptr(), rooms.as_mut_ptr(), attributes.as_mut_ptr());
    // SAFETY: the three lists have as many elements as the call receives, each place has room for four bytes, and all
    // outlive the call.
    unsafe { call!(api.cuMemRangeGetAttributes(data, sizes, list, attributes.len(), start, bytes)) }?;
    Ok(numbers)
}
