//! Where freed memory had been written. Its pages went back to the host, but what comes to lie at its addresses must not
//! look like memory that was never used. Pure arithmetic on offsets.

use std::collections::BTreeMap;

/// Parts of a line, merged where they touch.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// End by start.
    parts: BTreeMap<u64, u64>,
}

impl Traces {
    /// Notes that `start..end` was written.
    pub(crate) fn note(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        let touching = |&(&other, &other_end): &(&u64, &u64)| other_end >= start && other <= end;
        let merged: Vec<_> = self.parts.range(..=end).rev().take_while(touching).map(|(&at, &to)| (at, to)).collect();
        for (other, other_end) in merged {
            self.parts.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.parts.insert(start, end);
    }

    /// The parts of `start..end` that were written, which are forgotten.
    pub(crate) fn take(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let overlapping = |&(_, &other_end): &(&u64, &u64)| other_end > start;
        let found: Vec<_> = self.parts.range(..end).rev().take_while(overlapping).map(|(&at, &to)| (at, to)).collect();
        for &(other, other_end) in &found {
            self.parts.remove(&other);
            if other < start {
                self.parts.insert(other, start);
            }
            if other_end > end {
                self.parts.insert(end, other_end);
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
        let mut traces = Traces::default();
        traces.note(10, 20);
        traces.note(30, 40);
        traces.note(20, 30);
        assert_eq!(traces.take(0, 100), [(10, 40)]);
        assert!(traces.take(0, 100).is_empty());
    }

    #[test]
    fn a_part_is_taken_where_it_overlaps_and_stays_elsewhere() {
        let mut traces = Traces::default();
        traces.note(10, 20);
        traces.note(30, 40);
        assert_eq!(traces.take(15, 35), [(30, 35), (15, 20)]);
        assert_eq!(traces.take(0, 100), [(35, 40), (10, 15)]);
    }

    #[test]
    fn a_neighbour_is_not_taken() {
        let mut traces = Traces::default();
        traces.note(10, 20);
        assert!(traces.take(0, 10).is_empty());
        assert!(traces.take(20, 30).is_empty());
        assert_eq!(traces.take(10, 20), [(10, 20)]);
    }
}
