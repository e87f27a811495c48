//! Carries out the work of streams, in the order of each and under one of three schedules across them.
//!
//! It knows queues and work, and nothing of contexts, handles or who owns memory.

mod crew;
pub(crate) mod kernel;
pub(crate) mod queue;
mod steps;
pub(crate) mod work;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use freehold_driver::cuda::{CUerror, CUresult};

use crate::config::Schedule;
use crew::Crew;
use kernel::Run;
use queue::{Op, Point, Queue};
use steps::Steps;
use work::{Part, Progress, Work};

/// As many instructions of warps as one step of a schedule without threads executes.
const STEP_INSTRUCTIONS_MAX: u64 = 1 << 15;

/// For so long calls that wait for nothing do not report a fault, where streams have threads. On a GPU a program comes past a
/// launch that fails before its fault is known; here too, although a loaded machine may stop it between two calls.
const UNHEARD_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(crate) struct Engine {
    start: Instant,
    /// The code of the first fault, zero before it. From then on work is dropped.
    fault: AtomicU32,
    /// From when on every call knows of it. The last moment there is before it.
    told_from: AtomicU64,
    queues: AtomicU64,
    /// How work advances without threads; nothing if each queue has one.
    steps: Option<Steps>,
    /// Who runs kernels where each queue has a thread.
    crew: Arc<Crew>,
    /// A kernel that runs longer is ended.
    kernel_limit: Option<Duration>,
}

impl Engine {
    pub(crate) fn start(schedule: Schedule, kernel_limit: Option<Duration>) -> Arc<Self> {
        let start = Instant::now();
        let engine = Arc::new(Self {
            start,
            fault: AtomicU32::new(0),
            told_from: AtomicU64::new(u64::MAX),
            queues: AtomicU64::new(0),
            steps: match schedule {
                Schedule::Threads => None,
                Schedule::Eager => Some(Steps::eager()),
                Schedule::Seed(seed) => Some(Steps::seeded(seed)),
            },
            crew: Arc::new(Crew::new(kernel_limit)),
            kernel_limit,
        });
        if engine.steps.is_some() {
            steps::start_ticker(&engine);
        }
        engine
    }

    pub(crate) fn open(&self, blocking: bool) -> Arc<Queue> {
        let id = self.queues.fetch_add(1, Ordering::Relaxed) + 1;
        let queue = Arc::new(Queue::new(id, blocking));
        if let Some(steps) = &self.steps {
            steps.watch(&queue);
        }
        queue
    }

    /// Adds work to a queue, to start when all of `after` has passed.
    ///
    /// # Errors
    /// The system has no thread for the queue. Nothing was added.
    pub(crate) fn add(self: &Arc<Self>, queue: &Arc<Queue>, after: Vec<Point>, work: Work) -> Result<Point, CUerror> {
        let mut line = queue.line();
        if self.steps.is_none() && !line.has_worker {
            let (engine, queue) = (Arc::clone(self), Arc::clone(queue));
            let thread = std::thread::Builder::new().name("freehold-stream".to_owned());
            thread.spawn(move || engine.serve(&queue)).map_err(|_| CUerror::OUT_OF_MEMORY)?;
            line.has_worker = true;
        }
        let position = queue.push(&mut line, after, work);
        let closed = line.closed;
        drop(line);
        match &self.steps {
            None => queue.more.notify_one(),
            // A queue that was over is looked at no more; whoever adds to it after its end brings it back.
            Some(steps) if closed => steps.watch(queue),
            Some(_) => {}
        }
        Ok(Point { queue: Arc::clone(queue), position })
    }

    /// Keeps the program waiting until a point has passed.
    pub(crate) fn wait(&self, point: &Point) {
        match &self.steps {
            None => point.queue.sleep_until(point.position),
            Some(steps) => steps.run_until(self, || point.has_passed()),
        }
        point.queue.show(point.position);
    }

    /// Keeps the program waiting until something holds that another process may bring about.
    pub(crate) fn wait_for(&self, holds: impl Fn() -> bool) {
        match &self.steps {
            None => {
                let mut tries = 0u32;
                while !holds() {
                    back_off(tries);
                    tries = tries.saturating_add(1);
                }
            }
            Some(steps) => steps.run_until(self, holds),
        }
    }

    /// Lets work advance that has no thread of its own: called when a call of the driver's begins.
    pub(crate) fn before_call(&self) {
        if let Some(steps) = &self.steps {
            steps.before_call(self);
        }
    }

    /// The same, when the call ends.
    pub(crate) fn after_call(&self) {
        if let Some(steps) = &self.steps {
            steps.after_call(self);
        }
    }

    /// The time of events, in nanoseconds; that of a seeded schedule counts steps.
    pub(crate) fn now(&self) -> u64 {
        match self.steps.as_ref().and_then(Steps::virtual_time) {
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
    pub(crate) fn status(&self) -> CUresult {
        let fault = self.fault();
        if fault.is_err() {
            self.told_from.store(0, Ordering::Release);
        }
        fault
    }

    /// The fault, for a call that waits for nothing: it hears of it when another call has, or a little later than it
    /// happened. On a GPU, too, a program goes on for a moment behind a launch that fails.
    pub(crate) fn known_fault(&self) -> CUresult {
        let fault = self.fault();
        if fault.is_err() && self.now() < self.told_from.load(Ordering::Acquire) { Ok(()) } else { fault }
    }

    /// The first fault counts: every call answers with it from now on (fact 5.1).
    fn fail(&self, code: CUerror) {
        let told_from = if self.steps.is_none() { self.now() + UNHEARD_NS } else { 0 };
        let _first = self.told_from.compare_exchange(u64::MAX, told_from, Ordering::AcqRel, Ordering::Acquire);
        let _first = self.fault.compare_exchange(0, code.number(), Ordering::AcqRel, Ordering::Acquire);
        self.crew.fail(code);
    }

    /// Runs a part of the work in an op; a fault counts as its end.
    fn carry_out(&self, op: &mut Op, part: Part) -> Progress {
        let outcome = match &op.work {
            Work::Kernel(run) => self.run_kernel(run, part),
            _ => op.work.run(part, || self.now(), self.fault()),
        };
        outcome.unwrap_or_else(|code| {
            self.fail(code);
            Progress::Done
        })
    }

    /// Runs a part of a kernel.
    fn run_kernel(&self, run: &Arc<Run>, part: Part) -> Result<Progress, CUerror> {
        if self.fault().is_err() {
            return Ok(Progress::Done);
        }
        match part {
            Part::Whole => self.crew.run(run).map(|()| Progress::Done),
            Part::Some { limit, seed, .. } => {
                run.step(limit.min(STEP_INSTRUCTIONS_MAX), || self.now(), seed, self.kernel_limit)
            }
        }
    }

    /// The life of a queue's thread.
    fn serve(&self, queue: &Queue) {
        loop {
            let mut line = queue.line();
            let mut op = loop {
                if let Some(op) = line.ops.pop_front() {
                    break op;
                }
                if line.closed {
                    line.has_worker = false;
                    return;
                }
                line = queue.more.wait(line).unwrap_or_else(PoisonError::into_inner);
            };
            drop(line);
            for point in &op.after {
                point.queue.sleep_until(point.position);
            }
            let mut tries = 0u32;
            while self.carry_out(&mut op, Part::Whole) == Progress::NotYet {
                back_off(tries);
                tries = tries.saturating_add(1);
            }
            let position = op.position;
            drop(op);
            queue.complete(position);
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
