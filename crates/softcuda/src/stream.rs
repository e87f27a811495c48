//! Streams: what a handle of one means to the calling thread.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Weak};

use freehold_driver::cuda::{CUerror, CUresult, CUstream, stream_flags};

use crate::capture::CaptureState;
use crate::context::{self, Context};
use crate::driver_state::DriverState;
use crate::engine::queue::{Fence, Queue};
use crate::engine::work::Work;
use crate::ffi::default_stream::is_per_thread_default;
use crate::graph::NodeKind;

thread_local! {
    /// This thread's own default streams, one for each context in which it used one.
    static PER_THREAD_STREAMS: RefCell<PerThreadStreams> = const { RefCell::new(PerThreadStreams(Vec::new())) };
}

/// The default streams of one thread. They end with it; what is pending in them is still carried out.
struct PerThreadStreams(Vec<Arc<Stream>>);

impl Drop for PerThreadStreams {
    fn drop(&mut self) {
        for stream in &self.0 {
            stream.queue.close();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Weak<Context>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// Its part in a capture, if it is in one.
    pub(crate) capture: Mutex<Option<CaptureState>>,
}

impl Stream {
    /// A default stream: the legacy one of a context, or the own one of a thread.
    pub(crate) fn new_default(context: Weak<Context>, queue: Arc<Queue>) -> Self {
        Self::new(context, queue, stream_flags::DEFAULT, 0)
    }

    pub(crate) fn new(context: Weak<Context>, queue: Arc<Queue>, flags: u32, priority: i32) -> Self {
        Self { context, queue, flags, priority, capture: Mutex::default() }
    }
}

/// The calling thread's own default stream in a context, made when it is first used.
fn per_thread_stream(driver: &DriverState, context: &Arc<Context>) -> Arc<Stream> {
    PER_THREAD_STREAMS.with_borrow_mut(|PerThreadStreams(streams)| {
        let of_context = |stream: &&Arc<Stream>| std::ptr::eq(stream.context.as_ptr(), Arc::as_ptr(context));
        if let Some(stream) = streams.iter().find(of_context) {
            return Arc::clone(stream);
        }
        streams.retain(|stream| stream.context.strong_count() > 0);
        let queue = context.new_queue(driver, true);
        let stream = Arc::new(Stream::new_default(Arc::downgrade(context), queue));
        streams.push(Arc::clone(&stream));
        stream
    })
}

/// A stream with the context that it belongs to.
#[derive(Debug)]
pub(crate) struct StreamRef {
    pub(crate) context: Arc<Context>,
    pub(crate) stream: Arc<Stream>,
}

impl StreamRef {
    /// Adds work to the stream, or to the graph that it is captured into.
    pub(crate) fn submit(&self, driver: &DriverState, work: Work) -> CUresult {
        self.submit_or_capture(driver, NodeKind::Work(work))
    }

    /// Notes a step in the graph that the stream is captured into. Work is carried out where it is in no capture.
    pub(crate) fn submit_or_capture(&self, driver: &DriverState, step: NodeKind) -> CUresult {
        match self.stream.try_capture(driver, step)? {
            Some(NodeKind::Work(work)) => self.submit_uncaptured(driver, Vec::new(), work).map(|_| ()),
            // The capture was ended by another thread meanwhile.
            Some(_) => Err(CUerror::ILLEGAL_STATE),
            None => Ok(()),
        }
    }

    /// Adds work that is never captured, to start when all of `after` has passed, and says where it is.
    pub(crate) fn submit_uncaptured(
        &self,
        driver: &DriverState,
        after: Vec<Fence>,
        work: Work,
    ) -> Result<Fence, CUerror> {
        self.ensure_not_captured(driver)?;
        self.context.submit(driver, &self.stream.queue, after, work)
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.stream.is_captured()
    }

    /// Refuses what a stream cannot be asked for while it, or one that it would wait for, is captured.
    pub(crate) fn ensure_not_captured(&self, driver: &DriverState) -> CUresult {
        if driver.captures.is_empty() {
            return Ok(());
        }
        self.stream.refuse_if_captured(CUerror::STREAM_CAPTURE_UNSUPPORTED)?;
        if self.is_legacy() { driver.captures.refuse_implicit(&self.context) } else { Ok(()) }
    }

    /// Waits for all work of the stream so far; for the legacy one also for what it waits for.
    pub(crate) fn synchronize(&self, driver: &DriverState) -> CUresult {
        self.ensure_not_captured(driver)?;
        driver.engine.wait(&self.last_fence(driver)?);
        Ok(())
    }

    /// The fence after all work of the stream so far; of the legacy one, also after what it would wait for.
    pub(crate) fn last_fence(&self, driver: &DriverState) -> Result<Fence, CUerror> {
        let queue = &self.stream.queue;
        if self.is_legacy() && self.context.has_blocking_work() {
            return self.submit_uncaptured(driver, Vec::new(), Work::Barrier);
        }
        Ok(Fence { queue: Arc::clone(queue), seq: queue.last_seq() })
    }

    /// Whether nothing is pending that work added now would come after.
    pub(crate) fn is_idle(&self) -> bool {
        self.stream.queue.is_idle() && !(self.is_legacy() && self.context.has_blocking_work())
    }

    /// Whether work added now would have to wait: for what is pending here, or for what the legacy default stream
    /// demands.
    pub(crate) fn would_wait(&self) -> bool {
        let waits_for_legacy = self.stream.queue.is_blocking && !self.context.legacy().queue.is_idle();
        waits_for_legacy || !self.is_idle()
    }

    /// Waits until work added now would run at once.
    pub(crate) fn wait_until_ready(&self, driver: &DriverState) -> CUresult {
        if self.would_wait() {
            driver.engine.wait(&self.submit_uncaptured(driver, Vec::new(), Work::Barrier)?);
        }
        Ok(())
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.stream.queue.id == self.context.legacy().queue.id
    }
}

/// What a handle names: 0 the default stream of the call's kind, 1 the legacy one, 2 the thread's own.
pub(crate) fn stream_ref(driver: &DriverState, handle: CUstream) -> Result<StreamRef, CUerror> {
    match handle {
        CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD => {
            let context = context::current()?;
            let is_per_thread = handle == CUstream::PER_THREAD || handle.0 == 0 && is_per_thread_default();
            let stream = if is_per_thread { per_thread_stream(driver, &context) } else { Arc::clone(context.legacy()) };
            Ok(StreamRef { context, stream })
        }
        _ => {
            let stream = driver.streams.find(handle.0).ok_or(CUerror::INVALID_HANDLE)?;
            let context = stream.context.upgrade().ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
            context.check_alive()?;
            Ok(StreamRef { context, stream })
        }
    }
}
