//! Allocation in the order of streams.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
    CUresult, CUstream,
};

use super::memory::take;
use crate::boundary::{Any, HostAddress, In, List, Out};
use crate::engine::work::{DriverWork, Work};
use crate::pool::Pool;
use crate::span::{Span, SpanKind};
use crate::stream::{Lane, lane};
use crate::world::{Device, World, world};

/// The pool that a device has from the start.
pub(super) fn default_pool(world: &World, device: &Arc<Device>) -> Arc<Pool> {
    let mut pools = device.pools();
    if let Some(pool) = &pools.default {
        return Arc::clone(pool);
    }
    let (_, pool) = world.pools.insert_with(|handle| Arc::new(Pool::new(CUmemoryPool(handle), device, true, 0)));
    pools.default = Some(Arc::clone(&pool));
    pools.all.push(Arc::clone(&pool));
    pool
}

/// The pool that `cuMemAllocAsync` takes from.
pub(super) fn current_pool(world: &World, device: &Arc<Device>) -> Arc<Pool> {
    let current = device.pools().current.clone();
    current.unwrap_or_else(|| default_pool(world, device))
}

pub(crate) fn cuMemAllocAsync(start: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    let pool = current_pool(world, &lane.context.device);
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
    if bytes == 0 {
        return Ok(0);
    }
    let device = pool.device.upgrade().ok_or(CUerror::INVALID_VALUE)?;
    let queue = &lane.stream.queue;
    lane.not_captured(world)?;
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
    let span = take(world, start.0, |span| matches!(span.kind, SpanKind::Pool(_) | SpanKind::Device))?;
    match &span.kind {
        SpanKind::Pool(pool) => release_from_pool(world, &lane, Arc::clone(&span), pool)?,
        _ => {
            let device = Arc::clone(&world.devices[span.device]);
            let give_back = move || {
                end(&span);
                device.give_back(&span);
            };
            lane.queue(world, Vec::new(), Work::Driver(DriverWork::new(give_back)))?;
        }
    }
    Ok(())
}

/// Frees a block in the order of a stream: it is overwritten when the stream comes by, and its pool knows where.
fn release_from_pool(world: &World, lane: &Lane, span: Arc<Span>, pool: &Pool) -> CUresult {
    let device = Arc::clone(&world.devices[span.device]);
    let base = span.base;
    let poison = move || {
        end(&span);
        device.arena.poison(span.base, span.bytes);
    };
    let point = lane.queue(world, Vec::new(), Work::Driver(DriverWork::new(poison)))?;
    pool.release(base, Some(point));
    Ok(())
}

/// Takes a freed span from kernels, when its stream comes by.
fn end(span: &Span) {
    world().expect("work runs in a world").end(span);
}

fn find(world: &World, pool: CUmemoryPool) -> Result<Arc<Pool>, CUerror> {
    world.pools.find(pool.0).ok_or(CUerror::INVALID_VALUE)
}

pub(crate) fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> CUresult {
    let world = world()?;
    let props = props.0;
    if props.allocType != CUmemAllocationType::PINNED || props.location.kind != CUmemLocationType::DEVICE {
        return Err(CUerror::INVALID_VALUE);
    }
    if props.handleTypes != CUmemAllocationHandleType::NONE {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let device = world.device(CUdevice(props.location.id)).map_err(|_| CUerror::INVALID_VALUE)?;
    let (handle, made) = world
        .pools
        .insert_with(|handle| Arc::new(Pool::new(CUmemoryPool(handle), device, false, props.maxSize as u64)));
    device.pools().all.push(made);
    pool.set(CUmemoryPool(handle));
    Ok(())
}

pub(crate) fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult {
    let world = world()?;
    let found = find(world, pool)?;
    if found.is_default {
        return Err(CUerror::INVALID_VALUE);
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
    let pool = find(world()?, pool)?;
    let value = if is_switch(attribute) { u64::from(value.read::<i32>()? != 0) } else { value.read::<u64>()? };
    pool.set_attribute(attribute, value)
}

pub(crate) fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Any) -> CUresult {
    let found = find(world()?, pool)?.attribute(attribute)?;
    if is_switch(attribute) { value.set(found as i32) } else { value.set(found) }
}

pub(crate) fn cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize) -> CUresult {
    let pool = find(world()?, pool)?;
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
    _shareable: Any,
    _pool: CUmemoryPool,
    _kind: CUmemAllocationHandleType,
    _flags: u64,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemPoolImportFromShareableHandle(
    _pool: Out<CUmemoryPool>,
    _shareable: HostAddress,
    _kind: CUmemAllocationHandleType,
    _flags: u64,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemPoolExportPointer(_data: Out<CUmemPoolPtrExportData>, _start: CUdeviceptr) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

pub(crate) fn cuMemPoolImportPointer(
    _start: Out<CUdeviceptr>,
    _pool: CUmemoryPool,
    _data: In<CUmemPoolPtrExportData>,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}
