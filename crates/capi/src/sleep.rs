//! Sleep and wake: blocks that keep their addresses and give back their memory.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use freehold::Contents;

use crate::call::{c_str, pool, to_code};
use crate::last_error::Failure;

/// Makes the blocks of a tag able to sleep: those that freehold_alloc_tagged allocates from now on, under this tag or
/// tags within it. They lie in memory of their own, which contains no other blocks. At most 64 tags of a device can sleep.
/// A tag that can sleep already stays as it is.
///
/// Returns a freehold_error: FREEHOLD_ERROR_NOT_SLEEPABLE on a device that cannot map memory.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is for the C header, and says what a tag is")]
pub unsafe extern "C" fn freehold_set_sleepable(device: c_int, tag: *const c_char) -> c_int {
    to_code(|| {
        // SAFETY: the caller makes the promise that this function requires.
        let tag = unsafe { c_str("tag", tag) }?;
        pool(device)?.set_sleepable(tag).map_err(Failure::from)
    })
}

/// Returns the memory of all blocks of a tag to the driver. Their addresses stay reserved, and the blocks allocated. If
/// `keep` is not 0, the contents are first copied to pinned host memory; otherwise they have no defined value after
/// freehold_wake. The call waits for all work of the device. From then until freehold_wake, no work may use the blocks.
/// They can be released, and others can be allocated under the tag, which have memory when it wakes.
///
/// Writes how many bytes went back to `bytes`, unless that is null: 0 if the tag was asleep already.
///
/// Returns a freehold_error: FREEHOLD_ERROR_NOT_SLEEPABLE without freehold_set_sleepable, FREEHOLD_ERROR_STREAM_CAPTURED
/// while a stream is being captured. After an error the blocks are awake, with their contents, or all of them are
/// asleep: if the driver refused to take a step back, or to free memory that was unmapped already. Then another call
/// returns what is left, and freehold_wake works as ever.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is for the C header, and says what a tag is")]
pub unsafe extern "C" fn freehold_sleep(
    device: c_int,
    tag: *const c_char,
    keep: c_int,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    to_code(|| {
        // SAFETY: the caller makes the promise that this function requires.
        let tag = unsafe { c_str("tag", tag) }?;
        let contents = if keep == 0 { Contents::Drop } else { Contents::Keep };
        write_bytes(pool(device)?.sleep(tag, contents)?, bytes);
        Ok(())
    })
}

/// Maps new memory for the blocks of a tag that sleeps, at their addresses, and copies kept contents back. Memory is
/// mapped only where blocks are left. Graphs that use the blocks can be launched again.
///
/// Writes how many bytes were mapped to `bytes`, unless that is null: 0 if the tag was awake already.
///
/// Returns a freehold_error. After an error all of the blocks sleep on, and what was kept stays kept:
/// FREEHOLD_ERROR_OUT_OF_MEMORY if there is not enough memory for all of them.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is for the C header, and says what a tag is")]
pub unsafe extern "C" fn freehold_wake(
    device: c_int,
    tag: *const c_char,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    to_code(|| {
        // SAFETY: the caller makes the promise that this function requires.
        let tag = unsafe { c_str("tag", tag) }?;
        write_bytes(pool(device)?.wake(tag)?, bytes);
        Ok(())
    })
}

fn write_bytes(changed_bytes: Option<u64>, bytes: Option<&mut MaybeUninit<usize>>) {
    if let Some(bytes) = bytes {
        bytes.write(changed_bytes.map_or(0, |changed_bytes| changed_bytes as usize));
    }
}
