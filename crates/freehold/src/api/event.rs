//! Events: positions in a stream that the host and other streams can wait for.

use std::fmt;
use std::sync::Arc;

use crate::api::stream::Stream;
use crate::device::context::Context;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ledger::Fence;
use crate::ordering::stream_state::StreamState;

/// A position in a stream. It stays valid after the stream is dropped.
///
/// ```
/// let device = freehold::open()?;
/// let (stream, other) = (device.new_stream()?, device.new_stream()?);
/// let x = stream.zeros::<u8>(1 << 20)?;
/// let filled = stream.event()?;
/// other.wait(&filled)?; // on the device
/// filled.synchronize()?; // on the host
/// assert!(filled.is_complete()?);
/// x.release_after(&filled)?;
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Event {
    pub(crate) fence: Fence,
    stream_state: Arc<StreamState>,
    context: Context,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl Stream {
    /// Returns an event after all work submitted so far.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// let filled = stream.event()?;
    /// filled.synchronize()?; // waits for the zeros, and not for later work
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn event(&self) -> Result<Event> {
        Event::record(self)
    }

    /// Makes work submitted from now on wait, on the device, until the event is complete.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let other = device.new_stream()?;
    /// other.wait(&stream.event()?)?; // on the device: the host does not wait
    /// other.synchronize()?;
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.inner.context.inner.check()?;
        event.check_device(&self.inner.context.inner.device)?;
        self.order_after(&[event.fence])?;
        Ok(())
    }
}

impl Event {
    pub(crate) fn record(stream: &Stream) -> Result<Self> {
        stream.inner.context.inner.check()?;
        stream.check_uncaptured()?;
        let (device, fence) = (&stream.inner.context.inner.device, stream.inner.state.current_fence());
        stream.inner.state.record_fence(fence.seq).map_err(|error| device.failed(error))?;
        Ok(Self { fence, stream_state: stream.inner.state.clone(), context: stream.inner.context.clone() })
    }

    /// Whether the stream has reached this event. Makes no driver call on a device that writes fence words.
    pub fn is_complete(&self) -> Result<bool> {
        self.context.inner.check()?;
        let device = &self.context.inner.device;
        self.stream_state.refresh().map_err(|error| device.failed(error))?;
        Ok(self.stream_state.is_complete(self.fence.seq))
    }

    /// Returns an error if the event belongs to another device, whose streams have their own numbers.
    pub(crate) fn check_device(&self, device: &Arc<DeviceInner>) -> Result<()> {
        if Arc::ptr_eq(&self.context.inner.device, device) {
            Ok(())
        } else {
            Err(Error::OtherDevice { what: "an event" })
        }
    }

    /// Makes a stream of another device of the same driver wait for this event.
    pub(crate) fn hold_up_peer(&self, stream: &Stream) -> Result<()> {
        let waited = stream.inner.state.wait_for_peer(&self.stream_state, self.fence.seq);
        waited.map_err(|error| stream.inner.context.inner.device.failed(error))
    }

    /// Waits until the stream has reached this event.
    pub fn synchronize(&self) -> Result<()> {
        self.context.inner.check()?;
        let device = &self.context.inner.device;
        device.wait_for_fence(self.fence)?;
        device.run_deferred()
    }
}
