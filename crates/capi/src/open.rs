//! Safe access to guests for the C functions: their callers promise valid streams and addresses, as `freehold.h` requires.

use freehold::guest::Guest;
use freehold::open;

#[inline]
pub(crate) fn known_guest(ordinal: i32) -> Option<&'static Guest> {
    // SAFETY: the callers of the C interface vouch for what the guest is told.
    unsafe { open::known_guest(ordinal) }
}

pub(crate) fn known_guests() -> impl Iterator<Item = &'static Guest> {
    // SAFETY: as above.
    unsafe { open::known_guests() }
}

pub(crate) fn guest(ordinal: i32) -> freehold::Result<&'static Guest> {
    // SAFETY: as above.
    unsafe { open::guest(ordinal) }
}

/// Promises that each capture is announced.
pub(crate) fn announce_captures() {
    // SAFETY: as above.
    unsafe { open::announce_captures() }
}
