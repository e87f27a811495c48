//! Nodes that allocate and free memory, and objects of the program that graphs keep alive.

use crate::common;
use crate::graph::{add_fill, new_graph, ready, run};

use std::ffi::c_void;
use std::ptr::from_ref;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Context, Gate, Refused, until};
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUgraph, CUgraphMem_attribute, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUmemPoolProps, CUstream, CUstreamCaptureMode, CUuserObject, capture, copy, device, fill, graph, graph_flags,
    graph_node, graph_user_object_flags, memory, user_object,
};

fn add_alloc(own: &Context, graph: CUgraph, bytes: usize) -> (CUgraphNode, CUdeviceptr) {
    graph_node::add_alloc(&own.api, graph, &[], own.device, bytes).unwrap()
}

#[test]
fn memory_of_a_graph_is_used_between_its_two_nodes() {
    let own = Context::create();
    let (graph, result) = (new_graph(&own), own.block(4096));
    let (alloc, block) = add_alloc(&own, graph, 4096);
    let filled = add_fill(&own, graph, &[alloc], block, 5);
    let copied = crate::graph::add_copy(&own, graph, &[filled], result, block);
    let free = graph_node::add_free(&own.api, graph, &[copied], block).unwrap();
    assert_eq!(graph_node::kind(&own.api, alloc), Ok(CUgraphNodeType::MEM_ALLOC));
    assert_eq!(graph_node::kind(&own.api, free), Ok(CUgraphNodeType::MEM_FREE));
    let params = graph_node::alloc(&own.api, alloc).unwrap();
    assert_eq!((params.bytesize, params.dptr), (4096, block));
    assert_eq!(graph_node::freed(&own.api, free), Ok(block));
    let exec = ready(&own, graph);
    for _ in 0..3 {
        run(&own, exec);
        assert_eq!(own.byte(result, 4096), 5);
    }
    // It was freed in its own graph.
    assert_eq!(memory::free(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn memory_that_a_graph_does_not_free_lives_until_it_is_freed() {
    let own = Context::create();
    let (graph, stream) = (new_graph(&own), own.stream());
    let (alloc, block) = add_alloc(&own, graph, 4096);
    add_fill(&own, graph, &[alloc], block, 6);
    let exec = ready(&own, graph);
    run(&own, exec);
    assert_eq!(own.byte(block, 4096), 6);
    // A second launch would allocate it again.
    // SAFETY: the graph fills its own memory.
    assert_eq!(unsafe { graph::launch(&own.api, exec, stream) }.code(), CUerror::INVALID_VALUE);
    memory::free_async(&own.api, block, stream).unwrap();
    own.finish(stream);
    run(&own, exec);
    assert_eq!(own.byte(block, 4096), 6);
    memory::free(&own.api, block).unwrap();
    assert_eq!(memory::free(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_graph_may_free_memory_of_its_last_launch_by_itself() {
    let own = Context::create();
    let graph = new_graph(&own);
    let (alloc, block) = add_alloc(&own, graph, 4096);
    add_fill(&own, graph, &[alloc], block, 7);
    let exec = graph::instantiate(&own.api, graph, graph_flags::AUTO_FREE_ON_LAUNCH).unwrap();
    for _ in 0..3 {
        run(&own, exec);
        assert_eq!(own.byte(block, 4096), 7);
    }
    memory::free(&own.api, block).unwrap();
}

#[test]
fn another_graph_frees_memory_of_a_graph() {
    let own = Context::create();
    let (graph, other) = (new_graph(&own), new_graph(&own));
    let (_, block) = add_alloc(&own, graph, 4096);
    graph_node::add_free(&own.api, other, &[], block).unwrap();
    assert_eq!(graph_node::add_free(&own.api, graph, &[], block).code(), CUerror::INVALID_VALUE);
    let (first, second) = (ready(&own, graph), ready(&own, other));
    for _ in 0..2 {
        run(&own, first);
        run(&own, second);
    }
}

#[test]
fn a_free_node_is_for_memory_of_a_graph_that_is_not_freed_yet() {
    let own = Context::create();
    let (graph, other, plain) = (new_graph(&own), new_graph(&own), own.block(4096));
    let (alloc, block) = add_alloc(&own, graph, 4096);
    let free = |graph, block| graph_node::add_free(&own.api, graph, &[], block);
    assert_eq!(free(graph, plain).code(), CUerror::INVALID_VALUE);
    graph_node::add_free(&own.api, graph, &[alloc], block).unwrap();
    assert_eq!(free(graph, block).code(), CUerror::INVALID_VALUE);
    assert_eq!(free(other, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_graph_with_memory_nodes_keeps_its_structure_and_has_one_instance() {
    let own = Context::create();
    let (graph, other) = (new_graph(&own), new_graph(&own));
    let (alloc, block) = add_alloc(&own, graph, 4096);
    let free = graph_node::add_free(&own.api, graph, &[alloc], block).unwrap();
    graph_node::destroy(&own.api, free).unwrap_err();
    graph::remove_edges(&own.api, graph, &[alloc], &[free]).unwrap_err();
    graph::duplicate(&own.api, graph).unwrap_err();
    graph_node::add_child(&own.api, other, &[], graph).unwrap_err();
    let exec = ready(&own, graph);
    assert_eq!(graph::instantiate(&own.api, graph, 0).code(), CUerror::NOT_SUPPORTED);
    graph::destroy_exec(&own.api, exec).unwrap();
    run(&own, ready(&own, graph));
}

#[test]
fn captured_allocations_become_nodes() {
    let own = Context::create();
    let (stream, result) = (own.stream(), own.block(4096));
    capture::begin(&own.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
    let block = memory::alloc_async(&own.api, 4096, stream).unwrap();
    fill::d8_async(&own.api, block, 8, 4096, stream).unwrap();
    copy::device_to_device_async(&own.api, result, block, 4096, stream).unwrap();
    memory::free_async(&own.api, block, stream).unwrap();
    let graph = capture::end(&own.api, stream).unwrap();
    assert_eq!(graph::node_count(&own.api, graph), Ok(4));
    let exec = ready(&own, graph);
    run(&own, exec);
    run(&own, exec);
    assert_eq!(own.byte(result, 4096), 8);
}

#[test]
fn an_allocation_node_is_added_by_its_type() {
    let own = Context::create();
    let graph = new_graph(&own);
    let mut params = CUgraphNodeParams::zeroed(CUgraphNodeType::MEM_ALLOC);
    params.value.alloc.poolProps = CUmemPoolProps::on_device(own.device);
    params.value.alloc.bytesize = 4096;
    // SAFETY: the parameters hold no list.
    let alloc = unsafe { graph_node::add(&own.api, graph, &[], &mut params) }.unwrap();
    // SAFETY: the parameters are still those of an allocation.
    let block = unsafe { params.value.alloc }.dptr;
    assert_ne!(block, CUdeviceptr::NULL);
    let mut params = CUgraphNodeParams::zeroed(CUgraphNodeType::MEM_FREE);
    params.value.free = block;
    // SAFETY: an address on the device is no pointer to memory of the host.
    let free = unsafe { graph_node::add(&own.api, graph, &[alloc], &mut params) }.unwrap();
    assert_eq!(graph_node::freed(&own.api, free), Ok(block));
    run(&own, ready(&own, graph));
}

#[test]
fn the_high_water_mark_of_graph_memory_is_reset() {
    let own = Context::create();
    let graph = new_graph(&own);
    let read = |attribute| device::graph_memory(&own.api, own.device, attribute).unwrap();
    let (_, block) = add_alloc(&own, graph, 3 << 20);
    run(&own, ready(&own, graph));
    assert!(read(CUgraphMem_attribute::USED_MEM_HIGH) >= 3 << 20);
    assert!(read(CUgraphMem_attribute::RESERVED_MEM_CURRENT) >= 3 << 20);
    memory::free(&own.api, block).unwrap();
    let reset = |attribute| device::reset_graph_memory(&own.api, own.device, attribute);
    reset(CUgraphMem_attribute::USED_MEM_HIGH).unwrap();
    reset(CUgraphMem_attribute::RESERVED_MEM_HIGH).unwrap();
    assert_eq!(reset(CUgraphMem_attribute::USED_MEM_CURRENT).code(), CUerror::INVALID_VALUE);
    device::trim_graph_memory(&own.api, own.device).unwrap();
}

/// Counts destroyed objects.
unsafe extern "C" fn destroyed(data: *mut c_void) {
    // SAFETY: the tests hand over words that live until their destructors have run.
    let count = unsafe { &*data.cast::<AtomicU32>() };
    count.fetch_add(1, Ordering::SeqCst);
}

fn new_object(own: &Context, count: &AtomicU32, references: u32) -> CUuserObject {
    let data = from_ref(count).cast_mut().cast();
    // SAFETY: the word lives until the test has seen the destructor run.
    unsafe { user_object::create(&own.api, data, destroyed, references) }.unwrap()
}

#[test]
fn an_object_is_destroyed_with_its_last_reference() {
    let own = Context::create();
    let count = AtomicU32::new(0);
    let object = new_object(&own, &count, 2);
    user_object::retain(&own.api, object, 1).unwrap();
    user_object::release(&own.api, object, 2).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    user_object::release(&own.api, object, 1).unwrap();
    until(|| count.load(Ordering::SeqCst) == 1);
}

#[test]
fn graphs_their_copies_and_their_launches_keep_an_object_alive() {
    let own = Context::create();
    let (graph, stream, gate) = (new_graph(&own), own.stream(), Gate::closed(&own));
    let count = AtomicU32::new(0);
    let object = new_object(&own, &count, 1);
    user_object::retain_by_graph(&own.api, graph, object, 1, graph_user_object_flags::MOVE).unwrap();
    graph_node::add_empty(&own.api, graph, &[]).unwrap();
    let copy = graph::duplicate(&own.api, graph).unwrap();
    let exec = ready(&own, copy);
    graph::destroy(&own.api, graph).unwrap();
    graph::destroy(&own.api, copy).unwrap();
    gate.hold(&own.api, stream);
    // SAFETY: the graph does nothing.
    unsafe { graph::launch(&own.api, exec, stream) }.unwrap();
    graph::destroy_exec(&own.api, exec).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    gate.open();
    own.finish(stream);
    until(|| count.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_graph_gives_up_its_references() {
    let own = Context::create();
    let (graph, count) = (new_graph(&own), AtomicU32::new(0));
    let object = new_object(&own, &count, 1);
    user_object::retain_by_graph(&own.api, graph, object, 2, 0).unwrap();
    user_object::release(&own.api, object, 1).unwrap();
    user_object::release_by_graph(&own.api, graph, object, 1).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    user_object::release_by_graph(&own.api, graph, object, 1).unwrap();
    until(|| count.load(Ordering::SeqCst) == 1);
    own.finish(CUstream::LEGACY);
}

#[test]
fn a_number_of_references_is_not_zero() {
    let own = Context::create();
    let count = AtomicU32::new(0);
    let object = new_object(&own, &count, 1);
    assert_eq!(user_object::retain(&own.api, object, 0).code(), CUerror::INVALID_VALUE);
    assert_eq!(user_object::release(&own.api, object, 0).code(), CUerror::INVALID_VALUE);
    user_object::release(&own.api, object, 1).unwrap();
    until(|| count.load(Ordering::SeqCst) == 1);
}
