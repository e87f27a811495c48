//! The home of blocks: a stream and its context, which every block that lives there keeps with one count.

use std::sync::Arc;

use crate::context::Context;
use crate::pool::Key;
use crate::track::Track;

#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) track: Arc<Track>,
    pub(crate) context: Context,
    /// What each thread finds the blocks by that it keeps for the stream.
    pub(crate) key: Key,
    /// Whether the context is one that stays for as long as the device does, so that nothing has to keep it open.
    stays_open: bool,
}

impl Home {
    pub(crate) fn new(track: Arc<Track>, context: Context) -> Self {
        let (key, stays_open) = (context.inner.core.pool.key(&track), context.inner.stays());
        Self { track, context, key, stays_open }
    }

    /// Whether a block without a name comes and goes with nobody told and nothing kept open.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.stays_open && !self.context.inner.core.timeline.is_on()
    }
}
