//! Random test cases that shrink, from the seed of this run.

use freehold_testing::seed;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Creates a runner of `cases` random cases.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config { cases, failure_persistence: None, ..Config::default() }, rng)
}
