//! Events: points in streams that can be asked for, waited for, and timed.

use std::sync::{Arc, Mutex, Weak};

use freehold_driver::cuda::event_flags;

use crate::context::Context;
use crate::engine::queue::{Clock, Point};
use crate::engine::work::Stamp;
use crate::world::lock;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Weak<Context>,
    pub(crate) flags: u32,
    recorded: Mutex<Option<Record>>,
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
        Self { context, flags, recorded: Mutex::default() }
    }

    pub(crate) fn has_timing(&self) -> bool {
        self.flags & event_flags::DISABLE_TIMING == 0
    }

    pub(crate) fn record(&self, record: Record) {
        *lock(&self.recorded) = Some(record);
    }

    /// The last record; nothing if there was none.
    pub(crate) fn recorded(&self) -> Option<Record> {
        lock(&self.recorded).clone()
    }
}
