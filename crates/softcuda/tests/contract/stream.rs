//! Streams: order within one, the waits of default streams, and destroying a stream with pending work.

use crate::common;

use std::sync::atomic::Ordering;
use std::thread;

use common::{Context, Gate, Refused, address, at, until};
use freehold_driver::cuda::{
    CUcontext, CUerror, CUlaunchAttributeID, CUlaunchAttributeValue, CUstream, CUstreamCaptureStatus, context, copy,
    event, fill, stream, stream_flags,
};

/// Asserts that work of `later` waits for work of `earlier`.
#[track_caller]
fn assert_waits(own: &Context, earlier: CUstream, later: CUstream) {
    let (gate, word) = (Gate::closed(own), &own.words()[0]);
    gate.hold(&own.api, earlier);
    gate.shut_during(|| stream::write_value_32(&own.api, later, address(word), 7, 0)).unwrap();
    assert_eq!(stream::query(&own.api, later), Ok(false));
    assert_eq!(word.load(Ordering::SeqCst), 0);
    gate.opened_during(|| own.finish(later));
    assert_eq!(word.load(Ordering::SeqCst), 7);
}

/// Asserts that work of `later` completes while `earlier` is blocked.
#[track_caller]
fn assert_passes(own: &Context, earlier: CUstream, later: CUstream) {
    let (gate, word) = (Gate::closed(own), &own.words()[0]);
    gate.hold(&own.api, earlier);
    gate.shut_during(|| stream::write_value_32(&own.api, later, address(word), 7, 0)).unwrap();
    gate.shut_during(|| own.finish(later));
    assert_eq!(word.load(Ordering::SeqCst), 7);
    gate.open();
    own.finish(earlier);
}

#[test]
fn the_work_of_a_stream_is_done_in_its_order() {
    let own = Context::create();
    let (stream, block, copied) = (own.stream(), own.block(4096), own.pinned(64 * 4096));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    for round in 0..64 {
        fill::d8_async(&own.api, block, round as u8, 4096, stream).unwrap();
        let to = at(copied.address(), round * 4096);
        copy::device_to_device_async(&own.api, to, block, 4096, stream).unwrap();
    }
    gate.open();
    own.finish(stream);
    let wanted: Vec<u8> = (0..64).flat_map(|round| [round; 4096]).collect();
    assert!(copied.to_vec() == wanted, "each copy has what was filled before it");
}

#[test]
fn blocking_streams_and_the_default_stream_wait_for_each_other() {
    let own = Context::create();
    let blocking = own.blocking();
    for default in [CUstream::NULL, CUstream::LEGACY] {
        assert_waits(&own, blocking, default);
        assert_waits(&own, default, blocking);
    }
}

#[test]
fn other_streams_and_the_default_stream_do_not_wait_for_each_other() {
    let own = Context::create();
    let stream = own.stream();
    assert_passes(&own, stream, CUstream::LEGACY);
    assert_passes(&own, CUstream::LEGACY, stream);
}

#[test]
fn two_created_streams_do_not_wait_for_each_other() {
    let own = Context::create();
    assert_passes(&own, own.blocking(), own.blocking());
    assert_passes(&own, own.blocking(), own.stream());
    assert_passes(&own, own.stream(), own.stream());
}

#[test]
fn the_default_stream_of_a_thread_is_a_blocking_stream() {
    let own = Context::create();
    assert_waits(&own, CUstream::LEGACY, CUstream::PER_THREAD);
    assert_waits(&own, CUstream::PER_THREAD, CUstream::LEGACY);
    assert_passes(&own, own.blocking(), CUstream::PER_THREAD);
    assert_passes(&own, CUstream::PER_THREAD, own.stream());
}

#[test]
fn the_default_streams_of_two_threads_do_not_wait_for_each_other() {
    let own = Context::create();
    let (gate, written) = (Gate::closed(&own), own.pinned(4));
    gate.hold(&own.api, CUstream::PER_THREAD);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            own.enter();
            stream::write_value_32(&own.api, CUstream::PER_THREAD, written.address(), 3, 0).unwrap();
            gate.shut_during(|| own.finish(CUstream::PER_THREAD));
            stream::id(&own.api, CUstream::PER_THREAD).unwrap()
        });
        assert_ne!(Ok(other.join().unwrap()), stream::id(&own.api, CUstream::PER_THREAD));
    });
    assert_eq!(written.word(0), 3);
    assert_eq!(stream::query(&own.api, CUstream::PER_THREAD), Ok(false));
}

#[test]
fn the_work_of_a_thread_that_has_ended_completes() {
    let own = Context::create();
    let (gate, word) = (Gate::closed(&own), &own.words()[0]);
    thread::scope(|scope| {
        scope.spawn(|| {
            own.enter();
            gate.hold(&own.api, CUstream::PER_THREAD);
            stream::write_value_32(&own.api, CUstream::PER_THREAD, address(word), 4, 0).unwrap();
        });
    });
    assert_eq!(stream::query(&own.api, CUstream::LEGACY), Ok(false));
    assert_eq!(word.load(Ordering::SeqCst), 0);
    gate.opened_during(|| context::synchronize(&own.api)).unwrap();
    assert_eq!(word.load(Ordering::SeqCst), 4);
}

#[test]
fn a_blocking_stream_of_one_context_and_the_default_stream_of_another_do_not_wait() {
    let one = Context::create();
    let blocking = one.blocking();
    let two = one.another();
    assert_passes(&two, blocking, CUstream::LEGACY);
}

#[test]
fn a_stream_is_idle_until_it_has_work_and_when_it_is_done() {
    let own = Context::create();
    let stream = own.stream();
    assert_eq!(stream::query(&own.api, stream), Ok(true));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    assert_eq!(stream::query(&own.api, stream), Ok(false));
    gate.open();
    until(|| stream::query(&own.api, stream).unwrap());
}

#[test]
fn the_default_stream_is_not_idle_while_a_blocking_stream_has_work() {
    let own = Context::create();
    let (blocking, other) = (own.blocking(), own.stream());
    let gate = Gate::closed(&own);
    gate.hold(&own.api, other);
    assert_eq!(stream::query(&own.api, CUstream::LEGACY), Ok(true));
    gate.shut_during(|| own.finish(CUstream::LEGACY));
    gate.hold(&own.api, blocking);
    assert_eq!(stream::query(&own.api, CUstream::LEGACY), Ok(false));
    gate.opened_during(|| own.finish(CUstream::LEGACY));
}

#[test]
fn synchronizing_a_stream_waits_for_it_and_no_other() {
    let own = Context::create();
    let (busy, idle) = (own.stream(), own.stream());
    let gate = Gate::closed(&own);
    gate.hold(&own.api, busy);
    gate.shut_during(|| own.finish(idle));
    gate.opened_during(|| own.finish(busy));
}

#[test]
fn the_work_of_a_destroyed_stream_completes() {
    let own = Context::create();
    let (stream, written, block) = (own.stream(), own.pinned(4), own.block(4096));
    own.write(block, &[1; 4096]);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    fill::d8_async(&own.api, block, 2, 4096, stream).unwrap();
    stream::write_value_32(&own.api, stream, written.address(), 5, 0).unwrap();
    assert_eq!(gate.shut_during(|| stream::destroy(&own.api, stream)), Ok(()));
    assert_eq!(written.word(0), 0);
    gate.open();
    until(|| written.word(0) == 5);
    assert_eq!(own.byte(block, 4096), 2);
}

#[test]
fn synchronizing_a_context_waits_for_a_destroyed_stream() {
    let own = Context::create();
    let stream = own.stream();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    stream::destroy(&own.api, stream).unwrap();
    gate.opened_during(|| context::synchronize(&own.api)).unwrap();
}

#[test]
fn the_default_stream_waits_for_a_destroyed_blocking_stream() {
    let own = Context::create();
    let stream = own.blocking();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    stream::destroy(&own.api, stream).unwrap();
    gate.opened_during(|| own.finish(CUstream::LEGACY));
}

#[test]
fn a_handle_that_comes_back_is_another_stream() {
    let own = Context::create();
    let first = own.stream();
    let first_id = stream::id(&own.api, first).unwrap();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    stream::destroy(&own.api, first).unwrap();
    let second = own.stream();
    assert_ne!(stream::id(&own.api, second), Ok(first_id));
    gate.shut_during(|| own.finish(second));
    assert_eq!(stream::query(&own.api, second), Ok(true));
}

#[test]
fn ids_tell_the_default_streams_apart() {
    let own = Context::create();
    let id = |stream| stream::id(&own.api, stream).unwrap();
    assert_eq!(id(CUstream::NULL), id(CUstream::LEGACY));
    assert_ne!(id(CUstream::LEGACY), id(CUstream::PER_THREAD));
    let (one, two) = (own.stream(), own.stream());
    assert_ne!(id(one), id(two));
    assert_ne!(id(one), id(CUstream::LEGACY));
}

#[test]
fn a_stream_reports_its_flags_and_its_context() {
    let one = Context::create();
    let (blocking, other) = (one.blocking(), one.stream());
    let two = one.another();
    assert_eq!(stream::flags(&two.api, blocking), Ok(0));
    assert_eq!(stream::flags(&two.api, other), Ok(1));
    assert_eq!(stream::flags(&two.api, CUstream::NULL), Ok(0));
    assert_eq!(stream::context(&two.api, blocking), Ok(one.handle));
    assert_eq!(stream::context(&two.api, CUstream::NULL), Ok(two.handle));
    assert_eq!(stream::capture_status(&two.api, blocking), Ok(CUstreamCaptureStatus::NONE));
}

#[test]
fn unknown_flags_make_no_stream() {
    let own = Context::create();
    for flags in [2, 4, u32::MAX] {
        assert_eq!(stream::create(&own.api, flags).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn priorities_go_from_0_to_minus_5_and_others_are_moved_there() {
    let own = Context::create();
    let context::Priorities { least, greatest } = context::stream_priorities(&own.api).unwrap();
    assert_eq!((least, greatest), (0, -5));
    for (wanted, given) in [(-100, -5), (-5, -5), (-3, -3), (0, 0), (100, 0)] {
        let stream = stream::create_with_priority(&own.api, stream_flags::NON_BLOCKING, wanted).unwrap();
        assert_eq!(stream::priority(&own.api, stream), Ok(given));
    }
    assert_eq!(stream::priority(&own.api, own.stream()), Ok(0));
}

#[test]
fn the_null_stream_is_not_destroyed() {
    let own = Context::create();
    assert_eq!(stream::destroy(&own.api, CUstream::NULL).code(), CUerror::INVALID_HANDLE);
}

#[test]
fn a_stream_works_in_its_own_context_whichever_is_current() {
    let one = Context::create();
    let (stream, written) = (one.stream(), one.pinned(4));
    let two = one.another();
    let write = |value| stream::write_value_32(&two.api, stream, written.address(), value, 0).unwrap();
    write(1);
    two.finish(stream);
    assert_eq!(written.word(0), 1);
    context::set_current(&two.api, CUcontext::NULL).unwrap();
    write(2);
    two.finish(stream);
    assert_eq!(written.word(0), 2);
}

#[test]
fn a_stream_that_waits_for_an_event_waits_for_what_was_before_it() {
    let own = Context::create();
    let (first, second) = (own.stream(), own.stream());
    let (gate, block) = (Gate::closed(&own), own.block(4096));
    let event = event::create(&own.api, 0).unwrap();
    gate.hold(&own.api, first);
    fill::d8_async(&own.api, block, 1, 4096, first).unwrap();
    event::record(&own.api, event, first).unwrap();
    gate.hold(&own.api, first);
    stream::wait_event(&own.api, second, event, 0).unwrap();
    fill::d8_async(&own.api, block, 2, 4096, second).unwrap();
    assert_eq!(stream::query(&own.api, second), Ok(false));
    gate.open();
    own.finish(second);
    assert_eq!(own.byte(block, 4096), 2);
}

#[test]
fn a_stream_that_waits_for_an_event_does_not_wait_for_what_came_after_it() {
    let own = Context::create();
    let (first, second) = (own.stream(), own.stream());
    let (gate, event) = (Gate::closed(&own), event::create(&own.api, 0).unwrap());
    event::record(&own.api, event, first).unwrap();
    gate.hold(&own.api, first);
    stream::wait_event(&own.api, second, event, 0).unwrap();
    gate.shut_during(|| own.finish(second));
}

#[test]
fn a_stream_keeps_its_attributes_and_passes_them_on() {
    let own = Context::create();
    let (first, second) = (own.stream(), own.stream());
    let policy = CUlaunchAttributeID::SYNCHRONIZATION_POLICY;
    let first_word = |stream| stream::attribute(&own.api, stream, policy).unwrap().0[0] as u32;
    let before = first_word(first);
    let spin = CUlaunchAttributeValue([2, 0, 0, 0, 0, 0, 0, 0]);
    stream::set_attribute(&own.api, first, policy, spin).unwrap();
    assert_eq!((first_word(first), first_word(second)), (2, before));
    stream::copy_attributes(&own.api, second, first).unwrap();
    assert_eq!(first_word(second), 2);
    let unknown = CUlaunchAttributeID(99);
    assert_eq!(stream::attribute(&own.api, first, unknown).unwrap_err().code, CUerror::INVALID_VALUE);
}
