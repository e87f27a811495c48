//! Changes of executable graphs for later launches.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUcontext, CUerror, CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUresult,
};

use super::graph_operation::{batch, event_node, host_call, kernel, memcpy, memset, operation, with_attributes};
use crate::ffi::args::{In, InOut, Out};
use crate::objects::graph_exec::Action;
use crate::objects::graph_update::update;
use crate::objects::operation::Operation;
use crate::state::driver_state::{DriverState, driver};

/// Lets a node do what `make` returns.
fn set(
    exec: CUgraphExec,
    node: CUgraphNode,
    make: impl FnOnce(&DriverState, &Operation) -> Result<Operation, CUerror>,
) -> CUresult {
    let driver = driver()?;
    let exec = driver.graph_execs.get(exec.0)?;
    driver.graphs.find_node(node)?;
    exec.change_node(node, |node| {
        let Action::Run(old) = &mut node.action else { return Err(CUerror::INVALID_VALUE) };
        let new = make(driver, old)?;
        old.check_update(&new).map_err(|_| CUerror::INVALID_VALUE)?;
        if let (Operation::Memcpy(old), Operation::Memcpy(new)) = (&**old, &new)
            && !(old.is_linear() && new.is_linear())
        {
            return Err(CUerror::INVALID_VALUE);
        }
        *old = Arc::new(new);
        Ok(())
    })
}

pub(crate) fn cuGraphExecUpdate_v2(
    exec: CUgraphExec,
    graph: CUgraph,
    info: Out<CUgraphExecUpdateResultInfo>,
) -> CUresult {
    let driver = driver()?;
    let found = driver.graph_execs.get(exec.0).and_then(|exec| Ok((exec, driver.graphs.get(graph)?)));
    let Ok((exec, graph)) = found else {
        let result = CUgraphExecUpdateResult::ERROR;
        info.set(CUgraphExecUpdateResultInfo { result, ..CUgraphExecUpdateResultInfo::default() });
        return found.map(|_| ());
    };
    match exec.change(&graph, |nodes| update(nodes, &graph)) {
        Ok(()) => {
            info.set(CUgraphExecUpdateResultInfo::default());
            Ok(())
        }
        Err(refusal) => {
            info.set(refusal);
            Err(CUerror::GRAPH_EXEC_UPDATE_FAILURE)
        }
    }
}

pub(crate) fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) -> CUresult {
    driver()?.graph_execs.get(exec.0)?.change_node(node, |node| match &node.action {
        Action::Run(operation) if operation.can_be_disabled() => {
            node.is_enabled = enabled != 0;
            Ok(())
        }
        _ => Err(CUerror::INVALID_VALUE),
    })
}

pub(crate) fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: Out<u32>) -> CUresult {
    let is_enabled = driver()?.graph_execs.get(exec.0)?.read_node(node, |node| match &node.action {
        Action::Run(operation) if operation.can_be_disabled() => Ok(node.is_enabled),
        _ => Err(CUerror::INVALID_VALUE),
    })?;
    enabled.set(is_enabled.into());
    Ok(())
}

pub(crate) fn cuGraphExecNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: InOut<CUgraphNodeParams>,
) -> CUresult {
    let params = params.read();
    if params.kind == CUgraphNodeType::GRAPH {
        // SAFETY: every member of the union may have any bytes.
        return cuGraphExecChildGraphNodeSetParams(exec, node, unsafe { params.value.graph }.graph);
    }
    set(exec, node, |driver, old| match (old, operation(driver, &params)?) {
        (Operation::Kernel(old), Operation::Kernel(new)) => with_attributes(driver, &new, &old.attributes),
        (_, new) => Ok(new),
    })
}

pub(crate) fn cuGraphExecKernelNodeSetParams_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_KERNEL_NODE_PARAMS>,
) -> CUresult {
    set(exec, node, |driver, old| match old {
        Operation::Kernel(old) => kernel(driver, &params.0, &old.attributes),
        _ => Err(CUerror::INVALID_VALUE),
    })
}

pub(crate) fn cuGraphExecMemcpyNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> CUresult {
    set(exec, node, |driver, _| memcpy(driver, &copy.0, context))
}

pub(crate) fn cuGraphExecMemsetNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> CUresult {
    set(exec, node, |driver, _| memset(driver, &params.0, context))
}

pub(crate) fn cuGraphExecHostNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_HOST_NODE_PARAMS>,
) -> CUresult {
    set(exec, node, |_, _| host_call(&params.0))
}

pub(crate) fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) -> CUresult {
    let driver = driver()?;
    let child = driver.graphs.get(child)?;
    driver.graph_execs.get(exec.0)?.change_node(node, |node| match &mut node.action {
        Action::Child(nodes) => update(nodes, &child).map_err(|_| CUerror::INVALID_VALUE),
        Action::Run(_) => Err(CUerror::INVALID_VALUE),
    })
}

pub(crate) fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> CUresult {
    set(exec, node, |driver, _| Ok(Operation::EventRecord(event_node(driver, event)?)))
}

pub(crate) fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> CUresult {
    set(exec, node, |driver, _| Ok(Operation::EventWait(event_node(driver, event)?)))
}

pub(crate) fn cuGraphExecBatchMemOpNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS>,
) -> CUresult {
    set(exec, node, |driver, _| batch(driver, &params.0))
}
