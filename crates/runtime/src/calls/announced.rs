//! Announcements of the program's pools, for `freehold/check.h`.

use std::ffi::c_void;

use super::checked_process::get;

#[unsafe(no_mangle)]
extern "C" fn freehold_check_handed_out(_pool: *mut c_void, address: u64, bytes: usize, _stream: usize) {
    if let Some(calls) = get() {
        calls.checker.hand_out("freehold_check_handed_out", address, bytes as u64);
    }
}

#[unsafe(no_mangle)]
extern "C" fn freehold_check_freed(_pool: *mut c_void, address: u64, _stream: usize) {
    if let Some(calls) = get() {
        calls.checker.release("freehold_check_freed", address);
    }
}

/// The accesses themselves are seen.
#[unsafe(no_mangle)]
extern "C" fn freehold_check_used(_pool: *mut c_void, _address: u64, _stream: usize) {}
