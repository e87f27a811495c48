//! A running thread block: runs its warps in turn, until all have ended or the slice is used up.

use std::sync::{Mutex, OnceLock, PoisonError};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::block_state::BlockState;
use super::call::FrameTemplate;
use super::cluster_state::Cluster;
use super::launch::{Launch, Progress, Slice};
use super::run::{Run, Stop, WarpFault};
use super::warp::Warp;
use crate::bounds::Bounds;
use crate::fault::{Fault, FaultKind};
use crate::image::Program;
use crate::memory::{LANES, Memory};
use crate::observer::{Ordering, Place};

/// The number of instructions that a warp runs before the next one.
const QUANTUM: u64 = 1024;

/// The unit in which hardware allocates the shared memory of a block.
const SHARED_UNIT_BYTES: usize = 128;

/// The size of a block's shared memory.
fn shared_bytes(static_bytes: u32, launch: &Launch) -> usize {
    let exact_bytes = static_bytes as usize + launch.shared_bytes as usize;
    if launch.is_shared_exact { exact_bytes } else { exact_bytes.next_multiple_of(SHARED_UNIT_BYTES) }
}

/// Data that the blocks of a launch share, so that they start fast.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    template: OnceLock<FrameTemplate>,
    ended: Mutex<Vec<Ended>>,
}

/// The memory of a block that has ended.
#[derive(Debug)]
struct Ended {
    /// All its warps, in order.
    warps: Vec<Warp>,
    shared: Vec<u8>,
}

impl Reuse {
    /// The number of blocks that are kept.
    const BLOCKS_MAX: usize = 16;

    /// Returns a block that has ended.
    fn take(&self) -> Option<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn put(&self, block: Ended) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() < Self::BLOCKS_MAX {
            ended.push(block);
        }
    }
}

/// What the blocks of a launch have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchData<'l> {
    pub(crate) program: &'l Program,
    pub(crate) launch: &'l Launch,
    pub(crate) bounds: &'l Bounds,
    pub(crate) reuse: &'l Reuse,
}

/// The state of a block at the end of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceEnd {
    Done,
    Running,
    /// Until a time in nanoseconds.
    Sleeping(u64),
    /// All threads wait for each other, or for other blocks of the cluster.
    Blocked,
}

impl BlockState {
    /// Runs a block that is not in a cluster.
    pub(crate) fn run(
        &mut self,
        data: LaunchData<'_>,
        memory: &mut dyn Memory,
        slice: Slice,
    ) -> Result<Progress, Fault> {
        if !self.started {
            self.begin(data, memory, None);
        }
        match self.run_slice(data, memory, slice, None)?.0 {
            SliceEnd::Running => Ok(Progress::Running),
            SliceEnd::Sleeping(until_nanoseconds) => Ok(Progress::Sleeping { until_nanoseconds }),
            SliceEnd::Blocked => Err(self.deadlock(data, self.live)),
            SliceEnd::Done => {
                self.finish(data, memory);
                Ok(Progress::Done)
            }
        }
    }

    /// Runs for a slice. Returns how many instructions the warps have executed.
    pub(super) fn run_slice(
        &mut self,
        data: LaunchData<'_>,
        memory: &mut dyn Memory,
        slice: Slice,
        cluster: Option<&mut Cluster>,
    ) -> Result<(SliceEnd, u64), Fault> {
        let is_observed = memory.observer().is_some();
        let mut random = slice.seed.map(SplitMix64::seed_from_u64);
        let nanoseconds = slice.nanoseconds.max(self.latest_time);
        let mut since = 0;
        let mut warps = std::mem::take(&mut self.warps);
        let mut next = self.next_warp;
        let mut run = self.run_context(data, memory, cluster, 0, nanoseconds, &mut since);
        run.is_observed = is_observed;
        let turn = loop {
            if *run.live == 0 {
                break Ok(SliceEnd::Done);
            }
            let Some(index) = next_warp(&mut warps, &mut next, run.now(), &mut random) else {
                let wake = warps.iter_mut().filter_map(|warp| warp.wake_sleepers(run.now())).min();
                break Ok(wake.map_or(SliceEnd::Blocked, SliceEnd::Sleeping));
            };
            let quantum = random.as_mut().map_or(QUANTUM, |random| 1 + random.next_u64() % QUANTUM);
            (run.warp_index, run.place.warp) = (index as u32, index as u32);
            match run.warp(&mut warps[index], quantum) {
                Ok(Stop::Yielded) => {}
                Ok(Stop::BarrierComplete) => run.release_barriers(&mut warps),
                Err(warp_fault) => break Err((index, warp_fault)),
            }
            if *run.since >= slice.instructions {
                break Ok(if *run.live > 0 { SliceEnd::Running } else { SliceEnd::Done });
            }
        };
        (self.warps, self.next_warp, self.latest_time) = (warps, next, nanoseconds + since);
        match turn {
            Ok(turn) => Ok((turn, since)),
            Err((index, warp_fault)) => Err(self.fault(data, index, warp_fault)),
        }
    }

    /// Starts the warps, before the first turn.
    pub(super) fn begin(&mut self, data: LaunchData<'_>, memory: &mut dyn Memory, cluster: Option<&mut Cluster>) {
        self.start(data, memory, cluster);
        if let Some(observer) = memory.observer() {
            observer.start(self.index, self.threads, self.shared.len() as u64);
        }
    }

    /// Keeps the memory of a block that has ended for another one.
    pub(super) fn finish(&mut self, data: LaunchData<'_>, memory: &mut dyn Memory) {
        if let Some(observer) = memory.observer() {
            observer.end(self.index);
        }
        data.reuse.put(Ended { warps: std::mem::take(&mut self.warps), shared: std::mem::take(&mut self.shared) });
    }

    fn run_context<'r>(
        &'r mut self,
        data: LaunchData<'r>,
        memory: &'r mut dyn Memory,
        cluster: Option<&'r mut Cluster>,
        warp: usize,
        nanoseconds: u64,
        since: &'r mut u64,
    ) -> Run<'r> {
        let LaunchData { program, launch, bounds, .. } = data;
        Run {
            program,
            kernel: &program.linked.code[launch.kernel],
            launch,
            engine: self.engine,
            bounds,
            block: self.block,
            block_index: self.index,
            warp_index: warp as u32,
            shared: &mut self.shared,
            memory,
            cluster,
            barriers: &mut self.barriers,
            printed: &mut self.printed,
            live: &mut self.live,
            executed: &mut self.executed,
            nanoseconds,
            since,
            is_observed: false,
            place: Place { block: self.index, warp: warp as u32, function: 0, line: 0 },
            ordering: Ordering::default(),
        }
    }

    fn start(&mut self, data: LaunchData<'_>, memory: &mut dyn Memory, mut cluster: Option<&mut Cluster>) {
        let LaunchData { program, launch, reuse, .. } = data;
        self.started = true;
        let threads = self.threads;
        match reuse.take() {
            Some(Ended { warps, shared }) => {
                (self.warps, self.shared) = (warps, shared);
                self.shared.fill(0);
                self.warps.iter_mut().for_each(Warp::recycle);
            }
            None => {
                let kernel = &program.linked.code[launch.kernel];
                self.shared = vec![0; shared_bytes(kernel.dynamic_shared, launch)];
                self.warps.resize_with(threads.div_ceil(LANES as u32) as usize, Warp::default);
            }
        }
        let mut warps = std::mem::take(&mut self.warps);
        let mut since = 0;
        for (index, warp) in warps.iter_mut().enumerate() {
            let count = (threads - index as u32 * LANES as u32).min(LANES as u32);
            let lanes = u32::MAX >> (LANES as u32 - count);
            if warp.frames.is_empty() {
                let run = self.run_context(data, memory, cluster.as_deref_mut(), index, 0, &mut since);
                run.make_first_frame(reuse.template.get_or_init(|| run.template()), warp);
            }
            let template = reuse.template.get().expect("the frame is a copy of it");
            template.begin(warp.frame_mut(0));
            warp.grow_local(lanes, warp.frame(0).local_end());
            warp.start(lanes);
        }
        let run = self.run_context(data, memory, cluster, 0, 0, &mut since);
        run.fill_block_registers(reuse.template.get_or_init(|| run.template()), &mut warps);
        self.warps = warps;
    }

    /// Returns the fault of threads that wait for each other.
    pub(super) fn deadlock(&self, data: LaunchData<'_>, waiting: u32) -> Fault {
        let stuck = self.warps.iter().enumerate().find_map(|(index, warp)| Some((index, warp, warp.groups.first()?)));
        let (index, lane, function, line) = stuck.map_or((0, 0, 0, 0), |(index, warp, group)| {
            let frame = warp.frame(group.frame);
            (index, super::run::first(group.lanes), frame.function, frame.code.lines[group.position as usize])
        });
        let warp_fault = WarpFault { lane, function, line, kind: FaultKind::Deadlock { waiting } };
        self.fault(data, index, warp_fault)
    }

    fn fault(&self, data: LaunchData<'_>, warp: usize, warp_fault: WarpFault) -> Fault {
        let LaunchData { program, launch, .. } = data;
        let thread = (warp * LANES + warp_fault.lane) as u32;
        let [width, height, _] = launch.block;
        Fault {
            kind: warp_fault.kind,
            kernel: program.kernels()[launch.kernel].name.clone(),
            line: warp_fault.line,
            function: warp_fault.function as u32,
            block: self.block,
            thread: [thread % width, thread / width % height, thread / width / height],
        }
    }
}

impl Run<'_> {
    /// Lets the threads continue that wait at barriers which are complete.
    fn release_barriers(&mut self, warps: &mut [Warp]) {
        if self.is_observed {
            super::divergence::tell(warps, self.barriers, self.block_index, self.memory);
        }
        for warp in &mut *warps {
            self.barriers.release(warp);
        }
        self.barriers.complete = 0;
        if let Some(cluster) = &mut self.cluster
            && cluster.release(warps)
            && self.is_observed
        {
            let blocks = cluster.others().chain([self.block_index]);
            blocks.for_each(|block| tell_barrier(self.memory, block));
        }
    }
}

/// Returns the next warp that can run: in turn, or at random.
#[inline]
fn next_warp(warps: &mut [Warp], next: &mut usize, now: u64, random: &mut Option<SplitMix64>) -> Option<usize> {
    let count = warps.len();
    let start = match random {
        Some(random) => (random.next_u64() % count as u64) as usize,
        None => *next,
    };
    let (before, from) = warps.split_at_mut(start);
    let in_turn = from.iter_mut().zip(start..).chain(before.iter_mut().zip(0..));
    for (warp, index) in in_turn {
        warp.wake_sleepers(now);
        if warp.is_ready() {
            *next = if index + 1 == count { 0 } else { index + 1 };
            return Some(index);
        }
    }
    None
}

/// Notifies the observer that all threads of a block have met at the barrier of its cluster.
#[cold]
fn tell_barrier(memory: &mut dyn Memory, block: u64) {
    if let Some(observer) = memory.observer() {
        observer.barrier(Place { block, ..Place::default() }, 0, None);
    }
}
