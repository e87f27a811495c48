//! Host memory that a device uses: pinned by the driver, registered by the program, or managed.

use crate::common;

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;

use common::{Context, Gate, Refused, child, pages, same};
use freehold_driver::cuda::{
    Api, CUdeviceptr, CUerror, DriverError, attach_flags, context, copy, fill, host, host_alloc_flags, memory,
};

/// Frees pinned memory that no test still uses, or an address that is not pinned memory.
fn free(api: &Api, start: *mut c_void) -> Result<(), DriverError> {
    // SAFETY: each test gives what it does not use afterwards, or what the driver refuses.
    unsafe { host::free(api, start) }
}

/// Registers memory of [`pages`], which stays mapped, or an invalid address.
fn register(api: &Api, start: *mut c_void, bytes: usize, flags: u32) -> Result<(), DriverError> {
    // SAFETY: pages are mapped until the process ends, and no reference to them exists.
    unsafe { host::register(api, start, bytes, flags) }
}

/// Unregisters memory that no work uses.
fn unregister(api: &Api, start: *mut c_void) -> Result<(), DriverError> {
    // SAFETY: each test waits for its work before.
    unsafe { host::unregister(api, start) }
}

fn interior(start: *mut c_void, bytes: usize) -> *mut c_void {
    start.wrapping_byte_add(bytes)
}

#[test]
fn the_host_reads_what_the_device_wrote_to_pinned_memory() {
    let own = Context::create();
    let pinned = own.pinned(4096);
    pinned.fill(1);
    fill::d8(&own.api, pinned.address(), 2, 2048).unwrap();
    let found = pinned.to_vec();
    assert_eq!((same(&found[..2048]), same(&found[2048..])), (2, 1));
}

#[test]
fn the_device_reads_what_the_host_wrote_to_pinned_memory() {
    let own = Context::create();
    let (pinned, block) = (own.pinned(4096), own.block(4096));
    pinned.fill(3);
    copy::device_to_device(&own.api, block, pinned.address(), 4096).unwrap();
    assert_eq!(own.byte(block, 4096), 3);
}

#[test]
fn pinned_memory_is_freed_once() {
    child::run_in_child("pinned_memory_is_freed_once", || {
        let own = Context::create();
        let start = host::alloc(&own.api, 4096).unwrap();
        assert_eq!(free(&own.api, start), Ok(()));
        assert_eq!(free(&own.api, start).code(), CUerror::INVALID_VALUE);
    });
}

#[test]
fn an_interior_address_of_pinned_memory_is_not_freed() {
    let own = Context::create();
    let pinned = own.pinned(8192);
    assert_eq!(free(&own.api, interior(pinned.pointer(), 1)).code(), CUerror::INVALID_VALUE);
    assert_eq!(free(&own.api, interior(pinned.pointer(), 4096)).code(), CUerror::INVALID_VALUE);
    pinned.fill(1);
    assert_eq!(free(&own.api, pinned.pointer()), Ok(()));
}

#[test]
fn each_kind_of_memory_is_freed_by_its_own_call() {
    let own = Context::create();
    let (block, pinned, registered) = (own.block(4096), own.pinned(4096), own.registered(4096));
    assert_eq!(free(&own.api, block.0 as *mut c_void).code(), CUerror::INVALID_VALUE);
    assert_eq!(free(&own.api, registered.pointer()).code(), CUerror::INVALID_VALUE);
    assert_eq!(memory::free(&own.api, pinned.address()).code(), CUerror::INVALID_VALUE);
    assert_eq!(memory::free(&own.api, registered.address()).code(), CUerror::INVALID_VALUE);
    assert_eq!(free(&own.api, pinned.pointer()), Ok(()));
    assert_eq!(memory::free(&own.api, block), Ok(()));
    assert_eq!(unregister(&own.api, registered.pointer()), Ok(()));
}

#[test]
fn pinned_memory_of_no_bytes_and_null_are_freed_for_nothing() {
    let own = Context::create();
    let nothing = host::alloc(&own.api, 0).unwrap();
    assert_eq!(free(&own.api, nothing), Ok(()));
    assert_eq!(free(&own.api, ptr::null_mut()), Ok(()));
}

#[test]
fn a_pageable_address_is_not_freed_as_pinned_memory() {
    let own = Context::create();
    assert_eq!(free(&own.api, pages(4096)).code(), CUerror::INVALID_VALUE);
}

#[test]
fn another_context_frees_pinned_memory() {
    let own = Context::create();
    let pinned = own.pinned(4096);
    let other = own.another();
    assert_eq!(free(&other.api, pinned.pointer()), Ok(()));
}

#[test]
fn pinned_memory_takes_three_flags_and_no_other() {
    let own = Context::create();
    for flags in 0..8 {
        let start = host::alloc_with_flags(&own.api, 4096, flags).unwrap();
        assert_eq!(free(&own.api, start), Ok(()));
    }
    for flags in [8, 0x10, u32::MAX] {
        assert_eq!(host::alloc_with_flags(&own.api, 4096, flags).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn pinned_memory_reports_its_flags_and_is_always_mapped() {
    let own = Context::create();
    let told = |flags| host::flags(&own.api, host::alloc_with_flags(&own.api, 4096, flags).unwrap()).unwrap();
    assert_eq!(told(0), host_alloc_flags::DEVICEMAP);
    assert_eq!(told(7), 7);
}

#[test]
fn memory_that_is_not_pinned_has_no_flags() {
    let own = Context::create();
    assert_eq!(host::flags(&own.api, pages(4096)).code(), CUerror::INVALID_VALUE);
    assert_eq!(host::flags(&own.api, own.block(4096).0 as *mut c_void).code(), CUerror::INVALID_VALUE);
}

#[test]
fn the_device_sees_host_memory_where_the_host_does() {
    let own = Context::create();
    for shared in [own.pinned(8192), own.registered(8192)] {
        for offset in [0, 1, 4096, 8191] {
            let seen = host::device_address(&own.api, interior(shared.pointer(), offset), 0);
            assert_eq!(seen, Ok(CUdeviceptr(shared.address().0 + offset as u64)));
        }
    }
}

#[test]
fn memory_that_is_not_pinned_has_no_device_address() {
    let own = Context::create();
    let pinned = own.pinned(4096);
    assert_eq!(host::device_address(&own.api, pages(4096), 0).code(), CUerror::INVALID_VALUE);
    assert_eq!(host::device_address(&own.api, ptr::null_mut(), 0).code(), CUerror::INVALID_VALUE);
    assert_eq!(host::device_address(&own.api, pinned.pointer(), 1).code(), CUerror::INVALID_VALUE);
}

#[test]
fn memory_is_registered_once_and_unregistered_once() {
    let own = Context::create();
    let start = pages(8192);
    assert_eq!(register(&own.api, start, 8192, 0), Ok(()));
    assert_eq!(register(&own.api, start, 8192, 0).code(), CUerror::HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!(unregister(&own.api, start), Ok(()));
    assert_eq!(unregister(&own.api, start).code(), CUerror::HOST_MEMORY_NOT_REGISTERED);
    assert_eq!(register(&own.api, start, 4096, 0), Ok(()));
}

#[test]
fn memory_that_was_never_registered_is_not_unregistered() {
    let own = Context::create();
    assert_eq!(unregister(&own.api, pages(4096)).code(), CUerror::HOST_MEMORY_NOT_REGISTERED);
}

#[test]
fn registered_ranges_do_not_overlap_but_may_touch() {
    let own = Context::create();
    let start = pages(4 * 4096);
    assert_eq!(register(&own.api, interior(start, 4096), 8192, 0), Ok(()));
    let refused = CUerror::HOST_MEMORY_ALREADY_REGISTERED;
    assert_eq!(register(&own.api, start, 8192, 0).code(), refused);
    assert_eq!(register(&own.api, interior(start, 8192), 8192, 0).code(), refused);
    assert_eq!(register(&own.api, interior(start, 4096), 4096, 0).code(), refused);
    assert_eq!(register(&own.api, start, 4096, 0), Ok(()));
    assert_eq!(register(&own.api, interior(start, 3 * 4096), 4096, 0), Ok(()));
}

#[test]
fn pinned_memory_is_neither_registered_nor_unregistered() {
    let own = Context::create();
    let pinned = own.pinned(4096);
    assert_eq!(register(&own.api, pinned.pointer(), 4096, 0).code(), CUerror::INVALID_VALUE);
    assert_eq!(unregister(&own.api, pinned.pointer()).code(), CUerror::INVALID_VALUE);
    assert_eq!(free(&own.api, pinned.pointer()), Ok(()));
}

#[test]
fn registered_memory_is_unregistered_by_its_start() {
    let own = Context::create();
    let registered = own.registered(8192);
    assert_eq!(unregister(&own.api, interior(registered.pointer(), 4096)).code(), CUerror::INVALID_VALUE);
    assert_eq!(unregister(&own.api, registered.pointer()), Ok(()));
}

#[test]
fn registered_memory_need_not_be_whole_pages() {
    let own = Context::create();
    let (start, block) = (interior(pages(4096), 24), own.block(100));
    assert_eq!(register(&own.api, start, 100, 0), Ok(()));
    assert_eq!(host::device_address(&own.api, start, 0), Ok(CUdeviceptr(start as u64)));
    own.write(block, &[3; 100]);
    assert_eq!(copy::device_to_device(&own.api, CUdeviceptr(start as u64), block, 100), Ok(()));
    assert_eq!(own.byte(CUdeviceptr(start as u64), 100), 3);
}

#[test]
fn memory_is_registered_with_known_flags_alone() {
    let own = Context::create();
    let start = pages(4096);
    for flags in [1, 2, 3] {
        assert_eq!(register(&own.api, start, 4096, flags), Ok(()));
        assert_eq!(unregister(&own.api, start), Ok(()));
    }
    for flags in [0x10, u32::MAX] {
        assert_eq!(register(&own.api, start, 4096, flags).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn nothing_is_not_registered() {
    let own = Context::create();
    assert_eq!(register(&own.api, ptr::null_mut(), 4096, 0).code(), CUerror::INVALID_VALUE);
    assert_eq!(register(&own.api, pages(4096), 0, 0).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_registration_ends_with_its_context() {
    let stays = Context::create();
    let ends = stays.another();
    let start = pages(4096);
    assert_eq!(register(&ends.api, start, 4096, 0), Ok(()));
    ends.destroy();
    stays.enter();
    assert_eq!(register(&stays.api, start, 4096, 0), Ok(()));
}

#[test]
fn a_copy_from_pinned_memory_takes_what_is_there_when_it_runs() {
    let own = Context::create();
    let (stream, block) = (own.stream(), own.block(4096));
    for shared in [own.pinned(4096), own.registered(4096)] {
        let gate = Gate::closed(&own);
        shared.fill(1);
        gate.hold(&own.api, stream);
        // SAFETY: the memory lives as long as the context, and the copy reads it once.
        let copied = || unsafe { copy::host_to_device_async(&own.api, block, shared.pointer(), 4096, stream) };
        gate.shut_during(copied).unwrap();
        shared.fill(2);
        gate.open();
        own.finish(stream);
        assert_eq!(own.byte(block, 4096), 2);
    }
}

#[test]
fn a_copy_from_pageable_memory_takes_what_was_there_when_it_was_asked_for() {
    let own = Context::create();
    let (stream, block) = (own.stream(), own.block(4096));
    let gate = Gate::closed(&own);
    let mut bytes = vec![1_u8; 4096];
    gate.hold(&own.api, stream);
    // SAFETY: the bytes outlive the stream's work; the test is about bytes that change before that.
    let copied = || unsafe { copy::host_to_device_async(&own.api, block, bytes.as_ptr().cast(), 4096, stream) };
    gate.shut_during(copied).unwrap();
    bytes.fill(2);
    gate.open();
    own.finish(stream);
    assert_eq!(own.byte(block, 4096), 1);
}

#[test]
fn a_copy_to_pinned_memory_does_not_wait_and_one_to_pageable_memory_does() {
    let own = Context::create();
    let (stream, block, pinned) = (own.stream(), own.block(4096), own.pinned(4096));
    fill::d8(&own.api, block, 5, 4096).unwrap();
    context::synchronize(&own.api).unwrap();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    let to = |to| {
        // SAFETY: both targets outlive the stream's work, and are read when it is done.
        unsafe { copy::device_to_host_async(&own.api, to, block, 4096, stream) }
    };
    gate.shut_during(|| to(pinned.pointer())).unwrap();
    assert_eq!(same(&pinned.to_vec()), 0);
    let mut bytes = vec![0_u8; 4096];
    gate.opened_during(|| to(bytes.as_mut_ptr().cast())).unwrap();
    assert_eq!(same(&bytes), 5);
    own.finish(stream);
    assert_eq!(same(&pinned.to_vec()), 5);
}

#[test]
fn freeing_pinned_memory_waits_for_work() {
    let own = Context::create();
    let (stream, pinned) = (own.stream(), own.pinned(4096));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    assert_eq!(gate.opened_during(|| free(&own.api, pinned.pointer())), Ok(()));
}

#[test]
fn allocating_and_registering_do_not_wait_for_work_and_unregistering_does() {
    let own = Context::create();
    let (stream, start) = (own.stream(), pages(4096));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| host::alloc(&own.api, 4096)).unwrap();
    gate.shut_during(|| register(&own.api, start, 4096, 0)).unwrap();
    gate.opened_during(|| unregister(&own.api, start)).unwrap();
}

#[test]
fn freeing_managed_memory_waits_for_work() {
    let own = Context::create();
    let (stream, managed) = (own.stream(), own.managed(4096));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    assert_eq!(gate.opened_during(|| memory::free(&own.api, managed.address())), Ok(()));
}

#[test]
fn managed_memory_is_the_hosts_and_the_devices_by_one_address() {
    let own = Context::create();
    let (managed, block) = (own.managed(8192), own.block(8192));
    fill::d8(&own.api, managed.address(), 4, 8192).unwrap();
    context::synchronize(&own.api).unwrap();
    assert_eq!(same(&managed.to_vec()), 4);
    managed.bytes()[8191].store(9, Ordering::SeqCst);
    copy::device_to_device(&own.api, block, managed.address(), 8192).unwrap();
    assert_eq!(own.read(block, 8192)[8190..], [4, 9]);
}

#[test]
fn managed_memory_is_freed_as_device_memory_is() {
    let own = Context::create();
    let managed = own.managed(4096);
    assert_eq!(free(&own.api, managed.pointer()).code(), CUerror::INVALID_VALUE);
    assert_eq!(memory::free(&own.api, managed.address()), Ok(()));
}

#[test]
fn managed_memory_is_attached_to_all_or_to_the_host() {
    let own = Context::create();
    for flags in [attach_flags::GLOBAL, attach_flags::HOST] {
        let start = memory::alloc_managed(&own.api, 4096, flags).unwrap();
        assert_eq!(memory::free(&own.api, start), Ok(()));
    }
    for flags in [0, attach_flags::GLOBAL | attach_flags::HOST, attach_flags::SINGLE, 8] {
        assert_eq!(memory::alloc_managed(&own.api, 4096, flags).code(), CUerror::INVALID_VALUE);
    }
    assert_eq!(memory::alloc_managed(&own.api, 0, attach_flags::GLOBAL).code(), CUerror::INVALID_VALUE);
}
