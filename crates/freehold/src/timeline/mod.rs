//! What happened when: every allocation, use, release, reuse, load and unload, with the time at which it was asked for and
//! the time at which it took effect.
//!
//! A recording is events of the crate `tracing` (target `freehold::timeline`), and a file that Perfetto opens, if one is
//! named. While none is made, all that it costs is a look at one flag.

mod log;
pub mod perfetto;

use std::fmt;
use std::fs::File;
use std::io::BufWriter;
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::handle::Event;

use crate::core::{Core, Hall};
use crate::error::{Error, Result};
use crate::ledger::ContextId;
use crate::pool::Totals;
use crate::stream::Used;
use crate::track::Track;
use log::{Log, Use};
use perfetto::TraceFile;

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
    core: Arc<Core>,
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
    start: Event,
    end: Event,
    asked: Duration,
}

impl Recording {
    pub(crate) fn begin(core: &Arc<Core>, file: Option<&Path>) -> Result<Self> {
        core.check()?;
        let trace = match file {
            None => None,
            Some(path) => {
                let failed = |error: std::io::Error| Error::File { path: path.to_owned(), kind: error.kind() };
                let out = BufWriter::new(File::create(path).map_err(failed)?);
                Some((path.to_owned(), TraceFile::new(out).map_err(failed)?))
            }
        };
        let mut log = core.timeline.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_some() {
            return Err(Error::AlreadyRecording);
        }
        *log = Some(Log::new(core.process, trace));
        core.timeline.is_on.store(true, Ordering::Release);
        drop(log);
        Ok(Self { core: core.clone(), is_over: false })
    }

    /// Writes to the file what is known by now, so that it is there should the process be killed: the file is one that Perfetto
    /// opens. Does not wait: work that is not done is written later.
    ///
    /// # Errors
    /// [`Error::File`] where the file could not be written, and those of the device.
    pub fn flush(&self) -> Result<()> {
        self.core.check()?;
        let mut log = self.core.timeline.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = log.as_mut() else { return Ok(()) };
        log.poll(&*self.core.backend).map_err(|error| self.core.failed(error))?;
        log.flush()
    }

    /// Waits until all work of the device is done, so that all times are known, and ends the recording.
    ///
    /// # Errors
    /// [`Error::File`] where the file could not be written.
    pub fn finish(mut self) -> Result<()> {
        self.is_over = true;
        let waited = self.core.synchronize_all().and_then(|()| self.core.tidy());
        let ended = self.core.timeline.end(&self.core);
        waited.and(ended)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_over
            && !self.core.is_child()
            && let Err(error) = self.core.timeline.end(&self.core)
        {
            self.core.trouble(error);
        }
    }
}

impl Timeline {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn allocated(&self, what: Allocation<'_>, track: &Track, effect: Duration, totals: Totals) {
        self.with(|log| log.allocated(what, track.id, effect, totals));
    }

    pub(crate) fn released(
        &self,
        base: u64,
        at: Option<&'static Location<'static>>,
        asked: Duration,
        effect: Duration,
        totals: Totals,
    ) {
        self.with(|log| log.released(base, at, asked, effect, totals));
    }

    /// A vector that keeps its address and has more memory there now, or less.
    pub(crate) fn resized(
        &self,
        base: u64,
        had_bytes: u64,
        bytes: u64,
        asked: Duration,
        effect: Duration,
        totals: Totals,
    ) {
        self.with(|log| log.resized(base, [had_bytes, bytes], asked, effect, totals));
    }

    /// A module that was loaded or unloaded.
    pub(crate) fn of_module(&self, what: &'static str, module: u64, asked: Duration, effect: Duration) {
        self.with(|log| log.of_module(what, module, asked, effect));
    }

    /// Puts a timed event before a use. A use that cannot be timed is not recorded.
    pub(crate) fn begin_use(&self, core: &Core, hall: &Hall, track: &Track) -> Option<Begun> {
        let asked = core.now();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = log.as_mut()?.begin_use(hall, track, asked);
        begun.map_err(|error| core.trouble(core.failed(error))).ok().flatten()
    }

    pub(crate) fn end_use(&self, core: &Core, begun: Begun, track: &Track, name: &str, used: &[Used<'_>]) {
        let returned = core.now();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = log.as_mut() else { return };
        let blocks: Vec<u64> = used.iter().map(|used| used.base).collect();
        let use_of = Use { name: name.into(), stream: track.id, context: track.context, returned };
        let ended = log.end_use(begun, track, use_of, &blocks);
        if let Err(error) = ended.and_then(|()| log.poll_if_many(&*core.backend)) {
            core.trouble(core.failed(error));
        }
    }

    /// Takes back the events of a use that was refused.
    pub(crate) fn cancel_use(&self, begun: Begun, context: ContextId) {
        self.with(|log| log.cancel_use(begun, context));
    }

    /// Looks which uses have come to their end.
    pub(crate) fn poll(&self, core: &Core) {
        if !self.is_on() {
            return;
        }
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = log.as_mut()
            && let Err(error) = log.poll(&*core.backend)
        {
            core.trouble(core.failed(error));
        }
    }

    /// Forgets the events of a context that is about to be destroyed.
    pub(crate) fn forget_context(&self, context: ContextId) {
        self.with(|log| log.forget_context(context));
    }

    fn end(&self, core: &Core) -> Result<()> {
        self.poll(core);
        self.is_on.store(false, Ordering::Release);
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(log) = log else { return Ok(()) };
        log.finish(core.is_good().then_some(&*core.backend), core.now())
    }

    fn with(&self, note: impl FnOnce(&mut Log)) {
        if let Some(log) = self.log.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            note(log);
        }
    }
}
