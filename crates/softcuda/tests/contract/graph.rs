//! Graphs that are built node by node: their structure, what each kind of node does, and its parameters.

use crate::common;

use std::ffi::{CString, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use common::kernels::pointers;
use common::{Context, Gate, Refused, at};
use freehold_driver::cuda::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUerror, CUevent, CUfunction, CUgraph,
    CUgraphEdgeData, CUgraphExec, CUgraphInstantiateResult, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUkernel,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUmemorytype, CUstream, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpType, event, event_flags, fill, graph, graph_exec, graph_node,
};

pub(crate) fn new_graph(own: &Context) -> CUgraph {
    graph::create(&own.api, 0).unwrap()
}

/// Launches a graph and waits for it.
pub(crate) fn run(own: &Context, exec: CUgraphExec) {
    let stream = own.stream();
    // SAFETY: what the graphs of these tests use lives until the end of the test.
    unsafe { graph::launch(&own.api, exec, stream) }.unwrap();
    own.finish(stream);
}

pub(crate) fn ready(own: &Context, graph: CUgraph) -> CUgraphExec {
    graph::instantiate(&own.api, graph, 0).unwrap()
}

/// A fill of 4096 bytes.
pub(crate) fn fill_params(to: CUdeviceptr, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: to, pitch: 0, value, elementSize: 1, width: 4096, height: 1 }
}

pub(crate) fn add_fill(
    own: &Context,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: CUdeviceptr,
    value: u32,
) -> CUgraphNode {
    graph_node::add_fill(&own.api, graph, after, &fill_params(to, value), own.handle).unwrap()
}

/// A linear copy of 4096 bytes on the device.
pub(crate) fn copy_params(to: CUdeviceptr, from: CUdeviceptr) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: from,
        srcPitch: 4096,
        srcHeight: 1,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to,
        dstPitch: 4096,
        dstHeight: 1,
        WidthInBytes: 4096,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    }
}

pub(crate) fn add_copy(
    own: &Context,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: CUdeviceptr,
    from: CUdeviceptr,
) -> CUgraphNode {
    // SAFETY: the copy stays on the device.
    unsafe { graph_node::add_copy(&own.api, graph, after, &copy_params(to, from), own.handle) }.unwrap()
}

/// A launch of one block of 32 threads.
pub(crate) fn kernel_params(function: CUfunction, arguments: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: if arguments.is_empty() { null_mut() } else { arguments.as_mut_ptr() },
        extra: null_mut(),
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    }
}

/// Adds a launch of the kernel `store`.
pub(crate) fn add_store(
    own: &Context,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: CUdeviceptr,
    value: u32,
) -> CUgraphNode {
    let mut arguments = [to.0.into(), value.into()];
    let mut pointers = pointers(&mut arguments);
    let params = kernel_params(own.kernel(c"store"), &mut pointers);
    // SAFETY: the kernel takes an address of at least 32 words, and a word.
    unsafe { graph_node::add_kernel(&own.api, graph, after, &params) }.unwrap()
}

/// Adds one to a word.
pub(crate) unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the tests hand over words that live until their streams are done.
    let word = unsafe { &*data.cast::<AtomicU32>() };
    word.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn call_of(word: &AtomicU32) -> CUDA_HOST_NODE_PARAMS {
    CUDA_HOST_NODE_PARAMS { func: Some(count), userData: from_ref(word).cast_mut().cast() }
}

pub(crate) fn event(own: &Context) -> CUevent {
    event::create(&own.api, event_flags::DISABLE_TIMING).unwrap()
}

fn word(own: &Context, from: CUdeviceptr) -> u32 {
    u32::from_le_bytes(own.read(from, 4).try_into().unwrap())
}

#[test]
fn a_node_runs_after_the_nodes_that_it_depends_on() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(8192));
    // Added in the wrong order: the dependencies decide.
    let last = add_copy(&own, graph, &[], at(block, 4096), block);
    let middle = add_store(&own, graph, &[], block, 40);
    let first = add_fill(&own, graph, &[], block, 0);
    graph::add_edges(&own.api, graph, &[middle, first], &[last, middle]).unwrap();
    run(&own, ready(&own, graph));
    assert_eq!(word(&own, at(block, 4096)), 40);
    assert_eq!(word(&own, at(block, 4096 + 31 * 4)), 71);
    assert_eq!(own.byte(at(block, 4096 + 128), 4096 - 128), 0);
}

#[test]
fn a_graph_tells_its_nodes_roots_and_edges() {
    let own = Context::create();
    let graph = new_graph(&own);
    let root = graph_node::add_empty(&own.api, graph, &[]).unwrap();
    let left = graph_node::add_empty(&own.api, graph, &[root]).unwrap();
    let right = graph_node::add_empty(&own.api, graph, &[root]).unwrap();
    let end = graph_node::add_empty(&own.api, graph, &[left, right]).unwrap();
    let sorted = |mut nodes: Vec<CUgraphNode>| {
        nodes.sort();
        nodes
    };
    let mut all = vec![root, left, right, end];
    all.sort();
    assert_eq!(sorted(graph::nodes(&own.api, graph, 9).unwrap()), all);
    assert_eq!(graph::node_count(&own.api, graph), Ok(4));
    assert_eq!(graph::roots(&own.api, graph, 9).unwrap(), [root]);
    let mut edges = graph::edges(&own.api, graph, 9).unwrap();
    edges.sort();
    let mut expected = vec![(root, left), (root, right), (left, end), (right, end)];
    expected.sort();
    assert_eq!(edges, expected);
    assert_eq!(graph::edges(&own.api, graph, 2).unwrap().len(), 2);
    let with_data = graph::edges_with_data(&own.api, graph, 9).unwrap();
    assert!(with_data.len() == 4 && with_data.iter().all(|(.., data)| *data == CUgraphEdgeData::default()));
    assert_eq!(sorted(graph_node::dependencies(&own.api, end, 9).unwrap()), sorted(vec![left, right]));
    assert_eq!(sorted(graph_node::dependents(&own.api, root, 9).unwrap()), sorted(vec![left, right]));
    assert_eq!(graph_node::dependencies(&own.api, root, 9).unwrap(), []);
    assert_eq!(graph_node::dependents_with_data(&own.api, end, 9).unwrap(), []);
    assert_eq!(graph_node::kind(&own.api, end), Ok(CUgraphNodeType::EMPTY));
}

#[test]
fn edges_are_added_and_removed_all_or_none() {
    let own = Context::create();
    let (graph, other) = (new_graph(&own), new_graph(&own));
    let node = |graph| graph_node::add_empty(&own.api, graph, &[]).unwrap();
    let (a, b, c, foreign) = (node(graph), node(graph), node(graph), node(other));
    let add = |from: &[_], to: &[_]| graph::add_edges(&own.api, graph, from, to);
    let remove = |from: &[_], to: &[_]| graph::remove_edges(&own.api, graph, from, to);
    let edges = || graph::edges(&own.api, graph, 9).unwrap();
    add(&[a], &[b]).unwrap();
    // An edge that exists, and one to a node of another graph.
    assert_eq!(add(&[b, a], &[c, b]).code(), CUerror::INVALID_VALUE);
    assert_eq!(add(&[b], &[foreign]).code(), CUerror::INVALID_VALUE);
    assert_eq!(edges(), [(a, b)]);
    add(&[b], &[c]).unwrap();
    assert_eq!(remove(&[a, a], &[b, c]).code(), CUerror::INVALID_VALUE);
    assert_eq!(edges().len(), 2);
    remove(&[a], &[b]).unwrap();
    assert_eq!(edges(), [(b, c)]);
    let data = [CUgraphEdgeData::default()];
    graph::add_edges_with_data(&own.api, graph, &[a], &[b], &data).unwrap();
    graph::remove_edges_with_data(&own.api, graph, &[a], &[b], &data).unwrap();
    assert_eq!(edges(), [(b, c)]);
}

#[test]
fn dependencies_are_distinct_nodes_of_the_same_graph() {
    let own = Context::create();
    let (graph, other) = (new_graph(&own), new_graph(&own));
    let own_node = graph_node::add_empty(&own.api, graph, &[]).unwrap();
    let foreign = graph_node::add_empty(&own.api, other, &[]).unwrap();
    for after in [&[foreign][..], &[own_node, own_node], &[CUgraphNode::NULL]] {
        assert_eq!(graph_node::add_empty(&own.api, graph, after).code(), CUerror::INVALID_VALUE);
    }
    assert_eq!(graph::node_count(&own.api, graph), Ok(1));
}

#[test]
fn a_graph_with_a_cycle_is_not_instantiated() {
    let own = Context::create();
    let graph = new_graph(&own);
    let first = graph_node::add_empty(&own.api, graph, &[]).unwrap();
    let second = graph_node::add_empty(&own.api, graph, &[first]).unwrap();
    graph::add_edges(&own.api, graph, &[second], &[first]).unwrap();
    assert_eq!(graph::instantiate(&own.api, graph, 0).code(), CUerror::INVALID_VALUE);
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::default();
    assert_eq!(graph_exec::instantiate(&own.api, graph, &mut params).code(), CUerror::INVALID_VALUE);
    assert_eq!(params.result_out, CUgraphInstantiateResult::INVALID_STRUCTURE);
    assert!([first, second].contains(&params.hErrNode_out));
    graph::remove_edges(&own.api, graph, &[second], &[first]).unwrap();
    let exec = graph_exec::instantiate(&own.api, graph, &mut params).unwrap();
    assert_eq!((params.result_out, params.hErrNode_out), (CUgraphInstantiateResult::SUCCESS, CUgraphNode::NULL));
    assert_eq!(graph_exec::flags(&own.api, exec), Ok(0));
}

#[test]
fn a_removed_node_leaves_its_graph_with_its_edges() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let first = add_fill(&own, graph, &[], block, 1);
    let second = add_fill(&own, graph, &[first], block, 2);
    let third = graph_node::add_empty(&own.api, graph, &[second]).unwrap();
    graph_node::destroy(&own.api, second).unwrap();
    assert_eq!(graph::node_count(&own.api, graph), Ok(2));
    assert_eq!(graph::edges(&own.api, graph, 9).unwrap(), []);
    assert_eq!(graph_node::dependencies(&own.api, third, 9).unwrap(), []);
    run(&own, ready(&own, graph));
    assert_eq!(own.byte(block, 4096), 1);
}

#[test]
fn a_kernel_node_tells_its_parameters_and_takes_others() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let node = add_store(&own, graph, &[], block, 5);
    assert_eq!(graph_node::kind(&own.api, node), Ok(CUgraphNodeType::KERNEL));
    let params = graph_node::kernel(&own.api, node).unwrap();
    assert_eq!((params.gridDimX, params.blockDimX, params.blockDimY, params.sharedMemBytes), (1, 32, 1, 0));
    // SAFETY: the node's list has two arguments, an address and a word.
    let arguments = unsafe { params.kernelParams.cast::<[*const u64; 2]>().read() };
    // SAFETY: the first argument has eight bytes.
    assert_eq!(unsafe { arguments[0].read() }, block.0);
    // SAFETY: the second argument has four bytes.
    assert_eq!(unsafe { arguments[1].cast::<u32>().read() }, 5);
    let mut changed = [block.0.into(), 60u32.into()];
    let mut pointers = pointers(&mut changed);
    let params = CUDA_KERNEL_NODE_PARAMS { blockDimX: 64, kernelParams: pointers.as_mut_ptr(), ..params };
    // SAFETY: the kernel takes an address of at least 64 words, and a word.
    unsafe { graph_node::set_kernel(&own.api, node, &params) }.unwrap();
    run(&own, ready(&own, graph));
    assert_eq!(word(&own, block), 60);
    assert_eq!(word(&own, at(block, 63 * 4)), 123);
}

#[test]
fn a_kernel_node_with_a_wrong_size_or_without_a_function_is_refused() {
    let own = Context::create();
    let graph = new_graph(&own);
    let nothing = kernel_params(own.kernel(c"nothing"), &mut []);
    let add = |params: &CUDA_KERNEL_NODE_PARAMS| {
        // SAFETY: the kernel takes no arguments.
        unsafe { graph_node::add_kernel(&own.api, graph, &[], params) }
    };
    add(&nothing).unwrap();
    let wrong = CUDA_KERNEL_NODE_PARAMS { blockDimX: 1025, ..nothing };
    assert_eq!(add(&wrong).code(), CUerror::INVALID_VALUE);
    assert_eq!(graph::node_count(&own.api, graph), Ok(1));
}

#[test]
fn a_kernel_node_has_attributes() {
    let own = Context::create();
    let graph = new_graph(&own);
    let nothing = kernel_params(own.kernel(c"nothing"), &mut []);
    // SAFETY: the kernel takes no arguments.
    let add = || unsafe { graph_node::add_kernel(&own.api, graph, &[], &nothing) }.unwrap();
    let (first, second) = (add(), add());
    let id = CUlaunchAttributeID::COOPERATIVE;
    let first_word = |node| graph_node::kernel_attribute(&own.api, node, id).unwrap().0[0] as u32;
    assert_eq!(first_word(first), 0);
    let value = CUlaunchAttributeValue([1, 0, 0, 0, 0, 0, 0, 0]);
    graph_node::set_kernel_attribute(&own.api, first, id, value).unwrap();
    assert_eq!((first_word(first), first_word(second)), (1, 0));
    graph_node::copy_kernel_attributes(&own.api, second, first).unwrap();
    assert_eq!(first_word(second), 1);
    run(&own, ready(&own, graph));
}

#[test]
fn copies_and_fills_tell_their_parameters_and_take_others() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(12288));
    let (second, third) = (at(block, 4096), at(block, 8192));
    fill::d8(&own.api, block, 9, 12288).unwrap();
    own.finish(CUstream::LEGACY);
    let filling = add_fill(&own, graph, &[], block, 3);
    let copying = add_copy(&own, graph, &[filling], second, block);
    assert_eq!(graph_node::fill(&own.api, filling).unwrap(), fill_params(block, 3));
    let copy = graph_node::copy(&own.api, copying).unwrap();
    assert_eq!((copy.srcDevice, copy.dstDevice, copy.WidthInBytes, copy.Height), (block, second, 4096, 1));
    graph_node::set_fill(&own.api, filling, &fill_params(second, 4)).unwrap();
    // SAFETY: the copy stays on the device.
    unsafe { graph_node::set_copy(&own.api, copying, &copy_params(third, second)) }.unwrap();
    run(&own, ready(&own, graph));
    assert_eq!((own.byte(block, 4096), own.byte(second, 8192)), (9, 4));
}

#[test]
fn a_fill_has_elements_of_one_two_or_four_bytes() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    for size in [0, 3, 8] {
        let params = CUDA_MEMSET_NODE_PARAMS { elementSize: size, width: 16, ..fill_params(block, 0) };
        let added = graph_node::add_fill(&own.api, graph, &[], &params, own.handle);
        assert_eq!(added.code(), CUerror::INVALID_VALUE, "{size}");
    }
    let params = CUDA_MEMSET_NODE_PARAMS {
        elementSize: 4,
        value: 0x0403_0201,
        pitch: 64,
        width: 4,
        height: 2,
        ..fill_params(block, 0)
    };
    graph_node::add_fill(&own.api, graph, &[], &params, own.handle).unwrap();
    run(&own, ready(&own, graph));
    assert_eq!(own.read(at(block, 64), 8), [1, 2, 3, 4, 1, 2, 3, 4]);
}

#[test]
fn a_host_node_calls_its_function_in_order() {
    let own = Context::create();
    let (graph, calls, others) = (new_graph(&own), AtomicU32::new(0), AtomicU32::new(0));
    // SAFETY: the word lives until the stream is done with the last launch.
    let node = unsafe { graph_node::add_host(&own.api, graph, &[], &call_of(&calls)) }.unwrap();
    let found = graph_node::host(&own.api, node).unwrap();
    assert_eq!(found.userData, from_ref(&calls).cast_mut().cast());
    assert!(found.func.is_some());
    let exec = ready(&own, graph);
    // SAFETY: as above.
    unsafe { graph_node::set_host(&own.api, node, &call_of(&others)) }.unwrap();
    run(&own, exec);
    run(&own, exec);
    run(&own, ready(&own, graph));
    assert_eq!((calls.load(Ordering::SeqCst), others.load(Ordering::SeqCst)), (2, 1));
    let nothing = CUDA_HOST_NODE_PARAMS { func: None, userData: null_mut() };
    // SAFETY: there is no function to call.
    let added = unsafe { graph_node::add_host(&own.api, graph, &[], &nothing) };
    assert_eq!(added.code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_child_graph_is_copied_into_its_node() {
    let own = Context::create();
    let (graph, inner, block) = (new_graph(&own), new_graph(&own), own.block(8192));
    add_fill(&own, inner, &[], block, 6);
    let child = graph_node::add_child(&own.api, graph, &[], inner).unwrap();
    add_copy(&own, graph, &[child], at(block, 4096), block);
    // What is added to the original later is not part of the copy.
    add_fill(&own, inner, &[], block, 7);
    assert_eq!(graph_node::kind(&own.api, child), Ok(CUgraphNodeType::GRAPH));
    let copy = graph_node::child(&own.api, child).unwrap();
    assert_ne!(copy, inner);
    assert_eq!(graph::node_count(&own.api, copy), Ok(1));
    graph::destroy(&own.api, inner).unwrap();
    run(&own, ready(&own, graph));
    assert_eq!(own.byte(block, 8192), 6);
    // A change of the copy is a change of the node.
    let filling = graph::nodes(&own.api, copy, 1).unwrap()[0];
    graph_node::set_fill(&own.api, filling, &fill_params(block, 8)).unwrap();
    run(&own, ready(&own, graph));
    assert_eq!(own.byte(block, 8192), 8);
}

#[test]
fn event_nodes_record_and_wait_at_each_launch() {
    let own = Context::create();
    let (graph, gate, other) = (new_graph(&own), Gate::closed(&own), own.stream());
    let (before, after, spare) = (event(&own), event(&own), event(&own));
    let waiting = graph_node::add_wait(&own.api, graph, &[], spare).unwrap();
    let recording = graph_node::add_record(&own.api, graph, &[waiting], spare).unwrap();
    assert_eq!(graph_node::kind(&own.api, waiting), Ok(CUgraphNodeType::WAIT_EVENT));
    assert_eq!(graph_node::kind(&own.api, recording), Ok(CUgraphNodeType::EVENT_RECORD));
    graph_node::set_awaited_event(&own.api, waiting, before).unwrap();
    graph_node::set_recorded_event(&own.api, recording, after).unwrap();
    assert_eq!(graph_node::awaited_event(&own.api, waiting), Ok(before));
    assert_eq!(graph_node::recorded_event(&own.api, recording), Ok(after));
    let (exec, stream) = (ready(&own, graph), own.stream());
    gate.hold(&own.api, other);
    event::record(&own.api, before, other).unwrap();
    // SAFETY: the graph uses no memory.
    gate.shut_during(|| unsafe { graph::launch(&own.api, exec, stream) }).unwrap();
    assert_eq!(event::query(&own.api, after), Ok(false));
    gate.open();
    event::synchronize(&own.api, after).unwrap();
    own.finish(stream);
}

#[test]
fn memory_operations_run_in_their_order() {
    let own = Context::create();
    let (graph, words) = (new_graph(&own), own.pinned(4096));
    words.fill(0);
    let write = |index: u64, value| CUstreamBatchMemOpParams {
        operation: CUstreamBatchMemOpType::WRITE_VALUE_32,
        address: at(words.address(), index * 4),
        value,
        ..CUstreamBatchMemOpParams::default()
    };
    let mut operations = [write(0, 3), write(1, 4), write(0, 5)];
    let params =
        CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx: own.handle, count: 3, paramArray: operations.as_mut_ptr(), flags: 0 };
    // SAFETY: the list has three operations.
    let node = unsafe { graph_node::add_mem_ops(&own.api, graph, &[], &params) }.unwrap();
    assert_eq!(graph_node::kind(&own.api, node), Ok(CUgraphNodeType::BATCH_MEM_OP));
    assert_eq!(graph_node::mem_ops(&own.api, node).unwrap().count, 3);
    run(&own, ready(&own, graph));
    assert_eq!((words.word(0), words.word(1)), (5, 4));
}

#[test]
fn a_node_of_any_kind_is_added_by_its_type() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let mut params = CUgraphNodeParams::zeroed(CUgraphNodeType::MEMSET);
    params.value.memset.params = fill_params(block, 2);
    params.value.memset.ctx = own.handle;
    // SAFETY: a fill points to no memory of the host.
    let node = unsafe { graph_node::add(&own.api, graph, &[], &mut params) }.unwrap();
    params.value.memset.params = fill_params(block, 3);
    // SAFETY: as above.
    unsafe { graph_node::set(&own.api, node, &mut params) }.unwrap();
    let mut params = CUgraphNodeParams::zeroed(CUgraphNodeType::EMPTY);
    // SAFETY: an empty node has no parameters.
    let empty = unsafe { graph_node::add_with_data(&own.api, graph, &[node], &mut params) }.unwrap();
    assert_eq!(graph_node::kind(&own.api, empty), Ok(CUgraphNodeType::EMPTY));
    // SAFETY: as above.
    let set = unsafe { graph_node::set(&own.api, node, &mut params) };
    assert_eq!(set.code(), CUerror::INVALID_VALUE);
    run(&own, ready(&own, graph));
    assert_eq!(own.byte(block, 4096), 3);
}

#[test]
fn a_copy_of_a_graph_has_nodes_of_its_own() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let first = add_fill(&own, graph, &[], block, 1);
    let second = add_fill(&own, graph, &[first], block, 2);
    let copy = graph::duplicate(&own.api, graph).unwrap();
    let found = graph_node::find_in_copy(&own.api, second, copy).unwrap();
    assert_ne!(found, second);
    let before = graph_node::find_in_copy(&own.api, first, copy).unwrap();
    assert_eq!(graph::edges(&own.api, copy, 9).unwrap(), [(before, found)]);
    graph_node::set_fill(&own.api, found, &fill_params(block, 3)).unwrap();
    run(&own, ready(&own, graph));
    assert_eq!(own.byte(block, 4096), 2);
    run(&own, ready(&own, copy));
    assert_eq!(own.byte(block, 4096), 3);
    let other = new_graph(&own);
    assert_eq!(graph_node::find_in_copy(&own.api, first, other).code(), CUerror::INVALID_VALUE);
}

#[test]
fn parameters_of_a_node_of_another_kind_are_an_invalid_value() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let node = add_fill(&own, graph, &[], block, 1);
    assert_eq!(graph_node::kernel(&own.api, node).unwrap_err().code, CUerror::INVALID_VALUE);
    assert_eq!(graph_node::copy(&own.api, node).unwrap_err().code, CUerror::INVALID_VALUE);
    assert_eq!(graph_node::host(&own.api, node).unwrap_err().code, CUerror::INVALID_VALUE);
    assert_eq!(graph_node::child(&own.api, node).code(), CUerror::INVALID_VALUE);
    assert_eq!(graph_node::awaited_event(&own.api, node).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_description_names_all_nodes() {
    let own = Context::create();
    let (graph, block) = (new_graph(&own), own.block(4096));
    let node = add_fill(&own, graph, &[], block, 1);
    graph_node::add_empty(&own.api, graph, &[node]).unwrap();
    let path = env::temp_dir().join(format!("freehold-graph-{}.dot", process::id()));
    let name = CString::new(path.to_str().unwrap()).unwrap();
    graph::write_dot(&own.api, graph, &name, 0).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(path).unwrap();
    assert!(text.starts_with("digraph") && text.contains("->"), "{text}");
}
