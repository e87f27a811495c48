//! Queues as streams, and the last commands of them as events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::super::event::Status;
use super::super::handle::{self, ContextId, DeviceId, Queue};
use super::super::{call, event, queue};
use super::{Result, locked};
use crate::handle::{Event, Stream};

#[derive(Debug)]
pub(super) struct Streams {
    context: ContextId,
    device: DeviceId,
    lines: RwLock<HashMap<u64, Arc<Line>>>,
    /// Streams that were destroyed while they had work: some drivers' release of a queue waits for it.
    leaving: Mutex<Vec<Arc<Line>>>,
    events: Mutex<HashMap<u64, Slot>>,
    last_event: AtomicU64,
}

/// A stream.
#[derive(Debug)]
struct Line {
    queue: Queue,
    /// The last command that was put in; nothing once it is known to be done. Held while commands are put in.
    last: Mutex<Option<Arc<Point>>>,
}

/// An event of the library's.
#[derive(Debug)]
struct Slot {
    /// Nothing where it was never recorded, or is known to have passed.
    point: Option<Arc<Point>>,
    is_timed: bool,
}

/// A command's event, which is given back with the last who looks at it.
#[derive(Debug)]
pub(super) struct Point(handle::Event);

impl Point {
    pub(super) fn event(&self) -> handle::Event {
        self.0
    }

    /// Whether the command is done.
    fn has_passed(&self) -> Result<bool> {
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

impl Drop for Point {
    fn drop(&mut self) {
        if let Err(error) = event::release(self.0) {
            tracing::warn!(target: "freehold", %error, "an event of OpenCL stays");
        }
    }
}

/// What the host holds a stream with. It opens at the latest when it is dropped.
#[derive(Debug)]
pub struct Latch {
    event: handle::Event,
    is_open: AtomicBool,
}

impl Latch {
    /// Lets the stream go on.
    pub fn open(&self) -> Result<()> {
        if self.is_open.swap(true, Ordering::AcqRel) { Ok(()) } else { event::set_status(self.event, 0) }
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        let opened = self.open();
        if let Err(error) = opened.and(event::release(self.event)) {
            tracing::warn!(target: "freehold", %error, "what a stream was held with stays");
        }
    }
}

impl Line {
    /// Puts a command in, behind all that is there, and sends it to the device.
    fn put(&self, command: impl FnOnce(Queue) -> Result<handle::Event>) -> Result<()> {
        let mut last = locked(&self.last);
        *last = Some(Arc::new(Point(command(self.queue)?)));
        queue::flush(self.queue)
    }

    /// The last command, unless all are known to be done.
    fn last(&self) -> Option<Arc<Point>> {
        locked(&self.last).clone()
    }

    fn is_idle(&self) -> Result<bool> {
        let Some(last) = self.last() else { return Ok(true) };
        let is_idle = last.has_passed()?;
        if is_idle {
            let mut now = locked(&self.last);
            // More may have been put in meanwhile.
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
            lines: RwLock::default(),
            leaving: Mutex::default(),
            events: Mutex::default(),
            last_event: AtomicU64::new(0),
        }
    }

    pub(super) fn make(&self) -> Result<Stream> {
        self.sweep()?;
        let queue = queue::create_timed(self.context, self.device)?;
        let line = Arc::new(Line { queue, last: Mutex::new(None) });
        let stream = Stream(queue.0 as u64);
        self.lines.write().unwrap_or_else(PoisonError::into_inner).insert(stream.0, line);
        Ok(stream)
    }

    pub(super) fn destroy(&self, stream: Stream) -> Result<()> {
        let line = self.lines.write().unwrap_or_else(PoisonError::into_inner).remove(&stream.0);
        let line = line.ok_or_else(|| call::wrong_queue("clReleaseCommandQueue"))?;
        locked(&self.leaving).push(line);
        self.sweep()
    }

    /// Gives the queues of streams back that were destroyed and have no work left. One whose work failed goes, too, and is told of.
    fn sweep(&self) -> Result<()> {
        let mut failed = Ok(());
        let gone = {
            let mut leaving = locked(&self.leaving);
            let mut is_over = |line: &Arc<Line>| {
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
        self.line(stream, "clGetEventInfo")?.is_idle()
    }

    pub(super) fn wait_until_idle(&self, stream: Stream) -> Result<()> {
        self.line(stream, "clWaitForEvents")?.wait()
    }

    /// Puts a command into a stream.
    pub(super) fn put(&self, stream: Stream, command: impl FnOnce(Queue) -> Result<handle::Event>) -> Result<()> {
        self.line(stream, "clFlush")?.put(command)
    }

    fn line(&self, stream: Stream, call: &'static str) -> Result<Arc<Line>> {
        let lines = self.lines.read().unwrap_or_else(PoisonError::into_inner);
        lines.get(&stream.0).cloned().ok_or_else(|| call::wrong_queue(call))
    }

    /// Waits for all work of all streams, those that were destroyed too.
    pub(super) fn synchronize(&self) -> Result<()> {
        let mut lines: Vec<_> = self.lines.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        lines.extend(locked(&self.leaving).iter().cloned());
        lines.iter().try_for_each(|line| line.wait())?;
        self.sweep()
    }

    /// Waits for all work, and gives all queues and events back.
    pub(super) fn close(&self) -> Result<()> {
        self.synchronize()?;
        locked(&self.events).clear();
        let lines: Vec<_> = self.lines.write().unwrap_or_else(PoisonError::into_inner).drain().collect();
        lines.into_iter().try_for_each(|(_, line)| queue::release(line.queue))?;
        self.sweep()
    }

    // Events.

    pub(super) fn make_event(&self) -> Event {
        self.add_event(Slot { point: None, is_timed: false })
    }

    /// An event for which a stream notes the time.
    pub(super) fn make_timed_event(&self) -> Event {
        self.add_event(Slot { point: None, is_timed: true })
    }

    fn add_event(&self, slot: Slot) -> Event {
        let made = Event(self.last_event.fetch_add(1, Ordering::Relaxed) + 1);
        locked(&self.events).insert(made.0, slot);
        made
    }

    pub(super) fn destroy_event(&self, event: Event) -> Result<()> {
        let gone = locked(&self.events).remove(&event.0);
        gone.map(drop).ok_or_else(|| call::wrong_event("clReleaseEvent"))
    }

    pub(super) fn record(&self, event: Event, stream: Stream) -> Result<()> {
        let line = self.line(stream, "clEnqueueMarkerWithWaitList")?;
        let is_timed = self.at(event, |slot| slot.is_timed)?;
        if is_timed {
            line.put(|queue| queue::marker(queue, &[]))?;
        }
        let last = line.last();
        self.at(event, |slot| slot.point = last)
    }

    pub(super) fn has_passed(&self, event: Event) -> Result<bool> {
        let Some(point) = self.point(event)? else { return Ok(true) };
        let has_passed = point.has_passed()?;
        if has_passed {
            self.at(event, |slot| {
                // It may have been recorded anew meanwhile; and the time of a timed one is asked for later.
                if !slot.is_timed && slot.point.as_ref().is_some_and(|now| Arc::ptr_eq(now, &point)) {
                    slot.point = None;
                }
            })?;
        }
        Ok(has_passed)
    }

    pub(super) fn wait(&self, event: Event) -> Result<()> {
        self.point(event)?.map_or(Ok(()), |point| point.wait())
    }

    pub(super) fn hold(&self, stream: Stream, event: Event) -> Result<()> {
        let Some(point) = self.point(event)? else { return Ok(()) };
        self.put(stream, |queue| queue::barrier(queue, &[point.event()]))
    }

    pub(super) fn latch(&self, stream: Stream) -> Result<Latch> {
        let latch = Latch { event: event::create_user(self.context)?, is_open: AtomicBool::new(false) };
        self.put(stream, |queue| queue::barrier(queue, &[latch.event]))?;
        Ok(latch)
    }

    /// Where a timed event was recorded.
    pub(super) fn timed_point(&self, event: Event) -> Result<Arc<Point>> {
        self.point(event)?.ok_or_else(|| call::wrong_event("clGetEventProfilingInfo"))
    }

    fn point(&self, event: Event) -> Result<Option<Arc<Point>>> {
        self.at(event, |slot| slot.point.clone())
    }

    fn at<T>(&self, event: Event, look: impl FnOnce(&mut Slot) -> T) -> Result<T> {
        let mut events = locked(&self.events);
        events.get_mut(&event.0).map(look).ok_or_else(|| call::wrong_event("clGetEventInfo"))
    }
}
