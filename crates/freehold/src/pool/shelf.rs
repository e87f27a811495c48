//! Things found by a number, which stay where they are until all of them go. Read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Things of a chunk, and chunks at the most.
const CHUNK: usize = 2048;
const CHUNKS: usize = if cfg!(test) { 64 } else { 8192 };

/// How many things there are at the most.
pub(crate) const THINGS_MAX: usize = CHUNK * CHUNKS;

/// How many of them are for who has begun what cannot be refused any more.
const SPARE: usize = 16 << 10;

/// What knows its number.
pub(crate) trait Numbered: Default {
    fn set_number(&self, number: u32);
}

#[derive(Debug)]
pub(crate) struct Shelf<T> {
    chunks: Box<[OnceLock<Box<[T; CHUNK]>>; CHUNKS]>,
    next: AtomicU32,
}

impl<T: Numbered> Shelf<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: boxed(OnceLock::new), next: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn at(&self, number: u32) -> &T {
        let chunk = self.chunks[number as usize / CHUNK % CHUNKS].get();
        &chunk.expect("a number is of a thing that was made")[number as usize % CHUNK]
    }

    /// Whether so few can be made that nobody is to begin what needs one.
    pub(crate) fn is_full(&self) -> bool {
        self.next.load(Ordering::Relaxed) as usize + SPARE > THINGS_MAX
    }

    /// Makes `count` things whose numbers follow each other. The first number.
    pub(crate) fn add(&self, count: u32) -> u32 {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let end = first.checked_add(count).filter(|&end| end as usize <= THINGS_MAX);
        for number in first..end.expect("who finds the shelf full begins nothing") {
            let things = self.chunks[number as usize / CHUNK].get_or_init(|| boxed(T::default));
            things[number as usize % CHUNK].set_number(number);
        }
        first
    }

    /// All that were made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.next.load(Ordering::Acquire) as usize)
            .filter_map(|number| self.chunks[number / CHUNK].get().map(|things| &things[number % CHUNK]))
    }
}

fn boxed<T, const N: usize>(make: impl Fn() -> T) -> Box<[T; N]> {
    let things: Box<[T]> = (0..N).map(|_| make()).collect();
    let Ok(things) = things.try_into() else { unreachable!("an array has as many things as were made for it") };
    things
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
