//! What a memory pool of the program tells the checker about its blocks. The C header is `crates/check/include/freehold/check.h`.

use freehold_check::AccessKind;
use freehold_driver::cuda::{CUresult, CUstream};

use super::dispatch::catch_panic;
use crate::base::check;
use crate::engine::work::{Noted, Work};
use crate::state::driver_state::{driver, is_forked};

/// A pool hands out a block to work that is submitted to a stream from now on.
pub fn handed_out(address: u64, bytes: u64, stream: CUstream) {
    note("freehold_check_handed_out", Noted { is_of_pool: true, kind: AccessKind::Allocate, address, bytes }, stream);
}

/// A block goes back to its pool, in the order of a stream.
pub fn freed(address: u64, stream: CUstream) {
    const FUNCTION: &str = "freehold_check_freed";
    let Some(checker) = check::checker().filter(|_| !is_forked()) else { return };
    if checker.is_handed_out(address) {
        note(FUNCTION, Noted { is_of_pool: true, kind: AccessKind::Free, address, bytes: 0 }, stream);
    } else {
        checker.report_wrong_free(FUNCTION, address);
    }
}

/// Adds an access to a stream. A stream that is captured, or does not exist, has none.
fn note(function: &'static str, noted: Noted, stream: CUstream) {
    if !check::is_on() || is_forked() {
        return;
    }
    check::enter(function);
    let submit = || -> CUresult {
        let stream_ref = driver()?.stream_ref(stream)?;
        stream_ref.submit_uncaptured(Vec::new(), Work::Note(vec![noted]))?;
        Ok(())
    };
    // The program cannot do anything about an error.
    let _ignored = catch_panic(submit);
}
