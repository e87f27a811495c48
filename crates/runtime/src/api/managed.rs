//! Managed memory: allocation, attachment to streams, advice and prefetches.

use std::ffi::c_void;

use freehold_driver::cuda::{CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUstream};

use crate::code::{CudaError, cudaError_t};
use crate::process::{self, Process};
use crate::thread;
use crate::types::{check, read_slice, write};

pub(crate) unsafe fn cudaMallocManaged(start: *mut *mut c_void, bytes: usize, flags: u32) -> cudaError_t {
    check(start)?;
    let process = process::with_context()?;
    let mut block = CUdeviceptr::NULL;
    if bytes > 0 {
        // SAFETY: `block` is a valid place for the answer.
        unsafe { (process.api.cuMemAllocManaged)(&raw mut block, bytes, flags) }?;
    }
    // SAFETY: the C caller guarantees that `start` is valid.
    Ok(unsafe { write(start, block.0 as *mut c_void) }?)
}

pub(crate) unsafe fn cudaStreamAttachMemAsync(
    stream: CUstream,
    start: *mut c_void,
    bytes: usize,
    flags: u32,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the stream and the memory are valid.
    Ok(unsafe {
        (process.api.cuStreamAttachMemAsync)(thread::stream(stream), CUdeviceptr(start as u64), bytes, flags)
    }?)
}

pub(crate) unsafe fn cudaMemAdvise(
    start: *const c_void,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the memory is valid.
    Ok(unsafe { (process.api.cuMemAdvise_v2)(CUdeviceptr(start as u64), bytes, advice, location) }?)
}

/// `cudaMemAdvise` of CUDA 12: -1 is the host.
pub(crate) unsafe fn cudaMemAdvise_v12(
    start: *const c_void,
    bytes: usize,
    advice: CUmem_advise,
    device: i32,
) -> cudaError_t {
    let process = process::with_context()?;
    let device = device_or_host(process, device)?;
    // SAFETY: the C caller guarantees that the memory is valid.
    Ok(unsafe { (process.api.cuMemAdvise)(CUdeviceptr(start as u64), bytes, advice, device) }?)
}

pub(crate) unsafe fn cudaMemPrefetchAsync(
    start: *const c_void,
    bytes: usize,
    location: CUmemLocation,
    flags: u32,
    stream: CUstream,
) -> cudaError_t {
    let process = process::with_context()?;
    let (start, stream) = (CUdeviceptr(start as u64), thread::stream(stream));
    // SAFETY: the C caller guarantees that the memory and the stream are valid.
    Ok(unsafe { (process.api.cuMemPrefetchAsync_v2)(start, bytes, location, flags, stream) }?)
}

/// `cudaMemPrefetchAsync` of CUDA 12: -1 is the host.
pub(crate) unsafe fn cudaMemPrefetchAsync_v12(
    start: *const c_void,
    bytes: usize,
    device: i32,
    stream: CUstream,
) -> cudaError_t {
    let process = process::with_context()?;
    let device = device_or_host(process, device)?;
    let (start, stream) = (CUdeviceptr(start as u64), thread::stream(stream));
    // SAFETY: the C caller guarantees that the memory and the stream are valid.
    Ok(unsafe { (process.api.cuMemPrefetchAsync)(start, bytes, device, stream) }?)
}

fn device_or_host(process: &Process, device: i32) -> Result<CUdevice, CudaError> {
    if device == CUdevice::CPU.0 { Ok(CUdevice::CPU) } else { process.device(device) }
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) unsafe fn cudaMemPrefetchBatchAsync(
    starts: *mut *mut c_void,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    location_starts: *mut usize,
    location_count: usize,
    flags: u64,
    stream: CUstream,
) -> cudaError_t {
    let process = process::with_context()?;
    let stream = thread::stream(stream);
    if flags != 0 || count == 0 || stream == CUstream::NULL || stream == CUstream::LEGACY {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the C caller guarantees `location_count` values.
    let firsts = unsafe { read_slice(location_starts, location_count) }?;
    check_firsts(&firsts, count)?;
    // SAFETY: as above.
    let locations = unsafe { read_slice(locations, location_count) }?;
    // SAFETY: the C caller guarantees `count` values.
    let starts = unsafe { read_slice(starts, count) }?;
    // SAFETY: as above.
    let sizes = unsafe { read_slice(sizes, count) }?;
    for (index, (start, bytes)) in starts.into_iter().zip(sizes).enumerate() {
        let (start, location) = (CUdeviceptr(start as u64), locations[entry_of(&firsts, index)]);
        // SAFETY: the C caller guarantees that the memory and the stream are valid.
        unsafe { (process.api.cuMemPrefetchAsync_v2)(start, bytes, location, 0, stream) }?;
    }
    Ok(())
}

/// Checks the indices from which the entries of a second list apply to the elements of a batch: from zero upwards.
pub(super) fn check_firsts(firsts: &[usize], count: usize) -> cudaError_t {
    let is_valid = firsts.first() == Some(&0)
        && firsts.is_sorted_by(|one, next| one < next)
        && firsts.last().is_some_and(|&last| last < count);
    if is_valid { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// Returns the entry that applies to an element of a batch.
pub(super) fn entry_of(firsts: &[usize], index: usize) -> usize {
    firsts.partition_point(|&first| first <= index) - 1
}

pub(crate) unsafe fn cudaMemRangeGetAttribute(
    data: *mut c_void,
    data_bytes: usize,
    attribute: CUmem_range_attribute,
    start: *const c_void,
    bytes: usize,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees `data_bytes` at `data`.
    Ok(unsafe { (process.api.cuMemRangeGetAttribute)(data, data_bytes, attribute, CUdeviceptr(start as u64), bytes) }?)
}

pub(crate) unsafe fn cudaMemRangeGetAttributes(
    data: *mut *mut c_void,
    data_bytes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    count: usize,
    start: *const c_void,
    bytes: usize,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the lists of `count` values are valid, and the places in `data`.
    Ok(unsafe {
        (process.api.cuMemRangeGetAttributes)(data, data_bytes, attributes, count, CUdeviceptr(start as u64), bytes)
    }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_batch_start_at_zero_and_increase() {
        assert_eq!(check_firsts(&[0], 1), Ok(()));
        assert_eq!(check_firsts(&[0, 6], 10), Ok(()));
        for (firsts, count) in [(&[][..], 1), (&[1][..], 2), (&[0, 0][..], 2), (&[0, 2][..], 2), (&[0, 3, 2][..], 9)] {
            assert_eq!(check_firsts(firsts, count), Err(CudaError::INVALID_VALUE), "{firsts:?} of {count}");
        }
    }

    #[test]
    fn an_entry_applies_until_the_next_begins() {
        let firsts = [0, 6];
        assert_eq!([0, 5, 6, 9].map(|index| entry_of(&firsts, index)), [0, 0, 1, 1]);
    }
}
