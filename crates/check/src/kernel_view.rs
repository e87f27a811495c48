//! Records the accesses of a block of a kernel.

use crate::access::{AccessKind, LANES, Race, Spot, WarpAccess};
use crate::checker::Checker;
use crate::clock::Epoch;
use crate::finding::{Finding, Kind};
use crate::pending::{Pending, Span};
use crate::report::Place;
use crate::shadow::{Conflict, Effect, LINE_BYTES, Record, ShadowView, mask_of};
use crate::shared::UnwrittenRead;
use crate::tasks::{Task, TaskId, TaskView};

/// How many tasks a view remembers, with whether they happen before its own.
const KNOWN: usize = 4;

/// The accesses of a block of a kernel.
#[derive(Debug)]
pub struct KernelView<'c> {
    checker: &'c Checker,
    view: TaskView,
    shadow: ShadowView<'c>,
    known: [(TaskId, bool); KNOWN],
    pending: Pending,
    /// Whether it waits for the host.
    is_polling: bool,
    /// Whether it has published what it did: then a write may be what others wait for.
    has_fenced: bool,
}

/// Returns whether a task happens before that of a view.
#[inline]
fn is_known_before(checker: &Checker, view: &TaskView, known: &mut [(TaskId, bool); KNOWN], task: TaskId) -> bool {
    match known.iter().find(|(known, _)| *known == task) {
        Some(&(_, is_before)) => is_before,
        None => {
            let is_before = checker.tasks().is_before(task, view);
            known.rotate_right(1);
            known[0] = (task, is_before);
            is_before
        }
    }
}

/// Whether an access that met a record may have read other bytes that have no value. Of memory that is freed or not yet allocated, none has.
fn may_hide_undefined(effect: Effect, record: &Record) -> bool {
    effect == Effect::Read && matches!(record.effect, Effect::Write | Effect::Atomic)
}

impl<'c> KernelView<'c> {
    /// Returns a view for a block of the kernel that is a task.
    pub fn new(checker: &'c Checker, view: TaskView) -> Self {
        let shadow = checker.shadow_view(&view);
        let (known, pending) = ([(TaskId(0), false); KNOWN], Pending::default());
        Self { checker, view, shadow, known, pending, is_polling: false, has_fenced: false }
    }

    /// Returns the place of the kernel in its stream.
    pub fn epoch(&self) -> Epoch {
        self.task().epoch
    }

    /// Threads of a warp access global memory. [`flush`](Self::flush) must be called before the end of the slice.
    pub fn access(&mut self, access: &WarpAccess<'_>) {
        if access.is_strong || access.kind == AccessKind::Atomic {
            self.flush();
            self.has_fenced |= access.is_ordering;
        }
        let effect = match access.kind {
            // Which write it sees decides what it is ordered after.
            AccessKind::Read if access.is_strong => {
                let first = access.addresses[access.lanes.trailing_zeros() as usize % LANES];
                self.is_polling = self.is_polling || self.checker.poll(&self.view, first);
                return;
            }
            AccessKind::Write if access.is_strong => Effect::Atomic,
            kind => kind.into(),
        };
        let needs_value = access.kind == AccessKind::Atomic;
        if !needs_value && let Some(start) = access.range_start() {
            let span = Span::new(access, effect, start);
            let is_seen = effect != Effect::Read && self.has_fenced || effect == Effect::Atomic;
            if is_seen || !self.pending.add(&span) {
                self.flush();
                if is_seen || !self.pending.add(&span) {
                    self.touch_span(&span);
                }
            }
            return;
        }
        self.flush();
        let mut left = access.lanes;
        while left != 0 {
            let first = left.trailing_zeros();
            let start = access.addresses[first as usize] / LINE_BYTES * LINE_BYTES;
            let mut mask = 0;
            // The lanes in the same line, which are neighbors in most kernels.
            while left != 0 {
                let lane = left.trailing_zeros();
                let offset = access.addresses[lane as usize].wrapping_sub(start);
                if offset >= LINE_BYTES {
                    break;
                }
                mask |= mask_of(offset, access.bytes);
                left &= left - 1;
            }
            let spot = access.spot(first);
            if needs_value && self.shadow.undefined(start) & mask != 0 {
                self.report_undefined(access, start);
            }
            match self.touch(effect, spot, start, mask) {
                None => {}
                Some(Conflict::Undefined) => self.report_undefined(access, start),
                Some(Conflict::With(record)) => {
                    self.report(effect, spot, start, mask, record);
                    if may_hide_undefined(effect, &record) {
                        self.report_undefined(access, start);
                    }
                }
            }
        }
    }

    /// Records what is not recorded yet.
    #[inline]
    pub fn flush(&mut self) {
        if !self.pending.is_empty() {
            let spans = self.pending.take();
            spans.iter().for_each(|span| self.touch_span(span));
            self.pending.put_back(spans);
        }
    }

    /// A thread executes a fence.
    pub fn fence(&mut self) {
        self.flush();
        self.has_fenced = true;
    }

    fn touch_span(&mut self, span: &Span) {
        let Self { checker, view, shadow, known, .. } = self;
        let is_before = &mut |task| is_known_before(checker, view, known, task);
        let mut conflicts = Vec::new();
        let found = &mut |at, conflict| conflicts.push((at, conflict));
        let bytes = span.end - span.start;
        shadow.touch_span(span.start, bytes, span.effect, &mut |at| span.spot(at), is_before, found);
        for (at, conflict) in conflicts {
            let line = at / LINE_BYTES * LINE_BYTES;
            match conflict {
                Conflict::Undefined => self.report_undefined_element(span, line),
                Conflict::With(record) => {
                    let mask = mask_of(at - line, span.end - at);
                    self.report(span.effect, span.spot(at), line, mask, record);
                    if may_hide_undefined(span.effect, &record) {
                        self.report_undefined_element(span, line);
                    }
                }
            }
        }
    }

    #[inline]
    fn touch(&mut self, effect: Effect, spot: Spot, start: u64, mask: u64) -> Option<Conflict> {
        let Self { checker, view, shadow, known, .. } = self;
        shadow.touch_line(start, mask, effect, spot, &mut |task| is_known_before(checker, view, known, task))
    }

    #[cold]
    fn report(&mut self, effect: Effect, spot: Spot, start: u64, mask: u64, record: Record) {
        let common = record.mask & mask;
        let common = if common == 0 { mask } else { common };
        let address = start + u64::from(common.trailing_zeros());
        self.checker.report_conflict(&self.view, effect, spot, address, u64::from(common.count_ones()), record);
    }

    /// Writes a finding about a thread that reads nothing but undefined bytes of the line at `start`. Others may read padding.
    #[cold]
    fn report_undefined(&mut self, access: &WarpAccess<'_>, start: u64) {
        let lanes = (0..LANES as u32).filter(|lane| access.lanes >> lane & 1 != 0);
        let reads = lanes.map(|lane| (access.addresses[lane as usize], access.spot(lane)));
        self.report_undefined_read(start, access.bytes, reads);
    }

    /// The same for a thread of a span.
    #[cold]
    fn report_undefined_element(&mut self, span: &Span, start: u64) {
        let first = start.saturating_sub(span.start).next_multiple_of(span.bytes);
        let elements = (span.start + first..span.end).step_by(span.bytes as usize);
        let reads = elements.take_while(|at| *at < start + LINE_BYTES).map(|at| (at, span.spot(at)));
        self.report_undefined_read(start, span.bytes, reads);
    }

    fn report_undefined_read(&mut self, start: u64, bytes: u64, mut reads: impl Iterator<Item = (u64, Spot)>) {
        let undefined = self.shadow.undefined(start);
        let is_undefined = |&(at, _): &(u64, Spot)| {
            let offset = at.wrapping_sub(start);
            let mask = if offset < LINE_BYTES { mask_of(offset, bytes) } else { 0 };
            mask != 0 && undefined & mask == mask
        };
        let Some((address, spot)) = reads.find(is_undefined) else { return };
        if self.checker.is_handed_out_later(&self.view, address) {
            return;
        }
        let message = format!("{} reads memory that was never written", self.task().origin.name());
        let action = format!("reads {bytes} bytes");
        self.checker.report_kernel(&self.view, Kind::UninitializedRead, spot, action, message, Some(address));
    }

    fn task(&self) -> Task {
        self.checker.tasks().get(self.view.id)
    }

    /// Writes a finding about a thread that reads shared memory that its block has not written.
    #[cold]
    pub fn report_unwritten_read(&mut self, read: &UnwrittenRead) {
        let message = format!("{} reads shared memory that its block never wrote", self.task().origin.name());
        let action = format!("reads {} bytes of shared memory at offset {}", read.bytes, read.offset);
        let spot = read.access.spot();
        self.checker.report_kernel(&self.view, Kind::UninitializedRead, spot, action, message, None);
    }

    /// Writes a finding about two threads of a block that race on its shared memory.
    #[cold]
    pub fn report_shared_race(&mut self, race: &Race) {
        let (first, second) = (race.first, race.second);
        let message = format!(
            "thread {} of a block {} a byte of shared memory that thread {} {}, and no barrier is in between",
            second.thread,
            second.kind.verb(),
            first.thread,
            first.kind.verb()
        );
        let advice = "Call __syncthreads (within a warp: __syncwarp) between the two accesses.";
        let action = |kind: AccessKind| format!("{} shared memory at offset {}", kind.verb(), race.address);
        let sides = [(second.spot(), action(second.kind)), (first.spot(), action(first.kind))];
        self.report_threads(Kind::SharedRace, &message, advice, sides, None);
    }

    /// Writes a finding about two threads of the kernel that race on global memory.
    #[cold]
    pub fn report_global_race(&mut self, race: &Race) {
        let (first, second) = (race.first, race.second);
        let is_one_block = first.block == second.block;
        let of_block = |block: u64| if is_one_block { String::new() } else { format!(" of block {block}") };
        let message = format!(
            "thread {}{} {} what thread {}{} {}, and nothing orders them",
            second.thread,
            of_block(second.block),
            second.kind.verb(),
            first.thread,
            of_block(first.block),
            first.kind.verb()
        );
        let advice = if is_one_block {
            "Call __syncthreads between the two accesses, or use an atomic function."
        } else {
            "Use an atomic function, or publish with __threadfence and a flag that is read atomically."
        };
        let sides = [second, first].map(|side| (side.spot(), side.kind.verb().to_owned()));
        self.report_threads(Kind::GlobalRace, &message, advice, sides, Some(race.address));
    }

    /// Writes a finding about a barrier that threads of a block did not reach together.
    #[cold]
    pub fn report_divergence(&mut self, arrived: Spot, missing: Spot, has_ended: bool) {
        let does = if has_ended { "has ended without reaching it" } else { "waits at another one" };
        let message = format!(
            "thread {} of a block waits at a barrier, and thread {} {does}",
            arrived.thread(),
            missing.thread()
        );
        let advice = "Let all threads of the block reach the same __syncthreads: move it out of the condition.";
        let waits = "waits at a barrier".to_owned();
        let sides = [(arrived, waits.clone()), (missing, if has_ended { "ends".to_owned() } else { waits })];
        self.report_threads(Kind::BarrierDivergence, &message, advice, sides, None);
    }

    /// Writes a finding about two threads of the kernel, with what each of them does.
    fn report_threads(
        &self,
        kind: Kind,
        message: &str,
        advice: &str,
        [(spot, action), (other, other_action)]: [(Spot, String); 2],
        address: Option<u64>,
    ) {
        let task = self.task();
        let reporter = self.checker.reporter();
        reporter.report_pair(kind, [spot, other].map(|spot| Place::new(&task.origin, spot)), || Finding {
            advice: Some(advice.to_owned()),
            access: Some(reporter.access(&task, action, spot)),
            other: Some(reporter.access(&task, other_action, other)),
            memory: address.and_then(|address| self.checker.memory_at(address)),
            ..Finding::new(kind, format!("in {}, {message}", task.origin.name()))
        });
    }
}

#[cfg(test)]
mod tests;
