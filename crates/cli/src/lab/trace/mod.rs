//! What `--trace` writes: every driver call of every process of every experiment.
//!
//! The processes of one experiment add lines to one part, a file in memory that the lab holds and names to them
//! (`record`). When the experiment has ended, however that was, the lab makes events of the part's lines (`merge`). This
//! file owns the part, and the lines that both sides know.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

pub(crate) use self::merge::{Trace, TraceError};
pub(crate) use self::record::traced;

mod merge;
mod record;

/// What a process that adds to a part is to its experiment. A process that never says so was forked from one that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Experiment,
    Partner,
}

/// One line of a part. Times are nanoseconds of the system's monotonic clock, which all processes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum TraceLine {
    /// A process begins.
    Began { place: CallThread, role: Role, at_ns: u64 },
    /// A call is about to be made.
    Called { place: CallThread, function: String, at_ns: u64, arguments: Vec<(String, Value)> },
    /// The last call of the thread that had not returned has.
    Returned {
        place: CallThread,
        function: String,
        start_ns: u64,
        end_ns: u64,
        code: u32,
        arguments: Vec<(String, Value)>,
    },
}

/// Where a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct CallThread {
    process: u32,
    thread: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Value {
    Address(u64),
    Handle(u64),
    Count(u64),
    Signed(i32),
}

/// The lines of one experiment, which nothing is left of when the lab ends.
#[derive(Debug)]
pub(crate) struct ExperimentTrace {
    file: File,
}

impl ExperimentTrace {
    fn new() -> io::Result<Self> {
        let descriptor: OwnedFd = memfd_create("freehold-lab-trace", MemfdFlags::CLOEXEC)?;
        Ok(Self { file: File::from(descriptor) })
    }

    /// By which the processes of the experiment find it.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// The whole lines. A process that was killed may have left a piece of one.
    fn lines(mut self) -> io::Result<Vec<TraceLine>> {
        let mut text = Vec::new();
        self.file.read_to_end(&mut text)?;
        Ok(text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

/// A part as those open it who add to it: each write goes to its end, whoever else writes.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// The monotonic clock, which is that of [`Instant`](std::time::Instant) and tells all processes the same time.
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which writes one `timespec` to it.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(code, 0, "every system has a monotonic clock");
    let seconds = u64::try_from(time.tv_sec).expect("the clock counts from zero");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("a second has a billion nanoseconds");
    Duration::new(seconds, nanoseconds)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("no machine runs for five hundred years")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn began(thread: u32) -> TraceLine {
        TraceLine::Began { place: CallThread { process: 7, thread }, role: Role::Partner, at_ns: 5 }
    }

    #[test]
    fn processes_append_to_a_trace_file() {
        let part = ExperimentTrace::new().unwrap();
        let (one, other) = (open(&part.path()).unwrap(), open(&part.path()).unwrap());
        for (mut file, thread) in [(&one, 1), (&other, 2), (&one, 3)] {
            let line = serde_json::to_string(&began(thread)).unwrap() + "\n";
            file.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(part.lines().unwrap(), [began(1), began(2), began(3)]);
    }

    #[test]
    fn a_line_that_is_not_whole_is_left_out_and_those_before_it_are_not() {
        let part = ExperimentTrace::new().unwrap();
        let line = serde_json::to_string(&began(1)).unwrap();
        open(&part.path()).unwrap().write_all(format!("{line}\n{}", &line[..20]).as_bytes()).unwrap();
        assert_eq!(part.lines().unwrap(), [began(1)]);
    }
}
