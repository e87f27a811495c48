//! Instantiated graphs. A launch submits the nodes to its stream, each after all nodes that it depends on.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::{CUerror, CUgraphNode, CUresult, graph_flags};

use super::event_state::{EventRecord, EventSlot};
use super::graph::{Graph, NodeKind};
use super::graph_allocation::GraphAllocation;
use super::operation::Operation;
use super::stream_ref::StreamRef;
use super::user_object::UserReferences;
use crate::base::sync::lock;
use crate::engine::queue::Fence;
use crate::engine::work::{HostCall, InternalWork, Timestamp, Work};

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
    /// The end of the last launch: launches do not overlap.
    last_launch: Option<Fence>,
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
        let state = Mutex::new(ExecState { nodes, references, last_launch: None });
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
        let mut steps = Vec::new();
        if self.flags & graph_flags::AUTO_FREE_ON_LAUNCH != 0 {
            let left = state.nodes.allocations().into_iter().filter(|block| block.is_allocated());
            steps.extend(left.map(LaunchStep::Free));
        }
        state.nodes.prepare(&mut steps)?;
        if !state.references.is_empty() {
            let references = Arc::clone(&state.references);
            steps.push(LaunchStep::Work(Work::Internal(InternalWork::new(move || drop(references)))));
        }
        reserve_memory(&steps)?;
        let start = state.last_launch.clone().into_iter().collect();
        let mut end = stream_ref.submit_uncaptured(start, Work::Barrier)?;
        for step in steps {
            state.last_launch = Some(end.clone());
            end = step.submit(stream_ref, end)?;
        }
        state.last_launch = Some(end);
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

    /// Adds the steps of one launch, in their order.
    fn prepare(&self, steps: &mut Vec<LaunchStep>) -> CUresult {
        for node in self.order.iter().map(|&index| &self.nodes[index]).filter(|node| node.is_enabled) {
            match &node.action {
                Action::Child(child) => child.prepare(steps)?,
                Action::Run(operation) => prepare(operation, steps)?,
            }
        }
        Ok(())
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
        Operation::Host(call) => {
            steps.push(LaunchStep::Work(Work::HostCall(HostCall::new(call.function, call.data))));
        }
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

impl LaunchStep {
    /// Submits the step to the stream, whose last fence is `end`, and returns the new last fence.
    fn submit(self, stream_ref: &StreamRef<'_>, end: Fence) -> Result<Fence, CUerror> {
        match self {
            Self::Work(work) => stream_ref.submit_uncaptured(Vec::new(), work),
            Self::Alloc(block) => {
                stream_ref.submit_uncaptured(Vec::new(), Work::Internal(InternalWork::new(move || block.map())))
            }
            Self::Free(block) => {
                stream_ref.submit_uncaptured(Vec::new(), Work::Internal(InternalWork::new(move || block.unmap())))
            }
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
