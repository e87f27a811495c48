//! Streams, and host functions in stream order.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUcontext, CUdevice, CUerror, CUevent, CUhostFn, CUlaunchAttributeID, CUlaunchAttributeValue, CUresult, CUstream,
    CUstreamCallback, event_wait_flags, stream_flags,
};

use crate::base::check;
use crate::engine::work::{Condition, HostCall, HostFunction, Work};
use crate::ffi::args::{HostAddress, In, Out};
use crate::objects::attributes::PRIORITY_GREATEST;
use crate::objects::context::current;
use crate::objects::event_state::EventState;
use crate::objects::operation::{EventNode, Operation};
use crate::objects::stream_ref::StreamEntry;
use crate::state::driver_state::driver;

pub(crate) fn cuStreamCreate(stream: Out<CUstream>, flags: u32) -> CUresult {
    cuStreamCreateWithPriority(stream, flags, 0)
}

pub(crate) fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: u32, priority: i32) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    if !matches!(flags, stream_flags::DEFAULT | stream_flags::NON_BLOCKING) {
        return Err(CUerror::INVALID_VALUE);
    }
    let made = Arc::new(StreamEntry::create(&driver.engine, &context, flags, priority.clamp(PRIORITY_GREATEST, 0)));
    made.stream.queue.name_checked(None);
    let (handle, _) = driver.streams.insert_with(|_| made);
    stream.set(CUstream(handle));
    Ok(())
}

pub(crate) fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    let driver = driver()?;
    let removed = driver.streams.remove(stream.0).ok_or(CUerror::INVALID_HANDLE)?;
    driver.captures.drop_streams(&driver.graphs, |stream| std::ptr::eq(stream, &*removed.stream.capture));
    removed.stream.queue.close();
    Ok(())
}

pub(crate) fn cuStreamGetPriority(stream: CUstream, priority: Out<i32>) -> CUresult {
    priority.set(driver()?.stream_ref(stream)?.stream.priority);
    Ok(())
}

pub(crate) fn cuStreamGetFlags(stream: CUstream, flags: Out<u32>) -> CUresult {
    flags.set(driver()?.stream_ref(stream)?.stream.flags);
    Ok(())
}

pub(crate) fn cuStreamGetId(stream: CUstream, id: Out<u64>) -> CUresult {
    let stream_ref = driver()?.stream_ref(stream)?;
    stream_ref.stream.capture.refuse_if_captured(CUerror::STREAM_CAPTURE_UNSUPPORTED)?;
    id.set(stream_ref.stream.queue.id);
    Ok(())
}

pub(crate) fn cuStreamGetCtx(stream: CUstream, context: Out<CUcontext>) -> CUresult {
    context.set(driver()?.stream_ref(stream)?.context.handle);
    Ok(())
}

pub(crate) fn cuStreamGetCtx_v2(stream: CUstream, context: Out<CUcontext>, green: Option<Out<usize>>) -> CUresult {
    context.set(driver()?.stream_ref(stream)?.context.handle);
    if let Some(green) = green {
        // Green contexts are not supported.
        green.set(0);
    }
    Ok(())
}

pub(crate) fn cuStreamGetDevice(stream: CUstream, device: Out<CUdevice>) -> CUresult {
    device.set(CUdevice(driver()?.stream_ref(stream)?.context.device.ordinal as i32));
    Ok(())
}

pub(crate) fn cuStreamGetAttribute(
    stream: CUstream,
    attribute: CUlaunchAttributeID,
    value: Out<CUlaunchAttributeValue>,
) -> CUresult {
    let stream_ref = driver()?.stream_ref(stream)?;
    check_attribute(attribute)?;
    value.set(CUlaunchAttributeValue(stream_ref.stream.attribute(attribute)));
    Ok(())
}

pub(crate) fn cuStreamSetAttribute(
    stream: CUstream,
    attribute: CUlaunchAttributeID,
    value: In<CUlaunchAttributeValue>,
) -> CUresult {
    let stream_ref = driver()?.stream_ref(stream)?;
    check_attribute(attribute)?;
    stream_ref.stream.set_attribute(attribute, value.0.0);
    Ok(())
}

pub(crate) fn cuStreamCopyAttributes(to: CUstream, from: CUstream) -> CUresult {
    let driver = driver()?;
    let (to, from) = (driver.stream_ref(to)?, driver.stream_ref(from)?);
    if to.context.id != from.context.id {
        return Err(CUerror::INVALID_CONTEXT);
    }
    to.stream.copy_attributes(&from.stream);
    Ok(())
}

/// Refuses an attribute that streams do not have.
fn check_attribute(attribute: CUlaunchAttributeID) -> CUresult {
    match attribute {
        CUlaunchAttributeID::ACCESS_POLICY_WINDOW
        | CUlaunchAttributeID::SYNCHRONIZATION_POLICY
        | CUlaunchAttributeID::PRIORITY
        | CUlaunchAttributeID::MEM_SYNC_DOMAIN_MAP
        | CUlaunchAttributeID::MEM_SYNC_DOMAIN => Ok(()),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

pub(crate) fn cuStreamQuery(stream: CUstream) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    stream_ref.ensure_not_captured()?;
    driver.captures.refuse_unsafe_call()?;
    let queue = &stream_ref.stream.queue;
    let end = queue.last_seq();
    if !stream_ref.is_idle() {
        driver.engine.poll();
        return Err(CUerror::NOT_READY);
    }
    stream_ref.mark_observed(end);
    driver.engine.check_fault()
}

pub(crate) fn cuStreamSynchronize(stream: CUstream) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    stream_ref.ensure_not_captured()?;
    driver.captures.refuse_unsafe_call()?;
    stream_ref.synchronize()?;
    driver.after_sync(&stream_ref.context)
}

pub(crate) fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    let (handle, event) = (event, driver.events.get(event.0)?);
    if flags > 1 {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(shared) = &event.slot.shared {
        stream_ref.stream.capture.refuse_if_captured(CUerror::STREAM_CAPTURE_ISOLATION)?;
        stream_ref.ensure_not_captured()?;
        let (shared, record) = (Arc::clone(shared), shared.recorded());
        if !shared.is_complete(record) {
            stream_ref.submit_uncaptured(Vec::new(), Work::Poll(Condition::new(move || shared.is_complete(record))))?;
        }
        return Ok(());
    }
    if flags == event_wait_flags::EXTERNAL && stream_ref.is_captured() {
        return stream_ref.capture(Operation::EventWait(EventNode { event: handle, slot: Arc::clone(&event.slot) }));
    }
    let record = match event.slot.state() {
        EventState::Unrecorded => return Ok(()),
        EventState::Captured(point) => return stream_ref.stream.capture.join(&driver.captures, point),
        EventState::Recorded(record) => record,
    };
    stream_ref.stream.capture.refuse_if_captured(CUerror::STREAM_CAPTURE_ISOLATION)?;
    stream_ref.ensure_not_captured()?;
    let queue = &stream_ref.stream.queue;
    queue.order_after(&record.fence, &record.clock);
    if record.fence.queue.id != queue.id && (check::is_on() || !record.fence.is_complete()) {
        stream_ref.submit_uncaptured(vec![record.fence], Work::Barrier)?;
    }
    Ok(())
}

pub(crate) fn cuLaunchHostFunc(stream: CUstream, work: CUhostFn, data: HostAddress) -> CUresult {
    let driver = driver()?;
    let function = HostFunction::Function(work.ok_or(CUerror::INVALID_VALUE)?);
    let stream_ref = driver.stream_ref(stream)?;
    let data = data.0 as usize;
    stream_ref.submit(Work::HostCall(HostCall::new(function, data)), |_| Operation::Host(HostCall::new(function, data)))
}

pub(crate) fn cuStreamAddCallback(
    stream: CUstream,
    callback: CUstreamCallback,
    data: HostAddress,
    flags: u32,
) -> CUresult {
    let driver = driver()?;
    let function = HostFunction::callback(callback, stream).ok_or(CUerror::INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let stream_ref = driver.stream_ref(stream)?;
    // Stream callbacks are not captured into graphs.
    stream_ref.submit_uncaptured(Vec::new(), Work::HostCall(HostCall::new(function, data.0 as usize)))?;
    Ok(())
}
