//! Graphs: nodes and the dependencies between them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use freehold_driver::cuda::{CUerror, CUgraph, CUgraphNode, CUgraphNodeType, CUresult};

use super::operation::Operation;
use super::user_object::{UserObject, UserReferences};
use crate::base::check::CaptureId;
use crate::base::sync::lock;

/// Whose a graph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphOwner {
    Program,
    /// A node of another graph. The program cannot destroy it.
    Node,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) handle: CUgraph,
    pub(crate) owner: GraphOwner,
    /// In the order in which they were added: handles of nodes grow.
    nodes: Mutex<BTreeMap<CUgraphNode, Node>>,
    /// Number of captures that add nodes.
    captures: AtomicUsize,
    /// The captures that have added nodes.
    capture_ids: Mutex<Vec<Arc<CaptureId>>>,
    /// Objects of the program that live at least as long as the graph.
    references: Mutex<Vec<UserReferences>>,
    /// Alive while an executable graph of it exists: of one with memory nodes there is at most one.
    instance: Mutex<Weak<()>>,
}

#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    Run(Arc<Operation>),
    /// A graph that the node owns.
    Child(Arc<Graph>),
}

impl NodeKind {
    pub(crate) fn type_code(&self) -> CUgraphNodeType {
        match self {
            Self::Run(operation) => operation.type_code(),
            Self::Child(_) => CUgraphNodeType::GRAPH,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// In the order in which they were added.
    pub(crate) dependencies: Vec<CUgraphNode>,
    /// The node that it is a copy of.
    origin: Option<CUgraphNode>,
}

/// A dependency: `to` runs after `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: CUgraphNode,
    pub(crate) to: CUgraphNode,
}

impl Graph {
    pub(crate) fn new(handle: CUgraph, owner: GraphOwner) -> Self {
        Self {
            handle,
            owner,
            nodes: Mutex::default(),
            captures: 0.into(),
            capture_ids: Mutex::default(),
            references: Mutex::default(),
            instance: Mutex::default(),
        }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<CUgraphNode, Node>> {
        lock(&self.nodes)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes().len()
    }

    /// Adds a node that depends on others.
    pub(crate) fn insert(&self, handle: CUgraphNode, kind: NodeKind, dependencies: Vec<CUgraphNode>) {
        self.nodes().insert(handle, Node { kind, dependencies, origin: None });
    }

    /// Adds copies of nodes, each with its new handle. A child graph was copied before: `child` returns the copy.
    pub(crate) fn insert_copies(
        &self,
        copies: &[(CUgraphNode, CUgraphNode, Node)],
        child: impl Fn(&Arc<Graph>) -> Arc<Graph>,
    ) {
        let new_handles: HashMap<_, _> = copies.iter().map(|&(new, old, _)| (old, new)).collect();
        let mut nodes = self.nodes();
        for (new, old, node) in copies {
            let kind = match &node.kind {
                NodeKind::Child(graph) => NodeKind::Child(child(graph)),
                NodeKind::Run(operation) => NodeKind::Run(Arc::clone(operation)),
            };
            let dependencies = node.dependencies.iter().map(|old| new_handles[old]).collect();
            nodes.insert(*new, Node { kind, dependencies, origin: Some(*old) });
        }
    }

    pub(crate) fn kind(&self, node: CUgraphNode) -> Option<NodeKind> {
        self.nodes().get(&node).map(|node| node.kind.clone())
    }

    /// Gives a node other parameters.
    pub(crate) fn set_operation(&self, node: CUgraphNode, operation: Operation) {
        if let Some(node) = self.nodes().get_mut(&node) {
            node.kind = NodeKind::Run(Arc::new(operation));
        }
    }

    /// Returns all nodes in the order in which they were added.
    pub(crate) fn snapshot(&self) -> Vec<(CUgraphNode, Node)> {
        self.nodes().iter().map(|(&handle, node)| (handle, node.clone())).collect()
    }

    pub(crate) fn handles(&self) -> Vec<CUgraphNode> {
        self.nodes().keys().copied().collect()
    }

    pub(crate) fn roots(&self) -> Vec<CUgraphNode> {
        let nodes = self.nodes();
        nodes.iter().filter(|(_, node)| node.dependencies.is_empty()).map(|(&handle, _)| handle).collect()
    }

    pub(crate) fn edges(&self) -> Vec<Edge> {
        let nodes = self.nodes();
        let of = |(&to, node): (&CUgraphNode, &Node)| -> Vec<_> {
            node.dependencies.iter().map(|&from| Edge { from, to }).collect()
        };
        nodes.iter().flat_map(of).collect()
    }

    pub(crate) fn dependencies(&self, node: CUgraphNode) -> Vec<CUgraphNode> {
        self.nodes().get(&node).map_or_else(Vec::new, |node| node.dependencies.clone())
    }

    pub(crate) fn dependents(&self, node: CUgraphNode) -> Vec<CUgraphNode> {
        let nodes = self.nodes();
        nodes.iter().filter(|(_, other)| other.dependencies.contains(&node)).map(|(&handle, _)| handle).collect()
    }

    /// Returns the copy of a node of the graph that this one was copied from.
    pub(crate) fn copy_of(&self, node: CUgraphNode) -> Option<CUgraphNode> {
        self.nodes().iter().find(|(_, copy)| copy.origin == Some(node)).map(|(&handle, _)| handle)
    }

    /// Refuses nodes of other graphs, and nodes that occur twice.
    pub(crate) fn check_nodes(&self, list: &[CUgraphNode]) -> CUresult {
        let nodes = self.nodes();
        let distinct: BTreeSet<_> = list.iter().collect();
        let is_valid = distinct.len() == list.len() && list.iter().all(|node| nodes.contains_key(node));
        if is_valid { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
    }

    /// Adds dependencies, or none if one of them exists or is not between two nodes of this graph.
    pub(crate) fn add_edges(&self, edges: &[Edge]) -> CUresult {
        self.change_edges(edges, |dependencies, from| {
            let is_new = !dependencies.contains(&from);
            dependencies.push(from);
            is_new
        })
    }

    /// Removes dependencies, or none if one of them does not exist.
    pub(crate) fn remove_edges(&self, edges: &[Edge]) -> CUresult {
        self.change_edges(edges, |dependencies, from| {
            let index = dependencies.iter().position(|&other| other == from);
            index.map(|index| dependencies.remove(index)).is_some()
        })
    }

    /// Changes the dependencies of all nodes, or of none if `change` returns false for one of them.
    fn change_edges(
        &self,
        edges: &[Edge],
        mut change: impl FnMut(&mut Vec<CUgraphNode>, CUgraphNode) -> bool,
    ) -> CUresult {
        let mut nodes = self.nodes();
        let mut changed: BTreeMap<CUgraphNode, Vec<CUgraphNode>> = BTreeMap::new();
        for &Edge { from, to } in edges {
            let node = nodes.get(&to).filter(|_| from != to && nodes.contains_key(&from));
            let node = node.ok_or(CUerror::INVALID_VALUE)?;
            let dependencies = changed.entry(to).or_insert_with(|| node.dependencies.clone());
            if !change(dependencies, from) {
                return Err(CUerror::INVALID_VALUE);
            }
        }
        for (to, dependencies) in changed {
            nodes.get_mut(&to).expect("the node was found above").dependencies = dependencies;
        }
        Ok(())
    }

    /// Removes a node with its dependencies, and returns it.
    pub(crate) fn remove(&self, node: CUgraphNode) -> Option<Node> {
        let mut nodes = self.nodes();
        let removed = nodes.remove(&node)?;
        for other in nodes.values_mut() {
            other.dependencies.retain(|&dependency| dependency != node);
        }
        Some(removed)
    }

    /// Returns these nodes and all their ancestors.
    pub(crate) fn with_ancestors(&self, list: &[CUgraphNode]) -> BTreeSet<CUgraphNode> {
        let nodes = self.nodes();
        let mut found = BTreeSet::new();
        let mut open = list.to_vec();
        while let Some(node) = open.pop() {
            if let Some(known) = nodes.get(&node)
                && found.insert(node)
            {
                open.extend(&known.dependencies);
            }
        }
        found
    }

    /// Returns whether a node of the graph allocates or frees memory. Then its nodes and edges cannot be removed.
    pub(crate) fn has_memory_nodes(&self) -> bool {
        let is_of_memory = |node: &Node| match &node.kind {
            NodeKind::Run(operation) => operation.is_of_memory(),
            NodeKind::Child(_) => false,
        };
        self.nodes().values().any(is_of_memory)
    }

    /// Returns whether a node of the graph frees the memory at an address.
    pub(crate) fn frees(&self, address: u64) -> bool {
        let frees = |node: &Node| match &node.kind {
            NodeKind::Run(operation) => matches!(&**operation, Operation::MemFree(block) if block.address == address),
            NodeKind::Child(_) => false,
        };
        self.nodes().values().any(frees)
    }

    /// Returns what an executable graph holds while it exists.
    ///
    /// # Errors
    /// The graph has memory nodes, and another executable graph of it exists.
    pub(crate) fn instantiate(&self) -> Result<Arc<()>, CUerror> {
        let mut instance = lock(&self.instance);
        if self.has_memory_nodes() && instance.strong_count() > 0 {
            return Err(CUerror::NOT_SUPPORTED);
        }
        let new = Arc::new(());
        *instance = Arc::downgrade(&new);
        Ok(new)
    }

    /// Adds references to an object.
    pub(crate) fn add_references(&self, object: &Arc<UserObject>, new: UserReferences) {
        let mut references = lock(&self.references);
        match references.iter_mut().find(|other| other.is_to(object)) {
            Some(known) => known.merge(new),
            None => references.push(new),
        }
    }

    /// Releases references of this graph to an object.
    pub(crate) fn release_references(&self, object: &Arc<UserObject>, count: u64) -> CUresult {
        let mut references = lock(&self.references);
        let known = references.iter_mut().find(|other| other.is_to(object)).ok_or(CUerror::INVALID_VALUE)?;
        known.release(count)?;
        references.retain(|other| !other.is_empty());
        Ok(())
    }

    /// Returns references to all objects of this graph and of the graphs within it.
    pub(crate) fn duplicate_references(&self) -> Vec<UserReferences> {
        let mut all: Vec<_> = lock(&self.references).iter().map(UserReferences::duplicate).collect();
        for (_, node) in self.snapshot() {
            if let NodeKind::Child(child) = &node.kind {
                all.extend(child.duplicate_references());
            }
        }
        all
    }

    /// Returns the captures that have added nodes to this graph and to all graphs within it.
    pub(crate) fn capture_ids(&self) -> Vec<Arc<CaptureId>> {
        let mut ids = lock(&self.capture_ids).clone();
        for (_, node) in self.snapshot() {
            if let NodeKind::Child(child) = &node.kind {
                ids.extend(child.capture_ids());
            }
        }
        ids
    }

    /// Takes over the references and captures of a graph that this one is a copy of.
    pub(crate) fn copy_references(&self, other: &Self) {
        let captures = lock(&other.capture_ids).clone();
        lock(&self.capture_ids).extend(captures);
        let copies: Vec<_> = lock(&other.references).iter().map(UserReferences::duplicate).collect();
        lock(&self.references).extend(copies);
    }

    /// Returns an error while a capture still adds nodes.
    pub(crate) fn check_complete(&self) -> CUresult {
        if self.captures.load(Ordering::Acquire) > 0 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
    }

    pub(crate) fn begin_capture(&self, id: u64) {
        lock(&self.capture_ids).push(CaptureId::new(id));
        self.captures.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn finish_capture(&self) {
        self.captures.fetch_sub(1, Ordering::AcqRel);
    }
}
