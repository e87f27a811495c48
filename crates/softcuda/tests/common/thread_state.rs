//! Whether a thread stands: it sleeps, or has spent more time on a processor than any call needs that waits for nothing. How
//! busy the machine is makes no difference to either.

use std::fs;
use std::thread;

/// So often in a row a thread is seen in one and the same sleep before it stands: a call that takes a lock sleeps too.
const LOOKS: u32 = 20;

/// A call that has run for so long spins.
const SPINS_NS: u64 = 100_000_000;

/// A thread of this process that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedThread {
    thread: i32,
    /// What it had spent on a processor when it was first looked at.
    begun_ns: u64,
}

impl WatchedThread {
    /// The thread that asks.
    pub(crate) fn this() -> Self {
        let caller = Self { thread: rustix::thread::gettid().as_raw_nonzero().get(), begun_ns: 0 };
        let (spent_ns, _) = caller.spent().expect("a thread that runs is listed");
        Self { begun_ns: spent_ns, ..caller }
    }

    /// Looks at the thread until it stands or has ended, or until `is_over`.
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

    /// How long it has run, in nanoseconds, and how often it was given a processor.
    fn spent(self) -> Option<(u64, u64)> {
        let text = self.read("schedstat")?;
        let mut numbers = text.split_whitespace().map(|number| number.parse().expect("all of them are numbers"));
        Some((numbers.next()?, numbers.nth(1)?))
    }

    fn sleeps(self) -> Option<bool> {
        let text = self.read("stat")?;
        // The name before it may hold anything.
        let (_, rest) = text.rsplit_once(") ")?;
        Some(rest.starts_with('S'))
    }
}
