//! Graphs: work with its order, and what can be launched of it.
//!
//! A node comes after nodes that were there before it, so that the order in which they were added is one in which they
//! can run. A launch puts them into its stream in that order.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use freehold_driver::cuda::{CUerror, CUgraph, CUgraphNode, CUresult};

use crate::driver_state::DriverState;
use crate::engine::queue::Fence;
use crate::engine::work::{Timestamp, Work};
use crate::event::{Event, EventRecord};
use crate::handle_table::HandleKind;
use crate::stream::StreamRef;
use crate::sync::lock;

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: CUgraph,
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Whether a capture still adds to it.
    is_capturing: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) handle: CUgraphNode,
    kind: NodeKind,
    /// The indices in their graph of those that it comes after.
    dependencies: Vec<usize>,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum NodeKind {
    /// Work as it was asked for, of which each launch carries out a copy.
    Work(Work),
    /// Moves an event that does not belong to the graph.
    EventRecord(Arc<Event>),
    /// Waits for one.
    EventWait(Arc<Event>),
}

impl Graph {
    pub(crate) fn new(handle: usize, nodes: Vec<Arc<Node>>, is_open: bool) -> Self {
        Self { handle: CUgraph(handle), nodes: Mutex::new(nodes), is_capturing: is_open.into() }
    }

    /// Adds a node behind others, and says where it is.
    pub(crate) fn push(&self, driver: &DriverState, kind: NodeKind, after: Vec<usize>) -> usize {
        let mut nodes = lock(&self.nodes);
        let handle = CUgraphNode(driver.handle_range.space(HandleKind::GraphNode).handle(driver.next_id() as usize));
        nodes.push(Arc::new(Node { handle, kind, dependencies: after }));
        nodes.len() - 1
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.nodes).clone()
    }

    /// The nodes at these indices, and all that they come after.
    pub(crate) fn with_ancestors(&self, indices: &[usize]) -> BTreeSet<usize> {
        let nodes = lock(&self.nodes);
        let mut found = BTreeSet::new();
        let mut open = indices.to_vec();
        while let Some(index) = open.pop() {
            if found.insert(index) {
                open.extend(&nodes[index].dependencies);
            }
        }
        found
    }

    pub(crate) fn finish_capture(&self) {
        self.is_capturing.store(false, Ordering::Release);
    }
}

/// The graph with a handle, unless a capture still adds to it.
pub(crate) fn find(driver: &DriverState, handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
    let graph = driver.graphs.find(handle.0).ok_or(CUerror::INVALID_VALUE)?;
    if graph.is_capturing.load(Ordering::Acquire) { Err(CUerror::INVALID_VALUE) } else { Ok(graph) }
}

/// A graph as it was when it was made ready for launches.
#[derive(Debug)]
pub(crate) struct GraphExec {
    nodes: Vec<Arc<Node>>,
    /// Where its last launch ends: launches do not overlap.
    last_launch: Mutex<Option<Fence>>,
}

impl GraphExec {
    pub(crate) fn new(graph: &Graph) -> Self {
        Self { nodes: graph.nodes(), last_launch: Mutex::default() }
    }

    /// Puts the work of all nodes into a stream, which is not captured: no graph is launched within another.
    pub(crate) fn launch(&self, driver: &DriverState, stream_ref: &StreamRef) -> CUresult {
        stream_ref.ensure_not_captured(driver)?;
        // What a launch needs is there before the first node is added: a launch that is refused does nothing.
        let steps = self.nodes.iter().map(|node| LaunchStep::new_step(&node.kind)).collect::<Result<Vec<_>, _>>()?;
        let mut last = lock(&self.last_launch);
        let start = last.clone().into_iter().collect();
        let mut end = stream_ref.submit_uncaptured(driver, start, Work::Barrier)?;
        for step in steps {
            *last = Some(end.clone());
            end = step.submit(driver, stream_ref, end)?;
        }
        *last = Some(end);
        Ok(())
    }
}

/// One node of one launch.
enum LaunchStep<'n> {
    Work(Work),
    EventRecord(&'n Event),
    EventWait(&'n Event),
}

impl<'n> LaunchStep<'n> {
    fn new_step(step: &'n NodeKind) -> Result<Self, CUerror> {
        Ok(match step {
            NodeKind::Work(work) => Self::Work(work.try_clone()?),
            NodeKind::EventRecord(event) => Self::EventRecord(event),
            NodeKind::EventWait(event) => Self::EventWait(event),
        })
    }

    /// Adds it to the stream, whose end so far is `end`, and says where it ends now.
    fn submit(self, driver: &DriverState, stream_ref: &StreamRef, end: Fence) -> Result<Fence, CUerror> {
        match self {
            Self::Work(work) => stream_ref.submit_uncaptured(driver, Vec::new(), work),
            Self::EventRecord(event) => {
                let timestamp = Arc::new(Timestamp::default());
                let clock = stream_ref.stream.queue.clock();
                let fence =
                    stream_ref.submit_uncaptured(driver, Vec::new(), Work::Timestamp(Arc::clone(&timestamp)))?;
                event.record(EventRecord { fence: fence.clone(), timestamp, clock });
                Ok(fence)
            }
            Self::EventWait(event) => match event.recorded() {
                None => Ok(end),
                Some(record) => stream_ref.submit_uncaptured(driver, vec![record.fence], Work::Barrier),
            },
        }
    }
}
