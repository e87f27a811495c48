//! Graphs: work with its order, launched as one.

use std::ptr;

use super::api::Api;
use super::call::{CallError, call};
use super::graph_types::{CUgraph, CUgraphExec, CUgraphNode};
use super::types::CUstream;

/// Creates a graph without nodes. `flags` is zero.
pub fn create(api: &Api, flags: u32) -> Result<CUgraph, CallError> {
    let mut graph = CUgraph::NULL;
    // SAFETY: `graph` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphCreate(&mut graph, flags)) }?;
    Ok(graph)
}

/// A second graph with the same nodes.
pub fn duplicate(api: &Api, graph: CUgraph) -> Result<CUgraph, CallError> {
    let mut copy = CUgraph::NULL;
    // SAFETY: `copy` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphClone(&mut copy, graph)) }?;
    Ok(copy)
}

/// Destroys a graph. What was made of it to be launched is not touched.
pub fn destroy(api: &Api, graph: CUgraph) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphDestroy(graph)) }
}

/// How many nodes a graph has.
pub fn node_count(api: &Api, graph: CUgraph) -> Result<usize, CallError> {
    let mut count = 0;
    // SAFETY: `count` outlives the call, which writes one `usize` to it; without a list nothing else is written.
    unsafe { call!(api.cuGraphGetNodes(graph, ptr::null_mut(), &mut count)) }?;
    Ok(count)
}

/// The nodes of a graph, `most` of them at the most.
pub fn nodes(api: &Api, graph: CUgraph, most: usize) -> Result<Vec<CUgraphNode>, CallError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    // SAFETY: the list has room for `count` handles, and both outlive the call.
    unsafe { call!(api.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)) }?;
    nodes.truncate(count);
    Ok(nodes)
}

/// Makes what can be launched of a graph as it is now; `flags` as in [`graph_flags`](super::graph_flags).
pub fn instantiate(api: &Api, graph: CUgraph, flags: u64) -> Result<CUgraphExec, CallError> {
    let mut exec = CUgraphExec::NULL;
    // SAFETY: `exec` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphInstantiateWithFlags(&mut exec, graph, flags)) }?;
    Ok(exec)
}

/// Destroys what can be launched. Launches that are on their way complete.
pub fn destroy_exec(api: &Api, exec: CUgraphExec) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphExecDestroy(exec)) }
}

/// Prepares a launch in the order of a stream.
pub fn upload(api: &Api, exec: CUgraphExec, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphUpload(exec, stream)) }
}

/// Puts the work of a graph into a stream, after its own launches before.
///
/// # Safety
/// What the graph reads and writes, and the functions that it calls, are good until the launch is over: its nodes hold
/// addresses of the host as they were captured.
pub unsafe fn launch(api: &Api, exec: CUgraphExec, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the caller vouches for what the nodes use.
    unsafe { call!(api.cuGraphLaunch(exec, stream)) }
}
