//! Free ranges of a linear space of units. Pure arithmetic: the owner decides what a unit is.

use std::collections::BTreeMap;

/// The free ranges, merged where they touch.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeRanges {
    /// Length by start. Ranges neither overlap nor touch.
    free: BTreeMap<u64, u64>,
    /// The range that was freed last, which is tried first so that addresses are reused at once.
    last_freed: Option<u64>,
}

impl FreeRanges {
    /// Creates a space in which all of `0..length` is free.
    pub(crate) fn new(length: u64) -> Self {
        Self { free: BTreeMap::from([(0, length)]), last_freed: None }
    }

    /// Allocates `length` units: at the range freed last if they fit there, else at the lowest address.
    pub(crate) fn alloc(&mut self, length: u64) -> Option<u64> {
        debug_assert!(length > 0, "a range has at least one unit");
        if let Some(start) = self.last_freed.take()
            && self.alloc_at(start, length)
        {
            return Some(start);
        }
        let (&start, &have) = self.free.iter().find(|&(_, &have)| have >= length)?;
        self.free.remove(&start);
        if have > length {
            self.free.insert(start + length, have - length);
        }
        Some(start)
    }

    /// Allocates `length` units at the first free start after `align` has rounded it up.
    pub(crate) fn alloc_aligned(&mut self, length: u64, align: impl Fn(u64) -> u64) -> Option<u64> {
        let fits = |(&start, &have): (&u64, &u64)| {
            let at = align(start);
            (at.checked_add(length)? <= start + have).then_some(at)
        };
        let at = self.free.iter().find_map(fits)?;
        assert!(self.alloc_at(at, length), "a range that fits can be allocated");
        Some(at)
    }

    /// Allocates `length` units at `at`. Returns false if they are not free.
    pub(crate) fn alloc_at(&mut self, at: u64, length: u64) -> bool {
        let Some((&start, &have)) = self.free.range(..=at).next_back() else { return false };
        let end = start + have;
        if at.checked_add(length).is_none_or(|wanted| wanted > end) {
            return false;
        }
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + length < end {
            self.free.insert(at + length, end - at - length);
        }
        true
    }

    /// Frees a range from [`alloc`](Self::alloc).
    pub(crate) fn free(&mut self, start: u64, length: u64) {
        self.last_freed = Some(start);
        let (mut start, mut length) = (start, length);
        if let Some((&before, &have)) = self.free.range(..start).next_back() {
            assert!(before + have <= start, "range freed twice");
            if before + have == start {
                self.free.remove(&before);
                start = before;
                length += have;
            }
        }
        if let Some((&after, &have)) = self.free.range(start..).next() {
            assert!(start + length <= after, "range freed twice");
            if start + length == after {
                self.free.remove(&after);
                length += have;
            }
        }
        self.free.insert(start, length);
    }

    /// Returns whether all of `0..length` is free.
    pub(crate) fn is_all_free(&self, length: u64) -> bool {
        self.free.get(&0) == Some(&length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_freed_last_is_allocated_first() {
        let mut ranges = FreeRanges::new(100);
        let taken: Vec<_> = (0..5).map(|_| ranges.alloc(10).unwrap()).collect();
        assert_eq!(taken, [0, 10, 20, 30, 40]);
        ranges.free(10, 10);
        ranges.free(30, 10);
        assert_eq!(ranges.alloc(10), Some(30));
        assert_eq!(ranges.alloc(10), Some(10));
        assert_eq!(ranges.alloc(10), Some(50));
    }

    #[test]
    fn adjacent_ranges_merge() {
        let mut ranges = FreeRanges::new(30);
        let (a, b, c) = (ranges.alloc(10).unwrap(), ranges.alloc(10).unwrap(), ranges.alloc(10).unwrap());
        assert_eq!(ranges.alloc(1), None);
        ranges.free(a, 10);
        ranges.free(c, 10);
        assert!(!ranges.is_all_free(30));
        assert_eq!(ranges.alloc(11), None);
        ranges.free(b, 10);
        assert!(ranges.is_all_free(30));
        assert_eq!(ranges.alloc(30), Some(0));
    }

    #[test]
    #[should_panic(expected = "range freed twice")]
    fn a_double_free_panics() {
        let mut ranges = FreeRanges::new(30);
        let a = ranges.alloc(10).unwrap();
        ranges.free(a, 10);
        ranges.free(a, 10);
    }
}
