//! Instantiated graphs. A launch submits the nodes to its stream, each after all nodes that it depends on.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_check::{Effect, Epoch, QueueId};
use freehold_driver::cuda::{CUerror, CUgraphNode, CUresult, graph_flags};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng;

use super::event_state::{EventRecord, EventSlot};
use super::graph::{Graph, NodeKind};
use super::graph_allocation::GraphAllocation;
use super::operation::Operation;
use super::stream_ref::StreamRef;
use super::user_object::UserReferences;
use crate::base::check::{self, CaptureIds, Place};
use crate::base::sync::lock;
use crate::engine::queue::Fence;
use crate::engine::work::{InternalWork, Noted, Timestamp, Work};

/// A graph as it was when it was instantiated, and the changes since.
#[derive(Debug)]
pub(crate) struct GraphExec {
    pub(crate) flags: u64,
    /// Tells the graph that an executable graph of it exists.
    _instance: Arc<()>,
    state: Mutex<ExecState>,
}

#[derive(Debug)]
struct ExecState {
    nodes: ExecGraph,
    /// Objects of the program that live at least as long as this value and its launches.
    references: Arc<Vec<UserReferences>>,
    /// The captures that made the graph, for the checker.
    captures: Arc<CaptureIds>,
    /// The end of the last launch: launches do not overlap.
    last_launch: Option<Fence>,
    /// The branches of the last launch, for the checker.
    branches: Vec<Epoch>,
}

impl Drop for ExecState {
    fn drop(&mut self) {
        self.branches.iter().for_each(|last| check::end_queue(*last));
    }
}

/// The nodes of one graph, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct ExecGraph {
    pub(super) nodes: Vec<ExecNode>,
    indices: HashMap<CUgraphNode, usize>,
    /// The order in which nodes are submitted.
    order: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct ExecNode {
    /// The node of the graph that was instantiated.
    pub(crate) handle: CUgraphNode,
    pub(crate) action: Action,
    pub(crate) dependencies: Vec<usize>,
    pub(crate) is_enabled: bool,
}

#[derive(Debug)]
pub(crate) enum Action {
    Run(Arc<Operation>),
    Child(ExecGraph),
}

impl GraphExec {
    /// Instantiates a graph.
    ///
    /// # Errors
    /// A node that depends on itself, through others.
    pub(crate) fn new(graph: &Graph, instance: Arc<()>, flags: u64) -> Result<Self, CUgraphNode> {
        let nodes = ExecGraph::new(graph)?;
        let references = Arc::new(graph.duplicate_references());
        let captures = CaptureIds::new(graph.capture_ids());
        let state = Mutex::new(ExecState { nodes, references, captures, last_launch: None, branches: Vec::new() });
        Ok(Self { flags, _instance: instance, state })
    }

    fn state(&self) -> MutexGuard<'_, ExecState> {
        lock(&self.state)
    }

    /// Reads a node, which is identified by the node of the graph that was instantiated.
    pub(crate) fn read_node<R>(
        &self,
        handle: CUgraphNode,
        read: impl FnOnce(&ExecNode) -> Result<R, CUerror>,
    ) -> Result<R, CUerror> {
        read(self.state().nodes.find(handle).ok_or(CUerror::INVALID_VALUE)?)
    }

    /// Changes a node for later launches.
    pub(crate) fn change_node(&self, handle: CUgraphNode, change: impl FnOnce(&mut ExecNode) -> CUresult) -> CUresult {
        change(self.state().nodes.find(handle).ok_or(CUerror::INVALID_VALUE)?)
    }

    /// Changes all nodes for later launches, and takes over the objects of the graph that they come from.
    pub(crate) fn change<E>(
        &self,
        graph: &Graph,
        change: impl FnOnce(&mut ExecGraph) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.state();
        change(&mut state.nodes)?;
        state.references = Arc::new(graph.duplicate_references());
        state.captures = CaptureIds::new(graph.capture_ids());
        Ok(())
    }

    /// Gives all allocations memory, ahead of a launch.
    pub(crate) fn back_allocations(&self) -> CUresult {
        self.state().nodes.allocations().iter().try_for_each(|block| block.back())
    }

    /// Submits the work of all nodes to a stream. The stream must not be captured: nested launches are not supported.
    pub(crate) fn launch(&self, stream_ref: &StreamRef<'_>) -> CUresult {
        stream_ref.ensure_not_captured()?;
        let mut state = self.state();
        // All resources are allocated before the first node is submitted: a launch that fails does nothing.
        let (mut steps, mut after) = (Vec::new(), Vec::new());
        if self.flags & graph_flags::AUTO_FREE_ON_LAUNCH != 0 {
            let left = state.nodes.allocations().into_iter().filter(|block| block.is_allocated());
            steps.extend(left.map(LaunchStep::Free));
            after.resize(steps.len(), Vec::new());
        }
        state.nodes.prepare(&mut steps, &mut after, &[], &mut stream_ref.draw())?;
        if !state.references.is_empty() {
            let references = Arc::clone(&state.references);
            steps.push(LaunchStep::Work(Work::Internal(InternalWork::new(move || drop(references)))));
        }
        reserve_memory(&steps)?;
        let start = state.last_launch.clone().into_iter().collect();
        let mut end = stream_ref.submit_uncaptured(start, Work::Barrier)?;
        after.resize(steps.len(), Vec::new());
        let ExecState { branches, last_launch, captures, .. } = &mut *state;
        let mut branches = check::is_on().then(|| Branches::new(branches, end.epoch()));
        for (step, after) in steps.into_iter().zip(after) {
            *last_launch = Some(end.clone());
            if let Some(branches) = &mut branches {
                let place = branches.place(&step, &after, || QueueId(stream_ref.new_queue_id()));
                check::place(Place { captures: Some(Arc::clone(captures)), ..place });
            }
            end = step.submit(stream_ref, end)?;
        }
        if let Some(branches) = branches {
            check::place(branches.end());
            end = stream_ref.submit_uncaptured(Vec::new(), Work::Barrier)?;
        }
        *last_launch = Some(end);
        Ok(())
    }
}

impl ExecGraph {
    /// # Errors
    /// A node that depends on itself, through others.
    pub(super) fn new(graph: &Graph) -> Result<Self, CUgraphNode> {
        let found = graph.snapshot();
        let indices: HashMap<_, _> = found.iter().enumerate().map(|(index, &(handle, _))| (handle, index)).collect();
        let mut nodes = Vec::with_capacity(found.len());
        for (handle, node) in &found {
            let action = match &node.kind {
                NodeKind::Child(child) => Action::Child(Self::new(child)?),
                NodeKind::Run(operation) => Action::Run(Arc::clone(operation)),
            };
            let dependencies = node.dependencies.iter().map(|from| indices[from]).collect();
            nodes.push(ExecNode { handle: *handle, action, dependencies, is_enabled: true });
        }
        let order = topological_order(&nodes)?;
        Ok(Self { nodes, indices, order })
    }

    /// Returns the node of this graph, or of one within it, that was made of `handle`.
    fn find(&mut self, handle: CUgraphNode) -> Option<&mut ExecNode> {
        if let Some(&index) = self.indices.get(&handle) {
            return self.nodes.get_mut(index);
        }
        let children = self.nodes.iter_mut().filter_map(|node| match &mut node.action {
            Action::Child(child) => Some(child),
            Action::Run(_) => None,
        });
        children.into_iter().find_map(|child| child.find(handle))
    }

    /// Returns the blocks of all allocation nodes.
    fn allocations(&self) -> Vec<Arc<GraphAllocation>> {
        let mut blocks = Vec::new();
        for node in &self.nodes {
            match &node.action {
                Action::Child(child) => blocks.extend(child.allocations()),
                Action::Run(operation) => {
                    if let Operation::MemAlloc(block) = &**operation {
                        blocks.push(Arc::clone(block));
                    }
                }
            }
        }
        blocks
    }

    /// Adds the steps of one launch, in their order or a random one, and for each the steps that it depends on. Returns the last
    /// steps.
    fn prepare(
        &self,
        steps: &mut Vec<LaunchStep>,
        after: &mut Vec<Vec<usize>>,
        outside: &[usize],
        random: &mut Option<SplitMix64>,
    ) -> Result<Vec<usize>, CUerror> {
        let mut ends = vec![Vec::new(); self.nodes.len()];
        let shuffled = random.as_mut().map(|random| random_order(&self.nodes, random));
        for &index in shuffled.as_ref().unwrap_or(&self.order) {
            let node = &self.nodes[index];
            let mut before: Vec<usize> = node.dependencies.iter().flat_map(|&from| ends[from].clone()).collect();
            if node.dependencies.is_empty() {
                before.extend(outside);
            }
            let first = steps.len();
            ends[index] = match &node.action {
                _ if !node.is_enabled => before,
                Action::Child(child) => Some(child.prepare(steps, after, &before, random)?)
                    .filter(|ends| !ends.is_empty())
                    .unwrap_or(before),
                Action::Run(operation) => {
                    prepare(operation, steps)?;
                    match steps.len() - first {
                        0 => before,
                        count => {
                            after.push(before);
                            after.extend((1..count).map(|step| vec![first + step - 1]));
                            vec![steps.len() - 1]
                        }
                    }
                }
            };
        }
        Ok(ends.into_iter().flatten().collect())
    }
}

/// Returns an order in which each node comes after those that it depends on: that of their addition where it is one.
fn topological_order(nodes: &[ExecNode]) -> Result<Vec<usize>, CUgraphNode> {
    let mut missing: Vec<usize> = nodes.iter().map(|node| node.dependencies.len()).collect();
    let mut dependents = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        node.dependencies.iter().for_each(|&from| dependents[from].push(index));
    }
    let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|&index| missing[index] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &dependent in &dependents[index] {
            missing[dependent] -= 1;
            if missing[dependent] == 0 {
                ready.insert(dependent);
            }
        }
    }
    match missing.iter().position(|&missing| missing > 0) {
        Some(index) => Err(nodes[index].handle),
        None => Ok(order),
    }
}

/// Returns a random order in which each node comes after those that it depends on.
fn random_order(nodes: &[ExecNode], random: &mut SplitMix64) -> Vec<usize> {
    let mut left: Vec<usize> = (0..nodes.len()).collect();
    let mut order = Vec::with_capacity(nodes.len());
    let mut is_done = vec![false; nodes.len()];
    while !left.is_empty() {
        let is_ready = |&place: &usize| nodes[left[place]].dependencies.iter().all(|&from| is_done[from]);
        let ready: Vec<usize> = (0..left.len()).filter(is_ready).collect();
        let index = left.remove(ready[(random.next_u64() % ready.len() as u64) as usize]);
        is_done[index] = true;
        order.push(index);
    }
    order
}

/// The branches of a graph, for the checker: its steps run one after the other here, but only their dependencies order them.
struct Branches<'b> {
    /// The queue of each branch, and how many steps of it there were. Later launches use them again.
    all: &'b mut Vec<Epoch>,
    /// The last step of each branch of this launch.
    last: Vec<usize>,
    /// Where each step is. An event is known by its place in the stream, and counts as what it comes after.
    steps: Vec<Vec<Epoch>>,
    start: Epoch,
}

impl<'b> Branches<'b> {
    fn new(all: &'b mut Vec<Epoch>, start: Epoch) -> Self {
        Self { all, last: Vec::new(), steps: Vec::new(), start }
    }

    /// Returns where the next step is: in the branch of one that it depends on, or in another one.
    fn place(&mut self, step: &LaunchStep, after: &[usize], new_queue: impl FnOnce() -> QueueId) -> Place {
        let number = self.steps.len();
        let mut before: Vec<Epoch> = after.iter().flat_map(|&step| self.steps[step].clone()).collect();
        before.push(self.start);
        if matches!(step, LaunchStep::EventRecord(_)) {
            self.steps.push(before.clone());
            return Place { after: before, ..Place::default() };
        }
        let branch = self.last.iter().position(|last| after.contains(last)).unwrap_or_else(|| {
            self.last.push(number);
            if self.all.len() < self.last.len() {
                self.all.push(Epoch { queue: new_queue(), seq: 0 });
            }
            self.last.len() - 1
        });
        self.last[branch] = number;
        self.all[branch].seq += 1;
        let epoch = self.all[branch];
        self.steps.push(vec![epoch]);
        Place { epoch: Some(epoch), after: before, ..Place::default() }
    }

    /// Returns the place of what comes after all steps.
    fn end(self) -> Place {
        Place { after: self.last.iter().flat_map(|&step| self.steps[step].clone()).collect(), ..Place::default() }
    }
}

/// One piece of work of one launch.
enum LaunchStep {
    Work(Work),
    EventRecord(Arc<EventSlot>),
    EventWait(Arc<EventSlot>),
    Alloc(Arc<GraphAllocation>),
    Free(Arc<GraphAllocation>),
}

/// Allocates and frees the blocks of a launch, in the order of its steps, or none of them.
fn reserve_memory(steps: &[LaunchStep]) -> CUresult {
    for (index, step) in steps.iter().enumerate() {
        let outcome = match step {
            LaunchStep::Alloc(block) => block.alloc(),
            LaunchStep::Free(block) => block.free(),
            _ => Ok(()),
        };
        if outcome.is_err() {
            for done in steps[..index].iter().rev() {
                match done {
                    LaunchStep::Alloc(block) => block.undo_alloc(),
                    LaunchStep::Free(block) => block.undo_free(),
                    _ => {}
                }
            }
            return outcome;
        }
    }
    Ok(())
}

/// Adds the steps of one node.
fn prepare(operation: &Operation, steps: &mut Vec<LaunchStep>) -> CUresult {
    match operation {
        Operation::Kernel(node) => steps.push(LaunchStep::Work(node.work.try_clone()?)),
        Operation::Memcpy(node) => steps.push(LaunchStep::Work(node.work.try_clone()?)),
        Operation::Memset(node) => steps.push(LaunchStep::Work(node.work.try_clone()?)),
        Operation::Host(call) => steps.push(LaunchStep::Work(Work::HostCall(call.again()))),
        Operation::MemOps(node) => {
            for work in &node.works {
                steps.push(LaunchStep::Work(work.try_clone()?));
            }
        }
        Operation::EventRecord(node) => steps.push(LaunchStep::EventRecord(Arc::clone(&node.slot))),
        Operation::EventWait(node) => steps.push(LaunchStep::EventWait(Arc::clone(&node.slot))),
        Operation::MemAlloc(block) => steps.push(LaunchStep::Alloc(Arc::clone(block))),
        Operation::MemFree(block) => steps.push(LaunchStep::Free(Arc::clone(block))),
        Operation::Empty => {}
    }
    Ok(())
}

/// Frees a block in the order of a stream.
pub(crate) fn submit_free(stream_ref: &StreamRef<'_>, block: Arc<GraphAllocation>) -> Result<Fence, CUerror> {
    if check::is_on() {
        let note = Noted::new(Effect::Free, block.address, block.bytes);
        stream_ref.submit_uncaptured(Vec::new(), Work::Note(vec![note]))?;
    }
    stream_ref.submit_uncaptured(Vec::new(), Work::Internal(InternalWork::new(move || block.unmap())))
}

impl LaunchStep {
    /// Submits the step to the stream, whose last fence is `end`, and returns the new last fence.
    fn submit(self, stream_ref: &StreamRef<'_>, end: Fence) -> Result<Fence, CUerror> {
        match self {
            Self::Work(work) => stream_ref.submit_uncaptured(Vec::new(), work),
            Self::Alloc(block) => {
                let (place, note) = (check::take_place(), Noted::new(Effect::Allocate, block.address, block.bytes));
                let map = InternalWork::new(move || block.map());
                let end = stream_ref.submit_uncaptured(Vec::new(), Work::Internal(map))?;
                let Some(place) = place else { return Ok(end) };
                check::place(place);
                stream_ref.submit_uncaptured(Vec::new(), Work::Note(vec![note]))
            }
            Self::Free(block) => submit_free(stream_ref, block),
            Self::EventRecord(event) => {
                let timestamp = Arc::new(Timestamp::default());
                let clock = stream_ref.stream.queue.clock();
                let fence = stream_ref.submit_uncaptured(Vec::new(), Work::Timestamp(Arc::clone(&timestamp)))?;
                event.record(EventRecord { fence: fence.clone(), timestamp, clock });
                Ok(fence)
            }
            Self::EventWait(event) => match event.recorded() {
                None => Ok(end),
                Some(record) => stream_ref.submit_uncaptured(vec![record.fence], Work::Barrier),
            },
        }
    }
}
