//! Memory of a device, and memory that host and device both use by one address.

use std::sync::Arc;

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUresult, attach_flags};

use super::pool::{is_imported, remove_import};
use crate::attributes::PITCH_BYTES;
use crate::context::{Context, check_current_if_any, current};
use crate::driver_state::{DriverState, driver};
use crate::ffi::args::Out;
use crate::memory::arena::HostPages;
use crate::span::{Span, SpanKind};

pub(crate) fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> CUresult {
    let device = &current()?.device;
    free.set(device.free_bytes()? as usize);
    total.set(device.memory.bytes as usize);
    Ok(())
}

pub(crate) fn cuMemAlloc_v2(start: Out<CUdeviceptr>, bytes: usize) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    start.set(CUdeviceptr(alloc(driver, &context, bytes as u64)?));
    Ok(())
}

fn alloc(driver: &DriverState, context: &Arc<Context>, bytes: u64) -> Result<u64, CUerror> {
    if bytes == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    driver.alloc(context, bytes, SpanKind::Device)
}

pub(crate) fn cuMemAllocPitch_v2(
    start: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width_bytes: usize,
    height: usize,
    element_bytes: u32,
) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    if !matches!(element_bytes, 4 | 8 | 16) || width_bytes == 0 || height == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let row = (width_bytes as u64).checked_next_multiple_of(PITCH_BYTES).ok_or(CUerror::INVALID_VALUE)?;
    let bytes = row.checked_mul(height as u64).ok_or(CUerror::INVALID_VALUE)?;
    start.set(CUdeviceptr(alloc(driver, &context, bytes)?));
    pitch.set(row as usize);
    Ok(())
}

pub(crate) fn cuMemFree_v2(start: CUdeviceptr) -> CUresult {
    let driver = driver()?;
    check_current_if_any()?;
    if start == CUdeviceptr::NULL {
        return Ok(());
    }
    let span = begin_free(driver, start.0, |span| {
        matches!(span.kind, SpanKind::Device | SpanKind::Managed { .. } | SpanKind::Pool(_)) || is_imported(span)
    })?;
    if let SpanKind::Pool(pool) = &span.kind {
        // Memory of a pool is free at once, whatever its streams still do: who frees it so has waited for them.
        pool.poison(span.base, span.bytes);
        driver.finish_free(&span);
        pool.free(span.base, None);
        return Ok(());
    }
    remove_import(driver, &span);
    synchronize_owner(driver, &span);
    driver.finish_free(&span);
    driver.free_backing(&span);
    Ok(())
}

/// Takes a span that starts at `base` from the program, if `wanted` says so. Kernels reach it until its end.
pub(super) fn begin_free(
    driver: &DriverState,
    base: u64,
    wanted: impl Fn(&Span) -> bool,
) -> Result<Arc<Span>, CUerror> {
    let mut spans = driver.spans_mut();
    if !spans.starting_at(base).is_some_and(|span| wanted(span)) {
        return Err(CUerror::INVALID_VALUE);
    }
    spans.begin_free(base).ok_or(CUerror::INVALID_VALUE)
}

/// Waits for all work of the context that a span belongs to.
pub(super) fn synchronize_owner(driver: &DriverState, span: &Span) {
    if let Some(owner) = &span.context {
        owner.synchronize(&driver.engine);
    }
}

pub(crate) fn cuMemGetAddressRange_v2(
    base: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    address: CUdeviceptr,
) -> CUresult {
    let driver = driver()?;
    current()?;
    let span = driver.find_span(address.0).filter(|span| !span.is_inaccessible()).ok_or(CUerror::NOT_FOUND)?;
    if let Some(base) = base {
        base.set(CUdeviceptr(span.base));
    }
    if let Some(bytes) = bytes {
        bytes.set(span.bytes as usize);
    }
    Ok(())
}

pub(crate) fn cuMemAllocManaged(start: Out<CUdeviceptr>, bytes: usize, flags: u32) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    if bytes == 0 || !matches!(flags, attach_flags::GLOBAL | attach_flags::HOST) {
        return Err(CUerror::INVALID_VALUE);
    }
    let pages = Arc::new(HostPages::map(bytes as u64).map_err(|_| CUerror::OUT_OF_MEMORY)?);
    let base = pages.start() as u64;
    let device = context.device.ordinal;
    driver.insert_span(
        base,
        bytes as u64,
        device,
        Some(context),
        SpanKind::Managed { pages, advice: Arc::default() },
    )?;
    start.set(CUdeviceptr(base));
    Ok(())
}
