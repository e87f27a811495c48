//! Streams, and the program's own functions in their order.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUcontext, CUerror, CUevent, CUhostFn, CUresult, CUstream, CUstreamCallback, CUstreamCaptureStatus, stream_flags,
};

use super::context::settle;
use crate::attributes::PRIORITY_GREATEST;
use crate::boundary::{HostAddress, Out};
use crate::context::current;
use crate::engine::work::{Condition, HostCall, HostFunction, Work};
use crate::stream::{Stream, lane};
use crate::world::world;

pub(crate) fn cuStreamCreate(stream: Out<CUstream>, flags: u32) -> CUresult {
    cuStreamCreateWithPriority(stream, flags, 0)
}

pub(crate) fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: u32, priority: i32) -> CUresult {
    let world = world()?;
    let context = current()?;
    if !matches!(flags, stream_flags::DEFAULT | stream_flags::NON_BLOCKING) {
        return Err(CUerror::INVALID_VALUE);
    }
    let queue = context.open_queue(world, flags == stream_flags::DEFAULT);
    let priority = priority.clamp(PRIORITY_GREATEST, 0);
    let (handle, _) =
        world.streams.insert_with(|_| Arc::new(Stream { context: Arc::downgrade(&context), queue, flags, priority }));
    stream.set(CUstream(handle));
    Ok(())
}

pub(crate) fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    let removed = world()?.streams.remove(stream.0).ok_or(CUerror::INVALID_HANDLE)?;
    removed.queue.close();
    Ok(())
}

pub(crate) fn cuStreamGetPriority(stream: CUstream, priority: Out<i32>) -> CUresult {
    priority.set(lane(world()?, stream)?.stream.priority);
    Ok(())
}

pub(crate) fn cuStreamGetFlags(stream: CUstream, flags: Out<u32>) -> CUresult {
    flags.set(lane(world()?, stream)?.stream.flags);
    Ok(())
}

pub(crate) fn cuStreamGetId(stream: CUstream, id: Out<u64>) -> CUresult {
    id.set(lane(world()?, stream)?.stream.queue.id);
    Ok(())
}

pub(crate) fn cuStreamGetCtx(stream: CUstream, context: Out<CUcontext>) -> CUresult {
    context.set(lane(world()?, stream)?.context.handle);
    Ok(())
}

pub(crate) fn cuStreamIsCapturing(stream: CUstream, status: Out<CUstreamCaptureStatus>) -> CUresult {
    lane(world()?, stream)?;
    status.set(CUstreamCaptureStatus::NONE);
    Ok(())
}

pub(crate) fn cuStreamQuery(stream: CUstream) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    let queue = &lane.stream.queue;
    let end = queue.end();
    if !lane.is_idle() {
        return Err(CUerror::NOT_READY);
    }
    queue.show(end);
    world.engine.status()
}

pub(crate) fn cuStreamSynchronize(stream: CUstream) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    lane.synchronize(world)?;
    settle(world, &lane.context)
}

pub(crate) fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    let event = world.events.find(event.0).ok_or(CUerror::INVALID_HANDLE)?;
    if flags > 1 {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(shared) = &event.shared {
        let (shared, record) = (Arc::clone(shared), shared.recorded());
        if !shared.has_passed(record) {
            lane.add(world, Work::Await(Condition::new(move || shared.has_passed(record))))?;
        }
        return Ok(());
    }
    let Some(record) = event.recorded() else { return Ok(()) };
    let queue = &lane.stream.queue;
    queue.learn(&record.point, &record.known);
    if record.point.queue.id != queue.id && !record.point.has_passed() {
        lane.context.add(world, queue, vec![record.point], Work::Nothing)?;
    }
    Ok(())
}

pub(crate) fn cuLaunchHostFunc(stream: CUstream, work: CUhostFn, data: HostAddress) -> CUresult {
    let world = world()?;
    let function = HostFunction::Plain(work.ok_or(CUerror::INVALID_VALUE)?);
    let lane = lane(world, stream)?;
    lane.add(world, Work::Host(HostCall::new(function, data.0 as usize)))?;
    Ok(())
}

pub(crate) fn cuStreamAddCallback(
    stream: CUstream,
    callback: CUstreamCallback,
    data: HostAddress,
    flags: u32,
) -> CUresult {
    let world = world()?;
    let function = HostFunction::callback(callback, stream).ok_or(CUerror::INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let lane = lane(world, stream)?;
    lane.add(world, Work::Host(HostCall::new(function, data.0 as usize)))?;
    Ok(())
}
