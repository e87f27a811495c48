//! Groups of captures that share memory of pools: they were handed out the same blocks, one after the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// For each capture, the groups that it belongs to, by the number of the first capture of each.
#[derive(Debug, Default)]
pub(super) struct CaptureGroups(HashMap<u64, BTreeSet<u64>>);

impl CaptureGroups {
    /// Notes that running captures are handed out a block that had owners of other groups before. Returns the group of the block.
    pub(super) fn join(&mut self, captures: &[u64], before: &[u64]) -> Option<u64> {
        let group = before.first().or(captures.first()).copied()?;
        // Only memory of several groups joins them. All other hand-outs cost the same however many captures there were.
        if before.len() > 1 {
            for groups in self.0.values_mut().filter(|groups| before.iter().any(|before| groups.contains(before))) {
                groups.insert(group);
            }
        }
        for &capture in captures {
            self.0.entry(capture).or_default().insert(group);
        }
        Some(group)
    }

    /// Forgets a capture, but not the groups that it was in.
    pub(super) fn forget(&mut self, capture: u64) {
        self.0.remove(&capture);
    }

    /// Returns the groups of captures, if there are any.
    pub(super) fn of(&self, captures: &[u64]) -> Option<Arc<[u64]>> {
        let groups: Vec<u64> = captures.iter().filter_map(|capture| self.0.get(capture)).flatten().copied().collect();
        (!groups.is_empty()).then(|| groups.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_that_are_handed_out_one_block_after_the_other_have_a_group() {
        let mut groups = CaptureGroups::default();
        assert_eq!(groups.join(&[1], &[]), Some(1));
        assert_eq!(groups.join(&[2], &[]), Some(2));
        assert_eq!(groups.join(&[3], &[1]), Some(1));
        assert_eq!(groups.of(&[3]).as_deref(), Some(&[1][..]));
        assert_eq!(groups.of(&[2]).as_deref(), Some(&[2][..]));
        // A block of memory of both.
        assert_eq!(groups.join(&[4], &[1, 2]), Some(1));
        assert_eq!(groups.of(&[2]).as_deref(), Some(&[1, 2][..]));
        assert_eq!(groups.of(&[5]), None);
    }

    #[test]
    fn a_capture_that_is_forgotten_leaves_its_memory_to_others_of_its_group() {
        let mut groups = CaptureGroups::default();
        groups.join(&[1], &[]);
        groups.join(&[2], &[1]);
        groups.forget(1);
        assert_eq!((groups.of(&[1]), groups.of(&[2]).as_deref()), (None, Some(&[1][..])));
        assert_eq!(groups.join(&[3], &[1]), Some(1));
        groups.forget(2);
        groups.forget(3);
        assert!(groups.0.is_empty());
    }
}
