//! Fills, linear and of rectangles, synchronous and stream-ordered.
//!
//! A fill of device memory does not block the host in either form. A synchronous fill of pinned memory does.

use std::sync::Arc;

use freehold_driver::cuda::{CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUerror, CUmemAccess_flags, CUresult, CUstream};

use super::copy::Call;
use super::graph_block::check_allocated;
use crate::engine::work::{Extent, MemFill, PitchedRef, Work};
use crate::memory::mem_ref::MemRef;
use crate::objects::context::Context;
use crate::objects::operation::{MemsetNode, Operation, Residence};
use crate::space::imports::ImportedBlock;
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::{DriverState, driver};

/// A rectangle: `pitch` in bytes, `width` in elements, `height` in rows.
struct Rectangle {
    start: CUdeviceptr,
    pitch: usize,
    width: usize,
    height: usize,
}

/// A fill of memory that was found.
struct Prepared {
    span: Arc<Span>,
    work: Work,
}

impl Rectangle {
    /// Looks up the memory, for work in a context. Returns `None` if there is nothing to fill.
    fn prepare(&self, driver: &DriverState, pattern: &[u8], context: &Context) -> Result<Option<Prepared>, CUerror> {
        let element = pattern.len() as u64;
        let extent = Extent {
            width: (self.width as u64).checked_mul(element).ok_or(CUerror::INVALID_VALUE)?,
            height: self.height as u64,
            depth: 1,
        };
        let (start, pitch) = (self.start.0, self.pitch as u64);
        if !start.is_multiple_of(element) || extent.height > 1 && !pitch.is_multiple_of(element) {
            return Err(CUerror::INVALID_VALUE);
        }
        if extent.bytes().ok_or(CUerror::INVALID_VALUE)? == 0 {
            return Ok(None);
        }
        if extent.height > 1 && pitch < extent.width {
            return Err(CUerror::INVALID_VALUE);
        }
        let rows = (extent.height - 1).checked_mul(pitch);
        let last = rows.and_then(|rows| start.checked_add(rows)?.checked_add(extent.width - 1));
        let (span, mem) = resolve(driver, start, last.ok_or(CUerror::INVALID_VALUE)?, context)?;
        let target = PitchedRef { mem, pitch, slice: 0 };
        Ok(Some(Prepared { span, work: Work::Fill(Box::new(MemFill::new(target, extent, pattern.to_vec()))) }))
    }
}

fn fill(rectangle: &Rectangle, pattern: &[u8], stream: CUstream, call: Call) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let Some(Prepared { span, work }) = rectangle.prepare(driver, pattern, &stream_ref.context)? else {
        return Ok(());
    };
    if !stream_ref.is_captured() {
        check_allocated(driver, &[rectangle.start.0])?;
    }
    if call == Call::Async {
        let describe = |work| node(rectangle.params(pattern), &stream_ref.context, &span, work);
        return stream_ref.submit(work, describe);
    }
    let done = stream_ref.submit_uncaptured(Vec::new(), work)?;
    let is_sync = span.sync_memops.load(std::sync::atomic::Ordering::Relaxed);
    if is_sync || span.is_on_host() || matches!(span.kind, SpanKind::Managed { .. }) {
        driver.engine.wait(&done);
        driver.after_sync(&stream_ref.context)?;
    }
    Ok(())
}

impl Rectangle {
    /// Returns the parameters of a node that fills the rectangle.
    fn params(&self, pattern: &[u8]) -> CUDA_MEMSET_NODE_PARAMS {
        let mut value = [0; 4];
        value[..pattern.len()].copy_from_slice(pattern);
        CUDA_MEMSET_NODE_PARAMS {
            dst: self.start,
            pitch: self.pitch,
            value: u32::from_le_bytes(value),
            elementSize: pattern.len() as u32,
            width: self.width,
            height: self.height,
        }
    }
}

fn node(params: CUDA_MEMSET_NODE_PARAMS, context: &Context, span: &Span, work: Work) -> Operation {
    let to = if span.is_on_host() { Residence::Host } else { Residence::Device(span.device) };
    Operation::Memset(MemsetNode { params, context: context.handle, to, work })
}

/// Returns the operation of a fill for a node that runs in a context.
pub(super) fn operation(
    driver: &DriverState,
    params: &CUDA_MEMSET_NODE_PARAMS,
    context: &Context,
) -> Result<Operation, CUerror> {
    let &CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize, width, height } = params;
    let value = value.to_le_bytes();
    let pattern = match elementSize {
        1 | 2 | 4 => &value[..elementSize as usize],
        _ => return Err(CUerror::INVALID_VALUE),
    };
    let prepared = Rectangle { start: dst, pitch, width, height }.prepare(driver, pattern, context)?;
    let Prepared { span, work } = prepared.ok_or(CUerror::INVALID_VALUE)?;
    Ok(node(*params, context, &span, work))
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
        (SpanKind::Graph(block), _) => block.peer_access(context.device.ordinal) == CUmemAccess_flags::PROT_READWRITE,
        (SpanKind::Pool(pool) | SpanKind::Imported(ImportedBlock { pool: Some(pool), .. }), _) => {
            pool.access(context.device.ordinal as i32) == Some(CUmemAccess_flags::PROT_READWRITE)
        }
        (_, Some(owner)) => owner.may_be_accessed_by(context),
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
