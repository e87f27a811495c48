//! Tags: what is live under a name, and its budget.

use crate::fixture;

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fixture::{Fixture, NONE, alloc, free, handle, last_error};
use freehold_capi::*;
use freehold_testing::at_effort;

const MIB: usize = 1 << 20;

fn tagged(size: usize, stream: CUstream, tag: &CStr) -> *mut c_void {
    // SAFETY: the tag is a string that ends in a NUL.
    unsafe { freehold_alloc_tagged(size as isize, 0, stream, tag.as_ptr()) }
}

fn bytes(tag: &CStr) -> usize {
    // SAFETY: as above.
    unsafe { freehold_tag_bytes(0, tag.as_ptr()) }
}

fn set_budget(tag: &CStr, bytes: usize) -> i32 {
    // SAFETY: as above.
    unsafe { freehold_set_tag_budget(0, tag.as_ptr(), bytes) }
}

#[test]
fn what_is_live_under_a_tag_counts_for_those_it_is_within_until_it_is_freed() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.stream(), fixture.stream());
    let before = freehold_live_bytes(0);
    let cache = tagged(1000, here, c"counted/cache");
    let large = tagged(3 * MIB, here, c"counted");
    assert_eq!((bytes(c"counted"), bytes(c"counted/cache")), (3 * MIB + 1000, 1000));
    assert_eq!(freehold_live_bytes(0) - before, 3 * MIB + 1000);
    // In its home stream, and in another that used it.
    free(cache, here);
    assert_eq!(bytes(c"counted/cache"), 0);
    assert_eq!(freehold_record_use(large, there), NONE);
    free(large, there);
    assert_eq!(bytes(c"counted"), 0);
    assert_eq!(freehold_live_bytes(0), before);
    // The next block there is not counted.
    let untagged = alloc(1000, here);
    assert_eq!(bytes(c"counted"), 0);
    free(untagged, here);
    fixture.end(here);
    fixture.end(there);
}

#[test]
fn a_second_free_of_a_tagged_block_fails_and_counts_once() {
    let fixture = Fixture::new();
    let (one, other) = (tagged(700, handle(0), c"twice"), tagged(700, handle(0), c"twice"));
    free(one, handle(0));
    assert_eq!(freehold_try_free(one, 0, 0, handle(0)), FreeholdError::AlreadyReleased as i32);
    assert_eq!(bytes(c"twice"), 700);
    free(other, handle(0));
    assert_eq!(bytes(c"twice"), 0);
    drop(fixture);
}

#[test]
fn a_tags_budget_refuses_what_would_be_more_and_changes_nothing() {
    let fixture = Fixture::new();
    assert_eq!(set_budget(c"limited", 1500), NONE);
    let block = tagged(1000, handle(0), c"limited/inner");
    assert!(tagged(501, handle(0), c"limited").is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::TagBudget as i32);
    assert_eq!(
        last_error(),
        "limited has 1000 of 1500 bytes live, 501 more requested: release some, or raise its budget"
    );
    assert_eq!(bytes(c"limited"), 1000);
    assert_eq!(set_budget(c"limited", usize::MAX), NONE);
    let more = tagged(501, handle(0), c"limited");
    assert_eq!(bytes(c"limited"), 1501);
    free(block, handle(0));
    free(more, handle(0));
    drop(fixture);
}

#[test]
fn a_block_keeps_its_tag_when_it_gets_another_size_and_counts_once_meanwhile() {
    let fixture = Fixture::new();
    assert_eq!(set_budget(c"moved", 5 * MIB), NONE);
    let block = tagged(3 * MIB, handle(0), c"moved");
    let block = freehold_realloc(block, 4 * MIB as isize, 0, handle(0));
    assert!(!block.is_null(), "{}", last_error());
    assert_eq!(bytes(c"moved"), 4 * MIB);
    assert!(freehold_realloc(block, 6 * MIB as isize, 0, handle(0)).is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::TagBudget as i32);
    assert_eq!(bytes(c"moved"), 4 * MIB);
    free(block, handle(0));
    assert_eq!(bytes(c"moved"), 0);
    drop(fixture);
}

#[test]
fn a_tagged_block_gets_another_size_where_it_lies() {
    let fixture = Fixture::new();
    assert_eq!(set_budget(c"placed", 5 * MIB), NONE);
    let block = tagged(4 * MIB, handle(0), c"placed");
    assert_eq!(freehold_realloc(block, 3 * MIB as isize, 0, handle(0)), block);
    assert_eq!(bytes(c"placed"), 3 * MIB);
    assert_eq!(freehold_realloc(block, 4 * MIB as isize, 0, handle(0)), block);
    assert_eq!(bytes(c"placed"), 4 * MIB);
    assert!(freehold_realloc(block, 6 * MIB as isize, 0, handle(0)).is_null());
    assert_eq!(
        last_error(),
        "placed has 4194304 of 5242880 bytes live, 2097152 more requested: release some, or raise its budget"
    );
    assert_eq!(bytes(c"placed"), 4 * MIB);
    free(block, handle(0));
    assert_eq!(bytes(c"placed"), 0);
    drop(fixture);
}

#[test]
fn a_tagged_block_that_another_stream_uses_is_moved() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.stream(), fixture.stream());
    let block = tagged(4 * MIB, here, c"used");
    assert_eq!(freehold_record_use(block, there), NONE);
    let moved = freehold_realloc(block, 3 * MIB as isize, 0, here);
    assert!(!moved.is_null() && moved != block, "{}", last_error());
    assert_eq!(bytes(c"used"), 3 * MIB);
    assert_eq!(freehold_try_free(block, 0, 0, here), FreeholdError::AlreadyReleased as i32);
    free(moved, here);
    assert_eq!(bytes(c"used"), 0);
    fixture.end(here);
    fixture.end(there);
}

#[test]
fn live_bytes_of_a_tag_never_exceed_its_budget() {
    let fixture = Fixture::new();
    assert_eq!(set_budget(c"watched", 2 * MIB), NONE);
    let resize = || {
        fixture.enter();
        let stream = fixture.stream();
        for _ in 0..at_effort(30, 300, 3000) {
            let block = tagged(MIB, stream, c"watched");
            if block.is_null() {
                assert_eq!(freehold_last_error_code(), FreeholdError::TagBudget as i32);
                continue;
            }
            let longer = freehold_realloc(block, 2 * MIB as isize, 0, stream);
            assert!(bytes(c"watched") <= 2 * MIB);
            free(if longer.is_null() { block } else { longer }, stream);
        }
        fixture.end(stream);
    };
    let is_over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(bytes(c"watched"));
            }
            most
        });
        let threads = [(); 4].map(|()| scope.spawn(resize));
        let outcomes = threads.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::Relaxed);
        outcomes.into_iter().for_each(Result::unwrap);
        watcher.join().unwrap()
    });
    assert!(most <= 2 * MIB, "{most} bytes were live");
    assert_eq!(bytes(c"watched"), 0);
}

#[test]
fn a_tag_is_text() {
    let fixture = Fixture::new();
    // SAFETY: null is rejected.
    assert!(unsafe { freehold_alloc_tagged(100, 0, handle(0), ptr::null()) }.is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::NullArgument as i32);
    assert_eq!(last_error(), "tag is null: it must point to a value");
    assert!(tagged(100, handle(0), c"\xff").is_null());
    assert_eq!(last_error(), "tag is not valid UTF-8");
    assert_eq!(set_budget(c"\xff", 1), FreeholdError::NotText as i32);
    assert_eq!(bytes(c"\xff"), 0);
    drop(fixture);
}

#[test]
fn a_block_shrinks_though_its_tags_budget_was_lowered_below_what_is_live() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let block = tagged(4 * MIB, stream, c"lowered");
    assert_eq!(set_budget(c"lowered", 2 * MIB), NONE);
    let same = freehold_realloc(block, 4 * MIB as isize, 0, stream);
    assert!(!same.is_null(), "{}", last_error());
    let less = freehold_realloc(same, MIB as isize, 0, stream);
    assert!(!less.is_null(), "{}", last_error());
    assert_eq!(bytes(c"lowered"), MIB);
    free(less, stream);
    fixture.end(stream);
}
