//! Detects that a thread blocks: it sleeps, or has used more CPU time than any non-blocking call needs. Neither depends
//! on the load of the machine.

use std::fs;
use std::thread;

/// Number of consecutive looks that must find the thread in the same sleep: a call that takes a lock sleeps too.
const LOOKS: u32 = 20;

/// CPU time after which a call counts as spinning.
const SPINS_NS: u64 = 100_000_000;

/// A thread of this process that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedThread {
    thread: i32,
    /// The CPU time that it had used at the first look.
    begun_ns: u64,
}

impl WatchedThread {
    /// Returns the calling thread.
    pub(crate) fn this() -> Self {
        let caller = Self { thread: rustix::thread::gettid().as_raw_nonzero().get(), begun_ns: 0 };
        let (spent_ns, _) = caller.spent().expect("a thread that runs is listed");
        Self { begun_ns: spent_ns, ..caller }
    }

    /// Waits until the thread blocks or has ended, or until `is_over`.
    pub(crate) fn wait(self, is_over: impl Fn() -> bool) {
        let (mut looks, mut last) = (0, (0, 0));
        while looks < LOOKS && !is_over() {
            let (Some(spent), Some(sleeps)) = (self.spent(), self.sleeps()) else { return };
            if spent.0 > self.begun_ns + SPINS_NS {
                return;
            }
            looks = if sleeps && spent == last { looks + 1 } else { 0 };
            last = spent;
            thread::yield_now();
        }
    }

    fn read(self, file: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/self/task/{}/{file}", self.thread)).ok()
    }

    /// Returns its CPU time in nanoseconds, and how often it was scheduled.
    fn spent(self) -> Option<(u64, u64)> {
        let text = self.read("schedstat")?;
        let mut numbers = text.split_whitespace().map(|number| number.parse().expect("all of them are numbers"));
        Some((numbers.next()?, numbers.nth(1)?))
    }

    fn sleeps(self) -> Option<bool> {
        let text = self.read("stat")?;
        // The name before it may contain any character.
        let (_, rest) = text.rsplit_once(") ")?;
        Some(rest.starts_with('S'))
    }
}
