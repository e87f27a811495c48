//! Nodes of graphs: adding them, and their parameters.

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUevent, CUfunction,
    CUgraph, CUgraphChildGraphNodeOwnership, CUgraphEdgeData, CUgraphNode, CUgraphNodeType, CUkernel,
    CUlaunchAttributeID, CUlaunchAttributeValue,
};

use super::graph_memory::{cudaGraphAddMemAllocNode, cudaGraphAddMemFreeNode};
use crate::code::{CudaError, cudaError_t};
use crate::node_types::{copy_for_driver, copy_from_driver, cudaGraphNodeParams, cudaKernelNodeParams, linear_copy};
use crate::process::{self, Process};
use crate::registry;
use crate::types::{cudaMemcpy3DParms, cudaMemcpyKind, read, write};

forward! {
    fn cudaGraphKernelNodeGetAttribute(
        node: CUgraphNode,
        attribute: CUlaunchAttributeID,
        value: *mut CUlaunchAttributeValue,
    ) = cuGraphKernelNodeGetAttribute(node, attribute, value);
    fn cudaGraphKernelNodeSetAttribute(
        node: CUgraphNode,
        attribute: CUlaunchAttributeID,
        value: *const CUlaunchAttributeValue,
    ) = cuGraphKernelNodeSetAttribute(node, attribute, value);
    fn cudaGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) =
        cuGraphKernelNodeCopyAttributes(to, from);
    fn cudaGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS) =
        cuGraphMemsetNodeGetParams(node, params);
    fn cudaGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS) =
        cuGraphMemsetNodeSetParams(node, params);
    fn cudaGraphAddHostNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) = cuGraphAddHostNode(node, graph, dependencies, count, params);
    fn cudaGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS) =
        cuGraphHostNodeGetParams(node, params);
    fn cudaGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) =
        cuGraphHostNodeSetParams(node, params);
    fn cudaGraphAddChildGraphNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        child: CUgraph,
    ) = cuGraphAddChildGraphNode(node, graph, dependencies, count, child);
    fn cudaGraphChildGraphNodeGetGraph(node: CUgraphNode, child: *mut CUgraph) =
        cuGraphChildGraphNodeGetGraph(node, child);
    fn cudaGraphAddEmptyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
    ) = cuGraphAddEmptyNode(node, graph, dependencies, count);
    fn cudaGraphAddEventRecordNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) = cuGraphAddEventRecordNode(node, graph, dependencies, count, event);
    fn cudaGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) =
        cuGraphEventRecordNodeGetEvent(node, event);
    fn cudaGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) =
        cuGraphEventRecordNodeSetEvent(node, event);
    fn cudaGraphAddEventWaitNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) = cuGraphAddEventWaitNode(node, graph, dependencies, count, event);
    fn cudaGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) =
        cuGraphEventWaitNodeGetEvent(node, event);
    fn cudaGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) = cuGraphEventWaitNodeSetEvent(node, event);
}

/// Returns the driver's parameters of a launch.
///
/// # Safety
/// If it is neither null nor misaligned, `params` must be valid for reads.
pub(super) unsafe fn kernel_params(
    process: &Process,
    params: *const cudaKernelNodeParams,
) -> Result<CUDA_KERNEL_NODE_PARAMS, CudaError> {
    // SAFETY: the caller guarantees that the parameters are valid.
    let params = unsafe { read(params) }?;
    let kernel = registry::kernel(process, params.func)?;
    Ok(params.for_driver(kernel))
}

pub(crate) unsafe fn cudaGraphAddKernelNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const cudaKernelNodeParams,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the parameters are valid.
    let params = unsafe { kernel_params(process, params) }?;
    // SAFETY: the C caller guarantees that the output pointer, the dependencies and the arguments of the kernel are
    // valid.
    Ok(unsafe { (process.api.cuGraphAddKernelNode_v2)(node, graph, dependencies, count, &raw const params) }?)
}

pub(crate) unsafe fn cudaGraphKernelNodeGetParams(node: CUgraphNode, params: *mut cudaKernelNodeParams) -> cudaError_t {
    let process = process::with_context()?;
    let unit = crate::types::Dim3 { x: 1, y: 1, z: 1 };
    let none = cudaKernelNodeParams {
        func: process::none(),
        gridDim: unit,
        blockDim: unit,
        sharedMemBytes: 0,
        kernelParams: process::none(),
        extra: process::none(),
    };
    let mut found = none.for_driver(CUkernel::NULL);
    // SAFETY: `found` is a valid place for the answer, and the C caller guarantees that the node is valid.
    unsafe { (process.api.cuGraphKernelNodeGetParams_v2)(node, &raw mut found) }?;
    let kernel = if found.kern == CUkernel::NULL { kernel_of(process, found.func) } else { found.kern };
    let func = registry::stub(kernel).unwrap_or(kernel.0 as *mut c_void);
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(params, cudaKernelNodeParams::from_driver(&found, func)) }?)
}

/// Returns the registered kernel of a function, or the handle of the function itself.
fn kernel_of(process: &Process, function: CUfunction) -> CUkernel {
    let is_function = |kernel: &CUkernel| {
        let mut found = CUfunction::NULL;
        // SAFETY: `found` is a valid place for the answer, and the kernel is loaded.
        let result = unsafe { (process.api.cuKernelGetFunction)(&raw mut found, *kernel) };
        result.is_ok() && found == function
    };
    registry::loaded_kernels().into_iter().find(is_function).unwrap_or(CUkernel(function.0))
}

pub(crate) unsafe fn cudaGraphKernelNodeSetParams(
    node: CUgraphNode,
    params: *const cudaKernelNodeParams,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the parameters are valid.
    let params = unsafe { kernel_params(process, params) }?;
    // SAFETY: the C caller guarantees that the node and the arguments of the kernel are valid.
    Ok(unsafe { (process.api.cuGraphKernelNodeSetParams_v2)(node, &raw const params) }?)
}

/// Adds a copy.
///
/// # Safety
/// As for `cuGraphAddMemcpyNode`.
unsafe fn add_copy(
    process: &Process,
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    copy: &CUDA_MEMCPY3D,
) -> cudaError_t {
    let context = process.current()?;
    // SAFETY: the caller guarantees that the output pointer, the dependencies and the memory are valid.
    Ok(unsafe { (process.api.cuGraphAddMemcpyNode)(node, graph, dependencies, count, copy, context) }?)
}

pub(crate) unsafe fn cudaGraphAddMemcpyNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const cudaMemcpy3DParms,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the parameters are valid.
    let copy = copy_for_driver(&unsafe { read(params) }?)?;
    // SAFETY: the C caller guarantees the rest.
    unsafe { add_copy(process, node, graph, dependencies, count, &copy) }
}

pub(crate) unsafe fn cudaGraphAddMemcpyNode1D(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    let copy = linear_copy(to, from, bytes, kind)?;
    // SAFETY: the C caller guarantees that the arguments are valid.
    unsafe { add_copy(process, node, graph, dependencies, count, &copy) }
}

/// Returns a copy to a variable of the program.
pub(super) fn copy_to_symbol(
    process: &Process,
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Result<CUDA_MEMCPY3D, CudaError> {
    linear_copy(part_of_symbol(process, symbol, bytes, offset)?, from, bytes, kind)
}

/// Returns a copy from a variable of the program.
pub(super) fn copy_from_symbol(
    process: &Process,
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Result<CUDA_MEMCPY3D, CudaError> {
    linear_copy(to, part_of_symbol(process, symbol, bytes, offset)?, bytes, kind)
}

/// Returns the address of a part of a variable.
fn part_of_symbol(
    process: &Process,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
) -> Result<*mut c_void, CudaError> {
    let symbol = registry::symbol(process, symbol)?;
    let end = offset.checked_add(bytes).ok_or(CudaError::INVALID_VALUE)?;
    if end > symbol.bytes {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok((symbol.start.0 + offset as u64) as *mut c_void)
}

pub(crate) unsafe fn cudaGraphAddMemcpyNodeToSymbol(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    let copy = copy_to_symbol(process, symbol, from, bytes, offset, kind)?;
    // SAFETY: the C caller guarantees that the arguments are valid.
    unsafe { add_copy(process, node, graph, dependencies, count, &copy) }
}

pub(crate) unsafe fn cudaGraphAddMemcpyNodeFromSymbol(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    let copy = copy_from_symbol(process, to, symbol, bytes, offset, kind)?;
    // SAFETY: the C caller guarantees that the arguments are valid.
    unsafe { add_copy(process, node, graph, dependencies, count, &copy) }
}

pub(crate) unsafe fn cudaGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut cudaMemcpy3DParms) -> cudaError_t {
    let process = process::with_context()?;
    let mut copy = CUDA_MEMCPY3D::default();
    // SAFETY: `copy` is a valid place for the answer, and the C caller guarantees that the node is valid.
    unsafe { (process.api.cuGraphMemcpyNodeGetParams)(node, &raw mut copy) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(params, copy_from_driver(&copy)) }?)
}

/// Sets the parameters of a copy.
///
/// # Safety
/// As for `cuGraphMemcpyNodeSetParams`.
unsafe fn set_copy(process: &Process, node: CUgraphNode, copy: &CUDA_MEMCPY3D) -> cudaError_t {
    // SAFETY: the caller guarantees that the node and the memory are valid.
    Ok(unsafe { (process.api.cuGraphMemcpyNodeSetParams)(node, copy) }?)
}

pub(crate) unsafe fn cudaGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const cudaMemcpy3DParms) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the parameters are valid.
    let copy = copy_for_driver(&unsafe { read(params) }?)?;
    // SAFETY: the C caller guarantees that the node and the memory are valid.
    unsafe { set_copy(process, node, &copy) }
}

pub(crate) unsafe fn cudaGraphMemcpyNodeSetParams1D(
    node: CUgraphNode,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the node and the memory are valid.
    unsafe { set_copy(process, node, &linear_copy(to, from, bytes, kind)?) }
}

pub(crate) unsafe fn cudaGraphMemcpyNodeSetParamsToSymbol(
    node: CUgraphNode,
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the node and the memory are valid.
    unsafe { set_copy(process, node, &copy_to_symbol(process, symbol, from, bytes, offset, kind)?) }
}

pub(crate) unsafe fn cudaGraphMemcpyNodeSetParamsFromSymbol(
    node: CUgraphNode,
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the node and the memory are valid.
    unsafe { set_copy(process, node, &copy_from_symbol(process, to, symbol, bytes, offset, kind)?) }
}

pub(crate) unsafe fn cudaGraphAddMemsetNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMSET_NODE_PARAMS,
) -> cudaError_t {
    let process = process::with_context()?;
    let context = process.current()?;
    // SAFETY: the C caller guarantees that the output pointer, the dependencies and the parameters are valid.
    Ok(unsafe { (process.api.cuGraphAddMemsetNode)(node, graph, dependencies, count, params, context) }?)
}

pub(crate) unsafe fn cudaGraphAddNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    params: *mut cudaGraphNodeParams,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the parameters are valid.
    let given = unsafe { read(params) }?;
    // SAFETY: the C caller guarantees as many dependencies.
    unsafe { check_edges(edges, count) }?;
    let value = &given.value;
    match given.kind {
        CUgraphNodeType::KERNEL => {
            // SAFETY: every member of the union may have any bytes; the C caller guarantees the rest.
            unsafe { cudaGraphAddKernelNode(node, graph, dependencies, count, &raw const value.kernel) }
        }
        CUgraphNodeType::MEMCPY => {
            // SAFETY: as above.
            unsafe { cudaGraphAddMemcpyNode(node, graph, dependencies, count, &raw const value.memcpy.copyParams) }
        }
        CUgraphNodeType::MEMSET => {
            // SAFETY: as above.
            unsafe { cudaGraphAddMemsetNode(node, graph, dependencies, count, &raw const value.memset) }
        }
        CUgraphNodeType::HOST => {
            // SAFETY: as above.
            unsafe { cudaGraphAddHostNode(node, graph, dependencies, count, &raw const value.host) }
        }
        CUgraphNodeType::GRAPH => {
            // SAFETY: as above.
            let child = unsafe { value.graph };
            if child.ownership != CUgraphChildGraphNodeOwnership::CLONE {
                return Err(CudaError::NOT_SUPPORTED);
            }
            // SAFETY: the C caller guarantees that the arguments are valid.
            unsafe { cudaGraphAddChildGraphNode(node, graph, dependencies, count, child.graph) }
        }
        CUgraphNodeType::EMPTY => {
            // SAFETY: the C caller guarantees that the arguments are valid.
            unsafe { cudaGraphAddEmptyNode(node, graph, dependencies, count) }
        }
        CUgraphNodeType::WAIT_EVENT => {
            // SAFETY: every member of the union may have any bytes; the C caller guarantees the rest.
            unsafe { cudaGraphAddEventWaitNode(node, graph, dependencies, count, value.event) }
        }
        CUgraphNodeType::EVENT_RECORD => {
            // SAFETY: as above.
            unsafe { cudaGraphAddEventRecordNode(node, graph, dependencies, count, value.event) }
        }
        CUgraphNodeType::MEM_ALLOC => {
            // SAFETY: the C caller guarantees that the parameters, which receive the address, are valid.
            let alloc = unsafe { &raw mut (*params).value.alloc };
            // SAFETY: the C caller guarantees that the arguments are valid.
            unsafe { cudaGraphAddMemAllocNode(node, graph, dependencies, count, alloc) }
        }
        CUgraphNodeType::MEM_FREE => {
            // SAFETY: every member of the union may have any bytes; the C caller guarantees the rest.
            unsafe { cudaGraphAddMemFreeNode(node, graph, dependencies, count, value.free.0 as *mut c_void) }
        }
        CUgraphNodeType::EXT_SEMAS_SIGNAL | CUgraphNodeType::EXT_SEMAS_WAIT | CUgraphNodeType::CONDITIONAL => {
            Err(CudaError::NOT_SUPPORTED)
        }
        _ => Err(CudaError::INVALID_VALUE),
    }
}

/// Refuses dependencies that are not ordinary ones: the functions for single kinds of nodes take no others.
///
/// # Safety
/// `edges` must be null or valid for reads of `count` elements.
unsafe fn check_edges(edges: *const CUgraphEdgeData, count: usize) -> cudaError_t {
    if edges.is_null() {
        return Ok(());
    }
    // SAFETY: it is not null, so the caller guarantees that it is valid.
    let edges = unsafe { std::slice::from_raw_parts(edges, count) };
    if edges.iter().all(|data| *data == CUgraphEdgeData::default()) { Ok(()) } else { Err(CudaError::NOT_SUPPORTED) }
}

pub(crate) unsafe fn cudaGraphNodeSetParams(node: CUgraphNode, params: *mut cudaGraphNodeParams) -> cudaError_t {
    // SAFETY: the C caller guarantees that the parameters are valid.
    let given = unsafe { read(params) }?;
    let value = &given.value;
    match given.kind {
        CUgraphNodeType::KERNEL => {
            // SAFETY: every member of the union may have any bytes; the C caller guarantees the rest.
            unsafe { cudaGraphKernelNodeSetParams(node, &raw const value.kernel) }
        }
        CUgraphNodeType::MEMCPY => {
            // SAFETY: as above.
            unsafe { cudaGraphMemcpyNodeSetParams(node, &raw const value.memcpy.copyParams) }
        }
        CUgraphNodeType::MEMSET => {
            // SAFETY: as above.
            unsafe { cudaGraphMemsetNodeSetParams(node, &raw const value.memset) }
        }
        CUgraphNodeType::HOST => {
            // SAFETY: as above.
            unsafe { cudaGraphHostNodeSetParams(node, &raw const value.host) }
        }
        CUgraphNodeType::WAIT_EVENT => {
            // SAFETY: as above.
            unsafe { cudaGraphEventWaitNodeSetEvent(node, value.event) }
        }
        CUgraphNodeType::EVENT_RECORD => {
            // SAFETY: as above.
            unsafe { cudaGraphEventRecordNodeSetEvent(node, value.event) }
        }
        CUgraphNodeType::EMPTY => Ok(()),
        kind if kind.0 <= CUgraphNodeType::CONDITIONAL.0 => Err(CudaError::NOT_SUPPORTED),
        _ => Err(CudaError::INVALID_VALUE),
    }
}
