//! The queue of one stream: its work in order, and its progress.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use freehold_check::{Effect, Epoch, QueueId, Submission, TaskView};

use super::work::Work;
use crate::base::sync::lock;
use crate::base::{check, host_watch, shared_frees};

/// A vector clock: for each queue, the last fence that work is known to come after.
#[derive(Debug, Clone, Default)]
pub(crate) struct VectorClock {
    /// By the id of the queue.
    seqs: BTreeMap<u64, (Weak<Queue>, u64)>,
}

/// A clock with more queues than this drops those that are finished.
const CLOCK_QUEUES_MAX: usize = 64;

impl VectorClock {
    /// Returns whether the clock contains the fence or a later one of its queue.
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

/// A position in a queue.
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

    pub(crate) fn epoch(&self) -> Epoch {
        self.queue.epoch(self.seq)
    }
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) seq: u64,
    /// Fences that must complete before the work starts.
    pub(super) dependencies: Vec<Fence>,
    pub(super) work: Work,
    /// What the checker knows of it.
    pub(super) checked: Option<Box<CheckedOp>>,
}

/// Work that is checked.
#[derive(Debug)]
pub(super) struct CheckedOp {
    pub(super) submission: Submission,
    pub(super) place: Option<check::Place>,
    /// Once it has begun.
    pub(super) view: Option<TaskView>,
}

#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) ops: VecDeque<Op>,
    /// Whether no more work will be added.
    pub(super) is_closed: bool,
    /// Whether the queue has a thread.
    pub(super) has_thread: bool,
}

/// The work of one stream. Its lock is held to add or to take a piece of work, never while work runs.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Unique within the process.
    pub(crate) id: u64,
    /// Whether the stream and the legacy default stream wait for each other.
    pub(crate) is_blocking: bool,
    state: Mutex<QueueState>,
    /// Signals the queue's thread that work was added, or that the queue was closed.
    pub(super) work_added: Condvar,
    /// The seq of the last work added.
    last_submitted: AtomicU64,
    /// The seq of the last work completed.
    last_completed: AtomicU64,
    /// The last seq whose completion the program has observed.
    last_observed: AtomicU64,
    /// Number of threads that wait in `wait`.
    waiters: AtomicUsize,
    wait_lock: Mutex<()>,
    completion: Condvar,
    /// What the next work of this queue is known to come after, from the event waits so far.
    clock: Mutex<Arc<VectorClock>>,
}

impl Drop for Queue {
    /// No fence names it any more, so no work waits for it.
    fn drop(&mut self) {
        check::end_queue(self.epoch(self.last_seq()));
    }
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

    /// Returns the seq of the last work added.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_submitted.load(Ordering::Acquire)
    }

    pub(crate) fn is_complete(&self, seq: u64) -> bool {
        self.last_completed.load(Ordering::Acquire) >= seq
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.is_complete(self.last_seq())
    }

    /// Records that the program knows that `seq` has completed: everything it submits from now on comes after that.
    pub(crate) fn mark_observed(&self, seq: u64) {
        if self.last_observed.fetch_max(seq, Ordering::AcqRel) < seq
            && let Some(checker) = check::checker()
        {
            checker.observe(self.epoch(seq));
            host_watch::open_unused_pages();
        }
    }

    /// Records for the checker that the program may know that `seq` has completed, without having waited for it.
    pub(super) fn mark_known(&self, seq: u64) {
        if let Some(checker) = check::checker() {
            checker.observe(self.epoch(seq));
            host_watch::open_unused_pages();
        }
    }

    pub(crate) fn is_observed(&self, seq: u64) -> bool {
        self.last_observed.load(Ordering::Acquire) >= seq
    }

    /// Returns whether nothing is pending that other work would have to wait for. If the process is checked, the program has to
    /// know it: work that happened to be done early is not ordered.
    pub(crate) fn is_known_idle(&self) -> bool {
        let last = self.last_seq();
        self.is_complete(last) && (!check::is_on() || self.is_observed(last))
    }

    /// Tells the checker that the program creates the stream of this queue, or its name if it does not.
    pub(crate) fn name_checked(&self, name: Option<&str>) {
        if let Some(checker) = check::checker() {
            match name {
                None => checker.create_stream(QueueId(self.id)),
                Some(name) => checker.name_stream(QueueId(self.id), name),
            }
        }
    }

    pub(crate) fn epoch(&self, seq: u64) -> Epoch {
        Epoch { queue: QueueId(self.id), seq }
    }

    /// Returns whether the queue is empty and closed.
    pub(crate) fn is_finished(&self) -> bool {
        self.state().is_closed && self.is_idle()
    }

    /// Adds work and returns its seq. The caller holds the state's lock.
    pub(super) fn push(&self, state: &mut QueueState, after: Vec<Fence>, work: Work) -> u64 {
        let seq = self.last_submitted.load(Ordering::Relaxed) + 1;
        let checked = check::checker().map(|checker| {
            if let Work::Kernel(run) = &work {
                checker.use_module(run.module(), self.epoch(seq));
            }
            let submission = if work.is_of_program() {
                checker.submit(check::function(), work.checked_launch())
            } else {
                checker.submit_unnamed()
            };
            let place = check::take_place();
            let epoch = place.as_ref().and_then(|place| place.epoch).unwrap_or(self.epoch(seq));
            work.expect_uses(epoch);
            match &work {
                Work::HostCall(call) if call.is_task() => {}
                Work::HostCall(_) | Work::WriteValue { .. } | Work::Internal(_) => shared_frees::publish(epoch),
                _ => {}
            }
            if let Work::Note(notes) = &work {
                let allocations = notes.iter().filter(|note| note.kind == Effect::Allocate);
                allocations.for_each(|note| checker.grant(&submission, epoch, note.address, note.bytes));
            }
            Box::new(CheckedOp { submission, place, view: None })
        });
        state.ops.push_back(Op { seq, dependencies: after, work, checked });
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

    /// Blocks until the work at `seq` is done.
    pub(super) fn wait(&self, seq: u64) {
        if self.is_complete(seq) {
            return;
        }
        // The count is raised before the check here, and `complete` reads it after its store: one of the two sees the
        // other.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut wait_lock = lock(&self.wait_lock);
        while self.last_completed.load(Ordering::SeqCst) < seq {
            wait_lock = self.completion.wait(wait_lock).unwrap_or_else(PoisonError::into_inner);
        }
        drop(wait_lock);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Closes the queue to new work. Pending work still runs.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.work_added.notify_one();
    }

    /// Returns what work added now is known to come after.
    pub(crate) fn clock(&self) -> Arc<VectorClock> {
        Arc::clone(&lock(&self.clock))
    }

    /// Records that work added from now on comes after `fence`, and after everything in that fence's clock.
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
