//! The scrubber, as the broker knows it: what it was given, and what to do when it dies. One scrubber writes at a time: the next
//! begins when the process of the last has ended, or its zeros would come over what is somebody else's by then.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::backoff::Backoff;
use crate::fd_channel::{FdKey, FdTable};
use crate::ring::Slot;
use crate::role::{Config, Role};
use crate::seqpacket::{self, ReceiveError};
use crate::state::ScrubTarget;
use crate::wire::Id;

/// What so many cleaners have died at is not given to another.
const ATTEMPTS_MAX: u32 = 3;

/// How much it is given before it has answered.
const IN_FLIGHT_MAX: usize = 16;

/// A scrubber that has not answered for so long never will.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a segment that are to be zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrubJob {
    pub(super) segment: Id,
    /// Of the segment.
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
    /// The process of the scrubber that is there, or of one that has to be gone before the next begins.
    process: Option<Arc<OwnedFd>>,
    /// What it has not been given yet.
    waiting: VecDeque<QueuedJob>,
    /// What it has, under the words that it answers with.
    in_flight: BTreeMap<[u64; 2], QueuedJob>,
    backoff: Backoff,
    /// When it last answered, or was given something while it had nothing.
    last_reply: Instant,
}

impl ScrubQueue {
    /// None yet. `last` is the process of the scrubber of a broker that is gone.
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

    /// Starts one, unless one is there, the last is not gone yet, or the backoff behind the last failure lasts. Whether it did.
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
                // It is dead already, and that is heard of.
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
                tracing::error!(target: "freehold", %error, "no scrubber could be started: it is tried again");
                self.backoff.start(now);
                false
            }
        }
    }

    pub(super) fn push(&mut self, what: ScrubTarget, job: ScrubJob) {
        self.waiting.push_back(QueuedJob { target: what, job, attempts: 0 });
    }

    /// Gives the scrubber what it has not, as far as it takes it. What has no descriptor any more is gone.
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
            let mut slot = Slot::default();
            slot[..2].copy_from_slice(&words(task.target));
            slot[2..5].copy_from_slice(&[whole_bytes, offset, bytes]);
            // One that does not take it now does so later, and of one that is dead is heard.
            if seqpacket::send(socket, &slot, &[], &[descriptor.as_fd()]).is_err() {
                self.waiting.push_front(task);
                return;
            }
            task.attempts += 1;
            self.in_flight.insert(words(task.target), task);
        }
    }

    /// Whether it has something to give that was not taken.
    pub(super) fn has_backlog(&self) -> bool {
        self.socket.is_some() && self.in_flight.len() < IN_FLIGHT_MAX && !self.waiting.is_empty()
    }

    /// What it has cleaned, or could not.
    pub(super) fn receive(&mut self, now: Instant) -> Result<Option<(ScrubTarget, bool)>, ReceiveError> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let received = match seqpacket::receive(socket, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(ReceiveError::WouldBlock) => return Ok(None),
            Err(other) => return Err(other),
        };
        self.last_reply = now;
        self.backoff.reset();
        let task = self.in_flight.remove(&[received.slot[0], received.slot[1]]);
        Ok(task.map(|task| (task.target, received.slot[2] == 1)))
    }

    /// It has hung up. Those that none can clean are returned; the others are given to the next.
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

    /// Ends one that was given something and has been silent for too long. That is heard of.
    pub(super) fn kill_unresponsive(&self, now: Instant) {
        if self.socket.is_some() && !self.in_flight.is_empty() && now > self.last_reply + REPLY_TIMEOUT {
            self.kill();
        }
    }

    /// How long until something is to be looked at, whatever comes.
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
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)), Ok(1))
}

/// How the scrubber is told of it, and tells of it.
fn words(what: ScrubTarget) -> [u64; 2] {
    match what {
        ScrubTarget::Segment(id) => [1, id.0],
        ScrubTarget::Block(id) => [2, id.0],
    }
}
