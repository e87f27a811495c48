//! A timeline of every allocation, use, release, reuse, load and unload, with the time at which it was requested and
//! the time at which it took effect.
//!
//! A recording consists of `tracing` events (target `freehold::timeline`) and, if a file is named, of a file that
//! Perfetto opens. Without a recording, the cost is the check of one flag.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::api::device::Device;
use crate::device::device_inner::DeviceInner;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

pub use crate::trace::perfetto;

/// A running recording. Dropping it ends the recording with the times that are known by then.
///
/// ```
/// let device = freehold::open()?;
/// let file = std::env::temp_dir().join(format!("freehold-{}.json", std::process::id()));
/// let recording = device.record(Some(&file))?;
/// drop(device.new_stream()?.zeros::<u8>(1000)?);
/// recording.flush()?; // what is known by now is in the file, even if the process is killed
/// recording.finish()?; // ui.perfetto.dev opens it
/// assert!(std::fs::read_to_string(&file).is_ok_and(|text| text.starts_with('[')));
/// # std::fs::remove_file(&file).expect("the file is there");
/// # Ok::<(), freehold::Error>(())
/// ```
#[must_use = "a recording ends when it is dropped"]
pub struct Recording {
    device: Arc<DeviceInner>,
    is_over: bool,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Device {
    /// Records what happens from now on: as events of `tracing`, and in a file that Perfetto opens, if one is named.
    ///
    /// # Errors
    /// [`Error::AlreadyRecording`], and [`Error::File`] if the file cannot be created.
    pub fn record(&self, file: Option<&Path>) -> Result<Recording> {
        Recording::begin(self.inner(), file)
    }
}

impl Recording {
    fn begin(device: &Arc<DeviceInner>, file: Option<&Path>) -> Result<Self> {
        device.check()?;
        device.timeline.begin(device.process, file)?;
        Ok(Self { device: device.clone(), is_over: false })
    }

    /// Writes the times that are known by now to the file, which Perfetto can then open even if the process is killed.
    /// Does not wait: pending work is written later.
    ///
    /// # Errors
    /// [`Error::File`] if the file could not be written, and those of the device.
    pub fn flush(&self) -> Result<()> {
        self.device.check()?;
        let timeline = &self.device.timeline;
        timeline.poll(&*self.device.backend).map_err(|error| self.device.failed(error))?;
        timeline.flush()
    }

    /// Waits until all work of the device is complete, so that all times are known, and ends the recording.
    ///
    /// # Errors
    /// [`Error::File`] if the file could not be written.
    pub fn finish(mut self) -> Result<()> {
        self.is_over = true;
        let waited = self.device.synchronize_all().and_then(|()| self.device.run_deferred());
        let ended = self.end();
        waited.and(ended)
    }

    fn end(&self) -> Result<()> {
        let DeviceInner { timeline, backend, .. } = &*self.device;
        if let Err(error) = timeline.poll(&**backend) {
            self.device.note_refusal(error);
        }
        timeline.end(self.device.is_good().then_some(&**backend), self.device.now())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_over
            && !self.device.is_child()
            && let Err(error) = self.end()
        {
            self.device.note_drop_error(error);
        }
    }
}
