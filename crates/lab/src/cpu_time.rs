//! The time that the threads of this process have run or slept, which on a busy machine is less than the elapsed time.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Measures how long each other thread of this process has slept or run since the first look. Time spent waiting for a
/// processor does not count, so a call that is slow because the machine is busy is not taken for one that waits.
pub(crate) struct CpuTime {
    own: u64,
    threads: HashMap<u64, ThreadTime>,
    /// The total of all looks.
    blind: Duration,
    looks: u32,
    /// How long the caller's thread had run before the first look.
    ran_before: Duration,
}

/// The looks after which the caller's own time counts: a slow driver has been asked as often.
const LOOKS_MIN: u32 = 50;

/// The time that a thread has had.
struct ThreadTime {
    on_cpu: Duration,
    total: Duration,
}

impl CpuTime {
    pub(crate) fn new() -> Self {
        let own = u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let ran_before = State::of(own).map_or(Duration::ZERO, |state| state.ran);
        Self { own, threads: HashMap::new(), blind: Duration::ZERO, looks: 0, ran_before }
    }

    /// Looks again, and returns whether work has had this much time: from every other thread, as for [`advance`](Self::advance), or
    /// from the caller's, which spends it inside a driver that does all work in its calls.
    pub(crate) fn has_reached(&mut self, limit: Duration, slice: Duration) -> bool {
        self.looks += 1;
        let own = || State::of(self.own).map_or(Duration::ZERO, |state| state.ran.saturating_sub(self.ran_before));
        (self.looks > LOOKS_MIN && own() >= limit) || self.advance(slice) >= limit
    }

    /// Looks at every thread but the caller's, and returns the smallest time that any has had. A sleeping thread is
    /// credited with one `slice` per look, however long ago the last look was, because the looking thread may itself
    /// have waited for a processor.
    ///
    /// If the system does not report threads, each look counts as one slice.
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

    /// Returns the state of the other threads. One may end during the call.
    fn states(&self) -> Vec<(u64, State)> {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        threads.filter(|&thread| thread != self.own).filter_map(|thread| Some((thread, State::of(thread)?))).collect()
    }
}

/// What the system reports about a thread.
struct State {
    /// It runs or waits for a processor.
    is_runnable: bool,
    /// How long it has run.
    ran: Duration,
}

impl State {
    fn of(thread: u64) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).ok();
        // The thread's name is in parentheses, and may contain any character.
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
        let many = 4 * thread::available_parallelism().expect("the number of processors is known").get();
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
    fn work_that_the_caller_does_itself_has_the_callers_time_after_some_looks() {
        const LIMIT: Duration = Duration::from_millis(1);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let idle = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    thread::park();
                }
            });
            let mut clock = CpuTime::new();
            while State::of(clock.own).expect("the system reports threads").ran < clock.ran_before + LIMIT {
                std::hint::spin_loop();
            }
            let reached = (0..=LOOKS_MIN).map(|_| clock.has_reached(LIMIT, Duration::ZERO)).collect::<Vec<_>>();
            stop.store(true, Ordering::Relaxed);
            idle.thread().unpark();
            assert_eq!(reached.iter().position(|&reached| reached), Some(LOOKS_MIN as usize));
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
