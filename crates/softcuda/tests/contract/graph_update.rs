//! Changes of executable graphs: of single nodes, and of all nodes by a graph of the same structure.

use crate::common;
use crate::graph::{
    add_copy, add_fill, add_store, call_of, copy_params, event, fill_params, kernel_params, new_graph, ready, run,
};

use std::sync::atomic::{AtomicU32, Ordering};

use common::kernels::pointers;
use common::{Context, Gate, Refused, at};
use freehold_driver::cuda::{
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUerror, CUgraph, CUgraphExecUpdateResult, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType, CUmemorytype, CUstream, fill, graph, graph_exec, graph_node,
};

/// Updates an executable graph, and returns what the driver says of it.
macro_rules! updated {
    ($own:expr, $exec:expr, $graph:expr) => {
        // SAFETY: what the graphs of these tests use lives until the end of the test.
        unsafe { graph_exec::update(&$own.api, $exec, $graph) }.unwrap()
    };
}

#[test]
fn a_changed_node_changes_later_launches_only() {
    let own = Context::create();
    let (graph, block, gate, stream) = (new_graph(&own), own.block(8192), Gate::closed(&own), own.stream());
    let node = add_fill(&own, graph, &[], block, 1);
    let exec = ready(&own, graph);
    gate.hold(&own.api, stream);
    // SAFETY: the graph holds a fill of device memory.
    unsafe { graph::launch(&own.api, exec, stream) }.unwrap();
    graph_exec::set_fill(&own.api, exec, node, &fill_params(at(block, 4096), 2), own.handle).unwrap();
    gate.open();
    own.finish(stream);
    assert_eq!(own.byte(block, 4096), 1);
    run(&own, exec);
    assert_eq!((own.byte(block, 4096), own.byte(at(block, 4096), 4096)), (1, 2));
    // The node of the graph is unchanged.
    assert_eq!(graph_node::fill(&own.api, node).unwrap(), fill_params(block, 1));
}

#[test]
fn a_kernel_of_an_executable_graph_gets_other_arguments() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let node = add_store(&own, graph, &[], block, 10);
    let exec = ready(&own, graph);
    let mut arguments = [block.0.into(), 20u32.into()];
    let mut pointers = pointers(&mut arguments);
    let params = kernel_params(own.kernel(c"store"), &mut pointers);
    // SAFETY: the kernel takes an address of at least 32 words, and a word.
    unsafe { graph_exec::set_kernel(&own.api, exec, node, &params) }.unwrap();
    run(&own, exec);
    assert_eq!(own.read(block, 4), 20u32.to_le_bytes());
    // SAFETY: as above.
    let elsewhere = unsafe { graph_exec::set_kernel(&own.api, exec, CUgraphNode::NULL, &params) };
    assert_eq!(elsewhere.code(), CUerror::INVALID_VALUE);
}

#[test]
fn linear_copies_of_an_executable_graph_get_other_addresses() {
    let own = Context::create();
    let (graph, block, host) = (new_graph(&own), own.block(12288), own.pinned(4096));
    let filling = add_fill(&own, graph, &[], block, 5);
    let node = add_copy(&own, graph, &[filling], at(block, 4096), block);
    let exec = ready(&own, graph);
    let set = |copy: &CUDA_MEMCPY3D| {
        // SAFETY: the copy stays on the device, or is refused.
        unsafe { graph_exec::set_copy(&own.api, exec, node, copy, own.handle) }
    };
    set(&copy_params(at(block, 8192), block)).unwrap();
    fill::d8(&own.api, block, 0, 12288).unwrap();
    own.finish(CUstream::LEGACY);
    run(&own, exec);
    assert_eq!((own.byte(at(block, 4096), 4096), own.byte(at(block, 8192), 4096)), (0, 5));
    let rectangle = CUDA_MEMCPY3D { WidthInBytes: 64, Height: 4, ..copy_params(at(block, 4096), block) };
    assert_eq!(set(&rectangle).code(), CUerror::INVALID_VALUE);
    let to_host = CUDA_MEMCPY3D {
        dstMemoryType: CUmemorytype::HOST,
        dstHost: host.pointer() as usize,
        ..copy_params(block, block)
    };
    assert_eq!(set(&to_host).code(), CUerror::INVALID_VALUE);
}

#[test]
fn the_height_of_a_fill_of_an_executable_graph_does_not_change() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let params = CUDA_MEMSET_NODE_PARAMS { pitch: 64, width: 16, height: 4, ..fill_params(block, 1) };
    let node = graph_node::add_fill(&own.api, graph, &[], &params, own.handle).unwrap();
    let exec = ready(&own, graph);
    let set = |params: &CUDA_MEMSET_NODE_PARAMS| graph_exec::set_fill(&own.api, exec, node, params, own.handle);
    set(&CUDA_MEMSET_NODE_PARAMS { value: 7, ..params }).unwrap();
    assert_eq!(set(&CUDA_MEMSET_NODE_PARAMS { height: 3, ..params }).code(), CUerror::INVALID_VALUE);
    run(&own, exec);
    assert_eq!(own.byte(at(block, 64), 16), 7);
}

#[test]
fn host_and_event_nodes_of_an_executable_graph_change_freely() {
    let own = Context::create();
    let (graph, first, second) = (new_graph(&own), AtomicU32::new(0), AtomicU32::new(0));
    let (unused, used) = (event(&own), event(&own));
    // SAFETY: the word lives until the stream is done with the last launch.
    let call = unsafe { graph_node::add_host(&own.api, graph, &[], &call_of(&first)) }.unwrap();
    let waiting = graph_node::add_wait(&own.api, graph, &[call], unused).unwrap();
    let recording = graph_node::add_record(&own.api, graph, &[waiting], unused).unwrap();
    let exec = ready(&own, graph);
    // SAFETY: as above.
    unsafe { graph_exec::set_host(&own.api, exec, call, &call_of(&second)) }.unwrap();
    graph_exec::set_recorded_event(&own.api, exec, recording, used).unwrap();
    graph_exec::set_awaited_event(&own.api, exec, waiting, used).unwrap();
    let mut params = CUgraphNodeParams::zeroed(CUgraphNodeType::WAIT_EVENT);
    params.value.event = unused;
    // SAFETY: an event is no pointer to memory of the host.
    unsafe { graph_exec::set(&own.api, exec, waiting, &mut params) }.unwrap();
    run(&own, exec);
    assert_eq!((first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (0, 1));
    let other = graph_exec::set_recorded_event(&own.api, exec, waiting, used);
    assert_eq!(other.code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_disabled_node_does_nothing_until_it_is_enabled() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(8192));
    let node = add_fill(&own, graph, &[], block, 1);
    let empty = graph_node::add_empty(&own.api, graph, &[node]).unwrap();
    add_fill(&own, graph, &[empty], at(block, 4096), 1);
    fill::d8(&own.api, block, 9, 8192).unwrap();
    own.finish(CUstream::LEGACY);
    let exec = ready(&own, graph);
    assert_eq!(graph_exec::is_enabled(&own.api, exec, node), Ok(true));
    graph_exec::set_enabled(&own.api, exec, node, 0).unwrap();
    assert_eq!(graph_exec::is_enabled(&own.api, exec, node), Ok(false));
    run(&own, exec);
    assert_eq!((own.byte(block, 4096), own.byte(at(block, 4096), 4096)), (9, 1));
    graph_exec::set_enabled(&own.api, exec, node, 1).unwrap();
    run(&own, exec);
    assert_eq!(own.byte(block, 8192), 1);
    assert_eq!(graph_exec::set_enabled(&own.api, exec, empty, 0).code(), CUerror::INVALID_VALUE);
}

/// A graph of a fill, and a copy of what it filled.
fn fill_and_copy(own: &Context, block: freehold_driver::cuda::CUdeviceptr, value: u32) -> (CUgraph, [CUgraphNode; 2]) {
    let graph = new_graph(own);
    let first = add_fill(own, graph, &[], block, value);
    (graph, [first, add_copy(own, graph, &[first], at(block, 4096), block)])
}

#[test]
fn an_update_takes_over_the_parameters_of_a_graph_of_the_same_structure() {
    let own = Context::create();
    let block = own.block(8192);
    let (first, _) = fill_and_copy(&own, block, 1);
    let (second, _) = fill_and_copy(&own, block, 2);
    let exec = ready(&own, first);
    assert_eq!(updated!(own, exec, second).result, CUgraphExecUpdateResult::SUCCESS);
    graph::destroy(&own.api, second).unwrap();
    run(&own, exec);
    assert_eq!(own.byte(block, 8192), 2);
}

#[test]
fn a_refused_update_changes_nothing_and_says_why() {
    let own = Context::create();
    let block = own.block(12288);
    let (graph, _) = fill_and_copy(&own, block, 1);
    let exec = ready(&own, graph);
    let refused = |other| updated!(own, exec, other);
    // One node more.
    let (longer, [_, last]) = fill_and_copy(&own, block, 2);
    add_fill(&own, longer, &[last], block, 3);
    let answer = refused(longer);
    let changed = CUgraphExecUpdateResult::TOPOLOGY_CHANGED;
    assert_eq!((answer.result, answer.errorNode), (changed, CUgraphNode::NULL));
    // The same nodes without the edge.
    let (loose, [first, last]) = fill_and_copy(&own, block, 2);
    graph::remove_edges(&own.api, loose, &[first], &[last]).unwrap();
    assert_eq!(refused(loose).result, changed);
    // A node of another type.
    let other = new_graph(&own);
    let first = add_fill(&own, other, &[], block, 2);
    let last = add_fill(&own, other, &[first], at(block, 4096), 2);
    let answer = refused(other);
    assert_eq!((answer.result, answer.errorNode), (CUgraphExecUpdateResult::NODE_TYPE_CHANGED, last));
    run(&own, exec);
    assert_eq!(own.byte(block, 8192), 1);
}

#[test]
fn a_child_graph_is_updated_with_its_parent_or_alone() {
    let own = Context::create();
    let block = own.block(8192);
    let parent = |value| {
        let ((inner, _), graph) = (fill_and_copy(&own, block, value), new_graph(&own));
        let child = graph_node::add_child(&own.api, graph, &[], inner).unwrap();
        (graph, child, inner)
    };
    let ((first, child, _), (second, ..), (_, _, third)) = (parent(1), parent(2), parent(3));
    let exec = ready(&own, first);
    assert_eq!(updated!(own, exec, second).result, CUgraphExecUpdateResult::SUCCESS);
    run(&own, exec);
    assert_eq!(own.byte(block, 8192), 2);
    // SAFETY: the graph fills and copies device memory.
    unsafe { graph_exec::set_child(&own.api, exec, child, third) }.unwrap();
    run(&own, exec);
    assert_eq!(own.byte(block, 8192), 3);
    // SAFETY: an empty graph does nothing.
    let other = unsafe { graph_exec::set_child(&own.api, exec, child, new_graph(&own)) };
    assert_eq!(other.code(), CUerror::INVALID_VALUE);
}
