//! The free memory that a device reports. It counts the whole device, so each test runs in its own process.

use crate::common;

use common::{Context, child};
use freehold_driver::cuda::{memory, stream};

const MIB: usize = 1 << 20;

/// Runs the body of the test `name` in its own process, where no other test uses memory.
#[track_caller]
fn alone(name: &str, body: impl FnOnce(&Context)) {
    child::run_in_child(name, || body(&Context::create()));
}

fn free_bytes(own: &Context) -> usize {
    memory::info(&own.api).unwrap().free_bytes
}

#[test]
fn free_memory_falls_by_a_block_and_rises_again() {
    alone("free_memory_falls_by_a_block_and_rises_again", |own| {
        let before = free_bytes(own);
        let block = own.block(64 * MIB);
        assert_eq!(before - free_bytes(own), 64 * MIB);
        memory::free(&own.api, block).unwrap();
        assert_eq!(free_bytes(own), before);
    });
}

#[test]
fn blocks_take_whole_pages_of_2_mib() {
    alone("blocks_take_whole_pages_of_2_mib", |own| {
        for (bytes, pages) in [(2 * MIB, 1), (3 * MIB, 2), (2 * MIB + 1, 2)] {
            let before = free_bytes(own);
            own.block(bytes);
            assert_eq!(before - free_bytes(own), pages * 2 * MIB, "{bytes} bytes");
        }
    });
}

#[test]
fn a_small_block_in_a_page_that_is_there_takes_no_more() {
    alone("a_small_block_in_a_page_that_is_there_takes_no_more", |own| {
        own.block(512);
        let before = free_bytes(own);
        own.block(512);
        assert_eq!(free_bytes(own), before);
    });
}

#[test]
fn the_memory_of_a_destroyed_context_returns() {
    alone("the_memory_of_a_destroyed_context_returns", |own| {
        let ends = own.another();
        let before = free_bytes(own);
        ends.block(64 * MIB);
        assert_eq!(before - free_bytes(own), 64 * MIB);
        ends.destroy();
        let after = free_bytes(own);
        assert!(after >= before, "{after} bytes are free, {before} were before");
    });
}

#[test]
fn the_memory_of_a_pool_is_the_devices_until_a_wait_gives_it_back() {
    alone("the_memory_of_a_pool_is_the_devices_until_a_wait_gives_it_back", |own| {
        let stream = own.stream();
        let before = free_bytes(own);
        let block = memory::alloc_async(&own.api, 64 * MIB, stream).unwrap();
        assert_eq!(before - free_bytes(own), 64 * MIB);
        memory::free_async(&own.api, block, stream).unwrap();
        assert_eq!(before - free_bytes(own), 64 * MIB);
        stream::synchronize(&own.api, stream).unwrap();
        assert_eq!(free_bytes(own), before);
    });
}
