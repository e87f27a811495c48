//! Things found by a number, which stay where they are until all of them go. Read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Things of the first chunk; each later one has twice as many as the one before.
const FIRST: u32 = 1024;
const CHUNKS: usize = 22;

/// What knows its number.
pub(crate) trait Numbered: Default {
    fn set_number(&self, number: u32);
}

#[derive(Debug)]
pub(crate) struct Shelf<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
    next: AtomicU32,
}

impl<T: Numbered> Shelf<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], next: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn at(&self, number: u32) -> &T {
        let (chunk, index) = place_of(number);
        &self.chunks[chunk].get().expect("a number is of a thing that was made")[index]
    }

    /// Makes `count` things whose numbers follow each other. The first number.
    pub(crate) fn add(&self, count: u32) -> u32 {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let end = first.checked_add(count).filter(|&end| end <= (u32::MAX >> 1) - FIRST);
        for number in first..end.expect("a pool has fewer than 2^31 blocks") {
            let (chunk, index) = place_of(number);
            let things = self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| T::default()).collect());
            things[index].set_number(number);
        }
        first
    }

    /// All that were made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.next.load(Ordering::Acquire)).filter_map(|number| {
            let (chunk, index) = place_of(number);
            self.chunks[chunk].get().map(|things| &things[index])
        })
    }
}

/// Counted from the size of the first chunk on, the highest bit of a number tells its chunk, and the others its place there.
#[inline]
fn place_of(number: u32) -> (usize, usize) {
    let counted = number + FIRST;
    let chunk = counted.ilog2();
    ((chunk - FIRST.ilog2()) as usize, (counted ^ (1 << chunk)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Numbered for AtomicU32 {
        fn set_number(&self, number: u32) {
            self.store(number, Ordering::Relaxed);
        }
    }

    #[test]
    fn numbers_lead_to_things_that_stay() {
        let shelf = Shelf::<AtomicU32>::new();
        assert_eq!(shelf.add(1000), 0);
        let early = std::ptr::from_ref(shelf.at(999));
        assert_eq!(shelf.add(100_000), 1000);
        for number in [0, 999, 1000, 1023, 1024, 2047, 2048, 65_535, 100_999] {
            assert_eq!(shelf.at(number).load(Ordering::Relaxed), number);
        }
        assert_eq!(early, std::ptr::from_ref(shelf.at(999)));
        assert_eq!(shelf.iter().count(), 101_000);
    }
}
