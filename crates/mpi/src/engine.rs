//! The engine: a thread that goes on with the transfers nobody waits for. Asleep while there are none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::ranks::Ranks;
use crate::request::{Outcome, Request, Slot};
use crate::transfer::{Order, Work, step};

/// How long it asks in vain before it pauses, and for how long: the wait may be for another rank that works for seconds. Libraries move
/// the bytes of a message while they are asked, and a message takes long; its chunks do not.
const PATIENCE: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_micros(20);

/// How often the driver is asked meanwhile: a device that has failed says so, and writes no words any more.
const PERIOD: Duration = Duration::from_millis(1);

/// Who asks again and again whether transfers go on.
#[derive(Debug)]
pub(crate) struct Asking {
    completed: u64,
    since: Instant,
    /// When the driver was asked.
    asked: Instant,
}

impl Asking {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { completed: 0, since: now, asked: now }
    }

    /// Lets others have the processor, the other rank perhaps; for a while, where nothing has come for long. Whether that is so.
    pub(crate) fn rest(&mut self, ranks: &Ranks) -> bool {
        let (completed, now) = (ranks.library.completed(), Instant::now());
        if completed != self.completed {
            (self.completed, self.since) = (completed, now);
        }
        if now - self.asked >= PERIOD {
            self.asked = now;
            // Work that waits for a device that has failed hears of it.
            if let Err(error) = ranks.copies.ask() {
                ranks.trouble(error);
            }
        }
        let is_long = now - self.since >= PATIENCE;
        if is_long {
            thread::sleep(PAUSE)
        } else {
            thread::yield_now()
        }
        is_long
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    ranks: Arc<Ranks>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Of what was given to the thread, how much is not posted yet: to each rank, from any, of all.
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
    work: Box<dyn Work>,
    slot: Arc<Slot>,
    is_posted: bool,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.work.title())
    }
}

impl Engine {
    pub(crate) fn start(ranks: &Arc<Ranks>) -> Result<Self> {
        let shared = Arc::new(Shared {
            ranks: ranks.clone(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            sends: (0..ranks.size).map(|_| AtomicUsize::new(0)).collect(),
            receives: AtomicUsize::new(0),
            collectives: AtomicUsize::new(0),
        });
        let run = {
            let shared = shared.clone();
            move || shared.run()
        };
        let thread = thread::Builder::new().name("freehold-mpi".into()).spawn(run);
        let thread = thread.map_err(|error| Error::NoThread { said: error.to_string().into() })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether nothing that was given to the thread is to be posted before work of this order.
    #[inline]
    pub(crate) fn is_clear(&self, order: Order) -> bool {
        self.shared.unposted(order).is_none_or(|unposted| unposted.load(Ordering::Acquire) == 0)
    }

    pub(crate) fn submit<R>(&self, work: Box<dyn Work>) -> Request<R> {
        let (slot, is_posted) = (Slot::new(Outcome::Pending), work.is_posted());
        if let Some(unposted) = self.shared.unposted(work.order()).filter(|_| !is_posted) {
            unposted.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.queue().new.push(Task { work, slot: slot.clone(), is_posted });
        self.shared.wake.notify_one();
        Request::new(slot, self.shared.ranks.clone())
    }

    /// Waits until all that was given to the thread is over. Whether it was open.
    pub(crate) fn close(&mut self) -> bool {
        self.shared.queue().is_closing = true;
        self.shared.wake.notify_one();
        let Some(thread) = self.thread.take() else { return false };
        thread.join().expect("the thread for transfers does not panic");
        true
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unposted(&self, order: Order) -> Option<&AtomicUsize> {
        match order {
            Order::Send { to } => Some(&self.sends[to as usize]),
            Order::Receive { .. } => Some(&self.receives),
            Order::Collective => Some(&self.collectives),
            Order::Free => None,
        }
    }

    fn run(&self) {
        let mut tasks = Vec::new();
        let mut asking = Asking::new();
        while self.take_new(&mut tasks, &mut asking) {
            if !self.round(&mut tasks) {
                asking.rest(&self.ranks);
            }
        }
    }

    /// Takes what was submitted, and waits for some where there is nothing to do. Not, if no more comes.
    fn take_new(&self, tasks: &mut Vec<Task>, asking: &mut Asking) -> bool {
        let mut queue = self.queue();
        loop {
            if !queue.new.is_empty() {
                *asking = Asking::new();
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

    /// Goes on with each task that may. Whether anything happened.
    fn round(&self, tasks: &mut Vec<Task>) -> bool {
        let has_news = self.ranks.watch.ask();
        let mut waiting: Vec<Order> = Vec::new();
        let mut has_changed = false;
        tasks.retain_mut(|task| {
            let order = task.work.order();
            if !task.is_posted && waiting.iter().any(|&earlier| order.is_behind(earlier)) {
                waiting.push(order);
                return true;
            }
            let ended = step(&mut *task.work, &self.ranks, has_news);
            if !task.is_posted && (ended.is_some() || task.work.is_posted()) {
                task.is_posted = true;
                has_changed = true;
                if let Some(unposted) = self.unposted(order) {
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
                    task.slot.end(ended, &self.ranks);
                    false
                }
            }
        });
        has_changed
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
