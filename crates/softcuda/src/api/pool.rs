//! Memory pools and stream-ordered allocation.

use std::sync::Arc;

use freehold_check::Effect;
use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
    CUresult, CUstream,
};

use super::allocation::{export_fd, import_fd};
use super::graph_block;
use crate::base::check::{self, Place};
use crate::engine::work::{InternalWork, Noted, Work};
use crate::ffi::args::{HostAddress, In, InArray, Out, UntypedPtr};
use crate::memory::backing::{Backing, ShareHeader, ShareKind};
use crate::memory::ipc_token::Token;
use crate::objects::device::Device;
use crate::objects::graph_exec::submit_free;
use crate::objects::pool::{Origin, Pool};
use crate::objects::stream_ref::StreamRef;
use crate::space::imports::{ImportEntry, ImportedBlock, ImportedMapping};
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::{DriverState, driver, driver_in_work};

/// Returns the default pool of a device, created on first use.
pub(super) fn default_pool(driver: &DriverState, device: &Arc<Device>) -> Result<Arc<Pool>, CUerror> {
    let mut pools = device.pools();
    if let Some(pool) = &pools.default {
        return Ok(Arc::clone(pool));
    }
    let pool = create(driver, device, Origin::Default, 0)?;
    pools.default = Some(Arc::clone(&pool));
    pools.all.push(Arc::clone(&pool));
    Ok(pool)
}

/// Creates a pool of `device` without adding it to the device's pools.
fn create(driver: &DriverState, device: &Arc<Device>, origin: Origin, max_bytes: u64) -> Result<Arc<Pool>, CUerror> {
    let memory = Backing::create_uncharged(Some(Arc::clone(&device.memory.usage)), device.memory.arena.bytes());
    let memory = Arc::new(memory.map_err(|_| CUerror::OUT_OF_MEMORY)?);
    Ok(insert(driver, device, origin, max_bytes, memory))
}

fn insert(
    driver: &DriverState,
    device: &Arc<Device>,
    origin: Origin,
    max_bytes: u64,
    memory: Arc<Backing>,
) -> Arc<Pool> {
    let device_memory = Arc::clone(&device.memory);
    let make =
        |handle| Arc::new(Pool::new(CUmemoryPool(handle), device.ordinal, device_memory, origin, max_bytes, memory));
    driver.pools.insert_with(make).1
}

/// Returns the pool of `cuMemAllocAsync`.
pub(super) fn current_pool(driver: &DriverState, device: &Arc<Device>) -> Result<Arc<Pool>, CUerror> {
    let current = device.pools().current.clone();
    current.map_or_else(|| default_pool(driver, device), Ok)
}

pub(crate) fn cuMemAllocAsync(start: Out<CUdeviceptr>, bytes: usize, stream: CUstream) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let pool = current_pool(driver, &stream_ref.context.device)?;
    start.set(CUdeviceptr(alloc(driver, &stream_ref, &pool, bytes as u64)?));
    Ok(())
}

pub(crate) fn cuMemAllocFromPoolAsync(
    start: Out<CUdeviceptr>,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let pool = driver.pools.get(pool.0)?;
    start.set(CUdeviceptr(alloc(driver, &stream_ref, &pool, bytes as u64)?));
    Ok(())
}

fn alloc(driver: &DriverState, stream_ref: &StreamRef<'_>, pool: &Arc<Pool>, bytes: u64) -> Result<u64, CUerror> {
    if pool.origin == Origin::Imported {
        return Err(CUerror::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(0);
    }
    if stream_ref.is_captured() {
        return graph_block::capture_alloc(driver, stream_ref, pool, bytes);
    }
    let queue = &stream_ref.stream.queue;
    stream_ref.ensure_not_captured()?;
    driver.captures.refuse_unsafe_call()?;
    let grant = driver.space.devices[pool.device].alloc_from(pool, bytes, queue)?;
    if check::is_on() {
        let note = Noted::new(Effect::Allocate, grant.address, bytes);
        check::place(Place { internal: grant.dependencies.len(), ..Place::default() });
        stream_ref.submit_uncaptured(grant.dependencies, Work::Note(vec![note]))?;
    } else if !grant.dependencies.is_empty() {
        stream_ref.submit_uncaptured(grant.dependencies, Work::Barrier)?;
    }
    if stream_ref.is_limited() {
        // What is written before the stream gets here is lost. A device keeps it, unless the memory had another owner until then.
        let (pool, address) = (Arc::clone(pool), grant.address);
        let poison = InternalWork::new(move || pool.poison(address, bytes));
        stream_ref.submit_uncaptured(Vec::new(), Work::Internal(poison))?;
    }
    driver.space.insert_span(grant.address, bytes, pool.device, None, SpanKind::Pool(Arc::clone(pool)))?;
    Ok(grant.address)
}

pub(crate) fn cuMemFreeAsync(start: CUdeviceptr, stream: CUstream) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    if start == CUdeviceptr::NULL {
        return Ok(());
    }
    if stream_ref.is_captured() {
        return graph_block::capture_free(driver, &stream_ref, start);
    }
    stream_ref.ensure_not_captured()?;
    if let Some(block) = graph_block::find_block(driver, start) {
        block.free()?;
        return submit_free(&stream_ref, block).map(drop);
    }
    if driver.space.find_span(start.0).is_some_and(|span| matches!(span.kind, SpanKind::Managed { .. })) {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let span = driver
        .space
        .begin_free(start.0, |span| matches!(span.kind, SpanKind::Pool(_) | SpanKind::Device) || span.is_pool_import());
    let span = span.inspect_err(|_| check::wrong_free(start.0, false))?;
    if check::is_on() {
        let note = Noted::new(Effect::Free, span.base, span.bytes);
        stream_ref.submit_uncaptured(Vec::new(), Work::Note(vec![note]))?;
    }
    match &span.kind {
        SpanKind::Pool(pool) => free_to_pool(&stream_ref, Arc::clone(&span), pool)?,
        _ => {
            if let SpanKind::Imported(opened) = &span.kind {
                driver.imports.remove(opened);
            }
            let give_back = move || {
                let driver = driver_in_work();
                driver.space.finish_free(&span);
                driver.space.free_backing(&span);
            };
            stream_ref.submit_uncaptured(Vec::new(), Work::Internal(InternalWork::new(give_back)))?;
        }
    }
    Ok(())
}

/// Frees a block in stream order: the stream overwrites it when it gets there, and the pool records the fence.
fn free_to_pool(stream_ref: &StreamRef<'_>, span: Arc<Span>, pool: &Arc<Pool>) -> CUresult {
    let (base, owner) = (span.base, Arc::clone(pool));
    let poison = move || {
        let driver = driver_in_work();
        driver.space.finish_free(&span);
        owner.poison(span.base, span.bytes);
    };
    let fence = stream_ref.submit_uncaptured(Vec::new(), Work::Internal(InternalWork::new(poison)))?;
    pool.free(base, Some(fence));
    Ok(())
}

/// Returns a pool whose memory belongs to this process.
fn find_local(driver: &DriverState, pool: CUmemoryPool) -> Result<Arc<Pool>, CUerror> {
    let pool = driver.pools.get(pool.0)?;
    if pool.origin == Origin::Imported { Err(CUerror::INVALID_VALUE) } else { Ok(pool) }
}

pub(crate) fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> CUresult {
    let driver = driver()?;
    let props = props.0;
    if props.allocType != CUmemAllocationType::PINNED || props.location.kind != CUmemLocationType::DEVICE {
        return Err(CUerror::INVALID_VALUE);
    }
    let origin = match props.handleTypes {
        CUmemAllocationHandleType::NONE => Origin::Created,
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => Origin::Exportable,
        _ => return Err(CUerror::NOT_SUPPORTED),
    };
    let device = driver.space.device(CUdevice(props.location.id)).map_err(|_| CUerror::INVALID_VALUE)?;
    let made = create(driver, device, origin, props.maxSize as u64)?;
    pool.set(made.handle);
    device.pools().all.push(made);
    Ok(())
}

pub(crate) fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult {
    let driver = driver()?;
    let found = driver.pools.get(pool.0)?;
    if found.origin == Origin::Default {
        return Err(CUerror::INVALID_VALUE);
    }
    if found.origin == Origin::Imported && !driver.imports.release_pool(found.memory.inode())? {
        return Ok(());
    }
    let removed = driver.pools.remove(pool.0).ok_or(CUerror::INVALID_VALUE)?;
    removed.destroy();
    let device = &driver.space.devices[removed.device];
    let mut pools = device.pools();
    if pools.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &removed)) {
        pools.current = None;
    }
    drop(pools);
    device.trim_pools(Pool::retained_bytes);
    Ok(())
}

/// Switches are of type `int`, other attributes `cuuint64_t`.
fn is_switch(attribute: CUmemPool_attribute) -> bool {
    (1..=3).contains(&attribute.0)
}

pub(crate) fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: UntypedPtr) -> CUresult {
    let pool = find_local(driver()?, pool)?;
    let value = if is_switch(attribute) { u64::from(value.read::<i32>()? != 0) } else { value.read::<u64>()? };
    pool.set_attribute(attribute, value)
}

pub(crate) fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: UntypedPtr) -> CUresult {
    let found = find_local(driver()?, pool)?.attribute(attribute)?;
    if is_switch(attribute) { value.set(found as i32) } else { value.set(found) }
}

pub(crate) fn cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize) -> CUresult {
    find_local(driver()?, pool)?.trim(keep_bytes as u64);
    Ok(())
}

pub(crate) fn cuMemPoolSetAccess(pool: CUmemoryPool, map: InArray<CUmemAccessDesc>, count: usize) -> CUresult {
    let driver = driver()?;
    let pool = driver.pools.get(pool.0)?;
    if count > driver.space.devices.len() {
        return Err(CUerror::INVALID_VALUE);
    }
    let wanted = map.read(count)?;
    for access in &wanted {
        let location = access.location;
        if location.kind != CUmemLocationType::DEVICE {
            return Err(CUerror::INVALID_VALUE);
        }
        driver.space.device(CUdevice(location.id))?;
        let is_own = pool.device as i32 == location.id;
        match access.flags {
            CUmemAccess_flags::PROT_READWRITE => {}
            CUmemAccess_flags::PROT_READ if is_own => return Err(CUerror::NOT_SUPPORTED),
            // An imported pool has no device of its own to keep access.
            CUmemAccess_flags::PROT_NONE if is_own && pool.origin == Origin::Imported => {
                return Err(CUerror::INVALID_VALUE);
            }
            CUmemAccess_flags::PROT_NONE if is_own => return Err(CUerror::INVALID_DEVICE),
            CUmemAccess_flags::PROT_NONE | CUmemAccess_flags::PROT_READ => {}
            _ => return Err(CUerror::INVALID_VALUE),
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
    let driver = driver()?;
    let pool = driver.pools.get(pool.0)?;
    let location = location.0;
    if location.kind != CUmemLocationType::DEVICE || driver.space.device(CUdevice(location.id)).is_err() {
        return Err(CUerror::INVALID_VALUE);
    }
    let is_own = pool.device as i32 == location.id;
    let own = if is_own { CUmemAccess_flags::PROT_READWRITE } else { CUmemAccess_flags::PROT_NONE };
    flags.set(pool.access(location.id).unwrap_or(own));
    Ok(())
}

pub(crate) fn cuMemPoolExportToShareableHandle(
    shareable: UntypedPtr,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let driver = driver()?;
    let pool = driver.pools.get(pool.0)?;
    let is_known = kind == CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR && flags == 0;
    if !is_known || pool.origin != Origin::Exportable {
        return Err(CUerror::INVALID_VALUE);
    }
    share(driver, &pool)?;
    export_fd(shareable, &pool.memory)
}

/// Shares the memory of a pool with other processes.
fn share(driver: &DriverState, pool: &Pool) -> CUresult {
    let index = driver.space.devices[pool.device].index;
    let header = ShareHeader::new(ShareKind::Pool, index, pool.memory.bytes());
    pool.memory.share(header).map_err(|_| CUerror::OPERATING_SYSTEM)
}

pub(crate) fn cuMemPoolImportFromShareableHandle(
    pool: Out<CUmemoryPool>,
    shareable: HostAddress,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let driver = driver()?;
    if kind != CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (memory, header) = import_fd(shareable, ShareKind::Pool)?;
    let device = driver.space.device_at_index(header.device)?;
    let inode = memory.inode();
    let imported = driver.imports.pool(inode, || insert(driver, device, Origin::Imported, 0, memory));
    pool.set(imported.handle);
    Ok(())
}

pub(crate) fn cuMemPoolExportPointer(data: Out<CUmemPoolPtrExportData>, start: CUdeviceptr) -> CUresult {
    let driver = driver()?;
    let span = driver.space.find_span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    let SpanKind::Pool(pool) = &span.kind else { return Err(CUerror::INVALID_VALUE) };
    // The pool must be shared before its blocks.
    if pool.origin != Origin::Exportable || !pool.memory.is_shared() || start.0 != span.base {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = &driver.space.devices[span.device];
    let offset = span.base - device.memory.arena.base();
    let token = Token::new(ShareKind::Pool, &pool.memory, device.index, offset, span.bytes, span.id);
    data.set(CUmemPoolPtrExportData { bytes: token.to_bytes() });
    Ok(())
}

pub(crate) fn cuMemPoolImportPointer(
    start: Out<CUdeviceptr>,
    pool: CUmemoryPool,
    data: In<CUmemPoolPtrExportData>,
) -> CUresult {
    let driver = driver()?;
    let pool = driver.pools.get(pool.0)?;
    let token = Token::from_bytes(data.0.bytes, ShareKind::Pool)?;
    let end = token.offset.checked_add(token.bytes);
    let lies_within = token.bytes > 0 && end.is_some_and(|end| end <= pool.memory.bytes());
    if pool.origin != Origin::Imported || token.inode != pool.memory.inode() || !lies_within {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = &driver.space.devices[pool.device];
    let mut blocks = driver.imports.blocks();
    if let Some(import) = blocks.get(&token.key()) {
        start.set(CUdeviceptr(import.address));
        return Ok(());
    }
    let mapping = Arc::new(ImportedMapping::new(device, Arc::clone(&pool.memory), token.offset, token.bytes)?);
    let address = mapping.address(token.offset);
    let kind = SpanKind::Imported(ImportedBlock { token, pool: Some(pool), _mapping: Arc::clone(&mapping) });
    driver.space.insert_span(address, token.bytes, device.ordinal, None, kind)?;
    blocks.insert(token.key(), ImportEntry { address, mapping, context: None, open_count: 1 });
    start.set(CUdeviceptr(address));
    Ok(())
}
