//! A bit set of the numbers of successful launches that need no other record. Pure.

use std::collections::BTreeMap;

/// Words of 64 numbers that are kept. The lowest are dropped first.
const WORDS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct CompletedSet {
    words: BTreeMap<u64, u64>,
}

impl CompletedSet {
    pub(super) fn insert(&mut self, number: u64) {
        *self.words.entry(number / 64).or_default() |= 1 << (number % 64);
        if self.words.len() > WORDS_MAX {
            self.words.pop_first();
        }
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        self.words.get(&(number / 64)).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_and_its_neighbours_are_not() {
        let mut completed = CompletedSet::default();
        [1, 63, 64, u64::MAX].into_iter().for_each(|number| completed.insert(number));
        let known: Vec<u64> = [0, 1, 2, 62, 63, 64, 65, u64::MAX - 1, u64::MAX]
            .into_iter()
            .filter(|&one| completed.contains(one))
            .collect();
        assert_eq!(known, [1, 63, 64, u64::MAX]);
    }

    #[test]
    fn the_lowest_are_forgotten_first() {
        let mut completed = CompletedSet::default();
        (0..=65_536).for_each(|word| completed.insert(64 * word));
        assert_eq!(
            (completed.contains(0), completed.contains(64), completed.contains(64 * 65_536)),
            (false, true, true)
        );
    }
}
