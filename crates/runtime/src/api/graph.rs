//! Graphs: their structure, instantiation and launches.

use std::ffi::c_char;

use freehold_driver::cuda::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode,
    CUgraphNodeType, CUstream, graph_flags,
};

use crate::code::cudaError_t;
use crate::process;
use crate::thread;

forward! {
    fn cudaGraphCreate(graph: *mut CUgraph, flags: u32) = cuGraphCreate(graph, flags);
    fn cudaGraphClone(copy: *mut CUgraph, graph: CUgraph) = cuGraphClone(copy, graph);
    fn cudaGraphDestroy(graph: CUgraph) = cuGraphDestroy(graph);
    fn cudaGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) =
        cuGraphGetNodes(graph, nodes, count);
    fn cudaGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) =
        cuGraphGetRootNodes(graph, nodes, count);
    fn cudaGraphGetEdges(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) = cuGraphGetEdges_v2(graph, from, to, edges, count);
    fn cudaGraphAddDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
    ) = cuGraphAddDependencies_v2(graph, from, to, edges, count);
    fn cudaGraphRemoveDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
    ) = cuGraphRemoveDependencies_v2(graph, from, to, edges, count);
    fn cudaGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: u32) =
        cuGraphDebugDotPrint(graph, path, flags);
    fn cudaGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) = cuGraphNodeGetType(node, kind);
    fn cudaGraphNodeFindInClone(found: *mut CUgraphNode, node: CUgraphNode, copy: CUgraph) =
        cuGraphNodeFindInClone(found, node, copy);
    fn cudaGraphNodeGetDependencies(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) = cuGraphNodeGetDependencies_v2(node, nodes, edges, count);
    fn cudaGraphNodeGetDependentNodes(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) = cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count);
    fn cudaGraphDestroyNode(node: CUgraphNode) = cuGraphDestroyNode(node);
    fn cudaGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) =
        cuGraphInstantiateWithFlags(exec, graph, flags);
    fn cudaGraphExecDestroy(exec: CUgraphExec) = cuGraphExecDestroy(exec);
    fn cudaGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) = cuGraphExecGetFlags(exec, flags);
    fn cudaGraphUpload(exec: CUgraphExec, stream: CUstream) = cuGraphUpload(exec, thread::stream(stream));
    fn cudaGraphLaunch(exec: CUgraphExec, stream: CUstream) = cuGraphLaunch(exec, thread::stream(stream));
    fn cudaGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo) =
        cuGraphExecUpdate_v2(exec, graph, info);
    fn cudaGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) =
        cuGraphNodeSetEnabled(exec, node, enabled);
    fn cudaGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut u32) =
        cuGraphNodeGetEnabled(exec, node, enabled);
}

pub(crate) unsafe fn cudaGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> cudaError_t {
    // SAFETY: the C caller guarantees that the output pointer and the graph are valid.
    unsafe { cudaGraphInstantiateWithFlags(exec, graph, flags) }
}

pub(crate) unsafe fn cudaGraphInstantiateWithParams(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> cudaError_t {
    let process = process::with_context()?;
    if !params.is_null() && params.is_aligned() {
        // SAFETY: it is neither null nor misaligned, so the C caller guarantees that it is valid.
        let given = unsafe { &mut *params };
        if given.flags & graph_flags::UPLOAD != 0 {
            given.hUploadStream = thread::stream(given.hUploadStream);
        }
    }
    // SAFETY: the C caller guarantees that the output pointers and the graph are valid.
    Ok(unsafe { (process.api.cuGraphInstantiateWithParams)(exec, graph, params) }?)
}
