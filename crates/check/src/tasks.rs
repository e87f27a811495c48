//! Tasks: pieces of work of streams and of the host, and their happens-before order.
//!
//! A task begins when the work that it depends on has completed. Its clock is the clock of its queue, joined with the clocks of
//! its dependencies, and with what the host had waited for when it submitted the task.

mod begun;
mod order;
mod task;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::clock::{Clock, Epoch, QueueId, join_shared};
use crate::origin::{Origin, Origins};
use begun::{Begun, NamedTasks};
use order::Order;
pub(crate) use task::Task;
pub use task::TaskId;

/// Work that the host has submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The number of the call, in the order of the program.
    number: u64,
    origin: Arc<Origin>,
    /// What the host had waited for.
    host: Arc<Clock>,
}

impl Submission {
    /// Returns what the task at an epoch will be.
    pub(crate) fn task(&self, epoch: Epoch) -> Task {
        Task { epoch, submitted: self.number, origin: Arc::clone(&self.origin) }
    }
}

/// A task and what happens before it, for the accesses that it makes.
#[derive(Clone, Debug)]
pub struct TaskView {
    pub(crate) id: TaskId,
    epoch: Epoch,
    /// Without the queue of the task, whose earlier work happens before it.
    clock: Arc<Clock>,
    /// Of the captures of its graph: the memory that they were handed out is never free for it.
    pub(crate) groups: Option<Arc<[u64]>>,
}

impl TaskView {
    fn is_after(&self, epoch: Epoch) -> bool {
        let is_same_queue = epoch.queue == self.epoch.queue;
        is_same_queue && epoch.seq <= self.epoch.seq || self.clock.includes(epoch)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tasks {
    begun: RwLock<Begun>,
    /// Whether it is worth looking which tasks are still named.
    is_full: AtomicBool,
    order: Mutex<Order>,
    /// Whether queues are forgotten.
    has_forgotten: AtomicBool,
    origins: Mutex<Origins>,
    /// The tasks that gave blocks of captures back to their pools, and the group of each.
    kept: RwLock<HashMap<TaskId, u64>>,
}

impl Tasks {
    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&self, origin: Origin) -> Arc<Origin> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner).share(origin)
    }

    /// Notes that the host submits work.
    pub(crate) fn submit(&self, origin: Origin) -> Submission {
        let origin = self.share(origin);
        let mut order = self.order();
        order.calls += 1;
        Submission { number: order.calls, origin, host: order.host.clone() }
    }

    /// Begins a task, whose dependencies have completed.
    pub(crate) fn begin(&self, epoch: Epoch, dependencies: &[Epoch], submission: &Submission) -> TaskView {
        let mut order = self.order();
        let mut clock = order.clock_of(epoch.queue);
        join_shared(&mut clock, &submission.host);
        for &dependency in dependencies {
            order.join_epoch(&mut clock, dependency);
        }
        order.set_clock(epoch, clock.clone());
        drop(order);
        self.add(submission.task(epoch), clock)
    }

    /// Begins a task of the host: accesses during a call.
    pub(crate) fn begin_on_host(&self, origin: Origin) -> TaskView {
        let origin = self.share(origin);
        let mut order = self.order();
        order.calls += 1;
        let submitted = order.calls;
        let (epoch, clock) = order.begin_on_host();
        drop(order);
        self.add(Task { epoch, submitted, origin }, clock)
    }

    /// Begins a part of a task, which has another origin: an instruction of a function that runs in a stream.
    pub(crate) fn begin_within(&self, view: &TaskView, origin: Origin) -> TaskView {
        let Task { epoch, submitted, .. } = self.get(view.id);
        let within = self.add(Task { epoch, submitted, origin: self.share(origin) }, view.clock.clone());
        TaskView { groups: view.groups.clone(), ..within }
    }

    fn add(&self, task: Task, clock: Arc<Clock>) -> TaskView {
        let mut begun = self.begun.write().unwrap_or_else(PoisonError::into_inner);
        let epoch = task.epoch;
        let id = begun.add(task);
        if begun.is_full() {
            self.is_full.store(true, Ordering::Relaxed);
        }
        TaskView { id, epoch, clock, groups: None }
    }

    /// Notes that the host knows that work has completed.
    pub(crate) fn observe(&self, epoch: Epoch) {
        self.order().observe(epoch);
    }

    /// Returns whether the host knows that work has completed.
    pub(crate) fn is_observed(&self, epoch: Epoch) -> bool {
        self.order().is_observed(epoch)
    }

    /// Notes that no work comes after `last` in its queue. Returns whether ended queues are to be forgotten, if the host has waited for
    /// their work.
    pub(crate) fn end(&self, last: Epoch) -> bool {
        self.order().end(last)
    }

    /// Forgets ended queues whose work the host has waited for: it happens before everything. Returns them.
    pub(crate) fn forget_ended(&self) -> Vec<QueueId> {
        let mut order = self.order();
        let forgotten = order.forget_ended();
        if !forgotten.is_empty() {
            self.has_forgotten.store(true, Ordering::Relaxed);
        }
        forgotten
    }

    /// Notes that a running task knows that another one has reached an epoch.
    pub(crate) fn acquire(&self, view: &mut TaskView, from: Epoch) {
        let mut order = self.order();
        order.join_epoch(&mut view.clock, from);
        if view.epoch.queue != QueueId::HOST {
            order.set_clock(view.epoch, view.clock.clone());
        }
    }

    fn begun(&self) -> RwLockReadGuard<'_, Begun> {
        self.begun.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: TaskId) -> Task {
        self.begun().get(id).cloned().unwrap_or_else(Task::dropped)
    }

    /// Returns whether the program submitted a task after another.
    pub(crate) fn is_submitted_after(&self, id: TaskId, view: &TaskView) -> bool {
        let begun = self.begun();
        let submitted = |id| begun.get(id).map(|task| task.submitted);
        submitted(id) > submitted(view.id)
    }

    /// Returns whether the program submitted a task before another.
    pub(crate) fn is_submitted_before(&self, id: TaskId, view: &TaskView) -> bool {
        let begun = self.begun();
        let submitted = |id| begun.get(id).map(|task| task.submitted);
        submitted(id) < submitted(view.id)
    }

    /// Returns whether it is worth looking which tasks are still named.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Starts to look which tasks are still named. [`Self::drop_others`] follows, before the next start.
    pub(crate) fn look_for_names(&self) -> NamedTasks {
        let begun = self.begun();
        let order = self.order();
        begun.start(|task| order.is_over(task.epoch))
    }

    /// Drops the tasks that are not named. It is looked again when there are more than `least` others.
    pub(crate) fn drop_others(&self, named: &NamedTasks, least: usize) {
        let mut begun = self.begun.write().unwrap_or_else(PoisonError::into_inner);
        begun.retain(named, least);
        self.is_full.store(begun.is_full(), Ordering::Relaxed);
        drop(begun);
        self.kept.write().unwrap_or_else(PoisonError::into_inner).retain(|task, _| named.contains(*task));
    }

    /// Lets it be worth to look which tasks are named when there are `limit`.
    #[cfg(test)]
    pub(crate) fn set_limit(&self, limit: usize) {
        self.begun.write().unwrap_or_else(PoisonError::into_inner).set_limit(limit);
    }

    /// Returns how many tasks are kept, and how many give blocks of captures back.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.begun().len(), self.kept.read().unwrap_or_else(PoisonError::into_inner).len())
    }

    /// Returns the queues of all tasks.
    pub(crate) fn queues(&self) -> HashSet<QueueId> {
        self.begun().all().map(|task| task.epoch.queue).collect()
    }

    /// Notes that a task gives a block of captures back to its pool.
    pub(crate) fn keep(&self, id: TaskId, group: u64) {
        self.kept.write().unwrap_or_else(PoisonError::into_inner).insert(id, group);
    }

    /// Returns whether a task gives a block back that is kept for the captures of a view's graph.
    fn is_kept(&self, id: TaskId, view: &TaskView) -> bool {
        let Some(groups) = &view.groups else { return false };
        self.kept.read().unwrap_or_else(PoisonError::into_inner).get(&id).is_some_and(|group| groups.contains(group))
    }

    /// Returns whether a task happens before another, or is the same. What gives a block back that is kept for a graph happens for no
    /// launch of it.
    pub(crate) fn is_before(&self, id: TaskId, view: &TaskView) -> bool {
        if self.is_kept(id, view) {
            return false;
        }
        let Some(epoch) = self.begun().get(id).map(|task| task.epoch) else { return true };
        view.is_after(epoch) || self.has_forgotten.load(Ordering::Relaxed) && self.order().is_forgotten(epoch.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: QueueId = QueueId(1);
    const B: QueueId = QueueId(2);

    fn origin() -> Origin {
        Origin { function: "call", launch: None, site: None, elsewhere: None }
    }

    fn begin(tasks: &Tasks, queue: QueueId, seq: u64, dependencies: &[Epoch]) -> TaskView {
        let submission = tasks.submit(origin());
        tasks.begin(Epoch { queue, seq }, dependencies, &submission)
    }

    /// Creates streams, submits work to each and waits for it, and ends them. One stream in eight waits for the one before.
    fn use_many_streams(tasks: &Tasks, count: u64) -> Vec<TaskView> {
        let mut views = Vec::new();
        for queue in 10..10 + count {
            let after = (queue % 8 == 0).then_some(Epoch { queue: QueueId(queue - 1), seq: 2 });
            begin(tasks, QueueId(queue), 1, after.as_slice());
            views.push(begin(tasks, QueueId(queue), 2, &[]));
            let last = Epoch { queue: QueueId(queue), seq: 2 };
            tasks.observe(last);
            if tasks.end(last) {
                tasks.forget_ended();
            }
        }
        views
    }

    #[test]
    fn streams_that_were_waited_for_and_destroyed_leave_nothing_behind() {
        let tasks = Tasks::default();
        begin(&tasks, A, 1, &[]);
        use_many_streams(&tasks, 20_000);
        for seq in 2..2000 {
            begin(&tasks, A, seq, &[]);
            tasks.observe(Epoch { queue: A, seq });
        }
        // A few hundred streams, with clocks of a few hundred entries for those that have waited for others.
        let (queues, entries) = tasks.order().sizes();
        assert!(queues < 300 && entries < 300 * 300, "{queues} {entries}");
    }

    #[test]
    fn work_of_forgotten_streams_happens_before_what_is_submitted_then() {
        let tasks = Tasks::default();
        let pending = begin(&tasks, A, 1, &[]);
        let views = use_many_streams(&tasks, 1000);
        let later = begin(&tasks, B, 1, &[]);
        assert!(views.iter().all(|view| tasks.is_before(view.id, &later)));
        assert!(!tasks.is_before(pending.id, &later));
        assert!(!tasks.is_before(later.id, &begin(&tasks, A, 2, &[])));
    }

    #[test]
    fn streams_are_kept_until_the_host_has_waited_for_their_work() {
        let tasks = Tasks::default();
        let early = tasks.submit(origin());
        let views: Vec<_> = (10..1000).map(|queue| begin(&tasks, QueueId(queue), 1, &[])).collect();
        let last = |view: &TaskView| view.epoch;
        let may_forget = |view: &TaskView| tasks.end(last(view)) && !tasks.forget_ended().is_empty();
        assert!(!views.iter().any(may_forget));
        // Of those that the host waits for, the last to end stay: work that was submitted before may still run.
        views.iter().for_each(|view| tasks.observe(last(view)));
        assert_eq!(tasks.forget_ended().len(), views.len() - 64);
        let early = tasks.begin(Epoch { queue: A, seq: 1 }, &[], &early);
        let is_before = |view: &&TaskView| tasks.is_before(view.id, &early);
        assert_eq!(views.iter().filter(is_before).count(), views.len() - 64);
    }

    #[test]
    fn an_event_is_recorded_where_it_was_when_its_stream_has_waited_for_much_since() {
        let tasks = Tasks::default();
        for seq in 1..10_000 {
            begin(&tasks, B, seq, &[]);
            begin(&tasks, A, seq, &[Epoch { queue: B, seq }]);
            if seq < 5000 {
                tasks.observe(Epoch { queue: A, seq });
            }
        }
        let waiting = begin(&tasks, QueueId(3), 1, &[Epoch { queue: A, seq: 9000 }]);
        assert!(waiting.is_after(Epoch { queue: B, seq: 9000 }) && !waiting.is_after(Epoch { queue: B, seq: 9001 }));
        let (_, entries) = tasks.order().sizes();
        // Each of them has two or three entries.
        assert!(entries < 4 * 4200, "{entries}");
    }

    #[test]
    fn work_of_one_stream_is_in_order_and_of_two_streams_is_not() {
        let tasks = Tasks::default();
        let (first, second, other) = (begin(&tasks, A, 1, &[]), begin(&tasks, A, 2, &[]), begin(&tasks, B, 1, &[]));
        assert!(tasks.is_before(first.id, &second));
        assert!(!tasks.is_before(second.id, &first));
        assert!(!tasks.is_before(first.id, &other));
    }

    #[test]
    fn an_event_orders_the_work_before_it_and_not_the_work_after() {
        let tasks = Tasks::default();
        let (before, after) = (begin(&tasks, A, 1, &[]), begin(&tasks, A, 2, &[]));
        let waiting = begin(&tasks, B, 1, &[Epoch { queue: A, seq: 1 }]);
        assert!(tasks.is_before(before.id, &waiting));
        assert!(!tasks.is_before(after.id, &waiting));
        // The next work of the stream has waited, too.
        assert!(tasks.is_before(before.id, &begin(&tasks, B, 2, &[])));
    }

    #[test]
    fn an_event_orders_what_its_stream_had_waited_for_then() {
        let tasks = Tasks::default();
        let (first, third) = (QueueId(3), QueueId(4));
        let (early, late) = (begin(&tasks, first, 1, &[]), begin(&tasks, first, 2, &[]));
        begin(&tasks, A, 1, &[Epoch { queue: first, seq: 1 }]);
        begin(&tasks, A, 2, &[Epoch { queue: first, seq: 2 }]);
        let waiting = begin(&tasks, third, 1, &[Epoch { queue: A, seq: 1 }]);
        assert!(tasks.is_before(early.id, &waiting));
        assert!(!tasks.is_before(late.id, &waiting));
    }

    #[test]
    fn what_the_host_has_waited_for_comes_before_what_it_submits_then() {
        let tasks = Tasks::default();
        let work = begin(&tasks, A, 1, &[]);
        let submitted_before = tasks.submit(origin());
        tasks.observe(Epoch { queue: A, seq: 1 });
        let submitted_after = begin(&tasks, B, 1, &[]);
        assert!(tasks.is_before(work.id, &submitted_after));
        let early = tasks.begin(Epoch { queue: QueueId(7), seq: 1 }, &[], &submitted_before);
        assert!(!tasks.is_before(work.id, &early));
        assert!(tasks.is_before(work.id, &tasks.begin_on_host(origin())));
    }

    #[test]
    fn a_host_access_comes_before_what_is_submitted_then_and_after_nothing_unknown() {
        let tasks = Tasks::default();
        let submitted_before = tasks.submit(origin());
        let call = tasks.begin_on_host(origin());
        let after = begin(&tasks, A, 1, &[]);
        assert!(tasks.is_before(call.id, &after));
        assert!(!tasks.is_before(after.id, &tasks.begin_on_host(origin())));
        let early = tasks.begin(Epoch { queue: B, seq: 1 }, &[], &submitted_before);
        assert!(!tasks.is_before(call.id, &early));
    }
}
