//! The cleaner, as the broker knows it: what it was given, and what to do when it dies. One cleaner writes at a time: the next
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

use super::pause::Pause;
use crate::part::{Config, Part};
use crate::post::{Held, Kept};
use crate::ring::Slot;
use crate::socket::{self, NotReceived};
use crate::state::Dirty;
use crate::wire::Id;

/// What so many cleaners have died at is not given to another.
const TRIES_MAX: u32 = 3;

/// How much it is given before it has answered.
const GIVEN_MAX: usize = 16;

/// A cleaner that has not answered for so long never will.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Bytes of a segment that are to be zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stain {
    pub(super) segment: Id,
    /// Of the segment.
    pub(super) whole_bytes: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    what: Dirty,
    stain: Stain,
    tries: u32,
}

#[derive(Debug)]
pub(super) struct Helper {
    socket: Option<OwnedFd>,
    /// The process of the cleaner that is there, or of one that has to be gone before the next begins.
    process: Option<Arc<OwnedFd>>,
    /// What it has not been given yet.
    waiting: VecDeque<Task>,
    /// What it has, under the words that it answers with.
    given: BTreeMap<[u64; 2], Task>,
    pause: Pause,
    /// When it last answered, or was given something while it had nothing.
    heard: Instant,
}

impl Helper {
    /// None yet. `last` is the process of the cleaner of a broker that is gone.
    pub(super) fn new(last: Option<Arc<OwnedFd>>) -> Self {
        let helper = Self {
            socket: None,
            process: last,
            waiting: VecDeque::new(),
            given: BTreeMap::new(),
            pause: Pause::NONE,
            heard: Instant::now(),
        };
        helper.kill();
        helper
    }

    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }

    pub(super) fn process(&self) -> Option<&Arc<OwnedFd>> {
        self.process.as_ref()
    }

    /// Starts one, unless one is there, the last is not gone yet, or the pause behind the last failure lasts. Whether it did.
    pub(super) fn start(&mut self, config: &Config, now: Instant) -> bool {
        if self.socket.is_some() || !self.pause.is_over(now) {
            return false;
        }
        if self.process.as_ref().is_some_and(|process| !has_ended(process)) {
            return false;
        }
        self.process = None;
        let started = config.start(Part::Cleaner).and_then(|(child, socket)| {
            match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
                Ok(process) => Ok((socket, Some(Arc::new(process)))),
                // It is dead already, and that is heard of.
                Err(Errno::SRCH) => Ok((socket, None)),
                Err(error) => Err(error.into()),
            }
        });
        match started {
            Ok((socket, process)) => {
                (self.socket, self.process, self.heard) = (Some(socket), process, now);
                true
            }
            Err(error) => {
                tracing::error!(target: "freehold", %error, "no cleaner could be started: it is tried again");
                self.pause.begin(now);
                false
            }
        }
    }

    pub(super) fn clean(&mut self, what: Dirty, stain: Stain) {
        self.waiting.push_back(Task { what, stain, tries: 0 });
    }

    /// Gives the cleaner what it has not, as far as it takes it. What has no descriptor any more is gone.
    pub(super) fn give(&mut self, held: &Held, now: Instant) {
        let Some(socket) = &self.socket else { return };
        if self.given.is_empty() {
            self.heard = now;
        }
        while self.given.len() < GIVEN_MAX
            && let Some(mut task) = self.waiting.pop_front()
        {
            let Some(descriptor) = held.get(&Kept::Segment(task.stain.segment)) else { continue };
            let Stain { whole_bytes, offset, bytes, .. } = task.stain;
            let mut slot = Slot::default();
            slot[..2].copy_from_slice(&words(task.what));
            slot[2..5].copy_from_slice(&[whole_bytes, offset, bytes]);
            // One that does not take it now does so later, and of one that is dead is heard.
            if socket::send(socket, &slot, &[], &[descriptor.as_fd()]).is_err() {
                self.waiting.push_front(task);
                return;
            }
            task.tries += 1;
            self.given.insert(words(task.what), task);
        }
    }

    /// Whether it has something to give that was not taken.
    pub(super) fn is_behind(&self) -> bool {
        self.socket.is_some() && self.given.len() < GIVEN_MAX && !self.waiting.is_empty()
    }

    /// What it has cleaned, or could not.
    pub(super) fn hear(&mut self, now: Instant) -> Result<Option<(Dirty, bool)>, NotReceived> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let received = match socket::receive(socket, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(NotReceived::Nothing) => return Ok(None),
            Err(other) => return Err(other),
        };
        self.heard = now;
        self.pause.forget();
        let task = self.given.remove(&[received.slot[0], received.slot[1]]);
        Ok(task.map(|task| (task.what, received.slot[2] == 1)))
    }

    /// It has hung up. Those that none can clean are returned; the others are given to the next.
    pub(super) fn lose(&mut self, now: Instant) -> Vec<Dirty> {
        self.kill();
        self.socket = None;
        self.pause.begin(now);
        let mut lost = Vec::new();
        for (_, task) in std::mem::take(&mut self.given) {
            if task.tries >= TRIES_MAX {
                lost.push(task.what);
            } else {
                self.waiting.push_front(task);
            }
        }
        lost
    }

    /// Ends one that was given something and has been silent for too long. That is heard of.
    pub(super) fn end_silent(&self, now: Instant) {
        if self.socket.is_some() && !self.given.is_empty() && now > self.heard + SILENCE_MAX {
            self.kill();
        }
    }

    /// How long until something is to be looked at, whatever comes.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        match self.socket {
            Some(_) if self.waiting.is_empty() && self.given.is_empty() => None,
            Some(_) => Some((self.heard + SILENCE_MAX).saturating_duration_since(now)),
            None => Some(self.pause.left(now).unwrap_or(Duration::from_millis(1))),
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

/// How the cleaner is told of it, and tells of it.
fn words(what: Dirty) -> [u64; 2] {
    match what {
        Dirty::Segment(id) => [1, id.0],
        Dirty::Block(id) => [2, id.0],
    }
}
