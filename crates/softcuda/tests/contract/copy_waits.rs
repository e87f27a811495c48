//! Copies: the work that they wait for, and whether they are done when they return.

use crate::common;

use common::{Context, Gate, same};
use freehold_driver::cuda::{CUpointer_attribute, CUstream, copy, fill, pointer};

#[test]
fn a_synchronous_copy_with_pageable_memory_waits_for_blocking_streams() {
    let own = Context::create();
    let (stream, block) = (own.blocking(), own.block(4096));
    own.write(block, &[1; 4096]);
    let mut found = [0; 4096];
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    fill::d8_async(&own.api, block, 2, 4096, stream).unwrap();
    gate.opened_during(|| copy::device_to_host(&own.api, &mut found, block)).unwrap();
    assert_eq!(same(&found), 2);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    fill::d8_async(&own.api, block, 3, 4096, stream).unwrap();
    gate.opened_during(|| copy::host_to_device(&own.api, block, &[4; 4096])).unwrap();
    assert_eq!(own.byte(block, 4096), 4);
}

#[test]
fn a_synchronous_copy_does_not_wait_for_other_streams() {
    let own = Context::create();
    let (stream, block) = (own.stream(), own.block(4096));
    let pinned = own.pinned(4096);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| own.write(block, &[5; 4096]));
    assert_eq!(gate.shut_during(|| own.byte(block, 4096)), 5);
    // SAFETY: the pinned memory outlives the call, which is done with it when it returns.
    let copied = || unsafe { copy::unified(&own.api, pinned.address(), block, 4096) };
    gate.shut_during(copied).unwrap();
    assert_eq!(same(&pinned.to_vec()), 5);
}

#[test]
fn a_synchronous_copy_with_pinned_memory_is_done_when_it_returns() {
    let own = Context::create();
    let (stream, block, pinned) = (own.blocking(), own.block(4096), own.pinned(4096));
    pinned.fill(6);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    // SAFETY: the pinned memory outlives the call, which is done with it when it returns.
    let copied = || unsafe { copy::unified(&own.api, block, pinned.address(), 4096) };
    gate.opened_during(copied).unwrap();
    pinned.fill(7);
    assert_eq!(own.byte(block, 4096), 6);
}

#[test]
fn a_copy_within_the_device_does_not_keep_the_host_unless_asked_to() {
    let own = Context::create();
    let (stream, from, to, asks) = (own.blocking(), own.block(4096), own.block(4096), own.block(4096));
    pointer::set_attribute(&own.api, asks, CUpointer_attribute::SYNC_MEMOPS, 1).unwrap();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| copy::device_to_device(&own.api, to, from, 4096)).unwrap();
    gate.opened_during(|| copy::device_to_device(&own.api, asks, from, 4096)).unwrap();
}

#[test]
fn a_copy_to_pageable_memory_in_a_blocking_stream_waits_for_the_default_stream() {
    let own = Context::create();
    let (blocking, block) = (own.blocking(), own.block(4096));
    own.write(block, &[1; 4096]);
    let mut found = vec![0_u8; 4096];
    let gate = Gate::closed(&own);
    gate.hold(&own.api, CUstream::LEGACY);
    fill::d8_async(&own.api, block, 2, 4096, CUstream::LEGACY).unwrap();
    let to = found.as_mut_ptr().cast();
    // SAFETY: `found` outlives the copy, which is done when the call returns.
    let copied = || unsafe { copy::device_to_host_async(&own.api, to, block, 4096, blocking) };
    gate.opened_during(copied).unwrap();
    own.finish(blocking);
    assert_eq!(same(&found), 2);
}

#[test]
fn a_copy_to_pageable_memory_in_another_stream_does_not_wait_for_the_default_stream() {
    let own = Context::create();
    let (stream, block) = (own.stream(), own.block(4096));
    own.write(block, &[1; 4096]);
    let mut found = vec![0_u8; 4096];
    let gate = Gate::closed(&own);
    gate.hold(&own.api, CUstream::LEGACY);
    fill::d8_async(&own.api, block, 2, 4096, CUstream::LEGACY).unwrap();
    let to = found.as_mut_ptr().cast();
    // SAFETY: `found` outlives the copy, which is done when the call returns.
    let copied = || unsafe { copy::device_to_host_async(&own.api, to, block, 4096, stream) };
    gate.shut_during(copied).unwrap();
    gate.shut_during(|| own.finish(stream));
    assert_eq!(same(&found), 1);
}
