//! Nodes of graphs: adding them, and their parameters. A node of an executable graph is in `graph_exec`.

use std::ptr;

use super::api::Api;
use super::call::{DriverError, call};
use super::graph_types::{CUgraph, CUgraphNode};
use super::kernel_types::{CUfunction, CUkernel, CUlaunchAttributeID};
use super::node_types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS, CUgraphEdgeData, CUgraphNodeParams, CUgraphNodeType, CUlaunchAttributeValue,
};
use super::types::{CUDA_MEMCPY3D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemPoolProps};

/// Returns the kind of operation of a node.
pub fn kind(api: &Api, node: CUgraphNode) -> Result<CUgraphNodeType, DriverError> {
    let mut kind = CUgraphNodeType::default();
    // SAFETY: `kind` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuGraphNodeGetType(node, &mut kind)) }?;
    Ok(kind)
}

/// Returns the node of a copied graph that is the copy of `node`.
pub fn find_in_copy(api: &Api, node: CUgraphNode, copy: CUgraph) -> Result<CUgraphNode, DriverError> {
    let mut found = CUgraphNode::NULL;
    // SAFETY: `found` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphNodeFindInClone(&mut found, node, copy)) }?;
    Ok(found)
}

/// Returns at most `most` nodes that a node depends on.
pub fn dependencies(api: &Api, node: CUgraphNode, most: usize) -> Result<Vec<CUgraphNode>, DriverError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    // SAFETY: the list has room for `count` handles, and both outlive the call.
    unsafe { call!(api.cuGraphNodeGetDependencies(node, nodes.as_mut_ptr(), &mut count)) }?;
    nodes.truncate(count);
    Ok(nodes)
}

/// Returns at most `most` nodes that a node depends on, with the kinds of the dependencies.
pub fn dependencies_with_data(
    api: &Api,
    node: CUgraphNode,
    most: usize,
) -> Result<Vec<(CUgraphNode, CUgraphEdgeData)>, DriverError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    let mut data = vec![CUgraphEdgeData::default(); most];
    // SAFETY: both lists have room for `count` elements, and everything outlives the call.
    unsafe { call!(api.cuGraphNodeGetDependencies_v2(node, nodes.as_mut_ptr(), data.as_mut_ptr(), &mut count)) }?;
    Ok(nodes.into_iter().zip(data).take(count).collect())
}

/// Returns at most `most` nodes that depend on a node.
pub fn dependents(api: &Api, node: CUgraphNode, most: usize) -> Result<Vec<CUgraphNode>, DriverError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    // SAFETY: the list has room for `count` handles, and both outlive the call.
    unsafe { call!(api.cuGraphNodeGetDependentNodes(node, nodes.as_mut_ptr(), &mut count)) }?;
    nodes.truncate(count);
    Ok(nodes)
}

/// Returns at most `most` nodes that depend on a node, with the kinds of the dependencies.
pub fn dependents_with_data(
    api: &Api,
    node: CUgraphNode,
    most: usize,
) -> Result<Vec<(CUgraphNode, CUgraphEdgeData)>, DriverError> {
    let (mut nodes, mut count) = (vec![CUgraphNode::NULL; most], most);
    let mut data = vec![CUgraphEdgeData::default(); most];
    // SAFETY: both lists have room for `count` elements, and everything outlives the call.
    unsafe { call!(api.cuGraphNodeGetDependentNodes_v2(node, nodes.as_mut_ptr(), data.as_mut_ptr(), &mut count)) }?;
    Ok(nodes.into_iter().zip(data).take(count).collect())
}

/// Removes a node from its graph, with its dependencies.
pub fn destroy(api: &Api, node: CUgraphNode) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphDestroyNode(node)) }
}

/// Calls a function that adds a node, with the dependencies as a list and the place for the handle.
macro_rules! add {
    ($api:ident.$name:ident($graph:expr, $dependencies:expr $(, $rest:expr)*)) => {{
        let (mut node, list) = (CUgraphNode::NULL, $dependencies);
        // SAFETY: the list has as many elements as the call is told, and everything that the call is passed outlives
        // it. The caller of an unsafe function guarantees that what the parameters point to is valid.
        unsafe { call!($api.$name(&mut node, $graph, list.as_ptr(), list.len() $(, $rest)*)) }.map(|()| node)
    }};
}

/// Adds a node of the kind that `params` states.
///
/// # Safety
/// As for the function of that kind.
pub unsafe fn add(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    params: &mut CUgraphNodeParams,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddNode(graph, dependencies, params))
}

/// The same, by the newer function, which takes the kind of each dependency.
///
/// # Safety
/// As for [`add`].
pub unsafe fn add_with_data(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    params: &mut CUgraphNodeParams,
) -> Result<CUgraphNode, DriverError> {
    let (mut node, count) = (CUgraphNode::NULL, dependencies.len());
    // SAFETY: the list has `count` elements, the kinds of dependencies may be null, and everything outlives the call.
    // The caller guarantees that what the parameters point to is valid.
    unsafe { call!(api.cuGraphAddNode_v2(&mut node, graph, dependencies.as_ptr(), ptr::null(), count, params)) }?;
    Ok(node)
}

/// Sets the parameters of a node.
///
/// # Safety
/// As for the function that adds such a node.
pub unsafe fn set(api: &Api, node: CUgraphNode, params: &mut CUgraphNodeParams) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that what they point to is valid.
    unsafe { call!(api.cuGraphNodeSetParams(node, params)) }
}

/// Adds a launch of a kernel.
///
/// # Safety
/// The parameters point to as many arguments as the kernel has, of its types. Memory that the kernel accesses stays
/// valid until the last launch of the graph is over.
pub unsafe fn add_kernel(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    params: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddKernelNode_v2(graph, dependencies, params))
}

/// Returns the parameters of a launch. The lists in them belong to the node.
pub fn kernel(api: &Api, node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS, DriverError> {
    let mut params = CUDA_KERNEL_NODE_PARAMS {
        func: CUfunction::NULL,
        gridDimX: 0,
        gridDimY: 0,
        gridDimZ: 0,
        blockDimX: 0,
        blockDimY: 0,
        blockDimZ: 0,
        sharedMemBytes: 0,
        kernelParams: ptr::null_mut(),
        extra: ptr::null_mut(),
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    };
    // SAFETY: `params` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuGraphKernelNodeGetParams_v2(node, &mut params)) }?;
    Ok(params)
}

/// Sets the parameters of a launch.
///
/// # Safety
/// As for [`add_kernel`].
pub unsafe fn set_kernel(api: &Api, node: CUgraphNode, params: &CUDA_KERNEL_NODE_PARAMS) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that what they point to is valid.
    unsafe { call!(api.cuGraphKernelNodeSetParams_v2(node, params)) }
}

/// Returns an attribute of a launch.
pub fn kernel_attribute(
    api: &Api,
    node: CUgraphNode,
    id: CUlaunchAttributeID,
) -> Result<CUlaunchAttributeValue, DriverError> {
    let mut value = CUlaunchAttributeValue::default();
    // SAFETY: `value` outlives the call, which writes one value to it.
    unsafe { call!(api.cuGraphKernelNodeGetAttribute(node, id, &mut value)) }?;
    Ok(value)
}

/// Sets an attribute of a launch.
pub fn set_kernel_attribute(
    api: &Api,
    node: CUgraphNode,
    id: CUlaunchAttributeID,
    value: CUlaunchAttributeValue,
) -> Result<(), DriverError> {
    // SAFETY: `value` outlives the call, which reads one value.
    unsafe { call!(api.cuGraphKernelNodeSetAttribute(node, id, &value)) }
}

/// Gives a launch all attributes of another.
pub fn copy_kernel_attributes(api: &Api, to: CUgraphNode, from: CUgraphNode) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphKernelNodeCopyAttributes(to, from)) }
}

/// Adds a copy.
///
/// # Safety
/// The memory at both ends stays valid until the last launch of the graph is over, and nothing refers to it until then.
pub unsafe fn add_copy(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    copy: &CUDA_MEMCPY3D,
    context: CUcontext,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddMemcpyNode(graph, dependencies, copy, context))
}

/// Returns the parameters of a copy.
pub fn copy(api: &Api, node: CUgraphNode) -> Result<CUDA_MEMCPY3D, DriverError> {
    let mut copy = CUDA_MEMCPY3D::default();
    // SAFETY: `copy` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuGraphMemcpyNodeGetParams(node, &mut copy)) }?;
    Ok(copy)
}

/// Sets the parameters of a copy.
///
/// # Safety
/// As for [`add_copy`].
pub unsafe fn set_copy(api: &Api, node: CUgraphNode, copy: &CUDA_MEMCPY3D) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that the memory is valid.
    unsafe { call!(api.cuGraphMemcpyNodeSetParams(node, copy)) }
}

/// Adds a fill.
pub fn add_fill(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    params: &CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddMemsetNode(graph, dependencies, params, context))
}

/// Returns the parameters of a fill.
pub fn fill(api: &Api, node: CUgraphNode) -> Result<CUDA_MEMSET_NODE_PARAMS, DriverError> {
    let mut params = CUDA_MEMSET_NODE_PARAMS::default();
    // SAFETY: `params` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuGraphMemsetNodeGetParams(node, &mut params)) }?;
    Ok(params)
}

/// Sets the parameters of a fill.
pub fn set_fill(api: &Api, node: CUgraphNode, params: &CUDA_MEMSET_NODE_PARAMS) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call.
    unsafe { call!(api.cuGraphMemsetNodeSetParams(node, params)) }
}

/// Adds a call of a function of the host.
///
/// # Safety
/// The function and its data stay valid until the last launch of the graph is over; it makes no driver call and does
/// not unwind.
pub unsafe fn add_host(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    params: &CUDA_HOST_NODE_PARAMS,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddHostNode(graph, dependencies, params))
}

/// Returns the function of a call, and its data.
pub fn host(api: &Api, node: CUgraphNode) -> Result<CUDA_HOST_NODE_PARAMS, DriverError> {
    let mut params = CUDA_HOST_NODE_PARAMS { func: None, userData: ptr::null_mut() };
    // SAFETY: `params` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuGraphHostNodeGetParams(node, &mut params)) }?;
    Ok(params)
}

/// Sets the function of a call, and its data.
///
/// # Safety
/// As for [`add_host`].
pub unsafe fn set_host(api: &Api, node: CUgraphNode, params: &CUDA_HOST_NODE_PARAMS) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that the function is valid.
    unsafe { call!(api.cuGraphHostNodeSetParams(node, params)) }
}

/// Adds a copy of a graph as one node.
pub fn add_child(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    child: CUgraph,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddChildGraphNode(graph, dependencies, child))
}

/// Returns the graph of a node, which owns it.
pub fn child(api: &Api, node: CUgraphNode) -> Result<CUgraph, DriverError> {
    let mut child = CUgraph::NULL;
    // SAFETY: `child` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphChildGraphNodeGetGraph(node, &mut child)) }?;
    Ok(child)
}

/// Adds a node that does nothing.
pub fn add_empty(api: &Api, graph: CUgraph, dependencies: &[CUgraphNode]) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddEmptyNode(graph, dependencies))
}

/// Adds a record of an event.
pub fn add_record(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    event: CUevent,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddEventRecordNode(graph, dependencies, event))
}

/// Returns the event that a node records.
pub fn recorded_event(api: &Api, node: CUgraphNode) -> Result<CUevent, DriverError> {
    let mut event = CUevent::NULL;
    // SAFETY: `event` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphEventRecordNodeGetEvent(node, &mut event)) }?;
    Ok(event)
}

/// Sets the event that a node records.
pub fn set_recorded_event(api: &Api, node: CUgraphNode, event: CUevent) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphEventRecordNodeSetEvent(node, event)) }
}

/// Adds a wait for an event.
pub fn add_wait(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    event: CUevent,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddEventWaitNode(graph, dependencies, event))
}

/// Returns the event that a node waits for.
pub fn awaited_event(api: &Api, node: CUgraphNode) -> Result<CUevent, DriverError> {
    let mut event = CUevent::NULL;
    // SAFETY: `event` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuGraphEventWaitNodeGetEvent(node, &mut event)) }?;
    Ok(event)
}

/// Sets the event that a node waits for.
pub fn set_awaited_event(api: &Api, node: CUgraphNode, event: CUevent) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuGraphEventWaitNodeSetEvent(node, event)) }
}

/// Adds operations on words of memory.
///
/// # Safety
/// The parameters point to as many operations as they state.
pub unsafe fn add_mem_ops(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    params: &CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddBatchMemOpNode(graph, dependencies, params))
}

/// Returns the operations of a node. The list of them belongs to the node.
pub fn mem_ops(api: &Api, node: CUgraphNode) -> Result<CUDA_BATCH_MEM_OP_NODE_PARAMS, DriverError> {
    let mut params =
        CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx: CUcontext::NULL, count: 0, paramArray: ptr::null_mut(), flags: 0 };
    // SAFETY: `params` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuGraphBatchMemOpNodeGetParams(node, &mut params)) }?;
    Ok(params)
}

/// Sets the operations of a node.
///
/// # Safety
/// As for [`add_mem_ops`].
pub unsafe fn set_mem_ops(
    api: &Api,
    node: CUgraphNode,
    params: &CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<(), DriverError> {
    // SAFETY: the parameters outlive the call; the caller guarantees that the list is valid.
    unsafe { call!(api.cuGraphBatchMemOpNodeSetParams(node, params)) }
}

/// Adds an allocation of `bytes` of a device, and returns the node and the address, which stays the same.
pub fn add_alloc(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    device: CUdevice,
    bytes: usize,
) -> Result<(CUgraphNode, CUdeviceptr), DriverError> {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps::on_device(device),
        accessDescs: ptr::null(),
        accessDescCount: 0,
        bytesize: bytes,
        dptr: CUdeviceptr::NULL,
    };
    let node = add!(api.cuGraphAddMemAllocNode(graph, dependencies, &mut params))?;
    Ok((node, params.dptr))
}

/// Returns the parameters of an allocation. The list in them belongs to the node.
pub fn alloc(api: &Api, node: CUgraphNode) -> Result<CUDA_MEM_ALLOC_NODE_PARAMS, DriverError> {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps::on_device(CUdevice(0)),
        accessDescs: ptr::null(),
        accessDescCount: 0,
        bytesize: 0,
        dptr: CUdeviceptr::NULL,
    };
    // SAFETY: `params` outlives the call, which writes one structure to it.
    unsafe { call!(api.cuGraphMemAllocNodeGetParams(node, &mut params)) }?;
    Ok(params)
}

/// Adds a release of memory that an allocation node allocates.
pub fn add_free(
    api: &Api,
    graph: CUgraph,
    dependencies: &[CUgraphNode],
    start: CUdeviceptr,
) -> Result<CUgraphNode, DriverError> {
    add!(api.cuGraphAddMemFreeNode(graph, dependencies, start))
}

/// Returns the address that a node frees.
pub fn freed(api: &Api, node: CUgraphNode) -> Result<CUdeviceptr, DriverError> {
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    unsafe { call!(api.cuGraphMemFreeNodeGetParams(node, &mut start)) }?;
    Ok(start)
}
