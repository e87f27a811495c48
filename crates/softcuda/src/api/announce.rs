//! Announcements of the program's memory pools to the checker, through the C header `crates/check/include/freehold/check.h`, or,
//! for Freehold's pool, through the extension.

use crate::base::check;
use crate::state::driver_state::{driver, is_forked};

/// Returns whether there is a checker.
pub(crate) fn is_on() -> bool {
    check::is_on() && !is_forked()
}

/// A pool hands out a block.
pub fn handed_out(address: u64, bytes: u64) {
    if let Some(checker) = check::checker().filter(|_| !is_forked()) {
        let captures = driver().map(|driver| driver.captures.ids()).unwrap_or_default();
        checker.hand_out("freehold_check_handed_out", address, bytes, &captures);
    }
}

/// A block goes back to its pool: work that is submitted from now on does not use it.
pub fn freed(address: u64) {
    if let Some(checker) = check::checker().filter(|_| !is_forked()) {
        checker.release("freehold_check_freed", address);
    }
}

/// A pool changes the size of a block that it has handed out.
pub(crate) fn resized(address: u64, bytes: u64) {
    if let Some(checker) = check::checker().filter(|_| !is_forked()) {
        checker.resize("freehold_check_resized", address, bytes);
    }
}
