//! Memory and events of another process, by handles that are bytes.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUevent, CUipcEventHandle, CUipcMemHandle, CUresult, event_flags, ipc_flags,
};

use super::memory::{take, wait_for_owner};
use crate::boundary::Out;
use crate::context::current;
use crate::device::Device;
use crate::event::{Event, SharedState};
use crate::ipc::{Attached, Import, Imports, Opened, Token};
use crate::memory::backing::{Content, Label};
use crate::span::SpanKind;
use crate::world::world;

pub(crate) fn cuIpcGetMemHandle(handle: Out<CUipcMemHandle>, start: CUdeviceptr) -> CUresult {
    let world = world()?;
    current()?;
    let span = world.span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    if !matches!(span.kind, SpanKind::Device) {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = &world.devices[span.device];
    let (first, memory) = device.backing(span.base).ok_or(CUerror::INVALID_VALUE)?;
    let label = Label::new(Content::Pages, device.ordinal, memory.bytes());
    memory.share(label).map_err(|_| CUerror::OPERATING_SYSTEM)?;
    let token = Token::new(Content::Pages, &memory, device.ordinal, span.base - first, span.bytes, span.id);
    handle.set(CUipcMemHandle { bytes: token.to_bytes() });
    Ok(())
}

pub(crate) fn cuIpcOpenMemHandle_v2(start: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32) -> CUresult {
    let world = world()?;
    let context = current()?;
    if flags & ipc_flags::LAZY_ENABLE_PEER_ACCESS == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let token = Token::from_bytes(handle.bytes, Content::Pages)?;
    if token.is_own() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let device = i32::try_from(token.device).ok().and_then(|ordinal| world.device(CUdevice(ordinal)).ok());
    let device = device.ok_or(CUerror::INVALID_VALUE)?;
    // Held to the end, so that one block is opened once, however many threads ask.
    let mut blocks = world.imports.blocks();
    let same_memory = Imports::in_memory(&blocks, token.inode);
    if same_memory.is_some_and(|import| import.context != Some(context.number)) {
        return Err(CUerror::INVALID_HANDLE);
    }
    let attached = match same_memory {
        Some(import) => Arc::clone(&import.attached),
        None => Arc::new(attach(device, &token)?),
    };
    if !attached.holds(&token) {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(import) = blocks.get_mut(&token.place()) {
        import.times += 1;
        start.set(CUdeviceptr(import.address));
        return Ok(());
    }
    let (address, number) = (attached.address(token.offset), Some(context.number));
    // Live blocks of one memory do not overlap: the token is made up, or a block that its process has freed is still
    // open here, and keeps its place until it is closed.
    if world.spans().overlapping(address, token.bytes).is_some() {
        return Err(CUerror::INVALID_VALUE);
    }
    let kind = SpanKind::Opened(Opened { token, pool: None, _attached: Arc::clone(&attached) });
    world.enter(address, token.bytes, device.ordinal, Some(context), kind)?;
    blocks.insert(token.place(), Import { address, attached, context: number, times: 1 });
    start.set(CUdeviceptr(address));
    Ok(())
}

/// Attaches the memory that a token names, all of it.
fn attach(device: &Arc<Device>, token: &Token) -> Result<Attached, CUerror> {
    let opened = token.open();
    if opened.is_err() && !token.maker_lives() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let (memory, label) = opened.map_err(|_| CUerror::INVALID_VALUE)?;
    if !label.is(Content::Pages) || label.device != token.device {
        return Err(CUerror::INVALID_VALUE);
    }
    let bytes = memory.bytes();
    Attached::new(device, Arc::new(memory), 0, bytes)
}

pub(crate) fn cuIpcCloseMemHandle(start: CUdeviceptr) -> CUresult {
    let world = world()?;
    current()?;
    let span = {
        // Held until the block is gone, so that it is not opened anew at its address before.
        let mut blocks = world.imports.blocks();
        let found = { world.spans().starting_at(start.0).cloned() }.ok_or(CUerror::INVALID_VALUE)?;
        let SpanKind::Opened(Opened { token, pool: None, .. }) = &found.kind else {
            return Err(CUerror::INVALID_VALUE);
        };
        let import = blocks.get_mut(&token.place()).ok_or(CUerror::INVALID_VALUE)?;
        import.times -= 1;
        if import.times > 0 {
            return Ok(());
        }
        blocks.remove(&token.place());
        take(world, start.0, |span| span.id == found.id)?
    };
    wait_for_owner(world, &span);
    world.end(&span);
    Ok(())
}

pub(crate) fn cuIpcGetEventHandle(handle: Out<CUipcEventHandle>, event: CUevent) -> CUresult {
    let world = world()?;
    current()?;
    if event == CUevent::NULL {
        return Err(CUerror::INVALID_VALUE);
    }
    let event = super::event::find(world, event)?;
    let shared = event.shared.as_ref().filter(|shared| shared.is_own()).ok_or(CUerror::INVALID_HANDLE)?;
    handle.set(CUipcEventHandle { bytes: shared.token().to_bytes() });
    Ok(())
}

pub(crate) fn cuIpcOpenEventHandle(event: Out<CUevent>, handle: CUipcEventHandle) -> CUresult {
    let world = world()?;
    let context = current()?;
    let token = Token::from_bytes(handle.bytes, Content::Event).map_err(|_| CUerror::MAP_FAILED)?;
    if token.is_own() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let shared = match token.open() {
        Ok((memory, label)) if label.is(Content::Event) => SharedState::map(memory),
        // What is gone will not be recorded any more: it is as if it never was.
        _ if !token.maker_lives() => SharedState::create(),
        _ => return Err(CUerror::INVALID_VALUE),
    };
    let shared = shared.map_err(|_| CUerror::OUT_OF_MEMORY)?;
    let flags = event_flags::INTERPROCESS | event_flags::DISABLE_TIMING;
    let made = Arc::new(Event::with_shared(Arc::downgrade(&context), flags, shared));
    let (handle, _) = world.events.insert_with(|_| made);
    event.set(CUevent(handle));
    Ok(())
}
