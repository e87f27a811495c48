//! The log of a recording: what is known so far about each use, and the file that it is written to.
//!
//! Device times come from events before and after each use, as distances from an event of the same context with a known
//! host time. A release took effect when the last use of its block had ended.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque, btree_map};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use freehold_driver::handle::Event;
use freehold_driver::{Backend, CallError, Timing};
use serde_json::{Value, json};

use super::allocation::Allocation;
use super::perfetto::{Point, Span, Thread, TraceFile};
use crate::base::pool_stats::PoolStats;
use crate::error::{Error, Result};
use crate::ledger::{ContextId, StreamId};
use crate::ordering::context_state::ContextState;
use crate::ordering::stream_state::StreamState;

/// The driver reports distances in milliseconds with 24 bits: larger distances would be less exact than a microsecond.
const DISTANCE_MAX: Duration = Duration::from_secs(4);

/// After how many uses, at the latest, their events are polled.
const USES_TO_POLL: u32 = 64;

/// The rows of streams come after those of threads.
const STREAM_ROWS: u32 = 1 << 20;

type Driver<T> = std::result::Result<T, CallError>;

#[derive(Debug)]
pub(super) struct Log {
    process: u32,
    trace: Option<Trace>,
    threads: HashMap<ThreadId, u32>,
    clocks: HashMap<ContextId, Clock>,
    spare: HashMap<ContextId, Vec<Event>>,
    pending: BTreeMap<StreamId, VecDeque<Pending>>,
    /// The block that is at an address now.
    living: HashMap<u64, u64>,
    lives: BTreeMap<u64, Life>,
    last_life: u64,
    /// Uses since the last poll.
    since_poll: u32,
    /// `tracing` events that were not emitted yet: a subscriber may call the library, which may take the log's lock.
    unemitted: Vec<TracingEvent>,
}

/// A `tracing` event that is emitted later.
pub(super) struct TracingEvent(Box<dyn FnOnce() + Send>);

impl TracingEvent {
    pub(super) fn emit(self) {
        (self.0)();
    }
}

impl fmt::Debug for TracingEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracingEvent").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Trace {
    path: PathBuf,
    file: TraceFile<BufWriter<File>>,
    rows: Vec<Thread>,
    /// The first failure. Nothing is written after it.
    failure: Option<io::ErrorKind>,
}

/// An event that is complete, or completes at once, and its time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    event: Event,
    at: Duration,
}

impl Clock {
    /// Returns the time this many milliseconds after the event, or before it if negative.
    fn after(&self, elapsed_ms: f64) -> Duration {
        let distance = Duration::from_secs_f64(elapsed_ms.abs() / 1e3);
        if elapsed_ms < 0.0 { self.at.saturating_sub(distance) } else { self.at + distance }
    }
}

/// An operation that was submitted to a stream.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) name: Arc<str>,
    pub(super) stream: StreamId,
    pub(super) context: ContextId,
    /// When the call returned.
    pub(super) returned: Duration,
}

#[derive(Debug)]
struct Pending {
    begun: Begun,
    what: Use,
    row: Thread,
    lives: Vec<u64>,
}

/// The life of a block, from its allocation to the effect of its release.
#[derive(Debug)]
struct Life {
    name: String,
    /// The block's home stream, in whose order it is released.
    stream: StreamId,
    began: Duration,
    pending_uses: u32,
    last_use: Duration,
    released: Option<(Duration, Option<&'static Location<'static>>)>,
}

/// A use whose start event was recorded in its stream.
#[derive(Debug)]
pub(crate) struct Begun {
    start: Event,
    end: Event,
    asked: Duration,
}

impl Log {
    pub(super) fn new(process: u32, file: Option<(PathBuf, TraceFile<BufWriter<File>>)>) -> Self {
        let trace = file.map(|(path, file)| Trace { path, file, rows: Vec::new(), failure: None });
        let mut log = Self {
            process,
            trace,
            threads: HashMap::new(),
            clocks: HashMap::new(),
            spare: HashMap::new(),
            pending: BTreeMap::new(),
            living: HashMap::new(),
            lives: BTreeMap::new(),
            last_life: 0,
            since_poll: 0,
            unemitted: Vec::new(),
        };
        log.write(|file| file.process(process, "freehold"));
        log
    }

    /// Takes the events to emit once nothing is locked.
    pub(super) fn take_events(&mut self) -> Vec<TracingEvent> {
        std::mem::take(&mut self.unemitted)
    }

    fn defer_event(&mut self, emit: impl FnOnce() + Send + 'static) {
        self.unemitted.push(TracingEvent(Box::new(emit)));
    }

    pub(super) fn allocated(&mut self, what: Allocation<'_>, stream: StreamId, effect: Duration, stats: PoolStats) {
        let Allocation { base, bytes, tag, at, is_reuse, asked } = what;
        let verb = if is_reuse { "reuse" } else { "allocate" };
        let event_tag = tag.map(str::to_owned);
        self.defer_event(move || {
            tracing::debug!(target: "freehold::timeline", what = verb, base = format_args!("{base:#x}"), bytes,
                stream = stream.0, tag = event_tag, at = %at, asked_us = us(asked), effect_us = us(effect));
        });
        let tag = tag.map_or(String::new(), |tag| format!(" ({tag})"));
        let name = format!("{bytes} bytes at {base:#x}{tag}");
        self.last_life += 1;
        let (id, process, row) = (self.last_life, self.process, self.thread_row());
        self.living.insert(base, id);
        let arguments = [
            ("block", json!(id)),
            ("bytes", json!(bytes)),
            ("stream", json!(stream.0)),
            ("allocated at", json!(at.to_string())),
        ];
        self.write(|file| {
            file.slice(row, &format!("{verb} {name}"), asked, effect, &arguments)?;
            file.span_begin(Span { process, id, name: &name }, effect, &arguments)
        });
        let life = Life { name, stream, began: effect, pending_uses: 0, last_use: Duration::ZERO, released: None };
        self.lives.insert(id, life);
        self.count(effect, stats);
    }

    pub(super) fn released(
        &mut self,
        base: u64,
        at: Option<&'static Location<'static>>,
        asked: Duration,
        effect: Duration,
        stats: PoolStats,
    ) {
        self.count(effect, stats);
        let row = self.thread_row();
        let Some(id) = self.living.remove(&base) else { return };
        let Some(life) = self.lives.get_mut(&id) else { return };
        life.released = Some((asked, at));
        life.last_use = life.last_use.max(effect);
        let name = format!("release {}", life.name);
        let mut arguments: Vec<(&str, Value)> = vec![("block", json!(id)), ("stream", json!(life.stream.0))];
        arguments.extend(at.iter().map(|at| ("released at", json!(at.to_string()))));
        self.write(|file| file.slice(row, &name, asked, effect, &arguments));
        self.end_life(id);
    }

    /// Records a change from the first size to the second.
    pub(super) fn resized(&mut self, base: u64, bytes: [u64; 2], asked: Duration, effect: Duration, stats: PoolStats) {
        let [had_bytes, bytes] = bytes;
        let verb = if bytes > had_bytes { "grow" } else { "shrink" };
        self.defer_event(move || {
            tracing::debug!(target: "freehold::timeline", what = verb, base = format_args!("{base:#x}"), had_bytes, bytes,
                asked_us = us(asked), effect_us = us(effect));
        });
        let row = self.thread_row();
        let arguments = [("had bytes", json!(had_bytes)), ("has bytes", json!(bytes))];
        self.write(|file| file.slice(row, &format!("{verb} vector at {base:#x}"), asked, effect, &arguments));
        self.count(effect, stats);
    }

    pub(super) fn of_module(&mut self, what: &'static str, module: u64, asked: Duration, effect: Duration) {
        self.defer_event(move || {
            tracing::debug!(target: "freehold::timeline", what, module = format_args!("{module:#x}"), asked_us = us(asked),
                effect_us = us(effect));
        });
        let row = self.thread_row();
        self.write(|file| file.slice(row, &format!("{what} module {module:#x}"), asked, effect, &[]));
    }

    /// Returns `None` if the device does not report times.
    pub(super) fn begin_use(
        &mut self,
        context_state: &ContextState,
        stream_state: &StreamState,
        asked: Duration,
    ) -> Driver<Option<Begun>> {
        let backend = &*context_state.backend;
        let Some(timing) = backend.timing() else { return Ok(None) };
        if let Entry::Vacant(clock) = self.clocks.entry(context_state.id) {
            clock.insert(Clock { event: passed_event(backend, timing)?, at: asked });
        }
        let start = self.event(timing, context_state.id)?;
        let end = self.event(timing, context_state.id).inspect_err(|_| self.keep(context_state.id, start))?;
        // SAFETY: the thread that submits work holds the stream; the event is the log's own.
        if let Err(error) = unsafe { backend.record(start, stream_state.raw) } {
            self.keep(context_state.id, start);
            self.keep(context_state.id, end);
            return Err(error);
        }
        Ok(Some(Begun { start, end, asked }))
    }

    pub(super) fn cancel_use(&mut self, begun: Begun, context: ContextId) {
        self.keep(context, begun.start);
        self.keep(context, begun.end);
    }

    pub(super) fn end_use(
        &mut self,
        begun: Begun,
        stream_state: &StreamState,
        what: Use,
        blocks: &[u64],
    ) -> Driver<()> {
        // SAFETY: as in `begin_use`.
        if let Err(error) = unsafe { stream_state.context_state().backend.record(begun.end, stream_state.raw) } {
            self.cancel_use(begun, what.context);
            return Err(error);
        }
        let lives: Vec<u64> = blocks.iter().filter_map(|base| self.living.get(base).copied()).collect();
        for id in &lives {
            if let Some(life) = self.lives.get_mut(id) {
                life.pending_uses += 1;
            }
        }
        let row = self.thread_row();
        self.pending.entry(what.stream).or_default().push_back(Pending { begun, what, row, lives });
        Ok(())
    }

    /// Polls the uses from time to time, so that their events can be reused.
    pub(super) fn poll_if_many(&mut self, backend: &dyn Backend) -> Driver<()> {
        self.since_poll += 1;
        if self.since_poll < USES_TO_POLL { Ok(()) } else { self.poll(backend) }
    }

    /// Records the times of all uses that have ended.
    pub(super) fn poll(&mut self, backend: &dyn Backend) -> Driver<()> {
        self.since_poll = 0;
        // Without it nothing is pending.
        let Some(timing) = backend.timing() else { return Ok(()) };
        let streams: Vec<StreamId> = self.pending.keys().copied().collect();
        for stream in streams {
            while let Some(first) = self.pending.get(&stream).and_then(VecDeque::front) {
                // SAFETY: the event is the log's own; those of a context that is destroyed are forgotten before.
                if !unsafe { backend.is_complete(first.begun.end) }? {
                    break;
                }
                let (begun_at, ended_at) = self.times(timing, first)?;
                if let Some(mut ended) = self.pending.get_mut(&stream).and_then(VecDeque::pop_front) {
                    self.wind(&mut ended, ended_at);
                    self.use_ended(ended, begun_at, ended_at);
                }
            }
        }
        self.pending.retain(|_, pending| !pending.is_empty());
        Ok(())
    }

    pub(super) fn forget_context(&mut self, context: ContextId) {
        self.clocks.remove(&context);
        self.spare.remove(&context);
        self.pending.retain(|_, pending| pending.front().is_none_or(|first| first.what.context != context));
    }

    /// Ends all lives, and the file. Without a driver the events stay until the process ends.
    pub(super) fn finish(mut self, backend: Option<&dyn Backend>, now: Duration) -> Result<()> {
        let ids: Vec<u64> = self.lives.keys().copied().collect();
        let process = self.process;
        for id in ids {
            if let Some(life) = self.lives.remove(&id) {
                let end = now.max(life.began);
                self.write(|file| file.span_end(Span { process, id, name: &life.name }, end));
            }
        }
        let pending = std::mem::take(&mut self.pending).into_values().flatten();
        let mut events: Vec<Event> = pending.flat_map(|one| [one.begun.start, one.begun.end]).collect();
        events.extend(self.spare.drain().flat_map(|(_, events)| events));
        events.extend(self.clocks.drain().map(|(_, clock)| clock.event));
        let destroyed = match backend {
            // SAFETY: the events are the log's own, and each is destroyed once.
            Some(backend) => events.into_iter().try_for_each(|event| unsafe { backend.destroy_event(event) }),
            None => Ok(()),
        };
        self.flush()?;
        if let Some(Trace { path, file, .. }) = self.trace {
            file.finish().map_err(|error| Error::File { path, kind: error.kind() })?;
        }
        Ok(destroyed?)
    }

    /// Flushes the file.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.write(TraceFile::flush);
        match &self.trace {
            Some(Trace { path, failure: Some(kind), .. }) => Err(Error::File { path: path.clone(), kind: *kind }),
            _ => Ok(()),
        }
    }

    fn use_ended(&mut self, ended: Pending, begun_at: Duration, ended_at: Duration) {
        let Pending { begun, what, row, lives } = ended;
        let start = begun_at.max(begun.asked);
        let end = ended_at.max(start);
        let (name, stream, asked) = (what.name.clone(), what.stream, begun.asked);
        self.defer_event(move || {
            tracing::debug!(target: "freehold::timeline", what = "use", name = &*name, stream = stream.0,
                asked_us = us(asked), begun_us = us(start), effect_us = us(end));
        });
        let stream_row = self.stream_row(what.stream, what.context);
        let names: Vec<&str> = lives.iter().filter_map(|id| self.lives.get(id)).map(|life| &*life.name).collect();
        let arguments = [
            ("asked after us", json!(us(asked))),
            ("stream", json!(what.stream.0)),
            ("used blocks", json!(lives)),
            ("blocks", json!(names.join(", "))),
        ];
        write(&mut self.trace, |file| {
            file.slice(row, &format!("put {}", what.name), asked, what.returned.max(asked), &[])?;
            file.slice(stream_row, &what.name, start, end, &arguments)?;
            file.flow("put", Point { thread: row, at: asked }, Point { thread: stream_row, at: start })
        });
        self.keep(what.context, begun.start);
        self.keep(what.context, begun.end);
        for id in lives {
            if let Some(life) = self.lives.get_mut(&id) {
                life.pending_uses -= 1;
                life.last_use = life.last_use.max(end);
            }
            self.end_life(id);
        }
    }

    /// Ends a life if its block was released and its last use is known to have ended.
    fn end_life(&mut self, id: u64) {
        let is_over = |life: &mut Life| life.released.is_some() && life.pending_uses == 0;
        let btree_map::Entry::Occupied(mut entry) = self.lives.entry(id) else { return };
        if !is_over(entry.get_mut()) {
            return;
        }
        let life = entry.remove();
        let Some((asked, at)) = life.released else { return };
        let effect = life.last_use.max(asked).max(life.began);
        let at = at.map(ToString::to_string);
        let block = life.name.clone();
        self.defer_event(move || {
            tracing::debug!(target: "freehold::timeline", what = "release", block, at, asked_us = us(asked),
                effect_us = us(effect));
        });
        let process = self.process;
        self.write(|file| file.span_end(Span { process, id, name: &life.name }, effect));
    }

    fn count(&mut self, at: Duration, stats: PoolStats) {
        let process = self.process;
        let PoolStats { owned_bytes, released_bytes, cached_bytes, .. } = stats;
        let values = [("owned", owned_bytes), ("released", released_bytes), ("cached", cached_bytes)];
        self.write(|file| file.counter(process, "device memory, bytes", at, &values));
    }

    /// Returns when a use began and ended on the device.
    fn times(&self, timing: &dyn Timing, pending: &Pending) -> Driver<(Duration, Duration)> {
        let clock = self.clocks[&pending.what.context];
        // SAFETY: both events tell the time, and are the log's own.
        let since = |event| unsafe { timing.elapsed_ms(clock.event, event) }.map(|elapsed_ms| clock.after(elapsed_ms));
        Ok((since(pending.begun.start)?, since(pending.begun.end)?))
    }

    /// Uses the end of a use as the new reference event, if the old one is too far away.
    fn wind(&mut self, ended: &mut Pending, ended_at: Duration) {
        if let Some(clock) = self.clocks.get_mut(&ended.what.context)
            && ended_at.saturating_sub(clock.at) > DISTANCE_MAX
        {
            std::mem::swap(&mut clock.event, &mut ended.begun.end);
            clock.at = ended_at;
        }
    }

    fn event(&mut self, timing: &dyn Timing, context: ContextId) -> Driver<Event> {
        match self.spare.entry(context).or_default().pop() {
            Some(event) => Ok(event),
            None => timing.create_timed_event(),
        }
    }

    fn keep(&mut self, context: ContextId, event: Event) {
        self.spare.entry(context).or_default().push(event);
    }

    fn thread_row(&mut self) -> Thread {
        let next = self.threads.len() as u32 + 1;
        let id = *self.threads.entry(thread::current().id()).or_insert(next);
        let row = Thread { process: self.process, id };
        let name = thread::current().name().map_or_else(|| format!("thread {id}"), |name| format!("thread {name}"));
        self.name_row(row, &name)
    }

    fn stream_row(&mut self, stream: StreamId, context: ContextId) -> Thread {
        let row = Thread { process: self.process, id: STREAM_ROWS + stream.0 };
        self.name_row(row, &format!("{stream} of {context}"))
    }

    fn name_row(&mut self, row: Thread, name: &str) -> Thread {
        if let Some(trace) = &mut self.trace
            && !trace.rows.contains(&row)
        {
            trace.rows.push(row);
            self.write(|file| file.thread(row, name));
        }
        row
    }

    fn write(&mut self, event: impl FnOnce(&mut TraceFile<BufWriter<File>>) -> io::Result<()>) {
        write(&mut self.trace, event);
    }
}

fn write(trace: &mut Option<Trace>, event: impl FnOnce(&mut TraceFile<BufWriter<File>>) -> io::Result<()>) {
    if let Some(trace) = trace
        && trace.failure.is_none()
    {
        trace.failure = event(&mut trace.file).err().map(|error| error.kind());
    }
}

/// Returns an event in an otherwise idle stream: it completes at once.
fn passed_event(backend: &dyn Backend, timing: &dyn Timing) -> Driver<Event> {
    let idle = backend.create_stream()?;
    let made = timing.create_timed_event();
    // SAFETY: both were made above.
    let recorded = made.and_then(|event| match unsafe { backend.record(event, idle) } {
        Ok(()) => Ok(event),
        // SAFETY: it was created above, and nothing else uses it.
        Err(error) => unsafe { backend.destroy_event(event) }.and(Err(error)),
    });
    // SAFETY: as above.
    unsafe { backend.destroy_stream(idle) }.and(recorded)
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
