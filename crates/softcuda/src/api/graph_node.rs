//! Nodes of graphs: adding them, their parameters, and removing them.

use std::ptr;
use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUcontext, CUerror, CUevent, CUfunction, CUgraph, CUgraphChildGraphNodeOwnership,
    CUgraphEdgeData, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUkernel, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUresult,
};

use super::graph_block;
use super::graph_edges::read_dependencies;
use super::graph_operation::{batch, event_node, host_call, kernel, memcpy, memset, operation, with_attributes};
use super::launch::{apply_attribute, set_attribute};
use crate::engine::work::HostFunction;
use crate::ffi::args::{In, InArray, InOut, Out};
use crate::objects::graph::{GraphOwner, NodeKind};
use crate::objects::graph_table::FoundNode;
use crate::objects::operation::{KernelNode, Operation};
use crate::state::driver_state::{DriverState, driver};

/// Adds a node of the kind that `make` returns.
fn add(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: &InArray<CUgraphNode>,
    edges: &InArray<CUgraphEdgeData>,
    count: usize,
    make: impl FnOnce(&DriverState) -> Result<NodeKind, CUerror>,
) -> CUresult {
    let driver = driver()?;
    let graph = driver.graphs.get(graph)?;
    let dependencies = read_dependencies(&graph, dependencies, edges, count)?;
    node.set(driver.graphs.add_node(&graph, make(driver)?, dependencies));
    Ok(())
}

/// Adds a node that does what `make` returns.
fn add_operation(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: &InArray<CUgraphNode>,
    count: usize,
    make: impl FnOnce(&DriverState) -> Result<Operation, CUerror>,
) -> CUresult {
    add(node, graph, dependencies, &InArray::EMPTY, count, |driver| Ok(NodeKind::Run(Arc::new(make(driver)?))))
}

/// Reads what a node does, if it is of the right kind.
pub(super) fn read<R>(node: CUgraphNode, read: impl FnOnce(&Operation) -> Option<R>) -> Result<R, CUerror> {
    match driver()?.graphs.find_node(node)?.kind {
        NodeKind::Run(operation) => read(&operation).ok_or(CUerror::INVALID_VALUE),
        NodeKind::Child(_) => Err(CUerror::INVALID_VALUE),
    }
}

/// Lets a node do what `make` returns, which is of the same kind.
fn set(node: CUgraphNode, make: impl FnOnce(&DriverState, &Operation) -> Result<Operation, CUerror>) -> CUresult {
    let driver = driver()?;
    let FoundNode { graph, handle, kind: NodeKind::Run(old) } = driver.graphs.find_node(node)? else {
        return Err(CUerror::INVALID_VALUE);
    };
    let new = make(driver, &old)?;
    if new.type_code() != old.type_code() {
        return Err(CUerror::INVALID_VALUE);
    }
    graph.set_operation(handle, new);
    Ok(())
}

pub(crate) fn cuGraphNodeGetType(node: CUgraphNode, kind: Out<CUgraphNodeType>) -> CUresult {
    kind.set(driver()?.graphs.find_node(node)?.kind.type_code());
    Ok(())
}

pub(crate) fn cuGraphNodeFindInClone(found: Out<CUgraphNode>, node: CUgraphNode, copy: CUgraph) -> CUresult {
    let graphs = &driver()?.graphs;
    graphs.find_node(node)?;
    found.set(graphs.get(copy)?.copy_of(node).ok_or(CUerror::INVALID_VALUE)?);
    Ok(())
}

pub(crate) fn cuGraphDestroyNode(node: CUgraphNode) -> CUresult {
    let graphs = &driver()?.graphs;
    let node = graphs.find_node(node)?;
    node.graph.check_complete()?;
    if node.graph.has_memory_nodes() {
        return Err(CUerror::INVALID_VALUE);
    }
    graphs.remove_node(&node);
    Ok(())
}

pub(crate) fn cuGraphAddNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    params: InOut<CUgraphNodeParams>,
) -> CUresult {
    cuGraphAddNode_v2(node, graph, dependencies, InArray::EMPTY, count, params)
}

pub(crate) fn cuGraphAddNode_v2(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    edges: InArray<CUgraphEdgeData>,
    count: usize,
    params: InOut<CUgraphNodeParams>,
) -> CUresult {
    let mut given = params.read();
    if given.kind == CUgraphNodeType::MEM_ALLOC {
        // SAFETY: every member of the union may have any bytes.
        let mut alloc = unsafe { given.value.alloc };
        graph_block::add_alloc(node, graph, &dependencies, &edges, count, &mut alloc)?;
        given.value.alloc = alloc;
        params.set(given);
        return Ok(());
    }
    let params = given;
    add(node, graph, &dependencies, &edges, count, |driver| {
        if params.kind == CUgraphNodeType::MEM_FREE {
            // SAFETY: every member of the union may have any bytes.
            let start = unsafe { params.value.free };
            return Ok(NodeKind::Run(Arc::new(graph_block::free(driver, &*driver.graphs.get(graph)?, start)?)));
        }
        if params.kind != CUgraphNodeType::GRAPH {
            return Ok(NodeKind::Run(Arc::new(operation(driver, &params)?)));
        }
        // SAFETY: every member of the union may have any bytes.
        let child = unsafe { params.value.graph };
        match child.ownership {
            CUgraphChildGraphNodeOwnership::CLONE => copy_child(driver, child.graph),
            CUgraphChildGraphNodeOwnership::MOVE => Err(CUerror::NOT_SUPPORTED),
            _ => Err(CUerror::INVALID_VALUE),
        }
    })
}

pub(crate) fn cuGraphNodeSetParams(node: CUgraphNode, params: InOut<CUgraphNodeParams>) -> CUresult {
    let params = params.read();
    set(node, |driver, old| match (old, operation(driver, &params)?) {
        (Operation::Kernel(old), Operation::Kernel(new)) => with_attributes(driver, &new, &old.attributes),
        (_, new) => Ok(new),
    })
}

pub(crate) fn cuGraphAddKernelNode_v2(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    params: In<CUDA_KERNEL_NODE_PARAMS>,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |driver| kernel(driver, &params.0, &[]))
}

pub(crate) fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS>) -> CUresult {
    params.set(read(node, |operation| match operation {
        Operation::Kernel(node) => Some(describe_kernel(node)),
        _ => None,
    })?);
    Ok(())
}

/// The list of arguments belongs to the node.
fn describe_kernel(node: &KernelNode) -> CUDA_KERNEL_NODE_PARAMS {
    let ([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ]) = (node.shape.grid, node.shape.block);
    CUDA_KERNEL_NODE_PARAMS {
        func: if node.is_library_kernel { CUfunction::NULL } else { node.function },
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        sharedMemBytes: node.shape.shared_bytes,
        kernelParams: node.arguments.addresses(),
        extra: ptr::null_mut(),
        kern: if node.is_library_kernel { CUkernel(node.function.0) } else { CUkernel::NULL },
        ctx: node.context,
    }
}

pub(crate) fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>) -> CUresult {
    set(node, |driver, old| match old {
        Operation::Kernel(old) => kernel(driver, &params.0, &old.attributes),
        _ => Err(CUerror::INVALID_VALUE),
    })
}

pub(crate) fn cuGraphKernelNodeGetAttribute(
    node: CUgraphNode,
    attribute: CUlaunchAttributeID,
    value: Out<CUlaunchAttributeValue>,
) -> CUresult {
    check_attribute(attribute)?;
    value.set(read(node, |operation| match operation {
        Operation::Kernel(node) => Some(CUlaunchAttributeValue(node.attribute(attribute))),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphKernelNodeSetAttribute(
    node: CUgraphNode,
    attribute: CUlaunchAttributeID,
    value: In<CUlaunchAttributeValue>,
) -> CUresult {
    check_attribute(attribute)?;
    set(node, |driver, old| {
        let Operation::Kernel(old) = old else { return Err(CUerror::INVALID_VALUE) };
        let mut attributes = old.attributes.clone();
        set_attribute(&mut attributes, CUlaunchAttribute { id: attribute, pad: 0, value: value.0.0 });
        with_attributes(driver, old, &attributes)
    })
}

pub(crate) fn cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) -> CUresult {
    let attributes = read(from, |operation| match operation {
        Operation::Kernel(node) => Some((node.context, node.attributes.clone())),
        _ => None,
    });
    let (context, attributes) = attributes?;
    set(to, |driver, old| match old {
        Operation::Kernel(old) if old.context == context => with_attributes(driver, old, &attributes),
        _ => Err(CUerror::INVALID_VALUE),
    })
}

/// Refuses an attribute that no kernel has.
fn check_attribute(id: CUlaunchAttributeID) -> CUresult {
    let mut shape = super::graph_operation::UNIT_SHAPE;
    match apply_attribute(&CUlaunchAttribute::of_words(id, [1, 1, 1]), &mut shape) {
        Err(CUerror::INVALID_VALUE) => Err(CUerror::INVALID_VALUE),
        _ => Ok(()),
    }
}

pub(crate) fn cuGraphAddMemcpyNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    copy: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |driver| memcpy(driver, &copy.0, context))
}

pub(crate) fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, copy: Out<CUDA_MEMCPY3D>) -> CUresult {
    copy.set(read(node, |operation| match operation {
        Operation::Memcpy(node) => Some(node.params),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: In<CUDA_MEMCPY3D>) -> CUresult {
    set(node, |driver, old| match old {
        Operation::Memcpy(old) => memcpy(driver, &copy.0, old.context),
        _ => Err(CUerror::INVALID_VALUE),
    })
}

pub(crate) fn cuGraphAddMemsetNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |driver| memset(driver, &params.0, context))
}

pub(crate) fn cuGraphMemsetNodeGetParams(node: CUgraphNode, params: Out<CUDA_MEMSET_NODE_PARAMS>) -> CUresult {
    params.set(read(node, |operation| match operation {
        Operation::Memset(node) => Some(node.params),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphMemsetNodeSetParams(node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>) -> CUresult {
    set(node, |driver, old| match old {
        Operation::Memset(old) => memset(driver, &params.0, old.context),
        _ => Err(CUerror::INVALID_VALUE),
    })
}

pub(crate) fn cuGraphAddHostNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    params: In<CUDA_HOST_NODE_PARAMS>,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |_| host_call(&params.0))
}

pub(crate) fn cuGraphHostNodeGetParams(node: CUgraphNode, params: Out<CUDA_HOST_NODE_PARAMS>) -> CUresult {
    params.set(read(node, |operation| match operation {
        Operation::Host(call) => match call.function {
            HostFunction::Function(function) => {
                Some(CUDA_HOST_NODE_PARAMS { func: Some(function), userData: call.data as *mut _ })
            }
            HostFunction::Callback(..) => None,
        },
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphHostNodeSetParams(node: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>) -> CUresult {
    set(node, |_, _| host_call(&params.0))
}

/// Copies a graph for the node that owns the copy.
fn copy_child(driver: &DriverState, graph: CUgraph) -> Result<NodeKind, CUerror> {
    let graph = driver.graphs.get(graph)?;
    if graph.has_memory_nodes() {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok(NodeKind::Child(driver.graphs.duplicate(&graph, GraphOwner::Node)))
}

pub(crate) fn cuGraphAddChildGraphNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    child: CUgraph,
) -> CUresult {
    add(node, graph, &dependencies, &InArray::EMPTY, count, |driver| copy_child(driver, child))
}

pub(crate) fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, child: Out<CUgraph>) -> CUresult {
    let NodeKind::Child(graph) = driver()?.graphs.find_node(node)?.kind else {
        return Err(CUerror::INVALID_VALUE);
    };
    child.set(graph.handle);
    Ok(())
}

pub(crate) fn cuGraphAddEmptyNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |_| Ok(Operation::Empty))
}

pub(crate) fn cuGraphAddEventRecordNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |driver| Ok(Operation::EventRecord(event_node(driver, event)?)))
}

pub(crate) fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) -> CUresult {
    event.set(read(node, |operation| match operation {
        Operation::EventRecord(node) => Some(node.event),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) -> CUresult {
    set(node, |driver, _| Ok(Operation::EventRecord(event_node(driver, event)?)))
}

pub(crate) fn cuGraphAddEventWaitNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |driver| Ok(Operation::EventWait(event_node(driver, event)?)))
}

pub(crate) fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: Out<CUevent>) -> CUresult {
    event.set(read(node, |operation| match operation {
        Operation::EventWait(node) => Some(node.event),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) -> CUresult {
    // An H200 refuses null here with another code than a handle of nothing.
    if event == CUevent::NULL {
        return Err(CUerror::INVALID_VALUE);
    }
    set(node, |driver, _| Ok(Operation::EventWait(event_node(driver, event)?)))
}

pub(crate) fn cuGraphAddBatchMemOpNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>,
) -> CUresult {
    add_operation(node, graph, &dependencies, count, |driver| batch(driver, &params.0))
}

pub(crate) fn cuGraphBatchMemOpNodeGetParams(
    node: CUgraphNode,
    params: Out<CUDA_BATCH_MEM_OP_NODE_PARAMS>,
) -> CUresult {
    params.set(read(node, |operation| match operation {
        Operation::MemOps(node) => Some(CUDA_BATCH_MEM_OP_NODE_PARAMS {
            ctx: node.context,
            count: node.operations.len() as u32,
            paramArray: node.operations.as_ptr().cast_mut(),
            flags: node.flags,
        }),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>) -> CUresult {
    set(node, |driver, _| batch(driver, &params.0))
}
