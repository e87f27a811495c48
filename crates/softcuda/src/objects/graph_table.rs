//! The live graphs by their handles, and the graph of each node. A node's handle is never reused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, Weak};

use freehold_driver::cuda::{CUerror, CUgraph, CUgraphNode};

use super::graph::{Graph, GraphOwner, NodeKind};
use crate::base::handle_table::{HandleKind, HandleRange, HandleReuse, HandleSpace, HandleTable};
use crate::base::sync::{read, write};

#[derive(Debug)]
pub(crate) struct GraphTable {
    graphs: HandleTable<Graph>,
    /// The source of node handles, and the number used so far.
    node_handles: HandleSpace,
    node_count: AtomicUsize,
    owners: RwLock<HashMap<CUgraphNode, Weak<Graph>>>,
}

/// A node that a handle names.
#[derive(Debug)]
pub(crate) struct FoundNode {
    pub(crate) graph: Arc<Graph>,
    pub(crate) handle: CUgraphNode,
    pub(crate) kind: NodeKind,
}

impl GraphTable {
    pub(crate) fn new(range: &HandleRange) -> Self {
        Self {
            graphs: HandleTable::new(range.space(HandleKind::Graph), HandleReuse::Never),
            node_handles: range.space(HandleKind::GraphNode),
            node_count: 0.into(),
            owners: RwLock::default(),
        }
    }

    pub(crate) fn create(&self, owner: GraphOwner) -> Arc<Graph> {
        self.graphs.insert_with(|handle| Arc::new(Graph::new(CUgraph(handle), owner))).1
    }

    pub(crate) fn get(&self, handle: CUgraph) -> Result<Arc<Graph>, CUerror> {
        self.graphs.get(handle.0)
    }

    pub(crate) fn find_node(&self, handle: CUgraphNode) -> Result<FoundNode, CUerror> {
        let graph = read(&self.owners).get(&handle).and_then(Weak::upgrade).ok_or(CUerror::INVALID_VALUE)?;
        let kind = graph.kind(handle).ok_or(CUerror::INVALID_VALUE)?;
        Ok(FoundNode { graph, handle, kind })
    }

    /// Adds a node to a graph and returns its handle.
    pub(crate) fn add_node(&self, graph: &Arc<Graph>, kind: NodeKind, dependencies: Vec<CUgraphNode>) -> CUgraphNode {
        let handle = self.next_handle(graph);
        graph.insert(handle, kind, dependencies);
        handle
    }

    fn next_handle(&self, graph: &Arc<Graph>) -> CUgraphNode {
        let number = self.node_count.fetch_add(1, Ordering::Relaxed) + 1;
        let handle = CUgraphNode(self.node_handles.handle(number));
        write(&self.owners).insert(handle, Arc::downgrade(graph));
        handle
    }

    /// Copies a graph with all graphs within it.
    pub(crate) fn duplicate(&self, graph: &Graph, owner: GraphOwner) -> Arc<Graph> {
        let copy = self.create(owner);
        let nodes = graph.snapshot().into_iter();
        let copies: Vec<_> = nodes.map(|(old, node)| (self.next_handle(&copy), old, node)).collect();
        copy.insert_copies(&copies, |child| self.duplicate(child, GraphOwner::Node));
        copy.copy_references(graph);
        copy
    }

    /// Removes the handle of a graph, and those of its nodes and of all graphs within it.
    ///
    /// # Errors
    /// Another call has removed it.
    pub(crate) fn remove(&self, graph: &Graph) -> Result<(), CUerror> {
        self.graphs.remove(graph.handle.0).ok_or(CUerror::INVALID_VALUE)?;
        for (handle, node) in graph.snapshot() {
            self.forget_node(handle, &node.kind);
        }
        Ok(())
    }

    /// Removes a node from its graph, with its handle.
    pub(crate) fn remove_node(&self, node: &FoundNode) {
        if node.graph.remove(node.handle).is_some() {
            self.forget_node(node.handle, &node.kind);
        }
    }

    fn forget_node(&self, handle: CUgraphNode, kind: &NodeKind) {
        write(&self.owners).remove(&handle);
        if let NodeKind::Child(child) = kind {
            // Only its node can remove it, which happens once.
            let _removed = self.remove(child);
        }
    }
}
