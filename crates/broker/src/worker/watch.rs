//! How far the calls of all that are served have come, and the thread that ends this process when a kernel takes too long: the one
//! that launches may be held up by that kernel itself.
//!
//! Streams write each number twice: into the worker's clock, which tenants have too and wait at, and into words that this process
//! shares with nobody. Limits are held against the latter alone.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{Device, SharedSemaphores, Stream};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::end;
use crate::calls::{Calls, STREAMS, word_of};
use crate::ring::Doorstep;
use crate::state::CLOCK_WORDS;
use crate::trouble::{Among, Told, Trouble};
use crate::wire::Id;

/// The longest time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Messages that are kept for the end: one for each stream.
pub(super) const ROOM_FOR_END: u32 = STREAMS;

#[derive(Debug)]
pub(super) struct Watch {
    /// The worker's clock. Tenants have it too: what it says is for them, and is believed of nothing that is limited.
    shared: Arc<SharedSemaphores>,
    /// As many words that nobody else has, with the same numbers; and behind them one for each stream that counts its gates.
    own: SharedSemaphores,
    /// Where this process says that it is alive.
    doorstep: Arc<Doorstep>,
    limit: Duration,
    lines: Mutex<Vec<Arc<Line>>>,
}

/// The calls of one tenant.
#[derive(Debug)]
pub(super) struct Line {
    tenant: Id,
    calls: Arc<Calls>,
    lanes: [Lane; STREAMS as usize],
    /// Held by who tells the tenant something.
    telling: Mutex<()>,
}

/// The calls of one stream, by their numbers.
#[derive(Debug)]
pub(super) struct Lane {
    word: usize,
    /// The last that was put in.
    put: AtomicU64,
    /// How many gates the stream waits for, or has waited for.
    gates: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Those behind which the stream writes the word, and have not passed.
    marks: VecDeque<u64>,
    /// Calls that wait for words of others before they begin.
    gates: VecDeque<Gate>,
    /// Kernels that were launched and have not come to their end: their numbers and names.
    launched: VecDeque<(u64, Arc<str>)>,
    /// The first that has not come to its end, and since when it is that.
    oldest: (u64, Option<Instant>),
}

/// A call that begins when a word of this process's own has come to a value.
#[derive(Debug)]
struct Gate {
    number: u64,
    word: usize,
    value: u64,
    /// The word is another stream's, which is written a little after the call begins.
    is_beside: bool,
}

/// The word that counts the gates of a stream which writes another one.
fn gates_word(word: usize) -> usize {
    CLOCK_WORDS as usize + word
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    pub(super) fn start(
        device: &Device,
        shared: Arc<SharedSemaphores>,
        doorstep: Arc<Doorstep>,
        limit: Duration,
    ) -> io::Result<Arc<Self>> {
        let watch = Arc::new(Self::new(device, shared, doorstep, limit)?);
        let watched = watch.clone();
        let period = (limit / 4).clamp(Duration::from_millis(1), LOOK);
        let run = move || {
            loop {
                thread::park_timeout(period);
                watched.look();
            }
        };
        thread::Builder::new().name("freehold-watch".into()).spawn(run)?;
        Ok(watch)
    }

    fn new(
        device: &Device,
        shared: Arc<SharedSemaphores>,
        doorstep: Arc<Doorstep>,
        limit: Duration,
    ) -> io::Result<Self> {
        // A file that is closed at once: no descriptor is left that somebody could be given.
        let file = memfd_create("freehold-progress", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let words = 2 * CLOCK_WORDS as usize;
        ftruncate(&file, 8 * words as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let own = device.clock(file.as_fd(), words).map_err(io::Error::other)?;
        Ok(Self { shared, own, doorstep, limit, lines: Mutex::default() })
    }

    /// Makes a stream report that all calls up to a number have finished: to the waiting tenant first.
    pub(super) fn write(&self, stream: &Stream, word: usize, number: u64) -> freehold::Result<()> {
        stream.write_word(&self.shared, word, number)?;
        stream.write_word(&self.own, word, number)
    }

    /// How far a stream has come, by its word.
    pub(super) fn done(&self, word: usize) -> u64 {
        self.own.read(word)
    }

    pub(super) fn add(&self, tenant: Id, seat: u32, calls: Arc<Calls>) {
        let lane = |stream: usize| Lane::new(word_of(seat, stream as u32) as usize);
        let line = Line { tenant, calls, lanes: std::array::from_fn(lane), telling: Mutex::default() };
        lock(&self.lines).push(Arc::new(line));
    }

    pub(super) fn line(&self, tenant: Id) -> Arc<Line> {
        lock(&self.lines).iter().find(|line| line.tenant == tenant).expect("who has a desk has a line").clone()
    }

    pub(super) fn remove(&self, tenant: Id) {
        lock(&self.lines).retain(|line| line.tenant != tenant);
    }

    /// Says that this process is alive, and ends it where a kernel has run for too long.
    fn look(&self) {
        self.doorstep.set_beat();
        let lines = lock(&self.lines).clone();
        for line in lines {
            let now = Instant::now();
            if line.lanes.iter().any(|lane| lane.has_hung(self, now)) {
                let limit_ms = self.limit.as_millis() as u64;
                self.end(Trouble::TooLong { limit_ms, among: Among::default() });
            }
        }
    }

    /// Ends this process. Whoever is served hears why, of the calls that had begun, and that what is behind them was not carried
    /// out.
    pub(super) fn end(&self, trouble: Trouble) -> ! {
        let lines = lock(&self.lines).clone();
        self.tell_end(&lines, trouble);
        end()
    }

    /// Tells whoever is served which of its kernels may have gone wrong: the one that did, where it can be known.
    fn tell_end(&self, lines: &[Arc<Line>], trouble: Trouble) {
        let now = Instant::now();
        let is_hang = matches!(trouble, Trouble::TooLong { .. });
        // Where one hangs, it is known in which stream; a fault may be of any that had begun.
        let may_be = |lane: &Lane| !is_hang || lane.has_hung(self, now);
        let suspects: Vec<Vec<Suspects>> = lines
            .iter()
            .map(|line| {
                let lanes = (0..).zip(&line.lanes).filter(|(_, lane)| may_be(lane));
                lanes.filter_map(|(stream, lane)| lane.suspects(self, stream)).collect()
            })
            .collect();
        let count = |of: &[Suspects]| of.iter().map(|lane| lane.kernels.len() as u32).sum::<u32>();
        let all: u32 = suspects.iter().map(|of| count(of)).sum();
        for (line, own) in lines.iter().zip(&suspects) {
            let among = Among { own: count(own), others: all - count(own) };
            let trouble = match trouble {
                Trouble::Faulted { code, .. } => Trouble::Faulted { code, among },
                Trouble::TooLong { limit_ms, .. } => Trouble::TooLong { limit_ms, among },
                other => other,
            };
            let names: Vec<&str> = own.iter().flat_map(|lane| &lane.kernels).map(|name| &**name).collect();
            let text = if among.is_known() { String::new() } else { names.join(", ") };
            for &Suspects { stream, number, last, .. } in own {
                line.tell(&Told { stream, number, last, trouble }, &text);
            }
            if own.is_empty() {
                line.tell(&Told { stream: 0, number: 0, last: 0, trouble: Trouble::Elsewhere }, "");
            }
            line.calls.rouse();
        }
    }
}

/// Kernels of a stream of which one may have gone wrong, and the numbers of their calls.
#[derive(Debug, PartialEq, Eq)]
struct Suspects {
    stream: u32,
    number: u64,
    last: u64,
    kernels: Vec<Arc<str>>,
}

impl Line {
    /// Tells the tenant something. There is room for it.
    pub(super) fn tell(&self, told: &Told, text: &str) {
        let _alone = lock(&self.telling);
        if self.calls.room() > 0 {
            self.calls.tell(&told.words(), text);
        }
    }

    pub(super) fn lane(&self, stream: u32) -> &Lane {
        &self.lanes[stream as usize]
    }
}

impl Lane {
    fn new(word: usize) -> Self {
        Self { word, put: AtomicU64::new(0), gates: AtomicU64::new(0), inner: Mutex::default() }
    }

    pub(super) fn word(&self) -> usize {
        self.word
    }

    pub(super) fn done(&self, watch: &Watch) -> u64 {
        watch.done(self.word)
    }

    /// How far the tenant was told that the stream has come, or has written itself: good for what helps nobody but the tenant.
    pub(super) fn told(&self, watch: &Watch) -> u64 {
        watch.shared.read(self.word)
    }

    pub(super) fn put(&self) -> u64 {
        self.put.load(Ordering::Relaxed)
    }

    /// A call was put in: the name of its kernel, where one was launched.
    pub(super) fn begin(&self, number: u64, kernel: Option<Arc<str>>) {
        if let Some(kernel) = kernel {
            lock(&self.inner).launched.push_back((number, kernel));
        }
        self.put.store(number, Ordering::Release);
    }

    /// The stream writes the word behind a call.
    pub(super) fn mark(&self, number: u64) {
        lock(&self.inner).marks.push_back(number);
    }

    /// A call begins when what was put into the stream so far has passed: it waits for words that others write as they like, so
    /// the stream itself tells when it goes on.
    pub(super) fn gate(&self, watch: &Watch, stream: &Stream, number: u64) -> freehold::Result<()> {
        let (word, value) = (gates_word(self.word), self.gates.load(Ordering::Relaxed) + 1);
        stream.write_word(&watch.own, word, value)?;
        self.gates.store(value, Ordering::Relaxed);
        lock(&self.inner).gates.push_back(Gate { number, word, value, is_beside: false });
        Ok(())
    }

    /// A call begins when another stream has come to a call.
    pub(super) fn gate_beside(&self, number: u64, word: usize, value: u64) {
        lock(&self.inner).gates.push_back(Gate { number, word, value, is_beside: true });
    }

    /// The kernels that may run: those up to the first mark that has not passed, unless they wait for others.
    fn suspects(&self, watch: &Watch, stream: u32) -> Option<Suspects> {
        let (done, put) = (self.done(watch), self.put.load(Ordering::Acquire));
        let inner = lock(&self.inner);
        let is_shut = |gate: &Gate| watch.done(gate.word) < gate.value;
        let is_waiting = inner.gates.iter().any(|gate| gate.number == done + 1 && !gate.is_beside && is_shut(gate));
        let end = inner.marks.iter().copied().find(|&mark| mark > done).unwrap_or(put);
        let running = inner.launched.iter().filter(|(number, _)| (done + 1..=end).contains(number));
        let (numbers, kernels): (Vec<u64>, Vec<Arc<str>>) = running.cloned().unzip();
        let (&number, &last) = (numbers.first()?, numbers.last()?);
        (!is_waiting).then_some(Suspects { stream, number, last, kernels })
    }

    /// Whether the first call that has not come to its end has run for longer than one may.
    fn has_hung(&self, watch: &Watch, now: Instant) -> bool {
        let (done, put) = (self.done(watch), self.put.load(Ordering::Acquire));
        let mut inner = lock(&self.inner);
        let Inner { marks, gates, launched, oldest } = &mut *inner;
        while marks.front().is_some_and(|&mark| mark <= done) {
            marks.pop_front();
        }
        while gates.front().is_some_and(|gate| gate.number <= done) {
            gates.pop_front();
        }
        while launched.front().is_some_and(|(number, _)| *number <= done) {
            launched.pop_front();
        }
        // A mark is written before a call that waits, so that it is the first where it waits.
        let is_shut = |gate: &Gate| watch.done(gate.word) < gate.value;
        let is_waiting = gates.iter().take_while(|gate| gate.number == done + 1).any(is_shut);
        if done >= put || is_waiting || oldest.0 != done + 1 {
            *oldest = (done + 1, (done < put && !is_waiting).then_some(now));
            return false;
        }
        let since = *oldest.1.get_or_insert(now);
        // The word tells nothing of the calls between two marks: each may take so long.
        let calls = marks.front().map_or(1, |&mark| mark - done);
        now.duration_since(since) > watch.limit.saturating_mul(u32::try_from(calls).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{RING_BYTES, Used};
    use crate::shared::Shared;

    const LIMIT: Duration = Duration::from_secs(4);
    const MOMENT: Duration = Duration::from_millis(1);

    /// A lane with so many calls, and when its clock starts. Tests write its words in place of streams: word 0 is the lane's.
    fn lane(calls: u64) -> (Watch, Lane, Instant) {
        let device = freehold::open::device(Some("soft")).unwrap();
        let clock = Shared::create("clock", CLOCK_WORDS as usize * 8).unwrap();
        let clock = Arc::new(device.clock(clock.file(), CLOCK_WORDS as usize).unwrap());
        let ring = Used::new(Shared::create("ring", RING_BYTES).unwrap());
        let watch = Watch::new(&device, clock, Arc::new(ring.doorstep().unwrap()), LIMIT).unwrap();
        let lane = Lane::new(0);
        (1..=calls).for_each(|number| lane.begin(number, Some("kernel".into())));
        (watch, lane, Instant::now())
    }

    #[test]
    fn a_kernel_has_hung_when_it_has_run_for_longer_than_it_may() {
        let (watch, lane, start) = lane(1);
        lane.mark(1);
        assert!(!lane.has_hung(&watch, start));
        assert!(!lane.has_hung(&watch, start + LIMIT));
        assert!(lane.has_hung(&watch, start + LIMIT + MOMENT));
    }

    #[test]
    fn a_kernel_runs_from_when_the_one_before_it_has_ended() {
        let (watch, lane, start) = lane(2);
        [1, 2].iter().for_each(|&number| lane.mark(number));
        assert!(!lane.has_hung(&watch, start));
        watch.own.write(0, 1);
        assert!(!lane.has_hung(&watch, start + LIMIT));
        assert!(!lane.has_hung(&watch, start + 2 * LIMIT));
        assert!(lane.has_hung(&watch, start + 2 * LIMIT + MOMENT));
    }

    #[test]
    fn a_call_that_waits_for_a_word_does_not_run() {
        let (watch, lane, start) = lane(1);
        lane.mark(1);
        // The stream stands at the word of another, and has not told that it goes on.
        lane.inner.lock().unwrap().gates.push_back(Gate { number: 1, word: gates_word(0), value: 1, is_beside: false });
        assert!(!lane.has_hung(&watch, start));
        assert!(!lane.has_hung(&watch, start + 100 * LIMIT));
        watch.own.write(gates_word(0), 1);
        let open = start + 200 * LIMIT;
        assert!(!lane.has_hung(&watch, open));
        assert!(!lane.has_hung(&watch, open + LIMIT));
        assert!(lane.has_hung(&watch, open + LIMIT + MOMENT));
    }

    #[test]
    fn what_tenants_write_into_the_clock_gives_no_call_more_time() {
        let (watch, lane, start) = lane(2);
        lane.mark(2);
        for (look, forged) in [0, 1, 2, 3, 1 << 40, u64::MAX].into_iter().enumerate() {
            watch.shared.write(0, forged);
            assert_eq!((lane.done(&watch), lane.told(&watch)), (0, forged));
            assert!(!lane.has_hung(&watch, start + MOMENT * look as u32));
        }
        assert!(lane.has_hung(&watch, start + 2 * LIMIT + MOMENT));
        assert_eq!(lane.suspects(&watch, 0).map(|suspects| (suspects.number, suspects.last)), Some((1, 2)));
    }

    #[test]
    fn each_call_up_to_a_mark_may_run_for_as_long_as_one_may() {
        let (watch, lane, start) = lane(3);
        lane.mark(3);
        assert!(!lane.has_hung(&watch, start));
        assert!(!lane.has_hung(&watch, start + 3 * LIMIT));
        assert!(lane.has_hung(&watch, start + 3 * LIMIT + MOMENT));
    }

    #[test]
    fn a_stream_without_calls_has_not_hung() {
        let (watch, lane, start) = lane(1);
        lane.mark(1);
        watch.own.write(0, 1);
        assert!(!lane.has_hung(&watch, start));
        assert!(!lane.has_hung(&watch, start + 100 * LIMIT));
    }
}
