//! Captures: the work of a stream becomes a graph.

use freehold_check::QueueId;
use freehold_driver::cuda::{
    CUerror, CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    capture_dependency_flags,
};

use super::graph_edges::read_dependencies;
use crate::base::check;
use crate::ffi::args::{InArray, InOut, Out};
use crate::objects::capture;
use crate::objects::stream_ref::StreamRef;
use crate::state::driver_state::{DriverState, driver};

/// Returns the stream of a call about captures. Fails for the legacy default stream while a stream that it would wait
/// for is being captured.
fn capturable_stream(driver: &DriverState, stream: CUstream) -> Result<StreamRef<'_>, CUerror> {
    let stream_ref = driver.stream_ref(stream)?;
    if stream_ref.is_legacy() && driver.captures.has_blocking(stream_ref.context.id) {
        return Err(CUerror::STREAM_CAPTURE_IMPLICIT);
    }
    Ok(stream_ref)
}

pub(crate) fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    if mode.0 > CUstreamCaptureMode::RELAXED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if stream_ref.is_legacy() {
        return Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
    }
    driver.captures.begin(&driver.graphs, &stream_ref.stream.capture, mode, None)?;
    check::capture(QueueId(stream_ref.stream.queue.id), true);
    Ok(())
}

pub(crate) fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    edges: InArray<CUgraphEdgeData>,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream)?;
    if mode.0 > CUstreamCaptureMode::RELAXED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if stream_ref.is_legacy() {
        return Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
    }
    let graph = driver.graphs.get(graph)?;
    let dependencies = read_dependencies(&graph, &dependencies, &edges, count)?;
    driver.captures.begin(&driver.graphs, &stream_ref.stream.capture, mode, Some((graph, dependencies)))?;
    check::capture(QueueId(stream_ref.stream.queue.id), true);
    Ok(())
}

pub(crate) fn cuStreamEndCapture(stream: CUstream, graph: Out<CUgraph>) -> CUresult {
    let driver = driver()?;
    let stream_ref = driver.stream_ref(stream);
    let ended = stream_ref.and_then(|stream_ref| {
        check::capture(QueueId(stream_ref.stream.queue.id), false);
        driver.captures.end(&driver.graphs, &stream_ref.stream.capture)
    });
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
    cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, None, count)
}

pub(crate) fn cuStreamGetCaptureInfo_v3(
    stream: CUstream,
    status: Out<CUstreamCaptureStatus>,
    id: Option<Out<u64>>,
    graph: Option<Out<CUgraph>>,
    nodes: Option<Out<*const CUgraphNode>>,
    edges: Option<Out<*const CUgraphEdgeData>>,
    count: Option<Out<usize>>,
) -> CUresult {
    if edges.is_some() && nodes.is_none() {
        return Err(CUerror::INVALID_VALUE);
    }
    let stream = capturable_stream(driver()?, stream)?.stream;
    let report = stream.capture.info();
    status.set(if report.is_some() { CUstreamCaptureStatus::ACTIVE } else { stream.capture.status() });
    let Some(report) = report else { return Ok(()) };
    id.into_iter().for_each(|id| id.set(report.id));
    graph.into_iter().for_each(|graph| graph.set(report.graph.handle));
    nodes.into_iter().for_each(|nodes| nodes.set(report.nodes));
    edges.into_iter().for_each(|edges| edges.set(report.edges));
    count.into_iter().for_each(|count| count.set(report.count));
    Ok(())
}

pub(crate) fn cuStreamUpdateCaptureDependencies(
    stream: CUstream,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    flags: u32,
) -> CUresult {
    cuStreamUpdateCaptureDependencies_v2(stream, dependencies, InArray::EMPTY, count, flags)
}

pub(crate) fn cuStreamUpdateCaptureDependencies_v2(
    stream: CUstream,
    dependencies: InArray<CUgraphNode>,
    edges: InArray<CUgraphEdgeData>,
    count: usize,
    flags: u32,
) -> CUresult {
    let stream_ref = driver()?.stream_ref(stream)?;
    if flags > capture_dependency_flags::SET {
        return Err(CUerror::INVALID_VALUE);
    }
    stream_ref.stream.capture.update_dependencies(|graph, current| {
        let given = read_dependencies(graph, &dependencies, &edges, count)?;
        if flags == capture_dependency_flags::SET {
            current.clear();
        }
        let new: Vec<_> = given.into_iter().filter(|node| !current.contains(node)).collect();
        current.extend(new);
        Ok(())
    })
}

pub(crate) fn cuThreadExchangeStreamCaptureMode(mode: InOut<CUstreamCaptureMode>) -> CUresult {
    let wanted = mode.read();
    if wanted.0 > CUstreamCaptureMode::RELAXED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    mode.set(capture::exchange_mode(wanted));
    Ok(())
}

pub(crate) fn cuStreamIsCapturing(stream: CUstream, status: Out<CUstreamCaptureStatus>) -> CUresult {
    status.set(capturable_stream(driver()?, stream)?.stream.capture.status());
    Ok(())
}
