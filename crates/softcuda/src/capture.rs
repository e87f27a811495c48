//! Captures: streams whose work becomes a graph, how they come together, and the calls that they do not bear meanwhile.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, ThreadId};

use freehold_driver::cuda::{CUerror, CUgraphNode, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus, Function};

use crate::context::Context;
use crate::event::Event;
use crate::graph::{Graph, Step};
use crate::stream::{Lane, Stream};
use crate::world::{World, lock};

thread_local! {
    /// Which captures the calls of this thread heed that no capture sees.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::GLOBAL) };
}

/// Sets the mode of the calling thread, and says what it was.
pub(crate) fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

/// The captures of a process that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// As many as there are, so that calls need no lock where there is none.
    count: AtomicUsize,
    all: Mutex<Vec<Arc<Capture>>>,
}

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) id: u64,
    mode: CUstreamCaptureMode,
    /// Who began it.
    thread: ThreadId,
    pub(crate) graph: Arc<Graph>,
    is_valid: AtomicBool,
    members: Mutex<Members>,
}

/// Who takes part in a capture.
#[derive(Debug)]
struct Members {
    /// The first one is where it began.
    streams: Vec<Weak<Stream>>,
    /// Where streams stood that were destroyed meanwhile.
    loose: Vec<usize>,
    /// Whether the capture is over, so that nobody joins it any more.
    are_free: bool,
}

/// A stream's part in a capture.
#[derive(Debug)]
pub(crate) struct Strand {
    capture: Arc<Capture>,
    /// The places in the graph of what the next node comes after.
    after: Vec<usize>,
    /// What the program was last told of those.
    shown: Vec<CUgraphNode>,
}

/// A point in a capture, which an event was moved to.
#[derive(Debug, Clone)]
pub(crate) struct Captured {
    capture: Weak<Capture>,
    after: Vec<usize>,
}

impl Captured {
    /// Spoils the capture, if it is not over.
    pub(crate) fn spoil(&self) {
        self.capture.upgrade().iter().for_each(|capture| capture.invalidate());
    }
}

/// What the program may know of a stream's capture.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) id: u64,
    pub(crate) graph: Arc<Graph>,
    /// The nodes that the next one comes after. They lie there until the program asks again.
    pub(crate) nodes: *const CUgraphNode,
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

    /// Spoils the capture and answers with `code`, or says that it was spoilt before.
    fn refuse(&self, code: CUerror) -> CUerror {
        if self.is_valid.swap(false, Ordering::AcqRel) { code } else { CUerror::STREAM_CAPTURE_INVALIDATED }
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.members).streams.iter().filter_map(Weak::upgrade).collect()
    }

    fn began_in(&self, stream: &Stream) -> bool {
        lock(&self.members).streams.first().is_some_and(|first| std::ptr::eq(first.as_ptr(), stream))
    }
}

impl Captures {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Capture>>> {
        lock(&self.all)
    }

    /// Spoils all captures that `unwanted` picks, and says whether there was one.
    fn spoil(&self, unwanted: impl Fn(&Capture) -> bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let all = self.all().clone();
        let spoilt: Vec<_> = all.into_iter().filter(|capture| capture.is_valid() && unwanted(capture)).collect();
        spoilt.iter().for_each(|capture| capture.invalidate());
        !spoilt.is_empty()
    }

    /// Refuses a call that no capture sees, where one that the calling thread heeds is active.
    pub(crate) fn refuse_unseen(&self) -> CUresult {
        let (mode, own) = (MODE.get(), thread::current().id());
        let heeds = |capture: &Capture| match mode {
            CUstreamCaptureMode::RELAXED => false,
            _ if capture.thread == own => capture.mode != CUstreamCaptureMode::RELAXED,
            _ => mode == CUstreamCaptureMode::GLOBAL && capture.mode == CUstreamCaptureMode::GLOBAL,
        };
        if self.spoil(heeds) { Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses what would wait for all streams of a context, where one is captured.
    pub(crate) fn refuse_in(&self, context: &Context) -> CUresult {
        let spoilt = self.spoil(|capture| capture.streams().iter().any(|stream| is_of(stream, context)));
        if spoilt { Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses a use of the legacy default stream, where one is captured that it would wait for.
    pub(crate) fn refuse_implicit(&self, context: &Context) -> CUresult {
        let spoilt = self.spoil(|capture| has_blocking(capture, context));
        if spoilt { Err(CUerror::STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
    }

    /// Whether a stream is captured that the legacy default stream would wait for.
    pub(crate) fn has_blocking(&self, context: &Context) -> bool {
        !self.is_empty() && self.all().clone().iter().any(|capture| has_blocking(capture, context))
    }

    /// Streams end: the captures that began in one of them do too, and others keep what was captured so far.
    pub(crate) fn abandon(&self, world: &World, ended: impl Fn(&Stream) -> bool) {
        if self.is_empty() {
            return;
        }
        let all = self.all().clone();
        for capture in all {
            let streams = capture.streams();
            if let Some(first) = streams.first().filter(|first| ended(first) && capture.began_in(first)) {
                capture.invalidate();
                finish(world, first, &capture);
                world.graphs.remove(capture.graph.handle.0);
                continue;
            }
            for stream in streams.iter().filter(|stream| ended(stream)) {
                let after = lock(&stream.strand).take().map(|strand| strand.after);
                lock(&capture.members).loose.extend(after.unwrap_or_default());
            }
        }
    }
}

fn is_of(stream: &Stream, context: &Context) -> bool {
    std::ptr::eq(stream.context.as_ptr(), context)
}

fn has_blocking(capture: &Capture, context: &Context) -> bool {
    capture.streams().iter().any(|stream| stream.queue.blocking && is_of(stream, context))
}

/// Begins to capture the work of a stream.
pub(crate) fn begin(world: &World, lane: &Lane, mode: CUstreamCaptureMode) -> CUresult {
    let mut strand = lock(&lane.stream.strand);
    if strand.is_some() {
        return Err(CUerror::ILLEGAL_STATE);
    }
    let (_, graph) = world.graphs.insert_with(|handle| Arc::new(Graph::new(handle, Vec::new(), true)));
    let members = Members { streams: vec![Arc::downgrade(&lane.stream)], loose: Vec::new(), are_free: false };
    let capture = Arc::new(Capture {
        id: world.number(),
        mode,
        thread: thread::current().id(),
        graph,
        is_valid: true.into(),
        members: Mutex::new(members),
    });
    *strand = Some(Strand { capture: Arc::clone(&capture), after: Vec::new(), shown: Vec::new() });
    drop(strand);
    let mut all = world.captures.all();
    all.push(capture);
    world.captures.count.store(all.len(), Ordering::Release);
    Ok(())
}

/// Ends the capture that began in a stream.
///
/// # Errors
/// The capture goes on where this stream or this thread may not end it; else it is over, and its graph is gone.
pub(crate) fn end(world: &World, stream: &Stream) -> Result<Arc<Graph>, CUerror> {
    let (capture, after) = match lock(&stream.strand).as_ref() {
        None => return Err(CUerror::ILLEGAL_STATE),
        Some(strand) => (Arc::clone(&strand.capture), strand.after.clone()),
    };
    if !capture.began_in(stream) {
        return Err(CUerror::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != CUstreamCaptureMode::RELAXED && capture.thread != thread::current().id() {
        return Err(CUerror::STREAM_CAPTURE_WRONG_THREAD);
    }
    let loose = finish(world, stream, &capture);
    let joined = capture.graph.up_to(&after);
    let outcome = capture.check().and_then(|()| {
        let is_whole = loose.iter().all(|place| joined.contains(place));
        if is_whole { Ok(()) } else { Err(CUerror::STREAM_CAPTURE_UNJOINED) }
    });
    if let Err(code) = outcome {
        world.graphs.remove(capture.graph.handle.0);
        return Err(code);
    }
    capture.graph.close();
    Ok(Arc::clone(&capture.graph))
}

/// Lets all streams of a capture go, and says where those other than `first` stood.
fn finish(world: &World, first: &Stream, capture: &Arc<Capture>) -> Vec<usize> {
    let mut loose = {
        let mut members = lock(&capture.members);
        members.are_free = true;
        std::mem::take(&mut members.loose)
    };
    for stream in capture.streams() {
        let mut strand = lock(&stream.strand);
        if let Some(own) = strand.take_if(|own| Arc::ptr_eq(&own.capture, capture))
            && !std::ptr::eq(Arc::as_ptr(&stream), first)
        {
            loose.extend(own.after);
        }
    }
    let mut all = world.captures.all();
    all.retain(|other| !Arc::ptr_eq(other, capture));
    world.captures.count.store(all.len(), Ordering::Release);
    loose
}

impl Stream {
    pub(crate) fn is_captured(&self) -> bool {
        lock(&self.strand).is_some()
    }

    pub(crate) fn capture_status(&self) -> CUstreamCaptureStatus {
        match lock(&self.strand).as_ref() {
            None => CUstreamCaptureStatus::NONE,
            Some(strand) if strand.capture.is_valid() => CUstreamCaptureStatus::ACTIVE,
            Some(_) => CUstreamCaptureStatus::INVALIDATED,
        }
    }

    /// What the program may know of the capture that this stream is in.
    pub(crate) fn capture_report(&self) -> Option<Report> {
        let mut strand = lock(&self.strand);
        let strand = strand.as_mut().filter(|strand| strand.capture.is_valid())?;
        let nodes = strand.capture.graph.nodes();
        strand.shown = strand.after.iter().map(|&place| nodes[place].handle).collect();
        Some(Report {
            id: strand.capture.id,
            graph: Arc::clone(&strand.capture.graph),
            nodes: strand.shown.as_ptr(),
            count: strand.shown.len(),
        })
    }

    /// Notes a step in the graph that this stream is captured into, or gives it back if it is not.
    pub(crate) fn note(&self, world: &World, step: Step) -> Result<Option<Step>, CUerror> {
        let mut strand = lock(&self.strand);
        let Some(strand) = strand.as_mut() else { return Ok(Some(step)) };
        strand.capture.check()?;
        let after = std::mem::take(&mut strand.after);
        strand.after = vec![strand.capture.graph.push(world, step, after)];
        Ok(None)
    }

    /// Refuses what cannot be captured. The capture is spoilt by it.
    pub(crate) fn refuse_captured(&self, code: CUerror) -> CUresult {
        match lock(&self.strand).as_ref() {
            None => Ok(()),
            Some(strand) => Err(strand.capture.refuse(code)),
        }
    }

    /// Moves an event to where this stream stands in its capture. False if it is in none.
    pub(crate) fn mark(&self, event: &Event) -> Result<bool, CUerror> {
        let strand = lock(&self.strand);
        let Some(strand) = strand.as_ref() else { return Ok(false) };
        strand.capture.check()?;
        event.capture(Captured { capture: Arc::downgrade(&strand.capture), after: strand.after.clone() });
        Ok(true)
    }
}

impl Lane {
    /// Puts what comes next in this stream behind a point of a capture, which the stream becomes a part of.
    pub(crate) fn join(&self, point: Captured) -> CUresult {
        let Captured { capture, after } = point;
        let capture = capture.upgrade();
        let mut strand = lock(&self.stream.strand);
        if let Some(own) = strand.as_mut() {
            own.capture.check()?;
            if !capture.as_ref().is_some_and(|capture| Arc::ptr_eq(&own.capture, capture)) {
                capture.iter().for_each(|capture| capture.invalidate());
                return Err(own.capture.refuse(CUerror::STREAM_CAPTURE_MERGE));
            }
            let new: Vec<_> = after.into_iter().filter(|place| !own.after.contains(place)).collect();
            own.after.extend(new);
            return Ok(());
        }
        let capture = capture.ok_or(CUerror::CAPTURED_EVENT)?;
        if self.is_legacy() {
            return Err(capture.refuse(CUerror::STREAM_CAPTURE_IMPLICIT));
        }
        capture.check()?;
        let mut members = lock(&capture.members);
        if members.are_free {
            return Err(CUerror::CAPTURED_EVENT);
        }
        members.streams.push(Arc::downgrade(&self.stream));
        *strand = Some(Strand { capture: Arc::clone(&capture), after, shown: Vec::new() });
        Ok(())
    }
}

/// The calls that no capture sees, though a graph may come to depend on what they do.
pub(crate) fn is_unseen(function: Function) -> bool {
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
