//! Captures: work enqueued in a stream becomes a graph instead of running.

use std::ptr;

use super::api::Api;
use super::call::{DriverError, call};
use super::graph_types::{CUgraph, CUgraphNode, CUstreamCaptureMode};
use super::node_types::CUgraphEdgeData;
use super::types::{CUstream, CUstreamCaptureStatus};

/// The state of a stream's capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Whether the stream is being captured.
    pub status: CUstreamCaptureStatus,
    /// Unique among the captures of a process. The fields after this one are valid only while the status is `ACTIVE`.
    pub id: u64,
    /// The graph that its work becomes.
    pub graph: CUgraph,
    /// The number of nodes that the stream's next node depends on.
    pub dependencies: usize,
}

/// Begins to capture the work of a stream.
pub fn begin(api: &Api, stream: CUstream, mode: CUstreamCaptureMode) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuStreamBeginCapture_v2(stream, mode)) }
}

/// Begins to capture the work of a stream into a graph. The first node depends on `dependencies`, which are nodes of
/// it.
pub fn begin_to_graph(
    api: &Api,
    stream: CUstream,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    mode: CUstreamCaptureMode,
) -> Result<(), DriverError> {
    let (list, count) = (dependencies.as_ptr(), dependencies.len());
    // SAFETY: the list has `count` elements and outlives the call; the kinds of dependencies may be null.
    unsafe { call!(api.cuStreamBeginCaptureToGraph(stream, graph, list, ptr::null(), count, mode)) }
}

/// Ends the capture that began in this stream and returns its graph. The capture ends even if the call fails because it
/// was invalidated.
pub fn end(api: &Api, stream: CUstream) -> Result<CUgraph, DriverError> {
    let mut graph = CUgraph::NULL;
    // SAFETY: `graph` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuStreamEndCapture(stream, &mut graph)) }?;
    Ok(graph)
}

/// Returns the state of the stream's capture.
pub fn info(api: &Api, stream: CUstream) -> Result<Info, DriverError> {
    let mut info = Info { status: CUstreamCaptureStatus::NONE, id: 0, graph: CUgraph::NULL, dependencies: 0 };
    let mut nodes: *const CUgraphNode = ptr::null();
    // SAFETY: all five places outlive the call, which writes one value to each; the list is not looked at.
    unsafe {
        call!(api.cuStreamGetCaptureInfo_v2(
            stream,
            &mut info.status,
            &mut info.id,
            &mut info.graph,
            &mut nodes,
            &mut info.dependencies
        ))
    }?;
    Ok(info)
}

/// Returns the state of the stream's capture, by the newer function, and the nodes that its next node depends on.
pub fn info_with_nodes(api: &Api, stream: CUstream) -> Result<(Info, Vec<CUgraphNode>), DriverError> {
    let mut info = Info { status: CUstreamCaptureStatus::NONE, id: 0, graph: CUgraph::NULL, dependencies: 0 };
    let mut nodes: *const CUgraphNode = ptr::null();
    let mut edges: *const CUgraphEdgeData = ptr::null();
    // SAFETY: all places outlive the call, which writes one value to each.
    unsafe {
        call!(api.cuStreamGetCaptureInfo_v3(
            stream,
            &mut info.status,
            &mut info.id,
            &mut info.graph,
            &mut nodes,
            &mut edges,
            &mut info.dependencies
        ))
    }?;
    let node = |index| {
        let at = nodes.wrapping_add(index);
        // SAFETY: the driver's list has `dependencies` elements and is valid until the next call for this stream.
        unsafe { at.read() }
    };
    let count = if nodes.is_null() { 0 } else { info.dependencies };
    Ok((info, (0..count).map(node).collect()))
}

/// Changes the nodes that the stream's next node depends on; `flags` as in
/// [`capture_dependency_flags`](super::capture_dependency_flags).
pub fn update_dependencies(
    api: &Api,
    stream: CUstream,
    dependencies: &mut [CUgraphNode],
    flags: u32,
) -> Result<(), DriverError> {
    let (list, count) = (dependencies.as_mut_ptr(), dependencies.len());
    // SAFETY: the list has `count` elements and outlives the call.
    unsafe { call!(api.cuStreamUpdateCaptureDependencies(stream, list, count, flags)) }
}

/// The same, by the newer function, which takes the kind of each dependency.
pub fn update_dependencies_with_data(
    api: &Api,
    stream: CUstream,
    dependencies: &mut [CUgraphNode],
    data: &[CUgraphEdgeData],
    flags: u32,
) -> Result<(), DriverError> {
    let (list, count) = (dependencies.as_mut_ptr(), dependencies.len().min(data.len()));
    // SAFETY: both lists have `count` elements and outlive the call.
    unsafe { call!(api.cuStreamUpdateCaptureDependencies_v2(stream, list, data.as_ptr(), count, flags)) }
}

/// Sets which captures restrict the calling thread's calls that are not captured, and returns the previous mode.
pub fn exchange_mode(api: &Api, mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode, DriverError> {
    let mut mode = mode;
    // SAFETY: `mode` outlives the call, which reads and writes one `u32` there.
    unsafe { call!(api.cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
    Ok(mode)
}
