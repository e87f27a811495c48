//! Time as the threads of this process have had it, which on a busy machine is less than has passed.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// How long each other thread of this process has slept or run since the first look. Time in which it wanted a
/// processor and had none does not count, so that a call that is slow because the machine is busy is not taken for one
/// that waits.
pub(crate) struct CpuTime {
    own: u64,
    threads: HashMap<u64, ThreadTime>,
    /// What all looks count for.
    blind: Duration,
}

/// What a thread has had of the time.
struct ThreadTime {
    on_cpu: Duration,
    total: Duration,
}

impl CpuTime {
    pub(crate) fn new() -> Self {
        Self {
            own: u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()),
            threads: HashMap::new(),
            blind: Duration::ZERO,
        }
    }

    /// Looks at every thread but the caller's: what the one has had that had least. One that sleeps now is taken to have
    /// slept for a `slice`, however long ago the last look was, because who looks may have wanted a processor, too.
    ///
    /// Where the system does not tell of threads, each look counts for a slice.
    pub(crate) fn advance(&mut self, slice: Duration) -> Duration {
        self.blind += slice;
        self.threads = self
            .states()
            .into_iter()
            .map(|(thread, state)| {
                let total = self.threads.get(&thread).map_or(Duration::ZERO, |had| {
                    had.total + if state.is_runnable { state.ran.saturating_sub(had.on_cpu) } else { slice }
                });
                (thread, ThreadTime { on_cpu: state.ran, total })
            })
            .collect();
        self.threads.values().map(|had| had.total).min().unwrap_or(self.blind)
    }

    /// The threads but the caller's that can be looked at. One may end while it is looked for.
    fn states(&self) -> Vec<(u64, State)> {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        threads.filter(|&thread| thread != self.own).filter_map(|thread| Some((thread, State::of(thread)?))).collect()
    }
}

/// What the system tells of a thread.
struct State {
    /// It runs or waits for a processor.
    is_runnable: bool,
    /// How long it has run.
    ran: Duration,
}

impl State {
    fn of(thread: u64) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok();
        // The name of the thread stands in parentheses, and may have any character in it.
        let wants = read("stat")?.rsplit_once(") ")?.1.starts_with('R');
        let ran = read("schedstat")?.split(' ').next()?.parse().ok()?;
        Some(Self { is_runnable: wants, ran: Duration::from_nanos(ran) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    const SLICE: Duration = Duration::from_millis(1);

    #[test]
    fn a_thread_that_shares_a_processor_has_less_time_than_has_passed() {
        let stop = AtomicBool::new(false);
        let many = 4 * thread::available_parallelism().expect("processors are counted").get();
        let spin = || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        thread::scope(|scope| {
            for _ in 0..many {
                scope.spawn(spin);
            }
            let start = Instant::now();
            let mut clock = CpuTime::new();
            let mut had = Duration::ZERO;
            while start.elapsed() < Duration::from_millis(400) {
                had = clock.advance(SLICE);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(had < start.elapsed() / 2, "{had:?} of {:?}", start.elapsed());
        });
    }

    #[test]
    fn a_thread_that_sleeps_has_each_slice() {
        let (done, wait) = mpsc::channel::<()>();
        let sleeper = thread::spawn(move || wait.recv());
        let mut clock = CpuTime::new();
        let asleep = |clock: &CpuTime| clock.threads.values().any(|had| had.total >= 10 * SLICE);
        let looks = (0..100_000).take_while(|_| {
            clock.advance(SLICE);
            !asleep(&clock)
        });
        assert!((10..100_000).contains(&looks.count()));
        drop(done);
        sleeper.join().expect("the sleeper does not panic").expect_err("nothing was sent");
    }
}
