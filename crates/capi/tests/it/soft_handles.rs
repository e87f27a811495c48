//! The handle of a destroyed stream comes back for another one (fact 2.5). Work of the old stream may be pending then, and
//! what was released in it is not the new one's to use.

use crate::world;

use std::collections::HashSet;

use freehold_capi::*;
use freehold_testing::child::alone_with;
use world::{World, alloc, free};

const CHECKED: (&str, &str) = ("FREEHOLD_STREAMS", "checked");

/// A block released in a stream that is held up and destroyed, and a stream of the same handle: nothing that the first one
/// released is handed out in the second one before the first is done.
fn old_blocks_are_not_the_new_streams(end: impl Fn(&World, CUstream)) {
    let world = World::new();
    for bytes in [512, 2 << 20] {
        let (old, gate) = (world.stream(), world.gate());
        let held: HashSet<_> = (0..12).map(|_| alloc(bytes, old)).collect();
        world.hold(old, &gate);
        held.iter().for_each(|&block| free(block, old));
        end(&world, old);
        let new = world.stream();
        assert_eq!(new, old, "the driver gives the handle again");
        let next: HashSet<_> = (0..12).map(|_| alloc(bytes, new)).collect();
        assert!(next.is_disjoint(&held), "{bytes}");
        next.iter().for_each(|&block| free(block, new));
        gate.open();
        world.synchronize(new);
        end(&world, new);
    }
    assert_eq!(freehold_live_bytes(0), 0);
    // Nothing is left behind by streams that are gone.
    assert_eq!(world.left_bytes(), 0);
}

#[test]
fn a_retired_streams_blocks_are_not_those_of_its_handle() {
    old_blocks_are_not_the_new_streams(World::end);
}

#[test]
fn a_checked_streams_blocks_are_not_those_of_its_handle() {
    alone_with("a_checked_streams_blocks_are_not_those_of_its_handle", &[CHECKED], || {
        old_blocks_are_not_the_new_streams(World::destroy);
    });
}

#[test]
fn a_block_of_a_destroyed_stream_is_freed_in_another() {
    alone_with("a_block_of_a_destroyed_stream_is_freed_in_another", &[CHECKED], || {
        let world = World::new();
        let (old, other) = (world.stream(), world.stream());
        let block = alloc(2 << 20, old);
        world.destroy(old);
        free(block, other);
        assert_eq!(freehold_try_free(block, 0, 0, other), FreeholdError::AlreadyReleased as i32);
        assert_eq!(freehold_live_bytes(0), 0);
    });
}

#[test]
fn checked_streams_use_their_own_blocks_again() {
    alone_with("checked_streams_use_their_own_blocks_again", &[CHECKED], || {
        let world = World::new();
        let (stream, gate) = (world.stream(), world.gate());
        for bytes in [512, 2 << 20] {
            let block = alloc(bytes, stream);
            world.hold(stream, &gate);
            free(block, stream);
            assert_eq!(alloc(bytes, stream), block);
            free(block, stream);
        }
        gate.open();
    });
}

/// NVIDIA's driver takes a handle for an address, and reads there.
#[test]
fn a_handle_of_no_stream_is_refused_and_changes_nothing() {
    for variables in [&[][..], &[CHECKED][..], &[("ANNOUNCED", "yes")][..]] {
        alone_with("a_handle_of_no_stream_is_refused_and_changes_nothing", variables, || {
            let world = World::new();
            if std::env::var_os("ANNOUNCED").is_some() {
                freehold_announce_captures();
            }
            let (stream, wild) = (world.stream(), std::ptr::without_provenance_mut(0xdead_beef));
            let block = alloc(1000, stream);
            assert!(freehold_alloc(1000, 0, wild).is_null());
            assert_eq!(freehold_try_free(block, 1000, 0, wild), FreeholdError::Driver as i32);
            assert_eq!(freehold_record_use(block, wild), FreeholdError::Driver as i32);
            assert_eq!(freehold_trim(0, 0), FreeholdError::None as i32);
            free(block, stream);
            world.synchronize(stream);
            world.end(stream);
            assert_eq!(world.left_bytes(), 0);
        });
    }
}
