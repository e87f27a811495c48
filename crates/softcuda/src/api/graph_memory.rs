//! Nodes that allocate and free memory, and the memory of graphs on a device.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUerror, CUgraph, CUgraphMem_attribute, CUgraphNode, CUresult,
};

use super::graph_block::{add_alloc, free};
use super::graph_edges::read_dependencies;
use super::graph_node::read;
use crate::ffi::args::{InArray, InOut, Out, UntypedPtr};
use crate::objects::graph::NodeKind;
use crate::objects::operation::Operation;
use crate::state::driver_state::driver;

pub(crate) fn cuGraphAddMemAllocNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    params: InOut<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> CUresult {
    let mut given = params.read();
    add_alloc(node, graph, &dependencies, &InArray::EMPTY, count, &mut given)?;
    params.set(given);
    Ok(())
}

pub(crate) fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) -> CUresult {
    params.set(read(node, |operation| match operation {
        Operation::MemAlloc(block) => Some(block.params()),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuGraphAddMemFreeNode(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: InArray<CUgraphNode>,
    count: usize,
    start: CUdeviceptr,
) -> CUresult {
    let driver = driver()?;
    let graph = driver.graphs.get(graph)?;
    let dependencies = read_dependencies(&graph, &dependencies, &InArray::EMPTY, count)?;
    let kind = NodeKind::Run(Arc::new(free(driver, &graph, start)?));
    node.set(driver.graphs.add_node(&graph, kind, dependencies));
    Ok(())
}

pub(crate) fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, start: Out<CUdeviceptr>) -> CUresult {
    start.set(read(node, |operation| match operation {
        Operation::MemFree(block) => Some(CUdeviceptr(block.address)),
        _ => None,
    })?);
    Ok(())
}

pub(crate) fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult {
    let driver = driver()?;
    let device = driver.space.device(device)?.ordinal;
    driver.space.release_graph_memory();
    driver.space.graph_allocations(device).iter().for_each(|block| block.trim());
    Ok(())
}

pub(crate) fn cuDeviceGetGraphMemAttribute(
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: UntypedPtr,
) -> CUresult {
    value.set(driver()?.space.device(device)?.graph_memory().attribute(attribute)?)
}

pub(crate) fn cuDeviceSetGraphMemAttribute(
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: UntypedPtr,
) -> CUresult {
    let device = driver()?.space.device(device)?;
    if value.read::<u64>()? != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    device.graph_memory().reset(attribute)
}
