//! Memory of the software device, and of the host as far as the driver maps it: where blocks lie, how bytes move.
//! Whose they are is not known here.

pub(crate) mod arena;
pub(crate) mod backing;
pub(crate) mod book;
pub(crate) mod heap;
pub(crate) mod place;
pub(crate) mod ranges;
pub(crate) mod traces;

/// The grain of a device's memory, as on the real one.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;
