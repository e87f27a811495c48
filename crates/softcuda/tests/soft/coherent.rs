//! A device whose memory the host accesses at its device address: `FREEHOLD_SOFT_COHERENT=1`.

use crate::chunks;
use crate::common;

use std::env;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;

use chunks::CHUNK;
use common::{Context, Refused, child};
use freehold_driver::cuda::{
    CUdevice_attribute, CUdeviceptr, CUerror, CUmemAccess_flags, allocation, device, fill, mapping, memory, pointer,
};
use rustix::io::{FdFlags, fcntl_setfd};

const COHERENT: (&str, &str) = ("FREEHOLD_SOFT_COHERENT", "1");

/// The byte that freed memory is filled with.
const POISON: u8 = 0xdb;

/// In a grandchild, names the descriptor to import.
const DESCRIPTOR: &str = "FREEHOLD_TEST_DESCRIPTOR";

fn read(address: CUdeviceptr) -> u8 {
    // SAFETY: the host reaches device memory, or the test is about that it does not.
    unsafe { (address.0 as *const u8).read_volatile() }
}

fn write(address: CUdeviceptr, byte: u8) {
    // SAFETY: as above.
    unsafe { (address.0 as *mut u8).write_volatile(byte) }
}

/// Runs the body of the test `name` in its own process, which must end with a host fault.
#[track_caller]
fn faults(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if child::is_child(name) {
        body();
        panic!("the host was not stopped");
    }
    let outcome = child::run(name, variables);
    assert_eq!(outcome.status.signal(), Some(libc::SIGSEGV), "{}", outcome.output);
}

/// Checks that host and device see the same bytes at an address.
fn check_is_seen(own: &Context, block: CUdeviceptr) {
    assert_eq!(pointer::host_pointer(&own.api, block).unwrap() as u64, block.0);
    own.write(block, &[1; 4096]);
    assert_eq!([read(block), read(common::at(block, 4095))], [1, 1]);
    write(common::at(block, 4095), 2);
    assert_eq!(own.read(block, 4096)[4094..], [1, 2]);
}

#[test]
fn host_and_device_see_the_same_memory_at_the_same_address() {
    child::run_in_child_with("host_and_device_see_the_same_memory_at_the_same_address", &[COHERENT], || {
        let own = Context::create();
        for bytes in [4096, 64 << 20] {
            let block = own.block(bytes);
            check_is_seen(&own, block);
            memory::free(&own.api, block).unwrap();
        }
        let stream = own.stream();
        let block = memory::alloc_async(&own.api, 4096, stream).unwrap();
        own.finish(stream);
        check_is_seen(&own, block);
        memory::free_async(&own.api, block, stream).unwrap();
        let (chunk, start) = (own.chunk(), own.addresses(1));
        own.map(start, chunk);
        check_is_seen(&own, start);
        own.unmap(start, 1);
        own.release(chunk);
    });
}

#[test]
fn attributes_say_what_the_host_reaches_and_not_what_kernels_do_not() {
    child::run_in_child_with("attributes_say_what_the_host_reaches_and_not_what_kernels_do_not", &[COHERENT], || {
        let own = Context::create();
        let attribute = |attribute| device::attribute(&own.api, own.device, attribute).unwrap();
        assert_eq!(attribute(CUdevice_attribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST), 1);
        assert_eq!(attribute(CUdevice_attribute::CONCURRENT_MANAGED_ACCESS), 1);
        // Kernels cannot access host memory that is neither pinned nor registered.
        assert_eq!(attribute(CUdevice_attribute::PAGEABLE_MEMORY_ACCESS), 0);
    });
}

#[test]
fn without_the_setting_the_host_is_said_to_reach_nothing() {
    let own = Context::create();
    let attribute = |attribute| device::attribute(&own.api, own.device, attribute).unwrap();
    assert_eq!(attribute(CUdevice_attribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST), 0);
    let block = own.block(4096);
    assert_eq!(pointer::host_pointer(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn without_the_setting_the_host_cannot_write_mapped_memory() {
    faults("without_the_setting_the_host_cannot_write_mapped_memory", &[], || {
        let own = Context::create();
        let (chunk, start) = (own.chunk(), own.addresses(1));
        own.map(start, chunk);
        write(start, 1);
    });
}

#[test]
fn the_host_finds_freed_memory_overwritten() {
    child::run_in_child_with("the_host_finds_freed_memory_overwritten", &[COHERENT], || {
        let own = Context::create();
        let (_beside, block) = (own.block(512), own.block(4096));
        write(block, 7);
        memory::free(&own.api, block).unwrap();
        assert_eq!(read(block), POISON);
    });
}

#[test]
fn the_host_does_not_reach_memory_that_is_gone() {
    faults("the_host_does_not_reach_memory_that_is_gone", &[COHERENT], || {
        let own = Context::create();
        let block = own.block(64 << 20);
        write(block, 7);
        memory::free(&own.api, block).unwrap();
        read(block);
    });
}

#[test]
fn the_host_does_not_reach_memory_that_no_device_may_use() {
    faults("the_host_does_not_reach_memory_that_no_device_may_use", &[COHERENT], || {
        let own = Context::create();
        let (chunk, start) = (own.chunk(), own.addresses(1));
        mapping::map(&own.api, start, CHUNK, 0, chunk).unwrap();
        assert_eq!(pointer::host_pointer(&own.api, start).code(), CUerror::INVALID_VALUE);
        read(start);
    });
}

#[test]
fn the_host_reads_what_devices_may_read() {
    child::run_in_child_with("the_host_reads_what_devices_may_read", &[COHERENT], || {
        let own = Context::create();
        let (chunk, start) = (own.chunk(), own.addresses(1));
        own.map(start, chunk);
        write(start, 3);
        own.allow(start, 1, CUmemAccess_flags::PROT_READ).unwrap();
        assert_eq!(read(start), 3);
    });
}

#[test]
fn the_host_does_not_write_what_devices_may_only_read() {
    faults("the_host_does_not_write_what_devices_may_only_read", &[COHERENT], || {
        let own = Context::create();
        let (chunk, start) = (own.chunk(), own.addresses(1));
        own.map(start, chunk);
        own.allow(start, 1, CUmemAccess_flags::PROT_READ).unwrap();
        write(start, 3);
    });
}

#[test]
fn memory_of_another_process_is_seen_by_the_host_too() {
    const NAME: &str = "memory_of_another_process_is_seen_by_the_host_too";
    let machine = format!("coherent-{}", std::process::id());
    let shared = [COHERENT, ("FREEHOLD_SOFT_MACHINE", &machine)];
    child::run_in_child_with(NAME, &shared, || {
        let own = Context::create();
        let start = own.addresses(1);
        if let Ok(number) = env::var(DESCRIPTOR) {
            // SAFETY: the starter left the descriptor open for this process, and nobody closes it.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number.parse().unwrap()) };
            own.map(start, allocation::import(&own.api, descriptor).unwrap());
            assert_eq!(read(start), 5);
            write(common::at(start, 1), 6);
            return;
        }
        let chunk = own.chunk();
        own.map(start, chunk);
        fill::d8(&own.api, start, 5, 2).unwrap();
        own.read(start, 1);
        let descriptor = allocation::export(&own.api, chunk).unwrap();
        fcntl_setfd(descriptor.as_fd(), FdFlags::empty()).unwrap();
        let outcome = child::run(NAME, &[(DESCRIPTOR, &descriptor.as_raw_fd().to_string())]);
        assert!(outcome.status.success(), "{}", outcome.output);
        assert_eq!([read(start), read(common::at(start, 1))], [5, 6]);
        assert_eq!(own.read(start, 2), [5, 6]);
    });
}
