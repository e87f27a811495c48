//! The setup of experiments on virtual memory: physical memory without an address, and mappings of it.

use freehold_driver::cuda::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemoryPool, DriverError, address,
    allocation, mapping, pool,
};

use super::fixture::Fixture;

pub(crate) const MIB: usize = 1 << 20;

/// The granularity of such memory and its addresses.
pub(crate) const PAGE: usize = 2 * MIB;

/// Memory that was created, and mapped for the device to read and write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    pub(crate) start: CUdeviceptr,
    pub(crate) allocation: CUmemGenericAllocationHandle,
    pub(crate) bytes: usize,
}

/// Device memory that cannot be exported.
pub(crate) fn device_prop(b: &Fixture) -> CUmemAllocationProp {
    CUmemAllocationProp::on_device(b.device, CUmemAllocationHandleType::NONE)
}

/// Device memory that can be exported as a descriptor.
pub(crate) fn shareable_prop(b: &Fixture) -> CUmemAllocationProp {
    CUmemAllocationProp::on_device(b.device, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR)
}

pub(crate) fn exportable_pool(b: &Fixture) -> Result<CUmemoryPool, DriverError> {
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

/// Reserves addresses of the driver's choice.
pub(crate) fn reserve(b: &Fixture, bytes: usize) -> Result<CUdeviceptr, DriverError> {
    address::reserve(b, bytes, 0, CUdeviceptr::NULL)
}

/// Maps a whole handle to new addresses, without access.
pub(crate) fn map_existing(
    b: &Fixture,
    allocation: CUmemGenericAllocationHandle,
    bytes: usize,
) -> Result<CUdeviceptr, DriverError> {
    let start = reserve(b, bytes)?;
    mapping::map(b, start, bytes, 0, allocation)?;
    Ok(start)
}

/// Creates memory and maps it to new addresses, without access.
pub(crate) fn map_without_access(b: &Fixture, bytes: usize) -> Result<Mapped, DriverError> {
    let allocation = allocation::create(b, bytes, &shareable_prop(b))?;
    Ok(Mapped { start: map_existing(b, allocation, bytes)?, allocation, bytes })
}

/// Creates memory and maps it to new addresses, for reading and writing.
pub(crate) fn map_new(b: &Fixture, bytes: usize) -> Result<Mapped, DriverError> {
    let mapped = map_without_access(b, bytes)?;
    mapping::set_access(b, mapped.start, bytes, &[read_write_access(b)])?;
    Ok(mapped)
}

/// Returns the address `bytes` further on.
pub(crate) fn offset(start: CUdeviceptr, bytes: usize) -> CUdeviceptr {
    CUdeviceptr(start.0 + bytes as u64)
}
