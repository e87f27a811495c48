//! The happens-before clocks of each queue, kept as long as something may need them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::clock::{Clock, Epoch, QueueId, advance_shared, join_shared, retained};

/// How many changes of a queue's clock are kept. An event that is older counts as recorded later.
const CHANGES_MAX: usize = 4096;

/// With so many changes, those are dropped that the host knows. Fewer stay: work that was submitted before the host waited may begin late.
const CHANGES_MIN: usize = 64;

/// How many ended queues are kept before the oldest are forgotten, and how many stay then: for work that is submitted before the host
/// waits for theirs, and runs after it.
const ENDED_MAX: usize = 256;
const ENDED_KEPT: usize = 64;

#[derive(Debug)]
pub(super) struct Order {
    /// What the host has waited for.
    pub(super) host: Arc<Clock>,
    /// The number of calls so far.
    pub(super) calls: u64,
    host_seq: u64,
    queues: HashMap<QueueId, Queue>,
    /// The last work of the queues that have ended, the first to end first.
    ended: VecDeque<Epoch>,
    /// With so many, some may be forgotten.
    ended_limit: usize,
}

impl Default for Order {
    fn default() -> Self {
        let (host, queues, ended) = (Arc::default(), HashMap::new(), VecDeque::new());
        Self { host, calls: 0, host_seq: 0, queues, ended, ended_limit: ENDED_MAX }
    }
}

#[derive(Debug)]
struct Queue {
    /// The last work that has begun.
    begun: u64,
    clock: Arc<Clock>,
    /// The first task at which the clock had this value, the oldest first.
    changes: VecDeque<(u64, Arc<Clock>)>,
    /// With so many, some may be dropped.
    changes_limit: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { begun: 0, clock: Arc::default(), changes: VecDeque::new(), changes_limit: CHANGES_MIN }
    }
}

impl Queue {
    /// Returns what happens before the end of the task at `seq`, without that task.
    fn clock_at(&self, seq: u64) -> &Arc<Clock> {
        let later = self.changes.partition_point(|&(first, _)| first <= seq);
        let change = self.changes.get(later.saturating_sub(1));
        change.map_or(&self.clock, |(_, clock)| clock)
    }

    /// Drops the changes before the one that the host knows last.
    fn prune(&mut self, observed: u64) {
        let known = self.changes.partition_point(|&(first, _)| first <= observed);
        self.changes.drain(..known.saturating_sub(1));
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes_limit = (2 * self.changes.len()).clamp(CHANGES_MIN, CHANGES_MAX);
    }
}

impl Order {
    /// Adds what happens before an epoch, and the epoch.
    pub(super) fn join_epoch(&self, clock: &mut Arc<Clock>, epoch: Epoch) {
        if let Some(queue) = self.queues.get(&epoch.queue) {
            join_shared(clock, queue.clock_at(epoch.seq));
        }
        advance_shared(clock, epoch);
    }

    /// Returns what happens before the next work of a queue.
    pub(super) fn clock_of(&mut self, queue: QueueId) -> Arc<Clock> {
        self.queues.entry(queue).or_default().clock.clone()
    }

    /// Notes what happens before the work at an epoch, the last that has begun in its queue.
    pub(super) fn set_clock(&mut self, epoch: Epoch, clock: Arc<Clock>) {
        let queue = self.queues.entry(epoch.queue).or_default();
        let is_same = queue.changes.back().is_some_and(|(_, last)| Arc::ptr_eq(last, &clock));
        if !is_same {
            if queue.changes.len() >= queue.changes_limit {
                queue.prune(self.host.seq(epoch.queue));
            }
            queue.changes.push_back((epoch.seq, clock.clone()));
        }
        queue.clock = clock;
        queue.begun = queue.begun.max(epoch.seq);
    }

    /// Adds work of the host, which comes before all that is submitted from now on. Returns what it comes after.
    pub(super) fn begin_on_host(&mut self) -> (Epoch, Arc<Clock>) {
        self.host_seq += 1;
        let epoch = Epoch { queue: QueueId::HOST, seq: self.host_seq };
        let clock = self.host.clone();
        advance_shared(&mut self.host, epoch);
        (epoch, clock)
    }

    /// Notes that the host knows that work has completed.
    pub(super) fn observe(&mut self, epoch: Epoch) {
        let mut host = std::mem::take(&mut self.host);
        self.join_epoch(&mut host, epoch);
        self.host = host;
    }

    /// Returns whether the host knows that work has completed.
    pub(super) fn is_observed(&self, epoch: Epoch) -> bool {
        self.host.includes(epoch)
    }

    /// Returns whether work that has begun is over, as far as the queues show it. That of the host is soon.
    pub(super) fn is_over(&self, epoch: Epoch) -> bool {
        let has_passed = self.queues.get(&epoch.queue).is_none_or(|queue| queue.begun > epoch.seq);
        has_passed || self.host.includes(epoch)
    }

    /// Returns whether all work of a queue, whose work has begun, is forgotten: it happens before everything.
    pub(super) fn is_forgotten(&self, queue: QueueId) -> bool {
        queue != QueueId::HOST && !self.queues.contains_key(&queue)
    }

    /// Notes that no work comes after `last` in its queue. Returns whether there are so many of these that some may be forgotten.
    pub(super) fn end(&mut self, last: Epoch) -> bool {
        if self.queues.contains_key(&last.queue) {
            self.ended.push_back(last);
        }
        self.ended.len() >= self.ended_limit
    }

    /// Forgets ended queues whose work the host has waited for, except the last ones to end. Returns them.
    pub(super) fn forget_ended(&mut self) -> Vec<QueueId> {
        let mut forgotten = Vec::new();
        let mut left = self.ended.len().saturating_sub(ENDED_KEPT);
        let host = &self.host;
        self.ended.retain(|last| {
            let is_kept = left == 0 || !host.includes(*last);
            left = left.saturating_sub(1);
            if !is_kept {
                forgotten.push(last.queue);
            }
            is_kept
        });
        self.ended_limit = (2 * self.ended.len()).max(ENDED_MAX);
        if !forgotten.is_empty() {
            forgotten.iter().for_each(|queue| _ = self.queues.remove(queue));
            self.drop_forgotten_entries();
        }
        forgotten
    }

    /// Removes the entries of forgotten queues from all clocks. Those that were one stay one.
    fn drop_forgotten_entries(&mut self) {
        let known: HashSet<QueueId> = self.queues.keys().copied().collect();
        let is_kept = |queue: QueueId| queue == QueueId::HOST || known.contains(&queue);
        // By address: with the clock that was there, so that no other is.
        let mut changed: HashMap<*const Clock, [Arc<Clock>; 2]> = HashMap::new();
        let mut replace = |clock: &mut Arc<Clock>| {
            let both = || [Arc::clone(clock), retained(clock, is_kept)];
            let [_, new] = changed.entry(Arc::as_ptr(clock)).or_insert_with(both);
            *clock = Arc::clone(new);
        };
        replace(&mut self.host);
        for queue in self.queues.values_mut() {
            replace(&mut queue.clock);
            queue.changes.iter_mut().for_each(|(_, clock)| replace(clock));
        }
    }

    /// Returns how many queues are known, and how many entries their clocks and that of the host have, and the changes of these.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        let of_queue =
            |queue: &Queue| queue.clock.len() + queue.changes.iter().map(|(_, clock)| clock.len()).sum::<usize>();
        (self.queues.len(), self.host.len() + self.queues.values().map(of_queue).sum::<usize>())
    }
}
