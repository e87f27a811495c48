//! The part of a trace that the processes of one experiment write, and the format of its lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

/// The role of a process in its experiment. A process that never reports one was forked from one that did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Experiment,
    Partner,
}

/// One line of a part. Times are nanoseconds of the system's monotonic clock, which all processes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TraceLine {
    /// A process has started.
    Began { place: CallThread, role: Role, at_ns: u64 },
    /// A call is about to be made.
    Called { place: CallThread, function: String, at_ns: u64, arguments: Vec<(String, Value)> },
    /// The thread's last pending call has returned.
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
pub(super) struct CallThread {
    pub(super) process: u32,
    pub(super) thread: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Value {
    Address(u64),
    Handle(u64),
    Count(u64),
    Signed(i32),
}

/// The lines of one experiment. Nothing of them remains when the lab ends.
#[derive(Debug)]
pub(crate) struct ExperimentTrace {
    file: File,
}

impl ExperimentTrace {
    pub(super) fn new() -> io::Result<Self> {
        let descriptor: OwnedFd = memfd_create("freehold-lab-trace", MemfdFlags::CLOEXEC)?;
        Ok(Self { file: File::from(descriptor) })
    }

    /// Returns the path by which the experiment's processes open it.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Returns the complete lines. A killed process may have left an incomplete one.
    pub(super) fn lines(mut self) -> io::Result<Vec<TraceLine>> {
        let mut text = Vec::new();
        self.file.read_to_end(&mut text)?;
        Ok(text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

/// Opens a part for appending: each write goes to its end, whichever process writes.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// Returns the monotonic clock, which is that of [`Instant`](std::time::Instant) and equal in all processes.
pub(super) fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which writes one `timespec` to it.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(code, 0, "the monotonic clock exists");
    let seconds = u64::try_from(time.tv_sec).expect("the clock is not negative");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("nanoseconds are below a billion");
    Duration::new(seconds, nanoseconds)
}

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("the clock fits into 64 bits")
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
