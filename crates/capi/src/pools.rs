//! Safe access to pools for the C functions: their callers promise valid streams and addresses, as `freehold.h`
//! requires.

use freehold::foreign::ForeignPool;
use freehold::open;

#[inline]
pub(crate) fn known_pool(ordinal: i32) -> Option<&'static ForeignPool> {
    // SAFETY: callers of the C interface guarantee that the streams and addresses that they pass are valid.
    unsafe { open::known_foreign_pool(ordinal) }
}

pub(crate) fn known_pools() -> impl Iterator<Item = &'static ForeignPool> {
    // SAFETY: as above.
    unsafe { open::known_foreign_pools() }
}

pub(crate) fn pool(ordinal: i32) -> freehold::Result<&'static ForeignPool> {
    // SAFETY: as above.
    unsafe { open::foreign_pool(ordinal) }
}

/// Promises that each capture is announced.
pub(crate) fn announce_captures() {
    // SAFETY: as above.
    unsafe { open::announce_captures() }
}
