//! Graphs: a set of operations and their dependencies, launched as one.

use std::ptr;

use super::api::Api;
use super::call::{CallError, call};
use super::graph_types::{CUgraph, CUgraphExec, CUgraphNode};
use super::types::CUstream;

/// Creates an empty graph. `flags` is zero.
pub fn create(api: &Api, flags: u32) -> Result<CUgraph, CallError> {
    let mut graph = CUgraph::NULL;
    // SAFETY: `graph` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphCreate(&mut graph, flags)) }?;
    Ok(graph)
}

/// Copies a graph.
pub fn duplicate(api: &Api, graph: CUgraph) -> Result<CUgraph, CallError> {
    let mut copy = CUgraph::NULL;
    // SAFETY: `copy` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphClone(&mut copy, graph)) }?;
    Ok(copy)
}

/// Destroys a graph. Executables instantiated from it stay valid.
pub fn destroy(api: &Api, graph: CUgraph) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphDestroy(graph)) }
}

/// Returns the number of nodes of a graph.
pub fn node_count(api: &Api, graph: CUgraph) -> Result<usize, CallError> {
    let mut count = 0;
    // SAFETY: `count` outlives the call, which writes one `usize` to it; without a list nothing else is written.
    unsafe { call!(api.cuGraphGetNodes(graph, ptr::null_mut(), &mut count)) }?;
    Ok(count)
}

/// Returns at most `most` nodes of a graph.
pub fn nodes(api: &Api, graph: CUgraph, most: usize) -> Result<Vec<CUgraphNode>, CallError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    // SAFETY: the list has room for `count` handles, and both outlive the call.
    unsafe { call!(api.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)) }?;
    nodes.truncate(count);
    Ok(nodes)
}

/// Instantiates an executable from the current state of a graph; `flags` as in [`graph_flags`](super::graph_flags).
pub fn instantiate(api: &Api, graph: CUgraph, flags: u64) -> Result<CUgraphExec, CallError> {
    let mut exec = CUgraphExec::NULL;
    // SAFETY: `exec` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphInstantiateWithFlags(&mut exec, graph, flags)) }?;
    Ok(exec)
}

/// Destroys an executable. Its pending launches complete.
pub fn destroy_exec(api: &Api, exec: CUgraphExec) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphExecDestroy(exec)) }
}

/// Uploads an executable in stream order, ahead of its launch.
pub fn upload(api: &Api, exec: CUgraphExec, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphUpload(exec, stream)) }
}

/// Enqueues the work of a graph in a stream, after earlier launches of the same executable.
///
/// # Safety
/// The memory that the graph uses, and the functions that it calls, stay valid until the launch is over: its nodes
/// contain host addresses as they were captured.
pub unsafe fn launch(api: &Api, exec: CUgraphExec, stream: CUstream) -> Result<(), CallError> {
    // SAFETY: the caller guarantees that what the nodes use is valid.
    unsafe { call!(api.cuGraphLaunch(exec, stream)) }
}
