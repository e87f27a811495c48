//! The running recording of a device, if any: decides what its log records, and when.

use std::fs::File;
use std::io::BufWriter;
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::{Backend, CallError};

use super::allocation::Allocation;
use super::log::{Begun, Log, TracingEvent, Use};
use super::perfetto::TraceFile;
use crate::base::pool_stats::PoolStats;
use crate::error::{Error, Result};
use crate::ledger::ContextId;
use crate::ordering::context_state::ContextState;
use crate::ordering::stream_state::StreamState;

/// The running recording of a device, if any.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    is_on: AtomicBool,
    log: Mutex<Option<Log>>,
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

    /// Records that a vector grew or shrank in place.
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

    /// Records that a module was loaded or unloaded.
    pub(crate) fn of_module(&self, what: &'static str, module: u64, asked: Duration, effect: Duration) {
        self.with(|log| log.of_module(what, module, asked, effect));
    }

    /// Begins a recording, into a file if one is named.
    ///
    /// # Errors
    /// [`Error::AlreadyRecording`], and [`Error::File`] if the file cannot be created.
    pub(crate) fn begin(&self, process: u32, file: Option<&Path>) -> Result<()> {
        let trace = match file {
            None => None,
            Some(path) => {
                let failed = |error: std::io::Error| Error::File { path: path.to_owned(), kind: error.kind() };
                let out = BufWriter::new(File::create(path).map_err(failed)?);
                Some((path.to_owned(), TraceFile::new(out).map_err(failed)?))
            }
        };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_some() {
            return Err(Error::AlreadyRecording);
        }
        *log = Some(Log::new(process, trace));
        self.is_on.store(true, Ordering::Release);
        Ok(())
    }

    /// Flushes the file.
    pub(crate) fn flush(&self) -> Result<()> {
        self.with(Log::flush).unwrap_or(Ok(()))
    }

    /// Records a timed event before a use. A use that cannot be timed is not recorded.
    pub(crate) fn begin_use(
        &self,
        context_state: &ContextState,
        stream_state: &StreamState,
        asked: Duration,
    ) -> std::result::Result<Option<Begun>, CallError> {
        self.quietly(|log| log.begin_use(context_state, stream_state, asked)).unwrap_or(Ok(None))
    }

    /// Records a timed event after a use of the blocks at these addresses, and polls the uses from time to time.
    pub(crate) fn end_use(
        &self,
        backend: &dyn Backend,
        begun: Begun,
        stream_state: &StreamState,
        (name, blocks): (&str, &[u64]),
        returned: Duration,
    ) -> std::result::Result<(), CallError> {
        let use_of = Use { name: name.into(), stream: stream_state.id, context: stream_state.context, returned };
        let ended = self.quietly(|log| {
            log.end_use(begun, stream_state, use_of, blocks)?;
            log.poll_if_many(backend)
        });
        ended.unwrap_or(Ok(()))
    }

    /// Takes back the events of a use that was refused.
    pub(crate) fn cancel_use(&self, begun: Begun, context: ContextId) {
        self.quietly(|log| log.cancel_use(begun, context));
    }

    /// Polls which uses have ended.
    pub(crate) fn poll(&self, backend: &dyn Backend) -> std::result::Result<(), CallError> {
        if self.is_on() { self.with(|log| log.poll(backend)).unwrap_or(Ok(())) } else { Ok(()) }
    }

    /// Polls which uses have ended in a context that is about to be destroyed, and forgets its events.
    pub(crate) fn forget_context(
        &self,
        backend: &dyn Backend,
        context: ContextId,
    ) -> std::result::Result<(), CallError> {
        let polled = self.quietly(|log| {
            let polled = log.poll(backend);
            log.forget_context(context);
            polled
        });
        polled.unwrap_or(Ok(()))
    }

    /// Ends the recording, if there is one. Without a driver its events stay until the process ends.
    pub(crate) fn end(&self, backend: Option<&dyn Backend>, now: Duration) -> Result<()> {
        self.is_on.store(false, Ordering::Release);
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut log) = log else { return Ok(()) };
        log.take_events().into_iter().for_each(TracingEvent::emit);
        log.finish(backend, now)
    }

    /// Updates the log, if there is one, and emits its `tracing` events. The caller holds no lock other than a
    /// context's destroy lock, shared: a subscriber may call the library.
    fn with<R>(&self, note: impl FnOnce(&mut Log) -> R) -> Option<R> {
        let (noted, unemitted) = self.quietly(|log| (note(log), log.take_events()))?;
        unemitted.into_iter().for_each(TracingEvent::emit);
        Some(noted)
    }

    /// Updates the log, if there is one. Its `tracing` events wait for the next [`with`](Self::with).
    fn quietly<R>(&self, note: impl FnOnce(&mut Log) -> R) -> Option<R> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(note)
    }
}
