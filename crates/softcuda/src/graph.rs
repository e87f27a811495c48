//! Graphs: work with its order, and what can be launched of it.
//!
//! A node comes after nodes that were there before it, so that the order in which they were added is one in which they
//! can run. A launch puts them into its stream in that order.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use freehold_driver::cuda::{CUerror, CUgraph, CUgraphNode, CUresult};

use crate::engine::queue::Point;
use crate::engine::work::{Stamp, Work};
use crate::event::{Event, Record};
use crate::registry::Kind;
use crate::stream::Lane;
use crate::world::{World, lock};

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: CUgraph,
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Whether a capture still adds to it.
    is_open: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) handle: CUgraphNode,
    step: Step,
    /// The places in their graph of those that it comes after.
    after: Vec<usize>,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Step {
    /// Work as it was asked for, of which each launch carries out a copy.
    Work(Work),
    /// Moves an event that does not belong to the graph.
    Record(Arc<Event>),
    /// Waits for one.
    Await(Arc<Event>),
}

impl Graph {
    pub(crate) fn new(handle: usize, nodes: Vec<Arc<Node>>, is_open: bool) -> Self {
        Self { handle: CUgraph(handle), nodes: Mutex::new(nodes), is_open: is_open.into() }
    }

    /// Adds a node behind others, and says where it is.
    pub(crate) fn push(&self, world: &World, step: Step, after: Vec<usize>) -> usize {
        let mut nodes = lock(&self.nodes);
        let handle = CUgraphNode(world.handle_range.of(Kind::Node).at(world.number() as usize));
        nodes.push(Arc::new(Node { handle, step, after }));
        nodes.len() - 1
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.nodes).clone()
    }

    /// The nodes at these places, and all that they come after.
    pub(crate) fn up_to(&self, places: &[usize]) -> BTreeSet<usize> {
        let nodes = lock(&self.nodes);
        let mut found = BTreeSet::new();
        let mut open = places.to_vec();
        while let Some(place) = open.pop() {
            if found.insert(place) {
                open.extend(&nodes[place].after);
            }
        }
        found
    }

    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }
}

/// The graph with a handle, unless a capture still adds to it.
pub(crate) fn find(world: &World, handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
    let graph = world.graphs.find(handle.0).ok_or(CUerror::INVALID_VALUE)?;
    if graph.is_open.load(Ordering::Acquire) { Err(CUerror::INVALID_VALUE) } else { Ok(graph) }
}

/// A graph as it was when it was made ready for launches.
#[derive(Debug)]
pub(crate) struct Exec {
    nodes: Vec<Arc<Node>>,
    /// Where its last launch ends: launches do not overlap.
    last: Mutex<Option<Point>>,
}

impl Exec {
    pub(crate) fn new(graph: &Graph) -> Self {
        Self { nodes: graph.nodes(), last: Mutex::default() }
    }

    /// Puts the work of all nodes into a stream, which is not captured: no graph is launched within another.
    pub(crate) fn launch(&self, world: &World, lane: &Lane) -> CUresult {
        lane.not_captured(world)?;
        // What a launch needs is there before the first node is added: a launch that is refused does nothing.
        let moves = self.nodes.iter().map(|node| Move::of(&node.step)).collect::<Result<Vec<_>, _>>()?;
        let mut last = lock(&self.last);
        let start = last.clone().into_iter().collect();
        let mut end = lane.queue(world, start, Work::Nothing)?;
        for one in moves {
            *last = Some(end.clone());
            end = one.make(world, lane, end)?;
        }
        *last = Some(end);
        Ok(())
    }
}

/// One node of one launch.
enum Move<'n> {
    Work(Work),
    Record(&'n Event),
    Await(&'n Event),
}

impl<'n> Move<'n> {
    fn of(step: &'n Step) -> Result<Self, CUerror> {
        Ok(match step {
            Step::Work(work) => Self::Work(work.again()?),
            Step::Record(event) => Self::Record(event),
            Step::Await(event) => Self::Await(event),
        })
    }

    /// Adds it to the stream, whose end so far is `end`, and says where it ends now.
    fn make(self, world: &World, lane: &Lane, end: Point) -> Result<Point, CUerror> {
        match self {
            Self::Work(work) => lane.queue(world, Vec::new(), work),
            Self::Record(event) => {
                let stamp = Arc::new(Stamp::default());
                let known = lane.stream.queue.known();
                let point = lane.queue(world, Vec::new(), Work::Stamp(Arc::clone(&stamp)))?;
                event.record(Record { point: point.clone(), stamp, known });
                Ok(point)
            }
            Self::Await(event) => match event.recorded() {
                None => Ok(end),
                Some(record) => lane.queue(world, vec![record.point], Work::Nothing),
            },
        }
    }
}
