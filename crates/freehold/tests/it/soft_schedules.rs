//! The library under the software driver's schedules: in whatever order streams advance, random programs find in every
//! block what they put there; and they notice when the library does not wait, or believes marks that lie.
//!
//! A schedule is chosen when the driver starts, so each seed has a process of its own. `FREEHOLD_SEED` names the only one
//! to run.

use crate::program;

use std::env;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use freehold_driver::cuda::{Api, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUresult, CUstream, driver};
use freehold_softcuda::API;
use freehold_testing::command_for_test;
use program::growth;

const SEEDS: RangeInclusive<u64> = 1..=200;

/// Processes at once.
const AT_ONCE: usize = 4;

/// Names, in a child, the seed that it was started for.
const CHILD: &str = "FREEHOLD_SCHEDULES_CHILD";

fn seeds() -> RangeInclusive<u64> {
    match env::var("FREEHOLD_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("FREEHOLD_SEED is a number");
            seed..=seed
        }
        Err(_) => SEEDS,
    }
}

/// What runs the program of a seed.
type Run = fn(u64, Api, CUdevice) -> Result<(), program::Wrong>;

/// In a child, runs its program over a driver and says what was wrong. Whether this is one.
fn is_child(api: Api, run: Run) -> bool {
    let Ok(seed) = env::var(CHILD) else { return false };
    driver::init(&api, 0).unwrap();
    if let Err(wrong) = run(seed.parse().unwrap(), api, CUdevice(0)) {
        // The harness leaves its own line open before a test.
        println!("\n|{wrong}");
    }
    true
}

/// What was wrong with the program of a seed in the test `name`.
fn wrong_under(name: &str, seed: u64) -> Option<String> {
    let mut command = command_for_test(name);
    command.env(CHILD, seed.to_string()).env("FREEHOLD_SOFT_SCHEDULE", format!("seed:{seed}"));
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    if let Some(wrong) = printed.lines().find_map(|line| line.strip_prefix('|')) {
        return Some(wrong.to_owned());
    }
    let is_done = output.status.success() && printed.contains("1 passed");
    (!is_done).then(|| format!("{}\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs the programs of all seeds in the test `name`, and returns those that were wrong.
fn all_wrong(name: &str) -> Vec<String> {
    let (next, end) = (AtomicU64::new(*seeds().start()), *seeds().end());
    let found = Mutex::new(Vec::new());
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > end {
                return;
            }
            if let Some(wrong) = wrong_under(name, seed) {
                found.lock().unwrap().push(format!("FREEHOLD_SEED={seed}: {wrong}"));
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(run))));
    found.into_inner().unwrap()
}

/// The first seed whose program is wrong in the test `name`.
#[track_caller]
fn assert_caught(name: &str) {
    let mut seeds = seeds();
    let caught = seeds.find_map(|seed| Some((seed, wrong_under(name, seed)?)));
    let (seed, wrong) = caught.expect("some seed shows that the library is wrong");
    println!("caught by FREEHOLD_SEED={seed}: {wrong}");
    let is_seen = ["after step", "the device has failed"].iter().any(|&begin| wrong.starts_with(begin));
    assert!(is_seen, "{wrong}");
}

#[test]
fn blocks_hold_what_was_put_there_under_every_schedule() {
    if !is_child(API, program::run) {
        assert_eq!(all_wrong("blocks_hold_what_was_put_there_under_every_schedule"), [""; 0]);
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
    if !is_child(Api { cuDeviceGetAttribute: no_words, ..API }, program::run) {
        assert_eq!(all_wrong("they_do_with_events_where_the_device_writes_no_words"), [""; 0]);
    }
}

unsafe extern "C" fn waits_for_nothing(_: CUstream, _: CUevent, _: u32) -> CUresult {
    Ok(())
}

#[test]
fn streams_that_do_not_wait_for_each_other_are_caught() {
    if !is_child(Api { cuStreamWaitEvent: waits_for_nothing, ..API }, program::run) {
        assert_caught("streams_that_do_not_wait_for_each_other_are_caught");
    }
}

unsafe extern "C" fn awaits_nothing(_: CUstream, _: CUdeviceptr, _: u64, _: u32) -> CUresult {
    Ok(())
}

#[test]
fn streams_that_do_not_await_the_end_of_transfers_are_caught() {
    if !is_child(Api { cuStreamWaitValue64_v2: awaits_nothing, ..API }, program::run) {
        assert_caught("streams_that_do_not_await_the_end_of_transfers_are_caught");
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
fn marks_that_lie_are_caught() {
    if !is_child(Api { cuStreamWriteValue64_v2: writes_at_once, ..API }, program::run) {
        assert_caught("marks_that_lie_are_caught");
    }
}

#[test]
fn vectors_and_pieces_hold_what_was_put_there_under_every_schedule() {
    if !is_child(API, growth::run) {
        assert_eq!(all_wrong("vectors_and_pieces_hold_what_was_put_there_under_every_schedule"), [""; 0]);
    }
}

#[test]
fn vectors_and_pieces_that_are_not_waited_for_are_caught() {
    if !is_child(Api { cuStreamWaitEvent: waits_for_nothing, ..API }, growth::run) {
        assert_caught("vectors_and_pieces_that_are_not_waited_for_are_caught");
    }
}

#[test]
fn vectors_and_pieces_whose_marks_lie_are_caught() {
    if !is_child(Api { cuStreamWriteValue64_v2: writes_at_once, ..API }, growth::run) {
        assert_caught("vectors_and_pieces_whose_marks_lie_are_caught");
    }
}
