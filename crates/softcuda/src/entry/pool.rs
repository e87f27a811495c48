//! Allocation in the order of streams.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
    CUresult, CUstream,
};

use super::allocation::{hand_out, take_in};
use super::memory::take;
use crate::boundary::{Any, HostAddress, In, List, Out};
use crate::device::Device;
use crate::engine::work::{DriverWork, Work};
use crate::ipc::{Attached, Import, Opened, Token};
use crate::memory::backing::{Backing, Content, Label};
use crate::pool::{Origin, Pool};
use crate::span::{Span, SpanKind};
use crate::stream::{Lane, lane};
use crate::world::{World, world};

/// The pool that a device has from the start.
pub(super) fn default_pool(world: &World, device: &Arc<Device>) -> Result<Arc<Pool>, CUerror> {
    let mut pools = device.pools();
    if let Some(pool) = &pools.default {
        return Ok(Arc::clone(pool));
    }
    let pool = make(world, device, Origin::Default, 0)?;
    pools.default = Some(Arc::clone(&pool));
    pools.all.push(Arc::clone(&pool));
    Ok(pool)
}

/// A new pool of `device`, which is not among its pools yet.
fn make(world: &World, device: &Arc<Device>, origin: Origin, max_bytes: u64) -> Result<Arc<Pool>, CUerror> {
    let memory = Backing::sparse(Some(Arc::clone(&device.book)), device.arena.bytes());
    let memory = Arc::new(memory.map_err(|_| CUerror::OUT_OF_MEMORY)?);
    Ok(enter(world, device, origin, max_bytes, memory))
}

fn enter(world: &World, device: &Arc<Device>, origin: Origin, max_bytes: u64, memory: Arc<Backing>) -> Arc<Pool> {
    let make = |handle| Arc::new(Pool::new(CUmemoryPool(handle), device, origin, max_bytes, memory));
    world.pools.insert_with(make).1
}

/// The pool that `cuMemAllocAsync` takes from.
pub(super) fn current_pool(world: &World, device: &Arc<Device>) -> Result<Arc<Pool>, CUerror> {
    let current = device.pools().current.clone();
    current.map_or_else(|| default_pool(world, device), Ok)
}

pub(crate) fn cuMemAllocAsync(start: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    let pool = current_pool(world, &lane.context.device)?;
    start.set(CUdeviceptr(allocate(world, &lane, &pool, bytes as u64)?));
    Ok(())
}

pub(crate) fn cuMemAllocFromPoolAsync(
    start: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    let pool = find(world, pool)?;
    start.set(CUdeviceptr(allocate(world, &lane, &pool, bytes as u64)?));
    Ok(())
}

fn allocate(world: &World, lane: &Lane, pool: &Arc<Pool>, bytes: u64) -> Result<u64, CUerror> {
    if pool.origin == Origin::Imported {
        return Err(CUerror::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(0);
    }
    let device = pool.device.upgrade().ok_or(CUerror::INVALID_VALUE)?;
    let queue = &lane.stream.queue;
    lane.not_captured(world)?;
    world.captures.refuse_unseen()?;
    let grant = pool.allocate(&device, bytes, queue)?;
    if !grant.after.is_empty() {
        lane.queue(world, grant.after, Work::Nothing)?;
    }
    world.enter(grant.address, bytes, device.ordinal, None, SpanKind::Pool(Arc::clone(pool)))?;
    Ok(grant.address)
}

pub(crate) fn cuMemFreeAsync(start: CUdeviceptr, stream: CUstream) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    if start == CUdeviceptr::NULL {
        return Ok(());
    }
    lane.not_captured(world)?;
    if world.span(start.0).is_some_and(|span| matches!(span.kind, SpanKind::Managed { .. })) {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let span =
        take(world, start.0, |span| matches!(span.kind, SpanKind::Pool(_) | SpanKind::Device) || is_imported(span))?;
    match &span.kind {
        SpanKind::Pool(pool) => release_from_pool(world, &lane, Arc::clone(&span), pool)?,
        _ => {
            forget_import(world, &span);
            let give_back = move || {
                let world = world_of_work();
                world.end(&span);
                world.give_back(&span);
            };
            lane.queue(world, Vec::new(), Work::Driver(DriverWork::new(give_back)))?;
        }
    }
    Ok(())
}

/// Whether a span is a block of an imported pool.
pub(super) fn is_imported(span: &Span) -> bool {
    matches!(&span.kind, SpanKind::Opened(opened) if opened.pool.is_some())
}

/// Notes that a block of an imported pool is not open any more.
pub(super) fn forget_import(world: &World, span: &Span) {
    if let SpanKind::Opened(opened) = &span.kind {
        world.imports.forget(opened);
    }
}

/// Frees a block in the order of a stream: it is overwritten when the stream comes by, and its pool knows where.
fn release_from_pool(world: &World, lane: &Lane, span: Arc<Span>, pool: &Arc<Pool>) -> CUresult {
    let (base, owner) = (span.base, Arc::clone(pool));
    let poison = move || {
        let world = world_of_work();
        world.end(&span);
        owner.poison(&world.devices[span.device], span.base, span.bytes);
    };
    let point = lane.queue(world, Vec::new(), Work::Driver(DriverWork::new(poison)))?;
    pool.release(base, Some(point));
    Ok(())
}

/// The world, for work that runs when its stream comes by.
fn world_of_work() -> &'static World {
    world().expect("work runs in a world")
}

fn find(world: &World, pool: CUmemoryPool) -> Result<Arc<Pool>, CUerror> {
    world.pools.find(pool.0).ok_or(CUerror::INVALID_VALUE)
}

/// A pool whose memory this process has.
fn find_own(world: &World, pool: CUmemoryPool) -> Result<Arc<Pool>, CUerror> {
    let pool = find(world, pool)?;
    if pool.origin == Origin::Imported { Err(CUerror::INVALID_VALUE) } else { Ok(pool) }
}

pub(crate) fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> CUresult {
    let world = world()?;
    let props = props.0;
    if props.allocType != CUmemAllocationType::PINNED || props.location.kind != CUmemLocationType::DEVICE {
        return Err(CUerror::INVALID_VALUE);
    }
    let origin = match props.handleTypes {
        CUmemAllocationHandleType::NONE => Origin::Created,
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => Origin::Exportable,
        _ => return Err(CUerror::NOT_SUPPORTED),
    };
    let device = world.device(CUdevice(props.location.id)).map_err(|_| CUerror::INVALID_VALUE)?;
    let made = make(world, device, origin, props.maxSize as u64)?;
    pool.set(made.handle);
    device.pools().all.push(made);
    Ok(())
}

pub(crate) fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult {
    let world = world()?;
    let found = find(world, pool)?;
    if found.origin == Origin::Default {
        return Err(CUerror::INVALID_VALUE);
    }
    if found.origin == Origin::Imported && !world.imports.release_pool(found.memory.inode())? {
        return Ok(());
    }
    let removed = world.pools.remove(pool.0).ok_or(CUerror::INVALID_VALUE)?;
    removed.destroy();
    if let Some(device) = removed.device.upgrade() {
        let mut pools = device.pools();
        if pools.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &removed)) {
            pools.current = None;
        }
        drop(pools);
        device.trim_pools(Pool::keep_bytes);
    }
    Ok(())
}

/// The switches are `int`, the rest `cuuint64_t`.
fn is_switch(attribute: CUmemPool_attribute) -> bool {
    (1..=3).contains(&attribute.0)
}

pub(crate) fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Any) -> CUresult {
    let pool = find_own(world()?, pool)?;
    let value = if is_switch(attribute) { u64::from(value.read::<i32>()? != 0) } else { value.read::<u64>()? };
    pool.set_attribute(attribute, value)
}

pub(crate) fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Any) -> CUresult {
    let found = find_own(world()?, pool)?.attribute(attribute)?;
    if is_switch(attribute) { value.set(found as i32) } else { value.set(found) }
}

pub(crate) fn cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize) -> CUresult {
    let pool = find_own(world()?, pool)?;
    let device = pool.device.upgrade().ok_or(CUerror::INVALID_VALUE)?;
    pool.trim(&device, keep_bytes as u64);
    Ok(())
}

pub(crate) fn cuMemPoolSetAccess(pool: CUmemoryPool, map: List<CUmemAccessDesc>, count: usize) -> CUresult {
    let world = world()?;
    let pool = find(world, pool)?;
    let own = pool.device.upgrade().map(|device| device.ordinal as i32);
    if count > world.devices.len() {
        return Err(CUerror::INVALID_VALUE);
    }
    let wanted = map.read(count)?;
    for access in &wanted {
        let location = access.location;
        if location.kind != CUmemLocationType::DEVICE || world.device(CUdevice(location.id)).is_err() {
            return Err(CUerror::INVALID_VALUE);
        }
        let known = [CUmemAccess_flags::PROT_NONE, CUmemAccess_flags::PROT_READ, CUmemAccess_flags::PROT_READWRITE];
        let is_own = own == Some(location.id);
        if pool.origin == Origin::Imported && is_own && access.flags == CUmemAccess_flags::PROT_READ {
            return Err(CUerror::NOT_SUPPORTED);
        }
        if !known.contains(&access.flags) || is_own && access.flags != CUmemAccess_flags::PROT_READWRITE {
            return Err(CUerror::INVALID_VALUE);
        }
    }
    for access in wanted {
        pool.set_access(access.location.id, access.flags);
    }
    Ok(())
}

pub(crate) fn cuMemPoolGetAccess(
    flags: Out<CUmemAccess_flags>,
    pool: CUmemoryPool,
    location: In<CUmemLocation>,
) -> CUresult {
    let world = world()?;
    let pool = find(world, pool)?;
    let location = location.0;
    if location.kind != CUmemLocationType::DEVICE || world.device(CUdevice(location.id)).is_err() {
        return Err(CUerror::INVALID_VALUE);
    }
    let is_own = pool.device.upgrade().is_some_and(|device| device.ordinal as i32 == location.id);
    let own = if is_own { CUmemAccess_flags::PROT_READWRITE } else { CUmemAccess_flags::PROT_NONE };
    flags.set(pool.access(location.id).unwrap_or(own));
    Ok(())
}

pub(crate) fn cuMemPoolExportToShareableHandle(
    shareable: Any,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let world = world()?;
    let pool = find(world, pool)?;
    let is_known = kind == CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR && flags == 0;
    if !is_known || pool.origin != Origin::Exportable {
        return Err(CUerror::INVALID_VALUE);
    }
    share(&pool)?;
    hand_out(shareable, &pool.memory)
}

/// Lets other processes have the memory of a pool.
fn share(pool: &Pool) -> CUresult {
    let device = pool.device.upgrade().ok_or(CUerror::INVALID_VALUE)?;
    let label = Label::new(Content::Pool, device.ordinal, pool.memory.bytes());
    pool.memory.share(label).map_err(|_| CUerror::OPERATING_SYSTEM)
}

pub(crate) fn cuMemPoolImportFromShareableHandle(
    pool: Out<CUmemoryPool>,
    shareable: HostAddress,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let world = world()?;
    if kind != CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (memory, label) = take_in(shareable, Content::Pool)?;
    let device = i32::try_from(label.device).ok().and_then(|ordinal| world.device(CUdevice(ordinal)).ok());
    let device = device.ok_or(CUerror::INVALID_VALUE)?;
    let inode = memory.inode();
    let imported = world.imports.pool(inode, || enter(world, device, Origin::Imported, 0, memory));
    pool.set(imported.handle);
    Ok(())
}

pub(crate) fn cuMemPoolExportPointer(data: Out<CUmemPoolPtrExportData>, start: CUdeviceptr) -> CUresult {
    let world = world()?;
    let span = world.span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    let SpanKind::Pool(pool) = &span.kind else { return Err(CUerror::INVALID_VALUE) };
    // The pool goes first.
    if pool.origin != Origin::Exportable || !pool.memory.is_shared() || start.0 != span.base {
        return Err(CUerror::INVALID_VALUE);
    }
    let offset = span.base - world.devices[span.device].arena.base();
    let token = Token::new(Content::Pool, &pool.memory, span.device, offset, span.bytes, span.id);
    data.set(CUmemPoolPtrExportData { bytes: token.to_bytes() });
    Ok(())
}

pub(crate) fn cuMemPoolImportPointer(
    start: Out<CUdeviceptr>,
    pool: CUmemoryPool,
    data: In<CUmemPoolPtrExportData>,
) -> CUresult {
    let world = world()?;
    let pool = find(world, pool)?;
    let token = Token::from_bytes(data.0.bytes, Content::Pool)?;
    let end = token.offset.checked_add(token.bytes);
    let lies_within = token.bytes > 0 && end.is_some_and(|end| end <= pool.memory.bytes());
    if pool.origin != Origin::Imported || token.inode != pool.memory.inode() || !lies_within {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = pool.device.upgrade().ok_or(CUerror::INVALID_VALUE)?;
    let mut blocks = world.imports.blocks();
    if let Some(import) = blocks.get(&token.place()) {
        start.set(CUdeviceptr(import.address));
        return Ok(());
    }
    let attached = Arc::new(Attached::new(&device, Arc::clone(&pool.memory), token.offset, token.bytes)?);
    let address = attached.address(token.offset);
    let kind = SpanKind::Opened(Opened { token, pool: Some(pool), _attached: Arc::clone(&attached) });
    world.enter(address, token.bytes, device.ordinal, None, kind)?;
    blocks.insert(token.place(), Import { address, attached, context: None, times: 1 });
    start.set(CUdeviceptr(address));
    Ok(())
}
