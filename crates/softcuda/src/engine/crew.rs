//! The threads that run kernels when each stream has a thread of its own: as many as the machine has processors, which
//! take turns with all kernels that run.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freehold_driver::cuda::CUerror;
use rustix::time::{ClockId, clock_gettime};

use super::kernel::{Find, Run};

#[derive(Debug)]
pub(super) struct Crew {
    /// A kernel that runs longer is ended.
    limit: Option<Duration>,
    rotation: Mutex<Rotation>,
    /// Tells a worker that there may be something to do.
    news: Condvar,
}

#[derive(Debug, Default)]
struct Rotation {
    /// The kernels that run; the first has the next turn.
    runs: VecDeque<Arc<Run>>,
    /// Those of a single block, each of which runs on the thread of its stream.
    alone: Vec<Arc<Run>>,
    workers: usize,
    /// Workers that wait for news.
    idle: usize,
    /// The fault after which no kernel begins.
    fault: Option<CUerror>,
}

impl Crew {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, rotation: Mutex::default(), news: Condvar::new() }
    }

    fn rotation(&self) -> MutexGuard<'_, Rotation> {
        self.rotation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device's time, the same in all processes.
    fn now(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    /// Runs a kernel to its end. One of a single block stays on the calling thread.
    pub(super) fn run(self: &Arc<Self>, run: &Arc<Run>) -> Result<(), CUerror> {
        let mut rotation = self.rotation();
        if let Some(fault) = rotation.fault {
            return Err(fault);
        }
        if !run.is_one_block() {
            self.hire(&mut rotation);
        }
        if run.is_one_block() || rotation.workers == 0 {
            rotation.alone.push(Arc::clone(run));
            drop(rotation);
            self.run_here(run);
            self.rotation().alone.retain(|other| !Arc::ptr_eq(other, run));
        } else {
            rotation.runs.push_back(Arc::clone(run));
            drop(rotation);
            self.news.notify_all();
        }
        run.wait()
    }

    /// Starts the workers, or as many as the system has threads for.
    fn hire(self: &Arc<Self>, rotation: &mut Rotation) {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from);
        while rotation.workers < wanted {
            let crew = Arc::clone(self);
            let thread = std::thread::Builder::new().name("freehold-kernel".to_owned());
            if thread.spawn(move || crew.work()).is_err() {
                return;
            }
            rotation.workers += 1;
        }
    }

    fn run_here(&self, run: &Run) {
        while run.outcome().is_none() {
            match run.find(self.now(), None) {
                Find::Block(block) => run.turn(*block, || self.now(), self.limit),
                Find::Sleep { until_nanoseconds } => std::thread::sleep(self.until(until_nanoseconds)),
                // A fault elsewhere has ended it just now: nobody else has a block of it.
                Find::Nothing => return,
            }
        }
    }

    fn until(&self, nanoseconds: u64) -> Duration {
        // Not longer than this at once, so that a fault elsewhere ends the wait.
        Duration::from_nanos(nanoseconds.saturating_sub(self.now())).min(Duration::from_millis(20))
    }

    /// Ends all kernels that run, and those to come.
    pub(super) fn fail(&self, fault: CUerror) {
        let mut rotation = self.rotation();
        rotation.fault.get_or_insert(fault);
        let (runs, alone) = (std::mem::take(&mut rotation.runs), std::mem::take(&mut rotation.alone));
        drop(rotation);
        for run in runs.into_iter().chain(alone) {
            run.end(Err(fault));
        }
    }

    /// The life of a worker.
    fn work(&self) {
        let mut rotation = self.rotation();
        loop {
            rotation.runs.retain(|run| run.outcome().is_none());
            let mut sleep = None;
            let mut found = None;
            for _ in 0..rotation.runs.len() {
                rotation.runs.rotate_left(1);
                let Some(run) = rotation.runs.back() else { break };
                match run.find(self.now(), None) {
                    Find::Block(block) => {
                        found = Some((Arc::clone(run), block));
                        break;
                    }
                    Find::Sleep { until_nanoseconds } => {
                        sleep = Some(sleep.map_or(until_nanoseconds, |soonest: u64| soonest.min(until_nanoseconds)));
                    }
                    Find::Nothing => {}
                }
            }
            if let Some((run, block)) = found {
                drop(rotation);
                run.turn(*block, || self.now(), self.limit);
                drop(run);
                rotation = self.rotation();
                if rotation.idle > 0 {
                    self.news.notify_one();
                }
                continue;
            }
            rotation.idle += 1;
            rotation = match sleep {
                None => self.news.wait(rotation).unwrap_or_else(PoisonError::into_inner),
                Some(soonest) => {
                    let waited = self.news.wait_timeout(rotation, self.until(soonest));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            rotation.idle -= 1;
        }
    }
}
