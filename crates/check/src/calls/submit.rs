//! Work that the program submits, and the memory that it accesses.

use crate::blocks::BlockKind;
use crate::finding::Kind;
use crate::sites;

use super::checker::{CallChecker, State};
use super::describe::{About, Conflict, Side};
use super::history::{CallEffect, Entry, Met, Name, Rows, Task};
use super::memory::{Block, Memory, Parts};
use super::order::{StreamKey, View};

/// How many blocks of a kernel's arguments are remembered, to recognize the end of one.
const ENDS: usize = 8;

/// A kernel whose name is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(u32);

/// Bytes that work accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What it does.
    pub effect: CallEffect,
    /// Which bytes.
    pub rows: Rows,
}

/// A word of a kernel's arguments that may be an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its value.
    pub value: u64,
    /// Whether it is an argument of its own, not a word of a structure, which may never have been written.
    pub is_whole: bool,
}

/// A kernel, a copy or a fill.
#[derive(Clone, Copy, Debug)]
pub struct Item<'i> {
    /// The kernel.
    pub kernel: Option<KernelId>,
    /// The module or library that has the kernel.
    pub module: Option<u64>,
    /// What a copy or a fill accesses.
    pub accesses: &'i [Access],
    /// What a kernel is given.
    pub arguments: &'i [Argument],
    /// Whether it is a node of a graph.
    pub is_of_graph: bool,
}

impl Entry {
    pub(super) fn bytes(&self) -> Option<u64> {
        (self.effect != CallEffect::Use).then(|| self.rows.bytes())
    }

    fn side(&self) -> Side {
        Side { task: self.task, verb: self.effect.verb(), bytes: self.bytes() }
    }
}

impl CallChecker {
    /// Returns the number of a kernel's name.
    pub fn kernel(&self, name: &str) -> KernelId {
        KernelId(self.describer.kernel(sites::demangled(name)))
    }

    /// Notes that the program submits work to a stream in a call of `function`. Returns `false` for a stream that is not known.
    pub fn submit(&self, function: &'static str, stream: StreamKey, items: &[Item<'_>], is_waited_for: bool) -> bool {
        let site = sites::capture_again();
        let mut state = self.state();
        let Some(id) = state.order.known(stream) else { return false };
        let State { order, memory, module_uses, .. } = &mut *state;
        let mut view = order.begin(id);
        view.is_of_graph = items.iter().any(|item| item.is_of_graph);
        let epoch = view.epoch;
        let mut found = Vec::new();
        for item in items {
            let name = item.kernel.map_or(Name::Function(function), |kernel| Name::Kernel(kernel.0));
            let task = Task { epoch, name, site };
            for access in item.accesses {
                memory.access(Entry { task, effect: access.effect, rows: access.rows }, &view, &mut found);
            }
            memory.use_all(task, item.arguments, &view, &mut found);
            if let Some(module) = item.module {
                module_uses.add(module, epoch);
            }
        }
        if is_waited_for {
            let point = order.point(id);
            order.observe(&point);
        }
        drop(state);
        found.iter().for_each(|conflict| self.describer.conflict(conflict));
        true
    }

    /// Returns the kind of the memory at an address, if the program has allocated it.
    pub fn memory_kind(&self, address: u64) -> Option<BlockKind> {
        let state = self.state();
        if !state.memory.may_have(address) {
            return None;
        }
        state.memory.live.around(address).map(|block| block.kind)
    }
}

impl Memory {
    /// Notes an access to known bytes.
    fn access(&mut self, entry: Entry, view: &View<'_>, found: &mut Vec<Conflict>) {
        let start = entry.rows.start();
        let Some(block) = self.live.around_mut(start) else {
            if let Some(freed) = self.freed(start) {
                found.extend(after_free(freed, entry.side(), start));
            }
            return;
        };
        found.extend(before_allocation(block, entry.side(), start, view));
        if let Some(parts) = &mut block.parts {
            return parts.access(entry, view, found);
        }
        if let Some(rows) = entry.rows.within(block.range.start, block.range.end) {
            block.access(Entry { rows, ..entry }, view, found);
        }
    }

    /// Notes that a kernel may use the blocks that its arguments point into.
    fn use_all(&mut self, task: Task, arguments: &[Argument], view: &View<'_>, found: &mut Vec<Conflict>) {
        // Those of the first arguments; later ones take the place of earlier ones.
        let mut ends = Ends { all: [0; ENDS], count: 0 };
        for argument in arguments {
            let address = argument.value;
            if !self.may_have(address) {
                continue;
            }
            let whole = Side { task, verb: CallEffect::Use.verb(), bytes: None };
            let Some(block) = self.live.around_mut(address) else {
                if argument.is_whole
                    && !ends.contains(address)
                    && let Some(freed) = self.freed(address)
                {
                    found.extend(after_free(freed, whole, address));
                }
                continue;
            };
            // The end of one block may be the start of the next.
            if block.range.start == address && ends.contains(address) {
                continue;
            }
            ends.add(block.range.end);
            if !view.is_after(block.allocated.epoch) {
                found.extend(before_allocation(block, whole, address, view));
            }
            let block = match &mut block.parts {
                None => block,
                Some(parts) => match parts.live.around_mut(address) {
                    Some(part) if part.range.start != address || !ends.contains(address) => {
                        ends.replace_last(part.range.end);
                        part
                    }
                    Some(_) => continue,
                    None => match parts.released.around_mut(address) {
                        Some(released) if argument.is_whole && !ends.contains(address) => {
                            if !released.is_kept(view) {
                                found.extend(after_free(released, whole, address));
                                continue;
                            }
                            ends.replace_last(released.range.end);
                            released
                        }
                        _ => continue,
                    },
                },
            };
            let rows = Rows::range(address, block.range.end - address);
            if !block.history.repeats(task, CallEffect::Use, &rows) {
                block.access(Entry { task, effect: CallEffect::Use, rows }, view, found);
            }
        }
    }
}

/// The ends of the blocks that the last arguments of a kernel point into.
struct Ends {
    all: [u64; ENDS],
    count: usize,
}

impl Ends {
    #[inline]
    fn contains(&self, address: u64) -> bool {
        self.all[..self.count.min(ENDS)].contains(&address)
    }

    #[inline]
    fn add(&mut self, end: u64) {
        self.all[self.count % ENDS] = end;
        self.count += 1;
    }

    fn replace_last(&mut self, end: u64) {
        self.all[(self.count - 1) % ENDS] = end;
    }
}

impl Parts {
    /// Notes an access to known bytes of a block whose parts a pool hands out.
    fn access(&mut self, entry: Entry, view: &View<'_>, found: &mut Vec<Conflict>) {
        let (start, end) = (entry.rows.start(), entry.rows.end());
        let mut at = start;
        let mut last: Option<&Block> = None;
        while at < end {
            if let Some(part) = self.live.around_mut(at) {
                let (part_start, part_end) = (part.range.start, part.range.end);
                if let Some(rows) = entry.rows.within(part_start, part_end) {
                    part.access(Entry { rows, ..entry }, view, found);
                }
                at = part_end;
            } else if let Some(part) = self.released.around_mut(at) {
                let part_range = part.range.clone();
                if part.is_kept(view) {
                    if let Some(rows) = entry.rows.within(part_range.start, part_range.end) {
                        part.access(Entry { rows, ..entry }, view, found);
                    }
                    at = part_range.end;
                    continue;
                }
                if entry.rows.within(part.range.start, part.range.end).is_some() {
                    found.extend(after_free(part, entry.side(), at));
                }
                return;
            } else {
                // A pool may do what it wants with memory that it has not handed out, but not from a block into it.
                last = (at > start).then(|| self.live.around(at - 1)).flatten();
                break;
            }
        }
        if let Some(part) = last {
            let first =
                Side { task: part.allocated, verb: "allocates", bytes: Some(part.range.end - part.range.start) };
            let about = About::new(part, part.range.end - 1);
            found.push(Conflict { kind: Kind::OutOfBounds, first, second: entry.side(), about });
        }
    }
}

impl Block {
    /// Returns whether the memory is a graph's although the pool has it.
    fn is_kept(&self, view: &View<'_>) -> bool {
        self.is_of_capture && view.is_of_graph
    }

    fn access(&mut self, entry: Entry, view: &View<'_>, found: &mut Vec<Conflict>) {
        if let Some(Met { entry: first, address, is_previous }) = self.history.access(entry, view) {
            let kind = if is_previous { Kind::ReuseRace } else { Kind::StreamRace };
            let about = About::new(self, address.clamp(self.range.start, self.range.end - 1));
            found.push(Conflict { kind, first: first.side(), second: entry.side(), about });
        }
    }

    /// Returns the first access to the block or to its parts that is not before a free.
    pub(super) fn in_use(&self, view: &View<'_>) -> Option<&Entry> {
        let parts = self.parts.iter().flat_map(|parts| parts.live.values().chain(parts.released.values()));
        self.history.in_use(view).or_else(|| parts.into_iter().find_map(|part| part.history.in_use(view)))
    }
}

/// Returns what is wrong with an access to a freed block.
fn after_free(block: &Block, second: Side, address: u64) -> Option<Conflict> {
    let task = block.freed?;
    let kind = if block.kind == BlockKind::Host { Kind::HostMemoryFreed } else { Kind::UseAfterFree };
    let first = Side { task, verb: "frees", bytes: Some(block.range.end - block.range.start) };
    Some(Conflict { kind, first, second, about: About::new(block, address) })
}

/// Returns what is wrong with an access if it is not ordered after the allocation of its block.
fn before_allocation(block: &Block, second: Side, address: u64, view: &View<'_>) -> Option<Conflict> {
    if view.is_after(block.allocated.epoch) {
        return None;
    }
    let first = Side { task: block.allocated, verb: "allocates", bytes: Some(block.range.end - block.range.start) };
    Some(Conflict { kind: Kind::UseBeforeAllocation, first, second, about: About::new(block, address) })
}
