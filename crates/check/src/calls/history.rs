//! The accesses to a block: the last ones of each stream, with their ranges.
//!
//! An access is kept until a later one that is ordered after it covers it, or until the host has waited for it: then everything
//! that is submitted later is ordered after it. So the list is about as long as the number of streams that use the block.

use crate::clock::{Epoch, QueueId};
use crate::sites::Site;

use super::order::View;

/// How many accesses to a block are kept. Beyond it the oldest is forgotten.
const ENTRIES_MAX: usize = 64;

/// What a call does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// Reads exactly these bytes.
    Read,
    /// Writes exactly these bytes.
    Write,
    /// Reads or writes some bytes of the block, from its first address on.
    Use,
}

impl CallEffect {
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Use => "uses",
        }
    }
}

/// Rows of bytes. One row for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    start: u64,
    width: u64,
    /// From the start of a row to the start of the next one.
    pitch: u64,
    count: u64,
}

impl Rows {
    /// A range of bytes.
    pub fn range(start: u64, bytes: u64) -> Self {
        Self { start, width: bytes, pitch: bytes, count: 1 }
    }

    /// Rows of a rectangle. Rows without a gap are a range.
    pub fn of_rectangle(start: u64, width: u64, pitch: u64, count: u64) -> Self {
        if count == 1 || pitch == width {
            return Self::range(start, width.saturating_mul(count));
        }
        Self { start, width, pitch, count }
    }

    pub(super) fn start(self) -> u64 {
        self.start
    }

    pub(super) fn end(self) -> u64 {
        let last = self.pitch.saturating_mul(self.count.saturating_sub(1));
        self.start.saturating_add(last).saturating_add(self.width)
    }

    pub(super) fn bytes(self) -> u64 {
        self.width.saturating_mul(self.count)
    }

    fn is_range(self) -> bool {
        self.count == 1
    }

    /// Returns whether a range has bytes of these rows.
    fn meets_range(self, start: u64, end: u64) -> bool {
        if start >= self.end() || end <= self.start {
            return false;
        }
        if self.is_range() || start <= self.start {
            return true;
        }
        let offset = (start - self.start) % self.pitch;
        let next_row = start - offset + self.pitch;
        offset < self.width || next_row < end && next_row < self.end()
    }

    /// Returns the first byte that both have.
    pub(super) fn meeting(self, other: Self) -> Option<u64> {
        let (few, many) = if self.count <= other.count { (self, other) } else { (other, self) };
        let rows = (0..few.count).map(|row| few.start + row * few.pitch);
        let mut met = rows.filter(|start| many.meets_range(*start, start + few.width));
        met.next().map(|start| start.max(many.start))
    }

    /// Returns whether these rows have all bytes of others.
    fn covers(self, other: Self) -> bool {
        self == other || self.is_range() && self.start <= other.start && self.end() >= other.end()
    }

    /// Returns the part in a range of addresses, which is a range of its own. `None` if there is none.
    pub(super) fn within(self, start: u64, end: u64) -> Option<Self> {
        if self.start >= start && self.end() <= end {
            return Some(self);
        }
        let (start, end) = (self.start.max(start), self.end().min(end));
        (start < end && self.is_range()).then(|| Self::range(start, end - start))
    }
}

/// A call, or work that it submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) epoch: Epoch,
    pub(super) name: Name,
    pub(super) site: Site,
}

/// What a task is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// The function of the API.
    Function(&'static str),
    /// The number of a kernel.
    Kernel(u32),
}

/// An access of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) task: Task,
    pub(super) effect: CallEffect,
    pub(super) rows: Rows,
}

impl Entry {
    /// Returns whether two accesses to a block conflict, if nothing orders them, and at which address.
    fn conflict(&self, other: &Self) -> Option<u64> {
        match (self.effect, other.effect) {
            (CallEffect::Read | CallEffect::Use, CallEffect::Read | CallEffect::Use) => None,
            // A kernel may use another part than a copy writes, unless the copy writes all that it can reach.
            (CallEffect::Use, CallEffect::Write) => other.rows.covers(self.rows).then_some(self.rows.start),
            (CallEffect::Write, CallEffect::Use) => self.rows.covers(other.rows).then_some(other.rows.start),
            _ => self.rows.meeting(other.rows),
        }
    }

    /// Returns whether whatever conflicts with `earlier`, which comes before this, conflicts with this.
    fn replaces(&self, earlier: &Self) -> bool {
        let says_more = self.effect == CallEffect::Write || self.effect == earlier.effect;
        says_more && self.rows.covers(earlier.rows)
    }
}

/// The accesses to a block that may conflict with later ones.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    entries: Vec<Entry>,
    /// Accesses from before a pool handed the memory out again, by its earlier owners.
    previous: Vec<Entry>,
}

/// A conflict with an earlier access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    pub(super) entry: Entry,
    pub(super) address: u64,
    /// Whether the earlier access is an earlier owner's.
    pub(super) is_previous: bool,
}

impl History {
    /// Adds an access. Returns the first conflict.
    pub(super) fn access(&mut self, new: Entry, view: &View<'_>) -> Option<Met> {
        if self.repeats(new.task, new.effect, &new.rows) { None } else { self.add(new, view) }
    }

    /// Notes the common case: a stream uses its block again, and no other stream has written it. Returns `false`, and does nothing,
    /// for others.
    #[inline]
    pub(super) fn repeats(&mut self, task: Task, effect: CallEffect, rows: &Rows) -> bool {
        if !self.previous.is_empty() {
            return false;
        }
        let same = self.same(task.epoch.queue, effect, rows);
        let is_found = same.is_some();
        if let Some(same) = same {
            same.task = task;
        }
        is_found
    }

    /// Adds an access that may conflict with others. Returns the first conflict.
    fn add(&mut self, new: Entry, view: &View<'_>) -> Option<Met> {
        let mut met = self.meet_previous(&new, view);
        self.entries.retain(|entry| {
            let is_before = view.is_after(entry.task.epoch);
            if !is_before
                && met.is_none()
                && let Some(address) = entry.conflict(&new)
            {
                met = Some(Met { entry: *entry, address, is_previous: false });
            }
            let is_replaced = is_before && new.replaces(entry);
            !is_replaced && !view.is_observed(entry.task.epoch)
        });
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(new);
        met
    }

    /// Returns the same access of the same stream, if all accesses to the block are of that stream or do not conflict with it.
    #[inline]
    fn same(&mut self, queue: QueueId, effect: CallEffect, rows: &Rows) -> Option<&mut Entry> {
        let mut found = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let is_own = entry.task.epoch.queue == queue;
            if !is_own && (entry.effect == CallEffect::Write || effect == CallEffect::Write) {
                return None;
            }
            if is_own && entry.effect == effect && entry.rows == *rows {
                found = Some(index);
            }
        }
        // The last access is the last one of the list.
        let found = found?;
        if found + 1 < self.entries.len() {
            self.entries[found..].rotate_left(1);
        }
        self.entries.last_mut()
    }

    /// Returns a conflict with an access of an earlier owner. A new owner writes the memory before it reads it, so that two uses
    /// conflict.
    fn meet_previous(&mut self, new: &Entry, view: &View<'_>) -> Option<Met> {
        if self.previous.is_empty() {
            return None;
        }
        self.previous.retain(|entry| !view.is_observed(entry.task.epoch));
        let unordered = self.previous.iter().filter(|entry| !view.is_after(entry.task.epoch));
        let mut met = unordered.filter(|entry| (entry.effect, new.effect) != (CallEffect::Read, CallEffect::Read));
        met.find_map(|entry| {
            let address = entry.rows.meeting(new.rows)?;
            Some(Met { entry: *entry, address, is_previous: true })
        })
    }

    /// Returns the first access that is not before a free of the whole block.
    pub(super) fn in_use(&self, view: &View<'_>) -> Option<&Entry> {
        self.entries.iter().chain(&self.previous).find(|entry| !view.is_after(entry.task.epoch))
    }

    /// Returns the accesses to a range, which become those of an earlier owner of a part.
    pub(super) fn handed_on(&self, start: u64, end: u64) -> impl Iterator<Item = Entry> {
        let all = self.entries.iter().chain(&self.previous);
        all.filter_map(move |entry| Some(Entry { rows: entry.rows.within(start, end)?, ..*entry }))
    }

    /// Adds accesses of earlier owners.
    pub(super) fn inherit(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.previous.extend(entries);
        let surplus = self.previous.len().saturating_sub(ENTRIES_MAX);
        self.previous.drain(..surplus);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.previous.len()
    }

    /// Forgets the accesses that the host has waited for.
    pub(super) fn forget_observed(&mut self, is_observed: impl Fn(Epoch) -> bool) {
        self.entries.retain(|entry| !is_observed(entry.task.epoch));
        self.previous.retain(|entry| !is_observed(entry.task.epoch));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calls::order::{LegacyOrder, Order, StreamKey, StreamKind};
    use crate::sites;

    #[test]
    fn rows_meet_only_where_both_have_bytes() {
        let left = Rows::of_rectangle(0x1000, 32, 64, 4);
        let right = Rows::of_rectangle(0x1020, 32, 64, 4);
        assert_eq!(left.meeting(right), None);
        assert_eq!(right.meeting(left), None);
        let wide = Rows::of_rectangle(0x1000, 36, 64, 4);
        assert_eq!(wide.meeting(right), Some(0x1020));
        assert_eq!(left.meeting(Rows::range(0x1020, 32)), None);
        assert_eq!(left.meeting(Rows::range(0x1020, 33)), Some(0x1020));
        assert_eq!(left.meeting(Rows::range(0x10e0, 64)), None);
        assert_eq!(Rows::of_rectangle(0x1000, 64, 64, 4), Rows::range(0x1000, 256));
    }

    proptest! {
        #[test]
        fn an_access_that_a_stream_repeats_leaves_what_conflicts(
            steps in proptest::collection::vec((0..3u64, 0..8u32, 0..2u64), 1..60),
        ) {
            let mut order = Order::default();
            let kind = StreamKind { context: 1, order: LegacyOrder::NonBlocking };
            let streams: Vec<_> = (0..3).map(|number| order.add(StreamKey::created(number), kind)).collect();
            let (mut fast, mut exact) = (History::default(), History::default());
            for (stream, what, part) in steps {
                let id = streams[stream as usize];
                match what {
                    0 => order.record(stream, id),
                    1 => order.wait(id, part),
                    2 if part == 0 => {
                        let point = order.point(id);
                        order.observe(&point);
                    }
                    _ => {
                        let effect = [CallEffect::Read, CallEffect::Write, CallEffect::Use, CallEffect::Use][what as usize % 4];
                        let view = order.begin(id);
                        let task = Task { epoch: view.epoch, name: Name::Function("work"), site: sites::capture_again() };
                        let entry = Entry { task, effect, rows: Rows::range(0x1000 + 64 * part, 256) };
                        let (one, other) = (fast.access(entry, &view), exact.add(entry, &view));
                        prop_assert_eq!(one.is_some(), other.is_some());
                        prop_assert_eq!(fast.in_use(&view).is_some(), exact.in_use(&view).is_some());
                    }
                }
            }
        }
    }

    #[test]
    fn a_part_of_rows_is_known_if_it_is_whole_or_a_range() {
        let rows = Rows::of_rectangle(0x1000, 32, 64, 4);
        assert_eq!(rows.within(0, 0x2000), Some(rows));
        assert_eq!(rows.within(0x1040, 0x2000), None);
        assert_eq!(Rows::range(0x1000, 64).within(0x1020, 0x2000), Some(Rows::range(0x1020, 32)));
    }
}
