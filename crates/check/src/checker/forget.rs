//! Drops the records of ended streams and of completed work.

use std::collections::HashSet;

use super::{Checker, locked};
use crate::clock::{Epoch, QueueId};

/// How many tasks are kept for each granule that has records: their memory is small beside that of the records.
const TASKS_PER_GRANULE: usize = 4096;

impl Checker {
    /// Notes that no work comes after `last` in its queue: its stream is destroyed, or it was of a graph. Nothing waits for its work any
    /// more, except the host.
    pub fn end_queue(&self, last: Epoch) {
        if last.seq == 0 {
            self.reporter.forget_stream(last.queue);
        }
        if self.tasks.end(last) {
            let mut uses = locked(&self.module_uses);
            let forgotten: HashSet<QueueId> = self.tasks.forget_ended().into_iter().collect();
            uses.values_mut().for_each(|uses| uses.retain(|queue, _| !forgotten.contains(queue)));
            self.reporter.end_streams(forgotten);
        }
    }

    /// Notes that no graph has nodes of a capture any more.
    pub fn forget_capture(&self, capture: u64) {
        locked(&self.capture_groups).forget(capture);
    }

    /// Drops the tasks that are over and that nothing names, if there may be many.
    #[inline]
    pub(super) fn drop_tasks(&self) {
        if self.tasks.is_full() {
            self.drop_unnamed();
        }
    }

    #[cold]
    fn drop_unnamed(&self) {
        // One thread looks, and the others go on.
        let Ok(_looking) = self.looking.try_lock() else { return };
        let mut named = self.tasks.look_for_names();
        self.shadow.for_each_task(|task| named.add(task));
        for block in locked(&self.blocks).all() {
            named.add(block.allocated);
            block.freed.into_iter().for_each(|task| named.add(task));
        }
        self.tasks.drop_others(&named, TASKS_PER_GRANULE * self.shadow.granule_count());
        locked(&self.polling).retain(|task| named.contains(*task));
        locked(&self.conflicting).retain(|task| named.contains(*task));
        self.reporter.forget_ended(&self.tasks.queues());
    }
}

#[cfg(test)]
mod tests;
