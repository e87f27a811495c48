//! The work of one stream in its order, and how far it has come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::work::Work;
use crate::base::sync::lock;

/// What work is known to come after: for each queue the last of its fences.
#[derive(Debug, Clone, Default)]
pub(crate) struct VectorClock {
    /// By the number of the queue.
    seqs: BTreeMap<u64, (Weak<Queue>, u64)>,
}

/// With more queues than this a clock forgets those that are over.
const CLOCK_QUEUES_MAX: usize = 64;

impl VectorClock {
    /// Whether the fence, or a later one of its queue, is known.
    pub(crate) fn includes(&self, fence: &Fence) -> bool {
        self.seqs.get(&fence.queue.id).is_some_and(|&(_, seq)| seq >= fence.seq)
    }

    fn advance(&mut self, id: u64, queue: Weak<Queue>, seq: u64) {
        let (_, reached) = self.seqs.entry(id).or_insert((queue, 0));
        *reached = seq.max(*reached);
    }

    fn prune_finished(&mut self) {
        if self.seqs.len() > CLOCK_QUEUES_MAX {
            self.seqs.retain(|_, (queue, _)| queue.upgrade().is_some_and(|queue| !queue.is_finished()));
        }
    }
}

/// A fence in a queue.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    pub(crate) queue: Arc<Queue>,
    /// Counted from 1; every piece of work has its own.
    pub(crate) seq: u64,
}

impl Fence {
    pub(crate) fn is_complete(&self) -> bool {
        self.queue.is_complete(self.seq)
    }
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) seq: u64,
    /// What must have passed before the work starts.
    pub(super) dependencies: Vec<Fence>,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) ops: VecDeque<Op>,
    /// No work will come any more.
    pub(super) is_closed: bool,
    /// A thread of this queue's own exists.
    pub(super) has_thread: bool,
}

/// The work of one stream. Its lock is held to add or to take a piece of work, never while one is carried out.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Never the same for two queues of one process.
    pub(crate) id: u64,
    /// Whether the legacy default stream waits for this one, and it for that.
    pub(crate) is_blocking: bool,
    state: Mutex<QueueState>,
    /// Tells the worker that there is work, or that there will be none.
    pub(super) work_added: Condvar,
    /// The seq of the last work added.
    last_submitted: AtomicU64,
    /// The seq of the last work completed.
    last_completed: AtomicU64,
    /// The last seq that the program itself has seen pass.
    last_observed: AtomicU64,
    /// Threads that wait in `wait`.
    waiters: AtomicUsize,
    wait_lock: Mutex<()>,
    completion: Condvar,
    /// What the next work of this queue is known to come after, from the waits for events so far.
    clock: Mutex<Arc<VectorClock>>,
}

impl Queue {
    pub(super) fn new(id: u64, is_blocking: bool) -> Self {
        Self {
            id,
            is_blocking,
            state: Mutex::new(QueueState { ops: VecDeque::new(), is_closed: false, has_thread: false }),
            work_added: Condvar::new(),
            last_submitted: AtomicU64::new(0),
            last_completed: AtomicU64::new(0),
            last_observed: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            wait_lock: Mutex::new(()),
            completion: Condvar::new(),
            clock: Mutex::new(Arc::default()),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }

    /// The seq of the last work added so far.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_submitted.load(Ordering::Acquire)
    }

    pub(crate) fn is_complete(&self, seq: u64) -> bool {
        self.last_completed.load(Ordering::Acquire) >= seq
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.is_complete(self.last_seq())
    }

    /// Notes that the program was told that `seq` has passed: whatever it asks for next comes after that.
    pub(crate) fn mark_observed(&self, seq: u64) {
        self.last_observed.fetch_max(seq, Ordering::AcqRel);
    }

    pub(crate) fn is_observed(&self, seq: u64) -> bool {
        self.last_observed.load(Ordering::Acquire) >= seq
    }

    /// Whether nothing is left to do and nothing will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.state().is_closed && self.is_idle()
    }

    /// Adds work and says at which seq. The caller holds the state.
    pub(super) fn push(&self, state: &mut QueueState, after: Vec<Fence>, work: Work) -> u64 {
        let seq = self.last_submitted.load(Ordering::Relaxed) + 1;
        state.ops.push_back(Op { seq, dependencies: after, work });
        self.last_submitted.store(seq, Ordering::Release);
        seq
    }

    /// Marks the work at `seq` as done, and wakes its waiters.
    pub(super) fn complete(&self, seq: u64) {
        self.last_completed.store(seq, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _wait_lock = lock(&self.wait_lock);
            self.completion.notify_all();
        }
    }

    /// Sleeps until the work at `seq` is done.
    pub(super) fn wait(&self, seq: u64) {
        if self.is_complete(seq) {
            return;
        }
        // The count goes up before the look and `complete` looks at it after its store: one of the two sees the other.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut wait_lock = lock(&self.wait_lock);
        while self.last_completed.load(Ordering::SeqCst) < seq {
            wait_lock = self.completion.wait(wait_lock).unwrap_or_else(PoisonError::into_inner);
        }
        drop(wait_lock);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says that no more work will come. What is pending is still carried out.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.work_added.notify_one();
    }

    /// What work added now is known to come after.
    pub(crate) fn clock(&self) -> Arc<VectorClock> {
        Arc::clone(&lock(&self.clock))
    }

    /// Notes that work added from now on comes after `fence`, and after what was known there.
    pub(crate) fn order_after(&self, fence: &Fence, clock_there: &VectorClock) {
        let mut shared = lock(&self.clock);
        let clock = Arc::make_mut(&mut shared);
        for (&id, (queue, seq)) in &clock_there.seqs {
            clock.advance(id, queue.clone(), *seq);
        }
        clock.advance(fence.queue.id, Arc::downgrade(&fence.queue), fence.seq);
        clock.prune_finished();
    }
}
