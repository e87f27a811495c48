//! Devices and their capabilities. Contexts on them are in [`primary`](super::primary) and [`context`](super::context).

use std::ffi::{CStr, c_char};

use super::api::Api;
use super::call::{DriverError, call};
use super::managed_types::CUdevprop;
use super::node_types::CUgraphMem_attribute;
use super::types::{CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUmemoryPool, CUuuid};

/// The size of the buffer for a name, with its NUL; the driver truncates a longer one.
const NAME_BYTES: usize = 256;

/// Returns the device with this ordinal.
pub fn at(api: &Api, ordinal: i32) -> Result<CUdevice, DriverError> {
    let mut device = CUdevice::default();
    // SAFETY: `device` outlives the call, which writes one device to it.
    unsafe { call!(api.cuDeviceGet(&mut device, ordinal)) }?;
    Ok(device)
}

/// Returns the number of devices.
pub fn count(api: &Api) -> Result<i32, DriverError> {
    let mut count = 0;
    // SAFETY: `count` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuDeviceGetCount(&mut count)) }?;
    Ok(count)
}

/// Returns the product's name.
pub fn name(api: &Api, device: CUdevice) -> Result<String, DriverError> {
    let mut text = [0_u8; NAME_BYTES];
    let start = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: `text` outlives the call, which writes at most the `NAME_BYTES` bytes that it has.
    unsafe { call!(api.cuDeviceGetName(start, NAME_BYTES as i32, device)) }?;
    Ok(until_nul(&text))
}

/// [`uuid`] in the form of CUDA 11.3 and earlier.
pub fn uuid_v1(api: &Api, device: CUdevice) -> Result<CUuuid, DriverError> {
    let mut uuid = CUuuid::default();
    // SAFETY: `uuid` outlives the call, which writes 16 bytes to it.
    unsafe { call!(api.cuDeviceGetUuid(&mut uuid, device)) }?;
    Ok(uuid)
}

/// Returns a few properties of a device, in the form of the oldest programs.
pub fn properties(api: &Api, device: CUdevice) -> Result<CUdevprop, DriverError> {
    let mut properties = CUdevprop::default();
    // SAFETY: `properties` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuDeviceGetProperties(&mut properties, device)) }?;
    Ok(properties)
}

/// Returns an id that no other device has.
pub fn uuid(api: &Api, device: CUdevice) -> Result<CUuuid, DriverError> {
    let mut uuid = CUuuid::default();
    // SAFETY: `uuid` outlives the call, which writes its sixteen bytes.
    unsafe { call!(api.cuDeviceGetUuid_v2(&mut uuid, device)) }?;
    Ok(uuid)
}

/// Returns the size of the device's memory.
pub fn total_bytes(api: &Api, device: CUdevice) -> Result<usize, DriverError> {
    let mut bytes = 0;
    // SAFETY: `bytes` outlives the call, which writes one `usize` to it.
    unsafe { call!(api.cuDeviceTotalMem_v2(&mut bytes, device)) }?;
    Ok(bytes)
}

/// Returns the value of an attribute. Boolean ones are 1 or 0.
pub fn attribute(api: &Api, device: CUdevice, attribute: CUdevice_attribute) -> Result<i32, DriverError> {
    let mut value = 0;
    // SAFETY: `value` outlives the call, which writes one `i32` to it, whatever the attribute.
    unsafe { call!(api.cuDeviceGetAttribute(&mut value, attribute, device)) }?;
    Ok(value)
}

/// Returns the device with a PCI bus id, such as `0000:19:00.0`.
pub fn at_pci_bus_id(api: &Api, bus_id: &CStr) -> Result<CUdevice, DriverError> {
    let mut device = CUdevice::default();
    // SAFETY: `bus_id` ends in a NUL; `device` outlives the call, which writes one device to it.
    unsafe { call!(api.cuDeviceGetByPCIBusId(&mut device, bus_id.as_ptr())) }?;
    Ok(device)
}

/// Returns the device's PCI bus id.
pub fn pci_bus_id(api: &Api, device: CUdevice) -> Result<String, DriverError> {
    let mut text = [0_u8; NAME_BYTES];
    let start = text.as_mut_ptr().cast::<c_char>();
    // SAFETY: `text` outlives the call, which writes at most the `NAME_BYTES` bytes that it has.
    unsafe { call!(api.cuDeviceGetPCIBusId(start, NAME_BYTES as i32, device)) }?;
    Ok(until_nul(&text))
}

/// Returns whether contexts on `device` can access the memory of `peer`.
pub fn can_access_peer(api: &Api, device: CUdevice, peer: CUdevice) -> Result<bool, DriverError> {
    let mut can = 0;
    // SAFETY: `can` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuDeviceCanAccessPeer(&mut can, device, peer)) }?;
    Ok(can != 0)
}

/// Returns the value of an attribute of the link between two devices.
pub fn p2p_attribute(
    api: &Api,
    from: CUdevice,
    to: CUdevice,
    attribute: CUdevice_P2PAttribute,
) -> Result<i32, DriverError> {
    let mut value = 0;
    // SAFETY: `value` outlives the call, which writes one `i32` to it, whatever the attribute.
    unsafe { call!(api.cuDeviceGetP2PAttribute(&mut value, attribute, from, to)) }?;
    Ok(value)
}

/// Returns the default pool of the device.
pub fn default_pool(api: &Api, device: CUdevice) -> Result<CUmemoryPool, DriverError> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: `pool` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuDeviceGetDefaultMemPool(&mut pool, device)) }?;
    Ok(pool)
}

/// Returns the pool that [`memory::alloc_async`](super::memory::alloc_async) allocates from.
pub fn pool(api: &Api, device: CUdevice) -> Result<CUmemoryPool, DriverError> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: `pool` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuDeviceGetMemPool(&mut pool, device)) }?;
    Ok(pool)
}

/// Makes `pool` the one that [`memory::alloc_async`](super::memory::alloc_async) allocates from.
pub fn set_pool(api: &Api, device: CUdevice, pool: CUmemoryPool) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDeviceSetMemPool(device, pool)) }
}

/// Returns the major and the minor compute capability of the device.
pub fn compute_capability(api: &Api, device: CUdevice) -> Result<(i32, i32), DriverError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: `major` and `minor` outlive the call, which writes one `i32` to each.
    unsafe { call!(api.cuDeviceComputeCapability(&mut major, &mut minor, device)) }?;
    Ok((major, minor))
}

fn until_nul(text: &[u8]) -> String {
    let length = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Returns memory that graphs no longer use to the device.
pub fn trim_graph_memory(api: &Api, device: CUdevice) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuDeviceGraphMemTrim(device)) }
}

/// Returns an amount of memory of graphs, in bytes.
pub fn graph_memory(api: &Api, device: CUdevice, attribute: CUgraphMem_attribute) -> Result<u64, DriverError> {
    let mut value = 0u64;
    // SAFETY: `value` outlives the call, which writes one `u64` to it.
    unsafe { call!(api.cuDeviceGetGraphMemAttribute(device, attribute, (&raw mut value).cast())) }?;
    Ok(value)
}

/// Resets a high-water mark of the memory of graphs.
pub fn reset_graph_memory(api: &Api, device: CUdevice, attribute: CUgraphMem_attribute) -> Result<(), DriverError> {
    let mut value = 0u64;
    // SAFETY: `value` outlives the call, which reads one `u64`.
    unsafe { call!(api.cuDeviceSetGraphMemAttribute(device, attribute, (&raw mut value).cast())) }
}
