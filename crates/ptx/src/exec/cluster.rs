//! A cluster: thread blocks that run together, on one host thread, and access each other's shared memory.
//!
//! The blocks take turns, in order or at random. A block in which no thread can run is skipped until another one has
//! run. If no block can run, the threads wait for each other, and the launch fails.

use std::mem;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::block::{LaunchData, SliceEnd};
use super::cluster_state::Cluster;
use super::launch::{Progress, Slice};
use crate::fault::Fault;
use crate::memory::Memory;

/// The maximum number of instructions of a block before the next block runs.
const PART_INSTRUCTIONS: u64 = 2_000;

impl Cluster {
    pub(crate) fn run(
        &mut self,
        data: LaunchData<'_>,
        memory: &mut dyn Memory,
        slice: Slice,
    ) -> Result<Progress, Fault> {
        let count = self.blocks.len();
        if !mem::replace(&mut self.is_started, true) {
            for rank in 0..count {
                self.with_block(rank, |block, cluster| block.begin(data, memory, Some(cluster)));
            }
        }
        let mut random = slice.seed.map(SplitMix64::seed_from_u64);
        let mut spent_all = 0;
        // The blocks in sequence that could not run, and when the first of those that sleep wakes.
        let (mut idle, mut wakes) = (0, None);
        let mut at = self.next;
        while self.live > 0 {
            if idle == 0
                && let Some(random) = &mut random
            {
                at = (random.next_u64() % count as u64) as usize;
            }
            let rank = at % count;
            at = rank + 1;
            let most = PART_INSTRUCTIONS.min(slice.instructions - spent_all).max(1);
            let part = Slice {
                instructions: random.as_mut().map_or(most, |random| 1 + random.next_u64() % most),
                nanoseconds: slice.nanoseconds + spent_all,
                seed: random.as_mut().map(Rng::next_u64),
            };
            let (end, spent) =
                self.with_block(rank, |block, cluster| block.run_slice(data, memory, part, Some(cluster)))?;
            spent_all += spent;
            self.next = at % count;
            (idle, wakes) = match (end, spent) {
                (SliceEnd::Running, _) | (_, 1..) => (0, None),
                (SliceEnd::Sleeping(until), 0) => (idle + 1, Some(wakes.map_or(until, |wakes: u64| wakes.min(until)))),
                (SliceEnd::Blocked | SliceEnd::Done, 0) => (idle + 1, wakes),
            };
            if spent_all >= slice.instructions {
                break;
            }
            if idle == count {
                match wakes {
                    Some(until_nanoseconds) => return Ok(Progress::Sleeping { until_nanoseconds }),
                    None => return Err(self.deadlock(data)),
                }
            }
        }
        if self.live > 0 {
            return Ok(Progress::Running);
        }
        self.blocks.iter_mut().flatten().for_each(|block| block.finish(data, memory));
        Ok(Progress::Done)
    }

    fn deadlock(&self, data: LaunchData<'_>) -> Fault {
        let stuck = self.blocks.iter().flatten().find(|block| block.live() > 0);
        stuck.expect("a thread has not ended").deadlock(data, self.live)
    }
}
