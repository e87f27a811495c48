//! Stream captures: how the work of streams becomes a graph, how streams join a capture, and which calls are rejected
//! during one.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, ThreadId};

use freehold_driver::cuda::{
    CUerror, CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus, Function,
};

use super::event_state::{CapturePoint, EventSlot};
use super::graph::{Graph, GraphOwner, NodeKind};
use super::graph_table::GraphTable;
use super::operation::Operation;
use crate::base::sync::lock;

thread_local! {
    /// The capture mode of this thread: which captures make its uncapturable calls fail.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::GLOBAL) };
}

/// Sets the mode of the calling thread and returns the old one.
pub(crate) fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

/// The active captures of a process.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Number of active captures, so that calls need no lock when there are none.
    count: AtomicUsize,
    all: Mutex<Vec<Arc<Capture>>>,
    last_id: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) id: u64,
    mode: CUstreamCaptureMode,
    /// The thread that began the capture.
    thread: ThreadId,
    pub(crate) graph: Arc<Graph>,
    /// Whether the capture created the graph. It ends with a failed capture.
    owns_graph: bool,
    is_valid: AtomicBool,
    members: Mutex<Members>,
}

/// The streams of a capture.
#[derive(Debug)]
struct Members {
    /// The first one is the origin stream.
    streams: Vec<Weak<StreamCapture>>,
    /// The last nodes of streams that were destroyed without being joined.
    unjoined: Vec<CUgraphNode>,
    /// Whether the capture has ended. No stream can join it.
    is_ended: bool,
}

/// The capture side of a stream.
#[derive(Debug)]
pub(crate) struct StreamCapture {
    pub(crate) context_id: u64,
    /// Whether the legacy default stream waits for it.
    is_blocking: bool,
    /// Whether it is the legacy default stream of its context.
    is_legacy: bool,
    /// The stream's state in its capture, if it is in one.
    state: Mutex<Option<CaptureState>>,
}

/// The state of a stream in a capture.
#[derive(Debug)]
struct CaptureState {
    capture: Arc<Capture>,
    /// The nodes that the next node depends on.
    dependencies: Vec<CUgraphNode>,
    /// These nodes and the kinds of the dependencies, as last reported to the program.
    reported: Vec<CUgraphNode>,
    reported_edges: Vec<CUgraphEdgeData>,
}

impl CaptureState {
    fn new(capture: &Arc<Capture>, dependencies: Vec<CUgraphNode>) -> Self {
        Self { capture: Arc::clone(capture), dependencies, reported: Vec::new(), reported_edges: Vec::new() }
    }
}

/// The information about a stream's capture that the program can query.
#[derive(Debug)]
pub(crate) struct CaptureInfo {
    pub(crate) id: u64,
    pub(crate) graph: Arc<Graph>,
    /// The nodes that the next one depends on. Valid until the program queries again.
    pub(crate) nodes: *const CUgraphNode,
    /// The kinds of these dependencies, valid as long.
    pub(crate) edges: *const CUgraphEdgeData,
    pub(crate) count: usize,
}

impl Capture {
    fn invalidate(&self) {
        self.is_valid.store(false, Ordering::Release);
    }

    fn is_valid(&self) -> bool {
        self.is_valid.load(Ordering::Acquire)
    }

    fn check(&self) -> CUresult {
        if self.is_valid() { Ok(()) } else { Err(CUerror::STREAM_CAPTURE_INVALIDATED) }
    }

    /// Invalidates the capture and returns `code`, or the code for a capture that was invalidated before.
    fn fail(&self, code: CUerror) -> CUerror {
        if self.is_valid.swap(false, Ordering::AcqRel) { code } else { CUerror::STREAM_CAPTURE_INVALIDATED }
    }

    fn streams(&self) -> Vec<Arc<StreamCapture>> {
        lock(&self.members).streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// Destroys the graph of a failed capture, unless it is the program's.
    fn discard(&self, graphs: &GraphTable) {
        if self.owns_graph {
            // The program could not destroy it during the capture.
            let _removed = graphs.remove(&self.graph);
        }
    }

    fn is_origin(&self, stream: &StreamCapture) -> bool {
        lock(&self.members).streams.first().is_some_and(|first| std::ptr::eq(first.as_ptr(), stream))
    }
}

impl Captures {
    /// Returns the capture with an id, unless it has ended.
    fn find(&self, id: u64) -> Option<Arc<Capture>> {
        self.all().iter().find(|capture| capture.id == id).cloned()
    }

    /// Invalidates the capture of a capture point, unless it has ended.
    pub(crate) fn invalidate(&self, point: &CapturePoint) {
        self.find(point.capture_id).iter().for_each(|capture| capture.invalidate());
    }

    /// Invalidates the capture of a stream, if it is captured.
    pub(crate) fn invalidate_of(&self, stream: &Arc<StreamCapture>) {
        self.invalidate_if(|capture| capture.streams().iter().any(|member| Arc::ptr_eq(member, stream)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the ids of the captures that have not ended.
    pub(crate) fn ids(&self) -> Vec<u64> {
        if self.is_empty() { Vec::new() } else { self.all().iter().map(|capture| capture.id).collect() }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Capture>>> {
        lock(&self.all)
    }

    /// Invalidates all captures for which `unwanted` returns true. Returns whether there was one.
    fn invalidate_if(&self, unwanted: impl Fn(&Capture) -> bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let all = self.all().clone();
        let invalidated: Vec<_> = all.into_iter().filter(|capture| capture.is_valid() && unwanted(capture)).collect();
        invalidated.iter().for_each(|capture| capture.invalidate());
        !invalidated.is_empty()
    }

    /// Refuses a call that cannot be captured, if an active capture forbids it to the calling thread.
    pub(crate) fn refuse_unsafe_call(&self) -> CUresult {
        let (mode, own) = (MODE.get(), thread::current().id());
        let applies = |capture: &Capture| match mode {
            CUstreamCaptureMode::RELAXED => false,
            _ if capture.thread == own => capture.mode != CUstreamCaptureMode::RELAXED,
            _ => mode == CUstreamCaptureMode::GLOBAL && capture.mode == CUstreamCaptureMode::GLOBAL,
        };
        if self.invalidate_if(applies) { Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses a call that would wait for all streams of a context, if one of them is being captured.
    pub(crate) fn refuse_context_sync(&self, context_id: u64) -> CUresult {
        let invalidated =
            self.invalidate_if(|capture| capture.streams().iter().any(|stream| stream.context_id == context_id));
        if invalidated { Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses a use of the legacy default stream, if a stream that it would wait for is being captured.
    pub(crate) fn refuse_implicit(&self, context_id: u64) -> CUresult {
        let invalidated = self.invalidate_if(|capture| has_blocking(capture, context_id));
        if invalidated { Err(CUerror::STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
    }

    /// Returns whether a stream that the legacy default stream would wait for is being captured.
    pub(crate) fn has_blocking(&self, context_id: u64) -> bool {
        !self.is_empty() && self.all().clone().iter().any(|capture| has_blocking(capture, context_id))
    }

    /// Handles the end of streams: captures that began in one of them end too, and other captures keep the nodes
    /// captured so far.
    pub(crate) fn drop_streams(&self, graphs: &GraphTable, ended: impl Fn(&StreamCapture) -> bool) {
        if self.is_empty() {
            return;
        }
        let all = self.all().clone();
        for capture in all {
            let streams = capture.streams();
            if let Some(first) = streams.first().filter(|first| ended(first) && capture.is_origin(first)) {
                capture.invalidate();
                self.finish(first, &capture);
                capture.discard(graphs);
                continue;
            }
            for stream in streams.iter().filter(|stream| ended(stream)) {
                let after = lock(&stream.state).take().map(|state| state.dependencies);
                lock(&capture.members).unjoined.extend(after.unwrap_or_default());
            }
        }
    }

    /// Starts to capture the work of a stream, into a new graph or into one of the program, after nodes of it.
    pub(crate) fn begin(
        &self,
        graphs: &GraphTable,
        stream: &Arc<StreamCapture>,
        mode: CUstreamCaptureMode,
        into: Option<(Arc<Graph>, Vec<CUgraphNode>)>,
    ) -> CUresult {
        let mut state = lock(&stream.state);
        if state.is_some() {
            return Err(CUerror::ILLEGAL_STATE);
        }
        let owns_graph = into.is_none();
        let (graph, dependencies) = into.unwrap_or_else(|| (graphs.create(GraphOwner::Program), Vec::new()));
        let members = Members { streams: vec![Arc::downgrade(stream)], unjoined: Vec::new(), is_ended: false };
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        graph.begin_capture(id);
        let capture = Arc::new(Capture {
            id,
            mode,
            thread: thread::current().id(),
            graph,
            owns_graph,
            is_valid: true.into(),
            members: Mutex::new(members),
        });
        *state = Some(CaptureState::new(&capture, dependencies));
        let mut all = self.all();
        all.push(capture);
        self.count.store(all.len(), Ordering::Release);
        Ok(())
    }

    /// Ends the capture that began in a stream.
    ///
    /// # Errors
    /// If this stream or this thread may not end the capture, it continues; otherwise it has ended and its graph is
    /// gone.
    pub(crate) fn end(&self, graphs: &GraphTable, stream: &StreamCapture) -> Result<Arc<Graph>, CUerror> {
        let (capture, after) = match lock(&stream.state).as_ref() {
            None => return Err(CUerror::ILLEGAL_STATE),
            Some(state) => (Arc::clone(&state.capture), state.dependencies.clone()),
        };
        if !capture.is_origin(stream) {
            return Err(CUerror::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CUstreamCaptureMode::RELAXED && capture.thread != thread::current().id() {
            return Err(CUerror::STREAM_CAPTURE_WRONG_THREAD);
        }
        let unjoined = self.finish(stream, &capture);
        let joined = capture.graph.with_ancestors(&after);
        let outcome = capture.check().and_then(|()| {
            let is_whole = unjoined.iter().all(|node| joined.contains(node));
            if is_whole { Ok(()) } else { Err(CUerror::STREAM_CAPTURE_UNJOINED) }
        });
        if let Err(code) = outcome {
            capture.discard(graphs);
            return Err(code);
        }
        Ok(Arc::clone(&capture.graph))
    }

    /// Releases all streams of a capture and returns the last nodes of those other than `first`.
    fn finish(&self, first: &StreamCapture, capture: &Arc<Capture>) -> Vec<CUgraphNode> {
        let mut unjoined = {
            let mut members = lock(&capture.members);
            members.is_ended = true;
            std::mem::take(&mut members.unjoined)
        };
        for stream in capture.streams() {
            let mut state = lock(&stream.state);
            if let Some(own) = state.take_if(|own| Arc::ptr_eq(&own.capture, capture))
                && !std::ptr::eq(Arc::as_ptr(&stream), first)
            {
                unjoined.extend(own.dependencies);
            }
        }
        let mut all = self.all();
        all.retain(|other| !Arc::ptr_eq(other, capture));
        self.count.store(all.len(), Ordering::Release);
        capture.graph.finish_capture();
        unjoined
    }
}

fn has_blocking(capture: &Capture, context_id: u64) -> bool {
    capture.streams().iter().any(|stream| stream.is_blocking && stream.context_id == context_id)
}

impl StreamCapture {
    pub(crate) fn new(context_id: u64, is_blocking: bool, is_legacy: bool) -> Self {
        Self { context_id, is_blocking, is_legacy, state: Mutex::default() }
    }

    pub(crate) fn is_captured(&self) -> bool {
        lock(&self.state).is_some()
    }

    pub(crate) fn status(&self) -> CUstreamCaptureStatus {
        match lock(&self.state).as_ref() {
            None => CUstreamCaptureStatus::NONE,
            Some(state) if state.capture.is_valid() => CUstreamCaptureStatus::ACTIVE,
            Some(_) => CUstreamCaptureStatus::INVALIDATED,
        }
    }

    /// Returns information about the capture that this stream is in.
    pub(crate) fn info(&self) -> Option<CaptureInfo> {
        let mut state = lock(&self.state);
        let state = state.as_mut().filter(|state| state.capture.is_valid())?;
        state.reported.clone_from(&state.dependencies);
        state.reported_edges = vec![CUgraphEdgeData::default(); state.reported.len()];
        Some(CaptureInfo {
            id: state.capture.id,
            graph: Arc::clone(&state.capture.graph),
            nodes: state.reported.as_ptr(),
            edges: state.reported_edges.as_ptr(),
            count: state.reported.len(),
        })
    }

    /// Adds a node to the graph that this stream is captured into, or returns `input` if the stream is not captured.
    pub(crate) fn try_capture<T>(
        &self,
        graphs: &GraphTable,
        input: T,
        describe: impl FnOnce(T) -> Operation,
    ) -> Result<Option<T>, CUerror> {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return Ok(Some(input)) };
        state.capture.check()?;
        let after = std::mem::take(&mut state.dependencies);
        let kind = NodeKind::Run(Arc::new(describe(input)));
        state.dependencies = vec![graphs.add_node(&state.capture.graph, kind, after)];
        Ok(None)
    }

    /// Changes the nodes that the next node depends on: `change` gets the graph and these nodes.
    ///
    /// # Errors
    /// The stream is not captured, or `change` returns an error.
    pub(crate) fn update_dependencies(
        &self,
        change: impl FnOnce(&Graph, &mut Vec<CUgraphNode>) -> CUresult,
    ) -> CUresult {
        let mut state = lock(&self.state);
        let state = state.as_mut().ok_or(CUerror::ILLEGAL_STATE)?;
        state.capture.check()?;
        change(&state.capture.graph, &mut state.dependencies)
    }

    /// Refuses a call that cannot be captured and invalidates the capture.
    pub(crate) fn refuse_if_captured(&self, code: CUerror) -> CUresult {
        match lock(&self.state).as_ref() {
            None => Ok(()),
            Some(state) => Err(state.capture.fail(code)),
        }
    }

    /// Records an event at this stream's position in its capture. Returns false if the stream is not captured.
    pub(crate) fn record_event(&self, event: &EventSlot) -> Result<bool, CUerror> {
        let state = lock(&self.state);
        let Some(state) = state.as_ref() else { return Ok(false) };
        state.capture.check()?;
        event.set_captured(CapturePoint { capture_id: state.capture.id, dependencies: state.dependencies.clone() });
        Ok(true)
    }

    /// Makes this stream's next node depend on a capture point. The stream joins the capture.
    pub(crate) fn join(self: &Arc<Self>, captures: &Captures, point: CapturePoint) -> CUresult {
        let CapturePoint { capture_id, dependencies: after } = point;
        let capture = captures.find(capture_id);
        let mut state = lock(&self.state);
        if let Some(own) = state.as_mut() {
            own.capture.check()?;
            if !capture.as_ref().is_some_and(|capture| Arc::ptr_eq(&own.capture, capture)) {
                capture.iter().for_each(|capture| capture.invalidate());
                return Err(own.capture.fail(CUerror::STREAM_CAPTURE_MERGE));
            }
            let new: Vec<_> = after.into_iter().filter(|index| !own.dependencies.contains(index)).collect();
            own.dependencies.extend(new);
            return Ok(());
        }
        let capture = capture.ok_or(CUerror::CAPTURED_EVENT)?;
        if self.is_legacy {
            return Err(capture.fail(CUerror::STREAM_CAPTURE_IMPLICIT));
        }
        capture.check()?;
        let mut members = lock(&capture.members);
        if members.is_ended {
            return Err(CUerror::CAPTURED_EVENT);
        }
        members.streams.push(Arc::downgrade(self));
        *state = Some(CaptureState::new(&capture, after));
        Ok(())
    }
}

/// Returns whether a function cannot be captured although a graph may depend on its effects.
pub(crate) fn is_unsafe_in_capture(function: Function) -> bool {
    matches!(
        function,
        Function::cuMemAlloc_v2
            | Function::cuMemAllocPitch_v2
            | Function::cuMemAllocHost_v2
            | Function::cuMemHostAlloc
            | Function::cuMemAllocManaged
            | Function::cuMemFree_v2
            | Function::cuMemFreeHost
            | Function::cuMemHostRegister_v2
            | Function::cuMemHostUnregister
            | Function::cuModuleLoad
            | Function::cuModuleLoadData
            | Function::cuModuleLoadDataEx
            | Function::cuModuleLoadFatBinary
            | Function::cuModuleUnload
    )
}
