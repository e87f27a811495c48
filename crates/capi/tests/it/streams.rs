//! Blocks and stream order: what is reused immediately, and what waits for which stream.

use crate::fixture;

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;

use fixture::{Fixture, NONE, alloc, free, handle, last_error};
use freehold_capi::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Allocates more blocks of a size than a stream keeps, so that another stream's blocks would be taken if they could
/// be.
fn alloc_many(bytes: usize, stream: CUstream) -> HashSet<*mut c_void> {
    (0..12).map(|_| alloc(bytes, stream)).collect()
}

fn free_all(blocks: HashSet<*mut c_void>, stream: CUstream) {
    blocks.into_iter().for_each(|block| free(block, stream));
}

#[test]
fn a_pair_in_one_stream_is_at_one_address() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    for bytes in [1, 512, 64 * KIB, 2 * MIB, 20 * MIB] {
        let first = alloc(bytes, stream);
        free(first, stream);
        assert_eq!(alloc(bytes, stream), first, "{bytes}");
        free(first, stream);
    }
    assert_eq!(freehold_live_bytes(0), 0);
    fixture.end(stream);
}

#[test]
fn a_busy_stream_uses_its_own_blocks_again() {
    let fixture = Fixture::new();
    let (stream, latch) = (fixture.stream(), fixture.latch());
    let block = alloc(2 * MIB, stream);
    fixture.hold(stream, &latch);
    free(block, stream);
    assert_eq!(alloc(2 * MIB, stream), block);
    free(block, stream);
    latch.open();
    fixture.end(stream);
}

#[test]
fn a_block_freed_on_a_busy_stream_is_not_reused_by_another() {
    let fixture = Fixture::new();
    let (busy, other, latch) = (fixture.stream(), fixture.stream(), fixture.latch());
    for bytes in [512, 2 * MIB] {
        let held = alloc_many(bytes, busy);
        fixture.hold(busy, &latch);
        free_all(held.clone(), busy);
        let others = alloc_many(bytes, other);
        assert!(others.is_disjoint(&held), "{bytes}");
        free_all(others, other);
    }
    latch.open();
    fixture.end(busy);
    fixture.end(other);
}

#[test]
fn a_recorded_use_keeps_a_block_until_it_is_done() {
    let fixture = Fixture::new();
    let (own, other, latch) = (fixture.stream(), fixture.stream(), fixture.latch());
    for bytes in [512, 2 * MIB] {
        let held = alloc_many(bytes, own);
        fixture.hold(other, &latch);
        for &block in &held {
            assert_eq!(freehold_record_use(block, other), NONE, "{}", last_error());
        }
        free_all(held.clone(), own);
        let next = alloc_many(bytes, own);
        assert!(next.is_disjoint(&held), "{bytes}");
        free_all(next, own);
    }
    assert_eq!(freehold_live_bytes(0), 0);
    latch.open();
    assert_eq!(fixture.left_bytes(), 0);
    fixture.end(own);
    fixture.end(other);
}

#[test]
fn a_block_freed_in_the_stream_that_used_it_waits_for_that_stream() {
    let fixture = Fixture::new();
    let (own, other, latch) = (fixture.stream(), fixture.stream(), fixture.latch());
    let held = alloc_many(2 * MIB, own);
    fixture.hold(other, &latch);
    free_all(held.clone(), other);
    let next = alloc_many(2 * MIB, own);
    assert!(next.is_disjoint(&held));
    free_all(next, own);
    latch.open();
    fixture.end(own);
    fixture.end(other);
}

#[test]
fn a_use_of_no_block_is_refused() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let wild = ptr::without_provenance_mut(0x1234_5000);
    assert_eq!(freehold_record_use(wild, stream), FreeholdError::NeverAllocated as i32);
    assert_eq!(
        last_error(),
        "0x12345000 is not a block of freehold_alloc: pass the address that freehold_alloc returned"
    );
    let block = alloc(512, stream);
    free(block, stream);
    let released = format!("512 bytes at {block:p} are already released: use a block before it is released");
    assert_eq!(freehold_record_use(block, stream), FreeholdError::AlreadyReleased as i32);
    assert_eq!(last_error(), released);
    assert!(freehold_realloc(block, 1024, 0, stream).is_null());
    assert_eq!(last_error(), released);
    fixture.end(stream);
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let fixture = Fixture::new();
    let per_thread = handle(2);
    let latch = fixture.latch();
    let held = alloc_many(2 * MIB, per_thread);
    fixture.hold(per_thread, &latch);
    free_all(held.clone(), per_thread);
    let held: HashSet<usize> = held.iter().map(|block| *block as usize).collect();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            fixture.enter();
            let others = alloc_many(2 * MIB, handle(2));
            let is_disjoint = others.iter().all(|block| !held.contains(&(*block as usize)));
            free_all(others, handle(2));
            assert_eq!(freehold_stream_retire(handle(2)), NONE);
            is_disjoint
        });
        assert!(other.join().unwrap());
    });
    latch.open();
    assert_eq!(freehold_stream_retire(per_thread), NONE);
}

#[test]
fn the_legacy_stream_has_two_names() {
    let fixture = Fixture::new();
    let block = alloc(512, handle(0));
    free(block, handle(1));
    assert_eq!(alloc(512, handle(0)), block);
    free(block, handle(0));
    drop(fixture);
}

#[test]
fn a_retired_streams_blocks_can_be_freed() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.stream(), fixture.stream());
    let block = alloc(2 * MIB, first);
    fixture.end(first);
    free(block, second);
    assert_eq!(freehold_live_bytes(0), 0);
    assert_eq!(fixture.left_bytes(), 0);
    fixture.end(second);
}

#[test]
fn a_block_freed_after_all_work_is_reused_when_every_stream_is_done() {
    let fixture = Fixture::new();
    let (own, other, latch) = (fixture.stream(), fixture.stream(), fixture.latch());
    for bytes in [512, 2 * MIB] {
        let held = alloc_many(bytes, ptr::null_mut());
        fixture.hold(other, &latch);
        for &block in &held {
            assert_eq!(freehold_free_after_all(block, 0), NONE, "{}", last_error());
            assert_eq!(freehold_free_after_all(block, 0), FreeholdError::AlreadyReleased as i32);
        }
        let next = alloc_many(bytes, ptr::null_mut());
        assert!(next.is_disjoint(&held), "{bytes}");
        free_all(next, ptr::null_mut());
    }
    latch.open();
    fixture.end(other);
    fixture.end(own);
    assert_eq!(fixture.left_bytes(), 0);
}

#[test]
fn an_allocation_that_lacks_memory_waits_for_blocks_freed_after_all_work() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    assert_eq!(freehold_set_budget(0, 64 * MIB), NONE, "{}", last_error());
    for _ in 0..8 {
        let block = alloc(48 * MIB, stream);
        assert_eq!(freehold_free_after_all(block, 0), NONE, "{}", last_error());
    }
    assert_eq!(freehold_set_budget(0, usize::MAX), NONE, "{}", last_error());
    fixture.end(stream);
}

#[test]
fn work_ordered_after_another_stream_waits_for_it() {
    let fixture = Fixture::new();
    let (earlier, later, latch) = (fixture.stream(), fixture.stream(), fixture.latch());
    fixture.hold(earlier, &latch);
    assert_eq!(freehold_order_after(0, later, earlier), NONE, "{}", last_error());
    assert_eq!(freehold_order_after(0, later, later), NONE, "{}", last_error());
    assert!(!fixture.is_idle(later));
    latch.open();
    fixture.end(later);
    fixture.end(earlier);
}
