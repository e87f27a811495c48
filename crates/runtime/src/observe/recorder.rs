//! A timeline of the program's calls, in the form that `freehold replay` reads and Perfetto opens: a JSON array of Chrome's trace
//! events, one event a line, without the closing bracket while it is being written.
//!
//! An allocation and a free are slices of the calling thread, with the number of the block; a block's life is a span; launches,
//! copies and waits are slices, as long as the call takes on the host. The file is flushed after a number of events and after some
//! time, so a killed process leaves its events up to the last flush.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// When the file is flushed.
const EVENTS_TO_FLUSH: u32 = 32;
const TIME_TO_FLUSH: Duration = Duration::from_millis(100);

/// A block of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    number: u64,
    address: usize,
    bytes: u64,
}

/// A call: when it began and ended, and in which stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) function: &'static str,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// The handle.
    pub(super) stream: usize,
}

/// A timeline that is being written.
pub(super) struct Recorder {
    out: BufWriter<File>,
    process: u32,
    start: Instant,
    is_empty: bool,
    threads: Vec<i32>,
    /// The number of each stream, by its handle.
    streams: HashMap<usize, u32>,
    live: HashMap<usize, Block>,
    last_block: u64,
    live_bytes: u64,
    unflushed: u32,
    flushed: Instant,
    /// The first error. Nothing is written after it.
    is_failed: bool,
}

impl Recorder {
    /// Begins a timeline in a file that is empty. If another process uses it, begins one beside it, with this process's number.
    /// Times count from `start`.
    pub(super) fn open(path: &Path, start: Instant) -> io::Result<Self> {
        let open = |path: &Path| File::options().create(true).append(true).open(path);
        let mut file = open(path)?;
        if file.try_lock().is_err() || file.metadata()?.len() > 0 {
            let own = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
            file = open(&own)?;
            file.set_len(0)?;
        }
        let mut recorder = Self {
            out: BufWriter::new(file),
            process: std::process::id(),
            start,
            is_empty: true,
            threads: Vec::new(),
            // The default stream.
            streams: HashMap::from([(0, 0)]),
            live: HashMap::new(),
            last_block: 0,
            live_bytes: 0,
            unflushed: 0,
            flushed: start,
            is_failed: false,
        };
        let name = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&name).file_name().unwrap_or(OsStr::new("program")).to_string_lossy().into_owned();
        recorder.write(&format!(
            r#""ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}"#,
            recorder.process,
            quoted(&name)
        ));
        Ok(recorder)
    }

    /// Takes a block that is about to be freed: another thread may get its address before the call returns.
    pub(super) fn take(&mut self, address: usize) -> Option<Block> {
        self.live.remove(&address)
    }

    pub(super) fn put_back(&mut self, block: Block) {
        self.live.entry(block.address).or_insert(block);
    }

    pub(super) fn allocated(&mut self, call: Call, address: usize, bytes: u64) {
        self.last_block += 1;
        let block = Block { number: self.last_block, address, bytes };
        self.live.insert(address, block);
        self.live_bytes += bytes;
        let stream = self.stream(call.stream);
        let arguments = format!(r#""block":{},"bytes":{bytes},"stream":{stream}"#, block.number);
        self.slice(call, &format!("{} {bytes} bytes at {address:#x}", call.function), &arguments);
        self.span('b', call.ended, block);
        self.count(call.ended);
        self.flush_if_due(call.ended);
    }

    pub(super) fn freed(&mut self, call: Call, block: Block) {
        self.live_bytes -= block.bytes;
        let stream = self.stream(call.stream);
        let arguments = format!(r#""block":{},"stream":{stream}"#, block.number);
        self.slice(call, &format!("{} {} bytes at {:#x}", call.function, block.bytes, block.address), &arguments);
        self.span('e', call.ended, block);
        self.count(call.ended);
        self.flush_if_due(call.ended);
    }

    /// Writes a call that neither allocates nor frees.
    pub(super) fn called(&mut self, call: Call, bytes: Option<u64>) {
        let stream = self.stream(call.stream);
        let bytes = bytes.map_or(String::new(), |bytes| format!(r#","size":{bytes}"#));
        self.slice(call, call.function, &format!(r#""stream":{stream}{bytes}"#));
        self.flush_if_due(call.ended);
    }

    /// Ends the lives of all blocks.
    pub(super) fn reset(&mut self, at: Instant) {
        for (_, block) in std::mem::take(&mut self.live) {
            self.span('e', at, block);
        }
        self.live_bytes = 0;
        self.count(at);
    }

    /// Closes the timeline. Blocks that were not freed have no end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n]\n")?;
        self.out.flush()
    }

    /// Returns the number of a stream.
    fn stream(&mut self, handle: usize) -> u32 {
        let next = self.streams.len() as u32;
        *self.streams.entry(handle).or_insert(next)
    }

    fn slice(&mut self, call: Call, name: &str, arguments: &str) {
        // SAFETY: the call has no arguments and cannot fail.
        let thread = unsafe { libc::gettid() };
        let process = self.process;
        if !self.threads.contains(&thread) {
            self.threads.push(thread);
            self.write(&format!(
                r#""ph":"M","pid":{process},"tid":{thread},"name":"thread_name","args":{{"name":"thread {}"}}"#,
                self.threads.len()
            ));
        }
        let (began, taken) = (self.us(call.began), us(call.ended - call.began));
        self.write(&format!(
            r#""ph":"X","pid":{process},"tid":{thread},"ts":{began},"dur":{taken},"name":{},"args":{{{arguments}}}"#,
            quoted(name)
        ));
    }

    fn span(&mut self, phase: char, at: Instant, block: Block) {
        let Block { number, address, bytes } = block;
        self.write(&format!(
            r#""ph":"{phase}","pid":{},"cat":"span","id2":{{"local":"{number:#x}"}},"name":"{bytes} bytes at {address:#x}","ts":{}"#,
            self.process,
            self.us(at)
        ));
    }

    fn count(&mut self, at: Instant) {
        let (process, bytes) = (self.process, self.live_bytes);
        self.write(&format!(
            r#""ph":"C","pid":{process},"ts":{},"name":"device memory, bytes","args":{{"owned":{bytes}}}"#,
            self.us(at)
        ));
    }

    /// Returns a time in microseconds, to the nanosecond.
    fn us(&self, at: Instant) -> String {
        us(at.saturating_duration_since(self.start))
    }

    /// Writes an event. The comma precedes it, so that a file that ends early is whole.
    fn write(&mut self, fields: &str) {
        if self.is_failed {
            return;
        }
        let before = if self.is_empty { "[\n" } else { ",\n" };
        if let Err(error) = write!(self.out, "{before}{{{fields}}}") {
            self.fail(&error);
        }
        self.is_empty = false;
    }

    fn flush_if_due(&mut self, now: Instant) {
        self.unflushed += 1;
        if self.unflushed < EVENTS_TO_FLUSH && now.saturating_duration_since(self.flushed) < TIME_TO_FLUSH {
            return;
        }
        (self.unflushed, self.flushed) = (0, now);
        if let Err(error) = self.out.flush() {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        if !self.is_failed {
            eprintln!("freehold: the recording ends here: {error}");
        }
        self.is_failed = true;
    }
}

fn us(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

/// Returns a text as JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_json() {
        assert_eq!(quoted("a \"b\" \\c\n"), r#""a \"b\" \\c\u000a""#);
    }

    #[test]
    fn a_time_has_three_decimals() {
        assert_eq!(us(Duration::from_nanos(1_002_003)), "1002.003");
    }
}
