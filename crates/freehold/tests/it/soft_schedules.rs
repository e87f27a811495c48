//! The library under the software driver's schedules: in whatever order streams advance, random programs read from
//! every block what they wrote there; and they fail if the library does not wait, or trusts false fences.
//!
//! A schedule is chosen when the driver starts, so each seed has its own process. `FREEHOLD_SEED` names the only one to
//! run.

use crate::children::{all_wrong, wrong_under};
use crate::program;

use std::sync::atomic::{AtomicU64, Ordering};

use freehold_driver::cuda::{Api, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUresult, CUstream, driver};
use freehold_testing::{child, env_seed, seeds};
use program::growth;

// SAFETY: the test names streams, memory and handles that it made.
const API: Api = unsafe { freehold_softcuda::api() };

/// What runs the program of a seed.
type Run = fn(u64, Api, CUdevice) -> Result<(), program::Wrong>;

/// In the child of the test `name`, runs its program over a driver and says what was wrong. Whether this is one.
fn is_child(name: &str, api: Api, run: Run) -> bool {
    if !child::is_child(name) {
        return false;
    }
    driver::init(&api, 0).unwrap();
    if let Err(wrong) = run(env_seed().expect("a child has a seed"), api, CUdevice(0)) {
        child::report_line(&wrong.to_string());
    }
    true
}

/// Runs the programs of many seeds in the test `name`: none is wrong.
#[track_caller]
fn assert_right(name: &str) {
    assert_eq!(all_wrong(name, seeds(2, 20, 400), &[]), [""; 0]);
}

/// Runs the programs of seeds in the test `name` until one is wrong: that takes as many as it takes, whatever the effort. The
/// first one is known to be.
#[track_caller]
fn assert_caught(name: &str, first: u64) {
    let caught = (first..first + 400).find_map(|seed| Some((seed, wrong_under(name, seed, &[])?)));
    let (seed, wrong) = caught.expect("some seed shows that the library is wrong");
    println!("caught by seed {seed}: {wrong}");
    let is_seen = ["after step", "the device has failed"].iter().any(|&begin| wrong.starts_with(begin));
    assert!(is_seen, "{wrong}");
}

#[test]
fn blocks_hold_what_was_put_there_under_every_schedule() {
    const NAME: &str = "blocks_hold_what_was_put_there_under_every_schedule";
    if !is_child(NAME, API, program::run) {
        assert_right(NAME);
    }
}

unsafe extern "C" fn no_words(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    if attribute == CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS {
        // SAFETY: the caller gives a pointer to one `i32`, which outlives the call.
        unsafe { value.write(0) };
        return Ok(());
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { (API.cuDeviceGetAttribute)(value, attribute, device) }
}

#[test]
fn they_do_with_events_where_the_device_writes_no_words() {
    const NAME: &str = "they_do_with_events_where_the_device_writes_no_words";
    if !is_child(NAME, Api { cuDeviceGetAttribute: no_words, ..API }, program::run) {
        assert_right(NAME);
    }
}

unsafe extern "C" fn waits_for_nothing(_: CUstream, _: CUevent, _: u32) -> CUresult {
    Ok(())
}

#[test]
fn streams_that_do_not_wait_for_each_other_are_caught() {
    const NAME: &str = "streams_that_do_not_wait_for_each_other_are_caught";
    if !is_child(NAME, Api { cuStreamWaitEvent: waits_for_nothing, ..API }, program::run) {
        assert_caught(NAME, 1);
    }
}

unsafe extern "C" fn awaits_nothing(_: CUstream, _: CUdeviceptr, _: u64, _: u32) -> CUresult {
    Ok(())
}

#[test]
fn streams_that_do_not_await_the_end_of_transfers_are_caught() {
    const NAME: &str = "streams_that_do_not_await_the_end_of_transfers_are_caught";
    if !is_child(NAME, Api { cuStreamWaitValue64_v2: awaits_nothing, ..API }, program::run) {
        assert_caught(NAME, 1);
    }
}

/// Writes the word now, and not when the stream comes to it.
unsafe extern "C" fn writes_at_once(_: CUstream, address: CUdeviceptr, value: u64, _: u32) -> CUresult {
    let word: *const AtomicU64 = std::ptr::with_exposed_provenance(address.0 as usize);
    // SAFETY: the library gives words of pinned memory, which the host sees at the address that the device does.
    let word = unsafe { &*word };
    word.store(value, Ordering::Release);
    Ok(())
}

#[test]
fn fences_that_lie_are_caught() {
    const NAME: &str = "fences_that_lie_are_caught";
    if !is_child(NAME, Api { cuStreamWriteValue64_v2: writes_at_once, ..API }, program::run) {
        assert_caught(NAME, 1);
    }
}

#[test]
fn vectors_and_pieces_hold_what_was_put_there_under_every_schedule() {
    const NAME: &str = "vectors_and_pieces_hold_what_was_put_there_under_every_schedule";
    if !is_child(NAME, API, growth::run) {
        assert_right(NAME);
    }
}

#[test]
fn vectors_and_pieces_that_are_not_waited_for_are_caught() {
    const NAME: &str = "vectors_and_pieces_that_are_not_waited_for_are_caught";
    if !is_child(NAME, Api { cuStreamWaitEvent: waits_for_nothing, ..API }, growth::run) {
        assert_caught(NAME, 1);
    }
}

#[test]
fn vectors_and_slices_whose_fences_lie_are_caught() {
    const NAME: &str = "vectors_and_slices_whose_fences_lie_are_caught";
    if !is_child(NAME, Api { cuStreamWriteValue64_v2: writes_at_once, ..API }, growth::run) {
        assert_caught(NAME, 11);
    }
}
