//! Which parts of a line of units are free. Pure arithmetic: a unit is whatever the owner says it is.

use std::collections::BTreeMap;

/// The free ranges of a line of units, merged where they touch.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeRanges {
    /// Length by start. Ranges neither overlap nor touch.
    free: BTreeMap<u64, u64>,
    /// Where the last range was given back: the first place to look, so that addresses are used again at once.
    last_freed: Option<u64>,
}

impl FreeRanges {
    /// All of `0..length` is free.
    pub(crate) fn new(length: u64) -> Self {
        Self { free: BTreeMap::from([(0, length)]), last_freed: None }
    }

    /// Takes `length` units: where something was last given back if they fit there, else at the lowest place.
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

    /// Takes `length` units at the first place that `align` moves a free one up to.
    pub(crate) fn alloc_aligned(&mut self, length: u64, align: impl Fn(u64) -> u64) -> Option<u64> {
        let fits = |(&start, &have): (&u64, &u64)| {
            let at = align(start);
            (at.checked_add(length)? <= start + have).then_some(at)
        };
        let at = self.free.iter().find_map(fits)?;
        assert!(self.alloc_at(at, length), "what fits can be taken");
        Some(at)
    }

    /// Takes `length` units at `at`, if they are free.
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

    /// Gives back what [`alloc`](Self::alloc) gave.
    pub(crate) fn free(&mut self, start: u64, length: u64) {
        self.last_freed = Some(start);
        let (mut start, mut length) = (start, length);
        if let Some((&before, &have)) = self.free.range(..start).next_back() {
            assert!(before + have <= start, "a range is given back once");
            if before + have == start {
                self.free.remove(&before);
                start = before;
                length += have;
            }
        }
        if let Some((&after, &have)) = self.free.range(start..).next() {
            assert!(start + length <= after, "a range is given back once");
            if start + length == after {
                self.free.remove(&after);
                length += have;
            }
        }
        self.free.insert(start, length);
    }

    /// Whether all of `0..length` is free.
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
    #[should_panic(expected = "a range is given back once")]
    fn a_double_free_panics() {
        let mut ranges = FreeRanges::new(30);
        let a = ranges.alloc(10).unwrap();
        ranges.free(a, 10);
        ranges.free(a, 10);
    }
}
