//! The work of one stream in its order, and how far it has come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::work::Work;

/// What work is known to come after: for each queue the last of its points.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    /// By the number of the queue.
    points: BTreeMap<u64, (Weak<Queue>, u64)>,
}

/// With more queues than this a clock forgets those that are over.
const CLOCK_QUEUES_MAX: usize = 64;

impl Clock {
    /// Whether the point, or a later one of its queue, is known.
    pub(crate) fn reaches(&self, point: &Point) -> bool {
        self.points.get(&point.queue.id).is_some_and(|&(_, position)| position >= point.position)
    }

    fn advance(&mut self, id: u64, queue: Weak<Queue>, position: u64) {
        let (_, reached) = self.points.entry(id).or_insert((queue, 0));
        *reached = position.max(*reached);
    }

    fn forget_the_ended(&mut self) {
        if self.points.len() > CLOCK_QUEUES_MAX {
            self.points.retain(|_, (queue, _)| queue.upgrade().is_some_and(|queue| !queue.is_over()));
        }
    }
}

/// A point in a queue.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) queue: Arc<Queue>,
    /// Counted from 1; every piece of work has its own.
    pub(crate) position: u64,
}

impl Point {
    pub(crate) fn has_passed(&self) -> bool {
        self.queue.has_passed(self.position)
    }
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) position: u64,
    /// What must have passed before the work starts.
    pub(super) after: Vec<Point>,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) ops: VecDeque<Op>,
    /// No work will come any more.
    pub(super) closed: bool,
    /// A thread of this queue's own exists.
    pub(super) has_worker: bool,
}

/// The work of one stream. Its lock is held to add or to take a piece of work, never while one is carried out.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Never the same for two queues of one process.
    pub(crate) id: u64,
    /// Whether the legacy default stream waits for this one, and it for that.
    pub(crate) blocking: bool,
    line: Mutex<Line>,
    /// Tells the worker that there is work, or that there will be none.
    pub(super) more: Condvar,
    /// The position of the last work added.
    added: AtomicU64,
    /// The position of the last work completed.
    completed: AtomicU64,
    /// The last position that the program itself has seen pass.
    seen: AtomicU64,
    /// Threads that wait in `sleep_until`.
    waiting: AtomicUsize,
    turnstile: Mutex<()>,
    passed: Condvar,
    /// What the next work of this queue is known to come after, from the waits for events so far.
    known: Mutex<Arc<Clock>>,
}

impl Queue {
    pub(super) fn new(id: u64, blocking: bool) -> Self {
        Self {
            id,
            blocking,
            line: Mutex::new(Line { ops: VecDeque::new(), closed: false, has_worker: false }),
            more: Condvar::new(),
            added: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            turnstile: Mutex::new(()),
            passed: Condvar::new(),
            known: Mutex::new(Arc::default()),
        }
    }

    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The position of the last work added so far.
    pub(crate) fn end(&self) -> u64 {
        self.added.load(Ordering::Acquire)
    }

    pub(crate) fn has_passed(&self, position: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= position
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.has_passed(self.end())
    }

    /// Notes that the program was told that `position` has passed: whatever it asks for next comes after that.
    pub(crate) fn show(&self, position: u64) {
        self.seen.fetch_max(position, Ordering::AcqRel);
    }

    pub(crate) fn is_seen(&self, position: u64) -> bool {
        self.seen.load(Ordering::Acquire) >= position
    }

    /// Whether nothing is left to do and nothing will come.
    pub(crate) fn is_over(&self) -> bool {
        self.line().closed && self.is_idle()
    }

    /// Adds work and says at which position. The caller holds the line.
    pub(super) fn push(&self, line: &mut Line, after: Vec<Point>, work: Work) -> u64 {
        let position = self.added.load(Ordering::Relaxed) + 1;
        line.ops.push_back(Op { position, after, work });
        self.added.store(position, Ordering::Release);
        position
    }

    /// Marks the work at `position` as done, and wakes who waits for it.
    pub(super) fn complete(&self, position: u64) {
        self.completed.store(position, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _turnstile = self.turnstile.lock().unwrap_or_else(PoisonError::into_inner);
            self.passed.notify_all();
        }
    }

    /// Sleeps until the work at `position` is done.
    pub(super) fn sleep_until(&self, position: u64) {
        if self.has_passed(position) {
            return;
        }
        // The count goes up before the look and `complete` looks at it after its store: one of the two sees the other.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut turnstile = self.turnstile.lock().unwrap_or_else(PoisonError::into_inner);
        while self.completed.load(Ordering::SeqCst) < position {
            turnstile = self.passed.wait(turnstile).unwrap_or_else(PoisonError::into_inner);
        }
        drop(turnstile);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says that no more work will come. What is pending is still carried out.
    pub(crate) fn close(&self) {
        self.line().closed = true;
        self.more.notify_one();
    }

    /// What work added now is known to come after.
    pub(crate) fn known(&self) -> Arc<Clock> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that work added from now on comes after `point`, and after what was known there.
    pub(crate) fn learn(&self, point: &Point, known_there: &Clock) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = Arc::make_mut(&mut known);
        for (&id, (queue, position)) in &known_there.points {
            clock.advance(id, queue.clone(), *position);
        }
        clock.advance(point.queue.id, Arc::downgrade(&point.queue), point.position);
        clock.forget_the_ended();
    }
}
