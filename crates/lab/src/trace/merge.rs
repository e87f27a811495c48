//! The lab's side of a trace: merges the experiments' parts into one file, in the order of the experiments, whichever
//! ends first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use freehold::timeline::perfetto::{self, Point, Span, TraceFile};
use freehold_driver::cuda::{CUerror, Function};

use super::part::{CallThread, ExperimentTrace, Role, TraceLine, Value, now};
use crate::experiment::ExperimentInfo;
use crate::failure::error_name;

#[derive(Debug, thiserror::Error)]
#[error("failed to write the trace {}: {source}", .path.display())]
pub struct TraceError {
    path: PathBuf,
    source: io::Error,
}

/// The trace of a run. Workers add an experiment's part when it ends.
pub struct Trace {
    path: PathBuf,
    merged: Mutex<Merged<BufWriter<File>>>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Trace").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Trace {
    /// Fails here, before any experiment, if the file is not writable.
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let merged = File::create(path).and_then(|file| Merged::new(BufWriter::new(file), now()));
        let merged = merged.map_err(|source| TraceError { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), merged: Mutex::new(merged) })
    }

    pub(crate) fn new_experiment(&self) -> Result<ExperimentTrace, TraceError> {
        ExperimentTrace::new().map_err(|source| self.failed(source))
    }

    /// Adds the part of the `nth` experiment of the run, which has ended with this answer.
    pub(crate) fn add(
        &self,
        nth: usize,
        experiment: ExperimentInfo,
        answer: &str,
        part: ExperimentTrace,
    ) -> Result<(), TraceError> {
        let name = format!("{} {}", experiment.id, experiment.did);
        let add = || -> io::Result<()> {
            let ended = FinishedExperiment { name, answer: answer.to_owned(), lines: part.lines()? };
            self.merged.lock().unwrap_or_else(PoisonError::into_inner).add(nth, ended)
        };
        add().map_err(|source| self.failed(source))
    }

    /// Closes the trace, after all parts were added.
    pub fn finish(self) -> Result<(), TraceError> {
        let merged = self.merged.into_inner().unwrap_or_else(PoisonError::into_inner);
        merged.file.finish().map(drop).map_err(|source| TraceError { path: self.path, source })
    }

    fn failed(&self, source: io::Error) -> TraceError {
        TraceError { path: self.path.clone(), source }
    }
}

/// A finished experiment's part.
struct FinishedExperiment {
    name: String,
    answer: String,
    lines: Vec<TraceLine>,
}

/// The file, and the experiments that ended before their turn.
struct Merged<W: Write> {
    file: TraceFile<W>,
    /// The time of the trace's zero.
    zero: Duration,
    next: usize,
    finished_early: BTreeMap<usize, FinishedExperiment>,
    /// The ids given to processes and threads so far. The system's ids repeat in a long run.
    next_process: u32,
    spans: u64,
}

/// A process of the experiment being written.
struct Process {
    number: u32,
    threads: BTreeMap<u32, perfetto::Thread>,
    /// When it last wrote a line.
    last: Duration,
    allocation_events: Vec<AllocationEvent>,
}

impl Process {
    fn new(number: u32) -> Self {
        Self { number, threads: BTreeMap::new(), last: Duration::ZERO, allocation_events: Vec::new() }
    }
}

/// A call, with what is shown of it.
struct Call {
    place: CallThread,
    function: String,
    start: Duration,
    end: Duration,
    /// `None` if it did not return.
    code: Option<u32>,
    arguments: Vec<(String, Value)>,
}

/// The start or end of a block's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AllocationEvent {
    at: Duration,
    address: u64,
    /// `None` if the block was freed.
    bytes: Option<u64>,
}

impl<W: Write> Merged<W> {
    fn new(out: W, zero: Duration) -> io::Result<Self> {
        let file = TraceFile::new(out)?;
        Ok(Self { file, zero, next: 0, finished_early: BTreeMap::new(), next_process: 0, spans: 0 })
    }

    fn add(&mut self, nth: usize, ended: FinishedExperiment) -> io::Result<()> {
        self.finished_early.insert(nth, ended);
        while let Some(ended) = self.finished_early.remove(&self.next) {
            self.write(ended)?;
            self.next += 1;
        }
        self.file.flush()
    }

    fn write(&mut self, ended: FinishedExperiment) -> io::Result<()> {
        let mut processes = self.name(&ended)?;
        let calls = calls(ended.lines, self.zero);
        for call in &calls {
            let process = processes.get_mut(&call.place.process).expect("every process was named");
            process.last = process.last.max(call.end);
            process.allocation_events.extend(allocation_event(call));
            let arguments = shown(call);
            let arguments: Vec<_> = arguments.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            self.file.slice(process.threads[&call.place.thread], &call.function, call.start, call.end, &arguments)?;
        }
        for process in processes.values_mut() {
            self.write_allocation_events(process)?;
        }
        // The first named process is the experiment's own, unless it ended before it could write its line.
        let own = processes.values().min_by_key(|process| process.number);
        if let Some((process, &thread)) = own.and_then(|own| Some((own, own.threads.values().min()?))) {
            let at = Point { thread, at: process.last };
            self.file.instant(at, "answer", &[("answer", ended.answer.into())])?;
        }
        Ok(())
    }

    /// Names all processes and threads of the lines.
    fn name(&mut self, ended: &FinishedExperiment) -> io::Result<BTreeMap<u32, Process>> {
        let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
        for line in &ended.lines {
            let (place, at, role) = match line {
                TraceLine::Began { place, role, at_ns } => (place, *at_ns, Some(*role)),
                TraceLine::Called { place, at_ns, .. } => (place, *at_ns, None),
                TraceLine::Returned { place, end_ns, .. } => (place, *end_ns, None),
            };
            let process = match processes.entry(place.process) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(new) => {
                    self.next_process += 1;
                    self.file.process(self.next_process, &process_name(&ended.name, role))?;
                    new.insert(Process::new(self.next_process))
                }
            };
            process.last = process.last.max(since(self.zero, at));
            let others = process.threads.len();
            if let Entry::Vacant(new) = process.threads.entry(place.thread) {
                let (id, name) = if others == 0 {
                    (process.number, "main".to_owned())
                } else {
                    self.next_process += 1;
                    (self.next_process, format!("thread {}", others + 1))
                };
                let thread = perfetto::Thread { process: process.number, id };
                self.file.thread(thread, &name)?;
                new.insert(thread);
            }
        }
        Ok(processes)
    }

    /// A block lives from the return of its allocating call to the call that frees it; otherwise until its address is
    /// allocated again, or its process's last line.
    fn write_allocation_events(&mut self, process: &mut Process) -> io::Result<()> {
        // Threads write lines as their calls return, which is not the order in which blocks start and end.
        process.allocation_events.sort_by_key(|life| life.at);
        let mut open: BTreeMap<u64, (u64, String)> = BTreeMap::new();
        for life in &process.allocation_events {
            if let Some((id, name)) = open.remove(&life.address) {
                self.file.span_end(Span { process: process.number, id, name: &name }, life.at)?;
            }
            let Some(bytes) = life.bytes else { continue };
            self.spans += 1;
            let (id, name) = (self.spans, format!("{bytes} bytes at {:#x}", life.address));
            self.file.span_begin(Span { process: process.number, id, name: &name }, life.at, &[])?;
            open.insert(life.address, (id, name));
        }
        for (id, name) in open.into_values() {
            self.file.span_end(Span { process: process.number, id, name: &name }, process.last)?;
        }
        Ok(())
    }
}

fn process_name(experiment: &str, role: Option<Role>) -> String {
    match role {
        Some(Role::Experiment) => experiment.to_owned(),
        Some(Role::Partner) => format!("partner of {experiment}"),
        None => format!("forked child of {experiment}"),
    }
}

/// Returns the calls of some lines, by start time, outer calls before inner ones.
fn calls(lines: Vec<TraceLine>, zero: Duration) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut open: BTreeMap<CallThread, Vec<Call>> = BTreeMap::new();
    let mut last = Duration::ZERO;
    for line in lines {
        match line {
            TraceLine::Began { at_ns, .. } => last = last.max(since(zero, at_ns)),
            TraceLine::Called { place, function, at_ns, arguments } => {
                let start = since(zero, at_ns);
                last = last.max(start);
                let call = Call { place, function, start, end: start, code: None, arguments };
                open.entry(place).or_default().push(call);
            }
            TraceLine::Returned { place, function, start_ns, end_ns, code, arguments } => {
                open.entry(place).or_default().pop();
                let (start, end) = (since(zero, start_ns), since(zero, end_ns));
                last = last.max(end);
                calls.push(Call { place, function, start, end, code: Some(code), arguments });
            }
        }
    }
    // Calls that never returned extend to the last line.
    calls.extend(open.into_values().flatten().map(|call| Call { end: last, ..call }));
    calls.sort_by_key(|call| (call.start, std::cmp::Reverse(call.end)));
    calls
}

/// Returns what a call did to the life of a block, if anything.
fn allocation_event(call: &Call) -> Option<AllocationEvent> {
    use Function::*;
    if call.code != Some(0) {
        return None;
    }
    let count = |name: &str| {
        call.arguments.iter().find_map(|(argument, value)| match value {
            Value::Address(number) | Value::Count(number) if argument == name => Some(*number),
            _ => None,
        })
    };
    let address = count("start").filter(|&address| address != 0)?;
    match Function::named(&call.function)? {
        cuMemAlloc_v2
        | cuMemAllocManaged
        | cuMemAllocAsync
        | cuMemAllocFromPoolAsync
        | cuMemAllocHost_v2
        | cuMemHostAlloc => Some(AllocationEvent { at: call.end, address, bytes: Some(count("bytes")?) }),
        cuMemAllocPitch_v2 => {
            let bytes = count("width_bytes")?.saturating_mul(count("height")?);
            Some(AllocationEvent { at: call.end, address, bytes: Some(bytes) })
        }
        cuMemFree_v2 | cuMemFreeAsync | cuMemFreeHost => Some(AllocationEvent { at: call.start, address, bytes: None }),
        _ => None,
    }
}

/// Returns what a viewer shows for a call: its outcome, then its arguments.
fn shown(call: &Call) -> Vec<(String, serde_json::Value)> {
    let outcome = match call.code.map(CUerror::new) {
        None => "did not return".to_owned(),
        Some(None) => "SUCCESS".to_owned(),
        Some(Some(error)) => format!("{} ({})", error_name(error), error.number()),
    };
    let mut shown = vec![("outcome".to_owned(), outcome.into())];
    shown.extend(call.arguments.iter().map(|(name, value)| {
        let value = match *value {
            Value::Address(number) | Value::Handle(number) => format!("{number:#x}").into(),
            Value::Count(number) => number.into(),
            Value::Signed(number) => number.into(),
        };
        (name.clone(), value)
    }));
    shown
}

/// Returns the trace time at which the clock showed `at_ns`.
fn since(zero: Duration, at_ns: u64) -> Duration {
    Duration::from_nanos(at_ns).saturating_sub(zero)
}

#[cfg(test)]
mod tests;
