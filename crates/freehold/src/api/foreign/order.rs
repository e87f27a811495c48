//! Waits between streams of foreign code.

use freehold_driver::CallError;
use freehold_driver::cuda::CUstream;
use freehold_driver::handle::Event;

use super::{ForeignPool, by_one_name};
use crate::error::{Error, Result};

impl ForeignPool {
    /// Makes work that is submitted to the stream `later` from now on wait, on the device, for the work that was
    /// submitted to `earlier` before. In a capture the wait becomes part of the graph.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn order_after(&self, later: CUstream, earlier: CUstream) -> Result<()> {
        self.device.check()?;
        if by_one_name(later) == by_one_name(earlier) {
            return Ok(());
        }
        let backend = &self.device.backend;
        let failed = |error| self.device.failed(error);
        let event = backend.create_event().map_err(failed)?;
        // SAFETY: the event was just created, and the caller of this pool guarantees that the stream is valid.
        let recorded = unsafe { backend.record(event, earlier.into()) };
        // SAFETY: as above.
        let waited = recorded.and_then(|()| unsafe { backend.stream_wait_event(later.into(), event) });
        // SAFETY: the event is destroyed once; the stream keeps waiting.
        let destroyed = unsafe { backend.destroy_event(event) };
        waited.and(destroyed).map_err(failed)
    }

    /// Makes work that is submitted to the stream `later` from now on wait, on the device, for all work that was
    /// submitted to the device before, in any stream.
    ///
    /// A driver before CUDA 12.5 cannot do that: then the call waits for that work.
    ///
    /// # Errors
    /// Those of the driver; [`Error::StreamCaptured`] while a stream is being captured.
    pub fn order_after_all(&self, later: CUstream) -> Result<()> {
        self.device.check()?;
        if self.is_any_capturing()? {
            return Err(Error::StreamCaptured);
        }
        let backend = &self.device.backend;
        let failed = |error| self.device.failed(error);
        let (event, recorded) = self.event_after_all()?;
        let waited = match recorded {
            // SAFETY: the event was recorded, and the caller of this pool guarantees that the stream is valid.
            Ok(true) => unsafe { backend.stream_wait_event(later.into(), event) }.map_err(failed),
            Ok(false) => Err(Error::StreamCaptured),
            Err(error) if error.is_unsupported() => backend.synchronize().map_err(failed),
            Err(error) => Err(failed(error)),
        };
        // SAFETY: the event is destroyed once; the stream keeps waiting.
        let destroyed = unsafe { backend.destroy_event(event) };
        waited.and(destroyed.map_err(failed))
    }

    /// Creates an event, and records it after all work that was submitted to the device before. The outcome of the record is that of
    /// `ForeignStreams::record_after_all`; the event is the caller's in any case.
    pub(super) fn event_after_all(&self) -> Result<(Event, std::result::Result<bool, CallError>)> {
        // With the lock, so that no thread begins a pool before the event is recorded, which would invalidate its capture.
        let _captures = self.captures();
        let event = self.device.backend.create_event().map_err(|error| self.device.failed(error))?;
        // SAFETY: the event was just created.
        let recorded = unsafe { self.foreign().record_after_all(event) };
        Ok((event, recorded))
    }
}
