//! Vectors: a fixed address, growth beside running work, and release after all work.

use std::ptr;

use crate::fixture::{Fixture, NONE, last_error};
use freehold_capi::*;

const MIB: usize = 1 << 20;

fn new(size_max: usize) -> *mut FreeholdVector {
    let vector = freehold_vector_new(0, size_max);
    assert!(!vector.is_null(), "{}", last_error());
    vector
}

fn resize(vector: *mut FreeholdVector, size: usize) -> i32 {
    // SAFETY: the vector is null, or was made by `new` and is not freed.
    freehold_vector_resize(unsafe { vector.as_mut() }, size)
}

/// Returns the address, the size and the capacity.
fn state(vector: *mut FreeholdVector) -> (usize, usize, usize) {
    // SAFETY: as above.
    let of = || unsafe { vector.as_ref() };
    (freehold_vector_address(of()).addr(), freehold_vector_size(of()), freehold_vector_capacity(of()))
}

fn free(vector: *mut FreeholdVector) {
    // SAFETY: as above, and it is not used again.
    assert_eq!(unsafe { freehold_vector_free(vector) }, NONE, "{}", last_error());
}

#[test]
fn a_vector_grows_at_its_address_and_keeps_its_contents() {
    let fixture = Fixture::new();
    let vector = new(0);
    assert_eq!(resize(vector, 100), NONE, "{}", last_error());
    let (address, size, _) = state(vector);
    assert_eq!(size, 100);
    let start = ptr::without_provenance_mut(address);
    fixture.write(start, &[7; 100]);
    assert_eq!(resize(vector, 20 * MIB), NONE, "{}", last_error());
    let (same, size, capacity) = state(vector);
    assert_eq!((same, size), (address, 20 * MIB));
    assert!(capacity >= 20 * MIB);
    assert_eq!(fixture.read(start, 100), [7; 100]);
    free(vector);
}

#[test]
fn a_vector_is_limited_by_its_addresses_and_the_budget() {
    let fixture = Fixture::new();
    let vector = new(1000);
    assert_ne!(resize(vector, 1001), NONE);
    assert!(last_error().contains("1001"), "{}", last_error());
    assert_eq!(state(vector).1, 0);
    free(vector);
    assert_eq!(fixture.left_bytes(), 0);
    let vector = new(0);
    assert_eq!(freehold_set_budget(0, 8 * MIB), NONE);
    assert_eq!(resize(vector, 16 * MIB), FreeholdError::OutOfMemory as i32);
    assert_eq!(freehold_set_budget(0, usize::MAX), NONE);
    assert_eq!(resize(vector, 16 * MIB), NONE, "{}", last_error());
    free(vector);
}

#[test]
fn memory_of_a_vector_is_given_back_after_all_work() {
    let fixture = Fixture::new();
    let (stream, latch) = (fixture.stream(), fixture.latch());
    let vector = new(0);
    assert_eq!(resize(vector, 1), NONE, "{}", last_error());
    assert_eq!(resize(vector, 64 * MIB), NONE, "{}", last_error());
    fixture.hold(stream, &latch);
    assert_eq!(resize(vector, 1), NONE);
    // SAFETY: the vector is not freed.
    assert_eq!(freehold_vector_shrink(unsafe { vector.as_mut() }), NONE, "{}", last_error());
    assert!(state(vector).2 < 64 * MIB);
    free(vector);
    assert_eq!(freehold_trim(0, 0), NONE);
    assert!(freehold_reserved_bytes(0) >= 64 * MIB);
    latch.open();
    fixture.synchronize(stream);
    assert_eq!(fixture.left_bytes(), 0);
    fixture.end(stream);
}

#[test]
fn work_ordered_after_all_work_waits_for_each_stream() {
    let fixture = Fixture::new();
    let (earlier, later, latch) = (fixture.stream(), fixture.stream(), fixture.latch());
    fixture.hold(earlier, &latch);
    assert_eq!(freehold_order_after_all(0, later), NONE, "{}", last_error());
    assert!(!fixture.is_idle(later));
    latch.open();
    fixture.synchronize(later);
    fixture.end(later);
    fixture.end(earlier);
}

#[test]
fn null_is_no_vector() {
    let _fixture = Fixture::new();
    assert_eq!(resize(ptr::null_mut(), 1), FreeholdError::NullArgument as i32);
    assert_eq!(freehold_vector_shrink(None), FreeholdError::NullArgument as i32);
    assert_eq!(state(ptr::null_mut()), (0, 0, 0));
    free(ptr::null_mut());
    assert!(freehold_vector_new(99, 0).is_null());
    assert!(last_error().contains("99"), "{}", last_error());
}
