//! Ranges of freed addresses that had been written. Their pages were returned to the host, but memory that is attached
//! there next must not look unused. Pure arithmetic on offsets.

use std::collections::BTreeMap;

/// A set of ranges, merged where they touch.
#[derive(Debug, Default)]
pub(crate) struct DirtyRanges {
    /// End by start.
    ranges: BTreeMap<u64, u64>,
}

impl DirtyRanges {
    /// Adds `start..end`.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        let touching = |&(&other, &other_end): &(&u64, &u64)| other_end >= start && other <= end;
        let merged: Vec<_> = self.ranges.range(..=end).rev().take_while(touching).map(|(&at, &to)| (at, to)).collect();
        for (other, other_end) in merged {
            self.ranges.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ranges.insert(start, end);
    }

    /// Removes and returns the parts of `start..end` that were written.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let overlapping = |&(_, &other_end): &(&u64, &u64)| other_end > start;
        let found: Vec<_> = self.ranges.range(..end).rev().take_while(overlapping).map(|(&at, &to)| (at, to)).collect();
        for &(other, other_end) in &found {
            self.ranges.remove(&other);
            if other < start {
                self.ranges.insert(other, start);
            }
            if other_end > end {
                self.ranges.insert(end, other_end);
            }
        }
        found.into_iter().map(|(other, other_end)| (other.max(start), other_end.min(end))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one_part() {
        let mut dirty = DirtyRanges::default();
        dirty.insert(10, 20);
        dirty.insert(30, 40);
        dirty.insert(20, 30);
        assert_eq!(dirty.remove(0, 100), [(10, 40)]);
        assert!(dirty.remove(0, 100).is_empty());
    }

    #[test]
    fn a_part_is_taken_where_it_overlaps_and_stays_elsewhere() {
        let mut dirty = DirtyRanges::default();
        dirty.insert(10, 20);
        dirty.insert(30, 40);
        assert_eq!(dirty.remove(15, 35), [(30, 35), (15, 20)]);
        assert_eq!(dirty.remove(0, 100), [(35, 40), (10, 15)]);
    }

    #[test]
    fn a_neighbour_is_not_taken() {
        let mut dirty = DirtyRanges::default();
        dirty.insert(10, 20);
        assert!(dirty.remove(0, 10).is_empty());
        assert!(dirty.remove(20, 30).is_empty());
        assert_eq!(dirty.remove(10, 20), [(10, 20)]);
    }
}
