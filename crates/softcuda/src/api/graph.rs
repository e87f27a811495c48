//! Graphs: creation, copies, instantiation, launches, and a description for Graphviz.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUerror, CUgraph, CUgraphExec, CUgraphInstantiateResult, CUgraphNode, CUresult,
    CUstream, graph_flags,
};

use crate::ffi::args::{InOut, InStr, Out};
use crate::objects::graph::{Graph, GraphOwner, NodeKind};
use crate::objects::graph_exec::GraphExec;
use crate::objects::operation::Operation;
use crate::state::driver_state::{DriverState, driver};

/// Returns the graph with a handle, unless a capture still adds to it.
fn find_complete(driver: &DriverState, handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
    let graph = driver.graphs.get(handle)?;
    graph.check_complete()?;
    Ok(graph)
}

pub(crate) fn cuGraphCreate(graph: Out<CUgraph>, flags: u32) -> CUresult {
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    graph.set(driver()?.graphs.create(GraphOwner::Program).handle);
    Ok(())
}

pub(crate) fn cuGraphClone(copy: Out<CUgraph>, graph: CUgraph) -> CUresult {
    let driver = driver()?;
    let graph = driver.graphs.get(graph)?;
    if graph.has_memory_nodes() {
        return Err(CUerror::NOT_SUPPORTED);
    }
    copy.set(driver.graphs.duplicate(&graph, GraphOwner::Program).handle);
    Ok(())
}

pub(crate) fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    let driver = driver()?;
    let graph = find_complete(driver, graph)?;
    if graph.owner == GraphOwner::Node {
        return Err(CUerror::INVALID_VALUE);
    }
    driver.graphs.remove(&graph)?;
    drop(graph);
    driver.space.release_graph_memory();
    Ok(())
}

pub(crate) fn cuGraphInstantiateWithFlags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> CUresult {
    if flags & graph_flags::UPLOAD != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let made = instantiate(driver()?, graph, flags).map_err(|failure| failure.code)?;
    exec.set(made);
    Ok(())
}

pub(crate) fn cuGraphInstantiateWithParams(
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: InOut<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> CUresult {
    let driver = driver()?;
    let given = params.read();
    let made = instantiate(driver, graph, given.flags & !graph_flags::UPLOAD);
    let (result_out, hErrNode_out) = match &made {
        Ok(_) => (CUgraphInstantiateResult::SUCCESS, CUgraphNode::NULL),
        Err(failure) => (failure.result, failure.node),
    };
    params.set(CUDA_GRAPH_INSTANTIATE_PARAMS { hErrNode_out, result_out, ..given });
    let made = made.map_err(|failure| failure.code)?;
    exec.set(made);
    if given.flags & graph_flags::UPLOAD != 0 { cuGraphUpload(made, given.hUploadStream) } else { Ok(()) }
}

/// Why a graph cannot be instantiated.
struct Failure {
    code: CUerror,
    result: CUgraphInstantiateResult,
    node: CUgraphNode,
}

impl From<CUerror> for Failure {
    fn from(code: CUerror) -> Self {
        Self { code, result: CUgraphInstantiateResult::ERROR, node: CUgraphNode::NULL }
    }
}

fn instantiate(driver: &DriverState, graph: CUgraph, flags: u64) -> Result<CUgraphExec, Failure> {
    let graph = find_complete(driver, graph)?;
    let known = graph_flags::AUTO_FREE_ON_LAUNCH | graph_flags::DEVICE_LAUNCH | graph_flags::USE_NODE_PRIORITY;
    if flags & !known != 0 || flags & graph_flags::DEVICE_LAUNCH != 0 && flags & graph_flags::AUTO_FREE_ON_LAUNCH != 0 {
        return Err(CUerror::INVALID_VALUE.into());
    }
    if flags & graph_flags::DEVICE_LAUNCH != 0 {
        // Launches from kernels are not supported.
        return Err(CUerror::NOT_SUPPORTED.into());
    }
    let invalid =
        |node| Failure { code: CUerror::INVALID_VALUE, result: CUgraphInstantiateResult::INVALID_STRUCTURE, node };
    let made = Arc::new(GraphExec::new(&graph, graph.instantiate()?, flags).map_err(invalid)?);
    Ok(CUgraphExec(driver.graph_execs.insert_with(|_| made).0))
}

pub(crate) fn cuGraphExecGetFlags(exec: CUgraphExec, flags: Out<u64>) -> CUresult {
    flags.set(driver()?.graph_execs.get(exec.0)?.flags);
    Ok(())
}

pub(crate) fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult {
    let driver = driver()?;
    driver.graph_execs.remove(exec.0).map(drop).ok_or(CUerror::INVALID_VALUE)?;
    driver.space.release_graph_memory();
    Ok(())
}

pub(crate) fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) -> CUresult {
    let driver = driver()?;
    let exec = driver.graph_execs.get(exec.0)?;
    driver.stream_ref(stream)?.ensure_not_captured()?;
    exec.back_allocations()
}

pub(crate) fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    let driver = driver()?;
    let exec = driver.graph_execs.get(exec.0)?;
    exec.launch(&driver.stream_ref(stream)?)
}

/// The flags ask for more details, of which this driver has none.
pub(crate) fn cuGraphDebugDotPrint(graph: CUgraph, path: InStr, _flags: u32) -> CUresult {
    let graph = driver()?.graphs.get(graph)?;
    let mut text = String::from("digraph dot {\n");
    describe(&graph, "graph_0", &mut text);
    text.push_str("}\n");
    fs::write(&path.0, text).map_err(|_| CUerror::OPERATING_SYSTEM)
}

/// Adds a description of a graph, whose name in the text is unique.
fn describe(graph: &Graph, name: &str, text: &mut String) {
    let nodes = graph.snapshot();
    let index_of = |handle| nodes.iter().position(|(other, _)| *other == handle).unwrap_or_default();
    let mut children = Vec::new();
    // A write to a string does not fail.
    let _ = writeln!(text, "subgraph cluster_{name} {{\nlabel=\"{name}\";");
    for (index, (_, node)) in nodes.iter().enumerate() {
        let label = match &node.kind {
            NodeKind::Run(operation) => operation_name(operation),
            NodeKind::Child(child) => {
                children.push((format!("{name}_{index}"), Arc::clone(child)));
                "CHILD_GRAPH"
            }
        };
        let _ = writeln!(text, "\"{name}_node_{index}\" [label=\"{index} {label}\"];");
        for &before in &node.dependencies {
            let _ = writeln!(text, "\"{name}_node_{}\" -> \"{name}_node_{index}\";", index_of(before));
        }
    }
    text.push_str("}\n");
    children.iter().for_each(|(name, child)| describe(child, name, text));
}

fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Kernel(_) => "KERNEL",
        Operation::Memcpy(_) => "MEMCPY",
        Operation::Memset(_) => "MEMSET",
        Operation::Host(_) => "HOST",
        Operation::Empty => "EMPTY",
        Operation::EventRecord(_) => "EVENT_RECORD",
        Operation::EventWait(_) => "EVENT_WAIT",
        Operation::MemOps(_) => "BATCH_MEM_OP",
        Operation::MemAlloc(_) => "MEM_ALLOC",
        Operation::MemFree(_) => "MEM_FREE",
    }
}
