//! The memory behind the blocks: segments, and chunks for other processes.

use crate::fixture;

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use fixture::{Fixture, NONE, alloc, free, handle, last_error};
use freehold_capi::*;

const MIB: usize = 1 << 20;

fn segments() -> Vec<FreeholdSegment> {
    let empty = FreeholdSegment { base: ptr::null_mut(), size: 0, stream: handle(0) };
    let (mut out, mut count) = (vec![empty; 64], MaybeUninit::uninit());
    // SAFETY: there is room for 64 segments.
    let code = unsafe { freehold_segments(0, out.as_mut_ptr(), out.len(), Some(&mut count)) };
    assert_eq!(code, NONE, "{}", last_error());
    // SAFETY: it was written, as the call succeeded.
    out.truncate(unsafe { count.assume_init() });
    out
}

#[test]
fn segments_add_up_to_what_is_reserved_and_contain_the_blocks() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let blocks = [(alloc(3 * MIB, handle(0)), handle(0)), (alloc(40 * MIB, stream), stream)];
    let now = segments();
    assert_eq!(now.iter().map(|segment| segment.size).sum::<usize>(), freehold_reserved_bytes(0));
    for (block, of) in blocks {
        let holds = |segment: &&FreeholdSegment| {
            (segment.base as usize..segment.base as usize + segment.size).contains(&(block as usize))
        };
        let around = now.iter().find(holds).expect("a block lies in a segment");
        assert_eq!(around.stream, of);
        free(block, of);
    }
    fixture.synchronize(stream);
    fixture.end(stream);
    assert_eq!(fixture.left_bytes(), 0);
    assert!(segments().is_empty());
}

#[test]
fn a_block_is_exported_chunk_by_chunk() {
    let fixture = Fixture::new();
    assert_eq!(fixture.left_bytes(), 0, "memory from before cannot be exported");
    assert_eq!(freehold_make_exportable(0), NONE, "{}", last_error());
    let block = alloc(5 * MIB, handle(0));
    let empty = FreeholdChunk { base: ptr::null_mut(), size: 0, descriptor: -1 };
    let (mut out, mut count) = ([empty; 8], MaybeUninit::uninit());
    // SAFETY: there is room for 8 chunks, and the block is not freed.
    let code = unsafe { freehold_export(block, out.as_mut_ptr(), 8, Some(&mut count)) };
    assert_eq!(code, NONE, "{}", last_error());
    // SAFETY: it was written, as the call succeeded.
    let chunks = &out[..unsafe { count.assume_init() }];
    let (start, end) = (block as usize, block as usize + 5 * MIB);
    assert!(chunks[0].base as usize <= start);
    assert!(chunks.iter().map(|chunk| chunk.base as usize + chunk.size).max() >= Some(end));
    for chunk in chunks {
        // SAFETY: the descriptor is the caller's.
        drop(unsafe { OwnedFd::from_raw_fd(chunk.descriptor) });
    }
    free(block, handle(0));
    drop(fixture);
}

#[test]
fn what_is_not_a_block_is_not_exported() {
    let fixture = Fixture::new();
    let mut count = MaybeUninit::uninit();
    // SAFETY: nothing is written to an array without elements.
    let code = unsafe { freehold_export(handle(64).cast(), ptr::null_mut(), 0, Some(&mut count)) };
    assert_eq!(code, FreeholdError::NeverAllocated as i32);
    drop(fixture);
}

#[test]
fn peers_are_devices_that_can_access_the_memory() {
    let fixture = Fixture::new();
    let block = alloc(3 * MIB, handle(0));
    // SAFETY: as many numbers are passed as is said, or none.
    let set = |peers: *const i32, count| unsafe { freehold_set_peers(0, peers, count) };
    assert_eq!(set(ptr::null(), 1), FreeholdError::NullArgument as i32);
    // What is mapped already is accessible to the device itself, and is offered to it again.
    assert_eq!(set(&0, 1), NONE, "{}", last_error());
    assert_eq!(set(&99, 1), FreeholdError::Driver as i32);
    // A refused device is not kept for what is mapped later.
    free(alloc(100 * MIB, handle(0)), handle(0));
    assert_eq!(set(ptr::null(), 0), NONE, "{}", last_error());
    free(block, handle(0));
    drop(fixture);
}
