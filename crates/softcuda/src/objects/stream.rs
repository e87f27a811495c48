//! Streams: a queue of work, and its capture state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use freehold_driver::cuda::{CUlaunchAttributeID, stream_flags};

use super::capture::StreamCapture;
use crate::base::sync::lock;
use crate::engine::queue::Queue;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) queue: Arc<Queue>,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) capture: Arc<StreamCapture>,
    /// The attributes that the program set, by id. None of them changes what work does.
    attributes: Mutex<BTreeMap<u32, [u64; 8]>>,
}

impl Stream {
    /// Creates the legacy default stream of a context.
    pub(crate) fn new_legacy(context_id: u64, queue: Arc<Queue>) -> Self {
        queue.name_checked(Some("the default stream"));
        let capture = Arc::new(StreamCapture::new(context_id, queue.is_blocking, true));
        Self { queue, flags: stream_flags::DEFAULT, priority: 0, capture, attributes: Mutex::default() }
    }

    pub(crate) fn new(context_id: u64, queue: Arc<Queue>, flags: u32, priority: i32) -> Self {
        let capture = Arc::new(StreamCapture::new(context_id, queue.is_blocking, false));
        Self { queue, flags, priority, capture, attributes: Mutex::default() }
    }

    /// Returns an attribute: what the program set, or the default.
    pub(crate) fn attribute(&self, id: CUlaunchAttributeID) -> [u64; 8] {
        let default = match id {
            CUlaunchAttributeID::PRIORITY => self.priority.cast_unsigned().into(),
            _ => 0,
        };
        lock(&self.attributes).get(&id.0).copied().unwrap_or([default, 0, 0, 0, 0, 0, 0, 0])
    }

    pub(crate) fn set_attribute(&self, id: CUlaunchAttributeID, value: [u64; 8]) {
        lock(&self.attributes).insert(id.0, value);
    }

    /// Takes over the attributes of another stream.
    pub(crate) fn copy_attributes(&self, other: &Self) {
        let attributes = lock(&other.attributes).clone();
        *lock(&self.attributes) = attributes;
    }
}
