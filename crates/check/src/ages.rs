//! The order in which blocks were freed: the oldest are forgotten first. Addresses do not show the age, because a first-fit pool
//! hands out its lowest addresses again and again.

use std::collections::VecDeque;

/// The addresses of freed blocks, the oldest first. A tag tells each block from others that were freed at its address.
#[derive(Debug)]
pub(crate) struct Ages<T> {
    max: usize,
    /// Has blocks that are gone, too.
    addresses: VecDeque<(u64, T)>,
}

impl<T: Copy> Ages<T> {
    /// `max`: how many blocks are remembered.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, addresses: VecDeque::new() }
    }

    /// Adds a block, as one of `count`. Returns the address of one to forget, if there are too many.
    pub(crate) fn add(&mut self, address: u64, tag: T, count: usize, is_kept: impl Fn(u64, T) -> bool) -> Option<u64> {
        self.addresses.push_back((address, tag));
        if self.addresses.len() > 2 * self.max {
            self.addresses.retain(|&(address, tag)| is_kept(address, tag));
        }
        if count <= self.max {
            return None;
        }
        loop {
            let (address, tag) = self.addresses.pop_front()?;
            if is_kept(address, tag) {
                return Some(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_oldest_block_is_forgotten_first_whatever_its_address() {
        let (mut ages, mut kept) = (Ages::new(3), HashMap::new());
        let mut add = |address, tag| {
            kept.insert(address, tag);
            let forgotten = ages.add(address, tag, kept.len(), |address, tag| kept.get(&address) == Some(&tag));
            forgotten.inspect(|address| assert!(kept.remove(address).is_some()))
        };
        assert_eq!([30, 10, 20].map(|address| add(address, 0)), [None; 3]);
        assert_eq!(add(5, 0), Some(30));
        // Freed once more: it is the youngest.
        assert_eq!(add(10, 1), None);
        assert_eq!(add(40, 0), Some(20));
        assert_eq!(add(50, 0), Some(5));
        assert_eq!(add(60, 0), Some(10));
    }

    #[test]
    fn blocks_that_are_gone_take_no_memory() {
        let mut ages = Ages::new(4);
        for tag in 0..1000 {
            assert_eq!(ages.add(8, tag, 1, |_, kept| kept == tag), None);
        }
        assert!(ages.addresses.len() <= 8);
    }
}
