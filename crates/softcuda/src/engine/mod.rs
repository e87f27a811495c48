//! Runs the work of streams: in order within a stream, and under one of three schedules across streams.
//!
//! The engine knows queues and work. It does not know contexts, handles or the owners of memory.

pub(crate) mod kernel_env;
pub(crate) mod kernel_run;
mod priorities;
pub(crate) mod progress;
pub(crate) mod queue;
mod stepper;
pub(crate) mod work;
mod worker_pool;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use freehold_driver::cuda::{CUerror, CUresult};

use crate::base::check;
use crate::base::config::Schedule;
use freehold_check::{BlockKind, Checker, Effect};
use kernel_run::KernelRun;
use progress::{Progress, Quantum};
use queue::{Fence, Op, Queue};
use rand_xoshiro::SplitMix64;
use stepper::{Stepper, Ticker};
use work::{Noted, Work};
use worker_pool::WorkerPool;

/// Maximum number of warp instructions in one step of a schedule without threads.
const STEP_INSTRUCTIONS_MAX: u64 = 1 << 15;

/// How long non-blocking calls do not report a fault, where streams have threads. On a GPU a program gets past a
/// failing launch before its fault is known. The delay gives the same result on a loaded machine, which may preempt the
/// program between two calls.
const FAULT_GRACE_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(crate) struct Engine {
    start: Instant,
    /// The code of the first fault, zero before it. After it, work is dropped.
    fault: AtomicU32,
    /// Time from which every call reports the fault. `u64::MAX` before the fault.
    fault_visible_ns: AtomicU64,
    queue_count: AtomicU64,
    /// Runs work under schedules without threads. `None` if each queue has a thread.
    stepper: Option<Stepper>,
    /// Runs kernels where each queue has a thread.
    workers: Arc<WorkerPool>,
    /// Time limit of a kernel.
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
                Schedule::Switches { seed, switches } => Some(Stepper::with_switches(seed, switches)),
            },
            workers: Arc::new(WorkerPool::new(kernel_limit)),
            kernel_limit,
        });
        if engine.stepper.is_some() {
            engine.start_ticker();
        }
        engine
    }

    /// Starts the thread that runs all ready work when the program has made no call for a while.
    fn start_ticker(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        let started = std::thread::Builder::new().name("freehold-ticker".to_owned()).spawn(move || {
            let mut ticker = Ticker::default();
            while let Some(engine) = engine.upgrade() {
                if let Some(stepper) = &engine.stepper {
                    ticker.tick(stepper, &|queue, op, quantum| engine.run_op(queue, op, quantum));
                }
                drop(engine);
                ticker.sleep();
            }
        });
        started.expect("the ticker thread can be started");
    }

    /// Returns a number that no queue has.
    pub(crate) fn new_queue_id(&self) -> u64 {
        self.queue_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn new_queue(&self, is_blocking: bool) -> Arc<Queue> {
        let id = self.new_queue_id();
        let queue = Arc::new(Queue::new(id, is_blocking));
        if let Some(stepper) = &self.stepper {
            stepper.add_queue(&queue);
        }
        queue
    }

    /// Adds work to a queue, to start when all fences of `after` have completed.
    ///
    /// # Errors
    /// The system cannot start a thread for the queue. Nothing was added.
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
            // The stepper drops finished queues, so work added after the close registers the queue again.
            Some(stepper) if is_closed => stepper.add_queue(queue),
            Some(_) => {}
        }
        Ok(Fence { queue: Arc::clone(queue), seq })
    }

    /// Blocks the caller until a fence has completed.
    pub(crate) fn wait(&self, fence: &Fence) {
        self.wait_internally(fence);
        fence.queue.mark_observed(fence.seq);
    }

    /// Blocks the caller until a fence has completed, without the program knowing that it has.
    pub(crate) fn wait_internally(&self, fence: &Fence) {
        match &self.stepper {
            None => fence.queue.wait(fence.seq),
            Some(_) => self.wait_for(|| fence.is_complete()),
        }
    }

    /// Blocks the caller until `holds` returns true, which may depend on another process.
    pub(crate) fn wait_for(&self, holds: impl Fn() -> bool) {
        match &self.stepper {
            None => {
                let mut tries = 0u32;
                while !holds() {
                    back_off(tries);
                    tries = tries.saturating_add(1);
                }
            }
            Some(stepper) => stepper.run_until(&|queue, op, quantum| self.run_op(queue, op, quantum), holds),
        }
    }

    /// Advances work that has no thread. Called at the start of each driver call.
    pub(crate) fn before_call(&self) {
        if let Some(stepper) = &self.stepper {
            stepper.before_call(&|queue, op, quantum| self.run_op(queue, op, quantum));
        }
    }

    /// Advances work that has no thread. Called when the program has asked for work that is not done.
    pub(crate) fn poll(&self) {
        if let Some(stepper) = &self.stepper {
            stepper.poll(&|queue, op, quantum| self.run_op(queue, op, quantum));
        }
    }

    /// Returns a generator for the order of work that one call submits, if the schedule has a seed.
    pub(crate) fn draw(&self) -> Option<SplitMix64> {
        self.stepper.as_ref().and_then(Stepper::draw)
    }

    /// Returns whether the schedule limits the number of switches: then nothing waits that does not have to.
    pub(crate) fn is_limited(&self) -> bool {
        self.stepper.as_ref().is_some_and(Stepper::is_limited)
    }

    /// Advances work that has no thread. Called at the end of each driver call.
    pub(crate) fn after_call(&self) {
        if let Some(stepper) = &self.stepper {
            stepper.after_call(&|queue, op, quantum| self.run_op(queue, op, quantum));
        }
    }

    /// Returns the time of events in nanoseconds. A seeded schedule counts steps.
    pub(crate) fn now(&self) -> u64 {
        match self.stepper.as_ref().and_then(Stepper::virtual_time) {
            Some(time) => time,
            None => u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the fault that ended all work of this process, if there was one.
    fn fault(&self) -> CUresult {
        match CUerror::new(self.fault.load(Ordering::Acquire)) {
            None => Ok(()),
            Some(code) => Err(code),
        }
    }

    /// Returns the fault, for a call that waits for work or queries it. All later calls report it too.
    pub(crate) fn check_fault(&self) -> CUresult {
        let fault = self.fault();
        if fault.is_err() {
            self.fault_visible_ns.store(0, Ordering::Release);
        }
        fault
    }

    /// Returns the fault, for a non-blocking call: only after another call has reported it, or [`FAULT_GRACE_NS`] after
    /// it happened. On a GPU, too, a program runs on for a moment after a launch that fails.
    pub(crate) fn visible_fault(&self) -> CUresult {
        let fault = self.fault();
        if fault.is_err() && self.now() < self.fault_visible_ns.load(Ordering::Acquire) { Ok(()) } else { fault }
    }

    /// Records a fault. Only the first one counts: every call reports it from now on.
    fn fail(&self, code: CUerror) {
        let visible_ns = if self.stepper.is_none() { self.now() + FAULT_GRACE_NS } else { 0 };
        let _first = self.fault_visible_ns.compare_exchange(u64::MAX, visible_ns, Ordering::AcqRel, Ordering::Acquire);
        let _first = self.fault.compare_exchange(0, code.number(), Ordering::AcqRel, Ordering::Acquire);
        self.workers.fail(code);
    }

    /// Runs a part of an op. A fault ends the op.
    fn run_op(&self, queue: &Queue, op: &mut Op, quantum: Quantum) -> Progress {
        if let Some(checker) = check::checker() {
            begin_checked(checker, queue, op);
        }
        let progress = self.run_part(op, quantum);
        if progress == Progress::Done
            && let Some(checker) = check::checker()
        {
            end_checked(checker, queue, op);
        }
        progress
    }

    fn run_part(&self, op: &mut Op, quantum: Quantum) -> Progress {
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

    /// The main loop of a queue's thread.
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
            while self.run_op(queue, &mut op, Quantum::Unlimited) == Progress::Blocked {
                back_off(tries);
                tries = tries.saturating_add(1);
            }
            let seq = op.seq;
            drop(op);
            queue.complete(seq);
        }
    }
}

/// Tells the checker that work begins, and what it accesses. Kernels tell about their accesses as they make them.
fn begin_checked(checker: &'static Checker, queue: &Queue, op: &mut Op) {
    let Op { seq, dependencies, work, checked: Some(checked) } = op else { return };
    if checked.view.is_some() {
        return;
    }
    let place = checked.place.take().unwrap_or_default();
    let after: Vec<_> = dependencies.iter().skip(place.internal).map(Fence::epoch).chain(place.after).collect();
    let captures = place.captures.as_ref().map_or(&[][..], |captures| captures.all());
    let epoch = place.epoch.unwrap_or(queue.epoch(*seq));
    let view = checker.begin_of_graph(epoch, &after, &checked.submission, captures);
    if let Work::Kernel(run) = work {
        run.begin_checked(view.clone());
    } else if let Work::Note(notes) = work {
        for &Noted { kind, address, bytes } in notes.iter() {
            match kind {
                Effect::Allocate => checker.allocate(&view, address, bytes, BlockKind::Device),
                Effect::Free => checker.free(&view, address, bytes),
                _ => checker.access(&view, kind, address, bytes),
            }
        }
    } else {
        work.for_each_access(|kind, address, bytes| checker.access(&view, kind, address, bytes));
        if let Work::HostCall(call) = work {
            call.begin_checked(view.clone());
        }
    }
    checked.view = Some(view);
}

/// Tells the checker what others learn from the end of work.
fn end_checked(checker: &'static Checker, queue: &Queue, op: &mut Op) {
    let Some(view) = op.checked.as_mut().and_then(|checked| checked.view.as_mut()) else { return };
    match &op.work {
        // The program may look for the word, or a thread of it for what the function did.
        Work::HostCall(call) if !call.is_task() => queue.mark_known(op.seq),
        Work::WriteValue { at, .. } if at.is_on_host() => queue.mark_known(op.seq),
        Work::WaitValue(wait) => {
            if let Some(writer) = wait.at.address().and_then(|address| checker.last_writer(address)) {
                checker.acquire(view, writer);
            }
        }
        _ => {}
    }
}

/// Sleeps between polls of a memory word: hardly at first, up to a millisecond later. It yields few times: with other
/// threads ready to run, a yield can take longer than a sleep.
fn back_off(tries: u32) {
    match tries {
        0..64 => std::hint::spin_loop(),
        64..68 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(u64::from(tries - 67).saturating_mul(10).min(1000))),
    }
}
