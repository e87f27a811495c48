//! The pending uses of all blocks, in the order of each queue, so that a wait visits only those that it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use freehold_check::{Epoch, QueueId};

use super::block::{Block, Use};
use crate::base::sync::lock;

/// Uses of a queue, by the seq of the last work of each.
type OfQueue = BTreeMap<(u64, Use), Arc<Block>>;

/// Uses of a block, with the seq of the last work of each.
type OfBlock = (Arc<Block>, Vec<(Use, u64)>);

/// Its lock is taken while that of a block is held, never the other way round.
static QUEUES: Mutex<BTreeMap<QueueId, OfQueue>> = Mutex::new(BTreeMap::new());
/// The number of uses.
static COUNT: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
thread_local! {
    /// How many uses this thread has looked at to find those that are over.
    pub(super) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds a use, which was noted for earlier work of its queue `before`.
pub(super) fn add(block: &Arc<Block>, used: Use, before: Option<u64>, seq: u64) {
    let mut queues = lock(&QUEUES);
    let uses = queues.entry(used.queue).or_default();
    let removed = before.and_then(|before| uses.remove(&(before, used)));
    let seq = before.map_or(seq, |before| before.max(seq));
    if uses.insert((seq, used), Arc::clone(block)).is_none() && removed.is_none() {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Removes uses whose block has forgotten them.
pub(super) fn remove(uses: BTreeMap<Use, u64>) {
    if uses.is_empty() {
        return;
    }
    let mut queues = lock(&QUEUES);
    for (used, seq) in uses {
        let Some(of_queue) = queues.get_mut(&used.queue) else { continue };
        if of_queue.remove(&(seq, used)).is_some() {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
        if of_queue.is_empty() {
            queues.remove(&used.queue);
        }
    }
}

/// Drops the uses for which `is_over` holds. If it holds for work of a queue, it holds for what is before that.
pub(super) fn drop_over(is_over: impl Fn(Epoch) -> bool) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut over: BTreeMap<u64, OfBlock> = BTreeMap::new();
    lock(&QUEUES).retain(|queue, uses| {
        while let Some(first) = uses.first_entry() {
            let (seq, used) = *first.key();
            visit();
            if !is_over(Epoch { queue: *queue, seq }) {
                break;
            }
            let block = first.remove();
            COUNT.fetch_sub(1, Ordering::Relaxed);
            over.entry(block.base).or_insert_with(|| (block, Vec::new())).1.push((used, seq));
        }
        !uses.is_empty()
    });
    for (block, uses) in over.into_values() {
        if let Some(mut state) = block.live() {
            state.drop_uses(uses.into_iter());
        }
    }
}

#[inline]
fn visit() {
    #[cfg(test)]
    VISITED.set(VISITED.get() + 1);
}
