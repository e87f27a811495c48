//! The functions of the driver that allocate, free and report sizes, with the limit. Each has the driver's arguments
//! and conditions.

#![allow(non_snake_case, reason = "named as C names the functions")]
#![allow(clippy::missing_safety_doc, reason = "the driver API states the conditions of each function")]

use std::ffi::{CStr, c_char, c_void};

use freehold_driver::cuda::symbols;
use freehold_driver::cuda::{
    Api, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEM_ALLOC_NODE_PARAMS, CUarray, CUcontext, CUdevice,
    CUdeviceptr, CUdriverProcAddressQueryResult, CUerror, CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocationType, CUmemPoolProps,
    CUmemoryPool, CUmipmappedArray, CUresult, CUstream, CUstreamCaptureStatus, proc_address_flags,
};

use super::array_bytes::array_bytes;
use super::enforce::{Limit, PITCH_BYTES, SPARE, Shortage, get, lock};
use super::usage::{Charge, Key};

/// Defines the wrappers with a table of them. They are called only if there is a limit.
macro_rules! wrappers {
    ($($(#[$attribute:meta])* fn $name:ident($limit:ident, $($argument:ident: $kind:ty),*) $body:block)*) => {
        $(
            $(#[$attribute])*
            #[unsafe(export_name = concat!("freehold_limit_", stringify!($name)))]
            unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                let Some($limit) = get() else { return Err(CUerror::NOT_INITIALIZED) };
                $body
            }
        )*

        /// Returns the wrapper of a symbol.
        fn wrapper(symbol: &str) -> Option<*mut c_void> {
            match symbol {
                $(stringify!($name) => Some($name as *mut c_void),)*
                _ => None,
            }
        }
    };
}

macro_rules! table {
    ($api:ident: $($name:ident)*) => {
        Api { $($name,)* ..$api }
    };
}

/// Returns a table that counts, if there is a limit.
pub(crate) fn counted(api: Api) -> Api {
    if get().is_some() { table(api) } else { api }
}

/// Returns a table for the runtime's own pool, which returns its spare memory itself.
pub(crate) fn counted_for_pool(api: Api) -> Api {
    if get().is_some() { table_for_pool(api) } else { api }
}

/// Returns a table with the wrappers.
fn table(api: Api) -> Api {
    // The runtime adds the pool's spare memory itself.
    let cuMemGetInfo_v2 = memory_info;
    table! { api:
        cuMemGetInfo_v2 cuDeviceTotalMem_v2 cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemAllocManaged cuMemFree_v2
        cuMemAllocAsync cuMemAllocFromPoolAsync cuMemPoolCreate cuMemPoolDestroy
        cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemRetainAllocationHandle
        cuArrayCreate_v2 cuArray3DCreate_v2 cuMipmappedArrayCreate cuArrayDestroy cuMipmappedArrayDestroy
        cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2
        cuCtxDestroy_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRelease_v2 cuGetProcAddress_v2
    }
}

/// Returns a table with the wrappers, for the runtime's own pool.
fn table_for_pool(api: Api) -> Api {
    let (cuMemAlloc_v2, cuMemCreate) = (alloc_for_pool, create_for_pool);
    let api = table(api);
    table! { api: cuMemAlloc_v2 cuMemCreate }
}

unsafe extern "C" fn alloc_for_pool(start: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let Some(limit) = get() else { return Err(CUerror::NOT_INITIALIZED) };
    // SAFETY: the conditions are the same.
    unsafe { alloc(limit, start, bytes, Shortage::TrimsDriver) }
}

unsafe extern "C" fn create_for_pool(
    allocation: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> CUresult {
    let Some(limit) = get() else { return Err(CUerror::NOT_INITIALIZED) };
    // SAFETY: the conditions are the same.
    unsafe { create(limit, allocation, bytes, prop, flags, Shortage::TrimsDriver) }
}

/// `cuMemGetInfo`, without the pool's spare memory.
unsafe extern "C" fn memory_info(free: *mut usize, total: *mut usize) -> CUresult {
    let Some(limit) = get() else { return Err(CUerror::NOT_INITIALIZED) };
    // SAFETY: the conditions are the same.
    unsafe { (limit.api.cuMemGetInfo_v2)(free, total) }?;
    let Some((device, _)) = limit.current() else { return Ok(()) };
    // SAFETY: the call has written it.
    if let Some(free) = unsafe { free.as_mut() } {
        *free = (*free).min(limit.free_bytes(device) as usize);
    }
    // SAFETY: as above.
    if let Some(total) = unsafe { total.as_mut() } {
        *total = (*total).min(limit.bytes as usize);
    }
    Ok(())
}

unsafe fn alloc(limit: &Limit, start: *mut CUdeviceptr, bytes: usize, shortage: Shortage) -> CUresult {
    // SAFETY: the conditions are the same.
    let charge = limit.alloc(bytes as u64, shortage, || unsafe { (limit.api.cuMemAlloc_v2)(start, bytes) })?;
    // SAFETY: the call has written the address.
    limit.note(Key::Block(unsafe { *start }.0), charge);
    Ok(())
}

unsafe fn create(
    limit: &Limit,
    allocation: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
    shortage: Shortage,
) -> CUresult {
    // SAFETY: the conditions are the same.
    let call = || unsafe { (limit.api.cuMemCreate)(allocation, bytes, prop, flags) };
    // SAFETY: the C caller guarantees that the properties are valid, if there are any.
    let Some(location) = (unsafe { prop.as_ref() }).map(|prop| prop.location) else { return call() };
    if location.kind != CUmemLocationType::DEVICE {
        return call();
    }
    limit.charge(location.id, bytes as u64, shortage)?;
    call().inspect_err(|_| limit.uncharge(location.id, bytes as u64))?;
    // SAFETY: the call has written the handle.
    lock(&limit.usage).created(unsafe { *allocation }.0, location.id, bytes as u64);
    Ok(())
}

/// Returns the device of a stream.
unsafe fn device_of(limit: &Limit, stream: CUstream) -> Option<i32> {
    let mut device = CUdevice(0);
    // SAFETY: the C caller guarantees that the stream is valid, and `device` is a valid place for the answer.
    match unsafe { (limit.api.cuStreamGetDevice)(stream, &raw mut device) } {
        Ok(()) => Some(device.0),
        // Drivers before CUDA 12.8 lack the call.
        Err(_) => limit.current().map(|(device, _)| device),
    }
}

unsafe fn is_captured(limit: &Limit, stream: CUstream) -> bool {
    let mut status = CUstreamCaptureStatus::NONE;
    // SAFETY: the C caller guarantees that the stream is valid, and `status` is a valid place for the answer.
    let asked = unsafe { (limit.api.cuStreamIsCapturing)(stream, &raw mut status) };
    asked.is_ok() && status != CUstreamCaptureStatus::NONE
}

/// Allocates from a pool, the current one of the device if none is given.
unsafe fn alloc_async(
    limit: &Limit,
    start: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    pool: Option<CUmemoryPool>,
) -> CUresult {
    let call = || match pool {
        // SAFETY: the conditions are the same.
        Some(pool) => unsafe { (limit.api.cuMemAllocFromPoolAsync)(start, bytes, pool, stream) },
        // SAFETY: as above.
        None => unsafe { (limit.api.cuMemAllocAsync)(start, bytes, stream) },
    };
    // SAFETY: the C caller guarantees that the stream is valid.
    let Some(device) = (unsafe { device_of(limit, stream) }) else { return call() };
    // SAFETY: as above.
    if unsafe { is_captured(limit, stream) } {
        limit.check_graph_memory(device, bytes as u64)?;
        return call();
    }
    let mut found = CUmemoryPool::NULL;
    let (pool, device) = match pool {
        Some(pool) => (pool, limit.device_of_pool(pool).unwrap_or(device)),
        None => {
            // SAFETY: `found` is a valid place for the answer.
            unsafe { (limit.api.cuDeviceGetMemPool)(&raw mut found, CUdevice(device)) }?;
            (found, device)
        }
    };
    // SAFETY: the C caller guarantees that the place and the stream are valid.
    unsafe { limit.alloc_from_pool((pool, device), bytes as u64, (start, stream), call) }
}

unsafe fn create_array(
    limit: &Limit,
    array: *mut CUarray,
    described: Option<CUDA_ARRAY3D_DESCRIPTOR>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let bytes = described.map_or(0, |descriptor| array_bytes(&descriptor, 1));
    let charge = limit.alloc(bytes, Shortage::TrimsAll, call)?;
    // SAFETY: the call has written the handle.
    limit.note(Key::Array(unsafe { *array }.0), charge);
    Ok(())
}

/// Checks the memory of a node, if it allocates.
unsafe fn check_node(limit: &Limit, params: *const CUgraphNodeParams) -> CUresult {
    // SAFETY: the C caller guarantees that the parameters are valid, if there are any.
    let Some(params) = (unsafe { params.as_ref() }) else { return Ok(()) };
    if params.kind != CUgraphNodeType::MEM_ALLOC {
        return Ok(());
    }
    // SAFETY: the kind says which member the parameters have.
    let node = unsafe { &params.value.alloc };
    limit.check_graph_memory(node.poolProps.location.id, node.bytesize as u64)
}

/// Returns the primary context of a device, if it exists.
fn primary(limit: &Limit, device: CUdevice) -> Option<CUcontext> {
    let (mut flags, mut is_active, mut context) = (0, 0, CUcontext::NULL);
    // SAFETY: both are valid places for the answer.
    unsafe { (limit.api.cuDevicePrimaryCtxGetState)(device, &raw mut flags, &raw mut is_active) }.ok()?;
    if is_active == 0 {
        return None;
    }
    // SAFETY: `context` is a valid place for the answer.
    unsafe { (limit.api.cuDevicePrimaryCtxRetain)(&raw mut context, device) }.ok()?;
    // SAFETY: the reference is the one of the call before.
    unsafe { (limit.api.cuDevicePrimaryCtxRelease_v2)(device) }.ok()?;
    Some(context)
}

/// Replaces a function that `cuGetProcAddress` has found by its wrapper.
unsafe fn replace(name: *const c_char, function: *mut *mut c_void, version: i32, is_per_thread: bool) {
    // SAFETY: the driver has accepted the name.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: the driver has written the place.
    let found = unsafe { &mut *function };
    let Ok(name) = name.to_str() else { return };
    if found.is_null() {
        return;
    }
    let form = symbols::forms(name).iter().rev().find(|form| form.since <= version);
    let symbol = form.map_or(name, |form| if is_per_thread { form.per_thread.unwrap_or(form.name) } else { form.name });
    if let Some(wrapper) = wrapper(symbol) {
        *found = wrapper;
    }
}

wrappers! {
    fn cuMemGetInfo_v2(limit, free: *mut usize, total: *mut usize) {
        // SAFETY: the conditions are the same.
        unsafe { memory_info(free, total) }?;
        // SAFETY: the call has written it.
        if let (Some(spare), Some(free), Some((device, _))) = (SPARE.get(), unsafe { free.as_mut() }, limit.current()) {
            *free = (*free + (spare.bytes)(device) as usize).min(limit.bytes as usize);
        }
        Ok(())
    }

    fn cuDeviceTotalMem_v2(limit, bytes: *mut usize, device: CUdevice) {
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuDeviceTotalMem_v2)(bytes, device) }?;
        // SAFETY: the call has written it.
        let bytes = unsafe { &mut *bytes };
        *bytes = (*bytes).min(limit.bytes as usize);
        Ok(())
    }

    fn cuMemAlloc_v2(limit, start: *mut CUdeviceptr, bytes: usize) {
        // SAFETY: the conditions are the same.
        unsafe { alloc(limit, start, bytes, Shortage::TrimsAll) }
    }

    fn cuMemAllocPitch_v2(limit, start: *mut CUdeviceptr, pitch: *mut usize, width_bytes: usize, height: usize, element_bytes: u32) {
        let estimate = (width_bytes as u64).div_ceil(PITCH_BYTES).saturating_mul(PITCH_BYTES).saturating_mul(height as u64);
        // SAFETY: the conditions are the same.
        let call = || unsafe { (limit.api.cuMemAllocPitch_v2)(start, pitch, width_bytes, height, element_bytes) };
        let Some(charge) = limit.alloc(estimate, Shortage::TrimsAll, call)? else { return Ok(()) };
        // SAFETY: the call has written it.
        let start = unsafe { *start };
        // SAFETY: as above.
        let pitch = unsafe { *pitch };
        let bytes = pitch as u64 * height as u64;
        if bytes > estimate && limit.try_charge(charge.device, bytes - estimate).is_err() {
            limit.uncharge(charge.device, estimate);
            // SAFETY: the memory was just allocated.
            unsafe { (limit.api.cuMemFree_v2)(start) }?;
            return Err(CUerror::OUT_OF_MEMORY);
        }
        limit.uncharge(charge.device, estimate.saturating_sub(bytes));
        limit.note(Key::Block(start.0), Some(Charge { bytes, ..charge }));
        Ok(())
    }

    fn cuMemAllocManaged(limit, start: *mut CUdeviceptr, bytes: usize, flags: u32) {
        // SAFETY: the conditions are the same.
        let call = || unsafe { (limit.api.cuMemAllocManaged)(start, bytes, flags) };
        let charge = limit.alloc(bytes as u64, Shortage::TrimsAll, call)?;
        // SAFETY: the call has written the address.
        limit.note(Key::Block(unsafe { *start }.0), charge);
        Ok(())
    }

    fn cuMemFree_v2(limit, start: CUdeviceptr) {
        // SAFETY: the conditions are the same.
        limit.free(Key::Block(start.0), || unsafe { (limit.api.cuMemFree_v2)(start) })
    }

    fn cuMemAllocAsync(limit, start: *mut CUdeviceptr, bytes: usize, stream: CUstream) {
        // SAFETY: the conditions are the same.
        unsafe { alloc_async(limit, start, bytes, stream, None) }
    }

    fn cuMemAllocAsync_ptsz(limit, start: *mut CUdeviceptr, bytes: usize, stream: CUstream) {
        // SAFETY: the conditions are the same.
        unsafe { alloc_async(limit, start, bytes, per_thread(stream), None) }
    }

    fn cuMemAllocFromPoolAsync(limit, start: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) {
        // SAFETY: the conditions are the same.
        unsafe { alloc_async(limit, start, bytes, stream, Some(pool)) }
    }

    fn cuMemAllocFromPoolAsync_ptsz(limit, start: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) {
        // SAFETY: the conditions are the same.
        unsafe { alloc_async(limit, start, bytes, per_thread(stream), Some(pool)) }
    }

    fn cuMemPoolCreate(limit, pool: *mut CUmemoryPool, props: *const CUmemPoolProps) {
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuMemPoolCreate)(pool, props) }?;
        // SAFETY: the driver has accepted the properties.
        let location = unsafe { (*props).location };
        if location.kind == CUmemLocationType::DEVICE {
            // SAFETY: the call has written the handle.
            limit.add_pool(unsafe { *pool }, location.id);
        }
        Ok(())
    }

    fn cuMemPoolDestroy(limit, pool: CUmemoryPool) {
        let mut pools = lock(&limit.pools);
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuMemPoolDestroy)(pool) }?;
        pools.retain(|(known, _)| *known != pool);
        Ok(())
    }

    fn cuMemCreate(limit, allocation: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp, flags: u64) {
        // SAFETY: the conditions are the same.
        unsafe { create(limit, allocation, bytes, prop, flags, Shortage::TrimsAll) }
    }

    fn cuMemRelease(limit, allocation: CUmemGenericAllocationHandle) {
        // Locked before, because another thread may get the same handle next.
        let mut usage = lock(&limit.usage);
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuMemRelease)(allocation) }?;
        usage.released(allocation.0);
        Ok(())
    }

    fn cuMemMap(limit, start: CUdeviceptr, bytes: usize, offset: usize, allocation: CUmemGenericAllocationHandle, flags: u64) {
        let mut usage = lock(&limit.usage);
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuMemMap)(start, bytes, offset, allocation, flags) }?;
        usage.mapped(start.0, bytes as u64, allocation.0);
        Ok(())
    }

    fn cuMemUnmap(limit, start: CUdeviceptr, bytes: usize) {
        let mut usage = lock(&limit.usage);
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuMemUnmap)(start, bytes) }?;
        usage.unmapped(start.0, bytes as u64);
        Ok(())
    }

    fn cuMemRetainAllocationHandle(limit, allocation: *mut CUmemGenericAllocationHandle, start: *mut c_void) {
        let mut usage = lock(&limit.usage);
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuMemRetainAllocationHandle)(allocation, start) }?;
        // SAFETY: the call has written the handle.
        usage.retained(unsafe { *allocation }.0, start as u64);
        Ok(())
    }

    fn cuArrayCreate_v2(limit, array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) {
        // SAFETY: the C caller guarantees that the description is valid, if there is one.
        let described = unsafe { descriptor.as_ref() }.map(|described| CUDA_ARRAY3D_DESCRIPTOR {
            Width: described.Width,
            Height: described.Height,
            Depth: 0,
            Format: described.Format,
            NumChannels: described.NumChannels,
            Flags: 0,
        });
        // SAFETY: the conditions are the same.
        let call = || unsafe { (limit.api.cuArrayCreate_v2)(array, descriptor) };
        // SAFETY: the call writes the handle.
        unsafe { create_array(limit, array, described, call) }
    }

    fn cuArray3DCreate_v2(limit, array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) {
        // SAFETY: the C caller guarantees that the description is valid, if there is one.
        let described = unsafe { descriptor.as_ref() }.copied();
        // SAFETY: the conditions are the same.
        let call = || unsafe { (limit.api.cuArray3DCreate_v2)(array, descriptor) };
        // SAFETY: the call writes the handle.
        unsafe { create_array(limit, array, described, call) }
    }

    fn cuMipmappedArrayCreate(limit, mipmap: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: u32) {
        // SAFETY: the C caller guarantees that the description is valid, if there is one.
        let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| array_bytes(descriptor, levels));
        // SAFETY: the conditions are the same.
        let call = || unsafe { (limit.api.cuMipmappedArrayCreate)(mipmap, descriptor, levels) };
        let charge = limit.alloc(bytes, Shortage::TrimsAll, call)?;
        // SAFETY: the call has written the handle.
        limit.note(Key::Mipmap(unsafe { *mipmap }.0), charge);
        Ok(())
    }

    fn cuArrayDestroy(limit, array: CUarray) {
        // SAFETY: the conditions are the same.
        limit.free(Key::Array(array.0), || unsafe { (limit.api.cuArrayDestroy)(array) })
    }

    fn cuMipmappedArrayDestroy(limit, mipmap: CUmipmappedArray) {
        // SAFETY: the conditions are the same.
        limit.free(Key::Mipmap(mipmap.0), || unsafe { (limit.api.cuMipmappedArrayDestroy)(mipmap) })
    }

    fn cuGraphAddMemAllocNode(limit, node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) {
        // SAFETY: the C caller guarantees that the parameters are valid, if there are any.
        if let Some(params) = unsafe { params.as_ref() } {
            limit.check_graph_memory(params.poolProps.location.id, params.bytesize as u64)?;
        }
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuGraphAddMemAllocNode)(node, graph, dependencies, count, params) }
    }

    fn cuGraphAddNode(limit, node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams) {
        // SAFETY: the C caller guarantees that the parameters is valid.
        unsafe { check_node(limit, params) }?;
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuGraphAddNode)(node, graph, dependencies, count, params) }
    }

    fn cuGraphAddNode_v2(limit, node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams) {
        // SAFETY: the C caller guarantees that the parameters is valid.
        unsafe { check_node(limit, params) }?;
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuGraphAddNode_v2)(node, graph, dependencies, edges, count, params) }
    }

    fn cuCtxDestroy_v2(limit, context: CUcontext) {
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuCtxDestroy_v2)(context) }?;
        lock(&limit.usage).free_context(context.0);
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(limit, device: CUdevice) {
        let context = primary(limit, device);
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuDevicePrimaryCtxReset_v2)(device) }?;
        if let Some(context) = context {
            lock(&limit.usage).free_context(context.0);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(limit, device: CUdevice) {
        let context = primary(limit, device);
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuDevicePrimaryCtxRelease_v2)(device) }?;
        if let Some(context) = context && primary(limit, device).is_none() {
            lock(&limit.usage).free_context(context.0);
        }
        Ok(())
    }

    fn cuGetProcAddress(limit, name: *const c_char, function: *mut *mut c_void, version: i32, flags: u64) {
        let mut status = CUdriverProcAddressQueryResult::SUCCESS;
        // SAFETY: the conditions are the same, and `status` is a valid place for the answer.
        unsafe { (limit.api.cuGetProcAddress_v2)(name, function, version, flags, &raw mut status) }?;
        // SAFETY: the driver has accepted the arguments.
        unsafe { replace(name, function, version, flags & proc_address_flags::PER_THREAD_DEFAULT_STREAM != 0) };
        Ok(())
    }

    fn cuGetProcAddress_v2(limit, name: *const c_char, function: *mut *mut c_void, version: i32, flags: u64, status: *mut CUdriverProcAddressQueryResult) {
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuGetProcAddress_v2)(name, function, version, flags, status) }?;
        // SAFETY: the driver has accepted the arguments.
        unsafe { replace(name, function, version, flags & proc_address_flags::PER_THREAD_DEFAULT_STREAM != 0) };
        Ok(())
    }

    fn cuGetProcAddress_v2_ptsz(limit, name: *const c_char, function: *mut *mut c_void, version: i32, flags: u64, status: *mut CUdriverProcAddressQueryResult) {
        let is_per_thread = flags & proc_address_flags::LEGACY_STREAM == 0;
        let flags = if is_per_thread { flags | proc_address_flags::PER_THREAD_DEFAULT_STREAM } else { flags };
        // SAFETY: the conditions are the same.
        unsafe { (limit.api.cuGetProcAddress_v2)(name, function, version, flags, status) }?;
        // SAFETY: the driver has accepted the arguments.
        unsafe { replace(name, function, version, is_per_thread) };
        Ok(())
    }
}

/// Returns the stream that a handle names in a call for per-thread default streams.
fn per_thread(stream: CUstream) -> CUstream {
    if stream == CUstream::NULL { CUstream::PER_THREAD } else { stream }
}
