//! Captures: the work of a stream becomes a graph.

use freehold_driver::cuda::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use crate::thread;

forward! {
    fn cudaStreamBeginCapture(stream: CUstream, mode: CUstreamCaptureMode) =
        cuStreamBeginCapture_v2(thread::stream(stream), mode);
    fn cudaStreamBeginCaptureToGraph(
        stream: CUstream,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        mode: CUstreamCaptureMode,
    ) = cuStreamBeginCaptureToGraph(thread::stream(stream), graph, dependencies, edges, count, mode);
    fn cudaStreamEndCapture(stream: CUstream, graph: *mut CUgraph) = cuStreamEndCapture(thread::stream(stream), graph);
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
