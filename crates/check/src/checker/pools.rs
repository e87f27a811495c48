//! Announcements of pools about their blocks.
//!
//! A block that is returned to its pool is free for work that is submitted later. Each launch of a graph uses the blocks that its
//! capture was handed out: for these launches the blocks stay allocated until the pool hands them out outside any capture.

use std::ops::Range;

use super::{Checker, locked};
use crate::blocks::{Block, BlockKind};
use crate::shadow::Effect;
use crate::tasks::TaskView;
use crate::wrong_free::FreeFunction;

impl Checker {
    /// Notes that a pool hands out a block while these captures run. What it has not handed out of the same allocation is not to be
    /// accessed. Null pointers and blocks without bytes are ignored, and so are their frees.
    pub fn hand_out(&self, function: &'static str, address: u64, bytes: u64, captures: &[u64]) {
        if locked(&self.blocks).empty.hand_out(address, bytes) {
            return;
        }
        let view = &self.begin_on_host(function);
        let mut blocks = locked(&self.blocks);
        let bytes = blocks.clipped(address, bytes);
        let before = || blocks.groups_in(address..address.saturating_add(bytes));
        let group = if captures.is_empty() { None } else { locked(&self.capture_groups).join(captures, &before()) };
        let part = Block { address, bytes, kind: BlockKind::Pool, allocated: view.id, freed: None, group };
        let divided = blocks.hand_out(part);
        drop(blocks);
        for whole in divided {
            self.access(view, Effect::Release, whole.address, whole.bytes);
        }
        self.access(view, Effect::HandOut, address, bytes);
    }

    /// Returns whether a pool has handed out the block at an address after a task was submitted: what the task sees there is of an
    /// earlier owner.
    pub(crate) fn is_handed_out_later(&self, view: &TaskView, address: u64) -> bool {
        let owner = locked(&self.blocks).part(address).map(|part| part.allocated);
        owner.is_some_and(|owner| self.tasks.is_submitted_after(owner, view))
    }

    /// Notes that a pool changes the size of a block that it has handed out.
    pub fn resize(&self, function: &'static str, address: u64, bytes: u64) {
        let mut blocks = locked(&self.blocks);
        let bytes = blocks.clipped(address, bytes);
        let Some(before) = blocks.resize(address, bytes) else { return };
        drop(blocks);
        let view = &self.begin_on_host(function);
        match bytes.checked_sub(before) {
            Some(more) => self.access(view, Effect::HandOut, address + before, more),
            None => self.access(view, Effect::Release, address + bytes, before - bytes),
        }
    }

    /// Notes that a block goes back to its pool.
    pub fn release(&self, function: &'static str, address: u64) {
        if locked(&self.blocks).empty.release(address) {
            return;
        }
        let view = &self.begin_on_host(function);
        let released = locked(&self.blocks).release(address, view.id);
        match released {
            Some(part) => {
                if let Some(group) = part.group {
                    self.tasks.keep(view.id, group);
                }
                self.access(view, Effect::Release, address, part.bytes);
            }
            None => self.report_free(function, address, FreeFunction::Pool),
        }
    }

    /// Returns the block that a pool has handed out around an address, and the allocation that it is part of.
    pub fn pool_block(&self, address: u64) -> Option<(Range<u64>, Range<u64>)> {
        locked(&self.blocks).part_in_use(address).map(|(part, whole)| (part.range(), whole.range()))
    }
}
