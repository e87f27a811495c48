//! A run-length encoded map: a value for each index of a range, stored once per run of equal values.

use std::collections::BTreeMap;
use std::ops::Range;

#[cfg(test)]
thread_local! {
    /// How many runs this thread has looked at.
    pub(super) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Changes cost time for the runs in their range only.
#[derive(Debug)]
pub(super) struct RunMap<V> {
    /// By the first index of each run, which ends where the next one starts. The last one ends at `len`. Neighbours differ.
    runs: BTreeMap<usize, V>,
    len: usize,
}

impl<V: Copy + PartialEq> RunMap<V> {
    /// Returns a map that has `value` for all indices below `len`.
    pub(super) fn new(len: usize, value: V) -> Self {
        Self { runs: BTreeMap::from([(0, value)]), len }
    }

    pub(super) fn get(&self, index: usize) -> V {
        *self.runs.range(..=index).next_back().expect("a run starts at zero").1
    }

    /// Returns the runs of a range, which must not be empty. The first and the last one are cut where the range ends.
    pub(super) fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, V)> {
        assert!(!range.is_empty(), "a range has a run");
        let first = self.runs.range(..=range.start).next_back().map_or(0, |(start, _)| *start);
        let (starts, end) = (self.runs.range(first..range.end), range.end);
        let ends = self.runs.range(first + 1..range.end).map(|(start, _)| *start).chain([end]);
        starts.zip(ends).map(move |((start, value), end)| {
            visit();
            ((*start).max(range.start)..end, *value)
        })
    }

    /// Changes the values of a range, which must not be empty.
    pub(super) fn update(&mut self, range: Range<usize>, mut change: impl FnMut(&mut V)) {
        assert!(!range.is_empty(), "a range has a run");
        self.split(range.start);
        self.split(range.end);
        for (_, value) in self.runs.range_mut(range.clone()) {
            visit();
            change(value);
        }
        self.join(range);
    }

    /// Lets a run start at an index.
    fn split(&mut self, index: usize) {
        if index < self.len {
            let value = self.get(index);
            self.runs.entry(index).or_insert(value);
        }
    }

    /// Joins runs of a range, and those beside it, that have the same value.
    fn join(&mut self, range: Range<usize>) {
        let mut before = self.runs.range(..range.start).next_back().map(|(_, value)| *value);
        let mut same = Vec::new();
        for (start, value) in self.runs.range(range.start..=range.end) {
            if before == Some(*value) {
                same.push(*start);
            }
            before = Some(*value);
        }
        for start in same {
            self.runs.remove(&start);
        }
    }
}

#[inline]
fn visit() {
    #[cfg(test)]
    VISITED.set(VISITED.get() + 1);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_map_of_runs_has_the_values_of_an_array(
            changes in prop::collection::vec((0..20_usize, 0..20_usize, 0..3_u8), 0..40)
        ) {
            let (mut map, mut array) = (RunMap::new(20, 0_u8), [0_u8; 20]);
            for (one, other, value) in changes {
                let range = one.min(other)..one.max(other) + 1;
                map.update(range.clone(), |old| *old = value);
                array[range.clone()].fill(value);
                let runs: Vec<_> = map.runs(range.clone()).collect();
                prop_assert_eq!(runs.iter().map(|(run, _)| run.len()).sum::<usize>(), range.len());
                for (run, value) in runs {
                    prop_assert!(!run.is_empty() && array[run].iter().all(|other| *other == value));
                }
                let joined = array.chunk_by(|one, other| one == other).count();
                prop_assert_eq!(map.runs(0..20).count(), joined);
                prop_assert!((0..20).all(|index| map.get(index) == array[index]));
            }
        }
    }
}
