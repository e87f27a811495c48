//! Vector clocks: for each queue, its last work that is known to have completed.

use std::sync::Arc;

/// A queue: a stream, or the host, whose work is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u64);

impl QueueId {
    /// The host. Its threads count as one: what one has waited for, all have.
    pub const HOST: Self = Self(0);
}

/// A place in the order of a queue. Work is counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The queue.
    pub queue: QueueId,
    /// The number of the work in it.
    pub seq: u64,
}

/// For each queue, the last work that happens before something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Sorted by queue.
    seqs: Vec<(QueueId, u64)>,
}

impl Clock {
    /// Returns whether the work at an epoch happens before what this clock belongs to.
    pub fn includes(&self, epoch: Epoch) -> bool {
        self.seq(epoch.queue) >= epoch.seq
    }

    /// Returns the last work of a queue that happens before, or zero.
    pub(crate) fn seq(&self, queue: QueueId) -> u64 {
        match self.seqs.binary_search_by_key(&queue, |&(queue, _)| queue) {
            Ok(index) => self.seqs[index].1,
            Err(_) => 0,
        }
    }

    /// Adds the work at an epoch, and all work before it in its queue.
    pub fn advance(&mut self, epoch: Epoch) {
        match self.seqs.binary_search_by_key(&epoch.queue, |&(queue, _)| queue) {
            Ok(index) => self.seqs[index].1 = self.seqs[index].1.max(epoch.seq),
            Err(index) => self.seqs.insert(index, (epoch.queue, epoch.seq)),
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.seqs.len()
    }

    /// Keeps only some of the queues.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(QueueId) -> bool) {
        self.seqs.retain(|&(queue, _)| is_kept(queue));
    }

    /// Returns whether everything that happens before `other` happens before this.
    fn covers(&self, other: &Self) -> bool {
        let mut own = self.seqs.iter();
        other.seqs.iter().all(|&(queue, seq)| {
            own.by_ref()
                .find(|&&(known, _)| known >= queue)
                .is_some_and(|&(known, reached)| known == queue && reached >= seq)
        })
    }

    /// Adds everything that happens before `other`.
    pub fn join(&mut self, other: &Self) {
        if self.seqs.is_empty() {
            self.seqs.clone_from(&other.seqs);
            return;
        }
        let mut joined = Vec::with_capacity(self.seqs.len() + other.seqs.len());
        let (mut left, mut right) = (self.seqs.iter().copied().peekable(), other.seqs.iter().copied().peekable());
        loop {
            joined.push(match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(&(a, seq_a)), Some(&(b, seq_b))) if a == b => {
                    left.next();
                    right.next();
                    (a, seq_a.max(seq_b))
                }
                (Some(&(a, seq)), Some(&(b, _))) if a < b => {
                    left.next();
                    (a, seq)
                }
                (Some(&entry), None) => {
                    left.next();
                    entry
                }
                (_, Some(&entry)) => {
                    right.next();
                    entry
                }
            });
        }
        self.seqs = joined;
    }
}

/// Adds everything that happens before `other`, and copies the clock only if neither of the two has all.
pub(crate) fn join_shared(clock: &mut Arc<Clock>, other: &Arc<Clock>) {
    if clock.covers(other) {
        return;
    }
    if other.covers(clock) {
        *clock = Arc::clone(other);
    } else {
        Arc::make_mut(clock).join(other);
    }
}

/// Returns a clock without the queues of which nothing asks any more: the same if it has none of them.
pub(crate) fn retained(clock: &Arc<Clock>, is_kept: impl Fn(QueueId) -> bool) -> Arc<Clock> {
    if clock.seqs.iter().all(|&(queue, _)| is_kept(queue)) {
        return Arc::clone(clock);
    }
    let mut left = Clock::clone(clock);
    left.retain(is_kept);
    Arc::new(left)
}

/// Adds the work at an epoch, and copies the clock only if that changes it.
pub(crate) fn advance_shared(clock: &mut Arc<Clock>, epoch: Epoch) {
    if !clock.includes(epoch) {
        Arc::make_mut(clock).advance(epoch);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn clock_of(entries: &BTreeMap<u64, u64>) -> Clock {
        let mut clock = Clock::default();
        entries.iter().for_each(|(&queue, &seq)| clock.advance(Epoch { queue: QueueId(queue), seq }));
        clock
    }

    proptest! {
        #[test]
        fn a_joined_clock_has_the_later_work_of_each_queue(
            one in proptest::collection::btree_map(0..6u64, 1..9u64, 0..6),
            other in proptest::collection::btree_map(0..6u64, 1..9u64, 0..6),
        ) {
            let (mut joined, right) = (clock_of(&one), clock_of(&other));
            let covered = clock_of(&one).covers(&right);
            joined.join(&right);
            for queue in 0..6 {
                let latest = one.get(&queue).max(other.get(&queue)).copied().unwrap_or(0);
                prop_assert_eq!(joined.seq(QueueId(queue)), latest);
            }
            prop_assert_eq!(covered, joined == clock_of(&one));
            let (mut shared, right) = (Arc::new(clock_of(&one)), Arc::new(right));
            join_shared(&mut shared, &right);
            prop_assert_eq!(&*shared, &joined);
            prop_assert!(covered || !right.covers(&clock_of(&one)) || Arc::ptr_eq(&shared, &right));
        }
    }

    #[test]
    fn an_epoch_includes_earlier_work_of_its_queue_only() {
        let mut clock = Clock::default();
        clock.advance(Epoch { queue: QueueId(3), seq: 5 });
        clock.advance(Epoch { queue: QueueId(3), seq: 2 });
        assert!(clock.includes(Epoch { queue: QueueId(3), seq: 5 }));
        assert!(!clock.includes(Epoch { queue: QueueId(3), seq: 6 }));
        assert!(!clock.includes(Epoch { queue: QueueId(2), seq: 1 }));
    }
}
