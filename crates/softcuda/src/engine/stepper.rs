//! Schedules without threads: work advances inside the program's calls, one step at a time.
//!
//! Under `eager` each call runs all work that can run. Under a seed, a random generator decides at each call which
//! queues advance and how far; copies also advance in pieces, which exposes missing waits. The same seed and the same
//! calls of one thread give the same steps. A program that waits without calling the driver, for example by polling a
//! value that a stream writes, depends on the ticker, which runs everything after a pause without calls. Under a seed
//! with a number of switches, work runs only when the program has to wait ([`Priorities`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::priorities::Priorities;
use super::progress::{Progress, Quantum};
use super::queue::{Fence, Op, Queue};
use crate::base::sync::lock;

/// The ticker's period, and the number of periods without a call after which it runs all ready work.
const TICK: Duration = Duration::from_millis(10);
const QUIET_TICKS: u32 = 15;

/// With a number of switches: after so many calls without a step there is one. The program may poll.
const IDLE_CALLS_MAX: u32 = 64;

/// Steps of one kernel in a non-blocking call.
const KERNEL_STEPS_MAX: u32 = 2;

/// Duration of a step in the virtual time of a seeded schedule.
const STEP_NS: u64 = 1000;

/// Runs a part of an op.
pub(super) type RunOp<'e> = &'e dyn Fn(&Queue, &mut Op, Quantum) -> Progress;

#[derive(Debug)]
pub(super) struct Stepper {
    state: Mutex<StepState>,
    /// Number of threads that wait for the lock.
    waiters: AtomicU32,
    /// Number of driver calls so far.
    call_count: AtomicU64,
    /// Number of steps so far.
    step_count: AtomicU64,
    is_seeded: bool,
    /// How long a step waits for a host function before other streams run.
    host_fn_timeout: Duration,
}

/// Held by the one thread that advances work.
#[derive(Debug)]
struct StepState {
    /// In order of creation. Finished queues are removed.
    queues: Vec<Arc<Queue>>,
    random: SplitMix64,
    /// If the number of switches is limited.
    priorities: Option<Priorities>,
    /// The number of calls since the last step.
    idle_calls: u32,
}

impl Stepper {
    pub(super) fn eager() -> Self {
        Self::new(0, false, None)
    }

    pub(super) fn seeded(seed: u64) -> Self {
        Self::new(seed, true, None)
    }

    pub(super) fn with_switches(seed: u64, switches: u32) -> Self {
        Self::new(seed, true, Some(Priorities::new(seed, switches)))
    }

    fn new(seed: u64, is_seeded: bool, priorities: Option<Priorities>) -> Self {
        let random = SplitMix64::seed_from_u64(seed);
        Self {
            state: Mutex::new(StepState { queues: Vec::new(), random, priorities, idle_calls: 0 }),
            waiters: AtomicU32::new(0),
            call_count: AtomicU64::new(0),
            step_count: AtomicU64::new(0),
            is_seeded,
            // A seeded run is reproducible only if a host function returns within the step that called it.
            host_fn_timeout: if is_seeded { Duration::from_secs(1) } else { Duration::from_millis(20) },
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, StepState> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let state = lock(&self.state);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        state
    }

    fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }

    /// Lets waiting threads take the lock, which a thread that retakes it in a loop would keep from them.
    fn yield_to_waiters(&self) {
        while self.has_waiters() {
            std::thread::yield_now();
        }
    }

    /// Adds a queue, which stays until it is finished.
    pub(super) fn add_queue(&self, queue: &Arc<Queue>) {
        let mut state = self.lock_state();
        if !state.queues.iter().any(|watched| Arc::ptr_eq(watched, queue)) {
            state.queues.push(Arc::clone(queue));
        }
        if let Some(priorities) = &mut state.priorities {
            priorities.add(queue.id);
        }
    }

    /// Returns a generator for the order of work that one call submits, under a seed.
    pub(super) fn draw(&self) -> Option<SplitMix64> {
        self.is_seeded.then(|| SplitMix64::seed_from_u64(self.lock_state().random.next_u64()))
    }

    pub(super) fn is_limited(&self) -> bool {
        self.lock_state().priorities.is_some()
    }

    pub(super) fn virtual_time(&self) -> Option<u64> {
        self.is_seeded.then(|| (self.step_count.load(Ordering::Relaxed) + 1) * STEP_NS)
    }

    /// Called at the start of a driver call.
    pub(super) fn before_call(&self, run_op: RunOp<'_>) {
        self.call_count.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock_state();
        if state.priorities.is_some() {
            state.idle_calls += 1;
            if state.idle_calls >= IDLE_CALLS_MAX {
                self.step(run_op, &mut state);
            }
        } else if self.is_seeded {
            let steps = match state.random.next_u64() % 8 {
                0..3 => 0,
                3..7 => 1 + state.random.next_u64() % 3,
                _ => 1 + state.random.next_u64() % 16,
            };
            for _ in 0..steps {
                self.step(run_op, &mut state);
            }
        } else {
            self.run_ready(run_op, &mut state);
        }
    }

    /// Called at the end of a driver call: runs the work that it submitted, unless a seed decides when.
    pub(super) fn after_call(&self, run_op: RunOp<'_>) {
        if !self.is_seeded {
            self.run_ready(run_op, &mut self.lock_state());
        }
    }

    /// Makes a step for a program that asks whether work is done, and may ask until it is.
    pub(super) fn poll(&self, run_op: RunOp<'_>) {
        let mut state = self.lock_state();
        if state.priorities.is_some() {
            self.step(run_op, &mut state);
        }
    }

    pub(super) fn run_until(&self, run_op: RunOp<'_>, holds: impl Fn() -> bool) {
        while !holds() {
            let mut state = self.lock_state();
            let moved = if self.is_seeded { self.step(run_op, &mut state) } else { self.run_ready(run_op, &mut state) };
            drop(state);
            self.yield_to_waiters();
            if !moved && !holds() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Returns the seed for the steps of kernels.
    fn seed(&self, state: &StepState) -> Option<u64> {
        let generator = u64::from_le_bytes(state.random.state());
        self.is_seeded.then(|| generator ^ self.step_count.load(Ordering::Relaxed))
    }

    /// Runs everything that can run, but only a few steps of a kernel, which may wait for the program. Returns whether
    /// anything ran.
    fn run_ready(&self, run_op: RunOp<'_>, state: &mut StepState) -> bool {
        let mut ever = false;
        loop {
            let mut moved = false;
            for queue in pending(state) {
                let mut kernel_steps = 0;
                while kernel_steps < KERNEL_STEPS_MAX {
                    match self.advance(run_op, &queue, u64::MAX, self.seed(state)) {
                        Progress::Blocked => break,
                        Progress::KernelRan => kernel_steps += 1,
                        Progress::Done | Progress::Partial => moved = true,
                    }
                }
                ever |= kernel_steps > 0;
            }
            ever |= moved;
            if !moved {
                return ever;
            }
        }
    }

    /// Advances one queue: the first that can advance, starting from a random one. Returns false if none can.
    fn step(&self, run_op: RunOp<'_>, state: &mut StepState) -> bool {
        let mut queues = pending(state);
        if queues.is_empty() {
            return false;
        }
        state.idle_calls = 0;
        if let Some(priorities) = &state.priorities {
            queues.sort_by_key(|queue| priorities.rank(queue.id));
            return self.step_in_order(run_op, state, &queues);
        }
        let before_draw = state.random.clone();
        let first = (state.random.next_u64() % queues.len() as u64) as usize;
        let limit = match state.random.next_u64() % 3 {
            0 => u64::MAX,
            _ => 1 + state.random.next_u64() % 4096,
        };
        let (before, from_first) = queues.split_at(first);
        let mut order = from_first.iter().chain(before);
        let seed = self.seed(state);
        let moved = order.any(|queue| self.advance(run_op, queue, limit, seed) != Progress::Blocked);
        if !moved {
            // The number of unsuccessful polls depends on timing, so it must not affect the generator.
            state.random = before_draw;
        }
        moved
    }

    /// Advances the first queue that can. Returns false if none can.
    fn step_in_order(&self, run_op: RunOp<'_>, state: &mut StepState, queues: &[Arc<Queue>]) -> bool {
        let priorities = state.priorities.as_ref().expect("only a schedule with priorities has this order");
        // The number of unsuccessful polls depends on timing, so it must not affect the generator.
        let mut random = state.random.clone();
        let limit = if priorities.has_switches() { 1 + random.next_u64() % 4096 } else { u64::MAX };
        let seed = self.seed(state);
        let advanced = queues.iter().find_map(|queue| {
            let progress = self.advance(run_op, queue, limit, seed);
            (progress != Progress::Blocked).then_some((queue.id, progress))
        });
        let Some((queue, progress)) = advanced else { return false };
        state.random = random;
        let priorities = state.priorities.as_mut().expect("nothing has removed them");
        priorities.note(queue, progress == Progress::Done);
        true
    }

    /// Runs a part of the first work of a queue.
    fn advance(&self, run_op: RunOp<'_>, queue: &Queue, limit: u64, seed: Option<u64>) -> Progress {
        // Only the holder of the lock takes work out, so the op can be outside the queue while it runs.
        let Some(mut op) = ({ queue.state().ops.pop_front() }) else { return Progress::Blocked };
        let progress = if op.dependencies.iter().all(Fence::is_complete) {
            run_op(queue, &mut op, Quantum::Limited { limit, host_fn_timeout: self.host_fn_timeout, seed })
        } else {
            Progress::Blocked
        };
        let seq = op.seq;
        match progress {
            Progress::Done => {
                drop(op);
                queue.complete(seq);
            }
            Progress::Partial | Progress::KernelRan | Progress::Blocked => queue.state().ops.push_front(op),
        }
        if progress != Progress::Blocked {
            self.step_count.fetch_add(1, Ordering::Relaxed);
        }
        progress
    }
}

/// How long the program has made no call.
#[derive(Debug, Default)]
pub(super) struct Ticker {
    call_count: u64,
    quiet_ticks: u32,
}

impl Ticker {
    /// Runs everything that can run if the program made no call for a while.
    pub(super) fn tick(&mut self, stepper: &Stepper, run_op: RunOp<'_>) {
        let now = stepper.call_count.load(Ordering::Relaxed);
        self.quiet_ticks = if std::mem::replace(&mut self.call_count, now) == now { self.quiet_ticks } else { 0 };
        if self.quiet_ticks >= QUIET_TICKS {
            self.quiet_ticks = 0;
            // A kernel may need more than one round, and the lock is yielded in between.
            let mut moves = true;
            while moves && stepper.call_count.load(Ordering::Relaxed) == now && !stepper.has_waiters() {
                moves = stepper.run_ready(run_op, &mut stepper.lock_state());
            }
        }
    }

    /// Sleeps for one period.
    pub(super) fn sleep(&mut self) {
        let begun = Instant::now();
        std::thread::sleep(TICK);
        // If this thread was starved of CPU time, the program may have been too, so the period does not count.
        self.quiet_ticks += u32::from(begun.elapsed() < 2 * TICK);
    }
}

/// Returns the queues that have work, in order of creation.
fn pending(state: &mut StepState) -> Vec<Arc<Queue>> {
    state.queues.retain(|queue| !queue.is_finished());
    state.queues.iter().filter(|queue| !queue.is_idle()).cloned().collect()
}
