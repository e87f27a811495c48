//! Copies: in every direction, of lines and boxes, synchronous and in the order of a stream.
//!
//! What a synchronous call waits for follows from the memory at its two ends, as the real driver's rules say:
//! pinned memory is copied from and to by the device itself, pageable memory by the host through a stage.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use freehold_driver::cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemorytype,
    CUresult, CUstream,
};

use super::context::settle;
use crate::boundary::{HostAddress, In};
use crate::context::{find, top};
use crate::engine::work::{Copy, Extent, Side, Work};
use crate::memory::place::Place;
use crate::span::{Span, SpanKind};
use crate::stream::{Lane, lane};
use crate::world::{World, world};

/// A copy from pageable memory up to this size is staged; a larger one is carried out before the call returns.
const STAGE_BYTES_MAX: u64 = 64 << 10;

/// The same for an asynchronous copy.
const STAGE_ASYNC_BYTES_MAX: u64 = 2 << 20;

/// Whether the call may return before the copy is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Sync,
    Async,
}

/// What an address may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Memory that the driver knows.
    Device,
    /// That, or pageable memory of the host.
    Any,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Device,
    Pinned,
    Pageable,
}

/// One end of a copy.
struct End {
    memory: Memory,
    side: Side,
    sync_memops: bool,
}

/// A box in memory as the program describes it: where it starts and how far apart its rows and slices lie.
#[derive(Clone, Copy)]
struct Region {
    role: Role,
    start: u64,
    pitch: u64,
    slice: u64,
}

impl Region {
    fn line(role: Role, start: u64) -> Self {
        Self { role, start, pitch: 0, slice: 0 }
    }

    /// The bytes from the first to the last of a box in it.
    fn reach(&self, extent: Extent) -> Option<u64> {
        let slices = (extent.depth - 1).checked_mul(self.slice)?;
        let rows = (extent.height - 1).checked_mul(self.pitch)?;
        slices.checked_add(rows)?.checked_add(extent.width)
    }

    /// What lies there, for work of `device`.
    fn resolve(&self, world: &World, extent: Extent, device: usize, access: CUmemAccess_flags) -> Result<End, CUerror> {
        let bytes = self.reach(extent).ok_or(CUerror::INVALID_VALUE)?;
        let last = self.start.checked_add(bytes - 1).ok_or(CUerror::INVALID_VALUE)?;
        let (memory, place, sync_memops) = match world.reach(self.start, last, device, access)? {
            // Without a current context the driver copies from and to one mapping only.
            Some((span, _)) if last >= span.end() && top().is_none() => return Err(CUerror::INVALID_VALUE),
            Some((span, place)) => (memory_of(&span), place, span.sync_memops.load(Ordering::Relaxed)),
            None if self.role == Role::Any && self.start != 0 => (Memory::Pageable, Place::program(self.start), false),
            _ => return Err(CUerror::INVALID_VALUE),
        };
        Ok(End { memory, side: Side { place, pitch: self.pitch, slice: self.slice }, sync_memops })
    }
}

fn memory_of(span: &Arc<Span>) -> Memory {
    match span.kind {
        SpanKind::Device
        | SpanKind::Pool(_)
        | SpanKind::Managed { .. }
        | SpanKind::Variable { .. }
        | SpanKind::Mapped(_)
        | SpanKind::Opened(_)
        | SpanKind::Hidden { .. } => Memory::Device,
        SpanKind::Pinned { .. } | SpanKind::Registered { .. } => Memory::Pinned,
    }
}

fn transfer(from: Region, to: Region, extent: Extent, stream: CUstream, call: Call) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    let bytes = extent.bytes().ok_or(CUerror::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    let device = lane.context.device.ordinal;
    let from = from.resolve(world, extent, device, CUmemAccess_flags::PROT_READ)?;
    let to = to.resolve(world, extent, device, CUmemAccess_flags::PROT_READWRITE)?;
    if call == Call::Async && lane.is_captured() {
        // Pageable memory is read and written when the graph runs.
        return lane.add(world, Work::Copy(Box::new(Copy::new(from.side, to.side, extent))));
    }
    let must_finish = call == Call::Sync && (from.sync_memops || to.sync_memops);
    let stage_bytes_max = if call == Call::Sync { STAGE_BYTES_MAX } else { STAGE_ASYNC_BYTES_MAX };
    match (from.memory, to.memory) {
        (Memory::Device, Memory::Pageable) | (Memory::Pinned | Memory::Pageable, Memory::Pinned | Memory::Pageable) => {
            copy_now(world, &lane, from.side, to.side, extent)
        }
        (Memory::Pageable, Memory::Device) if bytes > stage_bytes_max || must_finish => {
            copy_now(world, &lane, from.side, to.side, extent)
        }
        (Memory::Pageable, Memory::Device) => {
            if call == Call::Sync {
                lane.not_captured(world)?;
                lane.wait_for_turn(world)?;
            }
            let staged = stage(&from.side, extent)?;
            lane.add(world, Work::Copy(Box::new(Copy::new(staged, to.side, extent))))
        }
        (Memory::Device, Memory::Device) if !must_finish => {
            lane.add(world, Work::Copy(Box::new(Copy::new(from.side, to.side, extent))))
        }
        _ => {
            let done = lane.queue(world, Vec::new(), Work::Copy(Box::new(Copy::new(from.side, to.side, extent))))?;
            if call == Call::Sync {
                world.engine.wait(&done);
                settle(world, &lane.context)?;
            }
            Ok(())
        }
    }
}

/// Waits for the stream, then copies in the calling thread.
fn copy_now(world: &World, lane: &Lane, from: Side, to: Side, extent: Extent) -> CUresult {
    lane.not_captured(world)?;
    lane.wait_for_turn(world)?;
    lane.context.flush_printed();
    world.engine.status()?;
    Copy::new(from, to, extent).run_whole().map_err(|_| CUerror::INVALID_VALUE)
}

/// The bytes of a box in pageable memory, taken now.
fn stage(from: &Side, extent: Extent) -> Result<Side, CUerror> {
    let (width, rows) = (extent.width as usize, extent.height * extent.depth);
    let mut bytes = vec![0; width * rows as usize];
    for (line, row) in bytes.chunks_exact_mut(width).enumerate() {
        let (y, z) = (line as u64 % extent.height, line as u64 / extent.height);
        from.place.read(from.row(y, z), row).map_err(|_| CUerror::INVALID_VALUE)?;
    }
    Ok(Side { place: Place::stage(bytes), pitch: extent.width, slice: extent.width * extent.height })
}

fn line(from: Region, to: Region, bytes: usize, stream: CUstream, call: Call) -> CUresult {
    transfer(from, to, Extent::line(bytes as u64), stream, call)
}

pub(crate) fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    line(Region::line(Role::Any, from.0), Region::line(Role::Any, to.0), bytes, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    line(Region::line(Role::Any, from.0), Region::line(Role::Any, to.0), bytes, stream, Call::Async)
}

pub(crate) fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: HostAddress, bytes: usize) -> CUresult {
    line(Region::line(Role::Any, from.0), Region::line(Role::Device, to.0), bytes, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: HostAddress, bytes: usize, stream: CUstream) -> CUresult {
    line(Region::line(Role::Any, from.0), Region::line(Role::Device, to.0), bytes, stream, Call::Async)
}

pub(crate) fn cuMemcpyDtoH_v2(to: HostAddress, from: CUdeviceptr, bytes: usize) -> CUresult {
    line(Region::line(Role::Device, from.0), Region::line(Role::Any, to.0), bytes, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpyDtoHAsync_v2(to: HostAddress, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    line(Region::line(Role::Device, from.0), Region::line(Role::Any, to.0), bytes, stream, Call::Async)
}

pub(crate) fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    line(Region::line(Role::Device, from.0), Region::line(Role::Device, to.0), bytes, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    line(Region::line(Role::Device, from.0), Region::line(Role::Device, to.0), bytes, stream, Call::Async)
}

pub(crate) fn cuMemcpyPeer(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> CUresult {
    cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, CUstream::NULL)
}

pub(crate) fn cuMemcpyPeerAsync(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    check_peers(to_context, from_context)?;
    line(Region::line(Role::Device, from.0), Region::line(Role::Device, to.0), bytes, stream, Call::Async)
}

fn check_peers(to: CUcontext, from: CUcontext) -> CUresult {
    let world = world()?;
    find(world, to)?;
    find(world, from)?;
    Ok(())
}

/// One end of a box copy as C describes it.
struct Described {
    memory: CUmemorytype,
    host: usize,
    device: CUdeviceptr,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    /// Rows between two slices.
    height: usize,
}

impl Described {
    fn region(&self, extent: Extent) -> Result<Region, CUerror> {
        let (role, base) = match self.memory {
            CUmemorytype::HOST => (Role::Any, self.host as u64),
            CUmemorytype::DEVICE => (Role::Device, self.device.0),
            CUmemorytype::UNIFIED => (Role::Any, self.device.0),
            _ => return Err(CUerror::INVALID_VALUE),
        };
        let (x, y, z) = (self.x as u64, self.y as u64, self.z as u64);
        let row_end = x.checked_add(extent.width).ok_or(CUerror::INVALID_VALUE)?;
        let pitch = if self.pitch == 0 { row_end } else { self.pitch as u64 };
        let height = if self.height == 0 { y.saturating_add(extent.height) } else { self.height as u64 };
        if pitch < row_end || (extent.depth > 1 && height < y.saturating_add(extent.height)) {
            return Err(CUerror::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(height).ok_or(CUerror::INVALID_VALUE)?;
        let offset = z.checked_mul(slice).and_then(|z| z.checked_add(y.checked_mul(pitch)?)?.checked_add(x));
        let start = offset.and_then(|offset| base.checked_add(offset)).ok_or(CUerror::INVALID_VALUE)?;
        // A null base is refused where it is resolved, also if an offset was added to it.
        Ok(Region { role, start: if base == 0 { 0 } else { start }, pitch, slice })
    }
}

fn copy_box(from: &Described, to: &Described, extent: Extent, stream: CUstream, call: Call) -> CUresult {
    transfer(from.region(extent)?, to.region(extent)?, extent, stream, call)
}

fn copy_2d(copy: &CUDA_MEMCPY2D, stream: CUstream, call: Call) -> CUresult {
    let extent = Extent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: 1 };
    let from = Described {
        memory: copy.srcMemoryType,
        host: copy.srcHost,
        device: copy.srcDevice,
        x: copy.srcXInBytes,
        y: copy.srcY,
        z: 0,
        pitch: copy.srcPitch,
        height: 0,
    };
    let to = Described {
        memory: copy.dstMemoryType,
        host: copy.dstHost,
        device: copy.dstDevice,
        x: copy.dstXInBytes,
        y: copy.dstY,
        z: 0,
        pitch: copy.dstPitch,
        height: 0,
    };
    copy_box(&from, &to, extent, stream, call)
}

pub(crate) fn cuMemcpy2D_v2(copy: In<CUDA_MEMCPY2D>) -> CUresult {
    copy_2d(&copy.0, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpy2DUnaligned_v2(copy: In<CUDA_MEMCPY2D>) -> CUresult {
    copy_2d(&copy.0, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpy2DAsync_v2(copy: In<CUDA_MEMCPY2D>, stream: CUstream) -> CUresult {
    copy_2d(&copy.0, stream, Call::Async)
}

fn copy_3d(copy: &CUDA_MEMCPY3D, stream: CUstream, call: Call) -> CUresult {
    let extent = Extent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: copy.Depth as u64 };
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let from = Described {
        memory: copy.srcMemoryType,
        host: copy.srcHost,
        device: copy.srcDevice,
        x: copy.srcXInBytes,
        y: copy.srcY,
        z: copy.srcZ,
        pitch: copy.srcPitch,
        height: copy.srcHeight,
    };
    let to = Described {
        memory: copy.dstMemoryType,
        host: copy.dstHost,
        device: copy.dstDevice,
        x: copy.dstXInBytes,
        y: copy.dstY,
        z: copy.dstZ,
        pitch: copy.dstPitch,
        height: copy.dstHeight,
    };
    copy_box(&from, &to, extent, stream, call)
}

pub(crate) fn cuMemcpy3D_v2(copy: In<CUDA_MEMCPY3D>) -> CUresult {
    copy_3d(&copy.0, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpy3DAsync_v2(copy: In<CUDA_MEMCPY3D>, stream: CUstream) -> CUresult {
    copy_3d(&copy.0, stream, Call::Async)
}

/// The same copy within one address space: addresses say which device they are of.
fn without_contexts(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: 0,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        reserved1: 0,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    }
}

pub(crate) fn cuMemcpy3DPeer(copy: In<CUDA_MEMCPY3D_PEER>) -> CUresult {
    check_peers(copy.0.dstContext, copy.0.srcContext)?;
    copy_3d(&without_contexts(&copy.0), CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpy3DPeerAsync(copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) -> CUresult {
    check_peers(copy.0.dstContext, copy.0.srcContext)?;
    copy_3d(&without_contexts(&copy.0), stream, Call::Async)
}
