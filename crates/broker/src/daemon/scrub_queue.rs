//! The broker's side of the scrubber: a queue of jobs, and restarts. One scrubber writes at a time: the next starts
//! only after the process of the last has ended. Otherwise the zeros of the old one could overwrite memory that has a
//! new owner.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::backoff::Backoff;
use crate::os::seqpacket::{self, ReceiveError};
use crate::os::time::timespec;
use crate::process::{Config, Role};
use crate::protocol::fd_channel::{FdKey, FdTable};
use crate::protocol::scrub::{ScrubReply, ScrubRequest, ScrubTarget};
use crate::protocol::types::Id;

/// A job at which this many scrubbers have died is not given to another.
const ATTEMPTS_MAX: u32 = 3;

/// Jobs that are sent before they are answered.
const IN_FLIGHT_MAX: usize = 16;

/// A scrubber that has not answered for this long is killed.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A range of a segment that must be zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrubJob {
    pub(super) segment: Id,
    /// Size of the segment.
    pub(super) whole_bytes: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedJob {
    target: ScrubTarget,
    job: ScrubJob,
    attempts: u32,
}

#[derive(Debug)]
pub(super) struct ScrubQueue {
    socket: Option<OwnedFd>,
    /// The process of the current scrubber, or of one that must exit before the next starts.
    process: Option<Arc<OwnedFd>>,
    /// Jobs that were not sent yet.
    waiting: VecDeque<QueuedJob>,
    /// Jobs that were sent.
    in_flight: BTreeMap<ScrubTarget, QueuedJob>,
    backoff: Backoff,
    /// When it last answered, or got a job while it had none.
    last_reply: Instant,
}

impl ScrubQueue {
    /// Starts without a scrubber. `last` is the scrubber of a previous broker.
    pub(super) fn new(last: Option<Arc<OwnedFd>>) -> Self {
        let scrub_queue = Self {
            socket: None,
            process: last,
            waiting: VecDeque::new(),
            in_flight: BTreeMap::new(),
            backoff: Backoff::NONE,
            last_reply: Instant::now(),
        };
        scrub_queue.kill();
        scrub_queue
    }

    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    pub(super) fn process(&self) -> Option<&Arc<OwnedFd>> {
        self.process.as_ref()
    }

    /// Starts a scrubber, unless one is running, the last has not exited, or the backoff is not over. Returns whether
    /// it did.
    pub(super) fn start(&mut self, config: &Config, now: Instant) -> bool {
        if self.socket.is_some() || !self.backoff.has_elapsed(now) {
            return false;
        }
        if self.process.as_ref().is_some_and(|process| !has_ended(process)) {
            return false;
        }
        self.process = None;
        let started = config.spawn(Role::Scrubber).and_then(|(child, socket)| {
            match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
                Ok(process) => Ok((socket, Some(Arc::new(process)))),
                // It is dead already, which the next event reports.
                Err(Errno::SRCH) => Ok((socket, None)),
                Err(error) => Err(error.into()),
            }
        });
        match started {
            Ok((socket, process)) => {
                (self.socket, self.process, self.last_reply) = (Some(socket), process, now);
                true
            }
            Err(error) => {
                tracing::error!(target: "freehold", %error, "could not start a scrubber, will retry");
                self.backoff.start(now);
                false
            }
        }
    }

    pub(super) fn push(&mut self, what: ScrubTarget, job: ScrubJob) {
        self.waiting.push_back(QueuedJob { target: what, job, attempts: 0 });
    }

    /// Sends as many waiting jobs as fit. Jobs whose segment no longer has a descriptor are dropped.
    pub(super) fn dispatch(&mut self, fds: &FdTable, now: Instant) {
        let Some(socket) = &self.socket else { return };
        if self.in_flight.is_empty() {
            self.last_reply = now;
        }
        while self.in_flight.len() < IN_FLIGHT_MAX
            && let Some(mut task) = self.waiting.pop_front()
        {
            let Some(descriptor) = fds.get(&FdKey::Segment(task.job.segment)) else { continue };
            let ScrubJob { whole_bytes, offset, bytes, .. } = task.job;
            let request = ScrubRequest { target: task.target, whole_bytes, offset, bytes };
            // A full socket is retried later, and a dead scrubber is noticed as an event.
            if seqpacket::send(socket, &request.to_words(), &[], &[descriptor.as_fd()]).is_err() {
                self.waiting.push_front(task);
                return;
            }
            task.attempts += 1;
            self.in_flight.insert(task.target, task);
        }
    }

    /// Whether jobs wait that could be sent.
    pub(super) fn has_backlog(&self) -> bool {
        self.socket.is_some() && self.in_flight.len() < IN_FLIGHT_MAX && !self.waiting.is_empty()
    }

    /// Receives the outcome of a job.
    pub(super) fn receive(&mut self, now: Instant) -> Result<Option<(ScrubTarget, bool)>, ReceiveError> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let received = match seqpacket::receive(socket, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(ReceiveError::WouldBlock) => return Ok(None),
            Err(other) => return Err(other),
        };
        self.last_reply = now;
        self.backoff.reset();
        let Some(ScrubReply { target, is_zeroed }) = ScrubReply::from_words(&received.slot) else { return Ok(None) };
        Ok(self.in_flight.remove(&target).map(|task| (task.target, is_zeroed)))
    }

    /// The scrubber has closed its socket. Returns the jobs that are given up; the others are queued again.
    pub(super) fn process_lost(&mut self, now: Instant) -> Vec<ScrubTarget> {
        self.kill();
        self.socket = None;
        self.backoff.start(now);
        let mut lost = Vec::new();
        for (_, task) in std::mem::take(&mut self.in_flight) {
            if task.attempts >= ATTEMPTS_MAX {
                lost.push(task.target);
            } else {
                self.waiting.push_front(task);
            }
        }
        lost
    }

    /// Kills a scrubber that has a job and has not answered for too long. Its end is noticed as an event.
    pub(super) fn kill_unresponsive(&self, now: Instant) {
        if self.socket.is_some() && !self.in_flight.is_empty() && now > self.last_reply + REPLY_TIMEOUT {
            self.kill();
        }
    }

    /// How long the event loop may sleep.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        match self.socket {
            Some(_) if self.waiting.is_empty() && self.in_flight.is_empty() => None,
            Some(_) => Some((self.last_reply + REPLY_TIMEOUT).saturating_duration_since(now)),
            None => Some(self.backoff.remaining(now).unwrap_or(Duration::from_millis(1))),
        }
    }

    fn kill(&self) {
        if let Some(process) = &self.process {
            // It may be gone already.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let now = timespec(Duration::ZERO);
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)), Ok(1))
}
