//! The driver's error log, the callbacks that get each message, and the file of `CUDA_LOG_FILE`.
//!
//! No lock of this module is held while a callback of the program runs.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use freehold_check::sites;
use freehold_driver::cuda::{CUerror, CUlogIterator, CUlogLevel, CUresult};
use freehold_ptx::Fault;

use super::config::LogFile;
use super::stdio;
use super::sync::lock;

/// Maximum size of the log in bytes. Older messages are dropped, and the log is then marked as truncated.
const KEPT_BYTES_MAX: usize = 25_600;

/// Stands for messages that were dropped from the log or that do not fit the caller's buffer.
const TRUNCATED: &str = "[Log truncated: older messages are lost]\n";

/// A callback of the program that gets each message.
pub(crate) type LogCallback = unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut std::ffi::c_char, usize);

#[derive(Debug)]
pub(crate) struct Log {
    file: Option<LogFile>,
    state: Mutex<State>,
    /// The first fault of a kernel.
    first_fault: OnceLock<Fault>,
}

#[derive(Debug, Default)]
struct State {
    /// Lines, each with its line feed.
    lines: VecDeque<String>,
    /// The number of the first line.
    first: CUlogIterator,
    bytes: usize,
    callbacks: Vec<RegisteredCallback>,
    last_id: usize,
}

#[derive(Debug, Clone, Copy)]
struct RegisteredCallback {
    id: usize,
    callback: LogCallback,
    /// The program's pointer, which only its callback dereferences.
    data: usize,
}

impl Log {
    pub(crate) fn new(file: Option<LogFile>) -> Self {
        Self { file, state: Mutex::default(), first_fault: OnceLock::new() }
    }

    /// Appends an error to the log, writes it to the log file and passes it to all callbacks.
    pub(crate) fn error(&self, message: &str) {
        let line = format!("[{}][{}][CUDA][E] {message}\n", time_of_day(), thread_id());
        self.write_to_file(&line);
        let callbacks = {
            let mut state = lock(&self.state);
            state.bytes += line.len();
            state.lines.push_back(line);
            while state.bytes > KEPT_BYTES_MAX {
                let Some(oldest) = state.lines.pop_front() else { break };
                state.bytes -= oldest.len();
                state.first += 1;
            }
            state.callbacks.clone()
        };
        let mut text: Vec<_> = message.bytes().chain([0]).collect();
        for RegisteredCallback { callback, data, .. } in callbacks {
            // SAFETY: the program guaranteed that the function and its data are valid when it registered them; the text
            // ends in a NUL and outlives the call.
            unsafe {
                callback(data as *mut c_void, CUlogLevel::ERROR, text.as_mut_ptr().cast(), text.len() - 1);
            }
        }
    }

    /// Logs the fault of a kernel.
    pub(crate) fn record_fault(&self, fault: &Fault) {
        self.first_fault.get_or_init(|| fault.clone());
        self.error(&fault_text(fault));
    }

    /// Returns the first fault of a kernel, if there was one.
    pub(crate) fn first_fault(&self) -> Option<&Fault> {
        self.first_fault.get()
    }

    /// Writes a line to the log file. Failures are ignored: the message is in the log anyway.
    fn write_to_file(&self, line: &str) {
        match &self.file {
            None => {}
            Some(LogFile::Stdout) => stdio::to_stdout(line.as_bytes()),
            Some(LogFile::Stderr) => stdio::to_stderr(line.as_bytes()),
            Some(LogFile::Path(path)) => {
                if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
                    let _written = file.write_all(line.as_bytes());
                }
            }
        }
    }

    /// Registers a callback for all later messages. The returned number unregisters it.
    pub(crate) fn register(&self, callback: LogCallback, data: usize) -> usize {
        let mut state = lock(&self.state);
        state.last_id += 1;
        let id = state.last_id;
        state.callbacks.push(RegisteredCallback { id, callback, data });
        id
    }

    pub(crate) fn unregister(&self, id: usize) -> CUresult {
        let mut state = lock(&self.state);
        let at = state.callbacks.iter().position(|registered| registered.id == id);
        state.callbacks.remove(at.ok_or(CUerror::INVALID_VALUE)?);
        Ok(())
    }

    /// Returns the number that the next message will have.
    pub(crate) fn next_index(&self) -> CUlogIterator {
        lock(&self.state).next_index()
    }

    /// Returns the messages from a number on, or all messages.
    pub(crate) fn since(&self, from: Option<CUlogIterator>) -> LogLines {
        let state = lock(&self.state);
        let from = from.unwrap_or(0);
        let skipped = from.saturating_sub(state.first) as usize;
        let lines = state.lines.iter().skip(skipped).cloned().collect();
        LogLines { lines, is_truncated: from < state.first, end: state.next_index() }
    }

    pub(crate) fn write_to(&self, path: &Path, lines: &LogLines) -> CUresult {
        let written = std::fs::write(path, lines.text());
        written.map_err(|_| CUerror::INVALID_VALUE)
    }
}

impl State {
    fn next_index(&self) -> CUlogIterator {
        self.first + self.lines.len() as CUlogIterator
    }
}

/// Messages copied from the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogLines {
    lines: Vec<String>,
    /// Whether older messages of the requested range were dropped.
    is_truncated: bool,
    pub(crate) end: CUlogIterator,
}

impl LogLines {
    fn text(&self) -> String {
        let head = if self.is_truncated { TRUNCATED } else { "" };
        [head].into_iter().chain(self.lines.iter().map(String::as_str)).collect()
    }

    /// Returns as many of the newest messages as fit into `bytes` with a terminating NUL.
    ///
    /// # Errors
    /// There are messages, but none fits.
    pub(crate) fn newest_fitting(&self, bytes: usize) -> Result<String, CUerror> {
        let whole = self.text();
        if whole.len() < bytes || whole.is_empty() {
            return if bytes > 0 { Ok(whole) } else { Err(CUerror::INVALID_VALUE) };
        }
        let mut room = bytes.checked_sub(TRUNCATED.len() + 1).ok_or(CUerror::INVALID_VALUE)?;
        let newest = self.lines.iter().rev().take_while(|line| {
            let fits = line.len() <= room;
            room = room.saturating_sub(line.len());
            fits
        });
        let count = newest.count();
        if count == 0 {
            return Err(CUerror::INVALID_VALUE);
        }
        let lines = self.lines[self.lines.len() - count..].to_vec();
        Ok(Self { lines, is_truncated: true, end: self.end }.text())
    }
}

/// Describes a fault, with the kernel's name as it was written.
pub(crate) fn fault_text(fault: &Fault) -> String {
    Fault { kernel: sites::demangled(&fault.kernel), ..fault.clone() }.to_string()
}

/// Returns the time of day in UTC.
fn time_of_day() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (now.as_secs() % 86_400, now.subsec_millis());
    format!("{:02}:{:02}:{:02}.{milliseconds:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Returns the number of the calling thread.
fn thread_id() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(log: &Log, from: Option<CUlogIterator>) -> String {
        let text = log.since(from).text();
        text.lines().map(|line| line.rsplit("] ").next().unwrap().to_owned() + ";").collect()
    }

    #[test]
    fn a_dump_starts_where_the_iterator_was() {
        let log = Log::new(None);
        log.error("one");
        let end = log.next_index();
        log.error("two");
        assert_eq!(messages(&log, None), "one;two;");
        assert_eq!(messages(&log, Some(end)), "two;");
        assert_eq!(messages(&log, Some(log.next_index())), "");
    }

    #[test]
    fn the_oldest_messages_give_way_and_are_said_to_be_lost() {
        let log = Log::new(None);
        (0..1000).for_each(|number| log.error(&format!("message {number}")));
        let text = log.since(None).text();
        assert!(text.starts_with(TRUNCATED));
        assert!(text.ends_with("message 999\n"));
        assert!(text.len() <= KEPT_BYTES_MAX + TRUNCATED.len());
    }

    #[test]
    fn of_a_buffer_that_is_too_short_the_newest_messages_get_the_room() {
        let log = Log::new(None);
        ["one", "two", "three"].iter().for_each(|message| log.error(message));
        let lines = log.since(None);
        let last = lines.lines[2].len();
        let text = lines.newest_fitting(TRUNCATED.len() + last + 1).unwrap();
        assert_eq!(text, format!("{TRUNCATED}{}", lines.lines[2]));
        assert_eq!(lines.newest_fitting(10), Err(CUerror::INVALID_VALUE));
        assert_eq!(log.since(Some(log.next_index())).newest_fitting(10), Ok(String::new()));
    }

    #[test]
    fn a_callback_is_called_until_it_is_unregistered() {
        unsafe extern "C" fn count(data: *mut c_void, _: CUlogLevel, _: *mut std::ffi::c_char, length: usize) {
            // SAFETY: the test below registers a pointer to an atomic that outlives the log.
            let total = unsafe { &*data.cast::<std::sync::atomic::AtomicUsize>() };
            total.fetch_add(length, std::sync::atomic::Ordering::Relaxed);
        }
        let (log, total) = (Log::new(None), std::sync::atomic::AtomicUsize::new(0));
        let number = log.register(count, std::ptr::from_ref(&total) as usize);
        log.error("four");
        assert_eq!(log.unregister(number), Ok(()));
        log.error("not heard");
        assert_eq!(total.into_inner(), 4);
        assert_eq!(log.unregister(number), Err(CUerror::INVALID_VALUE));
    }
}
