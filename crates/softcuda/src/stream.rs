//! Streams: what a handle of one means to the calling thread.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Weak};

use freehold_driver::cuda::{CUerror, CUresult, CUstream, stream_flags};

use crate::boundary;
use crate::capture::Strand;
use crate::context::{self, Context};
use crate::engine::queue::{Point, Queue};
use crate::engine::work::Work;
use crate::graph::Step;
use crate::world::World;

thread_local! {
    /// This thread's own default streams, one for each context in which it used one.
    static OWN: RefCell<OwnStreams> = const { RefCell::new(OwnStreams(Vec::new())) };
}

/// The default streams of one thread. They end with it; what is pending in them is still carried out.
struct OwnStreams(Vec<Arc<Stream>>);

impl Drop for OwnStreams {
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
    pub(crate) strand: Mutex<Option<Strand>>,
}

impl Stream {
    /// A default stream: the legacy one of a context, or the own one of a thread.
    pub(crate) fn default_of(context: Weak<Context>, queue: Arc<Queue>) -> Self {
        Self::new(context, queue, stream_flags::DEFAULT, 0)
    }

    pub(crate) fn new(context: Weak<Context>, queue: Arc<Queue>, flags: u32, priority: i32) -> Self {
        Self { context, queue, flags, priority, strand: Mutex::default() }
    }
}

/// The calling thread's own default stream in a context, made when it is first used.
fn own_stream(world: &World, context: &Arc<Context>) -> Arc<Stream> {
    OWN.with_borrow_mut(|OwnStreams(streams)| {
        let of_context = |stream: &&Arc<Stream>| std::ptr::eq(stream.context.as_ptr(), Arc::as_ptr(context));
        if let Some(stream) = streams.iter().find(of_context) {
            return Arc::clone(stream);
        }
        streams.retain(|stream| stream.context.strong_count() > 0);
        let queue = context.open_queue(world, true);
        let stream = Arc::new(Stream::default_of(Arc::downgrade(context), queue));
        streams.push(Arc::clone(&stream));
        stream
    })
}

/// A stream with the context that it belongs to.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) context: Arc<Context>,
    pub(crate) stream: Arc<Stream>,
}

impl Lane {
    /// Adds work to the stream, or to the graph that it is captured into.
    pub(crate) fn add(&self, world: &World, work: Work) -> CUresult {
        self.note(world, Step::Work(work))
    }

    /// Notes a step in the graph that the stream is captured into. Work is carried out where it is in no capture.
    pub(crate) fn note(&self, world: &World, step: Step) -> CUresult {
        match self.stream.note(world, step)? {
            Some(Step::Work(work)) => self.queue(world, Vec::new(), work).map(|_| ()),
            // The capture was ended by another thread meanwhile.
            Some(_) => Err(CUerror::ILLEGAL_STATE),
            None => Ok(()),
        }
    }

    /// Adds work that is never captured, to start when all of `after` has passed, and says where it is.
    pub(crate) fn queue(&self, world: &World, after: Vec<Point>, work: Work) -> Result<Point, CUerror> {
        self.not_captured(world)?;
        self.context.add(world, &self.stream.queue, after, work)
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.stream.is_captured()
    }

    /// Refuses what a stream cannot be asked for while it, or one that it would wait for, is captured.
    pub(crate) fn not_captured(&self, world: &World) -> CUresult {
        if world.captures.is_empty() {
            return Ok(());
        }
        self.stream.refuse_captured(CUerror::STREAM_CAPTURE_UNSUPPORTED)?;
        if self.is_legacy() { world.captures.refuse_implicit(&self.context) } else { Ok(()) }
    }

    /// Waits for all work of the stream so far; for the legacy one also for what it waits for.
    pub(crate) fn synchronize(&self, world: &World) -> CUresult {
        self.not_captured(world)?;
        world.engine.wait(&self.end(world)?);
        Ok(())
    }

    /// The point after all work of the stream so far; of the legacy one, also after what it would wait for.
    pub(crate) fn end(&self, world: &World) -> Result<Point, CUerror> {
        let queue = &self.stream.queue;
        if self.is_legacy() && self.context.has_blocking_work() {
            return self.queue(world, Vec::new(), Work::Nothing);
        }
        Ok(Point { queue: Arc::clone(queue), position: queue.end() })
    }

    /// Whether nothing is pending that work added now would come after.
    pub(crate) fn is_idle(&self) -> bool {
        self.stream.queue.is_idle() && !(self.is_legacy() && self.context.has_blocking_work())
    }

    /// Whether work added now would have to wait: for what is pending here, or for what the legacy default stream
    /// demands.
    pub(crate) fn would_wait(&self) -> bool {
        let waits_for_legacy = self.stream.queue.blocking && !self.context.legacy().queue.is_idle();
        waits_for_legacy || !self.is_idle()
    }

    /// Waits until work added now would run at once.
    pub(crate) fn wait_for_turn(&self, world: &World) -> CUresult {
        if self.would_wait() {
            world.engine.wait(&self.queue(world, Vec::new(), Work::Nothing)?);
        }
        Ok(())
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.stream.queue.id == self.context.legacy().queue.id
    }
}

/// What a handle names: 0 the default stream of the call's kind, 1 the legacy one, 2 the thread's own.
pub(crate) fn lane(world: &World, handle: CUstream) -> Result<Lane, CUerror> {
    match handle {
        CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD => {
            let context = context::current()?;
            let own = handle == CUstream::PER_THREAD || handle.0 == 0 && boundary::is_per_thread_default();
            let stream = if own { own_stream(world, &context) } else { Arc::clone(context.legacy()) };
            Ok(Lane { context, stream })
        }
        _ => {
            let stream = world.streams.find(handle.0).ok_or(CUerror::INVALID_HANDLE)?;
            let context = stream.context.upgrade().ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
            context.alive()?;
            Ok(Lane { context, stream })
        }
    }
}
