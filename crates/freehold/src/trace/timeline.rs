//! The recording of a device that is under way, if one is: what is noted in its log, and when.

use std::fmt;
use std::fs::File;
use std::io::BufWriter;
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::handle::Event;

use super::log::{Log, Told, Use};
use super::perfetto::TraceFile;
use crate::api::stream::MemoryUse;
use crate::base::pool_stats::PoolStats;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ledger::ContextId;
use crate::ordering::context_state::ContextState;
use crate::ordering::stream_state::StreamState;

/// The recording of a device that is under way, if one is.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    is_on: AtomicBool,
    log: Mutex<Option<Log>>,
}

/// A recording that is under way. Dropped, it ends with what is known by then.
///
/// ```
/// let device = freehold::open()?;
/// let file = std::env::temp_dir().join(format!("freehold-{}.json", std::process::id()));
/// let recording = device.record(Some(&file))?;
/// drop(device.stream()?.zeros::<u8>(1000)?);
/// recording.flush()?; // what is known by now is in the file, even if the process is killed
/// recording.finish()?; // ui.perfetto.dev opens it
/// assert!(std::fs::read_to_string(&file).is_ok_and(|text| text.starts_with('[')));
/// # std::fs::remove_file(&file).expect("the file is there");
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct Recording {
    device: Arc<DeviceInner>,
    is_over: bool,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// What a block was allocated as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation<'a> {
    pub(crate) base: u64,
    pub(crate) bytes: usize,
    pub(crate) tag: Option<&'a str>,
    pub(crate) at: &'static Location<'static>,
    /// Whether the pool had the memory.
    pub(crate) is_reuse: bool,
    pub(crate) asked: Duration,
}

/// A use whose beginning was put into its stream.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(super) start: Event,
    pub(super) end: Event,
    pub(super) asked: Duration,
}

impl Recording {
    pub(crate) fn begin(device: &Arc<DeviceInner>, file: Option<&Path>) -> Result<Self> {
        device.check()?;
        let trace = match file {
            None => None,
            Some(path) => {
                let failed = |error: std::io::Error| Error::File { path: path.to_owned(), kind: error.kind() };
                let out = BufWriter::new(File::create(path).map_err(failed)?);
                Some((path.to_owned(), TraceFile::new(out).map_err(failed)?))
            }
        };
        let mut log = device.timeline.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_some() {
            return Err(Error::AlreadyRecording);
        }
        *log = Some(Log::new(device.process, trace));
        device.timeline.is_on.store(true, Ordering::Release);
        drop(log);
        Ok(Self { device: device.clone(), is_over: false })
    }

    /// Writes to the file what is known by now, so that it is there should the process be killed: the file is one that Perfetto
    /// opens. Does not wait: work that is not done is written later.
    ///
    /// # Errors
    /// [`Error::File`] where the file could not be written, and those of the device.
    pub fn flush(&self) -> Result<()> {
        self.device.check()?;
        let timeline = &self.device.timeline;
        let polled = timeline.with(|log| log.poll(&*self.device.backend));
        polled.unwrap_or(Ok(())).map_err(|error| self.device.failed(error))?;
        timeline.with(Log::flush).unwrap_or(Ok(()))
    }

    /// Waits until all work of the device is done, so that all times are known, and ends the recording.
    ///
    /// # Errors
    /// [`Error::File`] where the file could not be written.
    pub fn finish(mut self) -> Result<()> {
        self.is_over = true;
        let waited = self.device.synchronize_all().and_then(|()| self.device.run_deferred());
        let ended = self.device.timeline.end(&self.device);
        waited.and(ended)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_over
            && !self.device.is_child()
            && let Err(error) = self.device.timeline.end(&self.device)
        {
            self.device.note_drop_error(error);
        }
    }
}

impl Timeline {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn allocated(
        &self,
        what: Allocation<'_>,
        stream_state: &StreamState,
        effect: Duration,
        stats: PoolStats,
    ) {
        self.with(|log| log.allocated(what, stream_state.id, effect, stats));
    }

    pub(crate) fn released(
        &self,
        base: u64,
        at: Option<&'static Location<'static>>,
        asked: Duration,
        effect: Duration,
        stats: PoolStats,
    ) {
        self.with(|log| log.released(base, at, asked, effect, stats));
    }

    /// A vector that keeps its address and has more memory there now, or less.
    pub(crate) fn resized(
        &self,
        base: u64,
        had_bytes: u64,
        bytes: u64,
        asked: Duration,
        effect: Duration,
        stats: PoolStats,
    ) {
        self.with(|log| log.resized(base, [had_bytes, bytes], asked, effect, stats));
    }

    /// A module that was loaded or unloaded.
    pub(crate) fn of_module(&self, what: &'static str, module: u64, asked: Duration, effect: Duration) {
        self.with(|log| log.of_module(what, module, asked, effect));
    }

    /// Puts a timed event before a use. A use that cannot be timed is not recorded.
    pub(crate) fn begin_use(
        &self,
        device: &DeviceInner,
        context_state: &ContextState,
        stream_state: &StreamState,
    ) -> Option<Begun> {
        let asked = device.now();
        let begun = self.quietly(|log| log.begin_use(context_state, stream_state, asked))?;
        begun.map_err(|error| device.note_drop_error(device.failed(error))).ok().flatten()
    }

    pub(crate) fn end_use(
        &self,
        device: &DeviceInner,
        begun: Begun,
        stream_state: &StreamState,
        name: &str,
        used: &[MemoryUse<'_>],
    ) {
        let returned = device.now();
        let blocks: Vec<u64> = used.iter().map(|used| used.base).collect();
        let use_of = Use { name: name.into(), stream: stream_state.id, context: stream_state.context, returned };
        let ended = self.quietly(|log| {
            log.end_use(begun, stream_state, use_of, &blocks)?;
            log.poll_if_many(&*device.backend)
        });
        if let Some(Err(error)) = ended {
            device.note_drop_error(device.failed(error));
        }
    }

    /// Takes back the events of a use that was refused.
    pub(crate) fn cancel_use(&self, begun: Begun, context: ContextId) {
        self.quietly(|log| log.cancel_use(begun, context));
    }

    /// Looks which uses have come to their end.
    pub(crate) fn poll(&self, device: &DeviceInner) {
        if !self.is_on() {
            return;
        }
        if let Some(Err(error)) = self.with(|log| log.poll(&*device.backend)) {
            device.note_drop_error(device.failed(error));
        }
    }

    /// Looks which uses of a context that is about to be destroyed have come to their end, and forgets its events.
    pub(crate) fn forget_context(&self, device: &DeviceInner, context: ContextId) {
        let polled = self.quietly(|log| {
            let polled = log.poll(&*device.backend);
            log.forget_context(context);
            polled
        });
        if let Some(Err(error)) = polled {
            device.note_drop_error(device.failed(error));
        }
    }

    fn end(&self, device: &DeviceInner) -> Result<()> {
        self.poll(device);
        self.is_on.store(false, Ordering::Release);
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut log) = log else { return Ok(()) };
        log.take_untold().into_iter().for_each(Told::emit);
        log.finish(device.is_good().then_some(&*device.backend), device.now())
    }

    /// Notes something in the log, if there is one, and emits what is to be told. The caller holds no lock but a context's for reading:
    /// a subscriber may call the library.
    fn with<R>(&self, note: impl FnOnce(&mut Log) -> R) -> Option<R> {
        let (noted, untold) = self.quietly(|log| (note(log), log.take_untold()))?;
        untold.into_iter().for_each(Told::emit);
        Some(noted)
    }

    /// Notes something in the log, if there is one. What is to be told waits for the next [`with`](Self::with).
    fn quietly<R>(&self, note: impl FnOnce(&mut Log) -> R) -> Option<R> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(note)
    }
}
