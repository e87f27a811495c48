//! Streams, and the program's own functions in their order.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUcontext, CUdevice, CUerror, CUevent, CUgraph, CUgraphNode, CUhostFn, CUresult, CUstream, CUstreamCallback,
    CUstreamCaptureMode, CUstreamCaptureStatus, event_wait_flags, stream_flags,
};

use super::context::settle;
use crate::attributes::PRIORITY_GREATEST;
use crate::boundary::{HostAddress, InOut, Out};
use crate::capture;
use crate::context::current;
use crate::engine::work::{Condition, HostCall, HostFunction, Work};
use crate::event::Mark;
use crate::graph::Step;
use crate::stream::{Lane, Stream, lane};
use crate::world::{World, world};

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
        world.streams.insert_with(|_| Arc::new(Stream::new(Arc::downgrade(&context), queue, flags, priority)));
    stream.set(CUstream(handle));
    Ok(())
}

pub(crate) fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    let world = world()?;
    let removed = world.streams.remove(stream.0).ok_or(CUerror::INVALID_HANDLE)?;
    world.captures.abandon(world, |stream| std::ptr::eq(stream, &*removed));
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
    let lane = lane(world()?, stream)?;
    lane.stream.refuse_captured(CUerror::STREAM_CAPTURE_UNSUPPORTED)?;
    id.set(lane.stream.queue.id);
    Ok(())
}

pub(crate) fn cuStreamGetCtx(stream: CUstream, context: Out<CUcontext>) -> CUresult {
    context.set(lane(world()?, stream)?.context.handle);
    Ok(())
}

/// A stream that is asked for its capture, which the legacy one has none to tell of while streams are captured that it
/// would wait for.
fn captured_lane(world: &World, stream: CUstream) -> Result<Lane, CUerror> {
    let lane = lane(world, stream)?;
    if lane.is_legacy() && world.captures.has_blocking(&lane.context) {
        return Err(CUerror::STREAM_CAPTURE_IMPLICIT);
    }
    Ok(lane)
}

pub(crate) fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    if mode.0 > CUstreamCaptureMode::RELAXED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if lane.is_legacy() {
        return Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
    }
    capture::begin(world, &lane, mode)
}

pub(crate) fn cuStreamEndCapture(stream: CUstream, graph: Out<CUgraph>) -> CUresult {
    let world = world()?;
    let ended = lane(world, stream).and_then(|lane| capture::end(world, &lane.stream));
    graph.set(ended.as_ref().map_or(CUgraph::NULL, |ended| ended.handle));
    ended.map(|_| ())
}

pub(crate) fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Option<Out<u64>>,
    graph: Option<Out<CUgraph>>,
    nodes: Option<Out<*const CUgraphNode>>,
    count: Option<Out<usize>>,
) -> CUresult {
    let stream = captured_lane(world()?, stream)?.stream;
    let report = stream.capture_report();
    status.set(if report.is_some() { CUstreamCaptureStatus::ACTIVE } else { stream.capture_status() });
    let Some(report) = report else { return Ok(()) };
    id.into_iter().for_each(|id| id.set(report.id));
    graph.into_iter().for_each(|graph| graph.set(report.graph.handle));
    nodes.into_iter().for_each(|nodes| nodes.set(report.nodes));
    count.into_iter().for_each(|count| count.set(report.count));
    Ok(())
}

pub(crate) fn cuThreadExchangeStreamCaptureMode(mode: InOut<CUstreamCaptureMode>) -> CUresult {
    let wanted = mode.read();
    if wanted.0 > CUstreamCaptureMode::RELAXED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    mode.set(capture::exchange_mode(wanted));
    Ok(())
}

pub(crate) fn cuStreamGetCtx_v2(stream: CUstream, context: Out<CUcontext>, green: Option<Out<usize>>) -> CUresult {
    context.set(lane(world()?, stream)?.context.handle);
    if let Some(green) = green {
        // No stream here has a green context.
        green.set(0);
    }
    Ok(())
}

pub(crate) fn cuStreamGetDevice(stream: CUstream, device: Out<CUdevice>) -> CUresult {
    device.set(CUdevice(lane(world()?, stream)?.context.device.ordinal as i32));
    Ok(())
}

pub(crate) fn cuStreamIsCapturing(stream: CUstream, status: Out<CUstreamCaptureStatus>) -> CUresult {
    status.set(captured_lane(world()?, stream)?.stream.capture_status());
    Ok(())
}

pub(crate) fn cuStreamQuery(stream: CUstream) -> CUresult {
    let world = world()?;
    let lane = lane(world, stream)?;
    lane.not_captured(world)?;
    world.captures.refuse_unseen()?;
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
    lane.not_captured(world)?;
    world.captures.refuse_unseen()?;
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
        lane.stream.refuse_captured(CUerror::STREAM_CAPTURE_ISOLATION)?;
        lane.not_captured(world)?;
        let (shared, record) = (Arc::clone(shared), shared.recorded());
        if !shared.has_passed(record) {
            lane.queue(world, Vec::new(), Work::Await(Condition::new(move || shared.has_passed(record))))?;
        }
        return Ok(());
    }
    if flags == event_wait_flags::EXTERNAL && lane.is_captured() {
        return lane.note(world, Step::Await(event));
    }
    let record = match event.mark() {
        Mark::Nowhere => return Ok(()),
        Mark::Captured(point) => return lane.join(point),
        Mark::Recorded(record) => record,
    };
    lane.stream.refuse_captured(CUerror::STREAM_CAPTURE_ISOLATION)?;
    lane.not_captured(world)?;
    let queue = &lane.stream.queue;
    queue.learn(&record.point, &record.known);
    if record.point.queue.id != queue.id && !record.point.has_passed() {
        lane.queue(world, vec![record.point], Work::Nothing)?;
    }
    Ok(())
}

pub(crate) fn cuLaunchHostFunc(stream: CUstream, work: CUhostFn, data: HostAddress) -> CUresult {
    let world = world()?;
    let function = HostFunction::Plain(work.ok_or(CUerror::INVALID_VALUE)?);
    let lane = lane(world, stream)?;
    lane.add(world, Work::Host(HostCall::new(function, data.0 as usize)))
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
    // No graph calls what is told the state of its stream.
    lane.queue(world, Vec::new(), Work::Host(HostCall::new(function, data.0 as usize)))?;
    Ok(())
}
