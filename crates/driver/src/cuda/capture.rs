//! Captures: what is put into a stream becomes a graph instead of being carried out.

use std::ptr;

use super::api::Api;
use super::call::{CallError, call};
use super::graph_types::{CUgraph, CUgraphNode, CUstreamCaptureMode};
use super::types::{CUstream, CUstreamCaptureStatus};

/// What is known of a stream's capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    pub status: CUstreamCaptureStatus,
    /// Never the same for two captures of a process. The rest says something only while the status is `ACTIVE`.
    pub id: u64,
    pub graph: CUgraph,
    /// How many nodes the next one of this stream comes after.
    pub dependencies: usize,
}

/// Begins to capture what is put into the stream.
pub fn begin(api: &Api, stream: CUstream, mode: CUstreamCaptureMode) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuStreamBeginCapture_v2(stream, mode)) }
}

/// Ends the capture that began in this stream, and hands over its graph. The capture ends also where the call fails
/// because of what happened meanwhile.
pub fn end(api: &Api, stream: CUstream) -> Result<CUgraph, CallError> {
    let mut graph = CUgraph::NULL;
    // SAFETY: `graph` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuStreamEndCapture(stream, &mut graph)) }?;
    Ok(graph)
}

/// What is known of the stream's capture.
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

/// Says which captures the calling thread heeds with calls that a capture does not see, and returns what it was before.
pub fn exchange_mode(api: &Api, mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode, CallError> {
    let mut mode = mode;
    // SAFETY: `mode` outlives the call, which reads and writes one `u32` there.
    unsafe { call!(api.cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
    Ok(mode)
}
