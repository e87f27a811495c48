//! Records of the driver's handles.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use freehold_check::calls::{Access, Argument, KernelId};
use freehold_driver::cuda::CUgraphNode;

/// Hashes handles: they are addresses that the driver chooses.
pub(super) type HandleHash = BuildHasherDefault<HandleHasher>;

/// What is known of handles, except those of kernels.
#[derive(Default)]
pub(super) struct Handles {
    pub(super) destroyed_streams: HashSet<usize, HandleHash>,
    pub(super) destroyed_events: HashSet<usize, HandleHash>,
    pub(super) graphs: HashMap<usize, Graph>,
}

/// A graph that can be launched.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Whether it calls functions of the host, or waits: then the host may know when it is done.
    pub(super) is_opaque: bool,
    /// Whether it waits for what is not in it.
    pub(super) waits: bool,
}

/// A node that accesses memory.
#[derive(Debug)]
pub(super) struct Node {
    /// `NULL` if the program has no handle for it.
    pub(super) handle: CUgraphNode,
    pub(super) kernel: Option<KernelId>,
    pub(super) module: Option<u64>,
    pub(super) accesses: Vec<Access>,
    pub(super) arguments: Vec<Argument>,
    /// The nodes of the graphs that it is in, the outermost first.
    pub(super) within: Vec<CUgraphNode>,
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
