//! A running thread block: runs its warps in turn, until all have ended or the slice is used up.

use std::sync::{Mutex, OnceLock, PoisonError};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::barrier::Barriers;
use super::call::FrameTemplate;
use super::engine::Engine;
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

#[derive(Debug)]
pub(crate) struct BlockState {
    index: u64,
    engine: Engine,
    block: [u32; 3],
    warps: Vec<Warp>,
    threads: u32,
    started: bool,
    shared: Vec<u8>,
    barriers: Barriers,
    /// The number of threads that have not ended.
    live: u32,
    pub(crate) printed: Vec<u8>,
    pub(crate) executed: u64,
    /// The next warp in turn.
    next_warp: usize,
    /// The latest time that threads have seen.
    latest_time: u64,
}

impl BlockState {
    pub(crate) fn new(launch: &Launch, engine: Engine, index: u64) -> Self {
        let [x, y, _] = launch.grid.map(u64::from);
        let block = [index % x, index / x % y, index / x / y].map(|position| position as u32);
        let threads: u32 = launch.block.iter().product();
        Self {
            index,
            engine,
            block,
            warps: Vec::new(),
            threads,
            started: false,
            shared: Vec::new(),
            barriers: Barriers::default(),
            live: threads,
            printed: Vec::new(),
            executed: 0,
            next_warp: 0,
            latest_time: 0,
        }
    }

    pub(crate) fn run(
        &mut self,
        program: &Program,
        launch: &Launch,
        bounds: &Bounds,
        reuse: &Reuse,
        memory: &mut dyn Memory,
        slice: Slice,
    ) -> Result<Progress, Fault> {
        if !self.started {
            self.start(program, launch, bounds, reuse, memory);
            if let Some(observer) = memory.observer() {
                observer.start(self.index, self.threads, self.shared.len() as u64);
            }
        }
        let is_observed = memory.observer().is_some();
        let mut random = slice.seed.map(SplitMix64::seed_from_u64);
        let nanoseconds = slice.nanoseconds.max(self.latest_time);
        let mut since = 0;
        let progress = loop {
            let Some(index) = self.next_warp(nanoseconds + since, &mut random) else {
                match self.wake_or_finish(nanoseconds + since) {
                    Some(progress) => break progress,
                    None => return Err(self.deadlock(program, launch)),
                }
            };
            let quantum = random.as_mut().map_or(QUANTUM, |random| 1 + random.next_u64() % QUANTUM);
            let mut warps = std::mem::take(&mut self.warps);
            let mut run = self.run_context(program, launch, bounds, memory, index, nanoseconds, &mut since);
            run.is_observed = is_observed;
            let stop = run.warp(&mut warps[index], quantum);
            self.warps = warps;
            match stop {
                Ok(Stop::Yielded) => {}
                Ok(Stop::BarrierComplete) => {
                    if is_observed {
                        super::divergence::tell(&mut self.warps, &self.barriers, self.index, memory);
                    }
                    for warp in &mut self.warps {
                        self.barriers.release(warp);
                    }
                    self.barriers.complete = 0;
                }
                Err(warp_fault) => return Err(self.fault(program, launch, index, warp_fault)),
            }
            if since >= slice.instructions {
                break Progress::Running;
            }
        };
        self.latest_time = nanoseconds + since;
        if self.live > 0 {
            return Ok(progress);
        }
        if let Some(observer) = memory.observer() {
            observer.end(self.index);
        }
        reuse.put(Ended { warps: std::mem::take(&mut self.warps), shared: std::mem::take(&mut self.shared) });
        Ok(Progress::Done)
    }

    #[expect(clippy::too_many_arguments, reason = "all of them describe what the threads share")]
    fn run_context<'r>(
        &'r mut self,
        program: &'r Program,
        launch: &'r Launch,
        bounds: &'r Bounds,
        memory: &'r mut dyn Memory,
        warp: usize,
        nanoseconds: u64,
        since: &'r mut u64,
    ) -> Run<'r> {
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

    fn start(&mut self, program: &Program, launch: &Launch, bounds: &Bounds, reuse: &Reuse, memory: &mut dyn Memory) {
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
        for (index, warp) in warps.iter_mut().enumerate() {
            let count = (threads - index as u32 * LANES as u32).min(LANES as u32);
            let lanes = u32::MAX >> (LANES as u32 - count);
            let mut since = 0;
            let run = self.run_context(program, launch, bounds, memory, index, 0, &mut since);
            run.make_first_frame(reuse.template.get_or_init(|| run.template()), warp);
            warp.grow_local(lanes, warp.frame(0).local_end());
            warp.start(lanes);
        }
        self.warps = warps;
    }

    /// Returns the next warp that can run: in turn, or at random.
    fn next_warp(&mut self, now: u64, random: &mut Option<SplitMix64>) -> Option<usize> {
        let count = self.warps.len();
        let start = match random {
            Some(random) => (random.next_u64() % count as u64) as usize,
            None => self.next_warp,
        };
        for step in 0..count {
            let index = (start + step) % count;
            let warp = &mut self.warps[index];
            warp.wake_sleepers(now);
            if warp.is_ready() {
                self.next_warp = (index + 1) % count;
                return Some(index);
            }
        }
        None
    }

    /// Returns the state of a block in which no warp can run; `None` if none ever can.
    fn wake_or_finish(&mut self, now: u64) -> Option<Progress> {
        if self.live == 0 {
            return Some(Progress::Done);
        }
        let next = self.warps.iter_mut().filter_map(|warp| warp.wake_sleepers(now)).min()?;
        Some(Progress::Sleeping { until_nanoseconds: next })
    }

    fn deadlock(&self, program: &Program, launch: &Launch) -> Fault {
        let stuck = self.warps.iter().enumerate().find_map(|(index, warp)| Some((index, warp, warp.groups.first()?)));
        let (index, lane, function, line) = stuck.map_or((0, 0, 0, 0), |(index, warp, group)| {
            let frame = warp.frame(group.frame);
            (index, super::run::first(group.lanes), frame.function, frame.code.lines[group.position as usize])
        });
        let warp_fault = WarpFault { lane, function, line, kind: FaultKind::Deadlock { waiting: self.live } };
        self.fault(program, launch, index, warp_fault)
    }

    fn fault(&self, program: &Program, launch: &Launch, warp: usize, warp_fault: WarpFault) -> Fault {
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
