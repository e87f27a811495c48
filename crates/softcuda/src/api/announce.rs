//! What a memory pool of the program tells the checker about its blocks. The C header is `crates/check/include/freehold/check.h`.

use crate::base::check;
use crate::state::driver_state::is_forked;

/// A pool hands out a block.
pub fn handed_out(address: u64, bytes: u64) {
    if let Some(checker) = check::checker().filter(|_| !is_forked()) {
        checker.hand_out("freehold_check_handed_out", address, bytes);
    }
}

/// A block goes back to its pool: work that is submitted from now on does not use it.
pub fn freed(address: u64) {
    if let Some(checker) = check::checker().filter(|_| !is_forked()) {
        checker.release("freehold_check_freed", address);
    }
}
