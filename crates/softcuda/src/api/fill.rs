//! Fills, linear and of rectangles, synchronous and stream-ordered.
//!
//! A fill of device memory does not block the host in either form. A synchronous fill of pinned memory does.

use std::sync::Arc;

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUmemAccess_flags, CUresult, CUstream};

use super::copy::Call;
use crate::base::sync::lock;
use crate::engine::work::{Extent, MemFill, PitchedRef, Work};
use crate::memory::mem_ref::MemRef;
use crate::objects::context::Context;
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::{DriverState, driver};

/// A rectangle: `pitch` in bytes, `width` in elements, `height` in rows.
struct Rectangle {
    start: CUdeviceptr,
    pitch: usize,
    width: usize,
    height: usize,
}

fn fill(rectangle: &Rectangle, pattern: &[u8], stream: CUstream, call: Call) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let element = pattern.len() as u64;
    let extent = Extent {
        width: (rectangle.width as u64).checked_mul(element).ok_or(CUerror::INVALID_VALUE)?,
        height: rectangle.height as u64,
        depth: 1,
    };
    let pitch = rectangle.pitch as u64;
    let start = rectangle.start.0;
    if !start.is_multiple_of(element) || extent.height > 1 && !pitch.is_multiple_of(element) {
        return Err(CUerror::INVALID_VALUE);
    }
    if extent.bytes().ok_or(CUerror::INVALID_VALUE)? == 0 {
        return Ok(());
    }
    if extent.height > 1 && pitch < extent.width {
        return Err(CUerror::INVALID_VALUE);
    }
    let last =
        (extent.height - 1).checked_mul(pitch).and_then(|rows| start.checked_add(rows)?.checked_add(extent.width - 1));
    let last = last.ok_or(CUerror::INVALID_VALUE)?;
    let (span, mem) = resolve(driver, start, last, &stream_ref.context)?;
    let target = PitchedRef { mem, pitch, slice: 0 };
    let work = Work::Fill(Box::new(MemFill::new(target, extent, pattern.to_vec())));
    if call == Call::Async {
        return stream_ref.submit(work);
    }
    let done = stream_ref.submit_uncaptured(Vec::new(), work)?;
    if span.is_on_host() || span.sync_memops.load(std::sync::atomic::Ordering::Relaxed) {
        driver.engine.wait(&done);
        driver.after_sync(&stream_ref.context)?;
    }
    Ok(())
}

/// Looks up the memory of a fill, which may be memory of a kernel's `malloc`; a copy cannot access that.
fn resolve(driver: &DriverState, start: u64, last: u64, context: &Context) -> Result<(Arc<Span>, MemRef), CUerror> {
    let device = context.device.ordinal;
    if let Some((span, mem)) = driver.space.resolve(start, last, device, CUmemAccess_flags::PROT_READWRITE)? {
        return if can_access(context, &span) { Ok((span, mem)) } else { Err(CUerror::INVALID_VALUE) };
    }
    let malloced = driver.space.spans().malloc_block_containing(start).cloned();
    let span = malloced.filter(|span| last < span.end() && can_access(context, span)).ok_or(CUerror::INVALID_VALUE)?;
    let mem = driver.space.mem_ref(&span, start);
    Ok((span, mem))
}

/// Returns whether work of `context` may access memory of another device, which needs peer access.
fn can_access(context: &Context, span: &Span) -> bool {
    if span.device == context.device.ordinal || span.is_on_host() {
        return true;
    }
    match (&span.kind, &span.context) {
        (SpanKind::Mapped(_) | SpanKind::Managed { .. }, _) => true,
        (SpanKind::Pool(pool), _) => {
            pool.access(context.device.ordinal as i32) == Some(CUmemAccess_flags::PROT_READWRITE)
        }
        (_, Some(owner)) => lock(&context.peers).contains(&owner.id),
        (_, None) => false,
    }
}

fn linear(start: CUdeviceptr, width: usize) -> Rectangle {
    Rectangle { start, pitch: 0, width, height: 1 }
}

pub(crate) fn cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize) -> CUresult {
    fill(&linear(to, count), &value.to_ne_bytes(), CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize) -> CUresult {
    fill(&linear(to, count), &value.to_ne_bytes(), CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemsetD32_v2(to: CUdeviceptr, value: u32, count: usize) -> CUresult {
    fill(&linear(to, count), &value.to_ne_bytes(), CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> CUresult {
    fill(&linear(to, count), &value.to_ne_bytes(), stream, Call::Async)
}

pub(crate) fn cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream) -> CUresult {
    fill(&linear(to, count), &value.to_ne_bytes(), stream, Call::Async)
}

pub(crate) fn cuMemsetD32Async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream) -> CUresult {
    fill(&linear(to, count), &value.to_ne_bytes(), stream, Call::Async)
}

pub(crate) fn cuMemsetD2D8_v2(start: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) -> CUresult {
    fill(&Rectangle { start, pitch, width, height }, &value.to_ne_bytes(), CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemsetD2D16_v2(start: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) -> CUresult {
    fill(&Rectangle { start, pitch, width, height }, &value.to_ne_bytes(), CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemsetD2D32_v2(start: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) -> CUresult {
    fill(&Rectangle { start, pitch, width, height }, &value.to_ne_bytes(), CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemsetD2D8Async(
    start: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    fill(&Rectangle { start, pitch, width, height }, &value.to_ne_bytes(), stream, Call::Async)
}

pub(crate) fn cuMemsetD2D16Async(
    start: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    fill(&Rectangle { start, pitch, width, height }, &value.to_ne_bytes(), stream, Call::Async)
}

pub(crate) fn cuMemsetD2D32Async(
    start: CUdeviceptr,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: CUstream,
) -> CUresult {
    fill(&Rectangle { start, pitch, width, height }, &value.to_ne_bytes(), stream, Call::Async)
}
