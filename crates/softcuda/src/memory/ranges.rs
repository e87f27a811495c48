//! Which parts of a line of units are free. Pure arithmetic: a unit is whatever the owner says it is.

use std::collections::BTreeMap;

/// The free ranges of a line of units, merged where they touch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    /// Length by start. Ranges neither overlap nor touch.
    free: BTreeMap<u64, u64>,
    /// Where the last range was given back: the first place to look, so that addresses are used again at once.
    recent: Option<u64>,
}

impl Ranges {
    /// All of `0..length` is free.
    pub(crate) fn new(length: u64) -> Self {
        Self { free: BTreeMap::from([(0, length)]), recent: None }
    }

    /// Takes `length` units: where something was last given back if they fit there, else at the lowest place.
    pub(crate) fn take(&mut self, length: u64) -> Option<u64> {
        debug_assert!(length > 0, "a range has at least one unit");
        if let Some(start) = self.recent.take()
            && self.take_at(start, length)
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
    pub(crate) fn take_aligned(&mut self, length: u64, align: impl Fn(u64) -> u64) -> Option<u64> {
        let fits = |(&start, &have): (&u64, &u64)| {
            let at = align(start);
            (at.checked_add(length)? <= start + have).then_some(at)
        };
        let at = self.free.iter().find_map(fits)?;
        assert!(self.take_at(at, length), "what fits can be taken");
        Some(at)
    }

    /// Takes `length` units at `at`, if they are free.
    pub(crate) fn take_at(&mut self, at: u64, length: u64) -> bool {
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

    /// Gives back what [`take`](Self::take) gave.
    pub(crate) fn give(&mut self, start: u64, length: u64) {
        self.recent = Some(start);
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
    pub(crate) fn is_whole(&self, length: u64) -> bool {
        self.free.get(&0) == Some(&length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_last_given_back_is_taken_first() {
        let mut ranges = Ranges::new(100);
        let taken: Vec<_> = (0..5).map(|_| ranges.take(10).unwrap()).collect();
        assert_eq!(taken, [0, 10, 20, 30, 40]);
        ranges.give(10, 10);
        ranges.give(30, 10);
        assert_eq!(ranges.take(10), Some(30));
        assert_eq!(ranges.take(10), Some(10));
        assert_eq!(ranges.take(10), Some(50));
    }

    #[test]
    fn neighbours_merge_so_that_all_is_whole_again() {
        let mut ranges = Ranges::new(30);
        let (a, b, c) = (ranges.take(10).unwrap(), ranges.take(10).unwrap(), ranges.take(10).unwrap());
        assert_eq!(ranges.take(1), None);
        ranges.give(a, 10);
        ranges.give(c, 10);
        assert!(!ranges.is_whole(30));
        assert_eq!(ranges.take(11), None);
        ranges.give(b, 10);
        assert!(ranges.is_whole(30));
        assert_eq!(ranges.take(30), Some(0));
    }

    #[test]
    #[should_panic(expected = "a range is given back once")]
    fn giving_back_twice_is_a_mistake_of_ours() {
        let mut ranges = Ranges::new(30);
        let a = ranges.take(10).unwrap();
        ranges.give(a, 10);
        ranges.give(a, 10);
    }
}
