//! Memory of a device, and memory that host and device both use by one address.

use std::sync::Arc;

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUresult, attach_flags};

use crate::attributes::PITCH_BYTES;
use crate::boundary::Out;
use crate::context::{Context, current, none_or_alive};
use crate::memory::arena::HostPages;
use crate::span::{Span, SpanKind};
use crate::world::{World, world};

pub(crate) fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> CUresult {
    let device = &current()?.device;
    free.set(device.heap().free_bytes() as usize);
    total.set(device.memory_bytes as usize);
    Ok(())
}

pub(crate) fn cuMemAlloc_v2(start: Out<CUdeviceptr>, bytes: usize) -> CUresult {
    let world = world()?;
    let context = current()?;
    start.set(CUdeviceptr(allocate(world, &context, bytes as u64)?));
    Ok(())
}

fn allocate(world: &World, context: &Arc<Context>, bytes: u64) -> Result<u64, CUerror> {
    if bytes == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    world.allocate(context, bytes, SpanKind::Device)
}

pub(crate) fn cuMemAllocPitch_v2(
    start: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width_bytes: usize,
    height: usize,
    element_bytes: u32,
) -> CUresult {
    let world = world()?;
    let context = current()?;
    if !matches!(element_bytes, 4 | 8 | 16) || width_bytes == 0 || height == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let row = (width_bytes as u64).checked_next_multiple_of(PITCH_BYTES).ok_or(CUerror::INVALID_VALUE)?;
    let bytes = row.checked_mul(height as u64).ok_or(CUerror::INVALID_VALUE)?;
    start.set(CUdeviceptr(allocate(world, &context, bytes)?));
    pitch.set(row as usize);
    Ok(())
}

pub(crate) fn cuMemFree_v2(start: CUdeviceptr) -> CUresult {
    let world = world()?;
    none_or_alive()?;
    if start == CUdeviceptr::NULL {
        return Ok(());
    }
    let span = take(world, start.0, |span| {
        matches!(span.kind, SpanKind::Device | SpanKind::Managed { .. } | SpanKind::Pool(_))
    })?;
    if let SpanKind::Pool(pool) = &span.kind {
        // Memory of a pool is free at once, whatever its streams still do: who frees it so has waited for them.
        world.devices[span.device].arena.poison(span.base, span.bytes);
        world.end(&span);
        pool.release(span.base, None);
        return Ok(());
    }
    wait_for_owner(world, &span);
    world.end(&span);
    world.give_back(&span);
    Ok(())
}

/// Takes a span that starts at `base` from the program, if `wanted` says so. Kernels reach it until its end.
pub(super) fn take(world: &World, base: u64, wanted: impl Fn(&Span) -> bool) -> Result<Arc<Span>, CUerror> {
    let mut spans = world.spans_mut();
    if !spans.starting_at(base).is_some_and(|span| wanted(span)) {
        return Err(CUerror::INVALID_VALUE);
    }
    spans.leave(base).ok_or(CUerror::INVALID_VALUE)
}

/// Waits for all work of the context that a span belongs to (fact 2.1).
pub(super) fn wait_for_owner(world: &World, span: &Span) {
    if let Some(owner) = &span.context {
        owner.synchronize(world);
    }
}

pub(crate) fn cuMemGetAddressRange_v2(
    base: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    address: CUdeviceptr,
) -> CUresult {
    let world = world()?;
    current()?;
    let span = world.span(address.0).ok_or(CUerror::NOT_FOUND)?;
    if let Some(base) = base {
        base.set(CUdeviceptr(span.base));
    }
    if let Some(bytes) = bytes {
        bytes.set(span.bytes as usize);
    }
    Ok(())
}

pub(crate) fn cuMemAllocManaged(start: Out<CUdeviceptr>, bytes: usize, flags: u32) -> CUresult {
    let world = world()?;
    let context = current()?;
    if bytes == 0 || !matches!(flags, attach_flags::GLOBAL | attach_flags::HOST) {
        return Err(CUerror::INVALID_VALUE);
    }
    let pages = Arc::new(HostPages::map(bytes as u64).map_err(|_| CUerror::OUT_OF_MEMORY)?);
    let base = pages.start() as u64;
    let device = context.device.ordinal;
    world.enter(base, bytes as u64, device, Some(context), SpanKind::Managed { pages, advices: Arc::default() })?;
    start.set(CUdeviceptr(base));
    Ok(())
}
