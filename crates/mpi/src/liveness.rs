//! Who has died: the processes of other ranks on this machine, which the kernel tells of. What MPI libraries do of themselves
//! is to end all ranks, or to wait for ever.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How often the kernel is asked.
const PERIOD: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Liveness {
    ranks: Vec<PeerProcess>,
    /// When the kernel was asked last.
    last_poll: Mutex<Instant>,
    any_died: AtomicBool,
}

#[derive(Debug)]
struct PeerProcess {
    /// None: this process, or one that the kernel does not let be watched from here.
    process: Option<OwnedFd>,
    has_died: AtomicBool,
}

impl Liveness {
    /// Watches the processes with these ids, by rank; none for ranks of other machines, and for this one.
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

    /// Asks the kernel, if that is some time ago. Whether any rank is known to have died.
    pub(crate) fn poll(&self) -> bool {
        if let Ok(mut asked) = self.last_poll.try_lock()
            && asked.elapsed() >= PERIOD
        {
            *asked = Instant::now();
            self.check_processes();
        }
        self.any_died()
    }

    /// Whether any rank is known to have died.
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

    /// Some rank that has died.
    pub(crate) fn first_dead(&self) -> Option<i32> {
        (0..self.ranks.len() as i32).find(|&rank| self.has_died(rank))
    }

    /// Some rank, where all but one have died.
    pub(crate) fn all_others_dead(&self, but: i32) -> Option<i32> {
        let mut others = (0..self.ranks.len() as i32).filter(|&rank| rank != but);
        if others.all(|rank| self.has_died(rank)) { self.first_dead() } else { None }
    }
}
