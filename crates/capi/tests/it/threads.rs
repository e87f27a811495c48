//! Many threads at once: no block is lost, counted twice or allocated twice.

use crate::fixture;

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::Mutex;

use fixture::{Fixture, NONE, free, last_error};
use freehold_capi::*;
use freehold_testing::{Random, at_effort, report_covered, seed};

const THREADS: u64 = 8;
const KEPT: usize = 64;
const HANDED_MAX: usize = 512;

/// The number of steps of each thread.
fn steps() -> u64 {
    at_effort(1000, 20_000, 200_000)
}

/// A random size, usually a small one.
fn bytes(random: &mut Random) -> usize {
    let limit =
        random.pick(&[4 << 10, 4 << 10, 4 << 10, 4 << 10, 4 << 10, 64 << 10, 64 << 10, 64 << 10, 1 << 20, 8 << 20]);
    random.below(limit) as usize + 1
}

/// A block on its way to another thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SendPtr(*mut c_void);

// SAFETY: the address is a number here; nothing reads through it.
unsafe impl Send for SendPtr {}
// SAFETY: as above.
unsafe impl Sync for SendPtr {}

#[derive(Clone, Copy)]
struct Streams([CUstream; 4]);

// SAFETY: handles are numbers, which the driver accepts in any thread.
unsafe impl Send for Streams {}
// SAFETY: as above.
unsafe impl Sync for Streams {}

fn hammer(mut random: Random, streams: &Streams, counter: &Mutex<Vec<SendPtr>>, live: &Mutex<HashSet<SendPtr>>) {
    let mut kept = Vec::new();
    for _ in 0..steps() {
        let stream = streams.0[random.below(4) as usize];
        match random.below(10) {
            // Few enough that all of them fit the smallest device.
            0..=4 if kept.len() < KEPT => {
                let block = SendPtr(freehold_alloc(bytes(&mut random) as isize, 0, stream));
                assert!(!block.0.is_null(), "{}", last_error());
                assert!(live.lock().unwrap().insert(block), "a block was allocated twice");
                kept.push(block);
            }
            5..=6 => {
                let Some(block) = kept.pop() else { continue };
                let mut counter = counter.lock().unwrap();
                counter.push(block);
                // Bounds the number of waiting blocks, so that they fit the smallest device.
                if counter.len() > HANDED_MAX {
                    let block = counter.swap_remove(0);
                    drop(counter);
                    assert!(live.lock().unwrap().remove(&block), "a block was freed twice");
                    free(block.0, stream);
                }
            }
            8 if !kept.is_empty() => {
                let block = kept[random.below(kept.len() as u64) as usize];
                assert_eq!(freehold_record_use(block.0, stream), NONE, "{}", last_error());
            }
            _ => {
                let handed = if random.below(2) == 0 { counter.lock().unwrap().pop() } else { None };
                let Some(block) = handed.or_else(|| kept.pop()) else { continue };
                assert!(live.lock().unwrap().remove(&block), "a block was freed twice");
                free(block.0, stream);
            }
        }
    }
    counter.lock().unwrap().append(&mut kept);
}

#[test]
fn after_a_storm_nothing_is_live_and_nothing_stays_reserved() {
    let fixture = Fixture::new();
    let seed = seed();
    report_covered(steps() * THREADS, "operations of the C interface");
    let streams = Streams([(); 4].map(|()| fixture.stream()));
    let (counter, live) = (Mutex::default(), Mutex::default());
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (streams, counter, live) = (&streams, &counter, &live);
            let random = Random::new(seed.wrapping_mul(THREADS).wrapping_add(number));
            scope.spawn(move || hammer(random, streams, counter, live));
        }
    });
    let rest = counter.into_inner().unwrap();
    rest.into_iter().for_each(|SendPtr(block)| free(block, streams.0[0]));
    assert_eq!(freehold_live_bytes(0), 0);
    assert_eq!(fixture.left_bytes(), 0);
    streams.0.iter().for_each(|&stream| fixture.end(stream));
}

#[test]
fn one_of_two_concurrent_frees_fails() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let streams = Streams([stream; 4]);
    for _ in 0..at_effort(20, 200, 2000) {
        let block = SendPtr(fixture::alloc(700, stream));
        let codes: Vec<i32> = std::thread::scope(|scope| {
            let (block, streams) = (&block, &streams);
            let free = move || freehold_try_free(block.0, 0, 0, streams.0[0]);
            let threads = [scope.spawn(free), scope.spawn(free)];
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(codes.iter().filter(|&&code| code == NONE).count(), 1);
        assert_eq!(codes.iter().filter(|&&code| code == FreeholdError::AlreadyReleased as i32).count(), 1);
    }
    assert_eq!(freehold_live_bytes(0), 0);
    fixture.end(stream);
}
