//! A list whose first few elements are in the list itself: most lists never have more.

use std::ops::{Deref, DerefMut};

const FEW: usize = 3;

#[derive(Debug)]
pub(super) enum List<T> {
    Few { len: u8, elements: [T; FEW] },
    Many(Vec<T>),
}

impl<T: Copy> List<T> {
    /// Returns an empty list. `unused` is what its unused elements are.
    pub(super) const fn new(unused: T) -> Self {
        Self::Few { len: 0, elements: [unused; FEW] }
    }

    #[inline]
    pub(super) fn push(&mut self, element: T) {
        match self {
            Self::Few { len, elements } => match elements.get_mut(usize::from(*len)) {
                Some(place) => {
                    *place = element;
                    *len += 1;
                }
                None => {
                    let mut all = elements.to_vec();
                    all.push(element);
                    *self = Self::Many(all);
                }
            },
            Self::Many(all) => all.push(element),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Few { len, .. } => *len = 0,
            Self::Many(all) => all.clear(),
        }
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        match self {
            Self::Few { len, elements } => {
                let mut kept = 0;
                for index in 0..usize::from(*len) {
                    if is_kept(&elements[index]) {
                        elements[kept] = elements[index];
                        kept += 1;
                    }
                }
                *len = kept as u8;
            }
            Self::Many(all) => all.retain(is_kept),
        }
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Few { len, elements } => &elements[..usize::from(*len)],
            Self::Many(all) => all,
        }
    }
}

impl<T> DerefMut for List<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Few { len, elements } => &mut elements[..usize::from(*len)],
            Self::Many(all) => all,
        }
    }
}
