//! Changes of executable graphs for later launches.

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUevent, CUgraph, CUgraphExec, CUgraphNode,
    CUgraphNodeType,
};

use super::graph_node::{copy_from_symbol, copy_to_symbol, kernel_params};
use crate::code::{CudaError, cudaError_t};
use crate::node_types::{copy_for_driver, cudaGraphNodeParams, cudaKernelNodeParams, linear_copy};
use crate::process::{self, Process};
use crate::types::{cudaMemcpy3DParms, cudaMemcpyKind, read};

forward! {
    fn cudaGraphExecHostNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) = cuGraphExecHostNodeSetParams(exec, node, params);
    fn cudaGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) =
        cuGraphExecChildGraphNodeSetParams(exec, node, child);
    fn cudaGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) =
        cuGraphExecEventRecordNodeSetEvent(exec, node, event);
    fn cudaGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) =
        cuGraphExecEventWaitNodeSetEvent(exec, node, event);
}

pub(crate) unsafe fn cudaGraphExecKernelNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const cudaKernelNodeParams,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the parameters are valid.
    let params = unsafe { kernel_params(process, params) }?;
    // SAFETY: the C caller guarantees that the graph, the node and the arguments of the kernel are valid.
    Ok(unsafe { (process.api.cuGraphExecKernelNodeSetParams_v2)(exec, node, &raw const params) }?)
}

/// Sets the parameters of a copy.
///
/// # Safety
/// As for `cuGraphExecMemcpyNodeSetParams`.
unsafe fn set_copy(process: &Process, exec: CUgraphExec, node: CUgraphNode, copy: &CUDA_MEMCPY3D) -> cudaError_t {
    let context = process.current()?;
    // SAFETY: the caller guarantees that the graph, the node and the memory are valid.
    Ok(unsafe { (process.api.cuGraphExecMemcpyNodeSetParams)(exec, node, copy, context) }?)
}

pub(crate) unsafe fn cudaGraphExecMemcpyNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const cudaMemcpy3DParms,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the parameters are valid.
    let copy = copy_for_driver(&unsafe { read(params) }?)?;
    // SAFETY: the C caller guarantees the rest.
    unsafe { set_copy(process, exec, node, &copy) }
}

pub(crate) unsafe fn cudaGraphExecMemcpyNodeSetParams1D(
    exec: CUgraphExec,
    node: CUgraphNode,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the arguments are valid.
    unsafe { set_copy(process, exec, node, &linear_copy(to, from, bytes, kind)?) }
}

pub(crate) unsafe fn cudaGraphExecMemcpyNodeSetParamsToSymbol(
    exec: CUgraphExec,
    node: CUgraphNode,
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the arguments are valid.
    unsafe { set_copy(process, exec, node, &copy_to_symbol(process, symbol, from, bytes, offset, kind)?) }
}

pub(crate) unsafe fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(
    exec: CUgraphExec,
    node: CUgraphNode,
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the arguments are valid.
    unsafe { set_copy(process, exec, node, &copy_from_symbol(process, to, symbol, bytes, offset, kind)?) }
}

pub(crate) unsafe fn cudaGraphExecMemsetNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_MEMSET_NODE_PARAMS,
) -> cudaError_t {
    let process = process::with_context()?;
    let context = process.current()?;
    // SAFETY: the C caller guarantees that the arguments are valid.
    Ok(unsafe { (process.api.cuGraphExecMemsetNodeSetParams)(exec, node, params, context) }?)
}

pub(crate) unsafe fn cudaGraphExecNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut cudaGraphNodeParams,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the parameters are valid.
    let given = unsafe { read(params) }?;
    let value = &given.value;
    match given.kind {
        CUgraphNodeType::KERNEL => {
            // SAFETY: every member of the union may have any bytes; the C caller guarantees the rest.
            unsafe { cudaGraphExecKernelNodeSetParams(exec, node, &raw const value.kernel) }
        }
        CUgraphNodeType::MEMCPY => {
            // SAFETY: as above.
            unsafe { cudaGraphExecMemcpyNodeSetParams(exec, node, &raw const value.memcpy.copyParams) }
        }
        CUgraphNodeType::MEMSET => {
            // SAFETY: as above.
            unsafe { cudaGraphExecMemsetNodeSetParams(exec, node, &raw const value.memset) }
        }
        CUgraphNodeType::HOST => {
            // SAFETY: as above.
            unsafe { cudaGraphExecHostNodeSetParams(exec, node, &raw const value.host) }
        }
        CUgraphNodeType::GRAPH => {
            // SAFETY: as above.
            unsafe { cudaGraphExecChildGraphNodeSetParams(exec, node, value.graph.graph) }
        }
        CUgraphNodeType::WAIT_EVENT => {
            // SAFETY: as above.
            unsafe { cudaGraphExecEventWaitNodeSetEvent(exec, node, value.event) }
        }
        CUgraphNodeType::EVENT_RECORD => {
            // SAFETY: as above.
            unsafe { cudaGraphExecEventRecordNodeSetEvent(exec, node, value.event) }
        }
        CUgraphNodeType::EMPTY => Ok(()),
        kind if kind.0 <= CUgraphNodeType::CONDITIONAL.0 => Err(CudaError::NOT_SUPPORTED),
        _ => Err(CudaError::INVALID_VALUE),
    }
}
