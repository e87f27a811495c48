//! The structure of graphs: lists of nodes, and the dependencies between them.
//!
//! Only ordinary dependencies are supported, in which a node starts when all nodes before it have completed.

use freehold_driver::cuda::{CUerror, CUgraph, CUgraphEdgeData, CUgraphNode, CUresult};

use crate::ffi::args::{InArray, InOut, Out};
use crate::objects::graph::{Edge, Graph};
use crate::state::driver_state::driver;

/// Writes a list into the room that the program has, and null after its end; without room, only its length.
pub(super) fn report<T: Copy + Default>(room: Option<Out<T>>, count: InOut<usize>, found: &[T]) {
    let Some(room) = room else { return count.set(found.len()) };
    let capacity = count.read();
    let mut list: Vec<T> = found.iter().take(capacity).copied().collect();
    count.set(list.len());
    list.resize(capacity, T::default());
    room.set_slice(&list);
}

/// Reads the dependencies of a node: distinct nodes of the graph.
pub(super) fn read_dependencies(
    graph: &Graph,
    nodes: &InArray<CUgraphNode>,
    edges: &InArray<CUgraphEdgeData>,
    count: usize,
) -> Result<Vec<CUgraphNode>, CUerror> {
    if count > graph.len() {
        return Err(CUerror::INVALID_VALUE);
    }
    let nodes = nodes.read(count)?;
    check_data(edges, count)?;
    graph.check_nodes(&nodes)?;
    Ok(nodes)
}

/// Refuses dependencies that are not ordinary ones.
fn check_data(edges: &InArray<CUgraphEdgeData>, count: usize) -> CUresult {
    if edges.is_null() {
        return Ok(());
    }
    let is_ordinary = |data: &CUgraphEdgeData| *data == CUgraphEdgeData::default();
    if edges.read(count)?.iter().all(is_ordinary) { Ok(()) } else { Err(CUerror::NOT_SUPPORTED) }
}

pub(crate) fn cuGraphGetNodes(graph: CUgraph, nodes: Option<Out<CUgraphNode>>, count: InOut<usize>) -> CUresult {
    report(nodes, count, &driver()?.graphs.get(graph)?.handles());
    Ok(())
}

pub(crate) fn cuGraphGetRootNodes(graph: CUgraph, nodes: Option<Out<CUgraphNode>>, count: InOut<usize>) -> CUresult {
    report(nodes, count, &driver()?.graphs.get(graph)?.roots());
    Ok(())
}

pub(crate) fn cuGraphGetEdges(
    graph: CUgraph,
    from: Option<Out<CUgraphNode>>,
    to: Option<Out<CUgraphNode>>,
    count: InOut<usize>,
) -> CUresult {
    cuGraphGetEdges_v2(graph, from, to, None, count)
}

pub(crate) fn cuGraphGetEdges_v2(
    graph: CUgraph,
    from: Option<Out<CUgraphNode>>,
    to: Option<Out<CUgraphNode>>,
    data: Option<Out<CUgraphEdgeData>>,
    count: InOut<usize>,
) -> CUresult {
    if from.is_some() != to.is_some() || data.is_some() && from.is_none() {
        return Err(CUerror::INVALID_VALUE);
    }
    let edges = driver()?.graphs.get(graph)?.edges();
    let capacity = count.read();
    let ends = |end: fn(&Edge) -> CUgraphNode| {
        let mut list: Vec<_> = edges.iter().take(capacity).map(end).collect();
        list.resize(capacity, CUgraphNode::NULL);
        list
    };
    let number = if let (Some(from), Some(to)) = (from, to) {
        from.set_slice(&ends(|edge| edge.from));
        to.set_slice(&ends(|edge| edge.to));
        edges.len().min(capacity)
    } else {
        edges.len()
    };
    if let Some(data) = data {
        data.set_slice(&vec![CUgraphEdgeData::default(); number]);
    }
    count.set(number);
    Ok(())
}

pub(crate) fn cuGraphNodeGetDependencies(
    node: CUgraphNode,
    nodes: Option<Out<CUgraphNode>>,
    count: InOut<usize>,
) -> CUresult {
    cuGraphNodeGetDependencies_v2(node, nodes, None, count)
}

pub(crate) fn cuGraphNodeGetDependencies_v2(
    node: CUgraphNode,
    nodes: Option<Out<CUgraphNode>>,
    data: Option<Out<CUgraphEdgeData>>,
    count: InOut<usize>,
) -> CUresult {
    let node = driver()?.graphs.find_node(node)?;
    report_with_data(nodes, data, count, &node.graph.dependencies(node.handle))
}

pub(crate) fn cuGraphNodeGetDependentNodes(
    node: CUgraphNode,
    nodes: Option<Out<CUgraphNode>>,
    count: InOut<usize>,
) -> CUresult {
    cuGraphNodeGetDependentNodes_v2(node, nodes, None, count)
}

pub(crate) fn cuGraphNodeGetDependentNodes_v2(
    node: CUgraphNode,
    nodes: Option<Out<CUgraphNode>>,
    data: Option<Out<CUgraphEdgeData>>,
    count: InOut<usize>,
) -> CUresult {
    let node = driver()?.graphs.find_node(node)?;
    report_with_data(nodes, data, count, &node.graph.dependents(node.handle))
}

fn report_with_data(
    nodes: Option<Out<CUgraphNode>>,
    data: Option<Out<CUgraphEdgeData>>,
    count: InOut<usize>,
    found: &[CUgraphNode],
) -> CUresult {
    if data.is_some() && nodes.is_none() {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(data) = data {
        data.set_slice(&vec![CUgraphEdgeData::default(); found.len().min(count.read())]);
    }
    report(nodes, count, found);
    Ok(())
}

pub(crate) fn cuGraphAddDependencies(
    graph: CUgraph,
    from: InArray<CUgraphNode>,
    to: InArray<CUgraphNode>,
    count: usize,
) -> CUresult {
    cuGraphAddDependencies_v2(graph, from, to, InArray::EMPTY, count)
}

pub(crate) fn cuGraphAddDependencies_v2(
    graph: CUgraph,
    from: InArray<CUgraphNode>,
    to: InArray<CUgraphNode>,
    data: InArray<CUgraphEdgeData>,
    count: usize,
) -> CUresult {
    let graph = driver()?.graphs.get(graph)?;
    graph.add_edges(&read_edges(&graph, &from, &to, &data, count)?)
}

pub(crate) fn cuGraphRemoveDependencies(
    graph: CUgraph,
    from: InArray<CUgraphNode>,
    to: InArray<CUgraphNode>,
    count: usize,
) -> CUresult {
    cuGraphRemoveDependencies_v2(graph, from, to, InArray::EMPTY, count)
}

pub(crate) fn cuGraphRemoveDependencies_v2(
    graph: CUgraph,
    from: InArray<CUgraphNode>,
    to: InArray<CUgraphNode>,
    data: InArray<CUgraphEdgeData>,
    count: usize,
) -> CUresult {
    let graph = driver()?.graphs.get(graph)?;
    if count > 0 && graph.has_memory_nodes() {
        return Err(CUerror::INVALID_VALUE);
    }
    graph.remove_edges(&read_edges(&graph, &from, &to, &data, count)?)
}

/// Reads dependencies. There are at most as many as pairs of nodes.
fn read_edges(
    graph: &Graph,
    from: &InArray<CUgraphNode>,
    to: &InArray<CUgraphNode>,
    data: &InArray<CUgraphEdgeData>,
    count: usize,
) -> Result<Vec<Edge>, CUerror> {
    let nodes = graph.len();
    if count > nodes.saturating_mul(nodes) {
        return Err(CUerror::INVALID_VALUE);
    }
    check_data(data, count)?;
    let ends = from.read(count)?.into_iter().zip(to.read(count)?);
    Ok(ends.map(|(from, to)| Edge { from, to }).collect())
}
