//! A thread that polls the transfers that no caller waits for. It sleeps while there are none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::request::{Completion, Outcome, Request};
use crate::transfer::{MatchOrder, Operation, poll};
use crate::world_inner::WorldInner;

/// How long to poll without progress before pausing, and the length of a pause: another rank may compute for seconds.
/// The limit is long because libraries move the bytes of a message during polls, and a long message takes time; its
/// chunks do not.
const SPIN_LIMIT: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_micros(20);

/// How often to poll the driver: a device that has failed reports it, and writes no more fences.
const DRIVER_POLL_PERIOD: Duration = Duration::from_millis(1);

/// Decides how a thread that polls transfers pauses between polls.
#[derive(Debug)]
pub(crate) struct PollBackoff {
    completed: u64,
    since: Instant,
    /// When the driver was last polled.
    last_driver_poll: Instant,
}

impl PollBackoff {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { completed: 0, since: now, last_driver_poll: now }
    }

    /// Yields the processor, perhaps to the other rank; sleeps briefly if nothing has completed for long. Returns
    /// whether it slept.
    pub(crate) fn back_off(&mut self, world: &WorldInner) -> bool {
        let (completed, now) = (world.library.completed(), Instant::now());
        if completed != self.completed {
            (self.completed, self.since) = (completed, now);
        }
        if now - self.last_driver_poll >= DRIVER_POLL_PERIOD {
            self.last_driver_poll = now;
            // Polling records the device's failure, which ends the work that waits for it.
            if let Err(error) = world.stager.poll_errors() {
                world.record_drop_error(error);
            }
        }
        let is_long = now - self.since >= SPIN_LIMIT;
        if is_long {
            thread::sleep(PAUSE)
        } else {
            thread::yield_now()
        }
        is_long
    }
}

#[derive(Debug)]
pub(crate) struct ProgressThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    world: Arc<WorldInner>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Submitted operations not yet posted: sends by rank, receives, collective calls.
    sends: Vec<AtomicUsize>,
    receives: AtomicUsize,
    collectives: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    new: Vec<Task>,
    is_closing: bool,
}

struct Task {
    operation: Box<dyn Operation>,
    completion: Arc<Completion>,
    is_posted: bool,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.operation.describe())
    }
}

impl ProgressThread {
    pub(crate) fn start(world: &Arc<WorldInner>) -> Result<Self> {
        let shared = Arc::new(Shared {
            world: world.clone(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            sends: (0..world.size).map(|_| AtomicUsize::new(0)).collect(),
            receives: AtomicUsize::new(0),
            collectives: AtomicUsize::new(0),
        });
        let run = {
            let shared = shared.clone();
            move || shared.run()
        };
        let thread = thread::Builder::new().name("freehold-mpi".into()).spawn(run);
        let thread = thread.map_err(|error| Error::SpawnThread { message: error.to_string().into() })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns whether no submitted operation must be posted before one of this order.
    #[inline]
    pub(crate) fn has_none_unposted(&self, order: MatchOrder) -> bool {
        self.shared.unposted_count(order).is_none_or(|unposted| unposted.load(Ordering::Acquire) == 0)
    }

    pub(crate) fn submit<R>(&self, work: Box<dyn Operation>) -> Request<R> {
        let (slot, is_posted) = (Completion::new(Outcome::Pending), work.is_posted());
        if let Some(unposted) = self.shared.unposted_count(work.order()).filter(|_| !is_posted) {
            unposted.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.queue().new.push(Task { operation: work, completion: slot.clone(), is_posted });
        self.shared.wake.notify_one();
        Request::new(slot, self.shared.world.clone())
    }

    /// Waits until all submitted operations are complete. Returns whether the thread was running.
    pub(crate) fn close(&mut self) -> bool {
        self.shared.queue().is_closing = true;
        self.shared.wake.notify_one();
        let Some(thread) = self.thread.take() else { return false };
        thread.join().expect("the progress thread does not panic");
        true
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unposted_count(&self, order: MatchOrder) -> Option<&AtomicUsize> {
        match order {
            MatchOrder::Send { to } => Some(&self.sends[to as usize]),
            MatchOrder::Receive { .. } => Some(&self.receives),
            MatchOrder::Collective => Some(&self.collectives),
            MatchOrder::Free => None,
        }
    }

    fn run(&self) {
        let mut tasks = Vec::new();
        let mut backoff = PollBackoff::new();
        while self.accept_new(&mut tasks, &mut backoff) {
            if !self.poll_all(&mut tasks) {
                backoff.back_off(&self.world);
            }
        }
    }

    /// Moves submitted operations to `tasks`, and sleeps while there are none. Returns `false` once the queue is closed
    /// and empty.
    fn accept_new(&self, tasks: &mut Vec<Task>, backoff: &mut PollBackoff) -> bool {
        let mut queue = self.queue();
        loop {
            if !queue.new.is_empty() {
                *backoff = PollBackoff::new();
            }
            tasks.append(&mut queue.new);
            if !tasks.is_empty() {
                return true;
            }
            if queue.is_closing {
                return false;
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Polls every task whose turn it is. Returns whether anything changed.
    fn poll_all(&self, tasks: &mut Vec<Task>) -> bool {
        let has_news = self.world.liveness.poll();
        let mut waiting: Vec<MatchOrder> = Vec::new();
        let mut has_changed = false;
        tasks.retain_mut(|task| {
            let order = task.operation.order();
            if !task.is_posted && waiting.iter().any(|&earlier| order.must_follow(earlier)) {
                waiting.push(order);
                return true;
            }
            let ended = poll(&mut *task.operation, &self.world, has_news);
            if !task.is_posted && (ended.is_some() || task.operation.is_posted()) {
                task.is_posted = true;
                has_changed = true;
                if let Some(unposted) = self.unposted_count(order) {
                    unposted.fetch_sub(1, Ordering::AcqRel);
                }
            }
            if !task.is_posted {
                waiting.push(order);
            }
            match ended {
                None => true,
                Some(ended) => {
                    has_changed = true;
                    task.completion.complete(ended, &self.world);
                    false
                }
            }
        });
        has_changed
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.close();
    }
}
