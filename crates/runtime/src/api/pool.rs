//! Stream-ordered allocation, and the pools that it allocates from.

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
    CUstream,
};

use crate::code::{CudaError, cudaError_t};
use crate::process::{self, Process};
use crate::runtime_pool;
use crate::thread;
use crate::types::write;

forward! {
    fn cudaMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) =
        cuMemPoolCreate(pool, properties);
    fn cudaMemPoolDestroy(pool: CUmemoryPool) = cuMemPoolDestroy(pool);
    fn cudaMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize) = cuMemPoolTrimTo(pool, keep_bytes);
    fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) =
        cuMemPoolSetAttribute(pool, attribute, value);
    fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) =
        cuMemPoolGetAttribute(pool, attribute, value);
    fn cudaMemPoolSetAccess(pool: CUmemoryPool, accesses: *const CUmemAccessDesc, count: usize) =
        cuMemPoolSetAccess(pool, accesses, count);
    fn cudaMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation) =
        cuMemPoolGetAccess(flags, pool, location);
    fn cudaMemPoolExportToShareableHandle(
        shareable: *mut c_void,
        pool: CUmemoryPool,
        kind: CUmemAllocationHandleType,
        flags: u32,
    ) = cuMemPoolExportToShareableHandle(shareable, pool, kind, flags.into());
    fn cudaMemPoolImportFromShareableHandle(
        pool: *mut CUmemoryPool,
        shareable: *mut c_void,
        kind: CUmemAllocationHandleType,
        flags: u32,
    ) = cuMemPoolImportFromShareableHandle(pool, shareable, kind, flags.into());
    fn cudaMemPoolExportPointer(data: *mut CUmemPoolPtrExportData, start: *mut c_void) =
        cuMemPoolExportPointer(data, CUdeviceptr(start as u64));
    fn cudaMemPoolImportPointer(start: *mut *mut c_void, pool: CUmemoryPool, data: *mut CUmemPoolPtrExportData) =
        cuMemPoolImportPointer(start.cast::<CUdeviceptr>(), pool, data);
}

const _: () = assert!(size_of::<CUdeviceptr>() == size_of::<*mut c_void>());

pub(crate) unsafe fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: i32) -> cudaError_t {
    runtime_pool::leave_to_driver();
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceGetDefaultMemPool)(pool, process.device(device)?) }?)
}

pub(crate) unsafe fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, device: i32) -> cudaError_t {
    runtime_pool::leave_to_driver();
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceGetMemPool)(pool, process.device(device)?) }?)
}

pub(crate) unsafe fn cudaDeviceSetMemPool(device: i32, pool: CUmemoryPool) -> cudaError_t {
    runtime_pool::leave_to_driver();
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the pool is valid.
    Ok(unsafe { (process.api.cuDeviceSetMemPool)(process.device(device)?, pool) }?)
}

pub(crate) unsafe fn cudaMemGetDefaultMemPool(
    pool: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> cudaError_t {
    runtime_pool::leave_to_driver();
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the location is valid.
    let device = unsafe { device_at(process, location, kind) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceGetDefaultMemPool)(pool, device) }?)
}

pub(crate) unsafe fn cudaMemGetMemPool(
    pool: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> cudaError_t {
    runtime_pool::leave_to_driver();
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the location is valid.
    let device = unsafe { device_at(process, location, kind) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceGetMemPool)(pool, device) }?)
}

pub(crate) unsafe fn cudaMemSetMemPool(
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> cudaError_t {
    runtime_pool::leave_to_driver();
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the location is valid.
    let device = unsafe { device_at(process, location, kind) }?;
    // SAFETY: the C caller guarantees that the pool is valid.
    Ok(unsafe { (process.api.cuDeviceSetMemPool)(device, pool) }?)
}

/// Returns the device at a location. Pools of the host and of managed memory are not supported.
///
/// # Safety
/// If it is neither null nor misaligned, `location` must be valid for reads.
unsafe fn device_at(
    process: &Process,
    location: *const CUmemLocation,
    kind: CUmemAllocationType,
) -> Result<CUdevice, CudaError> {
    if location.is_null() || !location.is_aligned() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: it is neither null nor misaligned, so the caller guarantees that it is valid.
    let location = unsafe { location.read() };
    match (location.kind, kind) {
        (CUmemLocationType::DEVICE, CUmemAllocationType::PINNED) => {
            process.device(location.id).map_err(|_| CudaError::INVALID_VALUE)
        }
        (CUmemLocationType::INVALID, _) | (_, CUmemAllocationType::INVALID) => Err(CudaError::INVALID_VALUE),
        _ => Err(CudaError::NOT_SUPPORTED),
    }
}

pub(crate) unsafe fn cudaMallocAsync(start: *mut *mut c_void, bytes: usize, stream: CUstream) -> cudaError_t {
    let (process, stream) = (process::get()?, thread::stream(stream));
    if bytes > 0
        && !start.is_null()
        && let Some(pool) = runtime_pool::current(process)
        && let Some(block) = pool.alloc_in(stream, bytes)
    {
        let block = block?;
        // SAFETY: the C caller guarantees that the output pointer is valid.
        return Ok(unsafe { write(start, block.0 as *mut c_void) }?);
    }
    process.make_current()?;
    // An address has the same representation as a host pointer.
    // SAFETY: the C caller guarantees that the output pointer and the stream are valid.
    let alloc = || unsafe { (process.api.cuMemAllocAsync)(start.cast::<CUdeviceptr>(), bytes, stream) };
    Ok(runtime_pool::with_spare_memory(process, alloc)?)
}

pub(crate) unsafe fn cudaFreeAsync(start: *mut c_void, stream: CUstream) -> cudaError_t {
    let (block, stream) = (CUdeviceptr(start as u64), thread::stream(stream));
    if let Some(freed) = runtime_pool::at(block).and_then(|pool| pool.free_in(stream, block)) {
        return freed;
    }
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the block and the stream are valid.
    Ok(unsafe { (process.api.cuMemFreeAsync)(block, stream) }?)
}

pub(crate) unsafe fn cudaMallocFromPoolAsync(
    start: *mut *mut c_void,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> cudaError_t {
    let (process, stream) = (process::with_context()?, thread::stream(stream));
    // SAFETY: the C caller guarantees that the output pointer, the pool and the stream are valid.
    let alloc = || unsafe { (process.api.cuMemAllocFromPoolAsync)(start.cast::<CUdeviceptr>(), bytes, pool, stream) };
    Ok(runtime_pool::with_spare_memory(process, alloc)?)
}
