//! Events: positions in streams that can be queried, waited for and timed, in one process or across processes.

use std::sync::{Arc, Weak};

use freehold_driver::cuda::event_flags;

use super::context::Context;
use super::event_state::{EventSlot, IpcEventState};

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Weak<Context>,
    pub(crate) flags: u32,
    pub(crate) slot: Arc<EventSlot>,
}

impl Event {
    pub(crate) fn new(context: Weak<Context>, flags: u32) -> Self {
        Self { context, flags, slot: Arc::default() }
    }

    pub(crate) fn with_shared(context: Weak<Context>, flags: u32, shared: IpcEventState) -> Self {
        Self { context, flags, slot: Arc::new(EventSlot::with_shared(shared)) }
    }

    pub(crate) fn has_timing(&self) -> bool {
        self.flags & event_flags::DISABLE_TIMING == 0
    }
}
