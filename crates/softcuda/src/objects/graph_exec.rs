//! Instantiated graphs. A launch submits the nodes to its stream in the order in which they were added.

use std::sync::{Arc, Mutex};

use freehold_driver::cuda::{CUerror, CUresult};

use super::event_state::{EventRecord, EventSlot};
use super::graph::{Graph, Node, NodeKind};
use super::stream_ref::StreamRef;
use crate::base::sync::lock;
use crate::engine::queue::Fence;
use crate::engine::work::{Timestamp, Work};

/// A graph as it was when it was instantiated.
#[derive(Debug)]
pub(crate) struct GraphExec {
    nodes: Vec<Arc<Node>>,
    /// The end of the last launch: launches do not overlap.
    last_launch: Mutex<Option<Fence>>,
}

impl GraphExec {
    pub(crate) fn new(graph: &Graph) -> Self {
        Self { nodes: graph.nodes(), last_launch: Mutex::default() }
    }

    /// Submits the work of all nodes to a stream. The stream must not be captured: nested launches are not supported.
    pub(crate) fn launch(&self, stream_ref: &StreamRef<'_>) -> CUresult {
        stream_ref.ensure_not_captured()?;
        // All resources are allocated before the first node is submitted: a launch that fails does nothing.
        let steps = self.nodes.iter().map(|node| LaunchStep::new_step(&node.kind)).collect::<Result<Vec<_>, _>>()?;
        let mut last = lock(&self.last_launch);
        let start = last.clone().into_iter().collect();
        let mut end = stream_ref.submit_uncaptured(start, Work::Barrier)?;
        for step in steps {
            *last = Some(end.clone());
            end = step.submit(stream_ref, end)?;
        }
        *last = Some(end);
        Ok(())
    }
}

/// One node of one launch.
enum LaunchStep<'n> {
    Work(Work),
    EventRecord(&'n EventSlot),
    EventWait(&'n EventSlot),
}

impl<'n> LaunchStep<'n> {
    fn new_step(step: &'n NodeKind) -> Result<Self, CUerror> {
        Ok(match step {
            NodeKind::Work(work) => Self::Work(work.try_clone()?),
            NodeKind::EventRecord(event) => Self::EventRecord(event),
            NodeKind::EventWait(event) => Self::EventWait(event),
        })
    }

    /// Submits the step to the stream, whose last fence is `end`, and returns the new last fence.
    fn submit(self, stream_ref: &StreamRef<'_>, end: Fence) -> Result<Fence, CUerror> {
        match self {
            Self::Work(work) => stream_ref.submit_uncaptured(Vec::new(), work),
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
