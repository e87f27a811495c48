//! The units of a page of memory, or of the shared memory of a block.

use super::cell::How;
use super::clock::BlockClock;
use super::pattern::{Pattern, Segment, UNITS};
use super::slot::Slot;
use crate::access::{AccessKind, LANES, WarpAccess, representative_lanes};

pub(crate) const WORD_BYTES: u64 = 4;

/// The size of a word as a power of two: units are words until a part of one is accessed, then bytes.
const WORD_SHIFT: u32 = WORD_BYTES.trailing_zeros();

/// Adjacent lanes of a warp that access a range of one page, each its part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// The access of the first lane.
    pub(crate) slot: Slot,
    /// The bytes of each lane.
    pub(crate) bytes: u64,
    /// The number of lanes.
    pub(crate) lanes: u64,
    /// Where the first lane begins in the page.
    pub(crate) start: u64,
    /// How many of its bytes are in an earlier page: then it is the only one.
    pub(crate) skipped: u64,
    /// A bit for each lane, from the first on, that wrote what the memory already had.
    pub(crate) unchanged: u32,
}

impl Run {
    fn end(&self) -> u64 {
        self.start + self.lanes * self.bytes - self.skipped
    }

    /// Returns the number of the lane that accesses a byte of the page.
    fn lane(&self, at: u64) -> u64 {
        match at + self.skipped - self.start {
            0 => 0,
            offset if self.bytes.is_power_of_two() => offset >> self.bytes.trailing_zeros(),
            offset => offset / self.bytes,
        }
    }
}

/// What is known of a page.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: u64,
    segments: Vec<Segment>,
    unit_shift: u32,
}

/// A race with an earlier access: its place in the page, and the lane of the run.
pub(crate) struct Met {
    pub(crate) at: u64,
    pub(crate) lane: u64,
    pub(crate) first: Slot,
    pub(crate) kind: AccessKind,
}

impl Page {
    pub(crate) fn new(bytes: u64) -> Self {
        let mut segments = Vec::new();
        segments.resize_with(bytes.div_ceil(WORD_BYTES).div_ceil(UNITS as u64) as usize, || Segment::EMPTY);
        Self { bytes, segments, unit_shift: WORD_SHIFT }
    }

    /// Makes bytes the units.
    #[cold]
    fn split(&mut self) {
        if self.unit_shift != 0 {
            self.segments = self.segments.iter().flat_map(Segment::split).collect();
            self.unit_shift = 0;
        }
    }

    /// Records the access of a run. Returns a race, that of the first lane and byte if there are several.
    #[inline]
    pub(crate) fn access(&mut self, clock: &BlockClock, how: How, run: &Run) -> Option<Met> {
        let (mut at, end) = (run.start, run.end().min(self.bytes));
        if !(at | end).is_multiple_of(WORD_BYTES) || !run.bytes.is_multiple_of(WORD_BYTES) {
            self.split();
        }
        let unit = self.unit_shift;
        let is_even = run.bytes.is_power_of_two() && run.start.is_multiple_of(run.bytes) && run.skipped == 0;
        let shift = (is_even && run.lanes > 1).then(|| run.bytes.trailing_zeros().wrapping_sub(unit));
        // One pattern cannot say that threads share a unit, or have parts of different sizes.
        let is_pattern = run.lanes == 1 || is_even;
        let segment_bytes = (UNITS as u64) << unit;
        let mut met = None;
        while at < end {
            let index = at / segment_bytes;
            let start = index * segment_bytes;
            let next = (start + segment_bytes).min(end);
            let segment = &mut self.segments[index as usize];
            let mut slot = run.slot;
            slot.thread_and_kind += run.lane(at) as u16;
            let (first, last) = (((at - start) >> unit) as usize, ((next - start) >> unit) as usize);
            if !(is_pattern && segment.record(clock, how, &Pattern::new(slot, first, last, shift))) {
                let lane_of = |index: usize| run.lane(at.max(start + ((index as u64) << unit)));
                let slot_of = |index: usize| {
                    let lane = lane_of(index);
                    let thread_and_kind = run.slot.thread_and_kind + lane as u16;
                    (Slot { thread_and_kind, ..run.slot }, how.is_write && run.unchanged >> lane & 1 != 0)
                };
                segment.record_units(clock, how, first..last, slot_of, |index, (first, kind)| {
                    let at = start + ((index as u64) << unit);
                    met.get_or_insert(Met { at, lane: lane_of(index), first, kind });
                });
            }
            at = next;
        }
        met
    }

    /// Makes every byte a cell of its own.
    #[cfg(test)]
    pub(crate) fn use_cells(&mut self) {
        self.split();
        self.segments.iter_mut().for_each(|segment| _ = segment.cells());
    }

    /// Forgets the accesses to a range of the page.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        if !(from | to).is_multiple_of(WORD_BYTES) {
            self.split();
        }
        for unit in from >> self.unit_shift..to >> self.unit_shift {
            self.segments[unit as usize / UNITS].forget(1 << (unit as usize % UNITS));
        }
    }
}

/// Calls `run` with each group of lanes that access adjacent ranges: the first lane, and their number.
#[inline]
pub(crate) fn for_each_run(access: &WarpAccess<'_>, mut run: impl FnMut(u32, u32)) {
    if access.range_start().is_some() {
        return run(0, LANES as u32);
    }
    let mut lanes = representative_lanes(access);
    while lanes != 0 {
        let first = lanes.trailing_zeros();
        let count = adjacent(access, first, lanes);
        let done = if count == LANES as u32 { u32::MAX } else { (1 << count) - 1 };
        lanes &= !(done << first);
        run(first, count);
    }
}

/// Returns the number of lanes, from the first one on, of which each begins where the one before ends.
#[inline]
fn adjacent(access: &WarpAccess<'_>, first: u32, lanes: u32) -> u32 {
    let mut count = 1;
    let mut next = access.addresses[first as usize].wrapping_add(access.bytes);
    while first + count < LANES as u32
        && lanes >> (first + count) & 1 != 0
        && access.addresses[(first + count) as usize] == next
    {
        next = next.wrapping_add(access.bytes);
        count += 1;
    }
    count
}
