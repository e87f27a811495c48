//! Many threads on the software driver: each gets its own correct results, and of two threads that free one block, one
//! gets an error.

use crate::common;

use std::sync::{Barrier, mpsc};
use std::thread;

use common::schedules::{schedules, under};
use common::thread_state::WatchedThread;
use common::{Context, Gate, child};
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUevent, CUmemPoolProps, CUmemoryPool, CUstream, DriverError, context, copy, device, event,
    fill, memory, pool, stream,
};
use freehold_testing::{Random, at_effort, report_covered, seed};

const THREADS: u64 = 8;
const BYTES: usize = 6000;

/// The resources of one thread.
struct Worker<'c> {
    own: &'c Context,
    random: Random,
    streams: [CUstream; 2],
    event: CUevent,
    pool: CUmemoryPool,
}

impl Worker<'_> {
    /// Moves bytes through a block of the heap and one of the pool and back, over both streams, and sums them on the
    /// way.
    fn round(&mut self) {
        let api = &self.own.api;
        let [first, second] = self.streams;
        let sent: Vec<u8> = (0..BYTES).map(|_| self.random.next() as u8).collect();
        let block = memory::alloc(api, BYTES).unwrap();
        let pooled = memory::alloc_from_pool_async(api, BYTES, self.pool, first).unwrap();
        // SAFETY: `sent` outlives the stream's work.
        unsafe { copy::host_to_device_async(api, block, sent.as_ptr().cast(), BYTES, first) }.unwrap();
        copy::device_to_device_async(api, pooled, block, BYTES, first).unwrap();
        event::record(api, self.event, first).unwrap();
        stream::wait_event(api, second, self.event, 0).unwrap();
        fill::d8_async(api, block, 0, BYTES, second).unwrap();
        copy::device_to_device_async(api, block, pooled, BYTES, second).unwrap();
        memory::free_async(api, pooled, second).unwrap();
        let mut returned = vec![0_u8; BYTES];
        // SAFETY: `returned` outlives the stream's work.
        unsafe { copy::device_to_host_async(api, returned.as_mut_ptr().cast(), block, BYTES, second) }.unwrap();
        stream::synchronize(api, second).unwrap();
        assert_eq!(checksum(&returned), checksum(&sent));
        assert!(returned == sent, "the bytes are those that were sent");
        memory::free(api, block).unwrap();
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte))
}

/// The contexts that the threads use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum In {
    One,
    TheirOwn,
}

/// Lets eight threads work.
fn work(contexts: In, rounds: usize) {
    let seed = seed();
    report_covered(rounds as u64 * THREADS, "round trips of threads");
    let one = Context::create();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let one = &one;
            scope.spawn(move || {
                let owned = (contexts == In::TheirOwn).then(Context::create);
                let own = owned.as_ref().unwrap_or(one);
                own.enter();
                let pool = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
                let event = event::create(&own.api, 0).unwrap();
                let streams = [own.stream(), own.blocking()];
                let mut worker = Worker { own, random: Random::new(seed ^ thread), streams, event, pool };
                (0..rounds).for_each(|_| worker.round());
                pool::destroy(&own.api, pool).unwrap();
            });
        }
    });
}

#[test]
fn eight_threads_in_one_context_get_their_own_bytes_back() {
    work(In::One, at_effort(10, 100, 200));
}

#[test]
fn eight_threads_in_contexts_of_their_own_get_their_own_bytes_back() {
    work(In::TheirOwn, at_effort(10, 200, 400));
}

#[test]
fn eight_threads_get_their_own_bytes_back_under_every_schedule() {
    const NAME: &str = "eight_threads_get_their_own_bytes_back_under_every_schedule";
    if child::is_child(NAME) {
        return work(In::One, at_effort(3, 10, 50));
    }
    schedules(1, 2, 20).for_each(|schedule| drop(under(NAME, &schedule)));
}

#[test]
fn what_eight_threads_allocated_is_free_when_they_are_done() {
    child::run_in_child("what_eight_threads_allocated_is_free_when_they_are_done", || {
        let own = Context::create();
        let free = || memory::info(&own.api).unwrap().free_bytes;
        let before = free();
        work(In::TheirOwn, at_effort(3, 10, 50));
        own.enter();
        context::synchronize(&own.api).unwrap();
        assert_eq!(free(), before);
    });
}

fn races() -> usize {
    at_effort(20, 200, 2000)
}

/// Lets two threads free the same block at the same time, many times. Returns how often both, one and none were
/// refused.
fn race(own: &Context, prepare: impl Fn() -> CUdeviceptr, free: impl Fn(CUdeviceptr) -> bool + Sync) -> [usize; 3] {
    let mut tally = [0; 3];
    for _ in 0..races() {
        let (block, start) = (prepare(), Barrier::new(2));
        let freed = thread::scope(|scope| {
            let racers = [(); 2].map(|()| {
                scope.spawn(|| {
                    own.enter();
                    start.wait();
                    usize::from(free(block))
                })
            });
            racers.map(|racer| racer.join().unwrap()).iter().sum::<usize>()
        });
        tally[freed] += 1;
    }
    tally
}

/// Returns whether a call succeeded. A failed call must return `code`.
fn unless(result: Result<(), DriverError>, code: CUerror) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.code, code);
            false
        }
    }
}

#[test]
fn of_two_threads_that_free_one_block_exactly_one_does() {
    // As below: another test could get the block between the two frees.
    child::run_in_child("of_two_threads_that_free_one_block_exactly_one_does", || {
        let own = Context::create();
        let _beside = own.block(512);
        let tally =
            race(&own, || own.block(4096), |block| unless(memory::free(&own.api, block), CUerror::INVALID_VALUE));
        assert_eq!(tally, [0, races(), 0]);
    });
}

#[test]
fn of_two_threads_that_free_one_block_of_a_pool_exactly_one_does() {
    // As below: another test could get the block between the two frees.
    child::run_in_child("of_two_threads_that_free_one_block_of_a_pool_exactly_one_does", || {
        let own = Context::create();
        let (first, second) = (own.stream(), own.stream());
        let pool = device::default_pool(&own.api, own.device).unwrap();
        let alloc = || memory::alloc_from_pool_async(&own.api, 4096, pool, first).unwrap();
        let _beside = alloc();
        let tally =
            race(&own, alloc, |block| unless(memory::free_async(&own.api, block, second), CUerror::INVALID_VALUE));
        assert_eq!(tally, [0, races(), 0]);
    });
}

#[test]
fn of_two_threads_that_destroy_one_stream_exactly_one_does() {
    // Handles are reused: with another test in the process, the second thread could destroy that test's stream.
    child::run_in_child("of_two_threads_that_destroy_one_stream_exactly_one_does", || {
        let own = Context::create();
        let made = || CUdeviceptr(own.stream().0 as u64);
        let destroy = |handle: CUdeviceptr| {
            unless(stream::destroy(&own.api, CUstream(handle.0 as usize)), CUerror::INVALID_HANDLE)
        };
        assert_eq!(race(&own, made, destroy), [0, races(), 0]);
    });
}

#[test]
fn of_two_threads_that_destroy_one_context_exactly_one_does() {
    child::run_in_child("of_two_threads_that_destroy_one_context_exactly_one_does", || {
        let own = Context::create();
        let gate = Gate::closed(&own);
        let handle = context::create(&own.api, own.device, 0).unwrap();
        gate.hold(&own.api, stream::create(&own.api, 0).unwrap());
        context::pop_current(&own.api).unwrap();
        // One waits for the work of the context. The other waits too, or is refused.
        let (come, callers) = mpsc::channel();
        let destroy = || {
            come.send(WatchedThread::this()).unwrap();
            context::destroy(&own.api, handle)
        };
        let both = || {
            thread::scope(|scope| {
                let destroyers = [(); 2].map(|()| scope.spawn(destroy));
                destroyers.map(|destroyer| unless(destroyer.join().unwrap(), CUerror::CONTEXT_IS_DESTROYED))
            })
        };
        let done = gate.opened_once(callers.into_iter().take(2), both);
        assert!(done == [true, false] || done == [false, true], "which of the two did: {done:?}");
    });
}

#[test]
fn threads_that_create_and_destroy_everything_leave_nothing_blocked() {
    let (api, device) = common::driver();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..at_effort(3, 20, 200) {
                    let handle = context::create(&api, device, 0).unwrap();
                    let streams = [(); 3].map(|()| stream::create(&api, 1).unwrap());
                    let block = memory::alloc(&api, BYTES).unwrap();
                    for stream in streams {
                        fill::d8_async(&api, block, 1, BYTES, stream).unwrap();
                        fill::d8_async(&api, block, 2, BYTES, CUstream::PER_THREAD).unwrap();
                    }
                    stream::destroy(&api, streams[0]).unwrap();
                    context::destroy(&api, handle).unwrap();
                }
            });
        }
    });
}

#[test]
fn work_put_into_a_context_while_another_thread_destroys_it_comes_to_an_end() {
    const NAME: &str = "work_put_into_a_context_while_another_thread_destroys_it_comes_to_an_end";
    if !child::is_child(NAME) {
        return schedules(1, 1, 10).for_each(|schedule| drop(under(NAME, &schedule)));
    }
    const STAGED_BYTES: usize = 64 << 10;
    let (api, device) = common::driver();
    let kept = Context::create();
    let (block, bytes) = (kept.block(STAGED_BYTES), vec![1_u8; STAGED_BYTES]);
    for _ in 0..at_effort(20, 300, 1000) {
        let handle = context::create(&api, device, 0).unwrap();
        let stream = stream::create(&api, 0).unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                // Some are in time and some are not: all return. To stage the bytes takes a while, in which the context
                // may end.
                let refused = loop {
                    // SAFETY: the bytes outlive all work.
                    let copied =
                        unsafe { copy::host_to_device_async(&api, block, bytes.as_ptr().cast(), STAGED_BYTES, stream) };
                    if let Err(error) = copied.and_then(|()| stream::synchronize(&api, stream)) {
                        break error;
                    }
                };
                let known = [CUerror::INVALID_HANDLE, CUerror::CONTEXT_IS_DESTROYED];
                assert!(known.contains(&refused.code), "{refused}");
            });
            start.wait();
            context::destroy(&api, handle).unwrap();
        });
    }
    kept.enter();
    assert_eq!(context::synchronize(&api), Ok(()));
}
