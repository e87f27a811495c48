//! Random numbers for tests that need no shrinking.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Numbers that follow from a seed: the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Starts the numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and is not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
