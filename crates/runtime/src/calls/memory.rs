//! Allocations and frees: device and host memory, pools, and memory of other processes.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ffi::c_void;

use freehold_check::BlockKind;
use freehold_check::calls::{FreeOrder, Owner};
use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUerror, CUipcMemHandle, CUlibrary, CUmemGenericAllocationHandle,
    CUmemoryPool, CUmodule, CUresult, CUstream,
};

use super::wrap::{Call, wrappers};

/// Notes an allocation in the current context.
fn allocated(call: Call, start: u64, bytes: usize, kind: BlockKind) {
    if start != 0 {
        call.calls.checker.allocate(call.name, Owner::Context(call.context()), start, bytes as u64, kind);
    }
}

/// Notes an allocation in the order of a stream.
fn allocated_async(call: Call, start: CUdeviceptr, bytes: usize, stream: CUstream) {
    if !call.is_captured(stream) {
        let key = call.known_key(stream);
        call.calls.checker.allocate(call.name, Owner::Pool(key), start.0, bytes as u64, BlockKind::Device);
    }
}

/// Makes a call that frees.
fn free(call: Call, start: u64, order: FreeOrder, free: impl FnOnce() -> CUresult) -> CUresult {
    if start == 0 {
        return call.noted(free());
    }
    let checker = &call.calls.checker;
    let freeing = checker.begin_free(call.name, start, order);
    // The memory may belong to another context than the current one.
    let awaited = freeing.waits().then(|| call.everything_so_far());
    let result = free();
    match result {
        Ok(()) => {
            checker.finish_free(freeing);
            if let Some(awaited) = awaited {
                checker.observe(&awaited);
            }
        }
        Err(code) => checker.refuse_free(freeing, code == CUerror::INVALID_VALUE),
    }
    call.noted(result)
}

/// Returns whether the primary context of a device exists.
fn has_primary(call: Call, device: CUdevice) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: both are valid places for the answer.
    let asked = unsafe { (call.api.cuDevicePrimaryCtxGetState)(device, &raw mut flags, &raw mut is_active) };
    asked.is_err() || is_active != 0
}

/// Returns the primary context of a device, if it exists.
fn primary(call: Call, device: CUdevice) -> Option<CUcontext> {
    if !has_primary(call, device) {
        return None;
    }
    let mut context = CUcontext::NULL;
    // SAFETY: `context` is a valid place for the answer.
    unsafe { (call.api.cuDevicePrimaryCtxRetain)(&raw mut context, device) }.ok()?;
    // SAFETY: the context was retained just now, and the program has what it retained itself.
    let _ = unsafe { (call.api.cuDevicePrimaryCtxRelease_v2)(device) };
    Some(context)
}

/// Makes a call that may destroy a context. `is_gone` says whether it has, when it has succeeded.
fn end_context(
    call: Call,
    context: Option<CUcontext>,
    end: impl FnOnce() -> CUresult,
    is_gone: impl FnOnce() -> bool,
) -> CUresult {
    let Some(context) = context else { return end() };
    let ending = call.calls.checker.begin_context_end(context.0 as u64);
    // The handles of its kernels may mean others when the call returns. Those of other contexts are described again.
    call.calls.functions.forget_all();
    end()?;
    if is_gone() {
        call.calls.checker.finish_context_end(&ending);
    }
    Ok(())
}

wrappers! {
    fn cuMemAlloc_v2(call, start: *mut CUdeviceptr, bytes: usize) {
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemAlloc_v2)(start, bytes) })?;
        // SAFETY: the call has written the address.
        allocated(call, unsafe { *start }.0, bytes, BlockKind::Device);
        Ok(())
    }

    fn cuMemAllocPitch_v2(call, start: *mut CUdeviceptr, pitch: *mut usize, width_bytes: usize, height: usize, element_bytes: u32) {
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemAllocPitch_v2)(start, pitch, width_bytes, height, element_bytes) })?;
        // SAFETY: the call has written the pitch.
        let bytes = unsafe { *pitch } * height;
        // SAFETY: the call has written the address.
        allocated(call, unsafe { *start }.0, bytes, BlockKind::Device);
        Ok(())
    }

    fn cuMemAllocManaged(call, start: *mut CUdeviceptr, bytes: usize, flags: u32) {
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemAllocManaged)(start, bytes, flags) })?;
        // SAFETY: the call has written the address.
        allocated(call, unsafe { *start }.0, bytes, BlockKind::Defined);
        Ok(())
    }

    fn cuMemFree_v2(call, start: CUdeviceptr) {
        // SAFETY: the conditions are the same.
        free(call, start.0, FreeOrder::Device, || unsafe { (call.api.cuMemFree_v2)(start) })
    }

    fn cuMemAllocHost_v2(call, start: *mut *mut c_void, bytes: usize) {
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemAllocHost_v2)(start, bytes) })?;
        // SAFETY: the call has written the address.
        allocated(call, unsafe { *start } as u64, bytes, BlockKind::Host);
        Ok(())
    }

    fn cuMemHostAlloc(call, start: *mut *mut c_void, bytes: usize, flags: u32) {
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemHostAlloc)(start, bytes, flags) })?;
        // SAFETY: the call has written the address.
        allocated(call, unsafe { *start } as u64, bytes, BlockKind::Host);
        Ok(())
    }

    fn cuMemFreeHost(call, start: *mut c_void) {
        // SAFETY: the conditions are the same.
        free(call, start as u64, FreeOrder::Host, || unsafe { (call.api.cuMemFreeHost)(start) })
    }

    fn cuMemHostRegister_v2(call, start: *mut c_void, bytes: usize, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuMemHostRegister_v2)(start, bytes, flags) }?;
        allocated(call, start as u64, bytes, BlockKind::Host);
        Ok(())
    }

    fn cuMemHostUnregister(call, start: *mut c_void) {
        // SAFETY: the conditions are the same.
        free(call, start as u64, FreeOrder::Host, || unsafe { (call.api.cuMemHostUnregister)(start) })
    }

    fn cuMemAllocAsync["_ptsz"](call, start: *mut CUdeviceptr, bytes: usize, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemAllocAsync)(start, bytes, stream) })?;
        // SAFETY: the call has written the address.
        allocated_async(call, unsafe { *start }, bytes, stream);
        Ok(())
    }

    fn cuMemAllocFromPoolAsync["_ptsz"](call, start: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuMemAllocFromPoolAsync)(start, bytes, pool, stream) })?;
        // SAFETY: the call has written the address.
        allocated_async(call, unsafe { *start }, bytes, stream);
        Ok(())
    }

    fn cuMemFreeAsync["_ptsz"](call, start: CUdeviceptr, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        let free_it = || unsafe { (call.api.cuMemFreeAsync)(start, stream) };
        if call.is_captured(stream) {
            return free_it();
        }
        free(call, start.0, FreeOrder::Stream(call.known_key(stream)), free_it)
    }

    fn cuMemMap(call, start: CUdeviceptr, bytes: usize, offset: usize, allocation: CUmemGenericAllocationHandle, flags: u64) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuMemMap)(start, bytes, offset, allocation, flags) }?;
        call.calls.checker.allocate(call.name, Owner::Mapping, start.0, bytes as u64, BlockKind::Device);
        Ok(())
    }

    fn cuMemUnmap(call, start: CUdeviceptr, bytes: usize) {
        call.calls.checker.unmap(start.0, bytes as u64);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuMemUnmap)(start, bytes) }
    }

    fn cuIpcOpenMemHandle_v2(call, start: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuIpcOpenMemHandle_v2)(start, handle, flags) }?;
        // SAFETY: the call has written the address.
        let address = unsafe { *start };
        let (mut base, mut bytes) = (CUdeviceptr::NULL, 0);
        // SAFETY: both are valid places for the answer.
        let asked = unsafe { (call.api.cuMemGetAddressRange_v2)(&raw mut base, &raw mut bytes, address) };
        if asked.is_ok() && base == address {
            allocated(call, address.0, bytes, BlockKind::Imported);
        }
        Ok(())
    }

    fn cuIpcCloseMemHandle(call, start: CUdeviceptr) {
        // SAFETY: the conditions are the same.
        free(call, start.0, FreeOrder::Host, || unsafe { (call.api.cuIpcCloseMemHandle)(start) })
    }

    fn cuCtxDestroy_v2(call, context: CUcontext) {
        // SAFETY: the conditions are the same.
        end_context(call, Some(context), || unsafe { (call.api.cuCtxDestroy_v2)(context) }, || true)
    }

    fn cuDevicePrimaryCtxReset_v2(call, device: CUdevice) {
        // SAFETY: the conditions are the same.
        end_context(call, primary(call, device), || unsafe { (call.api.cuDevicePrimaryCtxReset_v2)(device) }, || true)
    }

    fn cuDevicePrimaryCtxRelease_v2(call, device: CUdevice) {
        // SAFETY: the conditions are the same.
        let release = || unsafe { (call.api.cuDevicePrimaryCtxRelease_v2)(device) };
        end_context(call, primary(call, device), release, || !has_primary(call, device))
    }

    fn cuModuleUnload(call, module: CUmodule) {
        call.calls.checker.unload_module(call.name, module.0 as u64);
        call.calls.functions.forget_module(module);
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuModuleUnload)(module) })
    }

    fn cuLibraryUnload(call, library: CUlibrary) {
        call.calls.checker.unload_module(call.name, library.0 as u64);
        call.calls.functions.forget_library(library);
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuLibraryUnload)(library) })
    }
}
