//! Mappings of memory to reserved addresses, and their access rights.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAccessDesc, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType, CUresult,
};

use freehold_check::BlockKind;
use rustix::mm::ProtFlags;

use crate::base::check;
use crate::ffi::args::{In, InArray, Out};
use crate::memory::arena::{HOST_NO_ACCESS, HOST_READ_WRITE};
use crate::memory::mapping::Mapping;
use crate::memory::page_heap::PAGE_BYTES;
use crate::space::span::SpanKind;
use crate::state::driver_state::{DriverState, driver};

/// Maximum number of access descriptors in a call, more than there are devices.
const ACCESS_COUNT_MAX: usize = 64;

/// Returns whether the range is at least one whole page and does not wrap around.
fn are_pages(start: CUdeviceptr, bytes: usize) -> bool {
    let bytes = bytes as u64;
    let whole = start.0.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
    bytes > 0 && whole && start.0.checked_add(bytes).is_some()
}

pub(crate) fn cuMemMap(
    start: CUdeviceptr,
    bytes: usize,
    offset: usize,
    allocation: CUmemGenericAllocationHandle,
    flags: u64,
) -> CUresult {
    let driver = driver()?;
    let found = driver.allocations.get(allocation.0 as usize)?;
    let length = bytes as u64;
    if flags != 0 || bytes == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if offset != 0 || length != found.memory.bytes() {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if !are_pages(start, bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = found.device;
    let mapping = Arc::new(Mapping::new(Arc::clone(&found)));
    let span = driver.space.new_span(start.0, length, device, None, SpanKind::Mapped(mapping));
    let mut spans = driver.space.spans_mut();
    if !driver.space.reservations.contains(start.0, length) || spans.overlapping(start.0, length).is_some() {
        return Err(CUerror::INVALID_VALUE);
    }
    // The host gets access when a device does.
    let attached = driver.space.reservations.arena().attach(start.0, &found.memory, 0, length, HOST_NO_ACCESS);
    attached.map_err(|_| CUerror::OUT_OF_MEMORY)?;
    spans.insert(span);
    drop(spans);
    check::allocate(start.0, length, BlockKind::Mapped);
    Ok(())
}

pub(crate) fn cuMemUnmap(start: CUdeviceptr, bytes: usize) -> CUresult {
    let driver = driver()?;
    if !are_pages(start, bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    // The memory is released without a lock.
    let unmapped = driver.space.unmap(start.0, bytes as u64)?;
    unmapped.iter().for_each(|span| check::free(span.base, span.bytes));
    Ok(())
}

/// Returns the ordinal of the device in an access descriptor.
fn device_at(driver: &DriverState, location: CUmemLocation) -> Result<usize, CUerror> {
    match location.kind {
        CUmemLocationType::DEVICE => {}
        CUmemLocationType::HOST => return Err(CUerror::NOT_SUPPORTED),
        _ => return Err(CUerror::INVALID_VALUE),
    }
    driver.space.device(CUdevice(location.id)).map(|device| device.ordinal).map_err(|_| CUerror::INVALID_VALUE)
}

pub(crate) fn cuMemSetAccess(
    start: CUdeviceptr,
    bytes: usize,
    access: InArray<CUmemAccessDesc>,
    count: usize,
) -> CUresult {
    let driver = driver()?;
    if !are_pages(start, bytes) || count == 0 || count > ACCESS_COUNT_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let known = [CUmemAccess_flags::PROT_NONE, CUmemAccess_flags::PROT_READ, CUmemAccess_flags::PROT_READWRITE];
    let wanted = access.read(count)?;
    let wanted: Vec<_> = wanted
        .into_iter()
        .map(|wanted| {
            let device = device_at(driver, wanted.location)?;
            if known.contains(&wanted.flags) { Ok((device, wanted.flags)) } else { Err(CUerror::INVALID_VALUE) }
        })
        .collect::<Result<_, _>>()?;
    // Held until the host's access is set, so that nothing is unmapped in the meantime.
    let spans = driver.space.spans();
    let run = spans.mapped_run(start.0, bytes as u64).ok_or(CUerror::INVALID_VALUE)?;
    let mut at = start.0;
    for mapping in &run {
        for &(device, flags) in &wanted {
            mapping.set_access(device, flags);
        }
        let length = mapping.allocation.memory.bytes();
        driver
            .space
            .reservations
            .arena()
            .protect_host(at, length, host_prot(mapping))
            .map_err(|_| CUerror::OUT_OF_MEMORY)?;
        at += length;
    }
    drop(spans);
    // Kernels look up their access again.
    driver.space.bump_span_epoch();
    Ok(())
}

/// Returns the host's access to mapped memory if device and host are coherent: the highest that a device has.
fn host_prot(mapping: &Mapping) -> ProtFlags {
    match mapping.max_access() {
        CUmemAccess_flags::PROT_NONE => HOST_NO_ACCESS,
        CUmemAccess_flags::PROT_READ => ProtFlags::READ,
        _ => HOST_READ_WRITE,
    }
}

pub(crate) fn cuMemGetAccess(flags: Out<u64>, location: In<CUmemLocation>, start: CUdeviceptr) -> CUresult {
    let driver = driver()?;
    let device = match location.0.kind {
        CUmemLocationType::DEVICE => driver.space.device(CUdevice(location.0.id))?.ordinal,
        // The real driver reports 0, whatever access the host has.
        CUmemLocationType::HOST => 0,
        _ => return Err(CUerror::INVALID_DEVICE),
    };
    let span = driver.space.find_span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    flags.set(match &span.kind {
        SpanKind::Mapped(mapping) => mapping.access(device).0.into(),
        SpanKind::Device => 0,
        _ => return Err(CUerror::INVALID_VALUE),
    });
    Ok(())
}
