//! Turns the parameters of a node, as C describes them, into what the node does.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUerror, CUevent, CUfunction, CUgraphNodeParams, CUgraphNodeType,
    CUlaunchAttribute, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};

use super::launch::{Launched, apply_attribute, read_arguments};
use super::value::{BATCH_COUNT_MAX, works};
use super::{copy, fill};
use crate::engine::work::{HostCall, HostFunction};
use crate::ffi::args::WordArray;
use crate::memory::mem_ref::MemRef;
use crate::objects::context::{Context, current};
use crate::objects::operation::{EventNode, KernelNode, LaunchShape, MemOpsNode, Operation};
use crate::state::driver_state::DriverState;

/// A launch of one thread.
pub(super) const UNIT_SHAPE: LaunchShape =
    LaunchShape { grid: [1; 3], block: [1; 3], cluster: None, shared_bytes: 0, is_cooperative: false };

/// Returns what a node does that is not a graph.
pub(super) fn operation(driver: &DriverState, params: &CUgraphNodeParams) -> Result<Operation, CUerror> {
    let value = &params.value;
    match params.kind {
        CUgraphNodeType::KERNEL => {
            // SAFETY: every member of the union may have any bytes.
            kernel(driver, unsafe { &value.kernel }, &[])
        }
        CUgraphNodeType::MEMCPY => {
            // SAFETY: as above.
            let node = unsafe { &value.memcpy };
            memcpy(driver, &node.copyParams, node.copyCtx)
        }
        CUgraphNodeType::MEMSET => {
            // SAFETY: as above.
            let node = unsafe { &value.memset };
            memset(driver, &node.params, node.ctx)
        }
        CUgraphNodeType::HOST => {
            // SAFETY: as above.
            host_call(unsafe { &value.host })
        }
        CUgraphNodeType::EMPTY => Ok(Operation::Empty),
        CUgraphNodeType::WAIT_EVENT => {
            // SAFETY: as above.
            let event = unsafe { value.event };
            Ok(Operation::EventWait(event_node(driver, event)?))
        }
        CUgraphNodeType::EVENT_RECORD => {
            // SAFETY: as above.
            let event = unsafe { value.event };
            Ok(Operation::EventRecord(event_node(driver, event)?))
        }
        CUgraphNodeType::BATCH_MEM_OP => {
            // SAFETY: as above.
            batch(driver, unsafe { &value.mem_ops })
        }
        CUgraphNodeType::EXT_SEMAS_SIGNAL
        | CUgraphNodeType::EXT_SEMAS_WAIT
        | CUgraphNodeType::MEM_ALLOC
        | CUgraphNodeType::MEM_FREE
        | CUgraphNodeType::CONDITIONAL => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Returns the context that a handle names, or the current one for null.
fn context_or_current(driver: &DriverState, context: CUcontext) -> Result<Arc<Context>, CUerror> {
    if context == CUcontext::NULL { current() } else { driver.contexts.get(context.0) }
}

/// Returns a launch with these attributes.
pub(super) fn kernel(
    driver: &DriverState,
    params: &CUDA_KERNEL_NODE_PARAMS,
    attributes: &[CUlaunchAttribute],
) -> Result<Operation, CUerror> {
    let handle = if params.func == CUfunction::NULL { CUfunction(params.kern.0) } else { params.func };
    let context = match driver.code.context_of(handle) {
        Some(context) => context,
        None => context_or_current(driver, params.ctx)?,
    };
    let launch = Launched::new(driver, handle, &context)?;
    let mut shape = LaunchShape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        cluster: None,
        shared_bytes: params.sharedMemBytes,
        is_cooperative: false,
    };
    for attribute in attributes {
        apply_attribute(attribute, &mut shape)?;
    }
    shape.check(&launch.function)?;
    let extra = (!params.extra.is_null()).then(|| WordArray::at(params.extra)).transpose()?;
    let arguments = read_arguments(launch.function.kernel(), WordArray::at(params.kernelParams)?, extra)?;
    let work = launch.work(shape, arguments.clone())?;
    Ok(launch.node(shape, attributes.to_vec(), &arguments, work))
}

/// Returns a launch with other attributes.
pub(super) fn with_attributes(
    driver: &DriverState,
    node: &KernelNode,
    attributes: &[CUlaunchAttribute],
) -> Result<Operation, CUerror> {
    let launch = Launched::new(driver, node.function, &driver.contexts.get(node.context.0)?)?;
    let mut shape = LaunchShape { cluster: None, is_cooperative: false, ..node.shape };
    for attribute in attributes {
        apply_attribute(attribute, &mut shape)?;
    }
    shape.check(&launch.function)?;
    let arguments = node.arguments.to_bytes();
    let work = launch.work(shape, arguments.clone())?;
    Ok(launch.node(shape, attributes.to_vec(), &arguments, work))
}

pub(super) fn memcpy(driver: &DriverState, params: &CUDA_MEMCPY3D, context: CUcontext) -> Result<Operation, CUerror> {
    copy::operation(driver, params, &*context_or_current(driver, context)?)
}

pub(super) fn memset(
    driver: &DriverState,
    params: &CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Result<Operation, CUerror> {
    fill::operation(driver, params, &*context_or_current(driver, context)?)
}

pub(super) fn host_call(params: &CUDA_HOST_NODE_PARAMS) -> Result<Operation, CUerror> {
    let function = params.func.ok_or(CUerror::INVALID_VALUE)?;
    Ok(Operation::Host(HostCall::new(HostFunction::Function(function), params.userData as usize)))
}

/// Finds an event for a node. Events for other processes are not supported in graphs.
pub(super) fn event_node(driver: &DriverState, event: CUevent) -> Result<EventNode, CUerror> {
    let found = super::event::find(driver, event)?;
    if found.slot.shared.is_some() {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok(EventNode { event, slot: Arc::clone(&found.slot) })
}

pub(super) fn batch(driver: &DriverState, params: &CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Result<Operation, CUerror> {
    let context = context_or_current(driver, params.ctx)?.handle;
    if params.flags != 0 || params.count == 0 || params.count > BATCH_COUNT_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let list = params.paramArray as u64;
    let operations =
        (0..params.count.into()).map(|index| read_operation(list, index)).collect::<Result<Vec<_>, _>>()?;
    let works = works(driver, &operations)?;
    Ok(Operation::MemOps(MemOpsNode { context, flags: params.flags, operations, works }))
}

/// Reads one operation of the program's array.
fn read_operation(list: u64, index: u64) -> Result<CUstreamBatchMemOpParams, CUerror> {
    const WORDS: usize = size_of::<CUstreamBatchMemOpParams>() / 8;
    let mut words = [[0; 8]; WORDS];
    let offset = index * size_of::<CUstreamBatchMemOpParams>() as u64;
    MemRef::host(list).read(offset, words.as_flattened_mut()).map_err(|_| CUerror::INVALID_VALUE)?;
    let [kind, address, value, flags, alias, pad] = words.map(u64::from_le_bytes);
    Ok(CUstreamBatchMemOpParams {
        operation: CUstreamBatchMemOpType(kind as u32),
        barrier_flags: (kind >> 32) as u32,
        address: CUdeviceptr(address),
        value,
        flags: flags as u32,
        alias: CUdeviceptr(alias),
        pad,
    })
}
