//! Memory mapped to reserved addresses.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAccessDesc, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType, CUresult,
};

use rustix::mm::ProtFlags;

use super::allocation::find;
use crate::boundary::{In, List, Out};
use crate::mapping::Mapping;
use crate::memory::PAGE_BYTES;
use crate::memory::arena::{SEEN, UNSEEN};
use crate::span::SpanKind;
use crate::world::{World, world};

/// As many descriptions as access is given at once: some more than there are devices.
const ACCESS_COUNT_MAX: usize = 64;

/// Whole pages, at least one, that do not wrap around.
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
    let world = world()?;
    let found = find(world, allocation)?;
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
    let span = world.new_span(start.0, length, device, None, SpanKind::Mapped(mapping));
    let mut spans = world.spans_mut();
    if !world.addresses.holds(start.0, length) || spans.overlapping(start.0, length).is_some() {
        return Err(CUerror::INVALID_VALUE);
    }
    // Whoever gives access to a device shows the memory to the host.
    let attached = world.addresses.arena().attach(start.0, &found.memory, 0, length, UNSEEN);
    attached.map_err(|_| CUerror::OUT_OF_MEMORY)?;
    spans.insert(span);
    Ok(())
}

pub(crate) fn cuMemUnmap(start: CUdeviceptr, bytes: usize) -> CUresult {
    let world = world()?;
    if !are_pages(start, bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    // The memory goes back without a lock.
    drop(world.unmap(start.0, bytes as u64)?);
    Ok(())
}

/// The ordinal of a device that access is given to.
fn device_at(world: &World, location: CUmemLocation) -> Result<usize, CUerror> {
    match location.kind {
        CUmemLocationType::DEVICE => {}
        CUmemLocationType::HOST => return Err(CUerror::NOT_SUPPORTED),
        _ => return Err(CUerror::INVALID_VALUE),
    }
    world.device(CUdevice(location.id)).map(|device| device.ordinal).map_err(|_| CUerror::INVALID_VALUE)
}

pub(crate) fn cuMemSetAccess(
    start: CUdeviceptr,
    bytes: usize,
    access: List<CUmemAccessDesc>,
    count: usize,
) -> CUresult {
    let world = world()?;
    if !are_pages(start, bytes) || count == 0 || count > ACCESS_COUNT_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let known = [CUmemAccess_flags::PROT_NONE, CUmemAccess_flags::PROT_READ, CUmemAccess_flags::PROT_READWRITE];
    let wanted = access.read(count)?;
    let wanted: Vec<_> = wanted
        .into_iter()
        .map(|wanted| {
            let device = device_at(world, wanted.location)?;
            if known.contains(&wanted.flags) { Ok((device, wanted.flags)) } else { Err(CUerror::INVALID_VALUE) }
        })
        .collect::<Result<_, _>>()?;
    // Held until the host sees what it may: nothing is unmapped meanwhile.
    let spans = world.spans();
    let run = spans.mapped_run(start.0, bytes as u64).ok_or(CUerror::INVALID_VALUE)?;
    let mut at = start.0;
    for mapping in &run {
        for &(device, flags) in &wanted {
            mapping.set_access(device, flags);
        }
        let length = mapping.allocation.memory.bytes();
        world.addresses.arena().show(at, length, sight(mapping)).map_err(|_| CUerror::OUT_OF_MEMORY)?;
        at += length;
    }
    drop(spans);
    // Kernels look again at what they may do there.
    world.lose();
    Ok(())
}

/// What the host may do with mapped memory, where it reaches any: what some device may.
fn sight(mapping: &Mapping) -> ProtFlags {
    match mapping.most() {
        CUmemAccess_flags::PROT_NONE => UNSEEN,
        CUmemAccess_flags::PROT_READ => ProtFlags::READ,
        _ => SEEN,
    }
}

pub(crate) fn cuMemGetAccess(flags: Out<u64>, location: In<CUmemLocation>, start: CUdeviceptr) -> CUresult {
    let world = world()?;
    let device = match location.0.kind {
        CUmemLocationType::DEVICE => world.device(CUdevice(location.0.id))?.ordinal,
        // The real driver answers so, whatever the host may do there.
        CUmemLocationType::HOST => 0,
        _ => return Err(CUerror::INVALID_DEVICE),
    };
    let span = world.span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    flags.set(match &span.kind {
        SpanKind::Mapped(mapping) => mapping.access(device).0.into(),
        SpanKind::Device => 0,
        _ => return Err(CUerror::INVALID_VALUE),
    });
    Ok(())
}
