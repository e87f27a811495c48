//! A writer of trace files that Perfetto (ui.perfetto.dev) and `chrome://tracing` open: a JSON array of Chrome's trace
//! events, one event a line.
//!
//! Events are written as they come and none is kept, so a trace may be longer than memory. The format allows the
//! closing bracket to be missing, and the comma precedes an event: a file whose writer was killed opens with everything
//! that had reached it.
//!
//! This file owns the format only. It knows no clock, and does not know what is traced: times are durations since a
//! moment that the caller chooses.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

/// A row of a process, which holds nested slices.
///
/// Perfetto looks threads up by their number alone, and assigns events that name no thread, such as spans and counters,
/// to the thread with the process's number. So a main thread's number is its process's, as in Linux, and no other
/// thread of the file has the number of a process or of another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// The number of the process, which is unique in the file.
    pub process: u32,
    /// The thread's number.
    pub id: u32,
}

/// Something that begins and ends and may overlap with others of its kind, such as the life of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// The number of the process, which is unique in the file.
    pub process: u32,
    /// The span's number, which is unique in the process.
    pub id: u64,
    /// The name that is shown.
    pub name: &'a str,
}

/// A moment of a thread: an end of an arrow, attached to the slice that the thread is in then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The row.
    pub thread: Thread,
    /// When.
    pub at: Duration,
}

/// A trace that is being written. Each event is passed to `W` in one piece.
///
/// ```
/// use std::time::Duration;
/// use freehold::timeline::perfetto::{Thread, TraceFile};
///
/// let mut trace = TraceFile::new(Vec::new())?;
/// let main = Thread { process: 1, id: 1 };
/// trace.process(1, "solver")?;
/// trace.thread(main, "main")?;
/// trace.slice(main, "step", Duration::from_micros(10), Duration::from_micros(25), &[("number", 1.into())])?;
/// trace.counter(1, "cells", Duration::from_micros(25), &[("live", 4096)])?;
/// let text = String::from_utf8(trace.finish()?).expect("it is JSON");
/// assert!(text.contains(r#""ts":10.000,"dur":15.000,"name":"step""#), "{text}");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TraceFile<W: Write> {
    out: W,
    /// The event being assembled; kept so that its memory is reused.
    line: String,
    is_empty: bool,
    processes: u32,
    threads: u32,
    flows: u64,
}

impl<W: Write> TraceFile<W> {
    /// Begins a trace in `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Self { out, line: String::new(), is_empty: true, processes: 0, threads: 0, flows: 0 })
    }

    /// Names a process. Processes are shown in the order in which they are named.
    pub fn process(&mut self, id: u32, name: &str) -> io::Result<()> {
        self.processes += 1;
        let order = self.processes;
        self.event('M', id).text("name", "process_name").arguments(&[("name", name.into())]).write()?;
        self.event('M', id).text("name", "process_sort_index").arguments(&[("sort_index", order.into())]).write()
    }

    /// Names a thread. Threads of a process are shown in the order in which they are named.
    pub fn thread(&mut self, thread: Thread, name: &str) -> io::Result<()> {
        self.threads += 1;
        let order = self.threads;
        self.event_of('M', thread).text("name", "thread_name").arguments(&[("name", name.into())]).write()?;
        self.event_of('M', thread).text("name", "thread_sort_index").arguments(&[("sort_index", order.into())]).write()
    }

    /// Writes something that a thread did from `start` to `end`.
    ///
    /// # Panics
    /// If it ends before it starts.
    pub fn slice(
        &mut self,
        thread: Thread,
        name: &str,
        start: Duration,
        end: Duration,
        arguments: &[(&str, Value)],
    ) -> io::Result<()> {
        assert!(start <= end, "a slice starts at {start:?} and ends before, at {end:?}");
        let event = self.event_of('X', thread).time("ts", start).time("dur", end - start);
        event.text("name", name).arguments(arguments).write()
    }

    /// Writes something that happened in a thread and took no time.
    pub fn instant(&mut self, at: Point, name: &str, arguments: &[(&str, Value)]) -> io::Result<()> {
        let event = self.event_of('i', at.thread).time("ts", at.at);
        event.text("s", "t").text("name", name).arguments(arguments).write()
    }

    /// Begins a span.
    pub fn span_begin(&mut self, span: Span<'_>, at: Duration, arguments: &[(&str, Value)]) -> io::Result<()> {
        self.event('b', span.process).of_span(span).time("ts", at).arguments(arguments).write()
    }

    /// Ends a span that has begun: the same span, and not before it began.
    pub fn span_end(&mut self, span: Span<'_>, at: Duration) -> io::Result<()> {
        self.event('e', span.process).of_span(span).time("ts", at).write()
    }

    /// Writes the values of some quantities of a process from now on, drawn on top of each other.
    pub fn counter(&mut self, process: u32, name: &str, at: Duration, values: &[(&str, u64)]) -> io::Result<()> {
        let values: Vec<(&str, Value)> = values.iter().map(|&(name, value)| (name, value.into())).collect();
        self.event('C', process).time("ts", at).text("name", name).arguments(&values).write()
    }

    /// Writes an arrow from one slice to another, both of which were written before.
    ///
    /// # Panics
    /// If it ends before it starts.
    pub fn flow(&mut self, name: &str, from: Point, to: Point) -> io::Result<()> {
        assert!(from.at <= to.at, "an arrow starts at {:?} and ends before, at {:?}", from.at, to.at);
        self.flows += 1;
        let id = self.flows;
        let start = self.event_of('s', from.thread).time("ts", from.at).number("id", id);
        start.text("cat", "flow").text("name", name).write()?;
        // Without `bp` the arrow would end at the next slice that begins, and not at the current one.
        let end = self.event_of('f', to.thread).time("ts", to.at).number("id", id);
        end.text("cat", "flow").text("name", name).text("bp", "e").write()
    }

    /// Flushes `W`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Closes the trace, and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, phase: char, process: u32) -> Event<'_, W> {
        self.line.clear();
        self.line.push_str(if self.is_empty { "\n" } else { ",\n" });
        Event { file: self }.put(format_args!(r#"{{"ph":"{phase}","pid":{process}"#))
    }

    fn event_of(&mut self, phase: char, thread: Thread) -> Event<'_, W> {
        self.event(phase, thread.process).number("tid", thread.id.into())
    }
}

/// An event whose object is not closed yet.
struct Event<'a, W: Write> {
    file: &'a mut TraceFile<W>,
}

impl<W: Write> Event<'_, W> {
    fn put(self, text: fmt::Arguments<'_>) -> Self {
        self.file.line.write_fmt(text).expect("a string takes all that is written to it");
        self
    }

    fn number(self, key: &str, number: u64) -> Self {
        self.put(format_args!(r#","{key}":{number}"#))
    }

    /// In microseconds, to the nanosecond. Not a float, which is not precise enough for long times.
    fn time(self, key: &str, time: Duration) -> Self {
        let nanoseconds = time.as_nanos();
        self.put(format_args!(r#","{key}":{}.{:03}"#, nanoseconds / 1000, nanoseconds % 1000))
    }

    fn text(self, key: &str, text: &str) -> Self {
        self.put(format_args!(r#","{key}":{}"#, Value::from(text)))
    }

    /// Viewers pair the two ends of a span by all of these fields.
    fn of_span(self, span: Span<'_>) -> Self {
        let event = self.text("cat", "span").put(format_args!(r#","id2":{{"local":"{:#x}"}}"#, span.id));
        event.text("name", span.name)
    }

    fn arguments(self, arguments: &[(&str, Value)]) -> Self {
        let mut event = self.put(format_args!(r#","args":{{"#));
        for (at, (name, value)) in arguments.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            event = event.put(format_args!("{comma}{}:{value}", Value::from(*name)));
        }
        event.put(format_args!("}}"))
    }

    fn write(self) -> io::Result<()> {
        let event = self.put(format_args!("}}"));
        let TraceFile { out, line, is_empty, .. } = event.file;
        out.write_all(line.as_bytes())?;
        *is_empty = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
