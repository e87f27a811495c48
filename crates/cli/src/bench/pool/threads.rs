//! Threads that allocate and free at once: each its own blocks, or each what its neighbour allocated.
//!
//! A repetition is timed from the first thread's start to the last one's end, so that whoever waits for others counts.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Instant;

use freehold_driver::cuda::CUstream;

use super::super::Result;
use super::allocator::Allocator;
use super::rig::Rig;
use super::workload::models::Random;

/// The sizes of blocks are up to this, all equally likely.
const BYTES_MAX: u64 = 64 << 10;

/// Blocks that a thread allocates before it frees them, or hands them on, in the order of their allocation.
const HELD: usize = 32;

/// Handfuls that are on their way from a thread to the next: enough that neither waits while the other is ahead a little.
const ON_THE_WAY: usize = 8;

/// How many sizes were drawn, which the threads go round in, each from its own place.
const SIZES: usize = 1024;

const SEED: u64 = 0x5eed_0005;

/// What a thread does in one repetition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) repetitions: usize,
    /// Pairs of one thread.
    pub(super) pairs: usize,
}

/// A handful of blocks on its way to the thread that frees them.
struct Handful {
    addresses: [u64; HELD],
    /// Where their sizes begin.
    sizes_at: usize,
    stream: CUstream,
}

/// Pairs a second of `threads` threads that free what they allocate, for each repetition. Thread `n` allocates in stream
/// `n`, or in the last there is.
pub(super) fn own<A: Allocator>(
    rig: &Rig,
    allocator: &A,
    streams: &[CUstream],
    threads: usize,
    effort: Effort,
) -> Result<Vec<f64>> {
    let sizes = sizes();
    let work = |thread: usize, (): &mut ()| -> std::result::Result<(), A::Failure> {
        let stream = streams[thread.min(streams.len() - 1)];
        for round in 0..effort.pairs / HELD {
            let handful = allocate(allocator, &sizes, place(thread, round), stream)?;
            free(allocator, &sizes, &handful)?;
        }
        Ok(())
    };
    together(rig, (0..threads).map(|_| ()).collect(), effort, work)
}

/// Pairs a second of `threads` threads of which each hands all that it allocates in its stream to the next one, which frees
/// it, for each repetition.
pub(super) fn handed<A: Allocator>(rig: &Rig, allocator: &A, threads: usize, effort: Effort) -> Result<Vec<f64>> {
    let sizes = sizes();
    let has_failed = AtomicBool::new(false);
    let (mut outboxes, mut inboxes): (Vec<_>, Vec<_>) = (0..threads).map(|_| sync_channel(ON_THE_WAY)).unzip();
    inboxes.rotate_right(1);
    let ends = outboxes.drain(..).zip(inboxes).collect();
    type Ends = (SyncSender<Handful>, Receiver<Handful>);
    let work = |thread: usize, (outbox, inbox): &mut Ends| -> std::result::Result<(), A::Failure> {
        let rounds = effort.pairs / HELD;
        let (mut sent, mut freed, mut filled) = (0, 0, None);
        while sent < rounds || freed < rounds {
            let mut is_stuck = true;
            if sent < rounds {
                let handful = match filled.take() {
                    Some(handful) => handful,
                    None => allocate(allocator, &sizes, place(thread, sent), rig.streams[thread])
                        .inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?,
                };
                match outbox.try_send(handful) {
                    Ok(()) => (sent, is_stuck) = (sent + 1, false),
                    Err(TrySendError::Full(handful) | TrySendError::Disconnected(handful)) => filled = Some(handful),
                }
            }
            if let Ok(handful) = inbox.try_recv() {
                free(allocator, &sizes, &handful).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
                (freed, is_stuck) = (freed + 1, false);
            }
            // A neighbour that failed neither takes nor gives any more; it tells why.
            if is_stuck && has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if is_stuck {
                thread::yield_now();
            }
        }
        Ok(())
    };
    together(rig, ends, effort, work)
}

/// Lets a thread for each of `parts` do `work` with its number and its part, once to get warm and then for each
/// repetition, all at once.
fn together<P: Send, F: Into<super::super::BenchError> + Send>(
    rig: &Rig,
    parts: Vec<P>,
    effort: Effort,
    work: impl Fn(usize, &mut P) -> std::result::Result<(), F> + Sync,
) -> Result<Vec<f64>> {
    let threads = parts.len();
    let barrier = Barrier::new(threads);
    let one = |thread: usize, mut part: P| -> Result<Vec<(Instant, Instant)>> {
        // Whoever fails still comes to the barrier, where the others wait for all.
        let mut outcome = rig.enter();
        let mut times = Vec::new();
        for _ in 0..=effort.repetitions {
            barrier.wait();
            let start = Instant::now();
            if outcome.is_ok() {
                outcome = work(thread, &mut part).map_err(Into::into);
            }
            times.push((start, Instant::now()));
        }
        outcome.map(|()| times)
    };
    let times = thread::scope(|scope| {
        let one = &one;
        let started: Vec<_> = (0..).zip(parts).map(|(thread, part)| scope.spawn(move || one(thread, part))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("a thread that measures ends");
        started.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    rig.settle()?;
    let pairs = (effort.pairs / HELD * HELD * threads) as f64;
    let rate = |repetition: usize| {
        let of_all = || times.iter().map(|times| times[repetition]);
        let start = of_all().map(|(start, _)| start).min().expect("there is a thread");
        let end = of_all().map(|(_, end)| end).max().expect("there is a thread");
        pairs / (end - start).as_secs_f64()
    };
    Ok((1..=effort.repetitions).map(rate).collect())
}

fn sizes() -> Vec<usize> {
    let mut random = Random::new(SEED);
    (0..SIZES).map(|_| 1 + random.below(BYTES_MAX) as usize).collect()
}

/// Where the sizes of a handful begin.
fn place(thread: usize, round: usize) -> usize {
    (thread + round) * HELD % SIZES
}

fn allocate<A: Allocator>(
    allocator: &A,
    sizes: &[usize],
    sizes_at: usize,
    stream: CUstream,
) -> std::result::Result<Handful, A::Failure> {
    let mut addresses = [0; HELD];
    for (address, &bytes) in addresses.iter_mut().zip(&sizes[sizes_at..]) {
        *address = allocator.allocate(bytes, stream)?;
    }
    Ok(Handful { addresses, sizes_at, stream })
}

fn free<A: Allocator>(allocator: &A, sizes: &[usize], handful: &Handful) -> std::result::Result<(), A::Failure> {
    let Handful { addresses, sizes_at, stream } = handful;
    addresses.iter().zip(&sizes[*sizes_at..]).try_for_each(|(&address, &bytes)| allocator.free(address, bytes, *stream))
}
