//! Plays the operations of a log on an allocator, pass after pass, and times them.
//!
//! Runs of allocator calls are timed; counting, and reading the reserved memory, happens between runs. Runs also end
//! where the log has the most memory live, so that no peak is missed. The first pass is cold and has short runs; later
//! passes reuse cached memory.

use std::time::{Duration, Instant};

use freehold_driver::cuda::{CUdeviceptr, CUstream, DriverError};
use indicatif::ProgressBar;
use serde::Serialize;

use super::Op;
use super::history::History;
use crate::allocators::{AllocError, Allocator, Failure};

/// The first pass has this many stretches, each sampled at its peak and at its end: enough for a chart.
const SAMPLES: usize = 500;
/// Operations per stretch in later passes.
const SAMPLE_OPS_MAX: usize = 8192;

/// What an allocator did with a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AllocatorResult {
    pub(super) allocator: &'static str,
    /// Mean time of an allocation or free in the first pass.
    pub(super) first_ns: f64,
    /// The same in later passes, their median.
    pub(super) later_ns: Option<f64>,
    /// The peak of allocated bytes.
    pub(super) peak_live_bytes: u64,
    /// The peak of device memory held by the allocator.
    pub(super) peak_reserved_bytes: u64,
    /// Failed allocations of one pass, the maximum over passes.
    pub(super) refused: u64,
    pub(super) samples: Vec<Sample>,
}

/// The memory after some operations of the first pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Sample {
    pub(super) operations: usize,
    pub(super) live_bytes: u64,
    pub(super) reserved_bytes: u64,
}

/// One pass in progress.
struct Pass {
    took: Duration,
    calls: u64,
    refused: u64,
    live_bytes: u64,
    peak_live_bytes: u64,
    peak_reserved_bytes: u64,
    samples: Vec<Sample>,
}

/// A log, and what it is played with.
pub(super) struct Player<'a> {
    pub(super) history: &'a History,
    /// One per stream of the log.
    pub(super) streams: &'a [CUstream],
    pub(super) passes: u32,
    pub(super) bar: &'a ProgressBar,
    /// The size of each block.
    pub(super) sizes: Vec<u64>,
}

impl<'a> Player<'a> {
    pub(super) fn new(history: &'a History, streams: &'a [CUstream], passes: u32, bar: &'a ProgressBar) -> Self {
        let mut sizes = vec![0; history.blocks as usize];
        for op in &history.ops {
            if let Op::Allocate { id, bytes, .. } = *op {
                sizes[id as usize] = bytes;
            }
        }
        Self { history, streams, passes, bar, sizes }
    }

    /// Plays the log. `synchronize` waits until the device is idle, and is called after each pass.
    pub(super) fn play<A: Allocator>(
        &self,
        allocator: &A,
        synchronize: impl Fn() -> Result<(), DriverError>,
    ) -> Result<AllocatorResult, Failure> {
        self.bar.set_message(A::NAME);
        let first = self.pass(allocator, &self.timed_runs(self.history.ops.len().div_ceil(SAMPLES)))?;
        synchronize()?;
        let mut played = AllocatorResult {
            allocator: A::NAME,
            first_ns: first.ns_per_call(),
            later_ns: None,
            peak_live_bytes: first.peak_live_bytes,
            peak_reserved_bytes: first.peak_reserved_bytes,
            refused: first.refused,
            samples: first.samples,
        };
        let (mut later_ns, runs) = (Vec::new(), self.timed_runs(SAMPLE_OPS_MAX));
        for _ in 1..self.passes {
            let pass = self.pass(allocator, &runs)?;
            synchronize()?;
            later_ns.push(pass.ns_per_call());
            played.peak_live_bytes = played.peak_live_bytes.max(pass.peak_live_bytes);
            played.peak_reserved_bytes = played.peak_reserved_bytes.max(pass.peak_reserved_bytes);
            played.refused = played.refused.max(pass.refused);
        }
        later_ns.sort_unstable_by(f64::total_cmp);
        played.later_ns = later_ns.get(later_ns.len() / 2).copied();
        Ok(played)
    }

    /// Returns where runs end: after each stretch of operations, and at its peak of live memory.
    fn timed_runs(&self, stretch: usize) -> Vec<usize> {
        let (mut ends, mut live_bytes) = (Vec::new(), 0_u128);
        for (at, ops) in self.history.ops.chunks(stretch).enumerate() {
            let start = at * stretch;
            let (mut peak, mut peak_bytes) = (start + ops.len(), live_bytes);
            for (op, end) in ops.iter().zip(start + 1..) {
                match *op {
                    Op::Allocate { bytes, .. } => live_bytes += u128::from(bytes),
                    Op::Free { id, .. } => live_bytes -= u128::from(self.sizes[id as usize]),
                    Op::Use { .. } => {}
                }
                if live_bytes > peak_bytes {
                    (peak, peak_bytes) = (end, live_bytes);
                }
            }
            ends.push(peak);
            if peak < start + ops.len() {
                ends.push(start + ops.len());
            }
        }
        ends
    }

    /// Plays the log once, and frees what it leaves allocated.
    fn pass<A: Allocator>(&self, allocator: &A, runs: &[usize]) -> Result<Pass, Failure> {
        let mut starts = vec![CUdeviceptr::NULL; self.sizes.len()];
        let mut pass = Pass {
            took: Duration::ZERO,
            calls: 0,
            refused: 0,
            live_bytes: 0,
            peak_live_bytes: 0,
            peak_reserved_bytes: 0,
            samples: Vec::new(),
        };
        let mut start = 0;
        for &end in runs {
            let ops = &self.history.ops[start..end];
            let begun = Instant::now();
            self.call(allocator, ops, &mut starts)?;
            pass.took += begun.elapsed();
            let reserved_bytes = allocator.reserved_bytes()?;
            pass.count(ops, &starts, &self.sizes);
            pass.sample(end, reserved_bytes);
            self.bar.inc(ops.len() as u64);
            start = end;
        }
        self.free_rest(allocator, &starts)?;
        Ok(pass)
    }

    /// Makes the calls, and nothing else. A block's address is kept after its free.
    #[inline(never)]
    fn call<A: Allocator>(&self, allocator: &A, ops: &[Op], starts: &mut [CUdeviceptr]) -> Result<(), Failure> {
        for op in ops {
            match *op {
                Op::Allocate { id, bytes, stream } => match allocator.alloc(bytes, self.streams[stream as usize]) {
                    Ok(start) => starts[id as usize] = start,
                    Err(refusal) if refusal.is_out_of_memory() => {}
                    Err(refusal) => return Err(refusal.into()),
                },
                Op::Free { id, stream } => {
                    let start = starts[id as usize];
                    if start != CUdeviceptr::NULL {
                        let (bytes, stream) = (self.sizes[id as usize], self.streams[stream as usize]);
                        allocator.free(start, bytes, stream).map_err(Into::into)?;
                    }
                }
                Op::Use { id, stream } => {
                    let start = starts[id as usize];
                    if start != CUdeviceptr::NULL {
                        allocator.record_use(start, self.streams[stream as usize]).map_err(Into::into)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Frees what the log leaves allocated, each block in its home stream.
    fn free_rest<A: Allocator>(&self, allocator: &A, starts: &[CUdeviceptr]) -> Result<(), Failure> {
        let mut homes = vec![None; starts.len()];
        for op in &self.history.ops {
            match *op {
                Op::Allocate { id, stream, .. } => homes[id as usize] = Some(stream),
                Op::Free { id, .. } => homes[id as usize] = None,
                Op::Use { .. } => {}
            }
        }
        for (id, home) in homes.into_iter().enumerate() {
            if let Some(stream) = home
                && starts[id] != CUdeviceptr::NULL
            {
                allocator.free(starts[id], self.sizes[id], self.streams[stream as usize]).map_err(Into::into)?;
            }
        }
        Ok(())
    }
}

impl Pass {
    /// Counts what a run did, after it: a block without an address failed.
    fn count(&mut self, ops: &[Op], starts: &[CUdeviceptr], sizes: &[u64]) {
        for op in ops {
            match *op {
                Op::Allocate { id, bytes, .. } => {
                    self.calls += 1;
                    if starts[id as usize] == CUdeviceptr::NULL {
                        self.refused += 1;
                    } else {
                        self.live_bytes += bytes;
                        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
                    }
                }
                Op::Free { id, .. } if starts[id as usize] != CUdeviceptr::NULL => {
                    self.calls += 1;
                    self.live_bytes -= sizes[id as usize];
                }
                Op::Free { .. } | Op::Use { .. } => {}
            }
        }
    }

    fn sample(&mut self, operations: usize, reserved_bytes: u64) {
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(reserved_bytes);
        self.samples.push(Sample { operations, live_bytes: self.live_bytes, reserved_bytes });
    }

    fn ns_per_call(&self) -> f64 {
        self.took.as_nanos() as f64 / self.calls.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use freehold_driver::cuda::{CUerror, Function};

    use super::super::history::HistoryBuilder;
    use super::*;

    /// Grants what fits into a limit, and records its calls.
    struct Room {
        bytes: u64,
        taken: RefCell<u64>,
        said: RefCell<Vec<String>>,
    }

    impl Room {
        fn new(bytes: u64) -> Self {
            Self { bytes, taken: RefCell::default(), said: RefCell::default() }
        }
    }

    impl Allocator for Room {
        const NAME: &'static str = "room";

        type Refusal = DriverError;

        fn alloc(&self, bytes: u64, stream: CUstream) -> Result<CUdeviceptr, DriverError> {
            let mut taken = self.taken.borrow_mut();
            if *taken + bytes > self.bytes {
                return Err(DriverError { call: Function::cuMemAlloc_v2, code: CUerror::OUT_OF_MEMORY });
            }
            *taken += bytes;
            self.said.borrow_mut().push(format!("allocate {bytes} in {}", stream.0));
            Ok(CUdeviceptr(bytes))
        }

        fn free(&self, start: CUdeviceptr, bytes: u64, stream: CUstream) -> Result<(), DriverError> {
            assert_eq!(start.0, bytes, "blocks are freed with their own size");
            *self.taken.borrow_mut() -= bytes;
            self.said.borrow_mut().push(format!("free {bytes} in {}", stream.0));
            Ok(())
        }

        fn record_use(&self, start: CUdeviceptr, stream: CUstream) -> Result<(), DriverError> {
            self.said.borrow_mut().push(format!("use {} in {}", start.0, stream.0));
            Ok(())
        }

        fn reserved_bytes(&self) -> Result<u64, Failure> {
            Ok(self.bytes)
        }
    }

    fn history() -> History {
        let mut builder = HistoryBuilder::default();
        builder.alloc(1, 10, (0, 0));
        builder.alloc(2, 95, (0, 0));
        builder.record_use(1, (1, 0));
        builder.record_use(2, (1, 0));
        builder.free(2, None, (0, 0));
        builder.free(1, None, (1, 0));
        builder.alloc(3, 20, (1, 0));
        builder.finish()
    }

    fn played(room: &Room, passes: u32) -> AllocatorResult {
        let (history, bar) = (history(), ProgressBar::hidden());
        let streams = [CUstream(100), CUstream(101)];
        Player::new(&history, &streams, passes, &bar).play(room, || Ok(())).unwrap()
    }

    #[test]
    fn what_is_refused_is_counted_and_neither_used_nor_freed() {
        let room = Room::new(100);
        let played = played(&room, 1);
        assert_eq!(
            *room.said.borrow(),
            ["allocate 10 in 100", "use 10 in 101", "free 10 in 101", "allocate 20 in 101", "free 20 in 101"]
        );
        assert_eq!((played.refused, played.peak_live_bytes, played.peak_reserved_bytes), (1, 20, 100));
        assert_eq!(played.later_ns, None);
    }

    #[test]
    fn live_memory_is_sampled_after_each_operation_of_a_short_log() {
        let played = played(&Room::new(1000), 2);
        let live: Vec<u64> = played.samples.iter().map(|sample| sample.live_bytes).collect();
        assert_eq!(live, [10, 105, 105, 105, 10, 0, 20]);
        assert_eq!((played.refused, played.peak_live_bytes), (0, 105));
        assert!(played.later_ns.is_some());
    }

    #[test]
    fn runs_end_at_the_peak_of_a_stretch_and_at_its_end() {
        let (history, bar) = (history(), ProgressBar::hidden());
        let player = Player::new(&history, &[], 1, &bar);
        assert_eq!(player.timed_runs(4), [2, 4, 7]);
        assert_eq!(player.timed_runs(100), [2, 7]);
        assert_eq!(player.timed_runs(1), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn every_pass_begins_with_nothing_allocated() {
        let room = Room::new(1000);
        played(&room, 3);
        assert_eq!(*room.taken.borrow(), 0);
        assert_eq!(room.said.borrow().iter().filter(|said| *said == "allocate 95 in 100").count(), 3);
    }
}
