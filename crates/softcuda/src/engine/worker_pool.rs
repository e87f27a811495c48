//! The threads that run kernels when each stream has its own thread: one per processor, shared by all running kernels.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freehold_driver::cuda::CUerror;
use rustix::time::{ClockId, clock_gettime};

use super::kernel_run::{KernelRun, NextBlock};
use crate::base::sync::lock;

#[derive(Debug)]
pub(super) struct WorkerPool {
    /// Time limit of a kernel.
    limit: Option<Duration>,
    queue: Mutex<RunQueue>,
    /// Signals a worker that there may be work.
    work_available: Condvar,
}

#[derive(Debug, Default)]
struct RunQueue {
    /// The running kernels. The first has the next turn.
    runs: VecDeque<Arc<KernelRun>>,
    /// Kernels of a single block, each of which runs on the thread of its stream.
    inline_runs: Vec<Arc<KernelRun>>,
    worker_count: usize,
    /// Number of workers that wait for work.
    idle_count: usize,
    /// The fault after which no kernel starts.
    fault: Option<CUerror>,
}

impl WorkerPool {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, queue: Mutex::default(), work_available: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, RunQueue> {
        lock(&self.queue)
    }

    /// Returns the device's time, which is the same in all processes.
    fn now(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    /// Runs a kernel to its end. A kernel of a single block stays on the calling thread.
    pub(super) fn run(self: &Arc<Self>, run: &Arc<KernelRun>) -> Result<(), CUerror> {
        let mut queue = self.queue();
        if let Some(fault) = queue.fault {
            return Err(fault);
        }
        if !run.is_one_block() {
            self.spawn_workers(&mut queue);
        }
        if run.is_one_block() || queue.worker_count == 0 {
            queue.inline_runs.push(Arc::clone(run));
            drop(queue);
            self.run_inline(run);
            self.queue().inline_runs.retain(|other| !Arc::ptr_eq(other, run));
        } else {
            queue.runs.push_back(Arc::clone(run));
            drop(queue);
            self.work_available.notify_all();
        }
        run.wait()
    }

    /// Starts the workers, or as many as the system can start threads for.
    fn spawn_workers(self: &Arc<Self>, queue: &mut RunQueue) {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from);
        while queue.worker_count < wanted {
            let pool = Arc::clone(self);
            let thread = std::thread::Builder::new().name("freehold-kernel".to_owned());
            if thread.spawn(move || pool.worker_loop()).is_err() {
                return;
            }
            queue.worker_count += 1;
        }
    }

    fn run_inline(&self, run: &KernelRun) {
        while run.outcome().is_none() {
            match run.next_block(self.now(), None) {
                NextBlock::Ready(block) => run.run_blocks(block, || self.now(), self.limit),
                NextBlock::Sleep { until_nanoseconds } => std::thread::sleep(self.sleep_time(until_nanoseconds)),
                // A fault elsewhere has just ended the kernel: no other thread has a block of it.
                NextBlock::Empty => return,
            }
        }
    }

    fn sleep_time(&self, nanoseconds: u64) -> Duration {
        // The wait is bounded, so that a fault elsewhere ends it.
        Duration::from_nanos(nanoseconds.saturating_sub(self.now())).min(Duration::from_millis(20))
    }

    /// Ends all kernels that run, and those to come.
    pub(super) fn fail(&self, fault: CUerror) {
        let mut queue = self.queue();
        queue.fault.get_or_insert(fault);
        let (runs, inline_runs) = (std::mem::take(&mut queue.runs), std::mem::take(&mut queue.inline_runs));
        drop(queue);
        for run in runs.into_iter().chain(inline_runs) {
            run.finish(Err(fault));
        }
    }

    /// The main loop of a worker.
    fn worker_loop(&self) {
        let mut queue = self.queue();
        loop {
            queue.runs.retain(|run| run.outcome().is_none());
            let mut sleep = None;
            let mut found = None;
            for _ in 0..queue.runs.len() {
                queue.runs.rotate_left(1);
                let Some(run) = queue.runs.back() else { break };
                match run.next_block(self.now(), None) {
                    NextBlock::Ready(block) => {
                        found = Some((Arc::clone(run), block));
                        break;
                    }
                    NextBlock::Sleep { until_nanoseconds } => {
                        sleep = Some(sleep.map_or(until_nanoseconds, |soonest: u64| soonest.min(until_nanoseconds)));
                    }
                    NextBlock::Empty => {}
                }
            }
            if let Some((run, block)) = found {
                drop(queue);
                run.run_blocks(block, || self.now(), self.limit);
                drop(run);
                queue = self.queue();
                if queue.idle_count > 0 {
                    self.work_available.notify_one();
                }
                continue;
            }
            queue.idle_count += 1;
            queue = match sleep {
                None => self.work_available.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(soonest) => {
                    let waited = self.work_available.wait_timeout(queue, self.sleep_time(soonest));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            queue.idle_count -= 1;
        }
    }
}
