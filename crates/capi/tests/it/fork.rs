//! The child of a fork: every call fails and says why, none hangs, and the parent's blocks are unchanged.

use crate::fixture;

use std::mem::MaybeUninit;

use fixture::{Fixture, alloc, free, last_error};
use freehold_capi::*;
use freehold_testing::child::run_in_child;

const FORKED: i32 = FreeholdError::ForkedChild as i32;

/// Returns which of the child's calls did not fail as they must, as bits.
fn calls_in_child(block: *mut std::ffi::c_void, stream: CUstream) -> u8 {
    let told = |is_null: bool| is_null && freehold_last_error_code() == FORKED;
    let outcomes = [
        told(freehold_alloc(512, 0, stream).is_null()),
        told(freehold_alloc_zeroed(512, 0, stream).is_null()),
        told(freehold_realloc(block, 1024, 0, stream).is_null()),
        freehold_try_free(block, 512, 0, stream) == FORKED,
        last_error().ends_with("which this process was forked from: release it there"),
        freehold_record_use(block, stream) == FORKED && freehold_stream_retire(stream) == FORKED,
        freehold_trim(0, 0) == FORKED && freehold_live_bytes(0) == 0 && set_tag_budget() == FORKED,
        freehold_owner_of(block, Some(&mut MaybeUninit::uninit())) == FORKED,
    ];
    outcomes.iter().enumerate().map(|(index, &is_right)| u8::from(!is_right) << index).sum()
}

fn set_tag_budget() -> i32 {
    // SAFETY: the tag is a text that ends with a zero.
    unsafe { freehold_set_tag_budget(0, c"forked".as_ptr(), 1000) }
}

#[test]
fn a_forked_child_is_refused_and_its_parent_is_untouched() {
    run_in_child("a_forked_child_is_refused_and_its_parent_is_untouched", || {
        let fixture = Fixture::new();
        let stream = fixture.stream();
        let block = alloc(512, stream);
        // SAFETY: the child makes only calls that the test is about, none of which needs another thread, and then ends without
        // the handlers of its parent.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let wrong = calls_in_child(block, stream);
            // SAFETY: ends the child, whose memory is its own.
            unsafe { libc::_exit(wrong.into()) }
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call, which writes one `i32` to it.
        assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the bits name the calls");
        assert_eq!(freehold_live_bytes(0), 512);
        // The child's budget does not affect its parent.
        // SAFETY: as above.
        let tagged = unsafe { freehold_alloc_tagged(2000, 0, stream, c"forked".as_ptr()) };
        free(tagged, stream);
        free(block, stream);
        fixture.end(stream);
    });
}
