//! Streams, events and the host: the happens-before order of work, as far as calls show it.
//!
//! Each stream has a clock: what happens before its next work. Work is checked when it is submitted, because what happens before it
//! is known by then.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::clock::{Clock, Epoch, QueueId, advance_shared, join_shared};

/// How many destroyed streams are kept before those that the host has waited for are forgotten.
const DEAD_MAX: usize = 256;

/// What identifies a stream in calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    context: u64,
    handle: u64,
}

impl StreamKey {
    /// A stream that the program has created.
    pub fn created(handle: u64) -> Self {
        Self { context: 0, handle }
    }

    /// The legacy default stream of a context.
    pub fn legacy(context: u64) -> Self {
        Self { context, handle: 0 }
    }

    /// The default stream of a thread in a context. Threads are numbered from 1.
    pub fn of_thread(context: u64, thread: u64) -> Self {
        Self { context, handle: thread }
    }

    fn is_of_thread(self, thread: u64) -> bool {
        self.context != 0 && self.handle == thread
    }
}

/// What is known of a stream when it is first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKind {
    /// Its context.
    pub context: u64,
    /// How it is ordered with the legacy default stream of its context.
    pub order: LegacyOrder,
}

/// How a stream is ordered with the legacy default stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyOrder {
    /// It is that stream.
    Legacy,
    /// Both wait for each other.
    Blocking,
    /// Not at all.
    NonBlocking,
}

/// All work of a stream up to a point, and what happens before it.
#[derive(Clone, Debug)]
pub(super) struct Point {
    epoch: Epoch,
    clock: Arc<Clock>,
    /// Whether it comes after a wait for other code, such as for a word in memory, which may order it after anything.
    is_opaque: bool,
}

#[derive(Debug)]
struct Queue {
    id: QueueId,
    /// The index of its context.
    context: usize,
    order: LegacyOrder,
    seq: u64,
    /// What happens before its next work, without its own.
    clock: Arc<Clock>,
    /// The version of the host's clock that is in `clock`.
    host_version: u64,
    /// The work of the legacy default stream that is in `clock`.
    legacy_seq: u64,
    /// The first work after a wait for other code.
    opaque_from: Option<u64>,
    is_dead: bool,
}

impl Queue {
    fn epoch(&self) -> Epoch {
        Epoch { queue: self.id, seq: self.seq }
    }

    /// Notes that its work from now on may come after anything.
    fn make_opaque(&mut self) {
        self.opaque_from.get_or_insert(self.seq);
    }
}

/// The streams of a context that are ordered with each other implicitly.
#[derive(Debug, Default)]
struct ContextQueues {
    context: u64,
    legacy: Option<QueueId>,
    blocking: Vec<QueueId>,
}

/// Work that is being submitted, or a call of the host.
#[derive(Debug)]
pub(super) struct View<'o> {
    pub(super) epoch: Epoch,
    clock: &'o Clock,
    host: &'o Clock,
    is_opaque: bool,
    /// Whether it is the launch of a graph.
    pub(super) is_of_graph: bool,
}

impl View<'_> {
    /// Returns whether work happens before this. Calls of the host happen before all that is submitted later.
    pub(super) fn is_after(&self, epoch: Epoch) -> bool {
        epoch.queue == self.epoch.queue || epoch.queue == QueueId::HOST || self.is_opaque || self.clock.includes(epoch)
    }

    /// Returns whether the host knows that work has completed: everything that is submitted later comes after it.
    pub(super) fn is_observed(&self, epoch: Epoch) -> bool {
        epoch.queue != QueueId::HOST && self.host.includes(epoch)
    }
}

#[derive(Debug, Default)]
pub(super) struct Order {
    host: Arc<Clock>,
    /// Counts the changes of `host`.
    host_version: u64,
    host_seq: u64,
    /// By their ids. `None` for the host, and for those that are forgotten.
    queues: Vec<Option<Box<Queue>>>,
    keys: HashMap<StreamKey, QueueId>,
    /// The two streams that were asked for last: many programs use two in turn.
    last: [Option<(StreamKey, QueueId)>; 2],
    contexts: Vec<ContextQueues>,
    events: HashMap<u64, Point>,
    /// The events that something else than this process may record.
    shared_events: HashSet<u64>,
    dead_count: usize,
}

fn queue_of(queues: &mut [Option<Box<Queue>>], id: QueueId) -> &mut Queue {
    queues[id.0 as usize].as_deref_mut().expect("a stream that is in use is not forgotten")
}

impl Order {
    fn queue(&self, id: QueueId) -> &Queue {
        self.queues[id.0 as usize].as_deref().expect("a stream that is in use is not forgotten")
    }

    fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        queue_of(&mut self.queues, id)
    }

    fn all(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().filter_map(Option::as_deref)
    }

    /// Returns the queue of a stream, if it is known.
    pub(super) fn known(&mut self, key: StreamKey) -> Option<QueueId> {
        if let Some((_, id)) = self.last[0].filter(|(last, _)| *last == key) {
            return Some(id);
        }
        self.last.swap(0, 1);
        if let Some((_, id)) = self.last[0].filter(|(last, _)| *last == key) {
            return Some(id);
        }
        let id = *self.keys.get(&key)?;
        self.last[0] = Some((key, id));
        Some(id)
    }

    /// Adds a stream.
    pub(super) fn add(&mut self, key: StreamKey, kind: StreamKind) -> QueueId {
        self.remove(key);
        let id = QueueId(self.queues.len().max(1) as u64);
        self.queues.resize_with(id.0 as usize, || None);
        let context = match self.contexts.iter().position(|context| context.context == kind.context) {
            Some(index) => index,
            None => {
                self.contexts.push(ContextQueues { context: kind.context, ..ContextQueues::default() });
                self.contexts.len() - 1
            }
        };
        match kind.order {
            LegacyOrder::Legacy => self.contexts[context].legacy = Some(id),
            LegacyOrder::Blocking => self.contexts[context].blocking.push(id),
            LegacyOrder::NonBlocking => {}
        }
        let (clock, host_version, order) = (Arc::clone(&self.host), self.host_version, kind.order);
        let (seq, legacy_seq, opaque_from, is_dead) = (0, 0, None, false);
        let queue = Queue { id, context, order, seq, clock, host_version, legacy_seq, opaque_from, is_dead };
        self.queues.push(Some(Box::new(queue)));
        self.keys.insert(key, id);
        id
    }

    /// Notes that a stream is destroyed. Its work goes on. Returns whether [`Self::forget_dead`] should be called.
    pub(super) fn remove(&mut self, key: StreamKey) -> bool {
        let Some(id) = self.keys.remove(&key) else { return false };
        self.last = [None; 2];
        self.queue_mut(id).is_dead = true;
        self.dead_count += 1;
        self.dead_count > DEAD_MAX
    }

    fn remove_all(&mut self, keys: &[StreamKey]) -> bool {
        let mut is_due = false;
        for key in keys {
            is_due |= self.remove(*key);
        }
        is_due
    }

    /// Notes that a context is destroyed with the streams that it had when `stream_count` were known. Returns whether
    /// [`Self::forget_dead`] should be called.
    pub(super) fn remove_context(&mut self, context: u64, stream_count: usize) -> bool {
        let Some(index) = self.contexts.iter().position(|known| known.context == context) else { return false };
        let is_gone = |id: QueueId| id.0 < stream_count as u64;
        let streams = self.keys.iter().filter(|(_, id)| is_gone(**id) && self.queue(**id).context == index);
        let keys: Vec<StreamKey> = streams.map(|(key, _)| *key).collect();
        self.contexts[index].legacy.take_if(|id| is_gone(*id));
        self.remove_all(&keys)
    }

    /// Notes that a thread has ended, with its default streams. Returns whether [`Self::forget_dead`] should be called.
    pub(super) fn remove_thread(&mut self, thread: u64) -> bool {
        let streams = self.keys.keys().filter(|key| key.is_of_thread(thread));
        let keys: Vec<StreamKey> = streams.copied().collect();
        self.remove_all(&keys)
    }

    /// Returns the number of the last call of the host.
    pub(super) fn host_seq(&self) -> u64 {
        self.host_seq
    }

    /// Returns how many streams were ever known. The next one has this number.
    pub(super) fn stream_count(&self) -> usize {
        self.queues.len()
    }

    /// Forgets the destroyed streams whose work the host has waited for. Nothing may refer to such work any more.
    pub(super) fn forget_dead(&mut self) {
        let host = Arc::clone(&self.host);
        for queue in &mut self.queues {
            if queue.as_ref().is_some_and(|queue| queue.is_dead && host.includes(queue.epoch())) {
                *queue = None;
            }
        }
        drop(host);
        self.dead_count = 0;
        let is_kept: Vec<bool> = self.queues.iter().map(Option::is_some).collect();
        let is_kept = |id: QueueId| is_kept[id.0 as usize];
        self.contexts.iter_mut().for_each(|context| context.blocking.retain(|id| is_kept(*id)));
        Arc::make_mut(&mut self.host).retain(is_kept);
        for queue in self.queues.iter_mut().flatten() {
            Arc::make_mut(&mut queue.clock).retain(is_kept);
        }
        for point in self.events.values_mut() {
            Arc::make_mut(&mut point.clock).retain(is_kept);
        }
    }

    /// Brings the clock of a stream up to date, for work that is submitted now.
    fn prepare(&mut self, id: QueueId) {
        let (host, host_version) = (&self.host, self.host_version);
        let queue = queue_of(&mut self.queues, id);
        if queue.host_version != host_version {
            join_shared(&mut queue.clock, host);
            queue.host_version = host_version;
        }
        let (context, order, known) = (queue.context, queue.order, queue.legacy_seq);
        match order {
            LegacyOrder::NonBlocking => {}
            LegacyOrder::Blocking => {
                let Some(legacy) = self.contexts[context].legacy else { return };
                let seq = self.queue(legacy).seq;
                if seq > known {
                    let point = self.last_point(legacy);
                    self.join(id, &point);
                    self.queue_mut(id).legacy_seq = seq;
                }
            }
            LegacyOrder::Legacy => {
                for index in 0..self.contexts[context].blocking.len() {
                    let other = self.contexts[context].blocking[index];
                    let epoch = self.queue(other).epoch();
                    if epoch.seq > 0 && !self.queue(id).clock.includes(epoch) {
                        let point = self.last_point(other);
                        self.join(id, &point);
                    }
                }
            }
        }
    }

    fn last_point(&self, id: QueueId) -> Point {
        let queue = self.queue(id);
        Point { epoch: queue.epoch(), clock: Arc::clone(&queue.clock), is_opaque: queue.opaque_from.is_some() }
    }

    fn join(&mut self, id: QueueId, point: &Point) {
        let queue = self.queue_mut(id);
        join_shared(&mut queue.clock, &point.clock);
        advance_shared(&mut queue.clock, point.epoch);
        if point.is_opaque && queue.opaque_from.is_none() {
            queue.opaque_from = Some(queue.seq + 1);
        }
    }

    /// Begins work of a stream.
    pub(super) fn begin(&mut self, id: QueueId) -> View<'_> {
        self.prepare(id);
        let (queue, host) = (queue_of(&mut self.queues, id), &self.host);
        queue.seq += 1;
        let is_opaque = queue.opaque_from.is_some();
        View { epoch: queue.epoch(), clock: &queue.clock, host, is_opaque, is_of_graph: false }
    }

    /// Begins a call of the host.
    pub(super) fn begin_on_host(&mut self) -> View<'_> {
        self.host_seq += 1;
        let epoch = Epoch { queue: QueueId::HOST, seq: self.host_seq };
        View { epoch, clock: &self.host, host: &self.host, is_opaque: false, is_of_graph: false }
    }

    /// Returns the point after all work of a stream so far, as a call that waits for it sees it.
    pub(super) fn point(&mut self, id: QueueId) -> Point {
        if self.queue(id).order == LegacyOrder::Legacy {
            self.prepare(id);
            self.queue_mut(id).seq += 1;
        }
        self.last_point(id)
    }

    /// Returns the points after all work of the streams of a context so far.
    pub(super) fn points_of(&self, context: u64) -> Vec<Point> {
        let Some(index) = self.contexts.iter().position(|known| known.context == context) else { return Vec::new() };
        self.all().filter(|queue| queue.context == index).map(|queue| self.last_point(queue.id)).collect()
    }

    /// Returns the points after all work so far.
    pub(super) fn points(&self) -> Vec<Point> {
        self.all().map(|queue| self.last_point(queue.id)).collect()
    }

    /// Records an event after some points.
    pub(super) fn record_after(&mut self, event: u64, id: QueueId, points: &[Point]) {
        points.iter().for_each(|point| self.join(id, point));
        self.record(event, id);
    }

    /// Records an event: it completes when the work of the stream so far has.
    pub(super) fn record(&mut self, event: u64, id: QueueId) {
        self.prepare(id);
        self.queue_mut(id).seq += 1;
        let point = self.last_point(id);
        self.events.insert(event, point);
    }

    /// Forgets what an event was recorded after.
    pub(super) fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
    }

    /// Forgets an event that is destroyed.
    pub(super) fn destroy_event(&mut self, event: u64) {
        self.events.remove(&event);
        self.shared_events.remove(&event);
    }

    /// Notes that something else than this process may record an event.
    pub(super) fn share_event(&mut self, event: u64) {
        self.shared_events.insert(event);
    }

    /// Returns the points that are reached when an event is complete.
    pub(super) fn points_of_event(&self, event: u64) -> Vec<Point> {
        if self.shared_events.contains(&event) {
            return self.points();
        }
        self.events.get(&event).cloned().into_iter().collect()
    }

    /// Lets a stream wait for an event.
    pub(super) fn wait(&mut self, id: QueueId, event: u64) {
        self.prepare(id);
        self.queue_mut(id).seq += 1;
        if let Some(point) = self.events.get(&event).cloned() {
            self.join(id, &point);
        }
        if self.shared_events.contains(&event) {
            self.queue_mut(id).make_opaque();
        }
    }

    /// Lets a stream wait for something that other code may signal: it may come after anything.
    pub(super) fn wait_for_memory(&mut self, id: QueueId) {
        let queue = self.queue_mut(id);
        queue.seq += 1;
        queue.make_opaque();
    }

    /// Notes that the host knows that all work up to a point has completed.
    pub(super) fn observe(&mut self, point: &Point) {
        self.observe_one(point);
        if point.is_opaque {
            self.points().iter().for_each(|point| self.observe_one(point));
        }
    }

    fn observe_one(&mut self, point: &Point) {
        if let Some(Some(queue)) = self.queues.get_mut(point.epoch.queue.0 as usize)
            && queue.opaque_from.is_some_and(|from| from <= point.epoch.seq)
        {
            queue.opaque_from = None;
        }
        // A clock with an epoch has what happens before that epoch, too.
        if !self.host.includes(point.epoch) {
            join_shared(&mut self.host, &point.clock);
            advance_shared(&mut self.host, point.epoch);
            self.host_version += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all().count()
    }

    /// Returns whether the host knows that work has completed.
    pub(super) fn is_observed(&self, epoch: Epoch) -> bool {
        self.host.includes(epoch)
    }
}
