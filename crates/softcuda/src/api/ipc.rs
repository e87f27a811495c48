//! IPC: memory and events of another process, by handles of 64 bytes.

use std::sync::Arc;

use freehold_check::BlockKind;
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUevent, CUipcEventHandle, CUipcMemHandle, CUresult, event_flags, ipc_flags,
};

use crate::base::{check, shared_frees};
use crate::ffi::args::Out;
use crate::memory::backing::{ShareHeader, ShareKind};
use crate::memory::ipc_token::Token;
use crate::objects::context::current;
use crate::objects::device::Device;
use crate::objects::event::Event;
use crate::objects::event_state::IpcEventState;
use crate::space::imports::{ImportEntry, ImportedBlock, ImportedMapping, Imports};
use crate::space::span::SpanKind;
use crate::state::driver_state::driver;

pub(crate) fn cuIpcGetMemHandle(handle: Out<CUipcMemHandle>, start: CUdeviceptr) -> CUresult {
    let driver = driver()?;
    current()?;
    let span = driver.space.find_span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    if !matches!(span.kind, SpanKind::Device) {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = &driver.space.devices[span.device];
    let (first, memory) = device.memory.backing(span.base).ok_or(CUerror::INVALID_VALUE)?;
    let header = ShareHeader::new(ShareKind::Pages, device.index, memory.bytes());
    memory.share(header).map_err(|_| CUerror::OPERATING_SYSTEM)?;
    let token = Token::new(ShareKind::Pages, &memory, device.index, span.base - first, span.bytes, span.id);
    shared_frees::exported(span.id);
    handle.set(CUipcMemHandle { bytes: token.to_bytes() });
    Ok(())
}

pub(crate) fn cuIpcOpenMemHandle_v2(start: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    if flags & ipc_flags::LAZY_ENABLE_PEER_ACCESS == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let token = Token::from_bytes(handle.bytes, ShareKind::Pages)?;
    if token.is_own() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let device = driver.space.device_at_index(token.device)?;
    // Held to the end, so that a block is opened once when several threads open it.
    let mut blocks = driver.imports.blocks();
    let same_memory = Imports::find_by_inode(&blocks, token.inode);
    if same_memory.is_some_and(|import| import.context != Some(context.id)) {
        return Err(CUerror::INVALID_HANDLE);
    }
    let mapping = match same_memory {
        Some(import) => Arc::clone(&import.mapping),
        None => Arc::new(map_import(device, &token)?),
    };
    if !mapping.contains(&token) {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(import) = blocks.get_mut(&token.key()) {
        import.open_count += 1;
        start.set(CUdeviceptr(import.address));
        return Ok(());
    }
    let (address, number) = (mapping.address(token.offset), Some(context.id));
    // Live blocks of one memory do not overlap: the token is forged, or a block that its process has freed is still
    // open here and keeps its addresses until it is closed.
    if driver.space.spans().overlapping(address, token.bytes).is_some() {
        return Err(CUerror::INVALID_VALUE);
    }
    let kind = SpanKind::Imported(ImportedBlock { token, pool: None, _mapping: Arc::clone(&mapping) });
    driver.space.insert_span(address, token.bytes, device.ordinal, Some(context), kind)?;
    blocks.insert(token.key(), ImportEntry { address, mapping, context: number, open_count: 1 });
    check::allocate(address, token.bytes, BlockKind::Imported);
    shared_frees::opened(token.block(), address, token.bytes);
    start.set(CUdeviceptr(address));
    Ok(())
}

/// Attaches all of the memory that a token names.
fn map_import(device: &Arc<Device>, token: &Token) -> Result<ImportedMapping, CUerror> {
    let opened = token.open();
    if opened.is_err() && !token.is_exporter_alive() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let (memory, header) = opened.map_err(|_| CUerror::INVALID_VALUE)?;
    if !header.is_kind(ShareKind::Pages) || header.device != token.device {
        return Err(CUerror::INVALID_VALUE);
    }
    let bytes = memory.bytes();
    ImportedMapping::new(device, Arc::new(memory), 0, bytes)
}

pub(crate) fn cuIpcCloseMemHandle(start: CUdeviceptr) -> CUresult {
    let driver = driver()?;
    current()?;
    let span = {
        // Held until the block is gone, so that it is not opened again at its address before.
        let mut blocks = driver.imports.blocks();
        let found = { driver.space.spans().starting_at(start.0).cloned() }.ok_or(CUerror::INVALID_VALUE)?;
        let SpanKind::Imported(ImportedBlock { token, pool: None, .. }) = &found.kind else {
            return Err(CUerror::INVALID_VALUE);
        };
        let import = blocks.get_mut(&token.key()).ok_or(CUerror::INVALID_VALUE)?;
        import.open_count -= 1;
        if import.open_count > 0 {
            return Ok(());
        }
        blocks.remove(&token.key());
        shared_frees::closed(token.block());
        driver.space.begin_free(start.0, |span| span.id == found.id)?
    };
    check::free(span.base, span.bytes);
    span.synchronize_owner(&driver.engine);
    driver.space.finish_free(&span);
    Ok(())
}

pub(crate) fn cuIpcGetEventHandle(handle: Out<CUipcEventHandle>, event: CUevent) -> CUresult {
    let driver = driver()?;
    current()?;
    if event == CUevent::NULL {
        return Err(CUerror::INVALID_VALUE);
    }
    let event = super::event::find(driver, event)?;
    let shared = event.slot.shared.as_ref().filter(|shared| shared.is_own()).ok_or(CUerror::INVALID_HANDLE)?;
    handle.set(CUipcEventHandle { bytes: shared.token().to_bytes() });
    Ok(())
}

pub(crate) fn cuIpcOpenEventHandle(event: Out<CUevent>, handle: CUipcEventHandle) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    let token = Token::from_bytes(handle.bytes, ShareKind::Event).map_err(|_| CUerror::MAP_FAILED)?;
    if token.is_own() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let shared = match token.open() {
        Ok((memory, header)) if header.is_kind(ShareKind::Event) => IpcEventState::map(memory),
        // A dead exporter records no more: the event counts as never recorded.
        _ if !token.is_exporter_alive() => IpcEventState::create(),
        _ => return Err(CUerror::INVALID_VALUE),
    };
    let shared = shared.map_err(|_| CUerror::OUT_OF_MEMORY)?;
    let flags = event_flags::INTERPROCESS | event_flags::DISABLE_TIMING;
    let made = Arc::new(Event::with_shared(Arc::downgrade(&context), flags, shared));
    let (handle, _) = driver.events.insert_with(|_| made);
    event.set(CUevent(handle));
    Ok(())
}
