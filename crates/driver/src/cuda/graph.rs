//! Graphs: a set of operations and their dependencies, launched as one.

use std::ffi::CStr;
use std::ptr;

use super::api::Api;
use super::call::{DriverError, call};
use super::graph_types::{CUgraph, CUgraphExec, CUgraphNode};
use super::node_types::CUgraphEdgeData;
use super::types::CUstream;

/// Creates an empty graph. `flags` is zero.
pub fn create(api: &Api, flags: u32) -> Result<CUgraph, DriverError> {
    let mut graph = CUgraph::NULL;
    // SAFETY: `graph` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphCreate(&mut graph, flags)) }?;
    Ok(graph)
}

/// Copies a graph.
pub fn duplicate(api: &Api, graph: CUgraph) -> Result<CUgraph, DriverError> {
    let mut copy = CUgraph::NULL;
    // SAFETY: `copy` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphClone(&mut copy, graph)) }?;
    Ok(copy)
}

/// Destroys a graph. Executables instantiated from it stay valid.
pub fn destroy(api: &Api, graph: CUgraph) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphDestroy(graph)) }
}

/// Returns the number of nodes of a graph.
pub fn node_count(api: &Api, graph: CUgraph) -> Result<usize, DriverError> {
    let mut count = 0;
    // SAFETY: `count` outlives the call, which writes one `usize` to it; without a list nothing else is written.
    unsafe { call!(api.cuGraphGetNodes(graph, ptr::null_mut(), &mut count)) }?;
    Ok(count)
}

/// Returns at most `most` nodes of a graph.
pub fn nodes(api: &Api, graph: CUgraph, most: usize) -> Result<Vec<CUgraphNode>, DriverError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    // SAFETY: the list has room for `count` handles, and both outlive the call.
    unsafe { call!(api.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)) }?;
    nodes.truncate(count);
    Ok(nodes)
}

/// Instantiates an executable from the current state of a graph; `flags` as in [`graph_flags`](super::graph_flags).
pub fn instantiate(api: &Api, graph: CUgraph, flags: u64) -> Result<CUgraphExec, DriverError> {
    let mut exec = CUgraphExec::NULL;
    // SAFETY: `exec` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphInstantiateWithFlags(&mut exec, graph, flags)) }?;
    Ok(exec)
}

/// Destroys an executable. Its pending launches complete.
pub fn destroy_exec(api: &Api, exec: CUgraphExec) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphExecDestroy(exec)) }
}

/// Uploads an executable in stream order, ahead of its launch.
pub fn upload(api: &Api, exec: CUgraphExec, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphUpload(exec, stream)) }
}

/// Enqueues the work of a graph in a stream, after earlier launches of the same executable.
///
/// # Safety
/// The memory that the graph uses, and the functions that it calls, stay valid until the launch is over: its nodes
/// contain host addresses as they were captured.
pub unsafe fn launch(api: &Api, exec: CUgraphExec, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that what the nodes use is valid.
    unsafe { call!(api.cuGraphLaunch(exec, stream)) }
}

/// Returns at most `most` nodes of a graph that depend on no other.
pub fn roots(api: &Api, graph: CUgraph, most: usize) -> Result<Vec<CUgraphNode>, DriverError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    // SAFETY: the list has room for `count` handles, and both outlive the call.
    unsafe { call!(api.cuGraphGetRootNodes(graph, nodes.as_mut_ptr(), &mut count)) }?;
    nodes.truncate(count);
    Ok(nodes)
}

/// Returns at most `most` dependencies of a graph: a node, and one that depends on it.
pub fn edges(api: &Api, graph: CUgraph, most: usize) -> Result<Vec<(CUgraphNode, CUgraphNode)>, DriverError> {
    let (mut from, mut to, mut count) = (vec![CUgraphNode::NULL; most], vec![CUgraphNode::NULL; most], most);
    // SAFETY: both lists have room for `count` handles, and all three outlive the call.
    unsafe { call!(api.cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count)) }?;
    Ok(from.into_iter().zip(to).take(count).collect())
}

/// Returns at most `most` dependencies of a graph with their kinds.
pub fn edges_with_data(
    api: &Api,
    graph: CUgraph,
    most: usize,
) -> Result<Vec<(CUgraphNode, CUgraphNode, CUgraphEdgeData)>, DriverError> {
    let (mut from, mut to, mut count) = (vec![CUgraphNode::NULL; most], vec![CUgraphNode::NULL; most], most);
    let mut data = vec![CUgraphEdgeData::default(); most];
    // SAFETY: the three lists have room for `count` elements, and everything outlives the call.
    unsafe { call!(api.cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)) }?;
    Ok(from.into_iter().zip(to).zip(data).map(|((from, to), data)| (from, to, data)).take(count).collect())
}

/// Adds dependencies: each node of `to` depends on the node of `from` at the same index. The lists have the same
/// length.
pub fn add_edges(api: &Api, graph: CUgraph, from: &[CUgraphNode], to: &[CUgraphNode]) -> Result<(), DriverError> {
    let count = from.len().min(to.len());
    // SAFETY: both lists have `count` elements and outlive the call.
    unsafe { call!(api.cuGraphAddDependencies(graph, from.as_ptr(), to.as_ptr(), count)) }
}

/// Adds ordinary dependencies, by the newer function, which takes the kind of each.
pub fn add_edges_with_data(
    api: &Api,
    graph: CUgraph,
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    data: &[CUgraphEdgeData],
) -> Result<(), DriverError> {
    let count = from.len().min(to.len()).min(data.len());
    // SAFETY: the three lists have `count` elements and outlive the call.
    unsafe { call!(api.cuGraphAddDependencies_v2(graph, from.as_ptr(), to.as_ptr(), data.as_ptr(), count)) }
}

/// Removes dependencies.
pub fn remove_edges(api: &Api, graph: CUgraph, from: &[CUgraphNode], to: &[CUgraphNode]) -> Result<(), DriverError> {
    let count = from.len().min(to.len());
    // SAFETY: both lists have `count` elements and outlive the call.
    unsafe { call!(api.cuGraphRemoveDependencies(graph, from.as_ptr(), to.as_ptr(), count)) }
}

/// Removes dependencies of the kinds that are given.
pub fn remove_edges_with_data(
    api: &Api,
    graph: CUgraph,
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    data: &[CUgraphEdgeData],
) -> Result<(), DriverError> {
    let count = from.len().min(to.len()).min(data.len());
    // SAFETY: the three lists have `count` elements and outlive the call.
    unsafe { call!(api.cuGraphRemoveDependencies_v2(graph, from.as_ptr(), to.as_ptr(), data.as_ptr(), count)) }
}

/// Writes a description of a graph to a file, in the language of Graphviz.
pub fn write_dot(api: &Api, graph: CUgraph, path: &CStr, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the path ends in a NUL and outlives the call.
    unsafe { call!(api.cuGraphDebugDotPrint(graph, path.as_ptr(), flags)) }
}
