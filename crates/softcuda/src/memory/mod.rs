//! Memory of the software device and of the host that it knows: where blocks lie, who owns them, how bytes move.

pub(crate) mod arena;
pub(crate) mod heap;
pub(crate) mod place;
mod ranges;
pub(crate) mod span;

/// The grain of a device's memory, as on the real one.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;
