//! Events: points in streams that can be asked for, waited for, and timed.

use std::sync::{Arc, Mutex, Weak};

use freehold_driver::cuda::event_flags;

use crate::capture::Captured;
use crate::context::Context;
use crate::engine::queue::{Clock, Point};
use crate::engine::work::Stamp;
use crate::world::lock;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Weak<Context>,
    pub(crate) flags: u32,
    mark: Mutex<Mark>,
}

/// Where an event is.
#[derive(Debug, Clone, Default)]
pub(crate) enum Mark {
    /// It was never recorded.
    #[default]
    Nowhere,
    Recorded(Record),
    /// It was recorded in a stream that was captured.
    Captured(Captured),
}

/// Where an event was last recorded.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) point: Point,
    pub(crate) stamp: Arc<Stamp>,
    /// What the stream came after, there.
    pub(crate) known: Arc<Clock>,
}

impl Event {
    pub(crate) fn new(context: Weak<Context>, flags: u32) -> Self {
        Self { context, flags, mark: Mutex::default() }
    }

    pub(crate) fn has_timing(&self) -> bool {
        self.flags & event_flags::DISABLE_TIMING == 0
    }

    pub(crate) fn record(&self, record: Record) {
        *lock(&self.mark) = Mark::Recorded(record);
    }

    pub(crate) fn capture(&self, captured: Captured) {
        *lock(&self.mark) = Mark::Captured(captured);
    }

    pub(crate) fn mark(&self) -> Mark {
        lock(&self.mark).clone()
    }

    /// The last record; nothing if there was none, or if it was in a capture.
    pub(crate) fn recorded(&self) -> Option<Record> {
        match self.mark() {
            Mark::Recorded(record) => Some(record),
            Mark::Nowhere | Mark::Captured(_) => None,
        }
    }
}
