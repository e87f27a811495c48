//! Random test cases that shrink, from the seed of this run.

use freehold_testing::{at_effort, report_covered, seed};
use proptest::test_runner::{Config, RngSeed};

/// Returns the number of cases for the current effort.
pub(super) fn cases(quick: u32, moderate: u32, soak: u32) -> Config {
    let cases = at_effort(quick, moderate, soak);
    report_covered(cases.into(), "random operands");
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed()), ..Config::default() }
}
