//! The last accesses to one unit of memory, a word or a byte, and whether they race with the current access.

use super::clock::BlockClock;
use super::slot::Slot;
use crate::access::AccessKind;

/// Of the two weak reads, one is of another block if there was such a read; on shared memory, of another warp.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cell {
    pub(crate) write: Slot,
    pub(crate) strong_write: Slot,
    pub(crate) reads: [Slot; 2],
    /// On shared memory only.
    pub(crate) strong_read: Slot,
}

/// How an access counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) is_write: bool,
    pub(crate) is_strong: bool,
    /// Whether it is to the shared memory of one block: then a barrier orders all that was before.
    pub(crate) is_shared: bool,
}

impl Cell {
    /// Records an access. Returns one that races with it, and what that does.
    #[inline]
    pub(crate) fn access(
        &mut self,
        clock: &BlockClock,
        how: How,
        slot: Slot,
        is_unchanged: bool,
    ) -> Option<(Slot, AccessKind)> {
        let How { is_write, is_strong, is_shared } = how;
        let races = |before: Slot| !clock.is_ordered(before, slot.block, slot.thread());
        let mut found = None;
        if !is_unchanged && races(self.write) {
            found = Some((self.write, AccessKind::Write));
        } else if !is_unchanged && !is_strong && races(self.strong_write) {
            let kind = if self.strong_write.is_atomic() { AccessKind::Atomic } else { AccessKind::Write };
            found = Some((self.strong_write, kind));
        } else if is_write && let Some(&read) = self.reads.iter().find(|&&read| races(read)) {
            found = Some((read, AccessKind::Read));
        } else if is_write && !is_strong && races(self.strong_read) {
            found = Some((self.strong_read, AccessKind::Read));
        }
        match (is_write, is_strong) {
            (true, false) => self.write = slot,
            (true, true) => self.strong_write = slot,
            (false, true) if is_shared => self.strong_read = slot,
            (false, true) => {}
            (false, false) => {
                let [last, other] = self.reads;
                let is_same = last.block == slot.block && last.thread() == slot.thread();
                let is_near = |other: Slot| other.block == slot.block && (!is_shared || other.warp() == slot.warp());
                let keeps = is_near(last) && !is_near(other) && other.time != 0;
                if !is_same && !keeps {
                    self.reads[1] = last;
                }
                self.reads[0] = slot;
            }
        }
        found
    }
}
