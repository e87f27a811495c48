//! Captures and graphs of the software driver: uncapturable calls, and lifetimes.

use crate::common;

use std::process;

use common::kernels::pointers;
use common::{Context, Refused, child};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{
    CUerror, CUgraphExec, CUgraphMem_attribute, CUstream, CUstreamCaptureMode, capture, context, device, event,
    event_flags, fill, graph, memory, stream,
};

fn begin(own: &Context, stream: CUstream) {
    capture::begin(&own.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
}

fn end(own: &Context, stream: CUstream) -> CUgraphExec {
    let graph = capture::end(&own.api, stream).unwrap();
    let exec = graph::instantiate(&own.api, graph, 0).unwrap();
    graph::destroy(&own.api, graph).unwrap();
    exec
}

fn launch(own: &Context, exec: CUgraphExec, stream: CUstream) {
    // SAFETY: the graphs of these tests use memory of the device only, which lives until their streams are done.
    unsafe { graph::launch(&own.api, exec, stream) }.unwrap();
}

#[test]
fn memory_outside_graphs_is_not_freed_in_a_captured_stream() {
    let own = Context::create();
    let stream = own.stream();
    let block = memory::alloc_async(&own.api, 4096, stream).unwrap();
    begin(&own, stream);
    assert_eq!(memory::free_async(&own.api, block, stream).code(), CUerror::INVALID_VALUE);
    end(&own, stream);
    memory::free_async(&own.api, block, stream).unwrap();
    own.finish(stream);
}

#[test]
fn memory_of_a_graph_that_is_not_allocated_is_refused_outside_the_graph() {
    let own = Context::create();
    let stream = own.stream();
    begin(&own, stream);
    let block = memory::alloc_async(&own.api, 4096, stream).unwrap();
    fill::d8_async(&own.api, block, 1, 4096, stream).unwrap();
    let exec = end(&own, stream);
    let filled = || fill::d8_async(&own.api, block, 2, 4096, stream);
    assert_eq!(filled().code(), CUerror::INVALID_VALUE);
    launch(&own, exec, stream);
    filled().unwrap();
    memory::free_async(&own.api, block, stream).unwrap();
    assert_eq!(filled().code(), CUerror::INVALID_VALUE);
    own.finish(stream);
}

#[test]
fn a_kernel_that_uses_memory_of_a_graph_after_its_free_node_faults() {
    child::run_in_child("a_kernel_that_uses_memory_of_a_graph_after_its_free_node_faults", || {
        let own = Context::create();
        let (stream, store) = (own.stream(), own.kernel(c"store"));
        begin(&own, stream);
        let block = memory::alloc_async(&own.api, 4096, stream).unwrap();
        own.run(store, LaunchConfig::linear(1, 32), stream, &[block.0.into(), 1u32.into()]).unwrap();
        memory::free_async(&own.api, block, stream).unwrap();
        let exec = end(&own, stream);
        launch(&own, exec, stream);
        own.finish(stream);
        own.run(store, LaunchConfig::linear(1, 32), stream, &[block.0.into(), 1u32.into()]).unwrap();
        assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_ADDRESS);
        std::mem::forget(own);
    });
}

#[test]
fn memory_of_graphs_is_returned_with_its_graph_or_by_a_trim() {
    let machine = format!("graph-memory-{}", process::id());
    let variables = [("FREEHOLD_SOFT_MACHINE", machine.as_str())];
    child::run_in_child_with("memory_of_graphs_is_returned_with_its_graph_or_by_a_trim", &variables, || {
        const BYTES: usize = 4 << 20;
        let own = Context::create();
        let (free_bytes, stream) = (|| memory::info(&own.api).unwrap().free_bytes, own.stream());
        let before = free_bytes();
        let reserved = CUgraphMem_attribute::RESERVED_MEM_CURRENT;
        let used = || (before - free_bytes(), device::graph_memory(&own.api, own.device, reserved).unwrap());
        begin(&own, stream);
        let block = memory::alloc_async(&own.api, BYTES, stream).unwrap();
        fill::d8_async(&own.api, block, 1, BYTES, stream).unwrap();
        memory::free_async(&own.api, block, stream).unwrap();
        let exec = end(&own, stream);
        assert_eq!(used(), (0, 0));
        launch(&own, exec, stream);
        own.finish(stream);
        assert_eq!(used(), (BYTES, BYTES as u64));
        device::trim_graph_memory(&own.api, own.device).unwrap();
        assert_eq!(used(), (0, 0));
        launch(&own, exec, stream);
        own.finish(stream);
        graph::destroy_exec(&own.api, exec).unwrap();
        assert_eq!(used(), (0, 0));
    });
}

#[test]
fn the_blocks_of_a_cooperative_kernel_wait_for_each_other_at_each_launch_of_a_graph() {
    let own = Context::create();
    let (gather, arrived, stream) = (own.kernel(c"gather"), own.block(4), own.stream());
    begin(&own, stream);
    fill::d32_async(&own.api, arrived, 0, 1, stream).unwrap();
    let mut arguments = [arrived.0.into()];
    // SAFETY: the kernel takes an address, of a word that lives until the graph has run.
    unsafe {
        launch::cooperative(&own.api, gather, LaunchConfig::linear(132, 32), stream, &mut pointers(&mut arguments))
    }
    .unwrap();
    let exec = end(&own, stream);
    for _ in 0..3 {
        launch(&own, exec, stream);
    }
    own.finish(stream);
}

#[test]
fn a_stream_that_came_back_may_be_destroyed_before_the_end_of_its_capture() {
    let own = Context::create();
    let (first, block) = (own.stream(), own.block(4096));
    let mark = event::create(&own.api, event_flags::DISABLE_TIMING).unwrap();
    for comes_back in [true, false] {
        let second = own.stream();
        begin(&own, first);
        event::record(&own.api, mark, first).unwrap();
        stream::wait_event(&own.api, second, mark, 0).unwrap();
        fill::d8_async(&own.api, block, 5, 4096, second).unwrap();
        if comes_back {
            event::record(&own.api, mark, second).unwrap();
            stream::wait_event(&own.api, first, mark, 0).unwrap();
        }
        stream::destroy(&own.api, second).unwrap();
        if comes_back {
            launch(&own, end(&own, first), first);
            own.finish(first);
            assert_eq!(own.byte(block, 4096), 5);
        } else {
            assert_eq!(capture::end(&own.api, first).code(), CUerror::STREAM_CAPTURE_UNJOINED);
        }
    }
}

#[test]
fn a_capture_ends_with_the_stream_where_it_began() {
    let own = Context::create();
    let (first, second) = (own.blocking(), own.stream());
    let mark = event::create(&own.api, event_flags::DISABLE_TIMING).unwrap();
    begin(&own, first);
    event::record(&own.api, mark, first).unwrap();
    stream::wait_event(&own.api, second, mark, 0).unwrap();
    stream::destroy(&own.api, first).unwrap();
    own.finish(second);
    own.finish(CUstream::LEGACY);
    assert_eq!(event::query(&own.api, mark).code(), CUerror::CAPTURED_EVENT);
    context::synchronize(&own.api).unwrap();
}

#[test]
fn a_capture_ends_with_its_context() {
    let own = Context::create();
    let other = own.another();
    begin(&other, other.stream());
    other.destroy();
    own.enter();
    context::synchronize(&own.api).unwrap();
    own.finish(CUstream::LEGACY);
}
