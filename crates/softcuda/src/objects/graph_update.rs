//! Updates of an executable graph with the parameters of another graph of the same structure.
//!
//! Nodes are paired starting with those that no other node depends on, in the order of their addition; then come the dependencies
//! of each pair, in the order of their edges. All pairs are checked before anything changes.

use std::sync::Arc;

use freehold_driver::cuda::{CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNode};

use super::graph::{Graph, NodeKind};
use super::graph_exec::{Action, ExecGraph, ExecNode};
use super::operation::Operation;

/// Takes over the parameters of all nodes of `graph`.
///
/// # Errors
/// Why the update is refused: then nothing has changed.
pub(crate) fn update(exec: &mut ExecGraph, graph: &Graph) -> Result<(), CUgraphExecUpdateResultInfo> {
    let changes = plan(exec, graph)?;
    apply(exec, changes);
    Ok(())
}

/// The change of one node.
enum Change {
    Run(Arc<Operation>),
    Child(Vec<Change>),
}

fn refusal(result: CUgraphExecUpdateResult, node: CUgraphNode) -> CUgraphExecUpdateResultInfo {
    CUgraphExecUpdateResultInfo { result, errorNode: node, errorFromNode: CUgraphNode::NULL }
}

/// Returns the changes of all nodes, in their order in `exec`.
fn plan(exec: &ExecGraph, graph: &Graph) -> Result<Vec<Change>, CUgraphExecUpdateResultInfo> {
    let changed = |node| refusal(CUgraphExecUpdateResult::TOPOLOGY_CHANGED, node);
    let new = ExecGraph::new(graph).map_err(changed)?;
    let partners = pair(&exec.nodes, &new.nodes)?;
    let mut changes = Vec::with_capacity(partners.len());
    for (old, partner) in exec.nodes.iter().zip(partners) {
        let new = &new.nodes[partner];
        changes.push(match (&old.action, &new.action) {
            (Action::Run(old), Action::Run(operation)) => {
                old.check_update(operation).map_err(|result| refusal(result, new.handle))?;
                Change::Run(Arc::clone(operation))
            }
            (Action::Child(old), Action::Child(_)) => match graph.kind(new.handle) {
                Some(NodeKind::Child(child)) => Change::Child(plan(old, &child)?),
                _ => return Err(changed(new.handle)),
            },
            _ => return Err(refusal(CUgraphExecUpdateResult::NODE_TYPE_CHANGED, new.handle)),
        });
    }
    Ok(changes)
}

/// Returns for each old node the index of the new one.
fn pair(old: &[ExecNode], new: &[ExecNode]) -> Result<Vec<usize>, CUgraphExecUpdateResultInfo> {
    let changed = |node| refusal(CUgraphExecUpdateResult::TOPOLOGY_CHANGED, node);
    if old.len() != new.len() {
        return Err(changed(CUgraphNode::NULL));
    }
    let (old_ends, new_ends) = (ends(old), ends(new));
    if new_ends.len() > old_ends.len() {
        return Err(changed(new[new_ends[old_ends.len()]].handle));
    }
    let mut partners = vec![None; old.len()];
    let mut is_taken = vec![false; new.len()];
    let mut open: Vec<_> = old_ends.into_iter().zip(new_ends).collect();
    for &(one, other) in &open {
        (partners[one], is_taken[other]) = (Some(other), true);
    }
    while let Some((one, other)) = open.pop() {
        if old[one].dependencies.len() != new[other].dependencies.len() {
            return Err(changed(new[other].handle));
        }
        for (&before, &new_before) in old[one].dependencies.iter().zip(&new[other].dependencies) {
            match partners[before] {
                Some(partner) if partner == new_before => {}
                None if !is_taken[new_before] => {
                    (partners[before], is_taken[new_before]) = (Some(new_before), true);
                    open.push((before, new_before));
                }
                _ => {
                    let before = new[new_before].handle;
                    return Err(CUgraphExecUpdateResultInfo { errorFromNode: before, ..changed(new[other].handle) });
                }
            }
        }
    }
    partners.into_iter().collect::<Option<Vec<_>>>().ok_or(changed(CUgraphNode::NULL))
}

/// Returns the nodes that no other depends on.
fn ends(nodes: &[ExecNode]) -> Vec<usize> {
    let mut is_end = vec![true; nodes.len()];
    nodes.iter().flat_map(|node| &node.dependencies).for_each(|&from| is_end[from] = false);
    (0..nodes.len()).filter(|&index| is_end[index]).collect()
}

fn apply(exec: &mut ExecGraph, changes: Vec<Change>) {
    for (node, change) in exec.nodes.iter_mut().zip(changes) {
        match (&mut node.action, change) {
            (Action::Run(operation), Change::Run(new)) => *operation = new,
            (Action::Child(child), Change::Child(changes)) => apply(child, changes),
            (Action::Run(_), Change::Child(_)) | (Action::Child(_), Change::Run(_)) => {
                unreachable!("pairs of different kinds were refused")
            }
        }
    }
}
