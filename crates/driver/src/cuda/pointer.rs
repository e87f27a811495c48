//! The attributes of a pointer, each with its type.

use std::ffi::c_void;

use super::api::Api;
use super::call::{DriverError, call};
use super::types::{CUcontext, CUdeviceptr, CUmemAccess_flags, CUmemoryPool, CUmemorytype, CUpointer_attribute};

/// A buffer for one attribute. The longest of CUDA 12 and 13, `P2P_TOKENS`, has 16 bytes.
type AttributeBuffer = [u64; 4];

/// Returns the value of any attribute: its first eight bytes, and zeros after a shorter one.
pub fn attribute(api: &Api, address: CUdeviceptr, attribute: CUpointer_attribute) -> Result<u64, DriverError> {
    let mut room = AttributeBuffer::default();
    let data = room.as_mut_ptr().cast::<c_void>();
    // SAFETY: `room` outlives the call, which writes one value to it; it is longer than the value of any attribute, and
    // aligned for it.
    unsafe { call!(api.cuPointerGetAttribute(data, attribute, address)) }?;
    Ok(room[0])
}

/// Returns several attributes at once. For an address that the driver does not know they are zero, which is not an
/// error.
pub fn attributes<const N: usize>(
    api: &Api,
    address: CUdeviceptr,
    mut attributes: [CUpointer_attribute; N],
) -> Result<[u64; N], DriverError> {
    let mut rooms = [AttributeBuffer::default(); N];
    let mut data = rooms.each_mut().map(|room| room.as_mut_ptr().cast::<c_void>());
    let count = u32::try_from(N).expect("the number of attributes fits a u32");
    // SAFETY: `attributes` and `data` hold `count` elements and outlive the call; each element of `data` is a room of
    // its own in `rooms`, longer than the value of any attribute and aligned for it.
    unsafe { call!(api.cuPointerGetAttributes(count, attributes.as_mut_ptr(), data.as_mut_ptr(), address)) }?;
    Ok(rooms.map(|room| room[0]))
}

/// Sets an attribute of the allocation at `address`. Only `SYNC_MEMOPS` can be set, to 1 or 0.
pub fn set_attribute(
    api: &Api,
    address: CUdeviceptr,
    attribute: CUpointer_attribute,
    value: u64,
) -> Result<(), DriverError> {
    let room: AttributeBuffer = [value, 0, 0, 0];
    // SAFETY: `room` outlives the call, which reads one value from it; it is longer than the value of any attribute,
    // and aligned for it.
    unsafe { call!(api.cuPointerSetAttribute(room.as_ptr().cast(), attribute, address)) }
}

/// Returns the context that the memory was allocated in.
pub fn context(api: &Api, address: CUdeviceptr) -> Result<CUcontext, DriverError> {
    Ok(CUcontext(attribute(api, address, CUpointer_attribute::CONTEXT)? as usize))
}

/// Returns whether it is host or device memory.
pub fn memory_type(api: &Api, address: CUdeviceptr) -> Result<CUmemorytype, DriverError> {
    Ok(CUmemorytype(attribute(api, address, CUpointer_attribute::MEMORY_TYPE)? as u32))
}

/// Returns the device's address of the memory.
pub fn device_address(api: &Api, address: CUdeviceptr) -> Result<CUdeviceptr, DriverError> {
    Ok(CUdeviceptr(attribute(api, address, CUpointer_attribute::DEVICE_POINTER)?))
}

/// Returns the host's address of the memory.
pub fn host_pointer(api: &Api, address: CUdeviceptr) -> Result<*mut c_void, DriverError> {
    let address = attribute(api, address, CUpointer_attribute::HOST_POINTER)?;
    Ok(std::ptr::with_exposed_provenance_mut(address as usize))
}

/// Returns whether copies and fills of the memory are always synchronous.
pub fn sync_memops(api: &Api, address: CUdeviceptr) -> Result<bool, DriverError> {
    flag(api, address, CUpointer_attribute::SYNC_MEMOPS)
}

/// Returns an id that no other allocation of the process ever has.
pub fn buffer_id(api: &Api, address: CUdeviceptr) -> Result<u64, DriverError> {
    attribute(api, address, CUpointer_attribute::BUFFER_ID)
}

/// Returns whether it is managed memory.
pub fn is_managed(api: &Api, address: CUdeviceptr) -> Result<bool, DriverError> {
    flag(api, address, CUpointer_attribute::IS_MANAGED)
}

/// Returns the ordinal of the device that the memory was allocated on or registered with.
pub fn device_ordinal(api: &Api, address: CUdeviceptr) -> Result<i32, DriverError> {
    Ok(attribute(api, address, CUpointer_attribute::DEVICE_ORDINAL)? as u32 as i32)
}

/// Returns whether `cuIpcGetMemHandle` accepts the memory.
pub fn is_legacy_ipc_capable(api: &Api, address: CUdeviceptr) -> Result<bool, DriverError> {
    flag(api, address, CUpointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE)
}

/// Returns the start of the allocation, or of the reserved range, that contains the address.
pub fn range_start(api: &Api, address: CUdeviceptr) -> Result<CUdeviceptr, DriverError> {
    Ok(CUdeviceptr(attribute(api, address, CUpointer_attribute::RANGE_START_ADDR)?))
}

/// Returns the length of the allocation, or of the reserved range, that contains the address.
pub fn range_bytes(api: &Api, address: CUdeviceptr) -> Result<u64, DriverError> {
    attribute(api, address, CUpointer_attribute::RANGE_SIZE)
}

/// Returns whether memory is mapped at the address; a reserved range may have none.
pub fn is_mapped(api: &Api, address: CUdeviceptr) -> Result<bool, DriverError> {
    flag(api, address, CUpointer_attribute::MAPPED)
}

/// Returns the kinds of handle that the memory can be exported as: bits of
/// [`CUmemAllocationHandleType`](super::CUmemAllocationHandleType).
pub fn allowed_handle_types(api: &Api, address: CUdeviceptr) -> Result<u64, DriverError> {
    attribute(api, address, CUpointer_attribute::ALLOWED_HANDLE_TYPES)
}

/// Returns whether other devices on the bus can access the memory (GPUDirect RDMA).
pub fn is_gpu_direct_rdma_capable(api: &Api, address: CUdeviceptr) -> Result<bool, DriverError> {
    flag(api, address, CUpointer_attribute::IS_GPU_DIRECT_RDMA_CAPABLE)
}

/// Returns how the current context's device may access the memory.
pub fn access(api: &Api, address: CUdeviceptr) -> Result<CUmemAccess_flags, DriverError> {
    Ok(CUmemAccess_flags(attribute(api, address, CUpointer_attribute::ACCESS_FLAGS)? as u32))
}

/// Returns the pool that the memory was allocated from, or `NULL`.
pub fn pool(api: &Api, address: CUdeviceptr) -> Result<CUmemoryPool, DriverError> {
    Ok(CUmemoryPool(attribute(api, address, CUpointer_attribute::MEMPOOL_HANDLE)? as usize))
}

/// Returns the length of the mapping that contains the address.
pub fn mapping_bytes(api: &Api, address: CUdeviceptr) -> Result<u64, DriverError> {
    attribute(api, address, CUpointer_attribute::MAPPING_SIZE)
}

/// Returns the start of the mapping that contains the address.
pub fn mapping_start(api: &Api, address: CUdeviceptr) -> Result<CUdeviceptr, DriverError> {
    Ok(CUdeviceptr(attribute(api, address, CUpointer_attribute::MAPPING_BASE_ADDR)?))
}

/// Returns an id of the memory behind the address, the same for all its mappings.
pub fn memory_block_id(api: &Api, address: CUdeviceptr) -> Result<u64, DriverError> {
    attribute(api, address, CUpointer_attribute::MEMORY_BLOCK_ID)
}

/// Returns a Boolean attribute. C does not state the length of its value; the zeros after it make any length correct.
fn flag(api: &Api, address: CUdeviceptr, which: CUpointer_attribute) -> Result<bool, DriverError> {
    Ok(attribute(api, address, which)? != 0)
}
