//! The last accesses of the threads of a kernel to words of memory: what [`grid`](crate::grid) and [`shared`](crate::shared) have
//! in common. A word or, where a part of one is accessed, a byte is a unit.

pub(crate) mod cell;
pub(crate) mod clock;
pub(crate) mod page;
pub(crate) mod pattern;
pub(crate) mod slot;
