//! The progress of all calls, and the thread that kills this process when a kernel runs too long: the launching thread
//! may be blocked by that kernel.
//!
//! Streams write each number twice: into the worker's semaphores, which tenants share and wait for, and into private
//! ones. Time limits use only the private ones.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{Device, SharedSemaphores, Stream};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::exit::kill_self;
use crate::protocol::call_failure::{CallFailure, FailureReport, SuspectCount};
use crate::protocol::call_ring::{CallRing, semaphore_of};
use crate::protocol::ring::Waiter;
use crate::protocol::types::Id;
use crate::protocol::types::SEMAPHORES;
use crate::protocol::types::STREAMS;

/// The longest time between two checks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Failure messages that are reserved for the exit: one for each stream.
pub(super) const EXIT_REPORTS_RESERVED: u32 = STREAMS;

#[derive(Debug)]
pub(super) struct Watchdog {
    /// The worker's semaphores. Tenants can write them, so no limit relies on them.
    shared: Arc<SharedSemaphores>,
    /// Private copies with the same indexes, followed by one for each stream that counts its waits.
    own: SharedSemaphores,
    /// Where this process records its heartbeat.
    waiter: Arc<Waiter>,
    limit: Duration,
    tenants: Mutex<Vec<Arc<TenantProgress>>>,
}

/// The calls of one tenant.
#[derive(Debug)]
pub(super) struct TenantProgress {
    tenant: Id,
    calls: Arc<CallRing>,
    streams: [StreamProgress; STREAMS as usize],
    /// Held while a failure is reported to the tenant.
    reporting: Mutex<()>,
}

/// The calls of one stream, by number.
#[derive(Debug)]
pub(super) struct StreamProgress {
    word: usize,
    /// The last call that was submitted.
    last_call: AtomicU64,
    /// Waits of the stream, complete or not.
    wait_count: AtomicU64,
    inner: Mutex<StreamQueue>,
}

#[derive(Debug, Default)]
struct StreamQueue {
    /// Calls after which the stream writes its semaphore, and that are not complete.
    signals: VecDeque<u64>,
    /// Calls that wait for semaphores before they begin.
    waits: VecDeque<SemaphoreWait>,
    /// Launched kernels that have not finished: number and name.
    kernels: VecDeque<(u64, Arc<str>)>,
    /// The oldest unfinished call, and since when it is the oldest.
    oldest: (u64, Option<Instant>),
}

/// A call that begins when a private semaphore reaches a value.
#[derive(Debug)]
struct SemaphoreWait {
    number: u64,
    word: usize,
    value: u64,
    /// The semaphore belongs to another stream, which writes it a little after the call begins.
    is_other_stream: bool,
}

/// The private semaphore that counts the waits of a stream.
fn wait_index(word: usize) -> usize {
    SEMAPHORES as usize + word
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchdog {
    pub(super) fn start(
        device: &Device,
        shared: Arc<SharedSemaphores>,
        waiter: Arc<Waiter>,
        limit: Duration,
    ) -> io::Result<Arc<Self>> {
        let watchdog = Arc::new(Self::new(device, shared, waiter, limit)?);
        // The first heartbeat: the device is open, and from now on the broker expects one in time.
        watchdog.waiter.record_heartbeat();
        let watched = watchdog.clone();
        let period = (limit / 4).clamp(Duration::from_millis(1), CHECK_INTERVAL_MAX);
        let run = move || {
            loop {
                thread::park_timeout(period);
                watched.check();
            }
        };
        thread::Builder::new().name("freehold-watch".into()).spawn(run)?;
        Ok(watchdog)
    }

    fn new(device: &Device, shared: Arc<SharedSemaphores>, waiter: Arc<Waiter>, limit: Duration) -> io::Result<Self> {
        // The memfd is closed at once, so that no descriptor of it is left.
        let file = memfd_create("freehold-progress", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let words = 2 * SEMAPHORES as usize;
        ftruncate(&file, 8 * words as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let own = device.shared_semaphores(file.as_fd(), words).map_err(io::Error::other)?;
        Ok(Self { shared, own, waiter, limit, tenants: Mutex::default() })
    }

    /// Makes a stream report that all calls up to a number have finished: first to the tenant.
    pub(super) fn signal(&self, stream: &Stream, word: usize, number: u64) -> freehold::Result<()> {
        stream.write_value(&self.shared, word, number)?;
        stream.write_value(&self.own, word, number)
    }

    /// The progress of a stream, by its private semaphore.
    pub(super) fn done(&self, word: usize) -> u64 {
        self.own.read(word)
    }

    pub(super) fn add(&self, tenant: Id, session_index: u32, calls: Arc<CallRing>) {
        let progress = |stream: usize| StreamProgress::new(semaphore_of(session_index, stream as u32) as usize);
        let entry =
            TenantProgress { tenant, calls, streams: std::array::from_fn(progress), reporting: Mutex::default() };
        lock(&self.tenants).push(Arc::new(entry));
    }

    pub(super) fn progress_of(&self, tenant: Id) -> Arc<TenantProgress> {
        lock(&self.tenants).iter().find(|entry| entry.tenant == tenant).expect("every session has an entry").clone()
    }

    pub(super) fn remove(&self, tenant: Id) {
        lock(&self.tenants).retain(|entry| entry.tenant != tenant);
    }

    /// Records a heartbeat, and kills this process if a kernel has run too long.
    fn check(&self) {
        self.waiter.record_heartbeat();
        let entries = lock(&self.tenants).clone();
        for entry in entries {
            let now = Instant::now();
            if entry.streams.iter().any(|progress| progress.has_hung(self, now)) {
                let limit_ms = self.limit.as_millis() as u64;
                self.exit(CallFailure::Hung { limit_ms, among: SuspectCount::default() }, "");
            }
        }
    }

    /// Kills this process. Every tenant is told why its running calls failed, and that the later ones were not
    /// executed. `cause` says what the kernel did, for the tenant that called it if that is certain.
    pub(super) fn exit(&self, failure: CallFailure, cause: &str) -> ! {
        let entries = lock(&self.tenants).clone();
        self.report_exit(&entries, failure, cause);
        kill_self()
    }

    /// Reports to every tenant which of its kernels may have caused the failure: only the culprit, if it is known.
    fn report_exit(&self, entries: &[Arc<TenantProgress>], failure: CallFailure, cause: &str) {
        let now = Instant::now();
        let is_hang = matches!(failure, CallFailure::Hung { .. });
        // A hang is known to be in one stream; a fault may come from any running kernel.
        let may_be = |progress: &StreamProgress| !is_hang || progress.has_hung(self, now);
        let suspects: Vec<Vec<Suspects>> = entries
            .iter()
            .map(|entry| {
                let stream_states = (0..).zip(&entry.streams).filter(|(_, progress)| may_be(progress));
                stream_states.filter_map(|(stream, progress)| progress.suspects(self, stream)).collect()
            })
            .collect();
        let count = |of: &[Suspects]| of.iter().map(|progress| progress.kernels.len() as u32).sum::<u32>();
        let all: u32 = suspects.iter().map(|of| count(of)).sum();
        for (entry, own) in entries.iter().zip(&suspects) {
            let among = SuspectCount { own: count(own), others: all - count(own) };
            let failure = match failure {
                CallFailure::Faulted { code, .. } => CallFailure::Faulted { code, among },
                CallFailure::Hung { limit_ms, .. } => CallFailure::Hung { limit_ms, among },
                other => other,
            };
            let names: Vec<&str> = own.iter().flat_map(|progress| &progress.kernels).map(|name| &**name).collect();
            let text = if among.is_certain() { cause.to_owned() } else { names.join(", ") };
            for &Suspects { stream, number, last, .. } in own {
                entry.report(&FailureReport { stream, number, last, failure }, &text);
            }
            if own.is_empty() {
                entry.report(
                    &FailureReport { stream: 0, number: 0, last: 0, failure: CallFailure::SharedWorkerFaulted },
                    "",
                );
            }
            entry.calls.notify_progress();
        }
    }
}

/// Kernels of a stream of which one may have failed, and the numbers of their calls.
#[derive(Debug, PartialEq, Eq)]
struct Suspects {
    stream: u32,
    number: u64,
    last: u64,
    kernels: Vec<Arc<str>>,
}

impl TenantProgress {
    /// Reports a failure to the tenant. There must be room.
    pub(super) fn report(&self, report: &FailureReport, text: &str) {
        let _alone = lock(&self.reporting);
        if self.calls.room() > 0 {
            self.calls.push_failure(&report.to_words(), text);
        }
    }

    pub(super) fn stream(&self, stream: u32) -> &StreamProgress {
        &self.streams[stream as usize]
    }
}

impl StreamProgress {
    fn new(word: usize) -> Self {
        Self { word, last_call: AtomicU64::new(0), wait_count: AtomicU64::new(0), inner: Mutex::default() }
    }

    pub(super) fn word(&self) -> usize {
        self.word
    }

    pub(super) fn done(&self, watchdog: &Watchdog) -> u64 {
        watchdog.done(self.word)
    }

    /// The progress that tenants see. They can write it, so it may only be used to their own benefit.
    pub(super) fn reported(&self, watchdog: &Watchdog) -> u64 {
        watchdog.shared.read(self.word)
    }

    pub(super) fn last_call(&self) -> u64 {
        self.last_call.load(Ordering::Relaxed)
    }

    /// Records a submitted call, with the name of its kernel if one was launched.
    pub(super) fn begin(&self, number: u64, kernel: Option<Arc<str>>) {
        if let Some(kernel) = kernel {
            lock(&self.inner).kernels.push_back((number, kernel));
        }
        self.last_call.store(number, Ordering::Release);
    }

    /// Records that the stream writes its semaphore after a call.
    pub(super) fn record_signal(&self, number: u64) {
        lock(&self.inner).signals.push_back(number);
    }

    /// Records that a call waits for semaphores of others, which may have any value. So the stream itself counts when
    /// it continues.
    pub(super) fn record_fence_wait(&self, watchdog: &Watchdog, stream: &Stream, number: u64) -> freehold::Result<()> {
        let (word, value) = (wait_index(self.word), self.wait_count.load(Ordering::Relaxed) + 1);
        stream.write_value(&watchdog.own, word, value)?;
        self.wait_count.store(value, Ordering::Relaxed);
        lock(&self.inner).waits.push_back(SemaphoreWait { number, word, value, is_other_stream: false });
        Ok(())
    }

    /// Records that a call waits for a call of another stream.
    pub(super) fn record_stream_wait(&self, number: u64, word: usize, value: u64) {
        lock(&self.inner).waits.push_back(SemaphoreWait { number, word, value, is_other_stream: true });
    }

    /// The kernels that may be running: those up to the first incomplete signal, unless they wait for others.
    fn suspects(&self, watchdog: &Watchdog, stream: u32) -> Option<Suspects> {
        let (done, put) = (self.done(watchdog), self.last_call.load(Ordering::Acquire));
        let inner = lock(&self.inner);
        let is_shut = |wait: &SemaphoreWait| watchdog.done(wait.word) < wait.value;
        let is_waiting =
            inner.waits.iter().any(|wait| wait.number == done + 1 && !wait.is_other_stream && is_shut(wait));
        let end = inner.signals.iter().copied().find(|&signal| signal > done).unwrap_or(put);
        let running = inner.kernels.iter().filter(|(number, _)| (done + 1..=end).contains(number));
        let (numbers, kernels): (Vec<u64>, Vec<Arc<str>>) = running.cloned().unzip();
        let (&number, &last) = (numbers.first()?, numbers.last()?);
        (!is_waiting).then_some(Suspects { stream, number, last, kernels })
    }

    /// Whether the oldest unfinished call has run for longer than the limit.
    fn has_hung(&self, watchdog: &Watchdog, now: Instant) -> bool {
        let (done, put) = (self.done(watchdog), self.last_call.load(Ordering::Acquire));
        let mut inner = lock(&self.inner);
        let StreamQueue { signals, waits, kernels: launched, oldest } = &mut *inner;
        while signals.front().is_some_and(|&signal| signal <= done) {
            signals.pop_front();
        }
        while waits.front().is_some_and(|wait| wait.number <= done) {
            waits.pop_front();
        }
        while launched.front().is_some_and(|(number, _)| *number <= done) {
            launched.pop_front();
        }
        // A signal precedes every call that waits, so a waiting call is the oldest one.
        let is_shut = |wait: &SemaphoreWait| watchdog.done(wait.word) < wait.value;
        let is_waiting = waits.iter().take_while(|wait| wait.number == done + 1).any(is_shut);
        if done >= put || is_waiting || oldest.0 != done + 1 {
            *oldest = (done + 1, (done < put && !is_waiting).then_some(now));
            return false;
        }
        let since = *oldest.1.get_or_insert(now);
        // Between two signals progress is not visible, so each call in between gets the full limit.
        let calls = signals.front().map_or(1, |&signal| signal - done);
        now.duration_since(since) > watchdog.limit.saturating_mul(u32::try_from(calls).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::shared_memory::SharedMemory;
    use crate::protocol::ring::{BrokerRing, RING_BYTES, TenantRing};

    const LIMIT: Duration = Duration::from_secs(4);
    const MOMENT: Duration = Duration::from_millis(1);

    fn device_and_semaphores() -> (Device, Arc<SharedSemaphores>) {
        let device = freehold::open::device(Some("soft")).unwrap();
        let semaphores = SharedMemory::create("semaphores", SEMAPHORES as usize * 8).unwrap();
        let semaphores = device.shared_semaphores(semaphores.file(), SEMAPHORES as usize).unwrap();
        (device, Arc::new(semaphores))
    }

    /// A progress with this many calls, and its start. Tests write its words instead of streams; its word is 0.
    fn progress(calls: u64) -> (Watchdog, StreamProgress, Instant) {
        let (device, semaphores) = device_and_semaphores();
        let ring = TenantRing::new(SharedMemory::create("ring", RING_BYTES).unwrap());
        let watchdog = Watchdog::new(&device, semaphores, Arc::new(ring.waiter().unwrap()), LIMIT).unwrap();
        let progress = StreamProgress::new(0);
        (1..=calls).for_each(|number| progress.begin(number, Some("kernel".into())));
        (watchdog, progress, Instant::now())
    }

    #[test]
    fn a_worker_has_a_heartbeat_as_soon_as_it_is_watched() {
        let (device, semaphores) = device_and_semaphores();
        let memory = SharedMemory::create("ring", RING_BYTES).unwrap();
        let ring = BrokerRing::new(SharedMemory::open(memory.shared_fd(), RING_BYTES).unwrap());
        let waiter = Arc::new(TenantRing::new(memory).waiter().unwrap());
        assert_eq!(ring.heartbeats(), 0);
        Watchdog::start(&device, semaphores, waiter, LIMIT).unwrap();
        assert!(ring.heartbeats() > 0);
    }

    #[test]
    fn a_kernel_has_hung_when_it_has_run_for_longer_than_it_may() {
        let (watchdog, progress, start) = progress(1);
        progress.record_signal(1);
        assert!(!progress.has_hung(&watchdog, start));
        assert!(!progress.has_hung(&watchdog, start + LIMIT));
        assert!(progress.has_hung(&watchdog, start + LIMIT + MOMENT));
    }

    #[test]
    fn a_kernel_runs_from_when_the_one_before_it_has_ended() {
        let (watchdog, progress, start) = progress(2);
        [1, 2].iter().for_each(|&number| progress.record_signal(number));
        assert!(!progress.has_hung(&watchdog, start));
        watchdog.own.write(0, 1);
        assert!(!progress.has_hung(&watchdog, start + LIMIT));
        assert!(!progress.has_hung(&watchdog, start + 2 * LIMIT));
        assert!(progress.has_hung(&watchdog, start + 2 * LIMIT + MOMENT));
    }

    #[test]
    fn a_call_that_waits_for_a_word_does_not_run() {
        let (watchdog, progress, start) = progress(1);
        progress.record_signal(1);
        // The stream waits for a word of another, and has not counted that it continued.
        progress.inner.lock().unwrap().waits.push_back(SemaphoreWait {
            number: 1,
            word: wait_index(0),
            value: 1,
            is_other_stream: false,
        });
        assert!(!progress.has_hung(&watchdog, start));
        assert!(!progress.has_hung(&watchdog, start + 100 * LIMIT));
        watchdog.own.write(wait_index(0), 1);
        let open = start + 200 * LIMIT;
        assert!(!progress.has_hung(&watchdog, open));
        assert!(!progress.has_hung(&watchdog, open + LIMIT));
        assert!(progress.has_hung(&watchdog, open + LIMIT + MOMENT));
    }

    #[test]
    fn tenants_cannot_extend_a_call_by_writing_semaphores() {
        let (watchdog, progress, start) = progress(2);
        progress.record_signal(2);
        for (look, forged) in [0, 1, 2, 3, 1 << 40, u64::MAX].into_iter().enumerate() {
            watchdog.shared.write(0, forged);
            assert_eq!((progress.done(&watchdog), progress.reported(&watchdog)), (0, forged));
            assert!(!progress.has_hung(&watchdog, start + MOMENT * look as u32));
        }
        assert!(progress.has_hung(&watchdog, start + 2 * LIMIT + MOMENT));
        assert_eq!(progress.suspects(&watchdog, 0).map(|suspects| (suspects.number, suspects.last)), Some((1, 2)));
    }

    #[test]
    fn each_call_up_to_a_fence_may_run_for_the_limit_of_one() {
        let (watchdog, progress, start) = progress(3);
        progress.record_signal(3);
        assert!(!progress.has_hung(&watchdog, start));
        assert!(!progress.has_hung(&watchdog, start + 3 * LIMIT));
        assert!(progress.has_hung(&watchdog, start + 3 * LIMIT + MOMENT));
    }

    #[test]
    fn a_stream_without_calls_has_not_hung() {
        let (watchdog, progress, start) = progress(1);
        progress.record_signal(1);
        watchdog.own.write(0, 1);
        assert!(!progress.has_hung(&watchdog, start));
        assert!(!progress.has_hung(&watchdog, start + 100 * LIMIT));
    }
}
