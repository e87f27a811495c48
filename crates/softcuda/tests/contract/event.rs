//! Events: never recorded, recorded, recorded again, destroyed, timed.

use crate::common;

use common::{Context, Gate, Refused};
use freehold_driver::cuda::{CUerror, CUevent, CUstream, event, event_flags, stream};

fn timed(own: &Context) -> CUevent {
    event::create(&own.api, event_flags::DEFAULT).unwrap()
}

fn untimed(own: &Context) -> CUevent {
    event::create(&own.api, event_flags::DISABLE_TIMING).unwrap()
}

#[test]
fn an_event_that_was_never_recorded_has_passed() {
    let own = Context::create();
    let (event, stream) = (timed(&own), own.stream());
    assert_eq!(event::query(&own.api, event), Ok(true));
    assert_eq!(event::synchronize(&own.api, event), Ok(()));
    assert_eq!(stream::wait_event(&own.api, stream, event, 0), Ok(()));
    own.finish(stream);
}

#[test]
fn an_event_passes_when_the_work_before_it_is_done() {
    let own = Context::create();
    let (stream, written) = (own.stream(), own.pinned(4));
    for event in [timed(&own), untimed(&own)] {
        written.fill(0);
        let gate = Gate::closed(&own);
        gate.hold(&own.api, stream);
        stream::write_value_32(&own.api, stream, written.address(), 1, 0).unwrap();
        gate.shut_during(|| event::record(&own.api, event, stream)).unwrap();
        assert_eq!(event::query(&own.api, event), Ok(false));
        gate.opened_during(|| event::synchronize(&own.api, event)).unwrap();
        assert_eq!(written.word(0), 1);
        assert_eq!(event::query(&own.api, event), Ok(true));
    }
}

#[test]
fn an_event_does_not_wait_for_work_after_it() {
    let own = Context::create();
    let stream = own.stream();
    for event in [timed(&own), untimed(&own)] {
        let gate = Gate::closed(&own);
        event::record(&own.api, event, stream).unwrap();
        gate.hold(&own.api, stream);
        gate.shut_during(|| event::synchronize(&own.api, event)).unwrap();
        assert_eq!(event::query(&own.api, event), Ok(true));
        gate.open();
        own.finish(stream);
    }
}

#[test]
fn an_event_in_the_default_stream_waits_for_blocking_streams() {
    let own = Context::create();
    let (blocking, other) = (own.blocking(), own.stream());
    for event in [timed(&own), untimed(&own)] {
        let gate = Gate::closed(&own);
        gate.hold(&own.api, other);
        event::record(&own.api, event, CUstream::LEGACY).unwrap();
        gate.shut_during(|| event::synchronize(&own.api, event)).unwrap();
        gate.hold(&own.api, blocking);
        event::record(&own.api, event, CUstream::LEGACY).unwrap();
        assert_eq!(event::query(&own.api, event), Ok(false));
        gate.opened_during(|| event::synchronize(&own.api, event)).unwrap();
        own.finish(other);
    }
}

#[test]
fn an_event_in_a_blocking_stream_waits_for_the_default_stream() {
    let own = Context::create();
    let (blocking, other) = (own.blocking(), own.stream());
    for event in [timed(&own), untimed(&own)] {
        let gate = Gate::closed(&own);
        gate.hold(&own.api, CUstream::LEGACY);
        event::record(&own.api, event, other).unwrap();
        gate.shut_during(|| event::synchronize(&own.api, event)).unwrap();
        event::record(&own.api, event, blocking).unwrap();
        assert_eq!(event::query(&own.api, event), Ok(false));
        gate.opened_during(|| event::synchronize(&own.api, event)).unwrap();
    }
}

#[test]
fn an_event_recorded_again_is_the_later_record() {
    let own = Context::create();
    let (stream, event) = (own.stream(), timed(&own));
    event::record(&own.api, event, stream).unwrap();
    event::synchronize(&own.api, event).unwrap();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    event::record(&own.api, event, stream).unwrap();
    assert_eq!(event::query(&own.api, event), Ok(false));
    gate.opened_during(|| event::synchronize(&own.api, event)).unwrap();
}

#[test]
fn a_wait_is_for_the_record_at_the_time_of_the_call() {
    let own = Context::create();
    let (first, second, event) = (own.stream(), own.stream(), timed(&own));
    let (early, late) = (Gate::closed(&own), Gate::closed(&own));
    early.hold(&own.api, first);
    event::record(&own.api, event, first).unwrap();
    stream::wait_event(&own.api, second, event, 0).unwrap();
    late.hold(&own.api, first);
    event::record(&own.api, event, first).unwrap();
    assert_eq!(stream::query(&own.api, second), Ok(false));
    early.open();
    late.shut_during(|| own.finish(second));
    assert_eq!(event::query(&own.api, event), Ok(false));
}

#[test]
fn a_wait_for_a_destroyed_event_still_waits() {
    let own = Context::create();
    let (first, second, event) = (own.stream(), own.stream(), timed(&own));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    event::record(&own.api, event, first).unwrap();
    stream::wait_event(&own.api, second, event, 0).unwrap();
    assert_eq!(gate.shut_during(|| event::destroy(&own.api, event)), Ok(()));
    assert_eq!(stream::query(&own.api, second), Ok(false));
    gate.opened_during(|| own.finish(second));
}

#[test]
fn an_event_outlives_the_stream_that_it_was_recorded_in() {
    let own = Context::create();
    let (first, second, event) = (own.stream(), own.stream(), timed(&own));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    event::record(&own.api, event, first).unwrap();
    stream::destroy(&own.api, first).unwrap();
    stream::wait_event(&own.api, second, event, 0).unwrap();
    assert_eq!(event::query(&own.api, event), Ok(false));
    gate.opened_during(|| own.finish(second));
    assert_eq!(event::query(&own.api, event), Ok(true));
}

#[test]
fn waits_for_events_carry_over_a_third_stream() {
    let own = Context::create();
    let [first, second, third] = [(); 3].map(|()| own.stream());
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    for (from, to) in [(first, second), (second, third)] {
        let event = untimed(&own);
        event::record(&own.api, event, from).unwrap();
        stream::wait_event(&own.api, to, event, 0).unwrap();
    }
    assert_eq!(stream::query(&own.api, third), Ok(false));
    gate.opened_during(|| own.finish(third));
}

#[test]
fn a_stream_waits_for_an_event_of_another_context() {
    let one = Context::create();
    let (first, event) = (one.stream(), timed(&one));
    let two = one.another();
    let second = two.stream();
    let gate = Gate::closed(&two);
    gate.hold(&two.api, first);
    event::record(&two.api, event, first).unwrap();
    assert_eq!(stream::wait_event(&two.api, second, event, 0), Ok(()));
    assert_eq!(stream::query(&two.api, second), Ok(false));
    gate.opened_during(|| two.finish(second));
}

#[test]
fn an_event_is_recorded_in_streams_of_its_own_context() {
    let one = Context::create();
    let event = timed(&one);
    let two = one.another();
    assert_eq!(event::record(&two.api, event, two.stream()).code(), CUerror::INVALID_HANDLE);
    assert_eq!(event::record(&two.api, event, CUstream::LEGACY).code(), CUerror::INVALID_HANDLE);
}

#[test]
fn unknown_flags_make_no_event() {
    let own = Context::create();
    for flags in [0x10, event_flags::INTERPROCESS, u32::MAX] {
        assert_eq!(event::create(&own.api, flags).code(), CUerror::INVALID_VALUE);
    }
    for flags in [0, 1, 2, 3] {
        assert_eq!(event::destroy(&own.api, event::create(&own.api, flags).unwrap()), Ok(()));
    }
}

#[test]
fn unknown_flags_make_no_wait_and_no_record() {
    let own = Context::create();
    let (stream, event) = (own.stream(), timed(&own));
    assert_eq!(event::record_with_flags(&own.api, event, stream, 0), Ok(()));
    assert_eq!(event::record_with_flags(&own.api, event, stream, 2).code(), CUerror::INVALID_VALUE);
    assert_eq!(stream::wait_event(&own.api, stream, event, 2).code(), CUerror::INVALID_VALUE);
}

#[test]
fn the_time_between_two_events_is_positive_in_their_order() {
    let own = Context::create();
    let (stream, start, end) = (own.stream(), timed(&own), timed(&own));
    let gate = Gate::closed(&own);
    event::record(&own.api, start, stream).unwrap();
    gate.hold(&own.api, stream);
    event::record(&own.api, end, stream).unwrap();
    gate.opened_during(|| own.finish(stream));
    let elapsed = |from, to| event::elapsed_ms(&own.api, from, to).unwrap();
    assert!(elapsed(start, end) > 0.0, "{} ms passed", elapsed(start, end));
    assert!(elapsed(end, start) < 0.0, "{} ms passed in reverse", elapsed(end, start));
    assert_eq!(elapsed(start, end), -elapsed(end, start));
    assert_eq!(elapsed(start, start), 0.0);
}

#[test]
fn the_time_between_events_that_have_not_passed_is_not_ready() {
    let own = Context::create();
    let (stream, start, end) = (own.stream(), timed(&own), timed(&own));
    let gate = Gate::closed(&own);
    event::record(&own.api, start, stream).unwrap();
    gate.hold(&own.api, stream);
    event::record(&own.api, end, stream).unwrap();
    let elapsed = gate.shut_during(|| event::elapsed_ms(&own.api, start, end));
    assert_eq!(elapsed.code(), CUerror::NOT_READY);
}

#[test]
fn events_that_were_never_recorded_or_have_no_timing_have_no_time() {
    let own = Context::create();
    let (recorded, never, without) = (timed(&own), timed(&own), untimed(&own));
    event::record(&own.api, recorded, CUstream::LEGACY).unwrap();
    event::record(&own.api, without, CUstream::LEGACY).unwrap();
    own.finish(CUstream::LEGACY);
    assert_eq!(event::elapsed_ms(&own.api, recorded, recorded), Ok(0.0));
    for other in [never, without] {
        assert_eq!(event::elapsed_ms(&own.api, recorded, other).code(), CUerror::INVALID_HANDLE);
        assert_eq!(event::elapsed_ms(&own.api, other, recorded).code(), CUerror::INVALID_HANDLE);
    }
}
