//! Events: points in a stream that the host and other streams can wait for.

use std::fmt;
use std::sync::Arc;

use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::ledger::Mark;
use crate::stream::Stream;
use crate::track::Track;

/// A point in a stream. It stays good when the stream is gone.
///
/// ```
/// let device = freehold::open()?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let x = stream.zeros::<u8>(1 << 20)?;
/// let filled = stream.event()?;
/// other.wait(&filled)?; // on the device
/// filled.synchronize()?; // on the host
/// assert!(filled.has_passed()?);
/// x.release_after(&filled).map_err(|(_, error)| error)?;
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Event {
    pub(crate) mark: Mark,
    track: Arc<Track>,
    context: Context,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("mark", &self.mark).finish_non_exhaustive()
    }
}

impl Event {
    pub(crate) fn record(stream: &Stream) -> Result<Self> {
        stream.home.context.inner.check()?;
        let (core, mark) = (&stream.home.context.inner.core, stream.home.track.now());
        stream.home.track.mark(mark.position).map_err(|error| core.failed(error))?;
        Ok(Self { mark, track: stream.home.track.clone(), context: stream.home.context.clone() })
    }

    /// Whether the stream has come to this point. Where the device writes words, this asks no driver.
    pub fn has_passed(&self) -> Result<bool> {
        self.context.inner.check()?;
        let core = &self.context.inner.core;
        self.track.refresh().map_err(|error| core.failed(error))?;
        Ok(self.track.has_passed(self.mark.position))
    }

    /// Refuses an event of another device than `core`'s, whose streams have numbers of their own.
    pub(crate) fn check_device(&self, core: &Arc<Core>) -> Result<()> {
        if Arc::ptr_eq(&self.context.inner.core, core) { Ok(()) } else { Err(Error::OtherDevice { what: "an event" }) }
    }

    /// Waits until the stream has come to this point.
    pub fn synchronize(&self) -> Result<()> {
        self.context.inner.check()?;
        let core = &self.context.inner.core;
        self.track.wait_on_host(self.mark.position).map_err(|error| core.failed(error))?;
        core.tidy()
    }
}
