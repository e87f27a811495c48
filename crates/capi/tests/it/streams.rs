//! Blocks and the order of streams: what is used again at once, and what waits for whom.

use crate::world;

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;

use freehold_capi::*;
use world::{NONE, World, alloc, free, handle, last_error};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// More blocks of a size than a stream keeps, so that others would be given what it has if they could.
fn some(bytes: usize, stream: CUstream) -> HashSet<*mut c_void> {
    (0..12).map(|_| alloc(bytes, stream)).collect()
}

fn free_all(blocks: HashSet<*mut c_void>, stream: CUstream) {
    blocks.into_iter().for_each(|block| free(block, stream));
}

#[test]
fn a_pair_in_one_stream_is_at_one_address() {
    let world = World::new();
    let stream = world.stream();
    for bytes in [1, 512, 64 * KIB, 2 * MIB, 20 * MIB] {
        let first = alloc(bytes, stream);
        free(first, stream);
        assert_eq!(alloc(bytes, stream), first, "{bytes}");
        free(first, stream);
    }
    assert_eq!(freehold_live_bytes(0), 0);
    world.end(stream);
}

#[test]
fn a_busy_stream_uses_its_own_blocks_again() {
    let world = World::new();
    let (stream, gate) = (world.stream(), world.gate());
    let block = alloc(2 * MIB, stream);
    world.hold(stream, &gate);
    free(block, stream);
    assert_eq!(alloc(2 * MIB, stream), block);
    free(block, stream);
    gate.open();
    world.end(stream);
}

#[test]
fn what_a_busy_stream_gave_up_is_not_anothers() {
    let world = World::new();
    let (busy, other, gate) = (world.stream(), world.stream(), world.gate());
    for bytes in [512, 2 * MIB] {
        let held = some(bytes, busy);
        world.hold(busy, &gate);
        free_all(held.clone(), busy);
        let others = some(bytes, other);
        assert!(others.is_disjoint(&held), "{bytes}");
        free_all(others, other);
    }
    gate.open();
    world.end(busy);
    world.end(other);
}

#[test]
fn a_recorded_use_keeps_a_block_until_it_is_done() {
    let world = World::new();
    let (own, other, gate) = (world.stream(), world.stream(), world.gate());
    for bytes in [512, 2 * MIB] {
        let held = some(bytes, own);
        world.hold(other, &gate);
        for &block in &held {
            assert_eq!(freehold_record_use(block, other), NONE, "{}", last_error());
        }
        free_all(held.clone(), own);
        let next = some(bytes, own);
        assert!(next.is_disjoint(&held), "{bytes}");
        free_all(next, own);
    }
    assert_eq!(freehold_live_bytes(0), 0);
    gate.open();
    assert_eq!(world.left_bytes(), 0);
    world.end(own);
    world.end(other);
}

#[test]
fn a_block_freed_in_the_stream_that_used_it_waits_for_that_stream() {
    let world = World::new();
    let (own, other, gate) = (world.stream(), world.stream(), world.gate());
    let held = some(2 * MIB, own);
    world.hold(other, &gate);
    free_all(held.clone(), other);
    let next = some(2 * MIB, own);
    assert!(next.is_disjoint(&held));
    free_all(next, own);
    gate.open();
    world.end(own);
    world.end(other);
}

#[test]
fn a_use_of_no_block_is_refused() {
    let world = World::new();
    let stream = world.stream();
    let wild = ptr::without_provenance_mut(0x1234_5000);
    assert_eq!(freehold_record_use(wild, stream), FreeholdError::NeverAllocated as i32);
    let block = alloc(512, stream);
    free(block, stream);
    assert_eq!(freehold_record_use(block, stream), FreeholdError::AlreadyReleased as i32);
    world.end(stream);
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let world = World::new();
    let per_thread = handle(2);
    let gate = world.gate();
    let held = some(2 * MIB, per_thread);
    world.hold(per_thread, &gate);
    free_all(held.clone(), per_thread);
    let held: HashSet<usize> = held.iter().map(|block| *block as usize).collect();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            world.enter();
            let others = some(2 * MIB, handle(2));
            let is_disjoint = others.iter().all(|block| !held.contains(&(*block as usize)));
            free_all(others, handle(2));
            assert_eq!(freehold_stream_retire(handle(2)), NONE);
            is_disjoint
        });
        assert!(other.join().unwrap());
    });
    gate.open();
    assert_eq!(freehold_stream_retire(per_thread), NONE);
}

#[test]
fn the_legacy_stream_has_two_names() {
    let world = World::new();
    let block = alloc(512, handle(0));
    free(block, handle(1));
    assert_eq!(alloc(512, handle(0)), block);
    free(block, handle(0));
    drop(world);
}

#[test]
fn a_retired_streams_blocks_can_be_freed() {
    let world = World::new();
    let (first, second) = (world.stream(), world.stream());
    let block = alloc(2 * MIB, first);
    world.end(first);
    free(block, second);
    assert_eq!(freehold_live_bytes(0), 0);
    assert_eq!(world.left_bytes(), 0);
    world.end(second);
}
