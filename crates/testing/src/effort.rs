//! How much work a test does, its seeds, and the report of what it has covered.

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::random::Random;

/// The time after which a test that waits for an event reports that it is stuck. No passing test comes near it, even
/// with every core oversubscribed.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(300);

/// How much work a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Before each commit.
    Quick,
    /// In CI.
    Moderate,
    /// As long as time permits.
    Soak,
}

impl Effort {
    /// Returns the effort that `FREEHOLD_EFFORT` sets, [`Quick`](Self::Quick) without it.
    ///
    /// # Panics
    /// If the variable has another value.
    pub fn current() -> Self {
        static EFFORT: OnceLock<Effort> = OnceLock::new();
        *EFFORT.get_or_init(|| match std::env::var("FREEHOLD_EFFORT").as_deref() {
            Err(_) | Ok("quick") => Self::Quick,
            Ok("moderate") => Self::Moderate,
            Ok("soak") => Self::Soak,
            Ok(other) => panic!("FREEHOLD_EFFORT is {other:?}: expected quick, moderate or soak"),
        })
    }

    /// Returns the value for this effort.
    pub fn pick<T>(self, quick: T, moderate: T, soak: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Moderate => moderate,
            Self::Soak => soak,
        }
    }
}

/// Returns the value for the current effort.
pub fn at_effort<T>(quick: T, moderate: T, soak: T) -> T {
    Effort::current().pick(quick, moderate, soak)
}

/// Returns the seed of this run and prints it: `FREEHOLD_SEED`, else a fixed one or, when soaking, a fresh one.
pub fn seed() -> u64 {
    let seed = env_seed().unwrap_or_else(|| if Effort::current() == Effort::Soak { random_seed() } else { 0x5eed });
    print_seed(seed);
    seed
}

/// Returns as many seeds as the current effort requires. `FREEHOLD_SEED` is the only one if it is set; otherwise they
/// count from 1 or, when soaking, from a fresh number.
pub fn seeds(quick: u64, moderate: u64, soak: u64) -> RangeInclusive<u64> {
    if let Some(seed) = env_seed() {
        return seed..=seed;
    }
    let first = if Effort::current() == Effort::Soak { random_seed() } else { 1 };
    let last = first + at_effort(quick, moderate, soak) - 1;
    println!("seeds {first} to {last}");
    first..=last
}

/// Prints a seed in a form that `cargo xtask` finds and a shell accepts.
pub fn print_seed(seed: u64) {
    println!("FREEHOLD_SEED={seed}");
}

/// Returns the seed to replay, if one is set.
///
/// # Panics
/// If it is not a number.
pub fn env_seed() -> Option<u64> {
    let text = std::env::var("FREEHOLD_SEED").ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("FREEHOLD_SEED is {text:?}: expected a number")))
}

/// Returns a number derived from the clock, small enough to count seeds from it and to read aloud.
fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    Random::new(now).next() >> 24
}

/// Reports what a test has covered: `cargo xtask soak` adds up the counts of the same words.
pub fn report_covered(count: u64, what: &str) {
    println!("covered: {count} {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_picks_its_own_value() {
        assert_eq!([Effort::Quick, Effort::Moderate, Effort::Soak].map(|effort| effort.pick(1, 2, 3)), [1, 2, 3]);
    }

    #[test]
    fn fresh_seeds_differ_and_leave_room_to_count_from() {
        let (first, second) = (random_seed(), random_seed());
        assert_ne!(first, second);
        assert!(first < 1 << 40);
    }
}
