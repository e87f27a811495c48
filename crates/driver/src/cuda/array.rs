//! Arrays: memory that textures and surfaces show. Copies of boxes are in [`copy`](super::copy).

use std::ffi::c_void;

use super::api::Api;
use super::array_types::{CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUmipmappedArray};
use super::call::{DriverError, call};
use super::types::{CUarray, CUdeviceptr, CUstream};

/// Creates an array in the current context.
pub fn create(api: &Api, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<CUarray, DriverError> {
    let mut array = CUarray::NULL;
    // SAFETY: `array` and `descriptor` outlive the call, which writes one handle and reads the description.
    unsafe { call!(api.cuArray3DCreate_v2(&mut array, descriptor)) }?;
    Ok(array)
}

/// Returns the size and format of an array.
pub fn descriptor(api: &Api, array: CUarray) -> Result<CUDA_ARRAY3D_DESCRIPTOR, DriverError> {
    let mut descriptor = CUDA_ARRAY3D_DESCRIPTOR::default();
    // SAFETY: `descriptor` outlives the call, which writes it.
    unsafe { call!(api.cuArray3DGetDescriptor_v2(&mut descriptor, array)) }?;
    Ok(descriptor)
}

/// Destroys an array once all work of its context is done.
pub fn destroy(api: &Api, array: CUarray) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer.
    unsafe { call!(api.cuArrayDestroy(array)) }
}

/// Creates an array with at most `levels` levels.
pub fn create_mipmapped(
    api: &Api,
    descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> Result<CUmipmappedArray, DriverError> {
    let mut mipmap = CUmipmappedArray::NULL;
    // SAFETY: `mipmap` and `descriptor` outlive the call, which writes one handle and reads the description.
    unsafe { call!(api.cuMipmappedArrayCreate(&mut mipmap, descriptor, levels)) }?;
    Ok(mipmap)
}

/// Returns a level, which lives as long as its array.
pub fn level(api: &Api, mipmap: CUmipmappedArray, level: u32) -> Result<CUarray, DriverError> {
    let mut array = CUarray::NULL;
    // SAFETY: `array` outlives the call, which writes one handle.
    unsafe { call!(api.cuMipmappedArrayGetLevel(&mut array, mipmap, level)) }?;
    Ok(array)
}

/// Destroys an array and its levels.
pub fn destroy_mipmapped(api: &Api, mipmap: CUmipmappedArray) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer.
    unsafe { call!(api.cuMipmappedArrayDestroy(mipmap)) }
}

/// Copies a slice to the start of an array's first row.
pub fn host_to_array(api: &Api, to: CUarray, to_offset: usize, from: &[u8]) -> Result<(), DriverError> {
    // SAFETY: `from` is readable for its length and outlives the call, which has read it when it returns.
    unsafe { call!(api.cuMemcpyHtoA_v2(to, to_offset, from.as_ptr().cast(), from.len())) }
}

/// Fills a slice with a copy of an array's first row.
pub fn array_to_host(api: &Api, to: &mut [u8], from: CUarray, from_offset: usize) -> Result<(), DriverError> {
    // SAFETY: `to` is writable for its length and outlives the call, which has written it when it returns.
    unsafe { call!(api.cuMemcpyAtoH_v2(to.as_mut_ptr().cast(), from, from_offset, to.len())) }
}

/// Copies from the first row of an array to that of another.
pub fn array_to_array(
    api: &Api,
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer.
    unsafe { call!(api.cuMemcpyAtoA_v2(to, to_offset, from, from_offset, bytes)) }
}

/// Creates an array of one or two dimensions.
pub fn create_2d(api: &Api, descriptor: &CUDA_ARRAY_DESCRIPTOR) -> Result<CUarray, DriverError> {
    let mut array = CUarray::NULL;
    // SAFETY: the driver reads the descriptor and writes a handle.
    unsafe { call!(api.cuArrayCreate_v2(&mut array, descriptor)) }?;
    Ok(array)
}

/// Returns the descriptor of an array of one or two dimensions.
pub fn descriptor_2d(api: &Api, array: CUarray) -> Result<CUDA_ARRAY_DESCRIPTOR, DriverError> {
    let mut descriptor = CUDA_ARRAY_DESCRIPTOR::default();
    // SAFETY: the driver writes a descriptor.
    unsafe { call!(api.cuArrayGetDescriptor_v2(&mut descriptor, array)) }?;
    Ok(descriptor)
}

/// Copies bytes from device memory to a row of an array.
pub fn device_to_array(
    api: &Api,
    to: CUarray,
    to_offset: usize,
    from: CUdeviceptr,
    bytes: usize,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer to host memory.
    unsafe { call!(api.cuMemcpyDtoA_v2(to, to_offset, from, bytes)) }
}

/// Copies bytes from a row of an array to device memory.
pub fn array_to_device(
    api: &Api,
    to: CUdeviceptr,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer to host memory.
    unsafe { call!(api.cuMemcpyAtoD_v2(to, from, from_offset, bytes)) }
}

/// Copies bytes from host memory to a row of an array, in a stream.
///
/// # Safety
/// The memory must be valid, and not be written, until the copy is complete.
pub unsafe fn host_to_array_async(
    api: &Api,
    to: CUarray,
    to_offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that the memory stays valid.
    unsafe { call!(api.cuMemcpyHtoAAsync_v2(to, to_offset, from, bytes, stream)) }
}

/// Copies bytes from a row of an array to host memory, in a stream.
///
/// # Safety
/// The memory must be valid, and not be used, until the copy is complete.
pub unsafe fn array_to_host_async(
    api: &Api,
    to: *mut c_void,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that the memory stays valid.
    unsafe { call!(api.cuMemcpyAtoHAsync_v2(to, from, from_offset, bytes, stream)) }
}
