//! Host memory that devices can access: pinned memory, and registered memory of the program.

use std::ffi::c_void;
use std::sync::Arc;

use freehold_check::BlockKind;
use freehold_driver::cuda::{CUdeviceptr, CUerror, CUresult, host_alloc_flags, host_register_flags};

use crate::base::check;
use crate::ffi::args::{HostAddress, Out};
use crate::memory::host_pages::HostPages;
use crate::memory::mem_ref::is_host_mapped;
use crate::objects::context::{check_current_if_any, current};
use crate::space::span::SpanKind;
use crate::state::driver_state::driver;

pub(crate) fn cuMemAllocHost_v2(start: Out<*mut c_void>, bytes: usize) -> CUresult {
    cuMemHostAlloc(start, bytes, 0)
}

pub(crate) fn cuMemHostAlloc(start: Out<*mut c_void>, bytes: usize, flags: u32) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    let known = host_alloc_flags::PORTABLE | host_alloc_flags::DEVICEMAP | host_alloc_flags::WRITECOMBINED;
    if flags & !known != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if bytes == 0 {
        start.set(std::ptr::null_mut());
        return Ok(());
    }
    let pages = Arc::new(HostPages::map(bytes as u64).map_err(|_| CUerror::OUT_OF_MEMORY)?);
    let base = pages.address();
    let device = context.device.ordinal;
    driver.space.insert_span(base, bytes as u64, device, Some(context), SpanKind::Pinned { pages, flags })?;
    check::allocate(base, bytes as u64, BlockKind::Host);
    start.set(base as *mut c_void);
    Ok(())
}

pub(crate) fn cuMemFreeHost(start: HostAddress) -> CUresult {
    let driver = driver()?;
    check_current_if_any()?;
    if start.0 == 0 {
        return Ok(());
    }
    let span = driver.space.begin_free(start.0, |span| matches!(span.kind, SpanKind::Pinned { .. }));
    let span = span.inspect_err(|_| check::wrong_free(start.0, true))?;
    check::free(span.base, span.bytes);
    span.synchronize_owner(&driver.engine);
    driver.space.finish_free(&span);
    Ok(())
}

pub(crate) fn cuMemHostRegister_v2(start: HostAddress, bytes: usize, flags: u32) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    let known = host_register_flags::PORTABLE
        | host_register_flags::DEVICEMAP
        | host_register_flags::IOMEMORY
        | host_register_flags::READ_ONLY;
    if start.0 == 0 || bytes == 0 || flags & !known != 0 || start.0.checked_add(bytes as u64).is_none() {
        return Err(CUerror::INVALID_VALUE);
    }
    if !is_host_mapped(start.0, bytes as u64) {
        return Err(CUerror::INVALID_VALUE);
    }
    driver.space.register_host(start.0, bytes as u64, context, flags)?;
    check::allocate(start.0, bytes as u64, BlockKind::Registered);
    Ok(())
}

pub(crate) fn cuMemHostUnregister(start: HostAddress) -> CUresult {
    let driver = driver()?;
    check_current_if_any()?;
    if start.0 == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if driver.space.find_span(start.0).is_none() {
        return Err(CUerror::HOST_MEMORY_NOT_REGISTERED);
    }
    let span = driver.space.begin_free(start.0, |span| matches!(span.kind, SpanKind::Registered { .. }))?;
    check::free(span.base, span.bytes);
    span.synchronize_owner(&driver.engine);
    driver.space.finish_free(&span);
    Ok(())
}

pub(crate) fn cuMemHostGetDevicePointer_v2(address: Out<CUdeviceptr>, start: HostAddress, flags: u32) -> CUresult {
    let driver = driver()?;
    current()?;
    if flags != 0 || !driver.space.find_span(start.0).is_some_and(|span| span.is_on_host()) {
        return Err(CUerror::INVALID_VALUE);
    }
    address.set(CUdeviceptr(start.0));
    Ok(())
}

pub(crate) fn cuMemHostGetFlags(flags: Out<u32>, start: HostAddress) -> CUresult {
    let driver = driver()?;
    current()?;
    match driver.space.find_span(start.0).as_deref().map(|span| &span.kind) {
        Some(SpanKind::Pinned { flags: own, .. }) => flags.set(own | host_alloc_flags::DEVICEMAP),
        Some(SpanKind::Registered { flags: own }) => flags.set(own | host_alloc_flags::DEVICEMAP),
        _ => return Err(CUerror::INVALID_VALUE),
    }
    Ok(())
}
