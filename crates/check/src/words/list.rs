//! A list of patterns. The first few are in the list itself: most segments never have more.

use std::ops::{Deref, DerefMut};

use super::pattern::Pattern;

const FEW: usize = 3;

#[derive(Debug)]
pub(super) enum PatternList {
    Few { len: u8, patterns: [Pattern; FEW] },
    Many(Vec<Pattern>),
}

impl PatternList {
    pub(super) const EMPTY: Self = Self::Few { len: 0, patterns: [Pattern::EMPTY; FEW] };

    #[inline]
    pub(super) fn push(&mut self, pattern: Pattern) {
        match self {
            Self::Few { len, patterns } => match patterns.get_mut(usize::from(*len)) {
                Some(place) => {
                    *place = pattern;
                    *len += 1;
                }
                None => {
                    let mut all = patterns.to_vec();
                    all.push(pattern);
                    *self = Self::Many(all);
                }
            },
            Self::Many(all) => all.push(pattern),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Few { len, .. } => *len = 0,
            Self::Many(all) => all.clear(),
        }
    }

    /// Removes patterns without units.
    pub(super) fn remove_empty(&mut self) {
        match self {
            Self::Few { len, patterns } => {
                let mut kept = 0;
                for index in 0..usize::from(*len) {
                    if patterns[index].mask != 0 {
                        patterns[kept] = patterns[index];
                        kept += 1;
                    }
                }
                *len = kept as u8;
            }
            Self::Many(all) => all.retain(|pattern| pattern.mask != 0),
        }
    }
}

impl Deref for PatternList {
    type Target = [Pattern];

    #[inline]
    fn deref(&self) -> &[Pattern] {
        match self {
            Self::Few { len, patterns } => &patterns[..usize::from(*len)],
            Self::Many(all) => all,
        }
    }
}

impl DerefMut for PatternList {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Pattern] {
        match self {
            Self::Few { len, patterns } => &mut patterns[..usize::from(*len)],
            Self::Many(all) => all,
        }
    }
}

impl FromIterator<Pattern> for PatternList {
    fn from_iter<I: IntoIterator<Item = Pattern>>(patterns: I) -> Self {
        let mut list = Self::EMPTY;
        patterns.into_iter().for_each(|pattern| list.push(pattern));
        list
    }
}
