//! Resolves stream handles for the calling thread, and submits work to the stream.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use freehold_check::Kind;
use freehold_driver::cuda::{CUerror, CUresult, CUstream, stream_flags};
use rand_xoshiro::SplitMix64;

use super::capture::Captures;
use super::context::{self, Context};
use super::graph_table::GraphTable;
use super::operation::Operation;
use super::stream::Stream;
use crate::base::check;
use crate::base::handle_table::HandleTable;
use crate::engine::Engine;
use crate::engine::queue::Fence;
use crate::engine::work::Work;
use crate::ffi::default_stream::is_per_thread_default;

thread_local! {
    /// This thread's default streams, one for each context in which it used one.
    static PER_THREAD_STREAMS: RefCell<PerThreadStreams> = const { RefCell::new(PerThreadStreams(Vec::new())) };
}

/// The default streams of one thread. They end with it, but their pending work still runs.
struct PerThreadStreams(Vec<StreamEntry>);

impl Drop for PerThreadStreams {
    fn drop(&mut self) {
        for entry in &self.0 {
            entry.stream.queue.close();
        }
    }
}

/// A stream with its context, which may be gone.
#[derive(Debug)]
pub(crate) struct StreamEntry {
    pub(crate) context: Weak<Context>,
    pub(crate) stream: Arc<Stream>,
}

impl StreamEntry {
    /// Creates a stream in a context.
    pub(crate) fn create(engine: &Engine, context: &Arc<Context>, flags: u32, priority: i32) -> Self {
        let queue = context.new_queue(engine, flags == stream_flags::DEFAULT);
        Self { context: Arc::downgrade(context), stream: Arc::new(Stream::new(context.id, queue, flags, priority)) }
    }
}

/// Returns the calling thread's default stream in a context, created on first use.
fn per_thread_stream(engine: &Engine, context: &Arc<Context>) -> Arc<Stream> {
    PER_THREAD_STREAMS.with_borrow_mut(|PerThreadStreams(entries)| {
        if let Some(entry) = entries.iter().find(|entry| context.is(&entry.context)) {
            return Arc::clone(&entry.stream);
        }
        entries.retain(|entry| entry.context.strong_count() > 0);
        let entry = StreamEntry::create(engine, context, stream_flags::DEFAULT, 0);
        entry.stream.queue.name_checked(Some("the default stream of a thread"));
        let stream = Arc::clone(&entry.stream);
        entries.push(entry);
        stream
    })
}

/// A stream that a call names, with everything that the call needs to submit work.
#[derive(Debug)]
pub(crate) struct StreamRef<'d> {
    engine: &'d Arc<Engine>,
    captures: &'d Captures,
    graphs: &'d GraphTable,
    pub(crate) context: Arc<Context>,
    pub(crate) stream: Arc<Stream>,
}

impl<'d> StreamRef<'d> {
    /// Resolves a handle: 0 is the default stream of the call's kind, 1 the legacy one, 2 the per-thread one.
    pub(crate) fn new(
        engine: &'d Arc<Engine>,
        captures: &'d Captures,
        graphs: &'d GraphTable,
        streams: &HandleTable<StreamEntry>,
        handle: CUstream,
    ) -> Result<Self, CUerror> {
        match handle {
            CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD => {
                let context = context::current()?;
                let is_per_thread = handle == CUstream::PER_THREAD || handle.0 == 0 && is_per_thread_default();
                let stream =
                    if is_per_thread { per_thread_stream(engine, &context) } else { Arc::clone(context.legacy()) };
                Ok(Self { engine, captures, graphs, context, stream })
            }
            _ => {
                let entry = streams.get(handle.0).inspect_err(|_| check::stale(Kind::StreamInUse, "a stream"))?;
                let context = entry.context.upgrade().ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
                context.check_alive()?;
                Ok(Self { engine, captures, graphs, context, stream: Arc::clone(&entry.stream) })
            }
        }
    }

    /// Adds work to the stream, or what `describe` makes of it to the graph that the stream is captured into.
    pub(crate) fn submit(&self, work: Work, describe: impl FnOnce(Work) -> Operation) -> CUresult {
        match self.stream.capture.try_capture(self.graphs, work, describe)? {
            Some(work) => self.submit_uncaptured(Vec::new(), work).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Adds an operation to the graph that the stream is captured into.
    ///
    /// # Errors
    /// The stream is not captured: another thread may have ended the capture.
    pub(crate) fn capture(&self, operation: Operation) -> CUresult {
        match self.stream.capture.try_capture(self.graphs, operation, |operation| operation)? {
            Some(_) => Err(CUerror::ILLEGAL_STATE),
            None => Ok(()),
        }
    }

    /// Returns a number for a queue that only the checker knows.
    pub(crate) fn new_queue_id(&self) -> u64 {
        self.engine.new_queue_id()
    }

    /// Returns a generator for the order of work that one call submits, if the schedule has a seed.
    pub(crate) fn draw(&self) -> Option<SplitMix64> {
        self.engine.draw()
    }

    /// Returns whether the schedule limits the number of switches.
    pub(crate) fn is_limited(&self) -> bool {
        self.engine.is_limited()
    }

    /// Submits work that is never captured, to start when all of `after` has completed, and returns its fence.
    pub(crate) fn submit_uncaptured(&self, after: Vec<Fence>, work: Work) -> Result<Fence, CUerror> {
        self.ensure_not_captured()?;
        self.context.submit(self.engine, &self.stream.queue, after, work)
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.stream.capture.is_captured()
    }

    /// Returns an error if the stream, or one that it would wait for, is being captured.
    pub(crate) fn ensure_not_captured(&self) -> CUresult {
        if self.captures.is_empty() {
            return Ok(());
        }
        self.stream.capture.refuse_if_captured(CUerror::STREAM_CAPTURE_UNSUPPORTED)?;
        if self.is_legacy() { self.captures.refuse_implicit(self.context.id) } else { Ok(()) }
    }

    /// Waits for all work of the stream so far, and for the legacy stream also for the work that it waits for.
    pub(crate) fn synchronize(&self) -> CUresult {
        self.ensure_not_captured()?;
        self.engine.wait(&self.last_fence()?);
        Ok(())
    }

    /// Returns the fence after all work of the stream so far, and for the legacy stream also after the work that it
    /// would wait for.
    pub(crate) fn last_fence(&self) -> Result<Fence, CUerror> {
        let queue = &self.stream.queue;
        if self.is_legacy() && self.context.has_blocking_work() {
            return self.submit_uncaptured(Vec::new(), Work::Barrier);
        }
        Ok(Fence { queue: Arc::clone(queue), seq: queue.last_seq() })
    }

    /// Returns whether no work is pending that new work would come after.
    pub(crate) fn is_idle(&self) -> bool {
        self.stream.queue.is_idle() && !(self.is_legacy() && self.context.has_pending_blocking_work())
    }

    /// Notes that the program knows that no work is pending.
    pub(crate) fn mark_observed(&self, seq: u64) {
        self.stream.queue.mark_observed(seq);
        if self.is_legacy() {
            self.context.mark_blocking_observed();
        }
    }

    /// Returns whether new work would have to wait, for pending work here or because of the legacy default stream.
    pub(crate) fn would_wait(&self) -> bool {
        let waits_for_legacy = self.stream.queue.is_blocking && !self.context.legacy().queue.is_known_idle();
        let waits_for_others = self.is_legacy() && self.context.has_blocking_work();
        waits_for_legacy || waits_for_others || !self.stream.queue.is_known_idle()
    }

    /// Waits until new work would run at once.
    pub(crate) fn wait_until_ready(&self) -> CUresult {
        if self.would_wait() {
            self.engine.wait(&self.submit_uncaptured(Vec::new(), Work::Barrier)?);
        }
        Ok(())
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.stream.queue.id == self.context.legacy().queue.id
    }
}
