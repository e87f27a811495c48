//! Streams that are being captured, and those that are first named meanwhile. Each test has a process of its own, in which
//! nothing was asked of the library before.

use crate::children;
use crate::guest;

use children::{alone, alone_with};
use freehold::Error;
use freehold_driver::cuda::{
    CUdeviceptr, CUstream, CUstreamCaptureMode, capture, context, event, event_flags, fill, host, host_alloc_flags,
    stream, wait_value_flags,
};
use guest::{Host, MIB};

/// Lets the work that is put into a stream from now on wait for a word, which is this.
fn hold(host: &Host, held: CUstream) -> *mut u64 {
    let word = host::alloc_with_flags(&host.api, 4096, host_alloc_flags::DEVICEMAP).unwrap();
    let address = host::device_address(&host.api, word, 0).unwrap();
    // SAFETY: the page is pinned memory of this process's own, which stays until it ends.
    unsafe { word.cast::<u64>().write_volatile(0) };
    stream::wait_value_64(&host.api, held, address, 1, wait_value_flags::GEQ).unwrap();
    word.cast()
}

fn open(host: &Host, word: *mut u64) {
    // SAFETY: as above.
    unsafe { word.write_volatile(1) };
    context::synchronize(&host.api).unwrap();
}

#[test]
fn a_stream_that_is_first_named_during_a_capture_gets_memory_and_the_capture_goes_on() {
    alone("a_stream_that_is_first_named_during_a_capture_gets_memory_and_the_capture_goes_on", || {
        let host = Host::new();
        let (captured, other) = (host.stream(), host.stream());
        capture::begin(&host.api, captured, CUstreamCaptureMode::GLOBAL).unwrap();
        let block = host.guest.alloc(1000, other).unwrap();
        host.guest.free(block, other).unwrap();
        let block = host.guest.alloc(3 * MIB, captured).unwrap();
        host.guest.free(block, captured).unwrap();
        capture::end(&host.api, captured).unwrap();
    });
}

/// A block that was freed in a captured stream behind work that is held up, then the stream, the word, and the block.
fn freed_while_captured(host: &Host) -> (CUstream, *mut u64, u64) {
    let captured = host.stream();
    let block = host.guest.alloc(4 * MIB, captured).unwrap();
    let word = hold(host, captured);
    fill::d8_async(&host.api, CUdeviceptr(block), 1, 4 << 20, captured).unwrap();
    capture::begin(&host.api, captured, CUstreamCaptureMode::RELAXED).unwrap();
    host.guest.free(block, captured).unwrap();
    (captured, word, block)
}

#[test]
fn a_stream_that_is_captured_is_not_retired_and_what_was_freed_in_it_is_not_given_to_others() {
    alone("a_stream_that_is_captured_is_not_retired_and_what_was_freed_in_it_is_not_given_to_others", || {
        let host = Host::new();
        let (captured, word, block) = freed_while_captured(&host);
        let refused = host.guest.retire(captured).unwrap_err();
        assert!(matches!(refused, Error::StreamCaptured), "{refused}");
        let other = host.stream();
        host.guest.set_budget_bytes(host.guest.reserved_bytes());
        assert!(matches!(host.guest.alloc(4 * MIB, other), Err(Error::Short { .. })));
        capture::end(&host.api, captured).unwrap();
        host.guest.retire(captured).unwrap();
        stream::destroy(&host.api, captured).unwrap();
        assert!(matches!(host.guest.alloc(4 * MIB, other), Err(Error::Short { .. })));
        open(&host, word);
        host.guest.trim(u64::MAX).unwrap();
        assert_eq!(host.guest.alloc(4 * MIB, other).unwrap(), block);
    });
}

#[test]
fn what_was_freed_in_a_captured_stream_that_was_destroyed_untold_is_not_given_to_others() {
    let name = "what_was_freed_in_a_captured_stream_that_was_destroyed_untold_is_not_given_to_others";
    alone_with(name, &[("FREEHOLD_STREAMS", "checked")], || {
        let host = Host::new();
        let (captured, word, _) = freed_while_captured(&host);
        capture::end(&host.api, captured).unwrap();
        stream::destroy(&host.api, captured).unwrap();
        // Until the handle means another stream.
        let other = loop {
            let other = host.stream();
            if other == captured {
                break other;
            }
        };
        host.guest.set_budget_bytes(host.guest.reserved_bytes());
        assert!(matches!(host.guest.alloc(4 * MIB, other), Err(Error::Short { .. })));
        open(&host, word);
    });
}

#[test]
fn what_was_freed_in_a_stream_first_named_during_a_capture_is_had_again_when_the_capture_is_over() {
    let name = "what_was_freed_in_a_stream_first_named_during_a_capture_is_had_again_when_the_capture_is_over";
    alone_with(name, &[("FREEHOLD_STREAMS", "checked")], || {
        let host = Host::new();
        let (captured, other) = (host.stream(), host.stream());
        capture::begin(&host.api, captured, CUstreamCaptureMode::RELAXED).unwrap();
        let block = host.guest.alloc(4 * MIB, captured).unwrap();
        host.guest.free(block, captured).unwrap();
        host.guest.set_budget_bytes(host.guest.reserved_bytes());
        assert!(matches!(host.guest.alloc(4 * MIB, other), Err(Error::Short { .. })));
        assert_eq!(host.guest.alloc(4 * MIB, captured).unwrap(), block);
        host.guest.free(block, captured).unwrap();
        capture::end(&host.api, captured).unwrap();
        assert_eq!(host.guest.alloc(4 * MIB, captured).unwrap(), block);
        host.guest.free(block, captured).unwrap();
        context::synchronize(&host.api).unwrap();
        host.guest.trim(0).unwrap();
        assert_eq!(host.guest.reserved_bytes(), 0);
    });
}

#[test]
fn what_a_capture_took_is_anybodys_when_its_stream_is_said_to_be_gone() {
    let name = "what_a_capture_took_is_anybodys_when_its_stream_is_said_to_be_gone";
    alone_with(name, &[("FREEHOLD_STREAMS", "checked")], || {
        let host = Host::new();
        let captured = host.stream();
        capture::begin(&host.api, captured, CUstreamCaptureMode::RELAXED).unwrap();
        let block = host.guest.alloc(4 * MIB, captured).unwrap();
        host.guest.free(block, captured).unwrap();
        assert!(matches!(host.guest.retire(captured), Err(Error::StreamCaptured)));
        capture::end(&host.api, captured).unwrap();
        host.guest.retire(captured).unwrap();
        stream::destroy(&host.api, captured).unwrap();
        host.guest.trim(0).unwrap();
        assert_eq!(host.guest.reserved_bytes(), 0);
    });
}

#[test]
fn what_was_freed_in_a_known_stream_during_a_capture_is_had_again_when_the_work_before_it_is_done() {
    let name = "what_was_freed_in_a_known_stream_during_a_capture_is_had_again_when_the_work_before_it_is_done";
    alone_with(name, &[("FREEHOLD_STREAMS", "checked")], || {
        let host = Host::new();
        let (captured, word, _) = freed_while_captured(&host);
        capture::end(&host.api, captured).unwrap();
        host.guest.set_budget_bytes(host.guest.reserved_bytes());
        // The stream is named, and so known to be captured no more.
        assert!(matches!(host.guest.alloc(4 * MIB, captured), Err(Error::Short { .. })));
        let other = host.stream();
        assert!(matches!(host.guest.alloc(4 * MIB, other), Err(Error::Short { .. })));
        open(&host, word);
        host.guest.alloc(4 * MIB, other).unwrap();
    });
}

#[test]
fn what_was_freed_in_one_stream_of_a_capture_is_not_the_others() {
    let name = "what_was_freed_in_one_stream_of_a_capture_is_not_the_others";
    alone_with(name, &[("FREEHOLD_STREAMS", "checked")], || {
        let host = Host::new();
        let (origin, joined) = (host.stream(), host.stream());
        let fork = event::create(&host.api, event_flags::DISABLE_TIMING).unwrap();
        capture::begin(&host.api, origin, CUstreamCaptureMode::RELAXED).unwrap();
        event::record(&host.api, fork, origin).unwrap();
        stream::wait_event(&host.api, joined, fork, 0).unwrap();
        let block = host.guest.alloc(1000, origin).unwrap();
        host.guest.free(block, origin).unwrap();
        assert_ne!(host.guest.alloc(1000, joined).unwrap(), block);
        assert_eq!(host.guest.alloc(1000, origin).unwrap(), block);
        let join = event::create(&host.api, event_flags::DISABLE_TIMING).unwrap();
        event::record(&host.api, join, joined).unwrap();
        stream::wait_event(&host.api, origin, join, 0).unwrap();
        capture::end(&host.api, origin).unwrap();
    });
}
