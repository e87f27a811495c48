//! What lies at an address: the attributes of a pointer, each with its type.

use std::ffi::c_void;

use super::api::Api;
use super::call::{CallError, call};
use super::types::{CUcontext, CUdeviceptr, CUmemAccess_flags, CUmemoryPool, CUmemorytype, CUpointer_attribute};

/// Room for one attribute's value. The longest of CUDA 12 and 13, `P2P_TOKENS`, has 16 bytes.
type AttributeBuffer = [u64; 4];

/// The value of any attribute: its first eight bytes, and zeros after a shorter one.
pub fn attribute(api: &Api, address: CUdeviceptr, attribute: CUpointer_attribute) -> Result<u64, CallError> {
    let mut room = AttributeBuffer::default();
    let data = room.as_mut_ptr().cast::<c_void>();
    // SAFETY: `room` outlives the call, which writes one value to it; it is longer than the value of any attribute, and
    // aligned for it.
    unsafe { call!(api.cuPointerGetAttribute(data, attribute, address)) }?;
    Ok(room[0])
}

/// [`attribute`] of several at once. Of an address that the driver does not know they are zero, and that is no error.
pub fn attributes<const N: usize>(
    api: &Api,
    address: CUdeviceptr,
    mut attributes: [CUpointer_attribute; N],
) -> Result<[u64; N], CallError> {
    let mut rooms = [AttributeBuffer::default(); N];
    let mut data = rooms.each_mut().map(|room| room.as_mut_ptr().cast::<c_void>());
    let count = u32::try_from(N).expect("there are fewer attributes than a u32 counts");
    // SAFETY: `attributes` and `data` hold `count` elements and outlive the call; each element of `data` is a room of
    // its own in `rooms`, longer than the value of any attribute and aligned for it.
    unsafe { call!(api.cuPointerGetAttributes(count, attributes.as_mut_ptr(), data.as_mut_ptr(), address)) }?;
    Ok(rooms.map(|room| room[0]))
}

/// Sets an attribute of the allocation at `address`. The one that can be set is `SYNC_MEMOPS`, to 1 or 0.
pub fn set_attribute(
    api: &Api,
    address: CUdeviceptr,
    attribute: CUpointer_attribute,
    value: u64,
) -> Result<(), CallError> {
    let room: AttributeBuffer = [value, 0, 0, 0];
    // SAFETY: `room` outlives the call, which reads one value from it; it is longer than the value of any attribute, and
    // aligned for it.
    unsafe { call!(api.cuPointerSetAttribute(room.as_ptr().cast(), attribute, address)) }
}

/// The context that the memory was allocated in, whichever is current (fact 0.1).
pub fn context(api: &Api, address: CUdeviceptr) -> Result<CUcontext, CallError> {
    Ok(CUcontext(attribute(api, address, CUpointer_attribute::CONTEXT)? as usize))
}

/// Whether it is memory of the host or of a device.
pub fn memory_type(api: &Api, address: CUdeviceptr) -> Result<CUmemorytype, CallError> {
    Ok(CUmemorytype(attribute(api, address, CUpointer_attribute::MEMORY_TYPE)? as u32))
}

/// Where a device sees it.
pub fn device_address(api: &Api, address: CUdeviceptr) -> Result<CUdeviceptr, CallError> {
    Ok(CUdeviceptr(attribute(api, address, CUpointer_attribute::DEVICE_POINTER)?))
}

/// Where the host sees it.
pub fn host_pointer(api: &Api, address: CUdeviceptr) -> Result<*mut c_void, CallError> {
    let address = attribute(api, address, CUpointer_attribute::HOST_POINTER)?;
    Ok(std::ptr::with_exposed_provenance_mut(address as usize))
}

/// Whether copies and fills of the memory always wait for their end.
pub fn sync_memops(api: &Api, address: CUdeviceptr) -> Result<bool, CallError> {
    flag(api, address, CUpointer_attribute::SYNC_MEMOPS)
}

/// A number that no other allocation of the process has had or will have.
pub fn buffer_id(api: &Api, address: CUdeviceptr) -> Result<u64, CallError> {
    attribute(api, address, CUpointer_attribute::BUFFER_ID)
}

/// Whether it is managed memory.
pub fn is_managed(api: &Api, address: CUdeviceptr) -> Result<bool, CallError> {
    flag(api, address, CUpointer_attribute::IS_MANAGED)
}

/// The ordinal of the device that the memory was allocated on or registered with.
pub fn device_ordinal(api: &Api, address: CUdeviceptr) -> Result<i32, CallError> {
    Ok(attribute(api, address, CUpointer_attribute::DEVICE_ORDINAL)? as u32 as i32)
}

/// Whether `cuIpcGetMemHandle` takes it (fact 1.3).
pub fn is_legacy_ipc_capable(api: &Api, address: CUdeviceptr) -> Result<bool, CallError> {
    flag(api, address, CUpointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE)
}

/// The start of the allocation, or of the reserved range, that the address lies in.
pub fn range_start(api: &Api, address: CUdeviceptr) -> Result<CUdeviceptr, CallError> {
    Ok(CUdeviceptr(attribute(api, address, CUpointer_attribute::RANGE_START_ADDR)?))
}

/// The length of the allocation, or of the reserved range, that the address lies in.
pub fn range_bytes(api: &Api, address: CUdeviceptr) -> Result<u64, CallError> {
    attribute(api, address, CUpointer_attribute::RANGE_SIZE)
}

/// Whether there is memory at the address, and not only a reserved range.
pub fn is_mapped(api: &Api, address: CUdeviceptr) -> Result<bool, CallError> {
    flag(api, address, CUpointer_attribute::MAPPED)
}

/// The kinds of handle that the memory can be exported as: bits of
/// [`CUmemAllocationHandleType`](super::CUmemAllocationHandleType).
pub fn allowed_handle_types(api: &Api, address: CUdeviceptr) -> Result<u64, CallError> {
    attribute(api, address, CUpointer_attribute::ALLOWED_HANDLE_TYPES)
}

/// Whether other devices on the bus can reach it.
pub fn is_gpu_direct_rdma_capable(api: &Api, address: CUdeviceptr) -> Result<bool, CallError> {
    flag(api, address, CUpointer_attribute::IS_GPU_DIRECT_RDMA_CAPABLE)
}

/// What the current context's device may do there.
pub fn access(api: &Api, address: CUdeviceptr) -> Result<CUmemAccess_flags, CallError> {
    Ok(CUmemAccess_flags(attribute(api, address, CUpointer_attribute::ACCESS_FLAGS)? as u32))
}

/// The pool that the memory came from, `NULL` if from none.
pub fn pool(api: &Api, address: CUdeviceptr) -> Result<CUmemoryPool, CallError> {
    Ok(CUmemoryPool(attribute(api, address, CUpointer_attribute::MEMPOOL_HANDLE)? as usize))
}

/// The length of the mapping that the address lies in.
pub fn mapping_bytes(api: &Api, address: CUdeviceptr) -> Result<u64, CallError> {
    attribute(api, address, CUpointer_attribute::MAPPING_SIZE)
}

/// The start of the mapping that the address lies in.
pub fn mapping_start(api: &Api, address: CUdeviceptr) -> Result<CUdeviceptr, CallError> {
    Ok(CUdeviceptr(attribute(api, address, CUpointer_attribute::MAPPING_BASE_ADDR)?))
}

/// A number of the memory behind the address, wherever it is mapped.
pub fn memory_block_id(api: &Api, address: CUdeviceptr) -> Result<u64, CallError> {
    attribute(api, address, CUpointer_attribute::MEMORY_BLOCK_ID)
}

/// An attribute that says yes or no. C does not say how long its value is; the zeros after it make that no question.
fn flag(api: &Api, address: CUdeviceptr, which: CUpointer_attribute) -> Result<bool, CallError> {
    Ok(attribute(api, address, which)? != 0)
}
