//! Copies in every direction, linear and in two or three dimensions, synchronous and stream-ordered.
//!
//! What a synchronous call waits for depends on its source and destination memory, by the rules of the real driver: the
//! device itself copies pinned memory, and the host copies pageable memory through a staging buffer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use freehold_driver::cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr, CUerror, CUmemAccess_flags,
    CUmemorytype, CUresult, CUstream,
};

use super::graph_block::check_allocated;
use crate::base::check;
use crate::engine::work::{Extent, MemCopy, PitchedRef, Work};
use crate::ffi::args::{HostAddress, In};
use crate::memory::mem_ref::MemRef;
use crate::objects::array::{Array, ArrayBox};
use crate::objects::context::{Context, top};
use crate::objects::operation::{MemcpyNode, Operation, Residence};
use crate::objects::stream_ref::StreamRef;
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::{DriverState, driver};

/// A copy from pageable memory up to this size is staged; a larger one completes before the call returns.
const STAGE_BYTES_MAX: u64 = 64 << 10;

/// The same for an asynchronous copy.
const STAGE_ASYNC_BYTES_MAX: u64 = 2 << 20;

/// Whether the call may return before the copy or the fill is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Sync,
    Async,
}

/// The memory that an address may refer to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressRole {
    /// Memory that the driver knows.
    Device,
    /// The same, or pageable host memory.
    Any,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryKind {
    Device,
    Pinned,
    Pageable,
}

/// One end of a copy.
struct Endpoint {
    memory: MemoryKind,
    residence: Residence,
    mem: PitchedRef,
    sync_memops: bool,
}

impl Endpoint {
    /// Returns the fields of a C structure for an end that starts at `start`.
    fn place(&self, start: u64) -> (CUmemorytype, usize, CUdeviceptr) {
        match self.memory {
            MemoryKind::Device => (CUmemorytype::DEVICE, 0, CUdeviceptr(start)),
            MemoryKind::Pinned | MemoryKind::Pageable => (CUmemorytype::HOST, start as usize, CUdeviceptr::NULL),
        }
    }
}

/// A box in memory as the program describes it: its start and the distances between its rows and slices.
#[derive(Clone)]
pub(super) struct Region {
    role: AddressRole,
    start: u64,
    pitch: u64,
    slice: u64,
    /// The array that it lies in, and its position there.
    array: Option<(Arc<Array>, [u64; 3])>,
    /// The device that the program named for this end; without it, the stream's device accesses the memory.
    peer: Option<usize>,
}

impl Region {
    pub(super) fn linear(role: AddressRole, start: u64) -> Self {
        Self { role, start, pitch: 0, slice: 0, array: None, peer: None }
    }

    /// A box in an array.
    ///
    /// # Errors
    /// It is not inside, or does not consist of whole elements.
    pub(super) fn of_array(array: Arc<Array>, part: ArrayBox) -> Result<Self, CUerror> {
        let start = array.locate(part)?;
        let (pitch, slice) = (array.texels.row_bytes, array.texels.slice_bytes);
        Ok(Self { role: AddressRole::Device, start, pitch, slice, array: Some((array, part.at)), peer: None })
    }

    /// Returns the number of bytes from the first to the last byte of a box.
    fn span_bytes(&self, extent: Extent) -> Option<u64> {
        let slices = (extent.depth - 1).checked_mul(self.slice)?;
        let rows = (extent.height - 1).checked_mul(self.pitch)?;
        slices.checked_add(rows)?.checked_add(extent.width)
    }

    /// Looks up the memory, for work of `device`, unless the program named another for this end.
    fn resolve(
        &self,
        driver: &DriverState,
        extent: Extent,
        device: usize,
        access: CUmemAccess_flags,
    ) -> Result<Endpoint, CUerror> {
        if let Some((array, _)) = &self.array {
            let device = &array.context.device;
            let mem = MemRef::device(&device.memory.arena, self.start);
            let mem = PitchedRef { mem, pitch: self.pitch, slice: self.slice };
            let residence = Residence::Device(device.ordinal);
            return Ok(Endpoint { memory: MemoryKind::Device, residence, mem, sync_memops: false });
        }
        let bytes = self.span_bytes(extent).ok_or(CUerror::INVALID_VALUE)?;
        let last = self.start.checked_add(bytes - 1).ok_or(CUerror::INVALID_VALUE)?;
        let device = self.peer.unwrap_or(device);
        let (memory, residence, mem, sync_memops) = match driver.space.resolve(self.start, last, device, access)? {
            // Without a current context the driver copies from and to a single mapping only.
            Some((span, _)) if last >= span.end() && top().is_none() => return Err(CUerror::INVALID_VALUE),
            Some((span, mem)) => {
                let memory = memory_kind(&span);
                let on_device = memory == MemoryKind::Device;
                let residence = if on_device { Residence::Device(span.device) } else { Residence::Host };
                let is_managed = matches!(span.kind, SpanKind::Managed { .. });
                (memory, residence, mem, is_managed || span.sync_memops.load(Ordering::Relaxed))
            }
            None if self.role == AddressRole::Any && self.start != 0 => {
                (MemoryKind::Pageable, Residence::Host, MemRef::host(self.start), false)
            }
            _ => return Err(CUerror::INVALID_VALUE),
        };
        Ok(Endpoint { memory, residence, mem: PitchedRef { mem, pitch: self.pitch, slice: self.slice }, sync_memops })
    }
}

fn memory_kind(span: &Arc<Span>) -> MemoryKind {
    match span.kind {
        SpanKind::Device
        | SpanKind::Pool(_)
        | SpanKind::Graph(_)
        | SpanKind::Managed { .. }
        | SpanKind::Variable { .. }
        | SpanKind::Mapped(_)
        | SpanKind::Imported(_)
        | SpanKind::Internal { .. } => MemoryKind::Device,
        SpanKind::Pinned { .. } | SpanKind::Registered { .. } => MemoryKind::Pinned,
    }
}

pub(super) fn transfer(from: Region, to: Region, extent: Extent, stream: CUstream, call: Call) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let bytes = extent.bytes().ok_or(CUerror::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    let (device, regions) = (stream_ref.context.device.ordinal, [from, to]);
    let from = regions[0].resolve(driver, extent, device, CUmemAccess_flags::PROT_READ)?;
    let to = regions[1].resolve(driver, extent, device, CUmemAccess_flags::PROT_READWRITE)?;
    let must_finish = call == Call::Sync && (from.sync_memops || to.sync_memops);
    let returns_early = from.memory == MemoryKind::Device && to.memory == MemoryKind::Device && !must_finish;
    if stream_ref.is_captured() && (call == Call::Async || returns_early) {
        // Pageable memory is read and written when the graph runs.
        return stream_ref.capture(node(&regions, from, to, extent, stream_ref.context.handle));
    }
    check_allocated(driver, &regions.each_ref().map(|region| region.start))?;
    let stage_bytes_max = if call == Call::Sync { STAGE_BYTES_MAX } else { STAGE_ASYNC_BYTES_MAX };
    match (from.memory, to.memory) {
        (MemoryKind::Device, MemoryKind::Pageable)
        | (MemoryKind::Pinned | MemoryKind::Pageable, MemoryKind::Pinned | MemoryKind::Pageable) => {
            copy_now(driver, &stream_ref, from.mem, to.mem, extent)
        }
        (MemoryKind::Pageable, MemoryKind::Device) if bytes > stage_bytes_max || must_finish => {
            copy_now(driver, &stream_ref, from.mem, to.mem, extent)
        }
        (MemoryKind::Pageable, MemoryKind::Device) => {
            if call == Call::Sync {
                stream_ref.ensure_not_captured()?;
                stream_ref.wait_until_ready()?;
            }
            let staged = stage(&from.mem, extent)?;
            let copy = Work::Copy(Box::new(MemCopy::new(staged, to.mem, extent)));
            stream_ref.submit_uncaptured(Vec::new(), copy).map(drop)
        }
        (MemoryKind::Device, MemoryKind::Device) if !must_finish => {
            let copy = Work::Copy(Box::new(MemCopy::new(from.mem, to.mem, extent)));
            stream_ref.submit_uncaptured(Vec::new(), copy).map(drop)
        }
        _ => {
            let done = stream_ref
                .submit_uncaptured(Vec::new(), Work::Copy(Box::new(MemCopy::new(from.mem, to.mem, extent))))?;
            if call == Call::Sync {
                driver.engine.wait(&done);
                driver.after_sync(&stream_ref.context)?;
            }
            Ok(())
        }
    }
}

/// Describes a copy as an operation of a node. `regions` are its two ends as the program described them.
fn node(regions: &[Region; 2], from: Endpoint, to: Endpoint, extent: Extent, context: CUcontext) -> Operation {
    let [source, target] = regions;
    let (mut params, width) = (CUDA_MEMCPY3D::default(), extent.width as usize);
    let rows = |region: &Region, extent: Extent| match region.slice.checked_div(region.pitch) {
        None | Some(0) => extent.height as usize,
        Some(rows) => rows as usize,
    };
    let pitch = |region: &Region| if region.pitch == 0 { width } else { region.pitch as usize };
    (params.srcMemoryType, params.srcHost, params.srcDevice) = from.place(source.start);
    (params.srcPitch, params.srcHeight) = (pitch(source), rows(source, extent));
    (params.dstMemoryType, params.dstHost, params.dstDevice) = to.place(target.start);
    (params.dstPitch, params.dstHeight) = (pitch(target), rows(target, extent));
    if let Some((array, [x, y, z])) = &source.array {
        (params.srcMemoryType, params.srcDevice, params.srcArray) =
            (CUmemorytype::ARRAY, CUdeviceptr::NULL, array.handle);
        (params.srcXInBytes, params.srcY, params.srcZ) = (*x as usize, *y as usize, *z as usize);
    }
    if let Some((array, [x, y, z])) = &target.array {
        (params.dstMemoryType, params.dstDevice, params.dstArray) =
            (CUmemorytype::ARRAY, CUdeviceptr::NULL, array.handle);
        (params.dstXInBytes, params.dstY, params.dstZ) = (*x as usize, *y as usize, *z as usize);
    }
    (params.WidthInBytes, params.Height, params.Depth) = (width, extent.height as usize, extent.depth as usize);
    described(params, context, from, to, extent)
}

/// Returns the operation of a copy that the program has described.
fn described(params: CUDA_MEMCPY3D, context: CUcontext, from: Endpoint, to: Endpoint, extent: Extent) -> Operation {
    Operation::Memcpy(MemcpyNode {
        params,
        context,
        from: from.residence,
        to: to.residence,
        work: Work::Copy(Box::new(MemCopy::new(from.mem, to.mem, extent))),
    })
}

/// Waits for the stream, then copies on the calling thread.
fn copy_now(
    driver: &DriverState,
    stream_ref: &StreamRef<'_>,
    from: PitchedRef,
    to: PitchedRef,
    extent: Extent,
) -> CUresult {
    stream_ref.ensure_not_captured()?;
    stream_ref.wait_until_ready()?;
    let copy = MemCopy::new(from, to, extent);
    if check::is_on() {
        driver.engine.wait(&stream_ref.submit_uncaptured(Vec::new(), Work::Note(copy.notes()))?);
    }
    stream_ref.context.flush_printf();
    driver.engine.check_fault()?;
    copy.run_to_end().map_err(|_| CUerror::INVALID_VALUE)
}

/// Copies the bytes of a box in pageable memory to a staging buffer.
fn stage(from: &PitchedRef, extent: Extent) -> Result<PitchedRef, CUerror> {
    let (width, rows) = (extent.width as usize, extent.height * extent.depth);
    let mut bytes = vec![0; width * rows as usize];
    for (line, row) in bytes.chunks_exact_mut(width).enumerate() {
        let (y, z) = (line as u64 % extent.height, line as u64 / extent.height);
        from.mem.read(from.row_offset(y, z), row).map_err(|_| CUerror::INVALID_VALUE)?;
    }
    Ok(PitchedRef { mem: MemRef::staged(bytes), pitch: extent.width, slice: extent.width * extent.height })
}

/// Copies in a stream, or before it returns if there is none.
fn copy_linear(
    (from_role, from): (AddressRole, u64),
    (to_role, to): (AddressRole, u64),
    bytes: usize,
    stream: Option<CUstream>,
) -> CUresult {
    let call = if stream.is_some() { Call::Async } else { Call::Sync };
    let (from, to) = (Region::linear(from_role, from), Region::linear(to_role, to));
    transfer(from, to, Extent::linear(bytes as u64), stream.unwrap_or(CUstream::NULL), call)
}

pub(crate) fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    copy_linear((AddressRole::Any, from.0), (AddressRole::Any, to.0), bytes, None)
}

pub(crate) fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    copy_linear((AddressRole::Any, from.0), (AddressRole::Any, to.0), bytes, Some(stream))
}

pub(crate) fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: HostAddress, bytes: usize) -> CUresult {
    copy_linear((AddressRole::Any, from.0), (AddressRole::Device, to.0), bytes, None)
}

pub(crate) fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: HostAddress, bytes: usize, stream: CUstream) -> CUresult {
    copy_linear((AddressRole::Any, from.0), (AddressRole::Device, to.0), bytes, Some(stream))
}

pub(crate) fn cuMemcpyDtoH_v2(to: HostAddress, from: CUdeviceptr, bytes: usize) -> CUresult {
    copy_linear((AddressRole::Device, from.0), (AddressRole::Any, to.0), bytes, None)
}

pub(crate) fn cuMemcpyDtoHAsync_v2(to: HostAddress, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    copy_linear((AddressRole::Device, from.0), (AddressRole::Any, to.0), bytes, Some(stream))
}

pub(crate) fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    copy_linear((AddressRole::Device, from.0), (AddressRole::Device, to.0), bytes, None)
}

pub(crate) fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    copy_linear((AddressRole::Device, from.0), (AddressRole::Device, to.0), bytes, Some(stream))
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
    let [to_device, from_device] = peer_devices(to_context, from_context)?;
    let from = Region { peer: Some(from_device), ..Region::linear(AddressRole::Device, from.0) };
    let to = Region { peer: Some(to_device), ..Region::linear(AddressRole::Device, to.0) };
    transfer(from, to, Extent::linear(bytes as u64), stream, Call::Async)
}

/// Returns the devices of the contexts that a copy names. Each accesses its own end: memory that is mapped for one of
/// them only can be copied too.
fn peer_devices(to: CUcontext, from: CUcontext) -> Result<[usize; 2], CUerror> {
    let driver = driver()?;
    let device = |context: CUcontext| driver.contexts.get(context.0).map(|found| found.device.ordinal);
    Ok([device(to)?, device(from)?])
}

/// One end of a box copy as C describes it.
struct BoxEndpoint {
    memory: CUmemorytype,
    host: usize,
    device: CUdeviceptr,
    array: CUarray,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    /// Rows between two slices.
    height: usize,
    peer: Option<usize>,
}

impl BoxEndpoint {
    fn region(&self, driver: &DriverState, extent: Extent) -> Result<Region, CUerror> {
        let (role, base) = match self.memory {
            CUmemorytype::ARRAY => {
                let at = [self.x as u64, self.y as u64, self.z as u64];
                let size = [extent.width, extent.height, extent.depth];
                return Region::of_array(driver.arrays.get(self.array.0)?, ArrayBox { at, size });
            }
            CUmemorytype::HOST => (AddressRole::Any, self.host as u64),
            CUmemorytype::DEVICE => (AddressRole::Device, self.device.0),
            CUmemorytype::UNIFIED => (AddressRole::Any, self.device.0),
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
        // A null base is refused on look-up, even if an offset was added to it.
        Ok(Region { role, start: if base == 0 { 0 } else { start }, pitch, slice, array: None, peer: self.peer })
    }
}

fn copy_box(from: &BoxEndpoint, to: &BoxEndpoint, extent: Extent, stream: CUstream, call: Call) -> CUresult {
    let driver = driver()?;
    transfer(from.region(driver, extent)?, to.region(driver, extent)?, extent, stream, call)
}

/// One end of a box copy: the fields of a C structure that begin with `src` or `dst`, with defaults for those that a
/// two-dimensional copy lacks.
macro_rules! endpoint {
    ($copy:ident, src, $z:expr, $height:expr) => {
        endpoint!($copy, srcMemoryType, srcHost, srcDevice, srcArray, srcXInBytes, srcY, srcPitch, $z, $height)
    };
    ($copy:ident, dst, $z:expr, $height:expr) => {
        endpoint!($copy, dstMemoryType, dstHost, dstDevice, dstArray, dstXInBytes, dstY, dstPitch, $z, $height)
    };
    (
        $copy:ident, $memory:ident, $host:ident, $device:ident, $array:ident, $x:ident, $y:ident, $pitch:ident, $z:expr, $height:expr
    ) => {
        BoxEndpoint {
            memory: $copy.$memory,
            host: $copy.$host,
            device: $copy.$device,
            array: $copy.$array,
            x: $copy.$x,
            y: $copy.$y,
            z: $z,
            pitch: $copy.$pitch,
            height: $height,
            peer: None,
        }
    };
}

fn copy_2d(copy: &CUDA_MEMCPY2D, stream: CUstream, call: Call) -> CUresult {
    let extent = Extent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: 1 };
    copy_box(&endpoint!(copy, src, 0, 0), &endpoint!(copy, dst, 0, 0), extent, stream, call)
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

/// Returns the operation of a copy for a node that runs in a context.
pub(super) fn operation(driver: &DriverState, copy: &CUDA_MEMCPY3D, context: &Context) -> Result<Operation, CUerror> {
    let extent = Extent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: copy.Depth as u64 };
    if copy.srcLOD != 0 || copy.dstLOD != 0 || extent.bytes().ok_or(CUerror::INVALID_VALUE)? == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = context.device.ordinal;
    let from = endpoint!(copy, src, copy.srcZ, copy.srcHeight).region(driver, extent)?;
    let to = endpoint!(copy, dst, copy.dstZ, copy.dstHeight).region(driver, extent)?;
    let from = from.resolve(driver, extent, device, CUmemAccess_flags::PROT_READ)?;
    let to = to.resolve(driver, extent, device, CUmemAccess_flags::PROT_READWRITE)?;
    Ok(described(*copy, context.handle, from, to, extent))
}

/// A three-dimensional copy; between contexts, with the device of each end.
macro_rules! copy_3d {
    ($copy:expr, $stream:expr, $call:expr) => {
        copy_3d!($copy, $stream, $call, [None, None])
    };
    ($copy:expr, $stream:expr, $call:expr, $devices:expr) => {{
        let [to_device, from_device] = $devices;
        let copy = &$copy;
        let extent = Extent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: copy.Depth as u64 };
        if copy.srcLOD != 0 || copy.dstLOD != 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let from = BoxEndpoint { peer: from_device, ..endpoint!(copy, src, copy.srcZ, copy.srcHeight) };
        let to = BoxEndpoint { peer: to_device, ..endpoint!(copy, dst, copy.dstZ, copy.dstHeight) };
        copy_box(&from, &to, extent, $stream, $call)
    }};
}

pub(crate) fn cuMemcpy3D_v2(copy: In<CUDA_MEMCPY3D>) -> CUresult {
    copy_3d!(copy.0, CUstream::NULL, Call::Sync)
}

pub(crate) fn cuMemcpy3DAsync_v2(copy: In<CUDA_MEMCPY3D>, stream: CUstream) -> CUresult {
    copy_3d!(copy.0, stream, Call::Async)
}

pub(crate) fn cuMemcpy3DPeer(copy: In<CUDA_MEMCPY3D_PEER>) -> CUresult {
    let devices = peer_devices(copy.0.dstContext, copy.0.srcContext)?.map(Some);
    copy_3d!(copy.0, CUstream::NULL, Call::Sync, devices)
}

pub(crate) fn cuMemcpy3DPeerAsync(copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) -> CUresult {
    let devices = peer_devices(copy.0.dstContext, copy.0.srcContext)?.map(Some);
    copy_3d!(copy.0, stream, Call::Async, devices)
}
