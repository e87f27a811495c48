//! Graphs: nodes of work and their dependencies.
//!
//! A node depends only on nodes that were added before it, so the order of addition is a valid order of execution.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use freehold_driver::cuda::{CUerror, CUgraph, CUgraphNode, CUresult};

use super::event_state::EventSlot;
use crate::base::sync::lock;
use crate::engine::work::Work;

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: CUgraph,
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Whether a capture still adds nodes.
    is_capturing: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) handle: CUgraphNode,
    pub(crate) kind: NodeKind,
    /// The indices in the graph of the nodes that it depends on.
    dependencies: Vec<usize>,
}

/// The action of a node.
#[derive(Debug)]
pub(crate) enum NodeKind {
    /// Work as submitted. Each launch runs a copy.
    Work(Work),
    /// Records an event, which does not belong to the graph.
    EventRecord(Arc<EventSlot>),
    /// Waits for an event.
    EventWait(Arc<EventSlot>),
}

impl Graph {
    pub(crate) fn new(handle: usize, nodes: Vec<Arc<Node>>, is_open: bool) -> Self {
        Self { handle: CUgraph(handle), nodes: Mutex::new(nodes), is_capturing: is_open.into() }
    }

    /// Adds a node that depends on others and returns its index.
    pub(crate) fn push(&self, handle: CUgraphNode, kind: NodeKind, after: Vec<usize>) -> usize {
        let mut nodes = lock(&self.nodes);
        nodes.push(Arc::new(Node { handle, kind, dependencies: after }));
        nodes.len() - 1
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.nodes).clone()
    }

    /// Returns the nodes at these indices and all their ancestors.
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

    /// Returns an error while a capture still adds nodes.
    pub(crate) fn check_complete(&self) -> CUresult {
        if self.is_capturing.load(Ordering::Acquire) { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
    }

    pub(crate) fn finish_capture(&self) {
        self.is_capturing.store(false, Ordering::Release);
    }
}
