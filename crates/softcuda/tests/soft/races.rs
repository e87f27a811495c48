//! Regression tests for concurrent and excessive use: no call hangs, loses another thread's handle or leaks addresses.

use crate::common;

use std::sync::Barrier;
use std::thread;

use common::{Context, child};
use freehold_driver::cuda::{CUerror, CUmemAccessDesc, CUmemPoolProps, context, fill, memory, pool, stream};
use freehold_testing::at_effort;

const MIB: usize = 1 << 20;

#[test]
fn work_added_to_a_stream_while_it_is_destroyed_comes_to_an_end() {
    const NAME: &str = "work_added_to_a_stream_while_it_is_destroyed_comes_to_an_end";
    child::run_in_child_with(NAME, &[("FREEHOLD_SOFT_SCHEDULE", "eager")], || {
        let own = Context::create();
        let block = own.block(512);
        for _ in 0..at_effort(100, 2000, 10_000) {
            let (shared, start) = (own.stream(), Barrier::new(2));
            thread::scope(|scope| {
                scope.spawn(|| {
                    own.enter();
                    start.wait();
                    // Until the stream is gone. The test checks that no call waits forever.
                    while fill::d8_async(&own.api, block, 1, 512, shared).is_ok() {}
                });
                start.wait();
                stream::destroy(&own.api, shared).unwrap();
            });
            context::synchronize(&own.api).unwrap();
        }
    });
}

#[test]
fn many_small_pools_leave_addresses_for_others() {
    child::run_in_child_with(
        "many_small_pools_leave_addresses_for_others",
        &[("FREEHOLD_SOFT_MEMORY", "1GiB")],
        || {
            let own = Context::create();
            let stream = own.stream();
            for _ in 0..24 {
                let made = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
                memory::alloc_from_pool_async(&own.api, 1, made, stream).unwrap();
            }
            memory::alloc(&own.api, 64 * MIB).unwrap();
        },
    );
}

#[test]
fn more_places_than_there_are_devices_are_refused() {
    let own = Context::create();
    let made = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
    let place = CUmemAccessDesc::default();
    // SAFETY: the count is refused before the list is read.
    let outcome = unsafe { (own.api.cuMemPoolSetAccess)(made, &place, 1 << 40) };
    assert_eq!(outcome, Err(CUerror::INVALID_VALUE));
}
