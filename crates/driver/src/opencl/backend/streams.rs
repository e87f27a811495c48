//! Queues as streams, and their last commands as events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::super::event::Status;
use super::super::handle::{self, ContextId, DeviceId, Queue};
use super::super::{call, event, queue};
use super::lock::{Result, locked};
use crate::handle::{Event, Stream};

#[derive(Debug)]
pub(super) struct Streams {
    context: ContextId,
    device: DeviceId,
    queues: RwLock<HashMap<u64, Arc<StreamQueue>>>,
    /// Streams that were destroyed while they had work: with some drivers, releasing a queue waits for it.
    draining: Mutex<Vec<Arc<StreamQueue>>>,
    events: Mutex<HashMap<u64, EventSlot>>,
    last_event: AtomicU64,
}

/// A stream.
#[derive(Debug)]
struct StreamQueue {
    queue: Queue,
    /// The last enqueued command; `None` once it is known to be done. Locked while commands are enqueued.
    last: Mutex<Option<Arc<OwnedEvent>>>,
}

/// An event of the backend.
#[derive(Debug)]
struct EventSlot {
    /// `None` if it was never recorded, or is known to be complete.
    recorded: Option<Arc<OwnedEvent>>,
    is_timed: bool,
}

/// A command's event, released with the last reference.
#[derive(Debug)]
pub(super) struct OwnedEvent(handle::Event);

impl OwnedEvent {
    pub(super) fn event(&self) -> handle::Event {
        self.0
    }

    /// Returns whether the command is done.
    fn is_complete(&self) -> Result<bool> {
        match event::status(self.0)? {
            Status::Complete => Ok(true),
            Status::Failed(_) => Err(call::failed_command("clGetEventInfo")),
            Status::Queued | Status::Submitted | Status::Running => Ok(false),
        }
    }

    fn wait(&self) -> Result<()> {
        event::wait(&[self.0])
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        if let Err(error) = event::release(self.0) {
            tracing::warn!(target: "freehold", %error, "could not release an OpenCL event");
        }
    }
}

/// Blocks a stream until the host opens it. Dropping it opens it.
#[derive(Debug)]
pub struct Latch {
    event: handle::Event,
    is_open: AtomicBool,
}

impl Latch {
    /// Lets the stream continue.
    pub fn open(&self) -> Result<()> {
        if self.is_open.swap(true, Ordering::AcqRel) { Ok(()) } else { event::set_status(self.event, 0) }
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        let opened = self.open();
        if let Err(error) = opened.and(event::release(self.event)) {
            tracing::warn!(target: "freehold", %error, "could not open or release an OpenCL latch");
        }
    }
}

impl StreamQueue {
    /// Enqueues a command after all others, and flushes the queue.
    fn enqueue(&self, command: impl FnOnce(Queue) -> Result<handle::Event>) -> Result<()> {
        let mut last = locked(&self.last);
        *last = Some(Arc::new(OwnedEvent(command(self.queue)?)));
        queue::flush(self.queue)
    }

    /// Returns the last command, unless all are known to be done.
    fn last(&self) -> Option<Arc<OwnedEvent>> {
        locked(&self.last).clone()
    }

    fn is_idle(&self) -> Result<bool> {
        let Some(last) = self.last() else { return Ok(true) };
        let is_idle = last.is_complete()?;
        if is_idle {
            let mut now = locked(&self.last);
            // More may have been enqueued by now.
            if now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &last)) {
                *now = None;
            }
        }
        Ok(is_idle)
    }

    fn wait(&self) -> Result<()> {
        self.last().map_or(Ok(()), |last| last.wait())
    }
}

impl Streams {
    pub(super) fn new(context: ContextId, device: DeviceId) -> Self {
        Self {
            context,
            device,
            queues: RwLock::default(),
            draining: Mutex::default(),
            events: Mutex::default(),
            last_event: AtomicU64::new(0),
        }
    }

    pub(super) fn create(&self) -> Result<Stream> {
        self.release_drained()?;
        let queue = queue::create_timed(self.context, self.device)?;
        let line = Arc::new(StreamQueue { queue, last: Mutex::new(None) });
        let stream = Stream(queue.0 as u64);
        self.queues.write().unwrap_or_else(PoisonError::into_inner).insert(stream.0, line);
        Ok(stream)
    }

    pub(super) fn destroy(&self, stream: Stream) -> Result<()> {
        let line = self.queues.write().unwrap_or_else(PoisonError::into_inner).remove(&stream.0);
        let line = line.ok_or_else(|| call::invalid_queue("clReleaseCommandQueue"))?;
        locked(&self.draining).push(line);
        self.release_drained()
    }

    /// Releases the queues of destroyed streams that have no work left. One whose work failed is released too, and its
    /// error is returned.
    fn release_drained(&self) -> Result<()> {
        let mut failed = Ok(());
        let gone = {
            let mut leaving = locked(&self.draining);
            let mut is_over = |line: &Arc<StreamQueue>| {
                line.is_idle().unwrap_or_else(|error| {
                    failed = Err(error);
                    true
                })
            };
            let (gone, stay) = leaving.drain(..).partition::<Vec<_>, _>(&mut is_over);
            *leaving = stay;
            gone
        };
        gone.into_iter().try_for_each(|line| queue::release(line.queue))?;
        failed
    }

    pub(super) fn is_idle(&self, stream: Stream) -> Result<bool> {
        self.queue(stream, "clGetEventInfo")?.is_idle()
    }

    pub(super) fn wait_until_idle(&self, stream: Stream) -> Result<()> {
        self.queue(stream, "clWaitForEvents")?.wait()
    }

    /// Enqueues a command in a stream.
    pub(super) fn enqueue(&self, stream: Stream, command: impl FnOnce(Queue) -> Result<handle::Event>) -> Result<()> {
        self.queue(stream, "clFlush")?.enqueue(command)
    }

    fn queue(&self, stream: Stream, call: &'static str) -> Result<Arc<StreamQueue>> {
        let lines = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        lines.get(&stream.0).cloned().ok_or_else(|| call::invalid_queue(call))
    }

    /// Waits for all work of all streams, including destroyed ones.
    pub(super) fn synchronize(&self) -> Result<()> {
        let mut lines: Vec<_> = self.queues.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        lines.extend(locked(&self.draining).iter().cloned());
        lines.iter().try_for_each(|line| line.wait())?;
        self.release_drained()
    }

    /// Waits for all work, and releases all queues and events.
    pub(super) fn close(&self) -> Result<()> {
        self.synchronize()?;
        locked(&self.events).clear();
        let lines: Vec<_> = self.queues.write().unwrap_or_else(PoisonError::into_inner).drain().collect();
        lines.into_iter().try_for_each(|(_, line)| queue::release(line.queue))?;
        self.release_drained()
    }

    // Events.

    pub(super) fn create_event(&self) -> Event {
        self.add_event(EventSlot { recorded: None, is_timed: false })
    }

    /// Creates an event that records the time.
    pub(super) fn create_timed_event(&self) -> Event {
        self.add_event(EventSlot { recorded: None, is_timed: true })
    }

    fn add_event(&self, slot: EventSlot) -> Event {
        let made = Event(self.last_event.fetch_add(1, Ordering::Relaxed) + 1);
        locked(&self.events).insert(made.0, slot);
        made
    }

    pub(super) fn destroy_event(&self, event: Event) -> Result<()> {
        let gone = locked(&self.events).remove(&event.0);
        gone.map(drop).ok_or_else(|| call::invalid_event("clReleaseEvent"))
    }

    pub(super) fn record(&self, event: Event, stream: Stream) -> Result<()> {
        let line = self.queue(stream, "clEnqueueMarkerWithWaitList")?;
        let is_timed = self.with_slot(event, |slot| slot.is_timed)?;
        if is_timed {
            line.enqueue(|queue| queue::marker(queue, &[]))?;
        }
        let last = line.last();
        self.with_slot(event, |slot| slot.recorded = last)
    }

    pub(super) fn is_complete(&self, event: Event) -> Result<bool> {
        let Some(point) = self.recorded_event(event)? else { return Ok(true) };
        let is_complete = point.is_complete()?;
        if is_complete {
            self.with_slot(event, |slot| {
                // It may have been recorded again by now; and the time of a timed event is read later.
                if !slot.is_timed && slot.recorded.as_ref().is_some_and(|now| Arc::ptr_eq(now, &point)) {
                    slot.recorded = None;
                }
            })?;
        }
        Ok(is_complete)
    }

    pub(super) fn wait(&self, event: Event) -> Result<()> {
        self.recorded_event(event)?.map_or(Ok(()), |point| point.wait())
    }

    pub(super) fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let Some(point) = self.recorded_event(event)? else { return Ok(()) };
        self.enqueue(stream, |queue| queue::barrier(queue, &[point.event()]))
    }

    pub(super) fn latch(&self, stream: Stream) -> Result<Latch> {
        let latch = Latch { event: event::create_user(self.context)?, is_open: AtomicBool::new(false) };
        self.enqueue(stream, |queue| queue::barrier(queue, &[latch.event]))?;
        Ok(latch)
    }

    /// Returns the command that a timed event recorded.
    pub(super) fn timed_event(&self, event: Event) -> Result<Arc<OwnedEvent>> {
        self.recorded_event(event)?.ok_or_else(|| call::invalid_event("clGetEventProfilingInfo"))
    }

    fn recorded_event(&self, event: Event) -> Result<Option<Arc<OwnedEvent>>> {
        self.with_slot(event, |slot| slot.recorded.clone())
    }

    fn with_slot<T>(&self, event: Event, look: impl FnOnce(&mut EventSlot) -> T) -> Result<T> {
        let mut events = locked(&self.events);
        events.get_mut(&event.0).map(look).ok_or_else(|| call::invalid_event("clGetEventInfo"))
    }
}
