//! What is known of the driver's handles.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use super::graphs::Graph;

/// Hashes handles: they are addresses that the driver chooses.
pub(super) type HandleHash = BuildHasherDefault<HandleHasher>;

/// What is known of handles, except those of kernels.
#[derive(Default)]
pub(super) struct Handles {
    pub(super) destroyed_streams: HashSet<usize, HandleHash>,
    pub(super) destroyed_events: HashSet<usize, HandleHash>,
    pub(super) graphs: HashMap<usize, Graph>,
}

#[derive(Default)]
pub(super) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    #[inline]
    fn write_usize(&mut self, handle: usize) {
        let product = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Handles are multiples of a power of two, and so are their products.
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn handles_at_even_distances_have_different_low_bits() {
        for distance in [64_usize, 4096, 1 << 20] {
            let low: HashSet<u64> =
                (0..64).map(|number| HandleHash::default().hash_one(number * distance) % 256).collect();
            assert!(low.len() > 32, "{} of 64 at a distance of {distance}", low.len());
        }
    }
}
