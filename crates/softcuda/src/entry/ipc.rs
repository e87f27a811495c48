//! Memory and events of another process, by handles that are bytes.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUevent, CUipcEventHandle, CUipcMemHandle, CUresult, event_flags, ipc_flags,
};

use super::memory::{take, wait_for_owner};
use crate::boundary::Out;
use crate::context::{current, none_or_alive};
use crate::event::{Event, SharedState};
use crate::ipc::{Import, Opened, Token};
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
    if flags != ipc_flags::LAZY_ENABLE_PEER_ACCESS {
        return Err(CUerror::INVALID_VALUE);
    }
    let token = Token::from_bytes(handle.bytes, Content::Pages)?;
    if token.is_own() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let device = i32::try_from(token.device).ok().and_then(|ordinal| world.device(CUdevice(ordinal)).ok());
    let device = device.ok_or(CUerror::INVALID_VALUE)?;
    // Held to the end, so that one block is opened once, however many threads ask.
    let mut imports = world.imports.open();
    let known = imports.iter_mut().find(|(_, import)| import.token == token && import.context == context.number);
    if let Some((&address, import)) = known {
        import.times += 1;
        start.set(CUdeviceptr(address));
        return Ok(());
    }
    let (memory, label) = token.open().map_err(|_| CUerror::INVALID_VALUE)?;
    if !label.is(Content::Pages) {
        return Err(CUerror::INVALID_VALUE);
    }
    let (address, opened) = Opened::attach(device, token, Arc::new(memory), None)?;
    let opened = Arc::new(opened);
    let number = context.number;
    let kind = SpanKind::Opened(Arc::clone(&opened));
    let entered = world.enter(address, token.bytes, device.ordinal, Some(context), kind);
    if entered.is_err() {
        opened.detach(device);
        return entered;
    }
    imports.insert(address, Import { token, context: number, times: 1 });
    start.set(CUdeviceptr(address));
    Ok(())
}

pub(crate) fn cuIpcCloseMemHandle(start: CUdeviceptr) -> CUresult {
    let world = world()?;
    none_or_alive()?;
    {
        let mut imports = world.imports.open();
        let import = imports.get_mut(&start.0).ok_or(CUerror::INVALID_VALUE)?;
        import.times -= 1;
        if import.times > 0 {
            return Ok(());
        }
        imports.remove(&start.0);
    }
    let span = take(world, start.0, |span| matches!(span.kind, SpanKind::Opened(_)))?;
    wait_for_owner(world, &span);
    world.end(&span);
    world.give_back(&span);
    Ok(())
}

pub(crate) fn cuIpcGetEventHandle(handle: Out<CUipcEventHandle>, event: CUevent) -> CUresult {
    let world = world()?;
    let event = super::event::find(world, event)?;
    let shared = event.shared.as_ref().ok_or(CUerror::INVALID_HANDLE)?;
    handle.set(CUipcEventHandle { bytes: shared.token().to_bytes() });
    Ok(())
}

pub(crate) fn cuIpcOpenEventHandle(event: Out<CUevent>, handle: CUipcEventHandle) -> CUresult {
    let world = world()?;
    let context = current()?;
    let token = Token::from_bytes(handle.bytes, Content::Event)?;
    if token.is_own() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    let (memory, label) = token.open().map_err(|_| CUerror::INVALID_VALUE)?;
    if !label.is(Content::Event) {
        return Err(CUerror::INVALID_VALUE);
    }
    let shared = SharedState::map(memory).map_err(|_| CUerror::OUT_OF_MEMORY)?;
    let flags = event_flags::INTERPROCESS | event_flags::DISABLE_TIMING;
    let made = Arc::new(Event::with_shared(Arc::downgrade(&context), flags, shared));
    let (handle, _) = world.events.insert_with(|_| made);
    event.set(CUevent(handle));
    Ok(())
}
