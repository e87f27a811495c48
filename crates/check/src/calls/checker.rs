//! Receives the program's calls, except those that submit work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::blocks::BlockKind;
use crate::clock::{Epoch, QueueId};
use crate::empty_parts::EmptyParts;
use crate::finding::{Finding, Kind};
use crate::report::Reporter;
use crate::sites;
use crate::wrong_free::{self, Around, FreeFunction};

use super::describe::{About, Conflict, Describer, Leak, Side};
use super::history::{Name, Task};
use super::memory::{Block, Memory, Owner};
use super::order::{Order, Point, StreamKey, StreamKind};

/// The checker of the calls of a process.
#[derive(Debug)]
pub struct CallChecker {
    state: Mutex<State>,
    pub(super) describer: Describer,
    /// Whether the device has failed: the program cannot free anything afterwards.
    is_failed: AtomicBool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) order: Order,
    pub(super) memory: Memory,
    empty_parts: EmptyParts,
    /// The captures that are not ended, by their streams.
    captures: HashMap<QueueId, Task>,
    pub(super) module_uses: ModuleUses,
}

/// For each module, the last work of each stream that runs its code. The module that was used last comes first.
#[derive(Debug, Default)]
pub(super) struct ModuleUses(Vec<(u64, Vec<Epoch>)>);

impl ModuleUses {
    pub(super) fn add(&mut self, module: u64, epoch: Epoch) {
        let index = self.0.iter().position(|(known, _)| *known == module).unwrap_or_else(|| {
            self.0.push((module, Vec::new()));
            self.0.len() - 1
        });
        self.0.swap(0, index);
        let uses = &mut self.0[0].1;
        match uses.iter_mut().find(|known| known.queue == epoch.queue) {
            Some(known) => *known = epoch,
            None => uses.push(epoch),
        }
    }

    fn remove(&mut self, module: u64) -> Vec<Epoch> {
        let index = self.0.iter().position(|(known, _)| *known == module);
        index.map(|index| self.0.swap_remove(index).1).unwrap_or_default()
    }

    fn forget(&mut self, is_observed: impl Fn(Epoch) -> bool) {
        self.0.iter_mut().for_each(|(_, uses)| uses.retain(|epoch| !is_observed(*epoch)));
    }
}

/// What a call waits for: work that was submitted before it.
#[derive(Clone, Debug, Default)]
pub struct Awaited(pub(super) Vec<Point>);

/// How a call frees memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOrder {
    /// In the order of a stream.
    Stream(StreamKey),
    /// It waits for all work of the context. Memory of the driver's pools is freed at once.
    Device,
    /// It may wait for all work of the context, but does not promise it.
    Host,
}

/// A block that is being freed.
#[derive(Debug)]
pub struct Freeing {
    address: u64,
    block: Option<Box<Block>>,
    conflict: Option<Conflict>,
    order: FreeOrder,
    task: Task,
}

impl Freeing {
    /// Returns whether the free waits for all work of the context.
    pub fn waits(&self) -> bool {
        let is_pooled = self.block.as_ref().is_some_and(|block| block.is_pooled);
        !matches!(self.order, FreeOrder::Stream(_)) && !is_pooled
    }
}

impl CallChecker {
    /// Creates a checker that passes each finding to `write` once.
    pub fn new(write: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        let state = State {
            order: Order::default(),
            memory: Memory::default(),
            empty_parts: EmptyParts::default(),
            captures: HashMap::new(),
            module_uses: ModuleUses::default(),
        };
        let describer = Describer::new(Reporter::new(write));
        Self { state: Mutex::new(state), describer, is_failed: AtomicBool::new(false) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many streams and how many accesses to one block are known, at most.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        let state = self.state();
        let accesses = state.memory.live.values().map(|block| block.history.len()).max();
        (state.order.len(), accesses.unwrap_or_default())
    }

    /// Notes that kernels have faulted: leaks are not reported any more.
    pub fn fail(&self) {
        self.is_failed.store(true, Ordering::Relaxed);
    }

    /// Returns whether a stream is known.
    pub fn knows_stream(&self, key: StreamKey) -> bool {
        self.state().order.known(key).is_some()
    }

    /// Notes a stream that the program has created.
    pub fn create_stream(&self, key: StreamKey, kind: StreamKind) {
        let mut state = self.state();
        let id = state.order.add(key, kind);
        self.describer.reporter.number_stream(id);
    }

    /// Notes a default stream.
    pub fn name_stream(&self, key: StreamKey, kind: StreamKind, name: &str) {
        let mut state = self.state();
        if state.order.known(key).is_none() {
            let id = state.order.add(key, kind);
            self.describer.reporter.name_stream(id, name);
        }
    }

    /// Notes that a stream is destroyed.
    pub fn destroy_stream(&self, key: StreamKey) {
        let state = &mut *self.state();
        let id = state.order.known(key);
        state.captures.retain(|queue, _| Some(*queue) != id);
        if state.order.remove(key) {
            state.forget_dead_streams();
        }
    }

    /// Notes that a thread ends, with its default streams.
    pub fn end_thread(&self, thread: u64) {
        let mut state = self.state();
        if state.order.remove_thread(thread) {
            state.forget_dead_streams();
        }
    }

    /// Notes that an event is recorded in a stream.
    pub fn record_event(&self, event: u64, key: StreamKey) {
        let mut state = self.state();
        if let Some(id) = state.order.known(key) {
            state.order.record(event, id);
        }
    }

    /// Notes that an event is recorded after all work of a context, in the order of one of its streams.
    pub fn record_after_all(&self, event: u64, context: u64, key: StreamKey) {
        let mut state = self.state();
        let points = state.order.points_of(context);
        if let Some(id) = state.order.known(key) {
            state.order.record_after(event, id, &points);
        }
    }

    /// Forgets what an event was recorded after: it becomes part of a graph.
    pub fn forget_event(&self, event: u64) {
        self.state().order.forget_event(event);
    }

    /// Notes that an event is destroyed.
    pub fn destroy_event(&self, event: u64) {
        self.state().order.destroy_event(event);
    }

    /// Notes that something else than this process may record an event, so that a wait for it may come after anything.
    pub fn share_event(&self, event: u64) {
        self.state().order.share_event(event);
    }

    /// Notes that a stream waits for an event.
    pub fn wait_event(&self, key: StreamKey, event: u64) {
        let mut state = self.state();
        if let Some(id) = state.order.known(key) {
            state.order.wait(id, event);
        }
    }

    /// Notes that a stream waits for something that other code may signal, such as a word in memory. It may come after anything.
    pub fn wait_memory(&self, key: StreamKey) {
        let mut state = self.state();
        if let Some(id) = state.order.known(key) {
            state.order.wait_for_memory(id);
        }
    }

    /// Returns what a call that waits for a stream waits for.
    pub fn stream_so_far(&self, key: StreamKey) -> Awaited {
        let mut state = self.state();
        let id = state.order.known(key);
        Awaited(id.map(|id| state.order.point(id)).into_iter().collect())
    }

    /// Returns what a call that waits for a context waits for.
    pub fn context_so_far(&self, context: u64) -> Awaited {
        Awaited(self.state().order.points_of(context))
    }

    /// Returns what a call that waits for all contexts waits for.
    pub fn everything_so_far(&self) -> Awaited {
        Awaited(self.state().order.points())
    }

    /// Returns what a call that waits for an event waits for.
    pub fn event_so_far(&self, event: u64) -> Awaited {
        Awaited(self.state().order.points_of_event(event))
    }

    /// Notes that the host knows that work has completed.
    pub fn observe(&self, awaited: &Awaited) {
        if !awaited.0.is_empty() {
            let mut state = self.state();
            awaited.0.iter().for_each(|point| state.order.observe(point));
        }
    }

    /// Notes an allocation.
    pub fn allocate(&self, function: &'static str, owner: Owner, address: u64, bytes: u64, kind: BlockKind) {
        let site = sites::capture_again();
        let state = &mut *self.state();
        let id = match owner {
            Owner::Pool(key) => state.order.known(key),
            Owner::Context(_) | Owner::Mapping => None,
        };
        let epoch = match id {
            Some(id) => state.order.begin(id).epoch,
            None => state.order.begin_on_host().epoch,
        };
        let allocated = Task { epoch, name: Name::Function(function), site };
        state.memory.allocate(Box::new(Block::new(address..address.saturating_add(bytes), kind, owner, allocated)));
    }

    /// Takes a block out, before the call that frees it: another thread may get its address when the call returns.
    pub fn begin_free(&self, function: &'static str, address: u64, order: FreeOrder) -> Freeing {
        let site = sites::capture_again();
        let state = &mut *self.state();
        let id = match order {
            FreeOrder::Stream(key) => state.order.known(key),
            FreeOrder::Device | FreeOrder::Host => None,
        };
        let view = match id {
            Some(id) => state.order.begin(id),
            None => state.order.begin_on_host(),
        };
        let task = Task { epoch: view.epoch, name: Name::Function(function), site };
        let block = state.memory.live.remove(address);
        let conflict = block.as_ref().filter(|block| order != FreeOrder::Device || block.is_pooled).and_then(|block| {
            let kind = match block.kind {
                BlockKind::Host => Kind::HostMemoryFreed,
                BlockKind::Imported => Kind::IpcClosed,
                _ => Kind::FreeInUse,
            };
            let second = Side { task, verb: "frees", bytes: Some(block.range.end - block.range.start) };
            let first = match block.in_use(&view) {
                Some(entry) => Side { task: entry.task, verb: entry.effect.verb(), bytes: entry.bytes() },
                None if !view.is_after(block.allocated.epoch) => {
                    Side { task: block.allocated, verb: "allocates", bytes: second.bytes }
                }
                None => return None,
            };
            Some(Conflict { kind, first, second, about: About::new(block, address) })
        });
        Freeing { address, block, conflict, order, task }
    }

    /// Notes that the call has freed the block.
    pub fn finish_free(&self, freeing: Freeing) {
        let Freeing { block, conflict, task, .. } = freeing;
        let Some(mut block) = block else { return };
        block.freed = Some(task);
        self.state().memory.keep_freed(block);
        if let Some(conflict) = conflict {
            self.describer.conflict(&conflict);
        }
    }

    /// Notes that the call was refused. `is_wrong`: because of the address.
    pub fn refuse_free(&self, freeing: Freeing, is_wrong: bool) {
        let Freeing { address, block, order, task, .. } = freeing;
        let mut state = self.state();
        if let Some(block) = block {
            state.memory.live.insert(block);
        }
        if is_wrong {
            self.report_wrong_free(state, task, address, FreeFunction::of_driver(order == FreeOrder::Host));
        }
    }

    /// Notes that nothing is mapped to addresses any more.
    pub fn unmap(&self, address: u64, bytes: u64) {
        self.state().memory.forget_within(address..address.saturating_add(bytes));
    }

    /// Notes that a pool hands out a block. Null pointers and blocks without bytes are ignored, and so are their frees.
    pub fn hand_out(&self, function: &'static str, address: u64, bytes: u64) {
        let site = sites::capture_again();
        let state = &mut *self.state();
        if state.empty_parts.hand_out(address, bytes) {
            return;
        }
        let epoch = state.order.begin_on_host().epoch;
        if let Some(block) = state.memory.live.around_mut(address) {
            let end = address.saturating_add(bytes).min(block.range.end);
            let is_captured = !state.captures.is_empty();
            block.hand_out(address..end, Task { epoch, name: Name::Function(function), site }, is_captured);
        }
    }

    /// Notes that a block goes back to its pool. Ignored, as by [`Self::hand_out`], in memory whose allocation was not seen.
    pub fn release(&self, function: &'static str, address: u64) {
        let site = sites::capture_again();
        let mut state = self.state();
        if state.empty_parts.release(address) {
            return;
        }
        let task = Task { epoch: state.order.begin_on_host().epoch, name: Name::Function(function), site };
        let block = state.memory.live.around_mut(address);
        let is_released = block.is_some_and(|block| block.release(address, task));
        if !is_released && state.memory.around(address).is_some() {
            self.report_wrong_free(state, task, address, FreeFunction::Pool);
        }
    }

    /// Notes that a stream is captured from now on.
    pub fn begin_capture(&self, function: &'static str, key: StreamKey) {
        let site = sites::capture_again();
        let state = &mut *self.state();
        let epoch = state.order.begin_on_host().epoch;
        if let Some(id) = state.order.known(key) {
            state.captures.insert(id, Task { epoch, name: Name::Function(function), site });
        }
    }

    /// Notes that the capture of a stream ends, with or without a graph.
    pub fn end_capture(&self, key: StreamKey) {
        let mut state = self.state();
        if let Some(id) = state.order.known(key) {
            state.captures.remove(&id);
        }
    }

    /// Notes that the program unloads a module.
    pub fn unload_module(&self, function: &'static str, module: u64) {
        let site = sites::capture_again();
        let mut state = self.state();
        // After a fault no wait succeeds.
        let is_failed = self.is_failed.load(Ordering::Relaxed);
        let uses = state.module_uses.remove(module);
        if uses.iter().any(|epoch| !is_failed && !state.order.is_observed(*epoch)) {
            let task = Task { epoch: state.order.begin_on_host().epoch, name: Name::Function(function), site };
            drop(state);
            let what = "unloads a module before the program has waited for its kernels";
            self.describer.call(Kind::ModuleInUse, task, "calls", what, None);
        }
    }

    /// Writes a finding about the current call. `what` says what the function does.
    pub fn report_call(&self, kind: Kind, function: &'static str, what: &str) {
        let site = sites::capture_again();
        let epoch = self.state().order.begin_on_host().epoch;
        let task = Task { epoch, name: Name::Function(function), site };
        self.describer.call(kind, task, "calls", what, None);
    }

    /// Writes a finding for each capture that was not ended.
    pub fn report_captures(&self) {
        let captures = std::mem::take(&mut self.state().captures);
        for (_, task) in captures {
            let message = "the capture that {} begins was never ended: its work did not run";
            self.describer.unfinished(Kind::UnjoinedCapture, task, "begins a capture", message, None);
        }
    }

    /// Writes a finding for each block that is still allocated. Returns false, and writes none, after a fault: the program could
    /// not free anything.
    #[must_use]
    pub fn report_leaks(&self) -> bool {
        if self.is_failed.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.state();
        let owned = state.memory.live.values().filter(|block| !block.is_mapped && block.kind != BlockKind::Imported);
        let (mut leaks, mut places) = (Vec::<Leak>::new(), HashMap::new());
        for block in owned {
            let (task, bytes) = (block.allocated, block.range.end - block.range.start);
            let index = *places.entry((task.site, task.name)).or_insert(leaks.len());
            match leaks.get_mut(index) {
                Some(leak) => (leak.count, leak.bytes) = (leak.count + 1, leak.bytes.saturating_add(bytes)),
                None => leaks.push(Leak { task, first: About::new(block, block.range.start), count: 1, bytes }),
            }
        }
        drop(state);
        leaks.iter().for_each(|leak| self.describer.leak(leak));
        true
    }

    /// Writes how often each finding occurred, for those that did more than once. Called when the process ends.
    pub fn report_repeats(&self) {
        self.describer.reporter.report_repeats();
    }

    /// Writes a finding about a free that is refused.
    fn report_wrong_free(&self, state: MutexGuard<'_, State>, task: Task, address: u64, function: FreeFunction) {
        let block = state.memory.around(address);
        let around = block.map(|block| {
            let (start, kind, is_freed) = (block.range.start, block.kind, block.freed.is_some());
            Around { start, kind, is_freed }
        });
        let (kind, what) = wrong_free::describe(address, function, around);
        let about = block.map(|block| About::new(block, address));
        drop(state);
        self.describer.call(kind, task, "calls", &what, about.as_ref());
    }
}

impl State {
    /// Forgets the destroyed streams whose work the host has waited for.
    pub(super) fn forget_dead_streams(&mut self) {
        let (order, memory) = (&self.order, &mut self.memory);
        memory.for_each_block(|block| block.forget_observed(|epoch| order.is_observed(epoch)));
        self.module_uses.forget(|epoch| order.is_observed(epoch));
        self.order.forget_dead();
    }
}
