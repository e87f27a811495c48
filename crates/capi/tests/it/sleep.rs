//! Blocks that sleep, by their C names.

use crate::fixture;

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use fixture::{Fixture, NONE, free, handle, last_error};
use freehold_capi::*;
use freehold_driver::cuda::{CUdeviceptr, copy, fill};

const MIB: usize = 1 << 20;
const TAG: &CStr = c"capi/asleep";

fn tagged(size: usize) -> *mut c_void {
    // SAFETY: the tag is a string that ends in a NUL.
    unsafe { freehold_alloc_tagged(size as isize, 0, handle(0), TAG.as_ptr()) }
}

fn set_sleepable() -> i32 {
    // SAFETY: as above.
    unsafe { freehold_set_sleepable(0, TAG.as_ptr()) }
}

/// The code, and how many bytes went back.
fn sleep(keep: i32) -> (i32, usize) {
    let mut bytes = MaybeUninit::new(usize::MAX);
    // SAFETY: as above.
    let code = unsafe { freehold_sleep(0, TAG.as_ptr(), keep, Some(&mut bytes)) };
    // SAFETY: it had a value before the call.
    (code, unsafe { bytes.assume_init() })
}

fn wake() -> (i32, usize) {
    let mut bytes = MaybeUninit::new(usize::MAX);
    // SAFETY: as above.
    let code = unsafe { freehold_wake(0, TAG.as_ptr(), Some(&mut bytes)) };
    // SAFETY: it had a value before the call.
    (code, unsafe { bytes.assume_init() })
}

#[test]
fn tagged_blocks_sleep_and_wake_with_their_contents_and_say_what_went_back() {
    let fixture = Fixture::new();
    let not_sleepable = FreeholdError::NotSleepable as i32;
    assert_eq!(sleep(1), (not_sleepable, usize::MAX));
    assert!(last_error().contains("call `set_sleepable(\"capi/asleep\")` before allocating them"), "{}", last_error());
    assert_eq!((set_sleepable(), set_sleepable()), (NONE, NONE));
    let block = tagged(4 * MIB);
    let at = CUdeviceptr(block as u64);
    fill::d8(&fixture.api, at, 5, 4 * MIB).unwrap();
    let reserved_bytes = freehold_reserved_bytes(0);
    assert_eq!((sleep(1), sleep(1)), ((NONE, 4 * MIB), (NONE, 0)));
    assert_eq!(freehold_reserved_bytes(0), reserved_bytes - 4 * MIB);
    let moved = freehold_realloc(block, 80 * MIB as isize, 0, handle(0));
    assert_eq!((moved, freehold_last_error_code()), (ptr::null_mut(), FreeholdError::Asleep as i32));
    assert_eq!((wake(), wake()), ((NONE, 4 * MIB), (NONE, 0)));
    let mut found = vec![0; 4 * MIB];
    copy::device_to_host(&fixture.api, &mut found, at).unwrap();
    assert!(found == vec![5; 4 * MIB]);
    assert_eq!(sleep(0), (NONE, 4 * MIB));
    free(block, handle(0));
    // SAFETY: the tag is a string that ends in a NUL, and the count may be null.
    assert_eq!(unsafe { freehold_wake(0, TAG.as_ptr(), None) }, NONE);
    assert_eq!(freehold_reserved_bytes(0), reserved_bytes - 4 * MIB);
    // SAFETY: a null tag is refused.
    assert_eq!(unsafe { freehold_sleep(0, ptr::null(), 1, None) }, FreeholdError::NullArgument as i32);
}
