//! Streams: a queue of work, and its capture state.

use std::sync::Arc;

use freehold_driver::cuda::stream_flags;

use super::capture::StreamCapture;
use crate::engine::queue::Queue;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) queue: Arc<Queue>,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) capture: Arc<StreamCapture>,
}

impl Stream {
    /// Creates the legacy default stream of a context.
    pub(crate) fn new_legacy(context_id: u64, queue: Arc<Queue>) -> Self {
        let capture = Arc::new(StreamCapture::new(context_id, queue.is_blocking, true));
        Self { queue, flags: stream_flags::DEFAULT, priority: 0, capture }
    }

    pub(crate) fn new(context_id: u64, queue: Arc<Queue>, flags: u32, priority: i32) -> Self {
        let capture = Arc::new(StreamCapture::new(context_id, queue.is_blocking, false));
        Self { queue, flags, priority, capture }
    }
}
