//! Graphs: queries, instantiation and launches.

use std::sync::Arc;

use freehold_driver::cuda::{CUerror, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, graph_flags};

use crate::ffi::args::{InOut, Out};
use crate::objects::graph::Graph;
use crate::objects::graph_exec::GraphExec;
use crate::state::driver_state::{DriverState, driver};

/// Returns the graph with a handle, unless a capture still adds to it.
fn find(driver: &DriverState, handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
    let graph = driver.graphs.get(handle.0)?;
    graph.check_complete()?;
    Ok(graph)
}

pub(crate) fn cuGraphCreate(graph: Out<CUgraph>, flags: u32) -> CUresult {
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (handle, _) = driver()?.graphs.insert_with(|handle| Arc::new(Graph::new(handle, Vec::new(), false)));
    graph.set(CUgraph(handle));
    Ok(())
}

pub(crate) fn cuGraphClone(copy: Out<CUgraph>, graph: CUgraph) -> CUresult {
    let driver = driver()?;
    let nodes = find(driver, graph)?.nodes();
    let (handle, _) = driver.graphs.insert_with(|handle| Arc::new(Graph::new(handle, nodes, false)));
    copy.set(CUgraph(handle));
    Ok(())
}

pub(crate) fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    let driver = driver()?;
    find(driver, graph)?;
    driver.graphs.remove(graph.0).map(|_| ()).ok_or(CUerror::INVALID_VALUE)
}

/// The array of nodes is accessed only if the program passes its length.
pub(crate) fn cuGraphGetNodes(graph: CUgraph, nodes: Option<Out<CUgraphNode>>, count: InOut<usize>) -> CUresult {
    let found = find(driver()?, graph)?.nodes();
    let Some(nodes) = nodes else {
        count.set(found.len());
        return Ok(());
    };
    let handles: Vec<_> = found.iter().take(count.read()).map(|node| node.handle).collect();
    nodes.set_slice(&handles);
    count.set(handles.len());
    Ok(())
}

pub(crate) fn cuGraphInstantiateWithFlags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> CUresult {
    let driver = driver()?;
    let graph = find(driver, graph)?;
    let known = graph_flags::AUTO_FREE_ON_LAUNCH | graph_flags::DEVICE_LAUNCH | graph_flags::USE_NODE_PRIORITY;
    if flags & !known != 0 || flags & graph_flags::DEVICE_LAUNCH != 0 && flags & graph_flags::AUTO_FREE_ON_LAUNCH != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if flags & graph_flags::DEVICE_LAUNCH != 0 {
        // Launches from kernels are not supported.
        return Err(CUerror::NOT_SUPPORTED);
    }
    let made = Arc::new(GraphExec::new(&graph));
    let (handle, _) = driver.graph_execs.insert_with(|_| made);
    exec.set(CUgraphExec(handle));
    Ok(())
}

pub(crate) fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult {
    driver()?.graph_execs.remove(exec.0).map(|_| ()).ok_or(CUerror::INVALID_VALUE)
}

pub(crate) fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> CUresult {
    let driver = driver()?;
    driver.graph_execs.get(exec.0)?;
    driver.stream_ref(stream)?.ensure_not_captured()
}

pub(crate) fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    let driver = driver()?;
    let exec = driver.graph_execs.get(exec.0)?;
    exec.launch(&driver.stream_ref(stream)?)
}
