//! Captures: work enqueued in a stream becomes a graph instead of running.

use std::ptr;

use super::api::Api;
use super::call::{CallError, call};
use super::graph_types::{CUgraph, CUgraphNode, CUstreamCaptureMode};
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
pub fn begin(api: &Api, stream: CUstream, mode: CUstreamCaptureMode) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuStreamBeginCapture_v2(stream, mode)) }
}

/// Ends the capture that began in this stream and returns its graph. The capture ends even if the call fails because it
/// was invalidated.
pub fn end(api: &Api, stream: CUstream) -> Result<CUgraph, CallError> {
    let mut graph = CUgraph::NULL;
    // SAFETY: `graph` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuStreamEndCapture(stream, &mut graph)) }?;
    Ok(graph)
}

/// Returns the state of the stream's capture.
pub fn info(api: &Api, stream: CUstream) -> Result<Info, CallError> {
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

/// Sets which captures restrict the calling thread's calls that are not captured, and returns the previous mode.
pub fn exchange_mode(api: &Api, mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode, CallError> {
    let mut mode = mode;
    // SAFETY: `mode` outlives the call, which reads and writes one `u32` there.
    unsafe { call!(api.cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
    Ok(mode)
}
