//! What tests of the guest interface share: streams as other people's code makes them, random numbers, and runs of a test in
//! a process of its own, because schedules and the size of the software device are chosen when it starts.

use std::env;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use freehold::guest::Guest;
use freehold_driver::cuda::{Api, CUcontext, CUstream, context, primary, stream, stream_flags};
use freehold_testing::command_for_test;

pub(crate) const MIB: u64 = 1 << 20;

/// Names, in a child, what it was started for.
const CHILD: &str = "FREEHOLD_GUEST_CHILD";

/// Processes at once.
const AT_ONCE: usize = 4;

/// The device, and the driver below it.
pub(crate) struct Host {
    pub(crate) guest: &'static Guest,
    pub(crate) api: Api,
    primary: CUcontext,
}

impl Host {
    pub(crate) fn new() -> Self {
        let opened = freehold::open::open(None).unwrap();
        let guest = freehold::open::guest(0).unwrap();
        let primary = primary::retain(&opened.api, opened.device).unwrap();
        let host = Self { guest, api: opened.api, primary };
        host.enter();
        host
    }

    /// Makes the context current in this thread.
    pub(crate) fn enter(&self) {
        context::push_current(&self.api, self.primary).unwrap();
    }

    /// A stream that the library knows nothing of.
    pub(crate) fn stream(&self) -> CUstream {
        stream::create(&self.api, stream_flags::NON_BLOCKING).unwrap()
    }
}

/// A generator of numbers that a seed repeats.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// What this process was started for, where it is a child.
pub(crate) fn child() -> Option<String> {
    env::var(CHILD).ok()
}

/// Runs the test `name` in a process of its own. What it said was wrong: a line that begins with `|`, or how it ended.
pub(crate) fn wrong_in_child(name: &str, what: &str, variables: &[(&str, &str)]) -> Option<String> {
    static CHILDREN: AtomicU64 = AtomicU64::new(0);
    let machine = format!("{name}-{}-{}", process::id(), CHILDREN.fetch_add(1, Ordering::Relaxed));
    let mut command = command_for_test(name);
    command.env(CHILD, what).env("FREEHOLD_SOFT_MACHINE", machine).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    if let Some(wrong) = printed.lines().find_map(|line| line.strip_prefix('|')) {
        return Some(wrong.to_owned());
    }
    let is_done = output.status.success() && printed.contains("1 passed");
    (!is_done).then(|| format!("{}\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs the test `name` for each seed up to `last`, or for the one that `FREEHOLD_SEED` names. What was wrong, by seed.
pub(crate) fn wrong_under_seeds(name: &str, last: u64, memory: &str) -> Vec<String> {
    let only = env::var("FREEHOLD_SEED").ok().map(|seed| seed.parse().expect("FREEHOLD_SEED is a number"));
    let seeds = only.map_or(1..=last, |seed: u64| seed..=seed);
    let (next, found) = (AtomicU64::new(*seeds.start()), Mutex::new(Vec::new()));
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > *seeds.end() {
                return;
            }
            let schedule = format!("seed:{seed}");
            let variables = [("FREEHOLD_SOFT_SCHEDULE", &*schedule), ("FREEHOLD_SOFT_MEMORY", memory)];
            if let Some(wrong) = wrong_in_child(name, &seed.to_string(), &variables) {
                found.lock().unwrap_or_else(PoisonError::into_inner).push(format!("FREEHOLD_SEED={seed}: {wrong}"));
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(run))));
    found.into_inner().unwrap()
}
