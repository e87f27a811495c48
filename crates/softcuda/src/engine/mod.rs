//! Carries out the work of streams, in the order of each and under one of three schedules across them.
//!
//! It knows queues and work, and nothing of contexts, handles or who owns memory.

pub(crate) mod kernel_env;
pub(crate) mod kernel_run;
pub(crate) mod progress;
pub(crate) mod queue;
mod rng;
mod stepper;
pub(crate) mod work;
mod worker_pool;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use freehold_driver::cuda::{CUerror, CUresult};

use crate::base::config::Schedule;
use kernel_run::KernelRun;
use progress::{Progress, Quantum};
use queue::{Fence, Op, Queue};
use stepper::{Stepper, Ticker};
use work::Work;
use worker_pool::WorkerPool;

/// As many instructions of warps as one step of a schedule without threads executes.
const STEP_INSTRUCTIONS_MAX: u64 = 1 << 15;

/// For so long calls that wait for nothing do not report a fault, where streams have threads. On a GPU a program comes past a
/// launch that fails before its fault is known; here too, although a loaded machine may stop it between two calls.
const FAULT_GRACE_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(crate) struct Engine {
    start: Instant,
    /// The code of the first fault, zero before it. From then on work is dropped.
    fault: AtomicU32,
    /// From when on every call knows of it. The last moment there is before it.
    fault_visible_ns: AtomicU64,
    queue_count: AtomicU64,
    /// How work advances without threads; nothing if each queue has one.
    stepper: Option<Stepper>,
    /// Who runs kernels where each queue has a thread.
    workers: Arc<WorkerPool>,
    /// A kernel that runs longer is ended.
    kernel_limit: Option<Duration>,
}

impl Engine {
    pub(crate) fn start(schedule: Schedule, kernel_limit: Option<Duration>) -> Arc<Self> {
        let start = Instant::now();
        let engine = Arc::new(Self {
            start,
            fault: AtomicU32::new(0),
            fault_visible_ns: AtomicU64::new(u64::MAX),
            queue_count: AtomicU64::new(0),
            stepper: match schedule {
                Schedule::Threads => None,
                Schedule::Eager => Some(Stepper::eager()),
                Schedule::Seed(seed) => Some(Stepper::seeded(seed)),
            },
            workers: Arc::new(WorkerPool::new(kernel_limit)),
            kernel_limit,
        });
        if engine.stepper.is_some() {
            engine.start_ticker();
        }
        engine
    }

    /// Runs everything that can run whenever the program made no call for a while.
    fn start_ticker(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        let started = std::thread::Builder::new().name("freehold-ticker".to_owned()).spawn(move || {
            let mut ticker = Ticker::default();
            while let Some(engine) = engine.upgrade() {
                if let Some(stepper) = &engine.stepper {
                    ticker.tick(stepper, &|op, quantum| engine.run_op(op, quantum));
                }
                drop(engine);
                ticker.sleep();
            }
        });
        started.expect("the system has a thread for the ticker");
    }

    pub(crate) fn new_queue(&self, is_blocking: bool) -> Arc<Queue> {
        let id = self.queue_count.fetch_add(1, Ordering::Relaxed) + 1;
        let queue = Arc::new(Queue::new(id, is_blocking));
        if let Some(stepper) = &self.stepper {
            stepper.add_queue(&queue);
        }
        queue
    }

    /// Adds work to a queue, to start when all of `after` has passed.
    ///
    /// # Errors
    /// The system has no thread for the queue. Nothing was added.
    pub(crate) fn submit(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        after: Vec<Fence>,
        work: Work,
    ) -> Result<Fence, CUerror> {
        let mut state = queue.state();
        if self.stepper.is_none() && !state.has_thread {
            let (engine, queue) = (Arc::clone(self), Arc::clone(queue));
            let thread = std::thread::Builder::new().name("freehold-stream".to_owned());
            thread.spawn(move || engine.run_queue_thread(&queue)).map_err(|_| CUerror::OUT_OF_MEMORY)?;
            state.has_thread = true;
        }
        let seq = queue.push(&mut state, after, work);
        let is_closed = state.is_closed;
        drop(state);
        match &self.stepper {
            None => queue.work_added.notify_one(),
            // A queue that was over is looked at no more; whoever adds to it after its end brings it back.
            Some(stepper) if is_closed => stepper.add_queue(queue),
            Some(_) => {}
        }
        Ok(Fence { queue: Arc::clone(queue), seq })
    }

    /// Keeps the program waiting until a fence has passed.
    pub(crate) fn wait(&self, fence: &Fence) {
        match &self.stepper {
            None => fence.queue.wait(fence.seq),
            Some(stepper) => stepper.run_until(&|op, quantum| self.run_op(op, quantum), || fence.is_complete()),
        }
        fence.queue.mark_observed(fence.seq);
    }

    /// Keeps the program waiting until something holds that another process may bring about.
    pub(crate) fn wait_for(&self, holds: impl Fn() -> bool) {
        match &self.stepper {
            None => {
                let mut tries = 0u32;
                while !holds() {
                    back_off(tries);
                    tries = tries.saturating_add(1);
                }
            }
            Some(stepper) => stepper.run_until(&|op, quantum| self.run_op(op, quantum), holds),
        }
    }

    /// Lets work advance that has no thread of its own: called when a call of the driver's begins.
    pub(crate) fn before_call(&self) {
        if let Some(stepper) = &self.stepper {
            stepper.before_call(&|op, quantum| self.run_op(op, quantum));
        }
    }

    /// The same, when the call ends.
    pub(crate) fn after_call(&self) {
        if let Some(stepper) = &self.stepper {
            stepper.after_call(&|op, quantum| self.run_op(op, quantum));
        }
    }

    /// The time of events, in nanoseconds; that of a seeded schedule counts steps.
    pub(crate) fn now(&self) -> u64 {
        match self.stepper.as_ref().and_then(Stepper::virtual_time) {
            Some(time) => time,
            None => u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The fault that ended all work of this process, if there was one.
    fn fault(&self) -> CUresult {
        match CUerror::new(self.fault.load(Ordering::Acquire)) {
            None => Ok(()),
            Some(code) => Err(code),
        }
    }

    /// The same, for a call that has waited for work or asks how far it is: every call knows of it from now on.
    pub(crate) fn check_fault(&self) -> CUresult {
        let fault = self.fault();
        if fault.is_err() {
            self.fault_visible_ns.store(0, Ordering::Release);
        }
        fault
    }

    /// The fault, for a call that waits for nothing: it hears of it when another call has, or a little later than it
    /// happened. On a GPU, too, a program goes on for a moment behind a launch that fails.
    pub(crate) fn visible_fault(&self) -> CUresult {
        let fault = self.fault();
        if fault.is_err() && self.now() < self.fault_visible_ns.load(Ordering::Acquire) { Ok(()) } else { fault }
    }

    /// The first fault counts: every call answers with it from now on.
    fn fail(&self, code: CUerror) {
        let visible_ns = if self.stepper.is_none() { self.now() + FAULT_GRACE_NS } else { 0 };
        let _first = self.fault_visible_ns.compare_exchange(u64::MAX, visible_ns, Ordering::AcqRel, Ordering::Acquire);
        let _first = self.fault.compare_exchange(0, code.number(), Ordering::AcqRel, Ordering::Acquire);
        self.workers.fail(code);
    }

    /// Runs a part of the work in an op; a fault counts as its end.
    fn run_op(&self, op: &mut Op, quantum: Quantum) -> Progress {
        let outcome = match &op.work {
            Work::Kernel(run) => self.run_kernel(run, quantum),
            _ => op.work.run(quantum, || self.now(), self.fault()),
        };
        outcome.unwrap_or_else(|code| {
            self.fail(code);
            Progress::Done
        })
    }

    /// Runs a part of a kernel.
    fn run_kernel(&self, run: &Arc<KernelRun>, quantum: Quantum) -> Result<Progress, CUerror> {
        if self.fault().is_err() {
            return Ok(Progress::Done);
        }
        match quantum {
            Quantum::Unlimited => self.workers.run(run).map(|()| Progress::Done),
            Quantum::Limited { limit, seed, .. } => {
                run.step(limit.min(STEP_INSTRUCTIONS_MAX), || self.now(), seed, self.kernel_limit)
            }
        }
    }

    /// The life of a queue's thread.
    fn run_queue_thread(&self, queue: &Queue) {
        loop {
            let mut state = queue.state();
            let mut op = loop {
                if let Some(op) = state.ops.pop_front() {
                    break op;
                }
                if state.is_closed {
                    state.has_thread = false;
                    return;
                }
                state = queue.work_added.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            for fence in &op.dependencies {
                fence.queue.wait(fence.seq);
            }
            let mut tries = 0u32;
            while self.run_op(&mut op, Quantum::Unlimited) == Progress::Blocked {
                back_off(tries);
                tries = tries.saturating_add(1);
            }
            let seq = op.seq;
            drop(op);
            queue.complete(seq);
        }
    }
}

/// Waits a little for a word of memory that nobody announces: at first hardly, at last a millisecond. Few yields: with other threads
/// ready to run, each can take longer than a sleep.
fn back_off(tries: u32) {
    match tries {
        0..64 => std::hint::spin_loop(),
        64..68 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(u64::from(tries - 67).saturating_mul(10).min(1000))),
    }
}
