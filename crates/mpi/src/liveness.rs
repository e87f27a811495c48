//! Detects ranks of this machine that have died, through process descriptors. On their own, MPI libraries either end
//! all ranks or wait forever.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How often the kernel is polled.
const PERIOD: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Liveness {
    ranks: Vec<PeerProcess>,
    /// When the kernel was last polled.
    last_poll: Mutex<Instant>,
    any_died: AtomicBool,
}

#[derive(Debug)]
struct PeerProcess {
    /// `None` for this process, for ranks of other machines, and for processes that cannot be watched.
    process: Option<OwnedFd>,
    has_died: AtomicBool,
}

impl Liveness {
    /// Watches the processes with these ids, by rank. `None` for this rank and for ranks of other machines.
    pub(crate) fn new(processes: impl Iterator<Item = Option<u32>>) -> Self {
        let watched = |id: u32| {
            let id = Pid::from_raw(i32::try_from(id).ok()?)?;
            pidfd_open(id, PidfdFlags::empty()).ok()
        };
        let ranks = processes
            .map(|id| PeerProcess { process: id.and_then(watched), has_died: AtomicBool::new(false) })
            .collect();
        Self { ranks, last_poll: Mutex::new(Instant::now()), any_died: AtomicBool::new(false) }
    }

    /// Polls the kernel if the last poll is long enough ago. Returns whether any rank is known to have died.
    pub(crate) fn poll(&self) -> bool {
        if let Ok(mut asked) = self.last_poll.try_lock()
            && asked.elapsed() >= PERIOD
        {
            *asked = Instant::now();
            self.check_processes();
        }
        self.any_died()
    }

    /// Returns whether any rank is known to have died.
    #[inline]
    pub(crate) fn any_died(&self) -> bool {
        self.any_died.load(Ordering::Acquire)
    }

    fn check_processes(&self) {
        for watched in &self.ranks {
            let Some(process) = &watched.process else { continue };
            let mut polled = [PollFd::new(process, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if matches!(poll(&mut polled, Some(&now)), Ok(1..)) {
                watched.has_died.store(true, Ordering::Release);
                self.any_died.store(true, Ordering::Release);
            }
        }
    }

    pub(crate) fn has_died(&self, rank: i32) -> bool {
        self.any_died() && self.ranks[rank as usize].has_died.load(Ordering::Acquire)
    }

    /// Returns a rank that has died.
    pub(crate) fn first_dead(&self) -> Option<i32> {
        (0..self.ranks.len() as i32).find(|&rank| self.has_died(rank))
    }

    /// Returns a dead rank if all ranks except `but` have died.
    pub(crate) fn all_others_dead(&self, but: i32) -> Option<i32> {
        let mut others = (0..self.ranks.len() as i32).filter(|&rank| rank != but);
        if others.all(|rank| self.has_died(rank)) { self.first_dead() } else { None }
    }
}
