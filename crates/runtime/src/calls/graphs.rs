//! Graphs: the accesses of their nodes, for each launch.

#![allow(non_snake_case, reason = "named as C names the functions")]

use std::ptr;

use freehold_check::calls::{Access, Argument, Item};
use freehold_driver::cuda::{
    Api, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext,
    CUfunction, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUkernel, CUresult, CUstream,
};

use super::copies::{self, boxes, fills};
use super::handles::{Graph, Node};
use super::lock::lock;
use super::streams::waits;
use super::wrap::{Call, wrappers};

/// How deep graphs within graphs are looked at.
const DEPTH_MAX: usize = 8;

/// The kinds of nodes that wait for events, words in memory, or other libraries.
const WAITS: [CUgraphNodeType; 3] =
    [CUgraphNodeType::WAIT_EVENT, CUgraphNodeType::EXT_SEMAS_WAIT, CUgraphNodeType::BATCH_MEM_OP];

impl Node {
    /// # Safety
    /// The parameters are as the driver accepts them.
    unsafe fn kernel(call: Call, handle: CUgraphNode, params: &CUDA_KERNEL_NODE_PARAMS) -> Self {
        let function = if params.func == CUfunction::NULL { params.kern.into() } else { params.func };
        let function = call.calls.functions.get(call.api, &call.calls.checker, function);
        // SAFETY: the caller guarantees that they are arguments of the kernel.
        let arguments = unsafe { function.with_arguments(params.kernelParams, params.extra, <[Argument]>::to_vec) };
        let (accesses, within) = (Vec::new(), Vec::new());
        Self { handle, kernel: Some(function.kernel), module: function.module, accesses, arguments, within }
    }

    fn accesses(handle: CUgraphNode, accesses: Vec<Access>) -> Self {
        Self { handle, kernel: None, module: None, accesses, arguments: Vec::new(), within: Vec::new() }
    }

    fn copy(call: Call, handle: CUgraphNode, copy: &CUDA_MEMCPY3D) -> Self {
        Self::accesses(handle, copies::accesses(call, &boxes::ends(copy)))
    }

    fn fill(handle: CUgraphNode, params: &CUDA_MEMSET_NODE_PARAMS) -> Self {
        let CUDA_MEMSET_NODE_PARAMS { dst, pitch, elementSize, width, height, .. } = *params;
        Self::accesses(handle, fills::write(dst, pitch, width * elementSize as usize, height).into_iter().collect())
    }
}

impl Graph {
    /// Reads the nodes of a graph, whose kernels have memory of their own for their arguments.
    fn read(call: Call, graph: CUgraph) -> Self {
        let mut found = Self::default();
        found.add(call, graph, &[]);
        found
    }

    /// Adds the nodes of a graph, which is within nodes of others.
    fn add(&mut self, call: Call, graph: CUgraph, within: &[CUgraphNode]) {
        let mut count = 0;
        // SAFETY: the C caller guarantees that the graph is valid; `count` is a valid place for the answer.
        if unsafe { (call.api.cuGraphGetNodes)(graph, ptr::null_mut(), &raw mut count) }.is_err()
            || within.len() > DEPTH_MAX
        {
            return;
        }
        let mut nodes = vec![CUgraphNode::NULL; count];
        // SAFETY: as above, and there is room for as many nodes.
        if unsafe { (call.api.cuGraphGetNodes)(graph, nodes.as_mut_ptr(), &raw mut count) }.is_err() {
            return;
        }
        nodes.truncate(count);
        for node in nodes {
            let mut kind = CUgraphNodeType::EMPTY;
            // SAFETY: the node belongs to the graph, and `kind` is a valid place for the answer.
            if unsafe { (call.api.cuGraphNodeGetType)(node, &raw mut kind) }.is_err() {
                continue;
            }
            if kind == CUgraphNodeType::GRAPH {
                let mut child = CUgraph::NULL;
                // SAFETY: as above.
                if unsafe { (call.api.cuGraphChildGraphNodeGetGraph)(node, &raw mut child) }.is_ok() {
                    self.add(call, child, &[within, &[node]].concat());
                }
            } else {
                let known = self.nodes.len();
                self.add_node(call, node, kind);
                self.nodes[known..].iter_mut().for_each(|node| node.within = within.to_vec());
            }
        }
    }

    fn add_node(&mut self, call: Call, node: CUgraphNode, kind: CUgraphNodeType) {
        match kind {
            CUgraphNodeType::KERNEL => {
                let mut params = no_kernel();
                // SAFETY: the node is of this kind, and `params` is a valid place for the answer.
                if unsafe { (call.api.cuGraphKernelNodeGetParams_v2)(node, &raw mut params) }.is_ok() {
                    // SAFETY: the driver has written the parameters.
                    self.nodes.push(unsafe { Node::kernel(call, node, &params) });
                }
            }
            CUgraphNodeType::MEMCPY => {
                let mut copy = CUDA_MEMCPY3D::default();
                // SAFETY: as above.
                if unsafe { (call.api.cuGraphMemcpyNodeGetParams)(node, &raw mut copy) }.is_ok() {
                    self.nodes.push(Node::copy(call, node, &copy));
                }
            }
            CUgraphNodeType::MEMSET => {
                let mut params = CUDA_MEMSET_NODE_PARAMS::default();
                // SAFETY: as above.
                if unsafe { (call.api.cuGraphMemsetNodeGetParams)(node, &raw mut params) }.is_ok() {
                    self.nodes.push(Node::fill(node, &params));
                }
            }
            CUgraphNodeType::EMPTY | CUgraphNodeType::MEM_ALLOC | CUgraphNodeType::MEM_FREE => {}
            // Functions of the host, waits and signals.
            _ => {
                self.is_opaque = true;
                self.waits |= WAITS.contains(&kind);
            }
        }
    }
}

/// A place for the parameters of a kernel.
fn no_kernel() -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
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
    }
}

/// Replaces a node of a graph that can be launched, or removes it if nothing is known of it any more. The node of a graph stands for
/// all nodes in it.
fn replace(call: Call, exec: CUgraphExec, handle: CUgraphNode, nodes: impl IntoIterator<Item = Node>) {
    if let Some(graph) = lock(&call.calls.handles).graphs.get_mut(&exec.0) {
        let is_of = |node: &Node| node.handle == handle || node.within.contains(&handle);
        let within = graph.nodes.iter().find(|node| is_of(node)).map(|node| {
            let outer = node.within.iter().take_while(|outer| **outer != handle);
            outer.copied().collect::<Vec<_>>()
        });
        if within.is_none() {
            // It may be a node of a graph that was replaced.
            graph.nodes.retain(|node| node.handle != CUgraphNode::NULL);
        }
        let within = within.unwrap_or_default();
        graph.nodes.retain(|node| !is_of(node));
        graph.nodes.extend(nodes.into_iter().map(|node| Node { within: [&*within, &node.within].concat(), ..node }));
    }
}

fn instantiated(call: Call, exec: CUgraphExec, graph: CUgraph) {
    let read = Graph::read(call, graph);
    lock(&call.calls.handles).graphs.insert(exec.0, read);
}

wrappers! {
    fn cuGraphInstantiateWithFlags(call, exec: *mut CUgraphExec, graph: CUgraph, flags: u64) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphInstantiateWithFlags)(exec, graph, flags) }?;
        // SAFETY: the call has written the handle.
        instantiated(call, unsafe { *exec }, graph);
        Ok(())
    }

    fn cuGraphInstantiateWithParams["_ptsz"](call, exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphInstantiateWithParams)(exec, graph, params) }?;
        // SAFETY: the call has written the handle.
        instantiated(call, unsafe { *exec }, graph);
        Ok(())
    }

    fn cuGraphExecDestroy(call, exec: CUgraphExec) {
        lock(&call.calls.handles).graphs.remove(&exec.0);
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphExecDestroy)(exec) }
    }

    fn cuGraphExecUpdate_v2(call, exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphExecUpdate_v2)(exec, graph, info) }?;
        instantiated(call, exec, graph);
        Ok(())
    }

    fn cuGraphExecKernelNodeSetParams_v2(call, exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphExecKernelNodeSetParams_v2)(exec, node, params) }?;
        // SAFETY: the driver has accepted the parameters.
        let params = unsafe { &*params };
        // SAFETY: as above.
        replace(call, exec, node, Some(unsafe { Node::kernel(call, node, params) }));
        Ok(())
    }

    fn cuGraphExecMemcpyNodeSetParams(call, exec: CUgraphExec, node: CUgraphNode, copy: *const CUDA_MEMCPY3D, context: CUcontext) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphExecMemcpyNodeSetParams)(exec, node, copy, context) }?;
        // SAFETY: the driver has accepted the parameters.
        replace(call, exec, node, Some(Node::copy(call, node, unsafe { &*copy })));
        Ok(())
    }

    fn cuGraphExecMemsetNodeSetParams(call, exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphExecMemsetNodeSetParams)(exec, node, params, context) }?;
        // SAFETY: the driver has accepted the parameters.
        replace(call, exec, node, Some(Node::fill(node, unsafe { &*params })));
        Ok(())
    }

    fn cuGraphExecNodeSetParams(call, exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphExecNodeSetParams)(exec, node, params) }?;
        replace(call, exec, node, None);
        Ok(())
    }

    fn cuGraphExecChildGraphNodeSetParams(call, exec: CUgraphExec, node: CUgraphNode, child: CUgraph) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphExecChildGraphNodeSetParams)(exec, node, child) }?;
        let mut read = Graph::default();
        read.add(call, child, &[node]);
        // The program names them by the nodes of the graph that was there before.
        read.nodes.iter_mut().for_each(|node| node.handle = CUgraphNode::NULL);
        replace(call, exec, node, read.nodes);
        Ok(())
    }

    fn cuGraphNodeSetEnabled(call, exec: CUgraphExec, node: CUgraphNode, enabled: u32) {
        // SAFETY: the conditions are the same.
        unsafe { (call.api.cuGraphNodeSetEnabled)(exec, node, enabled) }?;
        replace(call, exec, node, None);
        Ok(())
    }

    fn cuGraphLaunch["_ptsz"](call, exec: CUgraphExec, stream: CUstream) {
        call.check_stream(stream);
        // SAFETY: the conditions are the same.
        call.noted(unsafe { (call.api.cuGraphLaunch)(exec, stream) })?;
        let handles = lock(&call.calls.handles);
        if let Some(graph) = handles.graphs.get(&exec.0) {
            if graph.waits {
                waits(call, stream);
            }
            let items: Vec<Item<'_>> = graph.nodes.iter().map(|node| Item {
                kernel: node.kernel,
                module: node.module,
                accesses: &node.accesses,
                arguments: &node.arguments,
                is_of_graph: true,
            }).collect();
            call.submit(stream, &items, graph.is_opaque);
        }
        Ok(())
    }
}
