//! Loads from shared memory through a register whose pattern is known: in each half of a warp the same address for all
//! lanes, or consecutive words. Tiles are read this way, with one register and many offsets, and the pattern is found
//! once.

use super::map::{Lanes, words_of};
use crate::ir::PATTERNS;
use crate::memory::LANES;

const HALF: usize = LANES / 2;

/// The patterns of a few registers.
#[derive(Debug, Clone, Default)]
pub(super) struct Patterns {
    halves: [[Half; 2]; PATTERNS],
    /// A bit for each that has been found, of registers that keep their values.
    pub(super) found: u32,
}

/// The addresses of half a warp.
#[derive(Debug, Clone, Copy, Default)]
struct Half {
    /// That of the first lane.
    first: u64,
    shape: Shape,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Shape {
    #[default]
    Other,
    Uniform,
    Consecutive,
}

impl Patterns {
    /// Remembers a pattern: the addresses of the first lanes of both halves, and in which lanes the address is the
    /// same, or as many words higher as the lane is.
    #[inline(always)]
    pub(super) fn set(&mut self, index: usize, first: [u64; 2], uniform: u32, consecutive: u32) {
        for (half, pattern) in self.halves[index].iter_mut().enumerate() {
            let holds = |mask: u32| mask >> (HALF * half) & 0xffff == 0xffff;
            let shape = match (holds(uniform), holds(consecutive)) {
                (true, _) => Shape::Uniform,
                (_, true) => Shape::Consecutive,
                _ => Shape::Other,
            };
            *pattern = Half { first: first[half], shape };
        }
    }

    /// Reads a word for each lane. `address` adds the instruction's offset to the address of a half's first lane.
    /// Returns `false` and changes nothing if there is no pattern, or if an address is misaligned or out of bounds.
    #[inline(always)]
    pub(super) fn load(
        &self,
        index: usize,
        shared: &[[u8; 4]],
        address: impl Fn(u64) -> u64,
        words: &mut Lanes<u32>,
    ) -> bool {
        let [low, high] = &self.halves[index];
        let (Some(low), Some(high)) = (low.words(shared, &address), high.words(shared, &address)) else { return false };
        words[..HALF].copy_from_slice(&low);
        words[HALF..].copy_from_slice(&high);
        true
    }

    /// Returns the address of the first lane of each half, and how far the lanes of a half are apart, of a load that
    /// was done.
    #[inline(always)]
    pub(super) fn halves(&self, index: usize, address: impl Fn(u64) -> u64) -> ([u32; 2], [u32; 2]) {
        let halves = &self.halves[index];
        let distance = |shape| if shape == Shape::Consecutive { 4 } else { 0 };
        (halves.map(|half| address(half.first) as u32), halves.map(|half| distance(half.shape)))
    }
}

impl Half {
    #[inline(always)]
    fn words(&self, shared: &[[u8; 4]], address: impl Fn(u64) -> u64) -> Option<[u32; HALF]> {
        let start = address(self.first);
        if !start.is_multiple_of(4) {
            return None;
        }
        let from = shared.get(usize::try_from(start / 4).ok()?..)?;
        match self.shape {
            Shape::Uniform => Some([u32::from_le_bytes(*from.first()?); HALF]),
            Shape::Consecutive => from.first_chunk().map(words_of::<HALF>),
            Shape::Other => None,
        }
    }
}
