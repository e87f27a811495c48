//! Pools that stream-ordered allocation takes memory from. The allocations themselves are in [`memory`](super::memory),
//! the pool of a device in [`device`](super::device).

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::api::Api;
use super::call::{DriverError, call};
use super::mapping_types::CUmemPoolPtrExportData;
use super::types::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemLocation, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool,
};

/// A buffer for one attribute. The longest of CUDA 12 and 13 has 8 bytes.
type AttributeBuffer = [u64; 2];

/// Creates a pool.
pub fn create(api: &Api, props: &CUmemPoolProps) -> Result<CUmemoryPool, DriverError> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: `pool` and `props` outlive the call, which writes one handle to the first and reads the second.
    unsafe { call!(api.cuMemPoolCreate(&mut pool, props)) }?;
    Ok(pool)
}

/// Destroys a pool as soon as its last allocation is freed.
pub fn destroy(api: &Api, pool: CUmemoryPool) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuMemPoolDestroy(pool)) }
}

/// Returns the value of any attribute: its eight bytes, or its four bytes and zeros.
pub fn attribute(api: &Api, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Result<u64, DriverError> {
    let mut room = AttributeBuffer::default();
    let value = room.as_mut_ptr().cast::<c_void>();
    // SAFETY: `room` outlives the call, which writes one value to it; it is longer than the value of any attribute, and
    // aligned for it.
    unsafe { call!(api.cuMemPoolGetAttribute(pool, attribute, value)) }?;
    Ok(room[0])
}

/// Sets an attribute. A four-byte attribute takes the low half of `value`.
pub fn set_attribute(
    api: &Api,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: u64,
) -> Result<(), DriverError> {
    let mut room: AttributeBuffer = [value, 0];
    let value = room.as_mut_ptr().cast::<c_void>();
    // SAFETY: `room` outlives the call, which reads one value from it; it is longer than the value of any attribute,
    // and aligned for it.
    unsafe { call!(api.cuMemPoolSetAttribute(pool, attribute, value)) }
}

/// Returns how much unused memory the pool keeps when a stream, event or context is synchronized.
pub fn release_threshold_bytes(api: &Api, pool: CUmemoryPool) -> Result<u64, DriverError> {
    attribute(api, pool, CUmemPool_attribute::RELEASE_THRESHOLD)
}

/// Sets how much unused memory the pool keeps when a stream, event or context is synchronized.
pub fn set_release_threshold(api: &Api, pool: CUmemoryPool, bytes: u64) -> Result<(), DriverError> {
    set_attribute(api, pool, CUmemPool_attribute::RELEASE_THRESHOLD, bytes)
}

/// Returns the memory that the pool has reserved from its device, in use or not.
pub fn reserved_bytes(api: &Api, pool: CUmemoryPool) -> Result<u64, DriverError> {
    attribute(api, pool, CUmemPool_attribute::RESERVED_MEM_CURRENT)
}

/// Returns the maximum of [`reserved_bytes`] since the attribute was last set to zero.
pub fn reserved_bytes_high(api: &Api, pool: CUmemoryPool) -> Result<u64, DriverError> {
    attribute(api, pool, CUmemPool_attribute::RESERVED_MEM_HIGH)
}

/// Returns the memory of the pool that is allocated.
pub fn used_bytes(api: &Api, pool: CUmemoryPool) -> Result<u64, DriverError> {
    attribute(api, pool, CUmemPool_attribute::USED_MEM_CURRENT)
}

/// Returns the maximum of [`used_bytes`] since the attribute was last set to zero.
pub fn used_bytes_high(api: &Api, pool: CUmemoryPool) -> Result<u64, DriverError> {
    attribute(api, pool, CUmemPool_attribute::USED_MEM_HIGH)
}

/// Returns unused memory to the device, except `keep_bytes` of it.
pub fn trim(api: &Api, pool: CUmemoryPool, keep_bytes: usize) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuMemPoolTrimTo(pool, keep_bytes)) }
}

/// Sets which devices may access the pool's memory.
pub fn set_access(api: &Api, pool: CUmemoryPool, access: &[CUmemAccessDesc]) -> Result<(), DriverError> {
    // SAFETY: `access` is readable for its length and outlives the call.
    unsafe { call!(api.cuMemPoolSetAccess(pool, access.as_ptr(), access.len())) }
}

/// Returns how the device at `location` may access the pool's memory.
pub fn access(api: &Api, pool: CUmemoryPool, mut location: CUmemLocation) -> Result<CUmemAccess_flags, DriverError> {
    let mut flags = CUmemAccess_flags::default();
    // SAFETY: `flags` and `location` outlive the call, which writes one `u32` to the first and reads the second.
    unsafe { call!(api.cuMemPoolGetAccess(&mut flags, pool, &mut location)) }?;
    Ok(flags)
}

/// Returns a descriptor of a pool that was created for sharing.
pub fn export(api: &Api, pool: CUmemoryPool) -> Result<OwnedFd, DriverError> {
    let mut descriptor: c_int = -1;
    let shareable = (&raw mut descriptor).cast::<c_void>();
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: `descriptor` outlives the call, which writes one descriptor to it for this kind.
    unsafe { call!(api.cuMemPoolExportToShareableHandle(shareable, pool, kind, 0)) }?;
    // SAFETY: the driver opened the descriptor for the caller, which owns it alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Returns the pool that a descriptor refers to. The descriptor may be closed afterwards.
pub fn import(api: &Api, descriptor: BorrowedFd<'_>) -> Result<CUmemoryPool, DriverError> {
    let mut pool = CUmemoryPool::NULL;
    let shareable = ptr::without_provenance_mut::<c_void>(descriptor.as_raw_fd() as usize);
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: `pool` outlives the call, which writes one handle to it; the pointer is the descriptor's number for this
    // kind and is not followed.
    unsafe { call!(api.cuMemPoolImportFromShareableHandle(&mut pool, shareable, kind, 0)) }?;
    Ok(pool)
}

/// Returns the data that identifies a block of an exported pool in a process that imports the pool.
pub fn export_block(api: &Api, start: CUdeviceptr) -> Result<CUmemPoolPtrExportData, DriverError> {
    let mut data = CUmemPoolPtrExportData::default();
    // SAFETY: `data` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuMemPoolExportPointer(&mut data, start)) }?;
    Ok(data)
}

/// Maps a block of an imported pool.
pub fn import_block(
    api: &Api,
    pool: CUmemoryPool,
    mut data: CUmemPoolPtrExportData,
) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` and `data` outlive the call, which writes one address to the first and reads the second.
    unsafe { call!(api.cuMemPoolImportPointer(&mut start, pool, &mut data)) }?;
    Ok(start)
}
