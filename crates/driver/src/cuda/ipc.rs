//! Memory and events of another process, through opaque handles that are sent as bytes.

use super::api::Api;
use super::call::{DriverError, call};
use super::mapping_types::{CUipcEventHandle, CUipcMemHandle};
use super::types::{CUdeviceptr, CUevent};

/// Returns the handle of a block allocated with `cuMemAlloc`.
pub fn memory_handle(api: &Api, start: CUdeviceptr) -> Result<CUipcMemHandle, DriverError> {
    let mut handle = CUipcMemHandle::default();
    // SAFETY: `handle` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuIpcGetMemHandle(&mut handle, start)) }?;
    Ok(handle)
}

/// Maps a block of another process.
pub fn open_memory(api: &Api, handle: CUipcMemHandle, flags: u32) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuIpcOpenMemHandle_v2(&mut start, handle, flags)) }?;
    Ok(start)
}

/// Undoes one [`open_memory`].
pub fn close_memory(api: &Api, start: CUdeviceptr) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuIpcCloseMemHandle(start)) }
}

/// Returns the handle of an interprocess event.
pub fn event_handle(api: &Api, event: CUevent) -> Result<CUipcEventHandle, DriverError> {
    let mut handle = CUipcEventHandle::default();
    // SAFETY: `handle` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuIpcGetEventHandle(&mut handle, event)) }?;
    Ok(handle)
}

/// Opens an event of another process.
pub fn open_event(api: &Api, handle: CUipcEventHandle) -> Result<CUevent, DriverError> {
    let mut event = CUevent::NULL;
    // SAFETY: `event` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuIpcOpenEventHandle(&mut event, handle)) }?;
    Ok(event)
}
