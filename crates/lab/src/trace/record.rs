//! The traced process's side: each driver call becomes two lines of the part, one before and one after it.
//!
//! Each line is one write, without lock or buffer. So it is there even if the process is killed during the call, and a
//! forked child can continue writing regardless of its parent's threads.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use freehold_driver::cuda::Api;
use freehold_driver::cuda::watch::{self, Argument, CallEvent};

use super::part::{CallThread, Role, TraceLine, Value, now, ns, open};

/// Returns a table that calls `api` and records the calls in the part at `path`.
pub(crate) fn traced(api: &Api, path: &Path, role: Role) -> io::Result<Api> {
    let recorder = Recorder { file: open(path)?, clock: Clock::new(), has_failed: AtomicBool::new(false) };
    recorder.write(&TraceLine::Began { place: CallThread::here(), role, at_ns: ns(recorder.clock.time) })?;
    Ok(watch::watch(api, move |event| recorder.note(event)))
}

struct Recorder {
    file: File,
    clock: Clock,
    has_failed: AtomicBool,
}

impl Recorder {
    fn note(&self, event: CallEvent<'_>) {
        let place = CallThread::here();
        let line = match event {
            CallEvent::Enter { function, arguments } => TraceLine::Called {
                place,
                function: function.name().to_owned(),
                at_ns: ns(now()),
                arguments: told(arguments),
            },
            CallEvent::Exit { function, start, end, outcome, arguments } => TraceLine::Returned {
                place,
                function: function.name().to_owned(),
                start_ns: self.clock.ns(start),
                end_ns: self.clock.ns(end),
                code: outcome.map_or_else(|code| code.number(), |()| 0),
                arguments: told(arguments),
            },
        };
        // The experiment continues: its answer does not depend on the trace.
        if let Err(error) = self.write(&line)
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            eprintln!("error: the trace lacks calls of process {}: {error}", place.process);
        }
    }

    fn write(&self, line: &TraceLine) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        (&self.file).write_all(&text)
    }
}

/// One moment on both clocks, so that an `Instant` can be converted for another process.
struct Clock {
    instant: Instant,
    time: Duration,
}

impl Clock {
    fn new() -> Self {
        Self { instant: Instant::now(), time: now() }
    }

    fn ns(&self, instant: Instant) -> u64 {
        ns(self.time + instant.saturating_duration_since(self.instant))
    }
}

impl CallThread {
    fn here() -> Self {
        // SAFETY: the call has no arguments and cannot fail.
        let thread = unsafe { libc::gettid() };
        Self { process: std::process::id(), thread: thread.cast_unsigned() }
    }
}

fn told(arguments: &[Argument]) -> Vec<(String, Value)> {
    let told = arguments.iter().filter_map(|argument| {
        let value = match argument.value {
            watch::Value::Address(address) => Value::Address(address),
            watch::Value::Handle(handle) => Value::Handle(handle),
            watch::Value::Count(count) => Value::Count(count),
            watch::Value::Signed(number) => Value::Signed(number),
            watch::Value::Opaque => return None,
        };
        Some((argument.name.to_owned(), value))
    });
    told.collect()
}
