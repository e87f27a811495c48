//! Tests in processes of their own, each on its own software machine: they choose what a driver reads when it starts,
//! make their process unusable, or inspect state that all of it shares.

use std::ops::RangeInclusive;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use freehold_testing::{child, print_seed, report_covered};

/// Processes at once.
const AT_ONCE: usize = 2;

/// A name that no other machine has.
fn machine() -> String {
    static MACHINES: AtomicU64 = AtomicU64::new(0);
    format!("children-{}-{}", process::id(), MACHINES.fetch_add(1, Ordering::Relaxed))
}

/// Runs the body of the test `name` in a process of its own.
#[track_caller]
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    alone_with(name, &[], body);
}

/// [`alone`] with variables of the environment.
#[track_caller]
pub(crate) fn alone_with(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    child::run_in_child_with(name, &[variables, &[("FREEHOLD_SOFT_MACHINE", &machine())]].concat(), body);
}

/// What was wrong in the child of the test `name` under the schedule of a seed: what it said, or how it ended.
pub(crate) fn wrong_under(name: &str, seed: u64, variables: &[(&str, &str)]) -> Option<String> {
    let (number, schedule, machine) = (seed.to_string(), format!("seed:{seed}"), machine());
    let own = [("FREEHOLD_SEED", &*number), ("FREEHOLD_SOFT_SCHEDULE", &schedule), ("FREEHOLD_SOFT_MACHINE", &machine)];
    let mut outcome = child::run(name, &[variables, &own].concat());
    match outcome.reported.pop() {
        None if outcome.passed() => None,
        None => Some(format!("{}\n{}", outcome.status, outcome.output)),
        said => said,
    }
}

/// Runs the child of the test `name` under the schedule of each seed. What was wrong, by seed.
pub(crate) fn all_wrong(name: &str, seeds: RangeInclusive<u64>, variables: &[(&str, &str)]) -> Vec<String> {
    let (next, found) = (AtomicU64::new(*seeds.start()), Mutex::new(Vec::new()));
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > *seeds.end() {
                return;
            }
            if let Some(wrong) = wrong_under(name, seed, variables) {
                found.lock().unwrap_or_else(PoisonError::into_inner).push((seed, wrong));
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(run))));
    let found = found.into_inner().unwrap();
    found.iter().for_each(|&(seed, _)| print_seed(seed));
    report_covered(seeds.count() as u64, "seeds of random programs");
    found.into_iter().map(|(seed, wrong)| format!("FREEHOLD_SEED={seed}: {wrong}")).collect()
}
