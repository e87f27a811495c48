//! The driver reuses the handle of a destroyed stream. Work of the old stream may still be pending, so the new stream
//! must not get blocks that were released in the old one.

use crate::fixture;

use std::collections::HashSet;

use fixture::{Fixture, alloc, free, handle, last_error};
use freehold_capi::*;
use freehold_testing::child::run_in_child_with;

const CHECKED: (&str, &str) = ("FREEHOLD_STREAMS", "checked");

/// Releases a block in a stream that is blocked and then destroyed, and creates a stream with the same handle: nothing
/// that was released in the first is allocated in the second before the first is done.
fn old_blocks_are_not_the_new_streams(end: impl Fn(&Fixture, CUstream)) {
    let fixture = Fixture::new();
    for bytes in [512, 2 << 20] {
        let (old, latch) = (fixture.stream(), fixture.latch());
        let held: HashSet<_> = (0..12).map(|_| alloc(bytes, old)).collect();
        fixture.hold(old, &latch);
        held.iter().for_each(|&block| free(block, old));
        end(&fixture, old);
        let new = fixture.stream();
        assert_eq!(new, old, "the driver reuses the handle");
        let next: HashSet<_> = (0..12).map(|_| alloc(bytes, new)).collect();
        assert!(next.is_disjoint(&held), "{bytes}");
        next.iter().for_each(|&block| free(block, new));
        latch.open();
        fixture.synchronize(new);
        end(&fixture, new);
    }
    assert_eq!(freehold_live_bytes(0), 0);
    // Destroyed streams leave nothing behind.
    assert_eq!(fixture.left_bytes(), 0);
}

#[test]
fn a_retired_streams_blocks_are_not_those_of_its_handle() {
    old_blocks_are_not_the_new_streams(Fixture::end);
}

#[test]
fn a_checked_streams_blocks_are_not_those_of_its_handle() {
    run_in_child_with("a_checked_streams_blocks_are_not_those_of_its_handle", &[CHECKED], || {
        old_blocks_are_not_the_new_streams(Fixture::destroy);
    });
}

#[test]
fn a_block_of_a_destroyed_stream_is_freed_in_another() {
    run_in_child_with("a_block_of_a_destroyed_stream_is_freed_in_another", &[CHECKED], || {
        let fixture = Fixture::new();
        let (old, other) = (fixture.stream(), fixture.stream());
        let block = alloc(2 << 20, old);
        fixture.destroy(old);
        free(block, other);
        assert_eq!(freehold_try_free(block, 0, 0, other), FreeholdError::AlreadyReleased as i32);
        assert_eq!(freehold_live_bytes(0), 0);
    });
}

#[test]
fn checked_streams_use_their_own_blocks_again() {
    run_in_child_with("checked_streams_use_their_own_blocks_again", &[CHECKED], || {
        let fixture = Fixture::new();
        let (stream, latch) = (fixture.stream(), fixture.latch());
        for bytes in [512, 2 << 20] {
            let block = alloc(bytes, stream);
            fixture.hold(stream, &latch);
            free(block, stream);
            assert_eq!(alloc(bytes, stream), block);
            free(block, stream);
        }
        latch.open();
    });
}

/// NVIDIA's driver treats a handle as an address, and reads there.
#[test]
fn a_handle_of_no_stream_is_refused_and_changes_nothing() {
    for variables in [&[][..], &[CHECKED][..], &[("ANNOUNCED", "yes")][..]] {
        run_in_child_with("a_handle_of_no_stream_is_refused_and_changes_nothing", variables, || {
            let fixture = Fixture::new();
            if std::env::var_os("ANNOUNCED").is_some() {
                freehold_announce_captures();
            }
            let (stream, wild) = (fixture.stream(), std::ptr::without_provenance_mut(0xdead_beef));
            let block = alloc(1000, stream);
            assert!(freehold_alloc(1000, 0, wild).is_null());
            assert_eq!(freehold_try_free(block, 1000, 0, wild), FreeholdError::Driver as i32);
            assert_eq!(freehold_record_use(block, wild), FreeholdError::Driver as i32);
            assert_eq!(freehold_trim(0, 0), FreeholdError::None as i32);
            free(block, stream);
            fixture.synchronize(stream);
            fixture.end(stream);
            assert_eq!(fixture.left_bytes(), 0);
        });
    }
}

#[test]
fn a_destroyed_stream_is_named_as_the_error() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let block = alloc(512, handle(0));
    fixture.destroy(stream);
    let told = "the stream does not exist in the current context: it was destroyed, or never created; pass one that lives \
                (cuStreamIsCapturing: CUDA_ERROR_INVALID_HANDLE (400))";
    assert!(freehold_alloc(512, 0, stream).is_null());
    assert_eq!(last_error(), told);
    for call in
        [|block, stream| freehold_try_free(block, 0, 0, stream), |block, stream| freehold_record_use(block, stream)]
    {
        freehold_clear_error();
        assert_eq!(call(block, stream), FreeholdError::Driver as i32);
        assert_eq!(last_error(), told);
    }
    free(block, handle(0));
}
