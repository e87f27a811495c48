//! Captures: the work of a stream becomes a graph.

use freehold_driver::cuda::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use crate::code::cudaError_t;
use crate::process;
use crate::runtime_pool;
use crate::thread;

forward! {
    fn cudaStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) =
        cuStreamIsCapturing(thread::stream(stream), status);
    fn cudaStreamGetCaptureInfo(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) = cuStreamGetCaptureInfo_v3(thread::stream(stream), status, id, graph, nodes, edges, count);
    fn cudaStreamUpdateCaptureDependencies(
        stream: CUstream,
        dependencies: *mut CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        flags: u32,
    ) = cuStreamUpdateCaptureDependencies_v2(thread::stream(stream), dependencies, edges, count, flags);
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) = cuThreadExchangeStreamCaptureMode(mode);
}

pub(crate) unsafe fn cudaStreamBeginCapture(stream: CUstream, mode: CUstreamCaptureMode) -> cudaError_t {
    let (process, stream) = (process::with_context()?, thread::stream(stream));
    Ok(runtime_pool::count_captures(&process.api, stream, || {
        // SAFETY: the C caller guarantees that the stream is valid.
        unsafe { (process.api.cuStreamBeginCapture_v2)(stream, mode) }
    })?)
}

pub(crate) unsafe fn cudaStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> cudaError_t {
    let (process, stream) = (process::with_context()?, thread::stream(stream));
    Ok(runtime_pool::count_captures(&process.api, stream, || {
        // SAFETY: the C caller guarantees that the stream, the graph and its nodes are valid.
        unsafe { (process.api.cuStreamBeginCaptureToGraph)(stream, graph, dependencies, edges, count, mode) }
    })?)
}

pub(crate) unsafe fn cudaStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> cudaError_t {
    let (process, stream) = (process::with_context()?, thread::stream(stream));
    Ok(runtime_pool::count_captures(&process.api, stream, || {
        // SAFETY: the C caller guarantees that the stream and the output pointer are valid.
        unsafe { (process.api.cuStreamEndCapture)(stream, graph) }
    })?)
}
