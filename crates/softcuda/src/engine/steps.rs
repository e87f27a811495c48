//! Work without threads of its own: it advances inside the calls of the program's, one step at a time.
//!
//! Under `eager` each call runs whatever can run. Under a seed a generator decides at each call which queues advance
//! and how far, copies in pieces too, so that a missing wait shows; the same seed and the same calls of one thread
//! give the same steps. A program that waits without calling the driver (for a word that a stream writes, say) is
//! helped by a ticker, which runs everything when there was no call for a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Engine;
use super::queue::{Point, Queue};
use super::work::{Part, Progress};

/// The ticker looks so often whether there was a call, and without one in so many looks it runs what can run.
const TICK: Duration = Duration::from_millis(10);
const TICKS: u32 = 15;

/// Steps of one kernel that a call runs which waits for nothing.
const KERNEL_STEPS_MAX: u32 = 2;

/// What a step takes, in the time of a seeded schedule.
const STEP_NS: u64 = 1000;

#[derive(Debug)]
pub(super) struct Steps {
    turn: Mutex<Turn>,
    /// Threads that wait for the turn.
    wanted: AtomicU32,
    /// Calls of the driver so far.
    calls: AtomicU64,
    /// Steps so far.
    steps: AtomicU64,
    seeded: bool,
    /// How long a step waits for a function of the program's before other streams go on.
    patience: Duration,
}

/// Held by the one thread whose call lets work advance.
#[derive(Debug)]
struct Turn {
    /// In the order of their making. Those that are over fall out.
    queues: Vec<Arc<Queue>>,
    random: Random,
}

/// A small generator (splitmix64): reproducible on every machine.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl Steps {
    pub(super) fn eager() -> Self {
        Self::new(0, false)
    }

    pub(super) fn seeded(seed: u64) -> Self {
        Self::new(seed, true)
    }

    fn new(seed: u64, seeded: bool) -> Self {
        Self {
            turn: Mutex::new(Turn { queues: Vec::new(), random: Random(seed) }),
            wanted: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            seeded,
            // A seeded run stays the same only if a function returns within the step that called it.
            patience: if seeded { Duration::from_secs(1) } else { Duration::from_millis(20) },
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        turn
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Gives the turn to who waits for it: a thread that takes it again and again would keep it from all others.
    fn let_others(&self) {
        while self.is_wanted() {
            std::thread::yield_now();
        }
    }

    /// Looks after a queue until it is over.
    pub(super) fn watch(&self, queue: &Arc<Queue>) {
        let mut turn = self.turn();
        if !turn.queues.iter().any(|watched| Arc::ptr_eq(watched, queue)) {
            turn.queues.push(Arc::clone(queue));
        }
    }

    pub(super) fn virtual_time(&self) -> Option<u64> {
        self.seeded.then(|| (self.steps.load(Ordering::Relaxed) + 1) * STEP_NS)
    }

    /// A call of the driver's begins.
    pub(super) fn before_call(&self, engine: &Engine) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut turn = self.turn();
        if self.seeded {
            let steps = match turn.random.below(8) {
                0..3 => 0,
                3..7 => 1 + turn.random.below(3),
                _ => 1 + turn.random.below(16),
            };
            for _ in 0..steps {
                self.step(engine, &mut turn);
            }
        } else {
            self.run_all(engine, &mut turn);
        }
    }

    /// A call of the driver's ends: what it asked for runs at once, if nothing else decides when.
    pub(super) fn after_call(&self, engine: &Engine) {
        if !self.seeded {
            self.run_all(engine, &mut self.turn());
        }
    }

    pub(super) fn run_until(&self, engine: &Engine, holds: impl Fn() -> bool) {
        while !holds() {
            let mut turn = self.turn();
            let moved = if self.seeded { self.step(engine, &mut turn) } else { self.run_all(engine, &mut turn) };
            drop(turn);
            self.let_others();
            if !moved && !holds() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// What the steps of kernels go by.
    fn seed(&self, turn: &Turn) -> Option<u64> {
        self.seeded.then(|| turn.random.0 ^ self.steps.load(Ordering::Relaxed))
    }

    /// Runs everything that can run; of a kernel only so much, since it may wait for what the program does next. True
    /// if anything did.
    fn run_all(&self, engine: &Engine, turn: &mut Turn) -> bool {
        let mut ever = false;
        loop {
            let mut moved = false;
            for queue in pending(turn) {
                let mut kernel_steps = 0;
                while kernel_steps < KERNEL_STEPS_MAX {
                    match self.advance(engine, &queue, u64::MAX, self.seed(turn)) {
                        Progress::NotYet => break,
                        Progress::Ran => kernel_steps += 1,
                        Progress::Done | Progress::Partly => moved = true,
                    }
                }
                ever |= kernel_steps > 0;
            }
            ever |= moved;
            if !moved {
                return ever;
            }
        }
    }

    /// Lets one queue advance that can: the first that can, from a random one on. True if there was one.
    fn step(&self, engine: &Engine, turn: &mut Turn) -> bool {
        let queues = pending(turn);
        if queues.is_empty() {
            return false;
        }
        let before_draw = turn.random.0;
        let first = turn.random.below(queues.len() as u64) as usize;
        let limit = match turn.random.below(3) {
            0 => u64::MAX,
            _ => 1 + turn.random.below(4096),
        };
        let (before, from_first) = queues.split_at(first);
        let mut order = from_first.iter().chain(before);
        let seed = self.seed(turn);
        let moved = order.any(|queue| self.advance(engine, queue, limit, seed) != Progress::NotYet);
        if !moved {
            // How often a wait looks in vain is the clock's affair; the generator is not to know.
            turn.random.0 = before_draw;
        }
        moved
    }

    /// Carries out a part of the first work of a queue.
    fn advance(&self, engine: &Engine, queue: &Queue, limit: u64, seed: Option<u64>) -> Progress {
        // Only the holder of the turn takes work out, so the op can be outside the line while it runs.
        let Some(mut op) = ({ queue.line().ops.pop_front() }) else { return Progress::NotYet };
        let progress = if op.after.iter().all(Point::has_passed) {
            engine.carry_out(&mut op, Part::Some { limit, patience: self.patience, seed })
        } else {
            Progress::NotYet
        };
        let position = op.position;
        match progress {
            Progress::Done => {
                drop(op);
                queue.complete(position);
            }
            Progress::Partly | Progress::Ran | Progress::NotYet => queue.line().ops.push_front(op),
        }
        if progress != Progress::NotYet {
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
        progress
    }
}

/// The queues that have work, in the order of their making.
fn pending(turn: &mut Turn) -> Vec<Arc<Queue>> {
    turn.queues.retain(|queue| !queue.is_over());
    turn.queues.iter().filter(|queue| !queue.is_idle()).cloned().collect()
}

/// Runs everything that can run whenever the program made no call for a while.
pub(super) fn start_ticker(engine: &Arc<Engine>) {
    let engine = Arc::downgrade(engine);
    let started = std::thread::Builder::new().name("freehold-ticker".to_owned()).spawn(move || {
        let (mut calls, mut quiet) = (0, 0);
        while let Some(engine) = engine.upgrade() {
            if let Some(steps) = &engine.steps {
                let now = steps.calls.load(Ordering::Relaxed);
                quiet = if std::mem::replace(&mut calls, now) == now { quiet } else { 0 };
                if quiet >= TICKS {
                    quiet = 0;
                    // A kernel may need more than one round, and others to have their turn in between.
                    let mut moves = true;
                    while moves && steps.calls.load(Ordering::Relaxed) == now && !steps.is_wanted() {
                        moves = steps.run_all(&engine, &mut steps.turn());
                    }
                }
            }
            drop(engine);
            let begun = Instant::now();
            std::thread::sleep(TICK);
            // Where this thread had to wait for a processor, the program may have had none either.
            quiet += u32::from(begun.elapsed() < 2 * TICK);
        }
    });
    started.expect("the system has a thread for the ticker");
}
