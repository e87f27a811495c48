//! Events: creation, recording, queries, waits and elapsed times.

use std::sync::Arc;

use freehold_check::Kind;
use freehold_driver::cuda::{CUcontext, CUerror, CUevent, CUresult, CUstream, event_flags, event_wait_flags};

use super::context::named_or_current;
use crate::base::check;
use crate::engine::work::{InternalWork, Timestamp, Work};
use crate::ffi::args::Out;
use crate::objects::context::current;
use crate::objects::event::Event;
use crate::objects::event_state::{EventRecord, EventState, IpcEventState};
use crate::objects::operation::{EventNode, Operation};
use crate::state::driver_state::{DriverState, driver};

pub(crate) fn cuEventCreate(event: Out<CUevent>, flags: u32) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    let known = event_flags::BLOCKING_SYNC | event_flags::DISABLE_TIMING | event_flags::INTERPROCESS;
    let is_shared = flags & event_flags::INTERPROCESS != 0;
    if flags & !known != 0 || is_shared && flags & event_flags::DISABLE_TIMING == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let context = Arc::downgrade(&context);
    let made = Arc::new(if is_shared {
        let shared = IpcEventState::create().map_err(|_| CUerror::OUT_OF_MEMORY)?;
        Event::with_shared(context, flags, shared)
    } else {
        Event::new(context, flags)
    });
    let (handle, _) = driver.events.insert_with(|_| made);
    event.set(CUevent(handle));
    Ok(())
}

pub(super) fn find(driver: &DriverState, event: CUevent) -> Result<Arc<Event>, CUerror> {
    let event = driver.events.get(event.0).inspect_err(|_| check::stale(Kind::EventInUse, "an event"))?;
    let context = event.context.upgrade().ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
    context.check_alive()?;
    Ok(event)
}

/// Returns the last record of an event. A record in a capture is an error, because it never completes, and invalidates
/// the capture.
fn recorded(driver: &DriverState, event: &Event) -> Result<Option<EventRecord>, CUerror> {
    match event.slot.state() {
        EventState::Captured(captured) => {
            driver.captures.invalidate(&captured);
            Err(CUerror::CAPTURED_EVENT)
        }
        EventState::Unrecorded => Ok(None),
        EventState::Recorded(record) => Ok(Some(record)),
    }
}

pub(crate) fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult {
    cuEventRecordWithFlags(event, stream, 0)
}

pub(crate) fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) -> CUresult {
    let driver = driver()?;
    let handle = event;
    let event = find(driver, event)?;
    let stream_ref = driver.stream_ref(stream)?;
    if !event.context.upgrade().is_some_and(|context| Arc::ptr_eq(&context, &stream_ref.context)) {
        return Err(CUerror::INVALID_HANDLE);
    }
    if flags > 1 {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(shared) = &event.slot.shared {
        stream_ref.ensure_not_captured()?;
        let record = shared.record();
        let pass = {
            let shared = Arc::clone(shared);
            InternalWork::new(move || shared.complete(record))
        };
        let queued = stream_ref.submit_uncaptured(Vec::new(), Work::Internal(pass));
        if queued.is_err() {
            // No stream will complete the record, so its waiters are released here.
            shared.complete(record);
        }
        return queued.map(drop);
    }
    if flags == event_wait_flags::EXTERNAL && stream_ref.is_captured() {
        return stream_ref.capture(Operation::EventRecord(EventNode { event: handle, slot: Arc::clone(&event.slot) }));
    }
    if stream_ref.stream.capture.record_event(&event.slot)? {
        return Ok(());
    }
    stream_ref.ensure_not_captured()?;
    let timestamp = Arc::new(Timestamp::default());
    let clock = stream_ref.stream.queue.clock();
    let fence = if stream_ref.would_wait() {
        stream_ref.submit_uncaptured(Vec::new(), Work::Timestamp(Arc::clone(&timestamp)))?
    } else {
        timestamp.set(driver.engine.now());
        stream_ref.last_fence()?
    };
    event.slot.record(EventRecord { fence, timestamp, clock });
    Ok(())
}

pub(crate) fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> CUresult {
    let driver = driver()?;
    let context = named_or_current(context)?;
    let event = find(driver, event)?;
    if !context.is(&event.context) || event.slot.shared.is_some() {
        return Err(CUerror::INVALID_HANDLE);
    }
    driver.captures.refuse_context_sync(context.id)?;
    let timestamp = Arc::new(Timestamp::default());
    let (fence, clock) = context.submit_after_all(&driver.engine, Work::Timestamp(Arc::clone(&timestamp)))?;
    event.slot.record(EventRecord { fence, timestamp, clock });
    Ok(())
}

pub(crate) fn cuEventQuery(event: CUevent) -> CUresult {
    let driver = driver()?;
    let event = find(driver, event)?;
    let record = recorded(driver, &event)?;
    driver.captures.refuse_unsafe_call()?;
    if event.slot.shared.as_ref().is_some_and(|shared| !shared.is_complete(shared.recorded())) {
        return Err(CUerror::NOT_READY);
    }
    if let Some(EventRecord { fence, .. }) = record {
        if !fence.is_complete() {
            driver.engine.poll();
            return Err(CUerror::NOT_READY);
        }
        fence.queue.mark_observed(fence.seq);
    }
    driver.engine.check_fault()
}

pub(crate) fn cuEventSynchronize(event: CUevent) -> CUresult {
    let driver = driver()?;
    let event = find(driver, event)?;
    let record = recorded(driver, &event)?;
    driver.captures.refuse_unsafe_call()?;
    if let Some(shared) = &event.slot.shared {
        let record = shared.recorded();
        driver.engine.wait_for(|| shared.is_complete(record));
    }
    if let Some(record) = record {
        driver.engine.wait(&record.fence);
    }
    match event.context.upgrade() {
        Some(context) => driver.after_sync(&context),
        None => driver.engine.check_fault(),
    }
}

pub(crate) fn cuEventDestroy_v2(event: CUevent) -> CUresult {
    driver()?.events.remove(event.0).map(|_| ()).ok_or(CUerror::INVALID_HANDLE)
}

pub(crate) fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
    cuEventElapsedTime(milliseconds, start, end)
}

pub(crate) fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
    let driver = driver()?;
    let (start, end) = (find(driver, start)?, find(driver, end)?);
    if !start.has_timing() || !end.has_timing() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let (Some(start), Some(end)) = (recorded(driver, &start)?, recorded(driver, &end)?) else {
        return Err(CUerror::INVALID_HANDLE);
    };
    if !start.fence.is_complete() || !end.fence.is_complete() {
        return Err(CUerror::NOT_READY);
    }
    driver.engine.check_fault()?;
    let (Some(start), Some(end)) = (start.timestamp.nanoseconds(), end.timestamp.nanoseconds()) else {
        return Err(CUerror::NOT_READY);
    };
    milliseconds.set(((end as f64 - start as f64) / 1e6) as f32);
    Ok(())
}
