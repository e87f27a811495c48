//! Events.

use std::sync::Arc;

use freehold_driver::cuda::{CUerror, CUevent, CUresult, CUstream, event_flags, event_wait_flags};

use super::context::settle;
use crate::boundary::Out;
use crate::context::current;
use crate::engine::work::{DriverWork, Stamp, Work};
use crate::event::{Event, Mark, Record, SharedState};
use crate::graph::Step;
use crate::stream::lane;
use crate::world::{World, world};

pub(crate) fn cuEventCreate(event: Out<CUevent>, flags: u32) -> CUresult {
    let world = world()?;
    let context = current()?;
    let known = event_flags::BLOCKING_SYNC | event_flags::DISABLE_TIMING | event_flags::INTERPROCESS;
    let is_shared = flags & event_flags::INTERPROCESS != 0;
    if flags & !known != 0 || is_shared && flags & event_flags::DISABLE_TIMING == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let context = Arc::downgrade(&context);
    let made = Arc::new(if is_shared {
        let shared = SharedState::create().map_err(|_| CUerror::OUT_OF_MEMORY)?;
        Event::with_shared(context, flags, shared)
    } else {
        Event::new(context, flags)
    });
    let (handle, _) = world.events.insert_with(|_| made);
    event.set(CUevent(handle));
    Ok(())
}

pub(super) fn find(world: &World, event: CUevent) -> Result<Arc<Event>, CUerror> {
    let event = world.events.find(event.0).ok_or(CUerror::INVALID_HANDLE)?;
    let context = event.context.upgrade().ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
    context.alive()?;
    Ok(event)
}

/// The last record of an event; an error if that was in a capture, where nothing passes. The capture is spoilt by it.
fn recorded(event: &Event) -> Result<Option<Record>, CUerror> {
    match event.mark() {
        Mark::Captured(captured) => {
            captured.spoil();
            Err(CUerror::CAPTURED_EVENT)
        }
        Mark::Nowhere => Ok(None),
        Mark::Recorded(record) => Ok(Some(record)),
    }
}

pub(crate) fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult {
    cuEventRecordWithFlags(event, stream, 0)
}

pub(crate) fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32) -> CUresult {
    let world = world()?;
    let event = find(world, event)?;
    let lane = lane(world, stream)?;
    if !event.context.upgrade().is_some_and(|context| Arc::ptr_eq(&context, &lane.context)) {
        return Err(CUerror::INVALID_HANDLE);
    }
    if flags > 1 {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(shared) = &event.shared {
        lane.not_captured(world)?;
        let record = shared.record();
        let pass = {
            let shared = Arc::clone(shared);
            DriverWork::new(move || shared.pass(record))
        };
        let queued = lane.queue(world, Vec::new(), Work::Driver(pass));
        if queued.is_err() {
            // No stream will come by, and nobody is to wait for that.
            shared.pass(record);
        }
        return queued.map(drop);
    }
    if flags == event_wait_flags::EXTERNAL && lane.is_captured() {
        return lane.note(world, Step::Record(event));
    }
    if lane.stream.mark(&event)? {
        return Ok(());
    }
    lane.not_captured(world)?;
    let stamp = Arc::new(Stamp::default());
    let known = lane.stream.queue.known();
    let point = if lane.would_wait() {
        lane.queue(world, Vec::new(), Work::Stamp(Arc::clone(&stamp)))?
    } else {
        stamp.set(world.engine.now());
        lane.end(world)?
    };
    event.record(Record { point, stamp, known });
    Ok(())
}

pub(crate) fn cuEventQuery(event: CUevent) -> CUresult {
    let world = world()?;
    let event = find(world, event)?;
    let record = recorded(&event)?;
    world.captures.refuse_unseen()?;
    if event.shared.as_ref().is_some_and(|shared| !shared.has_passed(shared.recorded())) {
        return Err(CUerror::NOT_READY);
    }
    if let Some(Record { point, .. }) = record {
        if !point.has_passed() {
            return Err(CUerror::NOT_READY);
        }
        point.queue.show(point.position);
    }
    world.engine.status()
}

pub(crate) fn cuEventSynchronize(event: CUevent) -> CUresult {
    let world = world()?;
    let event = find(world, event)?;
    let record = recorded(&event)?;
    world.captures.refuse_unseen()?;
    if let Some(shared) = &event.shared {
        let record = shared.recorded();
        world.engine.wait_for(|| shared.has_passed(record));
    }
    if let Some(record) = record {
        world.engine.wait(&record.point);
    }
    match event.context.upgrade() {
        Some(context) => settle(world, &context),
        None => world.engine.status(),
    }
}

pub(crate) fn cuEventDestroy_v2(event: CUevent) -> CUresult {
    world()?.events.remove(event.0).map(|_| ()).ok_or(CUerror::INVALID_HANDLE)
}

pub(crate) fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
    cuEventElapsedTime(milliseconds, start, end)
}

pub(crate) fn cuEventElapsedTime(milliseconds: Out<f32>, start: CUevent, end: CUevent) -> CUresult {
    let world = world()?;
    let (start, end) = (find(world, start)?, find(world, end)?);
    if !start.has_timing() || !end.has_timing() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let (Some(start), Some(end)) = (recorded(&start)?, recorded(&end)?) else {
        return Err(CUerror::INVALID_HANDLE);
    };
    if !start.point.has_passed() || !end.point.has_passed() {
        return Err(CUerror::NOT_READY);
    }
    world.engine.status()?;
    let (Some(start), Some(end)) = (start.stamp.nanoseconds(), end.stamp.nanoseconds()) else {
        return Err(CUerror::NOT_READY);
    };
    milliseconds.set(((end as f64 - start as f64) / 1e6) as f32);
    Ok(())
}
