//! Executable graphs: instantiation with results, and changes for later launches.

use super::api::{Api, Function};
use super::call::{DriverError, call};
use super::code::CUerror;
use super::graph_types::{CUgraph, CUgraphExec, CUgraphNode};
use super::node_types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNodeParams,
};
use super::types::{CUDA_MEMCPY3D, CUcontext, CUevent};

/// Instantiates an executable from the current state of a graph. `params` says afterwards what went wrong.
pub fn instantiate(
    api: &Api,
    graph: CUgraph,
    params: &mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Result<CUgraphExec, DriverError> {
    let mut exec = CUgraphExec::NULL;
    // SAFETY: both places outlive the call.
    unsafe { call!(api.cuGraphInstantiateWithParams(&mut exec, graph, params)) }?;
    Ok(exec)
}

/// Returns the flags of the instantiation.
pub fn flags(api: &Api, exec: CUgraphExec) -> Result<u64, DriverError> {
    let mut flags = 0;
    // SAFETY: `flags` outlives the call, which writes one `u64` to it.
    unsafe { call!(api.cuGraphExecGetFlags(exec, &mut flags)) }?;
    Ok(flags)
}

/// Takes over the parameters of all nodes of a graph of the same structure. A refused update changes nothing; its
/// result says why.
///
/// # Safety
/// As for the functions that add the nodes of `graph`.
pub unsafe fn update(api: &Api, exec: CUgraphExec, graph: CUgraph) -> Result<CUgraphExecUpdateResultInfo, DriverError> {
    let mut info = CUgraphExecUpdateResultInfo::default();
    // SAFETY: `info` outlives the call; the caller guarantees that the nodes are valid.
    match unsafe { call!(api.cuGraphExecUpdate_v2(exec, graph, &mut info)) } {
        Err(DriverError { call: Function::cuGraphExecUpdate_v2, code: CUerror::GRAPH_EXEC_UPDATE_FAILURE })
            if info.result != CUgraphExecUpdateResult::SUCCESS =>
        {
            Ok(info)
        }
        outcome => outcome.map(|()| info),
    }
}

/// Sets whether a node takes part in later launches.
pub fn set_enabled(api: &Api, exec: CUgraphExec, node: CUgraphNode, enabled: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphNodeSetEnabled(exec, node, enabled)) }
}

/// Returns whether a node takes part in launches.
pub fn is_enabled(api: &Api, exec: CUgraphExec, node: CUgraphNode) -> Result<bool, DriverError> {
    let mut enabled = 0;
    // SAFETY: `enabled` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuGraphNodeGetEnabled(exec, node, &mut enabled)) }?;
    Ok(enabled != 0)
}

/// Sets the parameters of a node.
///
/// # Safety
/// As for the function that adds such a node.
pub unsafe fn set(
    api: &Api,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: &mut CUgraphNodeParams,
) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that what they point to is valid.
    unsafe { call!(api.cuGraphExecNodeSetParams(exec, node, params)) }
}

/// Sets the parameters of a launch.
///
/// # Safety
/// As for [`graph_node::add_kernel`](super::graph_node::add_kernel).
pub unsafe fn set_kernel(
    api: &Api,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that what they point to is valid.
    unsafe { call!(api.cuGraphExecKernelNodeSetParams_v2(exec, node, params)) }
}

/// Sets the parameters of a copy.
///
/// # Safety
/// As for [`graph_node::add_copy`](super::graph_node::add_copy).
pub unsafe fn set_copy(
    api: &Api,
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: &CUDA_MEMCPY3D,
    context: CUcontext,
) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that the memory is valid.
    unsafe { call!(api.cuGraphExecMemcpyNodeSetParams(exec, node, copy, context)) }
}

/// Sets the parameters of a fill.
pub fn set_fill(
    api: &Api,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: &CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call.
    unsafe { call!(api.cuGraphExecMemsetNodeSetParams(exec, node, params, context)) }
}

/// Sets the function of a call of the host, and its data.
///
/// # Safety
/// As for [`graph_node::add_host`](super::graph_node::add_host).
pub unsafe fn set_host(
    api: &Api,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: &CUDA_HOST_NODE_PARAMS,
) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that the function is valid.
    unsafe { call!(api.cuGraphExecHostNodeSetParams(exec, node, params)) }
}

/// Takes over the parameters of the nodes of a graph into the graph of a node.
///
/// # Safety
/// As for [`update`].
pub unsafe fn set_child(api: &Api, exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer; the caller guarantees that the nodes are valid.
    unsafe { call!(api.cuGraphExecChildGraphNodeSetParams(exec, node, child)) }
}

/// Sets the event that a node records.
pub fn set_recorded_event(api: &Api, exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphExecEventRecordNodeSetEvent(exec, node, event)) }
}

/// Sets the event that a node waits for.
pub fn set_awaited_event(api: &Api, exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphExecEventWaitNodeSetEvent(exec, node, event)) }
}

/// Sets the operations on words of memory of a node.
///
/// # Safety
/// As for [`graph_node::add_mem_ops`](super::graph_node::add_mem_ops).
pub unsafe fn set_mem_ops(
    api: &Api,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: &CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that the list is valid.
    unsafe { call!(api.cuGraphExecBatchMemOpNodeSetParams(exec, node, params)) }
}
