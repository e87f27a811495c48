//! Threads that allocate and free at once: each its own blocks, or each those of its neighbour.
//!
//! A repetition is timed from the start of the first thread to the end of the last, so that waiting counts.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Instant;

use freehold_driver::cuda::{CUdeviceptr, CUstream};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::rig::Rig;
use crate::allocators::{Allocator, Failure};
use crate::bench::error::Result;

/// The largest block; all sizes are equally likely.
const BYTES_MAX: u64 = 64 << 10;

/// Blocks that a thread allocates before it frees them, or hands them on, in allocation order.
const BATCH_BLOCKS: usize = 32;

/// Batches in flight from a thread to the next: enough that neither waits while the other is slightly ahead.
const IN_FLIGHT: usize = 32;

/// How many sizes are drawn; the threads cycle through them, each from its own index.
const SIZES: usize = 1024;

const SEED: u64 = 0x5eed_0005;

/// What a thread does in one repetition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) repetitions: usize,
    /// Pairs per thread.
    pub(super) pairs: usize,
}

/// Blocks in flight to the thread that frees them.
struct BlockBatch {
    starts: [CUdeviceptr; BATCH_BLOCKS],
    /// The index of their first size.
    sizes_at: usize,
    stream: CUstream,
}

/// Returns pairs per second of `threads` threads that free their own blocks, for each repetition. Thread `n` allocates
/// in stream `n`, or in the last one.
pub(super) fn own_blocks<A: Allocator + Sync>(
    rig: &Rig,
    allocator: &A,
    streams: &[CUstream],
    threads: usize,
    effort: Effort,
) -> Result<Vec<f64>> {
    let sizes = sizes();
    let work = |thread: usize, (): &mut ()| -> std::result::Result<(), A::Refusal> {
        let stream = streams[thread.min(streams.len() - 1)];
        for round in 0..effort.pairs / BATCH_BLOCKS {
            let handful = allocate(allocator, &sizes, size_index(thread, round), stream)?;
            free(allocator, &sizes, &handful)?;
        }
        Ok(())
    };
    run_threads(rig, (0..threads).map(|_| ()).collect(), effort, work)
}

/// Returns pairs per second of `threads` threads that each hand their blocks to the next one, which frees them, for
/// each repetition.
pub(super) fn handed_over_blocks<A: Allocator + Sync>(
    rig: &Rig,
    allocator: &A,
    threads: usize,
    effort: Effort,
) -> Result<Vec<f64>> {
    let sizes = sizes();
    let has_failed = AtomicBool::new(false);
    let (mut outboxes, mut inboxes): (Vec<_>, Vec<_>) = (0..threads).map(|_| sync_channel(IN_FLIGHT)).unzip();
    inboxes.rotate_right(1);
    let ends = outboxes.drain(..).zip(inboxes).collect();
    type Ends = (SyncSender<BlockBatch>, Receiver<BlockBatch>);
    let work = |thread: usize, (outbox, inbox): &mut Ends| -> std::result::Result<(), A::Refusal> {
        let rounds = effort.pairs / BATCH_BLOCKS;
        let (mut sent, mut freed, mut filled) = (0, 0, None);
        while sent < rounds || freed < rounds {
            let mut is_stuck = true;
            if sent < rounds {
                let handful = match filled.take() {
                    Some(handful) => handful,
                    None => allocate(allocator, &sizes, size_index(thread, sent), rig.streams[thread])
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
            // A neighbour that failed neither sends nor receives; it reports its own error.
            if is_stuck && has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if is_stuck {
                thread::yield_now();
            }
        }
        Ok(())
    };
    run_threads(rig, ends, effort, work)
}

/// Runs `work` at once in one thread per part, with its index and its part: once to warm up, then for each repetition.
fn run_threads<P: Send, F: Into<Failure>>(
    rig: &Rig,
    parts: Vec<P>,
    effort: Effort,
    work: impl Fn(usize, &mut P) -> std::result::Result<(), F> + Sync,
) -> Result<Vec<f64>> {
    let threads = parts.len();
    let barrier = Barrier::new(threads);
    let one = |thread: usize, mut part: P| -> Result<Vec<(Instant, Instant)>> {
        // A thread that fails still reaches the barrier, where the others wait for all.
        let mut outcome = rig.make_current();
        let mut times = Vec::new();
        for _ in 0..=effort.repetitions {
            barrier.wait();
            let start = Instant::now();
            if outcome.is_ok() {
                outcome = work(thread, &mut part).map_err(|refusal| refusal.into().into());
            }
            times.push((start, Instant::now()));
        }
        outcome.map(|()| times)
    };
    let times = thread::scope(|scope| {
        let one = &one;
        let started: Vec<_> = (0..).zip(parts).map(|(thread, part)| scope.spawn(move || one(thread, part))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("measuring threads do not panic");
        started.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    rig.synchronize()?;
    let pairs = (effort.pairs / BATCH_BLOCKS * BATCH_BLOCKS * threads) as f64;
    let rate = |repetition: usize| {
        let of_all = || times.iter().map(|times| times[repetition]);
        let start = of_all().map(|(start, _)| start).min().expect("there is a thread");
        let end = of_all().map(|(_, end)| end).max().expect("there is a thread");
        pairs / (end - start).as_secs_f64()
    };
    Ok((1..=effort.repetitions).map(rate).collect())
}

fn sizes() -> Vec<u64> {
    let mut random = SplitMix64::seed_from_u64(SEED);
    (0..SIZES).map(|_| 1 + random.next_u64() % BYTES_MAX).collect()
}

/// Returns the index of a batch's first size.
fn size_index(thread: usize, round: usize) -> usize {
    (thread + round) * BATCH_BLOCKS % SIZES
}

fn allocate<A: Allocator>(
    allocator: &A,
    sizes: &[u64],
    sizes_at: usize,
    stream: CUstream,
) -> std::result::Result<BlockBatch, A::Refusal> {
    let mut starts = [CUdeviceptr::NULL; BATCH_BLOCKS];
    for (start, &bytes) in starts.iter_mut().zip(&sizes[sizes_at..]) {
        *start = allocator.alloc(bytes, stream)?;
    }
    Ok(BlockBatch { starts, sizes_at, stream })
}

fn free<A: Allocator>(allocator: &A, sizes: &[u64], handful: &BlockBatch) -> std::result::Result<(), A::Refusal> {
    let BlockBatch { starts, sizes_at, stream } = handful;
    starts.iter().zip(&sizes[*sizes_at..]).try_for_each(|(&start, &bytes)| allocator.free(start, bytes, *stream))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::thread::ThreadId;

    use freehold_driver::cuda::DriverError;

    use super::*;

    /// Assigns addresses, and records which thread allocated them, with which size and in which stream.
    #[derive(Default)]
    struct Register {
        blocks: Mutex<HashMap<u64, (ThreadId, u64, CUstream)>>,
        /// Freed by a thread other than the one that allocated them.
        freed_by_others: AtomicUsize,
        freed: AtomicUsize,
    }

    impl Allocator for Register {
        const NAME: &'static str = "register";

        type Refusal = DriverError;

        fn alloc(&self, bytes: u64, stream: CUstream) -> std::result::Result<CUdeviceptr, DriverError> {
            let mut blocks = self.blocks.lock().unwrap();
            let address = blocks.keys().max().map_or(1, |last| last + 1);
            blocks.insert(address, (thread::current().id(), bytes, stream));
            Ok(CUdeviceptr(address))
        }

        fn free(&self, start: CUdeviceptr, bytes: u64, stream: CUstream) -> std::result::Result<(), DriverError> {
            let (owner, owned_bytes, home) =
                self.blocks.lock().unwrap().remove(&start.0).expect("blocks are freed once");
            assert_eq!((owned_bytes, home), (bytes, stream));
            let is_others = owner != thread::current().id();
            self.freed_by_others.fetch_add(usize::from(is_others), Ordering::Relaxed);
            self.freed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn reserved_bytes(&self) -> std::result::Result<u64, Failure> {
            Ok(0)
        }
    }

    const EFFORT: Effort = Effort { repetitions: 2, pairs: 64 };

    #[test]
    fn threads_that_hand_on_free_what_others_allocated_and_leave_nothing() {
        let (rig, register) = (Rig::new(Some("soft"), 4).unwrap(), Register::default());
        assert_eq!(handed_over_blocks(&rig, &register, 4, EFFORT).unwrap().len(), 2);
        assert!(register.blocks.into_inner().unwrap().is_empty());
        // Four threads: once to warm up, then twice.
        assert_eq!((register.freed.into_inner(), register.freed_by_others.into_inner()), (768, 768));
    }

    #[test]
    fn threads_with_their_own_free_what_they_allocated_and_leave_nothing() {
        let (rig, register) = (Rig::new(Some("soft"), 4).unwrap(), Register::default());
        assert_eq!(own_blocks(&rig, &register, &rig.streams, 4, EFFORT).unwrap().len(), 2);
        assert!(register.blocks.into_inner().unwrap().is_empty());
        assert_eq!((register.freed.into_inner(), register.freed_by_others.into_inner()), (768, 0));
    }
}
