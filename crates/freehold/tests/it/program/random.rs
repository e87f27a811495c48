//! Numbers that a seed names, for random programs: of this crate, and of the one for MPI.

/// A small generator (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Values that follow each other, from a random one on.
    pub(crate) fn values(&mut self, len: usize) -> Vec<u32> {
        let first = self.next() as u32;
        (0..len as u32).map(|index| first.wrapping_add(index)).collect()
    }
}
