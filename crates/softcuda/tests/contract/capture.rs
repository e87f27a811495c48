//! Captures and graphs: which calls become nodes, the order of nodes, and the calls that a capture forbids.

use crate::common;

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use common::{Context, Gate, Refused, at, child, same};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUerror, CUevent, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNodeType, CUlaunchAttributeID, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus, capture, capture_dependency_flags, context, copy, event, event_flags,
    fill, graph, graph_flags, graph_node, memory, stream, stream_flags,
};

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::GLOBAL;
const THREAD_LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::RELAXED;

/// Serializes the tests: a global capture forbids calls in all threads.
static TURN: Mutex<()> = Mutex::new(());

/// A context, held while no other test of this file has one.
struct Alone {
    context: Context,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Alone {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

fn alone() -> Alone {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Alone { context: Context::create(), _turn: turn }
}

/// Captures the work that `work` submits to a stream.
fn captured(own: &Context, stream: CUstream, work: impl FnOnce()) -> CUgraph {
    capture::begin(&own.api, stream, THREAD_LOCAL).unwrap();
    work();
    capture::end(&own.api, stream).unwrap()
}

fn ready(own: &Context, graph: CUgraph) -> CUgraphExec {
    graph::instantiate(&own.api, graph, 0).unwrap()
}

fn launch(own: &Context, exec: CUgraphExec, stream: CUstream) {
    // SAFETY: what the graphs of these tests use lives until their streams are done.
    unsafe { graph::launch(&own.api, exec, stream) }.unwrap();
}

fn event(own: &Context) -> CUevent {
    event::create(&own.api, event_flags::DISABLE_TIMING).unwrap()
}

fn status(own: &Context, stream: CUstream) -> CUstreamCaptureStatus {
    stream::capture_status(&own.api, stream).unwrap()
}

/// Ends an invalidated capture.
#[track_caller]
fn ends_spoilt(own: &Context, stream: CUstream) {
    assert_eq!(status(own, stream), CUstreamCaptureStatus::INVALIDATED);
    assert_eq!(capture::end(&own.api, stream).code(), CUerror::STREAM_CAPTURE_INVALIDATED);
    assert_eq!(status(own, stream), CUstreamCaptureStatus::NONE);
}

#[test]
fn captured_work_runs_whenever_its_graph_is_launched_and_not_before() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(4096));
    fill::d8(&own.api, block, 1, 4096).unwrap();
    own.finish(CUstream::LEGACY);
    let graph = captured(&own, stream, || fill::d8_async(&own.api, block, 2, 4096, stream).unwrap());
    own.finish(stream);
    assert_eq!(own.byte(block, 4096), 1);
    let exec = ready(&own, graph);
    for _ in 0..3 {
        fill::d8(&own.api, block, 3, 4096).unwrap();
        own.finish(CUstream::LEGACY);
        launch(&own, exec, stream);
        own.finish(stream);
        assert_eq!(own.byte(block, 4096), 2);
    }
    graph::destroy_exec(&own.api, exec).unwrap();
    graph::destroy(&own.api, graph).unwrap();
}

#[test]
fn nodes_run_in_the_order_of_the_stream_they_were_captured_in() {
    let own = alone();
    let (stream, block, host) = (own.stream(), own.block(8192), own.pinned(4096));
    let store = own.kernel(c"store");
    let graph = captured(&own, stream, || {
        fill::d8_async(&own.api, block, 7, 4096, stream).unwrap();
        own.run(store, LaunchConfig::linear(1, 32), stream, &[block.0.into(), 100u32.into()]).unwrap();
        copy::device_to_device_async(&own.api, at(block, 4096), block, 4096, stream).unwrap();
        fill::d8_async(&own.api, block, 0, 4096, stream).unwrap();
        // SAFETY: the pinned memory lives until the graph has run.
        unsafe { copy::device_to_host_async(&own.api, host.pointer(), at(block, 4096), 4096, stream) }.unwrap();
    });
    assert_eq!(graph::node_count(&own.api, graph), Ok(5));
    assert_eq!(graph::nodes(&own.api, graph, 3).unwrap().len(), 3);
    launch(&own, ready(&own, graph), stream);
    own.finish(stream);
    assert_eq!(host.word(0), 100);
    assert_eq!(host.word(31), 131);
    assert_eq!(same(&host.to_vec()[128..]), 7);
    assert_eq!(own.byte(block, 4096), 0);
}

#[test]
fn a_graph_reads_pageable_memory_when_it_runs() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(4096));
    let bytes = [const { AtomicU32::new(0x0101_0101) }; 16];
    let start = bytes.as_ptr().cast_mut().cast::<c_void>();
    let graph = captured(&own, stream, || {
        // SAFETY: the words live until the graph has run for the last time.
        unsafe { copy::host_to_device_async(&own.api, block, start, 64, stream) }.unwrap();
    });
    let exec = ready(&own, graph);
    for value in [0x0202_0202, 0x0303_0303] {
        bytes.iter().for_each(|word| word.store(value, Ordering::SeqCst));
        launch(&own, exec, stream);
        own.finish(stream);
        assert_eq!(own.byte(block, 64), value as u8);
    }
}

#[test]
fn a_function_of_the_host_is_called_at_each_launch() {
    unsafe extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test hands over a word that lives until its stream is done.
        let count = unsafe { &*data.cast::<AtomicU32>() };
        count.fetch_add(1, Ordering::SeqCst);
    }
    let own = alone();
    let (stream, calls) = (own.stream(), AtomicU32::new(0));
    let data = std::ptr::from_ref(&calls).cast_mut().cast();
    let graph = captured(&own, stream, || {
        // SAFETY: the word lives until the stream is done with the last launch.
        unsafe { stream::launch_host(&own.api, stream, count, data) }.unwrap();
    });
    let exec = ready(&own, graph);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    launch(&own, exec, stream);
    launch(&own, exec, stream);
    own.finish(stream);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn launches_of_one_graph_do_not_overlap_in_two_streams() {
    let own = alone();
    let (first, second, gate, written) = (own.stream(), own.stream(), Gate::closed(&own), own.pinned(4));
    written.fill(0);
    let graph = captured(&own, first, || {
        stream::write_value_32(&own.api, first, written.address(), 1, 0).unwrap();
    });
    let exec = ready(&own, graph);
    gate.hold(&own.api, first);
    gate.shut_during(|| launch(&own, exec, first));
    gate.shut_during(|| launch(&own, exec, second));
    gate.opened_during(|| own.finish(second));
    assert_eq!(written.word(0), 1);
    own.finish(first);
}

#[test]
fn what_a_graph_was_when_it_was_made_ready_outlives_it() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(4096));
    let graph = captured(&own, stream, || fill::d8_async(&own.api, block, 9, 4096, stream).unwrap());
    let copy = graph::duplicate(&own.api, graph).unwrap();
    let exec = ready(&own, copy);
    graph::destroy(&own.api, graph).unwrap();
    graph::destroy(&own.api, copy).unwrap();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    launch(&own, exec, stream);
    graph::destroy_exec(&own.api, exec).unwrap();
    gate.open();
    own.finish(stream);
    assert_eq!(own.byte(block, 4096), 9);
}

#[test]
fn an_empty_capture_is_an_empty_graph() {
    let own = alone();
    let stream = own.stream();
    let graph = captured(&own, stream, || {});
    assert_eq!(graph::node_count(&own.api, graph), Ok(0));
    launch(&own, ready(&own, graph), stream);
    own.finish(stream);
    let made = graph::create(&own.api, 0).unwrap();
    assert_eq!(graph::node_count(&own.api, made), Ok(0));
    assert_eq!(graph::create(&own.api, 1).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_stream_that_waits_for_a_captured_event_becomes_part_of_the_capture() {
    let own = alone();
    let (first, second, block) = (own.stream(), own.stream(), own.block(12288));
    let (fork, join) = (event(&own), event(&own));
    let graph = captured(&own, first, || {
        fill::d8_async(&own.api, block, 1, 4096, first).unwrap();
        event::record(&own.api, fork, first).unwrap();
        assert_eq!(status(&own, second), CUstreamCaptureStatus::NONE);
        stream::wait_event(&own.api, second, fork, 0).unwrap();
        assert_eq!(status(&own, second), CUstreamCaptureStatus::ACTIVE);
        copy::device_to_device_async(&own.api, at(block, 4096), block, 4096, second).unwrap();
        event::record(&own.api, join, second).unwrap();
        stream::wait_event(&own.api, first, join, 0).unwrap();
        copy::device_to_device_async(&own.api, at(block, 8192), at(block, 4096), 4096, first).unwrap();
    });
    assert_eq!(status(&own, second), CUstreamCaptureStatus::NONE);
    assert_eq!(graph::node_count(&own.api, graph), Ok(3));
    launch(&own, ready(&own, graph), first);
    own.finish(first);
    assert_eq!(own.byte(block, 12288), 1);
}

#[test]
fn a_capture_that_a_stream_did_not_come_back_to_is_unjoined() {
    let own = alone();
    let (first, second, block, fork) = (own.stream(), own.stream(), own.block(4096), event(&own));
    capture::begin(&own.api, first, THREAD_LOCAL).unwrap();
    event::record(&own.api, fork, first).unwrap();
    stream::wait_event(&own.api, second, fork, 0).unwrap();
    fill::d8_async(&own.api, block, 1, 4096, second).unwrap();
    assert_eq!(capture::end(&own.api, first).code(), CUerror::STREAM_CAPTURE_UNJOINED);
    assert_eq!(status(&own, first), CUstreamCaptureStatus::NONE);
    assert_eq!(status(&own, second), CUstreamCaptureStatus::NONE);
}

#[test]
fn a_capture_ends_in_the_stream_where_it_began() {
    let own = alone();
    let (first, second, fork) = (own.stream(), own.stream(), event(&own));
    assert_eq!(capture::end(&own.api, first).code(), CUerror::ILLEGAL_STATE);
    capture::begin(&own.api, first, THREAD_LOCAL).unwrap();
    assert_eq!(capture::begin(&own.api, first, THREAD_LOCAL).code(), CUerror::ILLEGAL_STATE);
    event::record(&own.api, fork, first).unwrap();
    stream::wait_event(&own.api, second, fork, 0).unwrap();
    assert_eq!(capture::end(&own.api, second).code(), CUerror::STREAM_CAPTURE_UNMATCHED);
    // Whether that invalidated the capture is not part of the rule.
    capture::end(&own.api, first).ok();
    assert_eq!(status(&own, first), CUstreamCaptureStatus::NONE);
}

#[test]
fn a_capture_ends_in_the_thread_where_it_began_unless_it_is_relaxed() {
    child::run_in_child("a_capture_ends_in_the_thread_where_it_began_unless_it_is_relaxed", || {
        let own = alone();
        let stream = own.stream();
        let end_elsewhere = || {
            thread::scope(|scope| {
                let ended = scope.spawn(|| {
                    own.enter();
                    capture::end(&own.api, stream)
                });
                ended.join().unwrap()
            })
        };
        for mode in [GLOBAL, THREAD_LOCAL] {
            capture::begin(&own.api, stream, mode).unwrap();
            assert_eq!(end_elsewhere().code(), CUerror::STREAM_CAPTURE_WRONG_THREAD);
            capture::end(&own.api, stream).ok();
            assert_eq!(status(&own, stream), CUstreamCaptureStatus::NONE);
        }
        capture::begin(&own.api, stream, RELAXED).unwrap();
        end_elsewhere().unwrap();
    });
}

#[test]
fn an_unknown_mode_and_the_legacy_stream_are_refused() {
    let own = alone();
    let stream = own.stream();
    assert_eq!(capture::begin(&own.api, stream, CUstreamCaptureMode(3)).code(), CUerror::INVALID_VALUE);
    assert_eq!(capture::begin(&own.api, CUstream::LEGACY, RELAXED).code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
}

#[test]
fn a_captured_stream_can_be_neither_waited_for_nor_asked() {
    let own = alone();
    let stream = own.stream();
    for ask in [stream::synchronize, |api: &_, stream| stream::query(api, stream).map(|_| ())] {
        capture::begin(&own.api, stream, RELAXED).unwrap();
        assert_eq!(ask(&own.api, stream).code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
        ends_spoilt(&own, stream);
        assert_eq!(ask(&own.api, stream), Ok(()));
    }
}

#[test]
fn a_capture_is_spoilt_by_asking_another_stream_in_its_thread_unless_it_is_relaxed() {
    child::run_in_child("a_capture_is_spoilt_by_asking_another_stream_in_its_thread_unless_it_is_relaxed", || {
        let own = alone();
        let (stream, other) = (own.stream(), own.stream());
        let allocate = |api: &_, stream| memory::alloc_async(api, 1024, stream).map(|_| ());
        for ask in [stream::synchronize, |api: &_, stream| stream::query(api, stream).map(|_| ()), allocate] {
            for mode in [GLOBAL, THREAD_LOCAL] {
                capture::begin(&own.api, stream, mode).unwrap();
                assert_eq!(ask(&own.api, other).code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
                ends_spoilt(&own, stream);
                capture::begin(&own.api, stream, mode).unwrap();
                let before = capture::exchange_mode(&own.api, RELAXED).unwrap();
                ask(&own.api, other).unwrap();
                capture::exchange_mode(&own.api, before).unwrap();
                capture::end(&own.api, stream).unwrap();
            }
            capture::begin(&own.api, stream, RELAXED).unwrap();
            ask(&own.api, other).unwrap();
            capture::end(&own.api, stream).unwrap();
        }
    });
}

#[test]
fn a_context_with_a_captured_stream_cannot_be_waited_for() {
    let own = alone();
    let stream = own.stream();
    capture::begin(&own.api, stream, RELAXED).unwrap();
    assert_eq!(context::synchronize(&own.api).code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
    ends_spoilt(&own, stream);
    context::synchronize(&own.api).unwrap();
}

#[test]
fn a_captured_event_can_be_neither_waited_for_nor_asked() {
    let own = alone();
    let (stream, event) = (own.stream(), event(&own));
    for ask in [event::synchronize, |api: &_, event| event::query(api, event).map(|_| ())] {
        capture::begin(&own.api, stream, THREAD_LOCAL).unwrap();
        event::record(&own.api, event, stream).unwrap();
        assert_eq!(ask(&own.api, event).code(), CUerror::CAPTURED_EVENT);
        ends_spoilt(&own, stream);
    }
    event::record(&own.api, event, stream).unwrap();
    event::synchronize(&own.api, event).unwrap();
}

#[test]
fn a_capture_is_spoilt_by_an_allocation_in_its_thread_unless_it_is_relaxed() {
    child::run_in_child("a_capture_is_spoilt_by_an_allocation_in_its_thread_unless_it_is_relaxed", || {
        let own = alone();
        let stream = own.stream();
        for mode in [GLOBAL, THREAD_LOCAL] {
            capture::begin(&own.api, stream, mode).unwrap();
            assert_eq!(memory::alloc(&own.api, 4096).code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
            ends_spoilt(&own, stream);
        }
        capture::begin(&own.api, stream, RELAXED).unwrap();
        let block = memory::alloc(&own.api, 4096).unwrap();
        memory::free(&own.api, block).unwrap();
        capture::end(&own.api, stream).unwrap();
    });
}

#[test]
fn a_capture_is_spoilt_by_an_allocation_in_another_thread_if_it_is_global() {
    child::run_in_child("a_capture_is_spoilt_by_an_allocation_in_another_thread_if_it_is_global", || {
        let own = alone();
        let stream = own.stream();
        let alloc_elsewhere = |mode| {
            thread::scope(|scope| {
                let made = scope.spawn(|| {
                    own.enter();
                    capture::exchange_mode(&own.api, mode).unwrap();
                    memory::alloc(&own.api, 4096)
                });
                made.join().unwrap()
            })
        };
        capture::begin(&own.api, stream, GLOBAL).unwrap();
        alloc_elsewhere(THREAD_LOCAL).unwrap();
        alloc_elsewhere(RELAXED).unwrap();
        assert_eq!(alloc_elsewhere(GLOBAL).code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
        ends_spoilt(&own, stream);
        for mode in [THREAD_LOCAL, RELAXED] {
            capture::begin(&own.api, stream, mode).unwrap();
            alloc_elsewhere(GLOBAL).unwrap();
            capture::end(&own.api, stream).unwrap();
        }
    });
}

#[test]
fn a_relaxed_thread_may_allocate_during_its_own_capture() {
    child::run_in_child("a_relaxed_thread_may_allocate_during_its_own_capture", || {
        let own = alone();
        let stream = own.stream();
        capture::begin(&own.api, stream, GLOBAL).unwrap();
        assert_eq!(capture::exchange_mode(&own.api, RELAXED), Ok(GLOBAL));
        let block = memory::alloc(&own.api, 4096).unwrap();
        memory::free(&own.api, block).unwrap();
        assert_eq!(capture::exchange_mode(&own.api, GLOBAL), Ok(RELAXED));
        capture::end(&own.api, stream).unwrap();
    });
}

#[test]
fn the_legacy_stream_is_not_used_while_a_blocking_stream_is_captured() {
    let own = alone();
    let (blocking, other, block) = (own.blocking(), own.stream(), own.block(4096));
    capture::begin(&own.api, blocking, RELAXED).unwrap();
    let legacy = CUstream::LEGACY;
    assert_eq!(stream::capture_status(&own.api, legacy).code(), CUerror::STREAM_CAPTURE_IMPLICIT);
    assert_eq!(status(&own, blocking), CUstreamCaptureStatus::ACTIVE);
    let filled = fill::d8_async(&own.api, block, 1, 4096, legacy);
    assert_eq!(filled.code(), CUerror::STREAM_CAPTURE_IMPLICIT);
    ends_spoilt(&own, blocking);
    capture::begin(&own.api, other, RELAXED).unwrap();
    fill::d8_async(&own.api, block, 1, 4096, legacy).unwrap();
    capture::end(&own.api, other).unwrap();
}

#[test]
fn a_captured_stream_does_not_wait_for_what_was_recorded_outside() {
    let own = alone();
    let (stream, other, event) = (own.stream(), own.stream(), event(&own));
    event::record(&own.api, event, other).unwrap();
    capture::begin(&own.api, stream, RELAXED).unwrap();
    let waits = stream::wait_event(&own.api, stream, event, 0);
    assert_eq!(waits.code(), CUerror::STREAM_CAPTURE_ISOLATION);
    ends_spoilt(&own, stream);
}

#[test]
fn two_captures_do_not_become_one() {
    let own = alone();
    let (first, second, event) = (own.stream(), own.stream(), event(&own));
    capture::begin(&own.api, first, RELAXED).unwrap();
    capture::begin(&own.api, second, RELAXED).unwrap();
    event::record(&own.api, event, first).unwrap();
    assert_eq!(stream::wait_event(&own.api, second, event, 0).code(), CUerror::STREAM_CAPTURE_MERGE);
    ends_spoilt(&own, second);
    ends_spoilt(&own, first);
}

#[test]
fn nothing_more_is_captured_once_a_capture_is_spoilt() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(4096));
    capture::begin(&own.api, stream, RELAXED).unwrap();
    assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
    let filled = fill::d8_async(&own.api, block, 1, 4096, stream);
    assert_eq!(filled.code(), CUerror::STREAM_CAPTURE_INVALIDATED);
    ends_spoilt(&own, stream);
    fill::d8_async(&own.api, block, 1, 4096, stream).unwrap();
    own.finish(stream);
}

#[test]
fn capture_info_has_the_graph_and_its_dependencies() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(4096));
    assert_eq!(capture::info(&own.api, stream).unwrap().status, CUstreamCaptureStatus::NONE);
    capture::begin(&own.api, stream, RELAXED).unwrap();
    let first = capture::info(&own.api, stream).unwrap();
    assert_eq!((first.status, first.dependencies), (CUstreamCaptureStatus::ACTIVE, 0));
    fill::d8_async(&own.api, block, 1, 4096, stream).unwrap();
    let later = capture::info(&own.api, stream).unwrap();
    assert_eq!((later.id, later.graph, later.dependencies), (first.id, first.graph, 1));
    assert_eq!(capture::end(&own.api, stream), Ok(first.graph));
    capture::begin(&own.api, stream, RELAXED).unwrap();
    assert_ne!(capture::info(&own.api, stream).unwrap().id, first.id);
    capture::end(&own.api, stream).unwrap();
}

#[test]
fn flags_that_exclude_each_other_are_an_invalid_value() {
    let own = alone();
    let graph = captured(&own, own.stream(), || {});
    for flags in [graph_flags::AUTO_FREE_ON_LAUNCH, graph_flags::USE_NODE_PRIORITY] {
        graph::instantiate(&own.api, graph, flags).unwrap();
    }
    for flags in [graph_flags::AUTO_FREE_ON_LAUNCH | graph_flags::DEVICE_LAUNCH, 1 << 40] {
        assert_eq!(graph::instantiate(&own.api, graph, flags).code(), CUerror::INVALID_VALUE, "{flags:#x}");
    }
}

#[test]
fn no_graph_is_launched_into_a_capture() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(8192));
    let inner = captured(&own, stream, || fill::d8_async(&own.api, block, 4, 2048, stream).unwrap());
    let inner = ready(&own, inner);
    capture::begin(&own.api, stream, RELAXED).unwrap();
    // SAFETY: the graph holds a fill of device memory alone, and is not launched.
    let launched = unsafe { graph::launch(&own.api, inner, stream) };
    assert_eq!(launched.code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
    ends_spoilt(&own, stream);
}

#[test]
fn an_external_event_is_moved_and_waited_for_when_the_graph_runs() {
    let own = alone();
    let (stream, other, gate) = (own.stream(), own.stream(), Gate::closed(&own));
    let (before, after) = (event(&own), event(&own));
    let graph = captured(&own, stream, || {
        stream::wait_event(&own.api, stream, before, 1).unwrap();
        event::record_with_flags(&own.api, after, stream, 1).unwrap();
    });
    assert_eq!(graph::node_count(&own.api, graph), Ok(2));
    let exec = ready(&own, graph);
    assert_eq!(event::query(&own.api, after), Ok(true));
    gate.hold(&own.api, other);
    event::record(&own.api, before, other).unwrap();
    gate.shut_during(|| launch(&own, exec, stream));
    assert_eq!(event::query(&own.api, after), Ok(false));
    gate.open();
    event::synchronize(&own.api, after).unwrap();
    own.finish(stream);
    own.finish(other);
}

#[test]
fn captured_work_becomes_nodes_of_its_kind() {
    let own = alone();
    let (stream, block) =
        (stream::create_with_priority(&own.api, stream_flags::NON_BLOCKING, -1).unwrap(), own.block(8192));
    let store = own.kernel(c"store");
    let graph = captured(&own, stream, || {
        fill::d8_async(&own.api, block, 7, 4096, stream).unwrap();
        own.run(store, LaunchConfig::linear(2, 32), stream, &[block.0.into(), 100u32.into()]).unwrap();
        copy::device_to_device_async(&own.api, at(block, 4096), block, 4096, stream).unwrap();
    });
    let nodes = graph::nodes(&own.api, graph, 9).unwrap();
    let mut kinds: Vec<_> = nodes.iter().map(|&node| (graph_node::kind(&own.api, node).unwrap(), node)).collect();
    kinds.sort_by_key(|(kind, _)| kind.0);
    let [(CUgraphNodeType::KERNEL, kernel), (CUgraphNodeType::MEMCPY, copied), (CUgraphNodeType::MEMSET, filled)] =
        kinds[..]
    else {
        panic!("a kernel, a copy and a fill, not {kinds:?}");
    };
    assert_eq!(graph_node::dependencies(&own.api, copied, 9).unwrap(), [kernel]);
    assert_eq!(graph_node::dependencies(&own.api, kernel, 9).unwrap(), [filled]);
    let params = graph_node::kernel(&own.api, kernel).unwrap();
    assert_eq!((params.gridDimX, params.blockDimX), (2, 32));
    let priority = graph_node::kernel_attribute(&own.api, kernel, CUlaunchAttributeID::PRIORITY).unwrap();
    assert_eq!(priority.0[0] as u32 as i32, -1);
    let params = graph_node::fill(&own.api, filled).unwrap();
    assert_eq!((params.dst, params.value, params.elementSize, params.width), (block, 7, 1, 4096));
    let params = graph_node::copy(&own.api, copied).unwrap();
    assert_eq!((params.srcDevice, params.dstDevice, params.WidthInBytes), (block, at(block, 4096), 4096));
}

#[test]
fn nodes_added_by_hand_become_part_of_a_capture() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(8192));
    let graph = captured(&own, stream, || {
        fill::d8_async(&own.api, block, 1, 4096, stream).unwrap();
        let (info, nodes) = capture::info_with_nodes(&own.api, stream).unwrap();
        assert_eq!((info.status, nodes.len()), (CUstreamCaptureStatus::ACTIVE, 1));
        let added = crate::graph::add_fill(&own, info.graph, &nodes, block, 2);
        capture::update_dependencies(&own.api, stream, &mut [added], capture_dependency_flags::SET).unwrap();
        let (_, nodes) = capture::info_with_nodes(&own.api, stream).unwrap();
        assert_eq!(nodes, [added]);
        // The graph can be neither destroyed nor instantiated before the end.
        assert_eq!(graph::destroy(&own.api, info.graph).code(), CUerror::INVALID_VALUE);
        copy::device_to_device_async(&own.api, at(block, 4096), block, 4096, stream).unwrap();
    });
    assert_eq!(graph::node_count(&own.api, graph), Ok(3));
    launch(&own, ready(&own, graph), stream);
    own.finish(stream);
    assert_eq!(own.byte(block, 8192), 2);
}

#[test]
fn dependencies_of_a_capture_are_added_or_replaced() {
    let own = alone();
    let (stream, block) = (own.stream(), own.block(4096));
    let update = |nodes: &mut [_], flags| capture::update_dependencies(&own.api, stream, nodes, flags);
    assert_eq!(update(&mut [], 0).code(), CUerror::ILLEGAL_STATE);
    capture::begin(&own.api, stream, RELAXED).unwrap();
    fill::d8_async(&own.api, block, 1, 4096, stream).unwrap();
    let (info, nodes) = capture::info_with_nodes(&own.api, stream).unwrap();
    let other = graph_node::add_empty(&own.api, info.graph, &[]).unwrap();
    update(&mut [other], capture_dependency_flags::ADD).unwrap();
    assert_eq!(capture::info(&own.api, stream).unwrap().dependencies, 2);
    let data = [CUgraphEdgeData::default()];
    let flags = capture_dependency_flags::SET;
    capture::update_dependencies_with_data(&own.api, stream, &mut [nodes[0]], &data, flags).unwrap();
    assert_eq!(capture::info_with_nodes(&own.api, stream).unwrap().1, nodes);
    // What is not joined because of this does not count as unjoined.
    update(&mut [], flags).unwrap();
    let graph = capture::end(&own.api, stream).unwrap();
    assert_eq!(graph::node_count(&own.api, graph), Ok(2));
}

#[test]
fn work_is_captured_into_a_graph_after_its_nodes() {
    let own = alone();
    let (stream, block, graph) = (own.stream(), own.block(8192), crate::graph::new_graph(&own));
    let first = crate::graph::add_fill(&own, graph, &[], block, 3);
    capture::begin_to_graph(&own.api, stream, graph, &[first], RELAXED).unwrap();
    copy::device_to_device_async(&own.api, at(block, 4096), block, 4096, stream).unwrap();
    assert_eq!(graph::instantiate(&own.api, graph, 0).code(), CUerror::INVALID_VALUE);
    assert_eq!(capture::end(&own.api, stream), Ok(graph));
    assert_eq!(graph::edges(&own.api, graph, 9).unwrap().len(), 1);
    launch(&own, ready(&own, graph), stream);
    own.finish(stream);
    assert_eq!(own.byte(block, 8192), 3);
}
