//! What experiments on virtual memory begin with: memory without an address, and mappings of it.

use freehold_driver::cuda::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemoryPool, CallError, address,
    allocation, mapping, pool,
};

use super::fixture::Fixture;

pub(crate) const MIB: usize = 1 << 20;

/// What such memory and its addresses are multiples of.
pub(crate) const PAGE: usize = 2 * MIB;

/// Memory that was made, and mapped for the device to read and write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    pub(crate) start: CUdeviceptr,
    pub(crate) allocation: CUmemGenericAllocationHandle,
    pub(crate) bytes: usize,
}

/// Memory of the device that is not to be exported.
pub(crate) fn device_prop(b: &Fixture) -> CUmemAllocationProp {
    CUmemAllocationProp::on_device(b.device, CUmemAllocationHandleType::NONE)
}

/// Memory of the device that can be exported as a descriptor.
pub(crate) fn shareable_prop(b: &Fixture) -> CUmemAllocationProp {
    CUmemAllocationProp::on_device(b.device, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR)
}

pub(crate) fn exportable_pool(b: &Fixture) -> Result<CUmemoryPool, CallError> {
    let handles = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    pool::create(b, &CUmemPoolProps { handleTypes: handles, ..CUmemPoolProps::on_device(b.device) })
}

pub(crate) fn on_device(b: &Fixture) -> CUmemLocation {
    CUmemLocation { kind: CUmemLocationType::DEVICE, id: b.device.0 }
}

pub(crate) fn read_write_access(b: &Fixture) -> CUmemAccessDesc {
    CUmemAccessDesc { location: on_device(b), flags: CUmemAccess_flags::PROT_READWRITE }
}

pub(crate) fn read_access(b: &Fixture) -> CUmemAccessDesc {
    CUmemAccessDesc { location: on_device(b), flags: CUmemAccess_flags::PROT_READ }
}

pub(crate) fn no_access(b: &Fixture) -> CUmemAccessDesc {
    CUmemAccessDesc { location: on_device(b), flags: CUmemAccess_flags::PROT_NONE }
}

/// Reserves addresses wherever the driver likes.
pub(crate) fn reserve(b: &Fixture, bytes: usize) -> Result<CUdeviceptr, CallError> {
    address::reserve(b, bytes, 0, CUdeviceptr::NULL)
}

/// Maps a whole handle to addresses of its own. Nobody has access.
pub(crate) fn map_existing(
    b: &Fixture,
    allocation: CUmemGenericAllocationHandle,
    bytes: usize,
) -> Result<CUdeviceptr, CallError> {
    let start = reserve(b, bytes)?;
    mapping::map(b, start, bytes, 0, allocation)?;
    Ok(start)
}

/// New memory, mapped to addresses of its own. Nobody has access.
pub(crate) fn map_without_access(b: &Fixture, bytes: usize) -> Result<Mapped, CallError> {
    let allocation = allocation::create(b, bytes, &shareable_prop(b))?;
    Ok(Mapped { start: map_existing(b, allocation, bytes)?, allocation, bytes })
}

/// New memory, mapped to addresses of its own, to be read and written.
pub(crate) fn map_new(b: &Fixture, bytes: usize) -> Result<Mapped, CallError> {
    let mapped = map_without_access(b, bytes)?;
    mapping::set_access(b, mapped.start, bytes, &[read_write_access(b)])?;
    Ok(mapped)
}

/// The address `bytes` further on.
pub(crate) fn offset(start: CUdeviceptr, bytes: usize) -> CUdeviceptr {
    CUdeviceptr(start.0 + bytes as u64)
}
