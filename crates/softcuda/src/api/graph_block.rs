//! The memory that nodes of graphs allocate and free.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUerror, CUgraph, CUgraphEdgeData, CUgraphNode,
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPoolProps, CUresult,
};

use super::graph_edges::read_dependencies;
use crate::ffi::args::{InArray, Out};
use crate::memory::mem_ref::MemRef;
use crate::objects::graph::{Graph, GraphOwner, NodeKind};
use crate::objects::graph_allocation::GraphAllocation;
use crate::objects::operation::Operation;
use crate::objects::pool::Pool;
use crate::objects::stream_ref::StreamRef;
use crate::space::span::{Span, SpanKind};
use crate::state::driver_state::{DriverState, driver, driver_in_work};

/// Returns the block of an allocation node that starts at an address.
pub(super) fn find_block(driver: &DriverState, start: CUdeviceptr) -> Option<Arc<GraphAllocation>> {
    match &driver.space.find_span(start.0)?.kind {
        SpanKind::Graph(block) if block.address == start.0 => Some(Arc::clone(block)),
        _ => None,
    }
}

/// Refuses memory of a graph for work outside graphs while it is not allocated.
pub(super) fn check_allocated(driver: &DriverState, addresses: &[u64]) -> CUresult {
    if !driver.space.has_graph_memory() {
        return Ok(());
    }
    let is_absent = |address: &u64| match driver.space.find_span(*address).as_deref() {
        Some(Span { kind: SpanKind::Graph(block), .. }) => !block.is_allocated(),
        _ => false,
    };
    if addresses.iter().any(is_absent) { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}

/// Reserves an address for a node of a graph.
fn reserve(
    driver: &DriverState,
    graph: &Graph,
    properties: CUmemPoolProps,
    access: Vec<CUmemAccessDesc>,
    bytes: u64,
) -> Result<Arc<GraphAllocation>, CUerror> {
    if graph.owner == GraphOwner::Node {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let is_plain = properties.allocType == CUmemAllocationType::PINNED
        && properties.handleTypes == CUmemAllocationHandleType::NONE
        && properties.location.kind == CUmemLocationType::DEVICE;
    if !is_plain || bytes == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = driver.space.device(CUdevice(properties.location.id)).map_err(|_| CUerror::INVALID_VALUE)?;
    if bytes > device.memory.bytes {
        return Err(CUerror::OUT_OF_MEMORY);
    }
    driver.space.release_graph_memory();
    let on_unmap = || driver_in_work().space.bump_span_epoch();
    let block = GraphAllocation::reserve(device, graph.handle, bytes, properties, access, on_unmap);
    let block = Arc::new(block.ok_or(CUerror::OUT_OF_MEMORY)?);
    driver.space.insert_graph_span(&block, device.ordinal);
    Ok(block)
}

/// Adds an allocation node, and sets the address in its parameters.
pub(super) fn add_alloc(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: &InArray<CUgraphNode>,
    edges: &InArray<CUgraphEdgeData>,
    count: usize,
    params: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> CUresult {
    let driver = driver()?;
    let graph = driver.graphs.get(graph)?;
    let dependencies = read_dependencies(&graph, dependencies, edges, count)?;
    let block = alloc(driver, &graph, params)?;
    params.dptr = CUdeviceptr(block.address);
    let kind = NodeKind::Run(Arc::new(Operation::MemAlloc(block)));
    node.set(driver.graphs.add_node(&graph, kind, dependencies));
    Ok(())
}

/// Returns a block for a node with these parameters.
fn alloc(
    driver: &DriverState,
    graph: &Graph,
    params: &CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<Arc<GraphAllocation>, CUerror> {
    if params.accessDescCount > driver.space.devices.len() {
        return Err(CUerror::INVALID_VALUE);
    }
    let list = params.accessDescs as u64;
    let access = (0..params.accessDescCount as u64).map(|index| read_access(list, index));
    let access = access.collect::<Result<Vec<_>, _>>()?;
    let is_known = |access: &CUmemAccessDesc| {
        access.location.kind == CUmemLocationType::DEVICE && driver.space.device(CUdevice(access.location.id)).is_ok()
    };
    if !access.iter().all(is_known) {
        return Err(CUerror::INVALID_VALUE);
    }
    reserve(driver, graph, params.poolProps, access, params.bytesize as u64)
}

/// Reads one element of the program's array.
fn read_access(list: u64, index: u64) -> Result<CUmemAccessDesc, CUerror> {
    let mut words = [[0; 4]; 3];
    let offset = index * size_of::<CUmemAccessDesc>() as u64;
    MemRef::host(list).read(offset, words.as_flattened_mut()).map_err(|_| CUerror::INVALID_VALUE)?;
    let [kind, id, flags] = words.map(u32::from_le_bytes);
    let location = CUmemLocation { kind: CUmemLocationType(kind), id: id.cast_signed() };
    Ok(CUmemAccessDesc { location, flags: CUmemAccess_flags(flags) })
}

/// Returns the operation of a free node for a graph.
pub(super) fn free(driver: &DriverState, graph: &Graph, start: CUdeviceptr) -> Result<Operation, CUerror> {
    if graph.owner == GraphOwner::Node {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let block = find_block(driver, start).ok_or(CUerror::INVALID_VALUE)?;
    if graph.frees(start.0) {
        return Err(CUerror::INVALID_VALUE);
    }
    block.note_free_node(graph.handle)?;
    Ok(Operation::MemFree(block))
}

/// Captures an allocation: the block belongs to the graph, not to the pool.
pub(super) fn capture_alloc(
    driver: &DriverState,
    stream_ref: &StreamRef<'_>,
    pool: &Pool,
    bytes: u64,
) -> Result<u64, CUerror> {
    let graph = stream_ref.stream.capture.info().ok_or(CUerror::STREAM_CAPTURE_INVALIDATED)?.graph;
    let properties = CUmemPoolProps::on_device(CUdevice(pool.device as i32));
    let block = reserve(driver, &graph, properties, Vec::new(), bytes)?;
    let address = block.address;
    stream_ref.capture(Operation::MemAlloc(block))?;
    Ok(address)
}

/// Captures a free, which must be of memory that an allocation node allocates.
pub(super) fn capture_free(driver: &DriverState, stream_ref: &StreamRef<'_>, start: CUdeviceptr) -> CUresult {
    let graph = stream_ref.stream.capture.info().ok_or(CUerror::STREAM_CAPTURE_INVALIDATED)?.graph;
    stream_ref.capture(free(driver, &graph, start)?)
}
