//! Memory guarantees of the software driver alone: the content of freed memory, placement, the settings, and that the
//! host cannot access device memory.

use crate::common;

use std::os::unix::process::ExitStatusExt;

use common::{Context, Refused, at, child, driver, untouched};
use freehold_driver::cuda::{
    CUerror, CUmemPool_attribute, CUmemPoolProps, context, device, driver, fill, managed, memory, pool, stream,
};

const MIB: usize = 1 << 20;

/// The byte that freed memory is filled with.
const POISON: u8 = 0xdb;

#[test]
fn a_freed_block_comes_back_at_once_overwritten() {
    let own = Context::create();
    for bytes in [512, 4096, MIB] {
        let (_beside, block) = (own.block(512), own.block(bytes));
        fill::d8(&own.api, block, 7, bytes).unwrap();
        assert_eq!(own.byte(block, bytes), 7);
        memory::free(&own.api, block).unwrap();
        assert_eq!(own.block(bytes), block);
        assert_eq!(own.byte(block, bytes), POISON);
    }
}

#[test]
fn a_large_freed_block_comes_back_overwritten_where_it_was_written() {
    child::run_in_child("a_large_freed_block_comes_back_overwritten_where_it_was_written", || {
        let own = Context::create();
        let block = own.block(64 * MIB);
        fill::d8(&own.api, at(block, 10 * MIB as u64), 7, 3 * MIB).unwrap();
        context::synchronize(&own.api).unwrap();
        memory::free(&own.api, block).unwrap();
        assert_eq!(own.block(64 * MIB), block);
        assert_eq!(own.byte(at(block, 10 * MIB as u64), 3 * MIB), POISON);
    });
}

#[test]
fn the_blocks_of_a_destroyed_context_come_back_overwritten() {
    child::run_in_child("the_blocks_of_a_destroyed_context_come_back_overwritten", || {
        let own = Context::create();
        let ends = own.another();
        let block = ends.block(4 * MIB);
        fill::d8(&ends.api, block, 7, 4 * MIB).unwrap();
        ends.destroy();
        assert_eq!(own.block(4 * MIB), block);
        assert_eq!(own.byte(block, 4 * MIB), POISON);
    });
}

#[test]
fn a_block_freed_in_the_order_of_a_stream_is_overwritten_there() {
    let own = Context::create();
    let stream = own.stream();
    let made = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
    pool::set_attribute(&own.api, made, CUmemPool_attribute::RELEASE_THRESHOLD, u64::MAX).unwrap();
    let alloc = || memory::alloc_from_pool_async(&own.api, 4096, made, stream).unwrap();
    let block = alloc();
    fill::d8_async(&own.api, block, 7, 4096, stream).unwrap();
    own.finish(stream);
    assert_eq!(own.byte(block, 4096), 7);
    memory::free_async(&own.api, block, stream).unwrap();
    assert_eq!(alloc(), block);
    own.finish(stream);
    assert_eq!(own.byte(block, 4096), POISON);
    memory::free_async(&own.api, block, stream).unwrap();
    pool::destroy(&own.api, made).unwrap();
}

#[test]
fn memory_lies_at_the_same_addresses_in_every_run() {
    const NAME: &str = "memory_lies_at_the_same_addresses_in_every_run";
    if child::is_child(NAME) {
        let own = Context::create();
        for bytes in [1, 4096, MIB, 64 * MIB] {
            child::report_line(&format!("{:#x}", own.block(bytes).0));
        }
        return;
    }
    let [first, second] = [(); 2].map(|()| child::run(NAME, &[]).reported);
    assert_eq!(first.len(), 4);
    assert_eq!(first, second);
}

#[test]
fn the_host_cannot_read_device_memory() {
    const NAME: &str = "the_host_cannot_read_device_memory";
    if child::is_child(NAME) {
        let own = Context::create();
        let block = own.block(4096);
        own.write(block, &[1; 4096]);
        // SAFETY: none: that this read ends the process is what the test is about.
        let byte = unsafe { (block.0 as *const u8).read_volatile() };
        panic!("the host read {byte}");
    }
    let outcome = child::run(NAME, &[]);
    assert_eq!(outcome.status.signal(), Some(libc::SIGSEGV), "{}", outcome.output);
}

#[test]
fn the_environment_sets_the_size_of_a_device() {
    const NAME: &str = "the_environment_sets_the_size_of_a_device";
    child::run_in_child_with(NAME, &[("FREEHOLD_SOFT_MEMORY", "64MiB")], || {
        let own = Context::create();
        assert_eq!(device::total_bytes(&own.api, own.device), Ok(67_108_864));
        let blocks: Vec<_> = (0..32).map(|_| own.block(2 * MIB)).collect();
        assert_eq!(memory::alloc(&own.api, 2 * MIB).code(), CUerror::OUT_OF_MEMORY);
        blocks.iter().for_each(|block| memory::free(&own.api, *block).unwrap());
        assert_eq!(memory::free(&own.api, own.block(64 * MIB)), Ok(()));
    });
}

/// As on an H200: a refused request has no side effects, and blocks of up to 1 MiB still fit in pages that hold small
/// blocks.
#[test]
fn after_an_out_of_memory_smaller_blocks_are_still_allocated() {
    const NAME: &str = "after_an_out_of_memory_smaller_blocks_are_still_allocated";
    child::run_in_child_with(NAME, &[("FREEHOLD_SOFT_MEMORY", "64MiB")], || {
        let own = Context::create();
        let refused = |bytes| assert_eq!(memory::alloc(&own.api, bytes).code(), CUerror::OUT_OF_MEMORY);
        refused(1 << 50);
        own.block(512);
        refused(64 * MIB);
        own.block(60 * MIB);
        refused(4 * MIB);
        own.block(2 * MIB);
        refused(2 * MIB);
        for _ in 0..4095 {
            own.block(512);
        }
        refused(512);
    });
}

/// As on an H200: the device is full to its last page, and no page holds small blocks.
#[test]
fn a_device_without_a_free_page_has_no_small_block_either() {
    const NAME: &str = "a_device_without_a_free_page_has_no_small_block_either";
    child::run_in_child_with(NAME, &[("FREEHOLD_SOFT_MEMORY", "64MiB")], || {
        let own = Context::create();
        let blocks: Vec<_> = (0..32).map(|_| own.block(2 * MIB)).collect();
        assert_eq!(memory::alloc(&own.api, 512).code(), CUerror::OUT_OF_MEMORY);
        memory::free(&own.api, blocks[5]).unwrap();
        own.block(512);
    });
}

/// The same for the driver's pools, whose chunks have 32 MiB.
#[test]
fn after_an_out_of_memory_a_pool_still_has_smaller_blocks() {
    const NAME: &str = "after_an_out_of_memory_a_pool_still_has_smaller_blocks";
    child::run_in_child_with(NAME, &[("FREEHOLD_SOFT_MEMORY", "64MiB")], || {
        let own = Context::create();
        let stream = own.stream();
        let alloc = |bytes| memory::alloc_async(&own.api, bytes, stream);
        assert_eq!(alloc(1 << 50).code(), CUerror::OUT_OF_MEMORY);
        alloc(40 * MIB).unwrap();
        assert_eq!(alloc(40 * MIB).code(), CUerror::OUT_OF_MEMORY);
        alloc(512).unwrap();
        alloc(MIB).unwrap();
    });
}

#[test]
fn memory_that_a_pool_does_not_use_is_the_devices_when_nothing_else_is_left() {
    const NAME: &str = "memory_that_a_pool_does_not_use_is_the_devices_when_nothing_else_is_left";
    child::run_in_child_with(NAME, &[("FREEHOLD_SOFT_MEMORY", "64MiB")], || {
        let own = Context::create();
        let stream = own.stream();
        let made = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
        pool::set_attribute(&own.api, made, CUmemPool_attribute::RELEASE_THRESHOLD, u64::MAX).unwrap();
        let block = memory::alloc_from_pool_async(&own.api, 60 * MIB, made, stream).unwrap();
        assert_eq!(memory::alloc(&own.api, 60 * MIB).code(), CUerror::OUT_OF_MEMORY);
        memory::free_async(&own.api, block, stream).unwrap();
        own.finish(stream);
        assert_eq!(memory::free(&own.api, own.block(60 * MIB)), Ok(()));
    });
}

#[test]
fn a_pool_with_no_memory_left_waits_in_the_stream_for_what_is_freed() {
    const NAME: &str = "a_pool_with_no_memory_left_waits_in_the_stream_for_what_is_freed";
    child::run_in_child_with(NAME, &[("FREEHOLD_SOFT_MEMORY", "64MiB")], || {
        let own = Context::create();
        let (first, second) = (own.stream(), own.stream());
        let made = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
        let alloc = |stream| memory::alloc_from_pool_async(&own.api, 60 * MIB, made, stream);
        let gate = common::Gate::closed(&own);
        let block = alloc(first).unwrap();
        gate.hold(&own.api, first);
        fill::d8_async(&own.api, block, 1, 60 * MIB, first).unwrap();
        memory::free_async(&own.api, block, first).unwrap();
        let internal = CUmemPool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES;
        pool::set_attribute(&own.api, made, internal, 0).unwrap();
        assert_eq!(gate.shut_during(|| alloc(second)).code(), CUerror::OUT_OF_MEMORY);
        pool::set_attribute(&own.api, made, internal, 1).unwrap();
        assert_eq!(gate.shut_during(|| alloc(second)), Ok(block));
        fill::d8_async(&own.api, block, 2, 60 * MIB, second).unwrap();
        assert_eq!(stream::query(&own.api, second), Ok(false));
        gate.opened_during(|| own.finish(second));
        assert_eq!(own.byte(block, 60 * MIB), 2);
        memory::free_async(&own.api, block, second).unwrap();
    });
}

#[test]
fn a_setting_that_cannot_be_read_is_refused_when_the_driver_initializes() {
    const NAME: &str = "a_setting_that_cannot_be_read_is_refused_when_the_driver_initializes";
    if child::is_child(NAME) {
        let (api, _) = untouched();
        child::report_line(&format!("{:?}", driver::init(&api, 0).map_err(|error| error.code)));
        return;
    }
    let answer = |variable: &str, value: &str| child::run(NAME, &[(variable, value)]).reported;
    for (variable, right, wrong) in [
        ("FREEHOLD_SOFT_MEMORY", "128MiB", "lots"),
        ("FREEHOLD_SOFT_DEVICES", "2", "0"),
        ("FREEHOLD_SOFT_SCHEDULE", "seed:4", "seed:x"),
    ] {
        assert_eq!(answer(variable, right), ["Ok(())"]);
        assert_eq!(answer(variable, wrong), ["Err(CUDA_ERROR_INVALID_VALUE (1))"]);
    }
}

#[test]
fn before_it_is_initialized_the_driver_answers_what_needs_no_device() {
    child::run_in_child("before_it_is_initialized_the_driver_answers_what_needs_no_device", || {
        let (api, device) = untouched();
        assert_eq!(driver::version(&api), Ok(13000));
        assert_eq!(driver::error_name(&api, 700), Ok("CUDA_ERROR_ILLEGAL_ADDRESS".to_owned()));
        assert_eq!(device::count(&api).code(), CUerror::NOT_INITIALIZED);
        assert_eq!(context::create(&api, device, 0).code(), CUerror::NOT_INITIALIZED);
        assert_eq!(driver::init(&api, 1).code(), CUerror::INVALID_VALUE);
        assert_eq!(driver::init(&api, 0), Ok(()));
        assert_eq!(device::count(&api), Ok(1));
    });
}

#[test]
fn a_device_has_a_name_and_a_number_of_its_own() {
    let (api, device) = driver();
    assert_eq!(device::name(&api, device), Ok("Freehold Software Device 0".to_owned()));
    assert_eq!(device::at(&api, 0), Ok(device));
    assert_eq!(device::at(&api, 1).code(), CUerror::INVALID_DEVICE);
    assert_eq!(device::at(&api, -1).code(), CUerror::INVALID_DEVICE);
}

/// NVIDIA's driver crashes on such flags.
#[test]
fn managed_memory_is_attached_in_one_way() {
    let own = Context::create();
    let (memory, stream) = (own.managed(4096), own.stream());
    for flags in [0, 3] {
        let attached = managed::attach(&own.api, stream, memory.address(), 0, flags);
        assert_eq!(attached.unwrap_err().code, CUerror::INVALID_VALUE);
    }
}
