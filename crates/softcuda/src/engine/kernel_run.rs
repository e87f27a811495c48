//! A running kernel: which of its blocks have started, which are paused, and how a block runs for a slice.
//!
//! A few blocks start at first. Whenever a block is paused, another one may start. So a block that spins until another
//! block acts makes progress eventually, and short blocks never use much memory. The blocks of a cluster count as one:
//! they start together, on one thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freehold_check::{Kernel as CheckedKernel, Launch as CheckedLaunch, TaskView};
use freehold_driver::cuda::CUerror;
use freehold_ptx::{Grid, Progress as BlockProgress, Slice, ThreadBlock};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::kernel_env::KernelEnv;
use super::progress::Progress;
use crate::base::sync::lock;

/// Warp instructions that a block executes before others run.
pub(super) const SLICE_INSTRUCTIONS: u64 = 20_000;

/// The same under a seeded schedule.
const SEEDED_INSTRUCTIONS: u64 = 2_000;

/// Warp instructions of a step after one in which no block ended. The kernel may be waiting for the program, so short
/// steps keep non-blocking calls short.
const SHORT_STEP_INSTRUCTIONS: u64 = 1 << 13;

/// Blocks that start before any was paused.
const RESIDENT_INITIAL: u64 = 16;

/// Maximum number of blocks that a worker completes in one turn.
const BLOCKS_PER_TURN: usize = 32;

/// How many blocks may be resident at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residency {
    /// All, from the start: they may wait for each other.
    All,
    /// At most this many.
    AtMost(u64),
}

/// One launch.
#[derive(Debug)]
pub(crate) struct KernelRun {
    kernel: String,
    grid: Arc<Grid>,
    env: Box<dyn KernelEnv>,
    /// What the checker knows of the kernel.
    checked: Option<Arc<CheckedKernel>>,
    residency: Residency,
    resident_max: u64,
    state: Mutex<RunState>,
    finished: Condvar,
}

#[derive(Debug)]
struct RunState {
    /// Number of blocks that have started.
    started: u64,
    /// The order in which blocks start.
    order: BlockOrder,
    paused: VecDeque<Paused>,
    /// Number of blocks that workers are running.
    running: u64,
    /// Current limit on resident blocks.
    resident: u64,
    /// Whether no block has ended since the last step began.
    is_stalled: bool,
    /// When the first block started.
    started_at: Option<Instant>,
    /// Whether a thread is reporting the failure.
    is_failing: bool,
    outcome: Option<Result<(), CUerror>>,
}

#[derive(Debug)]
struct Paused {
    block: Box<ThreadBlock>,
    /// The time at which the block resumes.
    wake_ns: u64,
}

/// The order in which blocks start: each is `stride` after the previous one, modulo the number of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockOrder {
    /// Coprime to the number of blocks, so that every block starts once.
    stride: u64,
    offset: u64,
}

impl BlockOrder {
    /// Picks a random order for `blocks` blocks.
    fn random(blocks: u64, random: &mut SplitMix64) -> Self {
        let tries = std::iter::repeat_with(|| 1 + random.next_u64() % blocks).take(32);
        let stride = tries.into_iter().find(|&stride| gcd(stride, blocks) == 1).unwrap_or(1);
        Self { stride, offset: random.next_u64() % blocks }
    }

    /// Returns the block that starts after `started` others.
    fn nth(self, started: u64, blocks: u64) -> u64 {
        let steps = u128::from(started) * u128::from(self.stride) + u128::from(self.offset);
        (steps % u128::from(blocks)) as u64
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// What a worker does next.
#[derive(Debug)]
pub(super) enum NextBlock {
    Ready(Box<ThreadBlock>),
    /// All paused blocks sleep, the first until this time.
    Sleep {
        until_nanoseconds: u64,
    },
    /// Other workers are running all blocks that are left.
    Empty,
}

impl KernelRun {
    pub(crate) fn new(kernel: String, grid: Arc<Grid>, env: Box<dyn KernelEnv>, residency: Residency) -> Self {
        let blocks = grid.clusters();
        let (resident, resident_max) = match residency {
            Residency::All => (blocks, blocks),
            Residency::AtMost(most) => (RESIDENT_INITIAL.min(most.max(1)), most.max(1)),
        };
        Self {
            kernel,
            grid,
            env,
            checked: None,
            residency,
            resident_max,
            state: Mutex::new(RunState {
                started: 0,
                order: BlockOrder { stride: 1, offset: 0 },
                paused: VecDeque::new(),
                running: 0,
                resident,
                is_stalled: false,
                started_at: None,
                is_failing: false,
                outcome: None,
            }),
            finished: Condvar::new(),
        }
    }

    /// Returns a new run of the same launch.
    ///
    /// # Errors
    /// There is no memory for the workspace of a cooperative launch.
    pub(super) fn try_clone(&self) -> Result<Self, CUerror> {
        let env = self.env.try_clone()?;
        let grid = match env.workspace() {
            None => Arc::clone(&self.grid),
            Some(workspace) => Arc::new(self.grid.with_workspace(workspace)),
        };
        Ok(Self::new(self.kernel.clone(), grid, env, self.residency).with_checked(self.checked.clone()))
    }

    /// Adds the description of the kernel for the checker.
    pub(crate) fn with_checked(self, checked: Option<Arc<CheckedKernel>>) -> Self {
        Self { checked, ..self }
    }

    /// Describes the launch to the checker.
    pub(super) fn checked_launch(&self) -> Option<CheckedLaunch> {
        let kernel = Arc::clone(self.checked.as_ref()?);
        let launch = self.grid.launch();
        Some(CheckedLaunch { kernel, grid: launch.grid, block: launch.block })
    }

    /// Calls `pointer` with each argument, or part of one, that may be a pointer.
    pub(super) fn for_each_pointer(&self, pointer: impl FnMut(u64)) {
        let (words, _) = self.grid.launch().parameters.as_chunks::<8>();
        words.iter().map(|word| u64::from_le_bytes(*word)).for_each(pointer);
    }

    /// Identifies the program to the checker.
    pub(super) fn module(&self) -> usize {
        Arc::as_ptr(self.grid.program()) as usize
    }

    /// Tells the kernel's environment that it is checked as this task.
    pub(super) fn begin_checked(&self, view: TaskView) {
        self.env.begin_checked(view);
    }

    pub(super) fn is_one_block(&self) -> bool {
        self.grid.clusters() == 1
    }

    fn state(&self) -> MutexGuard<'_, RunState> {
        lock(&self.state)
    }

    /// Returns the outcome once the kernel has ended.
    pub(super) fn outcome(&self) -> Option<Result<(), CUerror>> {
        self.state().outcome
    }

    /// Blocks until the kernel has ended.
    pub(super) fn wait(&self) -> Result<(), CUerror> {
        let mut state = self.state();
        loop {
            if let Some(outcome) = state.outcome {
                return outcome;
            }
            state = self.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the kernel, unless it has ended, and drops its remaining blocks.
    pub(super) fn finish(&self, outcome: Result<(), CUerror>) {
        // Once the outcome is known, the program may free the memory that slices have cached.
        self.env.end();
        let mut state = self.state();
        state.outcome.get_or_insert(outcome);
        let dropped = std::mem::take(&mut state.paused);
        drop(state);
        self.finished.notify_all();
        drop(dropped);
    }

    /// Takes a block to run: a new one if one may start, else the one paused longest; with a generator, a random one.
    pub(super) fn next_block(&self, now_nanoseconds: u64, random: Option<&mut SplitMix64>) -> NextBlock {
        let mut state = self.state();
        if state.outcome.is_some() {
            return NextBlock::Empty;
        }
        state.started_at.get_or_insert_with(Instant::now);
        let on_their_way = state.paused.len() as u64 + state.running;
        let may_begin = state.started < self.grid.clusters() && on_their_way < state.resident;
        let ready = |paused: &Paused| paused.wake_ns <= now_nanoseconds;
        let chosen = match random {
            None if may_begin => None,
            None => state.paused.iter().position(ready),
            Some(random) => {
                if state.started == 0 {
                    state.order = BlockOrder::random(self.grid.clusters(), random);
                }
                let ready: Vec<_> = (0..state.paused.len()).filter(|&index| ready(&state.paused[index])).collect();
                let begins = may_begin && random.next_u64().is_multiple_of(2);
                if ready.is_empty() || begins {
                    None
                } else {
                    Some(ready[(random.next_u64() % ready.len() as u64) as usize])
                }
            }
        };
        if let Some(paused) = chosen.and_then(|index| state.paused.remove(index)) {
            state.running += 1;
            return NextBlock::Ready(paused.block);
        }
        if may_begin {
            let index = state.order.nth(state.started, self.grid.clusters());
            state.started += 1;
            state.running += 1;
            drop(state);
            return NextBlock::Ready(Box::new(self.grid.cluster(index)));
        }
        let soonest = state.paused.iter().map(|paused| paused.wake_ns).min();
        soonest.map_or(NextBlock::Empty, |until_nanoseconds| NextBlock::Sleep { until_nanoseconds })
    }

    /// Runs a block for a slice, and puts it back if it is not done. Returns whether it is done.
    pub(super) fn run_slice(&self, mut block: Box<ThreadBlock>, slice: Slice, limit: Option<Duration>) -> bool {
        let ran = catch_unwind(AssertUnwindSafe(|| self.env.run(&mut block, slice)));
        self.env.print(&block.take_printed());
        let progress = match ran {
            Ok(Ok(progress)) => progress,
            Ok(Err(fault)) => {
                self.fail(|| self.env.report_fault(&fault));
                return true;
            }
            // A panic is a bug of this driver and must not block the stream forever.
            Err(_) => {
                self.fail(|| CUerror::UNKNOWN);
                return true;
            }
        };
        if progress != BlockProgress::Done
            && let Some(limit) = limit
            && self.state().started_at.is_some_and(|began| began.elapsed() > limit)
        {
            self.fail(|| self.env.report_timeout(&self.kernel, limit.as_secs_f64()));
            return true;
        }
        self.end_slice(block, progress);
        progress == BlockProgress::Done
    }

    /// Ends the kernel with the code that `report` returns. Only the first failure calls `report`.
    fn fail(&self, report: impl FnOnce() -> CUerror) {
        let is_first = {
            let mut state = self.state();
            state.outcome.is_none() && !std::mem::replace(&mut state.is_failing, true)
        };
        if is_first {
            self.finish(Err(report()));
        }
    }

    fn end_slice(&self, block: Box<ThreadBlock>, progress: BlockProgress) {
        let mut state = self.state();
        state.running -= 1;
        let wake_ns = match progress {
            BlockProgress::Done => {
                state.is_stalled = false;
                let is_last = state.running == 0 && state.paused.is_empty() && state.started == self.grid.clusters();
                drop(state);
                if is_last {
                    self.finish(Ok(()));
                }
                return;
            }
            BlockProgress::Running => 0,
            BlockProgress::Sleeping { until_nanoseconds } => until_nanoseconds,
        };
        if state.outcome.is_none() {
            state.resident = (state.resident + 1).min(self.resident_max);
            state.paused.push_back(Paused { block, wake_ns });
        }
    }

    /// One turn of a worker: runs a block, and further ones as long as blocks end.
    pub(super) fn run_blocks(&self, mut block: Box<ThreadBlock>, now: impl Fn() -> u64, limit: Option<Duration>) {
        let mut nanoseconds = now();
        for _ in 0..BLOCKS_PER_TURN {
            let slice = Slice { instructions: SLICE_INSTRUCTIONS, nanoseconds, seed: None };
            if !self.run_slice(block, slice, limit) {
                return;
            }
            nanoseconds = now();
            block = match self.next_block(nanoseconds, None) {
                NextBlock::Ready(next) => next,
                _ => return,
            };
        }
        self.end_slice(block, BlockProgress::Running);
    }

    /// Runs about `instructions` instructions on the calling thread, fewer if the kernel makes no progress.
    pub(super) fn step(
        &self,
        instructions: u64,
        now: impl Fn() -> u64,
        seed: Option<u64>,
        limit: Option<Duration>,
    ) -> Result<Progress, CUerror> {
        let mut random = seed.map(SplitMix64::seed_from_u64);
        let was_stalled = std::mem::replace(&mut self.state().is_stalled, true);
        let most = if was_stalled { SHORT_STEP_INSTRUCTIONS } else { u64::MAX };
        let mut left = instructions.clamp(1, most);
        while left > 0 {
            let NextBlock::Ready(block) = self.next_block(now(), random.as_mut()) else { break };
            let most = left.min(SLICE_INSTRUCTIONS);
            let (most, seed) = match &mut random {
                None => (most, None),
                Some(random) => {
                    // A short slice now and then lets others run in between.
                    let usual = if random.next_u64().is_multiple_of(4) { 16 } else { SEEDED_INSTRUCTIONS };
                    (1 + random.next_u64() % most.min(usual), Some(random.next_u64()))
                }
            };
            self.run_slice(block, Slice { instructions: most, nanoseconds: now(), seed }, limit);
            left -= most;
        }
        match self.outcome() {
            None => Ok(Progress::KernelRan),
            Some(outcome) => outcome.map(|()| Progress::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{OnceLock, Weak};

    use freehold_ptx::{Fault, FaultKind, Image, Launch, Unit};
    use freehold_testing::{print_seed, seeds};

    use super::*;

    /// An environment without memory, in which a block ends with its second slice or with a trap.
    #[derive(Debug, Default)]
    struct FakeEnv {
        traps: bool,
        slice_count: Arc<AtomicU64>,
        report_count: Arc<AtomicU64>,
        /// The kernel, if `end` notes whether it has an outcome.
        run: Arc<OnceLock<Weak<KernelRun>>>,
        had_outcome: Arc<Mutex<Vec<bool>>>,
    }

    impl KernelEnv for FakeEnv {
        fn run(&self, _: &mut ThreadBlock, _: Slice) -> Result<BlockProgress, Fault> {
            let slices = self.slice_count.fetch_add(1, Ordering::Relaxed);
            if self.traps {
                let kernel = "kernel".to_owned();
                return Err(Fault {
                    kind: FaultKind::Trap,
                    kernel,
                    function: 0,
                    line: 1,
                    block: [0; 3],
                    thread: [0; 3],
                });
            }
            Ok(if slices.is_multiple_of(2) { BlockProgress::Running } else { BlockProgress::Done })
        }

        fn end(&self) {
            if let Some(run) = self.run.get().and_then(Weak::upgrade) {
                lock(&self.had_outcome).push(run.outcome().is_some());
            }
        }

        fn print(&self, bytes: &[u8]) {
            assert!(bytes.is_empty(), "nothing runs, so nothing is printed");
        }

        fn report_fault(&self, _: &Fault) -> CUerror {
            self.report_count.fetch_add(1, Ordering::Relaxed);
            CUerror::LAUNCH_FAILED
        }

        fn report_timeout(&self, _: &str, _: f64) -> CUerror {
            unreachable!("the tests set no timeout")
        }

        fn workspace(&self) -> Option<u64> {
            None
        }

        fn try_clone(&self) -> Result<Box<dyn KernelEnv>, CUerror> {
            Err(CUerror::OUT_OF_MEMORY)
        }
    }

    fn run_of(blocks: u32, env: FakeEnv) -> KernelRun {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry kernel() { ret; }\n";
        let unit = Unit::compile(text).expect("the text is PTX");
        let (program, _) = Image::link(vec![unit]).expect("one text fits together").relocate(&[]);
        let launch = Launch {
            kernel: 0,
            grid: [blocks, 1, 1],
            block: [1; 3],
            cluster: None,
            shared_bytes: 0,
            is_shared_exact: true,
            parameters: Vec::new(),
            pointers: Vec::new(),
            workspace: 0,
            stack_bytes: 0,
        };
        KernelRun::new("kernel".to_owned(), Arc::new(Grid::new(program, launch)), Box::new(env), Residency::AtMost(4))
    }

    #[test]
    fn a_kernel_ends_when_every_block_has() {
        let env = FakeEnv::default();
        let slice_count = Arc::clone(&env.slice_count);
        let run = run_of(50, env);
        while run.step(u64::MAX, || 0, None, None) == Ok(Progress::KernelRan) {}
        assert_eq!(run.outcome(), Some(Ok(())));
        assert_eq!(slice_count.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn the_outcome_of_a_kernel_is_not_known_before_its_environment_has_ended() {
        for traps in [false, true] {
            let env = FakeEnv { traps, ..FakeEnv::default() };
            let (weak, had_outcome) = (Arc::clone(&env.run), Arc::clone(&env.had_outcome));
            let run = Arc::new(run_of(1, env));
            weak.set(Arc::downgrade(&run)).expect("it is set once");
            while run.step(u64::MAX, || 0, None, None) == Ok(Progress::KernelRan) {}
            assert_eq!(*lock(&had_outcome), [false]);
            assert_eq!(run.outcome(), Some(if traps { Err(CUerror::LAUNCH_FAILED) } else { Ok(()) }));
        }
    }

    #[test]
    fn only_the_first_fault_of_a_kernel_is_reported() {
        let env = FakeEnv { traps: true, ..FakeEnv::default() };
        let report_count = Arc::clone(&env.report_count);
        let run = run_of(50, env);
        let (NextBlock::Ready(one), NextBlock::Ready(other)) = (run.next_block(0, None), run.next_block(0, None))
        else {
            panic!("two blocks may begin");
        };
        let slice = Slice { instructions: 1, nanoseconds: 0, seed: None };
        assert!(run.run_slice(one, slice, None));
        assert!(run.run_slice(other, slice, None));
        assert_eq!(run.outcome(), Some(Err(CUerror::LAUNCH_FAILED)));
        assert_eq!(report_count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn every_order_starts_every_block_once() {
        for seed in seeds(50, 500, 10_000) {
            print_seed(seed);
            let mut random = SplitMix64::seed_from_u64(seed);
            let blocks = 1 + random.next_u64() % 300;
            let order = BlockOrder::random(blocks, &mut random);
            let mut started: Vec<_> = (0..blocks).map(|started| order.nth(started, blocks)).collect();
            started.sort_unstable();
            assert!(started.into_iter().eq(0..blocks), "{order:?} of {blocks}");
        }
        let plain = BlockOrder { stride: 1, offset: 0 };
        assert_eq!([0, 1, u64::MAX - 1].map(|started| plain.nth(started, u64::MAX)), [0, 1, u64::MAX - 1]);
    }
}
