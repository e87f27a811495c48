//! The last accesses of the threads of a kernel to words of memory: the common part of [`grid`](crate::grid) and
//! [`shared`](crate::shared). A unit is a word, or a byte where parts of words are accessed.

pub(crate) mod cell;
pub(crate) mod clock;
pub(crate) mod page;
pub(crate) mod pattern;
pub(crate) mod slot;
