//! Finds the addresses of a page that a program reads over and over.

/// How many addresses are counted exactly.
const ADDRESSES: usize = 8;

/// How often addresses were read. With more than [`ADDRESSES`] in turn each new one lowers the other counts, as Misra and Gries
/// describe: no count is too high, and an address that has most of the reads is found.
#[derive(Debug, Default)]
pub(super) struct Reads([(u64, u32); ADDRESSES]);

impl Reads {
    /// Counts a read of an address. Returns its count.
    pub(super) fn count(&mut self, address: u64) -> u32 {
        let place = self.0.iter().position(|(other, count)| *count > 0 && *other == address);
        if let Some(place) = place.or_else(|| self.0.iter().position(|(_, count)| *count == 0)) {
            let (_, count) = self.0[place];
            self.0[place] = (address, count.saturating_add(1));
            return self.0[place].1;
        }
        self.0.iter_mut().for_each(|(_, count)| *count -= 1);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_some_addresses_in_turn_are_counted() {
        let mut reads = Reads::default();
        let counts: Vec<u32> = (0..100).flat_map(|_| 0..8).map(|address| reads.count(address)).collect();
        assert_eq!(counts[792..], [100; 8]);
    }

    #[test]
    fn reads_of_many_addresses_in_turn_do_not_add_up() {
        let mut reads = Reads::default();
        assert!((0..100).flat_map(|_| 0..512).all(|address| reads.count(address) <= 1));
    }
}
