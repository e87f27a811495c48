//! Memory nodes of graphs, the memory of graphs on a device, and objects of the program that graphs keep alive.

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr, CUgraph, CUgraphMem_attribute, CUgraphNode, CUhostFn, CUuserObject,
};

use crate::code::cudaError_t;
use crate::process;

forward! {
    fn cudaGraphAddMemAllocNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) = cuGraphAddMemAllocNode(node, graph, dependencies, count, params);
    fn cudaGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) =
        cuGraphMemAllocNodeGetParams(node, params);
    fn cudaGraphAddMemFreeNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        start: *mut c_void,
    ) = cuGraphAddMemFreeNode(node, graph, dependencies, count, CUdeviceptr(start as u64));
    // An address has the same representation as a host pointer.
    fn cudaGraphMemFreeNodeGetParams(node: CUgraphNode, start: *mut c_void) =
        cuGraphMemFreeNodeGetParams(node, start.cast::<CUdeviceptr>());
    fn cudaUserObjectCreate(
        object: *mut CUuserObject,
        data: *mut c_void,
        destroy: CUhostFn,
        references: u32,
        flags: u32,
    ) = cuUserObjectCreate(object, data, destroy, references, flags);
    fn cudaUserObjectRetain(object: CUuserObject, references: u32) = cuUserObjectRetain(object, references);
    fn cudaUserObjectRelease(object: CUuserObject, references: u32) = cuUserObjectRelease(object, references);
    fn cudaGraphRetainUserObject(graph: CUgraph, object: CUuserObject, references: u32, flags: u32) =
        cuGraphRetainUserObject(graph, object, references, flags);
    fn cudaGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, references: u32) =
        cuGraphReleaseUserObject(graph, object, references);
}

pub(crate) unsafe fn cudaDeviceGraphMemTrim(device: i32) -> cudaError_t {
    let process = process::get()?;
    // SAFETY: the call takes no pointer.
    Ok(unsafe { (process.api.cuDeviceGraphMemTrim)(process.device(device)?) }?)
}

pub(crate) unsafe fn cudaDeviceGetGraphMemAttribute(
    device: i32,
    attribute: CUgraphMem_attribute,
    value: *mut c_void,
) -> cudaError_t {
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuDeviceGetGraphMemAttribute)(process.device(device)?, attribute, value) }?)
}

pub(crate) unsafe fn cudaDeviceSetGraphMemAttribute(
    device: i32,
    attribute: CUgraphMem_attribute,
    value: *mut c_void,
) -> cudaError_t {
    let process = process::get()?;
    // SAFETY: the C caller guarantees that the value is valid.
    Ok(unsafe { (process.api.cuDeviceSetGraphMemAttribute)(process.device(device)?, attribute, value) }?)
}
