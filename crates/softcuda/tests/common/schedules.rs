//! Runs a test under several schedules, each in its own process, because a driver reads its schedule when it starts.

use freehold_testing::{child, print_seed, seeds};

/// Returns the schedules without a seed, one with few switches, and as many seeds as the test effort requires.
pub(crate) fn schedules(quick: u64, moderate: u64, soak: u64) -> impl Iterator<Item = String> {
    let plain = ["threads", "eager", "seed:1,switches:1"].map(str::to_owned);
    plain.into_iter().chain(seeds(quick, moderate, soak).map(|seed| format!("seed:{seed}")))
}

/// Runs the child of the test `name` under a schedule, and returns its reported lines.
#[track_caller]
pub(crate) fn under(name: &str, schedule: &str) -> Vec<String> {
    let outcome = child::run(name, &[("FREEHOLD_SOFT_SCHEDULE", schedule)]);
    if !outcome.status.success() {
        schedule.strip_prefix("seed:").and_then(|seed| seed.parse().ok()).into_iter().for_each(print_seed);
        panic!("under {schedule}:\n{}", outcome.output);
    }
    outcome.reported
}
