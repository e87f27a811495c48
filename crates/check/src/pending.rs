//! Merges the accesses of a block to adjacent ranges before they are recorded: one warp often continues where the previous one ended.
//!
//! Spans are recorded in the order in which they began. A byte in several spans was accessed in that order, so the records are the
//! same as for single accesses.

use crate::access::{LANES, Spot, WarpAccess};
use crate::shadow::Effect;

/// How many spans may be open at once: a kernel goes on with each of its arrays in turn.
const SPANS_MAX: usize = 8;

/// A range that threads of a block access, each its part, in ascending order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) effect: Effect,
    /// The bytes of each thread.
    pub(crate) bytes: u64,
    line: u32,
    block: u64,
    /// The thread that accesses the first bytes.
    thread: u32,
    /// The thread that would go on.
    next_thread: u32,
}

impl Span {
    /// All threads of a warp access the range from `start` on.
    #[inline]
    pub(crate) fn new(access: &WarpAccess<'_>, effect: Effect, start: u64) -> Self {
        let thread = access.warp * LANES as u32;
        Self {
            start,
            end: start.saturating_add(LANES as u64 * access.bytes),
            effect,
            bytes: access.bytes,
            line: access.instruction.line,
            block: access.block,
            thread,
            next_thread: thread + LANES as u32,
        }
    }

    /// Returns which thread accesses a byte.
    #[inline]
    pub(crate) fn spot(&self, at: u64) -> Spot {
        let offset = at - self.start;
        let number = match self.bytes.is_power_of_two() {
            true => offset >> self.bytes.trailing_zeros(),
            false => offset / self.bytes,
        };
        Spot::new(self.line, self.block, self.thread + number as u32)
    }

    #[inline]
    fn goes_on_with(&self, next: &Self) -> bool {
        let key = |span: &Self| (span.line, span.block, span.bytes, span.effect);
        (self.end, self.next_thread) == (next.start, next.thread) && key(self) == key(next)
    }

    /// Returns whether the order of the two matters.
    #[inline]
    fn meets(&self, other: &Self) -> bool {
        let has_write = !self.effect.is_read() || !other.effect.is_read();
        has_write && self.start < other.end && other.start < self.end
    }
}

/// The spans that are not recorded yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The oldest first.
    spans: Vec<Span>,
}

impl Pending {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Adds a span. Returns `false`, and does nothing, if the others have to be recorded before.
    #[inline]
    pub(crate) fn add(&mut self, new: &Span) -> bool {
        let Some(index) = self.spans.iter().position(|span| span.goes_on_with(new)) else {
            let has_room = self.spans.len() < SPANS_MAX;
            if has_room {
                self.spans.push(*new);
            }
            return has_room;
        };
        // Spans that began later are recorded later, and have accessed these bytes before.
        let is_in_order = !self.spans[index + 1..].iter().any(|later| later.meets(new));
        if is_in_order {
            self.spans[index].end = new.end;
            self.spans[index].next_thread = new.next_thread;
        }
        is_in_order
    }

    /// Takes all spans, in the order in which they are to be recorded. [`Self::put_back`] keeps their memory.
    #[inline]
    pub(crate) fn take(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.spans)
    }

    #[inline]
    pub(crate) fn put_back(&mut self, mut spans: Vec<Span>) {
        spans.clear();
        self.spans = spans;
    }
}
