//! Device memory, and memory that host and device access at one address.

use std::sync::Arc;

use freehold_check::BlockKind;
use freehold_driver::cuda::{CUdeviceptr, CUerror, CUresult, attach_flags};

use super::graph_block::find_block;
use crate::base::{check, shared_frees};
use crate::ffi::args::Out;
use crate::objects::attributes::PITCH_BYTES;
use crate::objects::context::{Context, check_current_if_any, current};
use crate::space::span::SpanKind;
use crate::state::driver_state::{DriverState, driver};

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
    let address = driver.space.alloc(context, bytes, SpanKind::Device)?;
    check::allocate(address, bytes, BlockKind::Device);
    Ok(address)
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
    if let Some(block) = find_block(driver, start) {
        // The program has waited for the streams that use it.
        block.free()?;
        block.unmap();
        driver.space.release_graph_memory();
        return Ok(());
    }
    let span = driver.space.begin_free(start.0, |span| {
        let is_block =
            matches!(span.kind, SpanKind::Device | SpanKind::Managed { is_variable: false, .. } | SpanKind::Pool(_));
        is_block || span.is_pool_import()
    });
    let span = span.inspect_err(|_| check::wrong_free(start.0, false))?;
    if let SpanKind::Pool(pool) = &span.kind {
        // A synchronous free makes memory of a pool reusable at once, whatever its streams still do: the program has
        // waited for them.
        check::free(span.base, span.bytes);
        pool.poison(span.base, span.bytes);
        driver.space.finish_free(&span);
        pool.free(span.base, None);
        return Ok(());
    }
    if let SpanKind::Imported(opened) = &span.kind {
        driver.imports.remove(opened);
    }
    span.synchronize_owner(&driver.engine);
    check::free(span.base, span.bytes);
    shared_frees::freed(span.id, || {
        let (first, memory) = driver.space.devices[span.device].memory.backing(span.base)?;
        Some((memory.inode(), span.base - first, span.id))
    });
    driver.space.finish_free(&span);
    driver.space.free_backing(&span);
    Ok(())
}

pub(crate) fn cuMemGetAddressRange_v2(
    base: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    address: CUdeviceptr,
) -> CUresult {
    let driver = driver()?;
    current()?;
    let span = driver.space.find_span(address.0).filter(|span| !span.is_inaccessible()).ok_or(CUerror::NOT_FOUND)?;
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
    let device = context.device.ordinal;
    let base = driver.space.alloc_managed(Some(context), device, bytes as u64, false)?;
    check::allocate(base, bytes as u64, BlockKind::Defined);
    start.set(CUdeviceptr(base));
    Ok(())
}
