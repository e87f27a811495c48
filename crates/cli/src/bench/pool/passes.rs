//! Runs workloads: two passes on a caching allocator, the second one timed; part of a pass on an allocator that caches
//! nothing, because it is slow.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use freehold_driver::cuda::{CUdeviceptr, CUstream};

use super::super::stats::timed;
use super::rig::Rig;
use super::workload::{Op, Workload};
use crate::allocators::{Allocator, CachingAllocator, Failure};
use crate::bench::error::Result;

/// A workload prepared for timing: each operation holds what it needs, so the timed loop looks up only addresses, one
/// per live block.
pub(super) struct Script {
    steps: Vec<Step>,
    slots: usize,
    peak_live_bytes: u64,
}

#[derive(Clone, Copy)]
struct Step {
    is_allocation: bool,
    stream: u32,
    /// Index of the block's address.
    slot: u32,
    bytes: u64,
}

/// The cost of second passes.
pub(super) struct Passes {
    /// Time per operation, for each pass.
    pub(super) op_ns: Vec<f64>,
    /// Reserved memory afterwards, divided by the peak of live memory.
    pub(super) reserved_by_peak: Vec<f64>,
}

impl Script {
    /// # Panics
    /// If the workload uses blocks in other streams; none of the measured ones does.
    pub(super) fn new(workload: &Workload) -> Self {
        let (mut steps, mut slots, mut spare, mut live) = (Vec::new(), 0, Vec::new(), HashMap::new());
        for op in &workload.ops {
            match *op {
                Op::Allocate { id, bytes, stream } => {
                    let slot = spare.pop().unwrap_or_else(|| {
                        slots += 1;
                        slots - 1
                    });
                    live.insert(id, (slot, bytes));
                    steps.push(Step { is_allocation: true, stream, slot, bytes });
                }
                Op::Free { id, stream } => {
                    let (slot, bytes) = live.remove(&id).expect("blocks are allocated before they are freed");
                    spare.push(slot);
                    steps.push(Step { is_allocation: false, stream, slot, bytes });
                }
                Op::Use { .. } => panic!("measured workloads use one stream"),
            }
        }
        Self { steps, slots: slots as usize, peak_live_bytes: workload.peak_live_bytes() }
    }

    /// Runs one pass.
    fn pass<A: Allocator>(
        &self,
        allocator: &A,
        streams: &[CUstream],
        starts: &mut [CUdeviceptr],
    ) -> std::result::Result<(), A::Refusal> {
        for &Step { is_allocation, stream, slot, bytes } in &self.steps {
            let (start, stream) = (&mut starts[slot as usize], streams[stream as usize]);
            if is_allocation {
                *start = allocator.alloc(bytes, stream)?;
            } else {
                allocator.free(*start, bytes, stream)?;
            }
        }
        Ok(())
    }

    /// Repeats: a first pass on an empty allocator, and a second pass that counts.
    pub(super) fn second_passes<A: CachingAllocator>(
        &self,
        rig: &Rig,
        allocator: &A,
        repetitions: usize,
    ) -> Result<Passes> {
        let mut starts = vec![CUdeviceptr::NULL; self.slots];
        let mut passes = Passes { op_ns: Vec::new(), reserved_by_peak: Vec::new() };
        for _ in 0..repetitions {
            rig.synchronize()?;
            allocator.trim()?;
            self.pass(allocator, &rig.streams, &mut starts).map_err(Into::<Failure>::into)?;
            rig.synchronize()?;
            let (done, time) = timed(|| self.pass(allocator, &rig.streams, &mut starts));
            done.map_err(Into::<Failure>::into)?;
            passes.op_ns.push(time / self.steps.len() as f64);
            passes.reserved_by_peak.push(allocator.reserved_bytes()? as f64 / self.peak_live_bytes as f64);
        }
        rig.synchronize()?;
        allocator.trim()?;
        Ok(passes)
    }
}

/// Operations between two checks of the clock.
const CHECK_TIME_EVERY: usize = 16;

impl Script {
    /// Returns the time per operation over as many as fit into `limit`, at most one pass. For an allocator that caches
    /// nothing, whose first pass is like every other.
    pub(super) fn first_pass_within<A: Allocator>(&self, rig: &Rig, allocator: &A, limit: Duration) -> Result<f64> {
        let mut held = vec![None; self.slots];
        let mut done = 0;
        let start = Instant::now();
        for steps in self.steps.chunks(CHECK_TIME_EVERY) {
            for &step in steps {
                let (stream, held) = (rig.streams[step.stream as usize], &mut held[step.slot as usize]);
                match held.take() {
                    Some((start, _)) => allocator.free(start, step.bytes, stream).map_err(Into::<Failure>::into)?,
                    None => {
                        let start = allocator.alloc(step.bytes, stream).map_err(Into::<Failure>::into)?;
                        *held = Some((start, step));
                    }
                }
            }
            done += steps.len();
            if start.elapsed() > limit {
                break;
            }
        }
        let time = start.elapsed().as_nanos() as f64;
        for (start, Step { stream, bytes, .. }) in held.into_iter().flatten() {
            allocator.free(start, bytes, rig.streams[stream as usize]).map_err(Into::<Failure>::into)?;
        }
        Ok(time / done as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_as_many_slots_as_blocks_are_live_at_once() {
        let lines = ["a 0 10 0", "a 1 20 1", "f 0 0", "a 2 30 0", "f 2 0", "f 1 1"];
        let ops = lines.map(|line| Op::parse(line).unwrap()).to_vec();
        let script = Script::new(&Workload { name: String::new(), ops });
        let of = |step: &Step| (step.is_allocation, step.stream, step.slot, step.bytes);
        assert_eq!(
            script.steps.iter().map(of).collect::<Vec<_>>(),
            [
                (true, 0, 0, 10),
                (true, 1, 1, 20),
                (false, 0, 0, 10),
                (true, 0, 0, 30),
                (false, 0, 0, 30),
                (false, 1, 1, 20)
            ]
        );
        assert_eq!((script.slots, script.peak_live_bytes), (2, 50));
    }
}
