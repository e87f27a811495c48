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
use crate::stream::Lane;
use crate::world::{World, lock};

/// The topmost byte of a node's handle, below which lies its number.
const NODE: usize = 0xcd << 56;

/// As many nodes as one launch has at the most. Graphs within graphs could be more than any memory holds.
const NODES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: CUgraph,
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Whether a capture still adds to it.
    is_open: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Node {
    number: u64,
    step: Step,
    /// The places in their graph of those that it comes after.
    after: Vec<usize>,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Step {
    /// Work as it was asked for, of which each launch carries out a copy.
    Work(Work),
    /// What another graph launches. None of its nodes is a graph again.
    Graph(Vec<Arc<Node>>),
    /// Moves an event that does not belong to the graph.
    Record(Arc<Event>),
    /// Waits for one.
    Await(Arc<Event>),
}

impl Step {
    /// What stands in place of a graph within a graph.
    fn launched(&self) -> Option<&[Arc<Node>]> {
        match self {
            Self::Graph(nodes) => Some(nodes),
            _ => None,
        }
    }
}

impl Node {
    pub(crate) fn handle(&self) -> CUgraphNode {
        CUgraphNode(NODE | self.number as usize)
    }
}

impl Graph {
    pub(crate) fn new(handle: usize, nodes: Vec<Arc<Node>>, is_open: bool) -> Self {
        Self { handle: CUgraph(handle), nodes: Mutex::new(nodes), is_open: is_open.into() }
    }

    /// Adds a node behind others, and says where it is.
    pub(crate) fn push(&self, world: &World, step: Step, after: Vec<usize>) -> usize {
        let mut nodes = lock(&self.nodes);
        nodes.push(Arc::new(Node { number: world.number(), step, after }));
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
    /// Nodes of graphs within graphs stand in their place.
    nodes: Vec<Arc<Node>>,
    /// Where its last launch ends: launches do not overlap.
    last: Mutex<Option<Point>>,
}

impl Exec {
    /// # Errors
    /// There are too many nodes.
    pub(crate) fn new(graph: &Graph) -> Result<Self, CUerror> {
        let nodes = graph.nodes();
        let count: usize = nodes.iter().map(|node| node.step.launched().map_or(1, <[_]>::len)).sum();
        if count > NODES_MAX {
            return Err(CUerror::OUT_OF_MEMORY);
        }
        let launched =
            nodes.iter().flat_map(|node| node.step.launched().unwrap_or(std::slice::from_ref(node)).to_vec());
        Ok(Self { nodes: launched.collect(), last: Mutex::default() })
    }

    /// Puts the work of all nodes into a stream.
    pub(crate) fn launch(&self, world: &World, lane: &Lane) -> CUresult {
        if lane.is_captured() {
            return lane.note(world, Step::Graph(self.nodes.clone()));
        }
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
            Step::Graph(_) => unreachable!("the nodes of inner graphs stand in their place"),
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
