//! Stream-ordered allocation: which freed memory a stream reuses, and what a pool keeps.

use crate::common;

use std::sync::atomic::Ordering;

use common::{Context, Gate, Refused, address, at, child, until};
use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUstream, context, copy, device, event, fill, memory, pointer,
    pool, stream,
};

const MIB: usize = 1 << 20;

/// A pool of one test: all tests share the default pool.
struct Pool<'c> {
    own: &'c Context,
    handle: CUmemoryPool,
}

impl<'c> Pool<'c> {
    fn new(own: &'c Context) -> Self {
        Self { own, handle: pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap() }
    }

    fn alloc(&self, bytes: usize, stream: CUstream) -> CUdeviceptr {
        memory::alloc_from_pool_async(&self.own.api, bytes, self.handle, stream).unwrap()
    }

    fn free(&self, block: CUdeviceptr, stream: CUstream) {
        memory::free_async(&self.own.api, block, stream).unwrap();
    }

    fn set(&self, attribute: CUmemPool_attribute, value: u64) {
        pool::set_attribute(&self.own.api, self.handle, attribute, value).unwrap();
    }

    fn used(&self) -> u64 {
        pool::used_bytes(&self.own.api, self.handle).unwrap()
    }

    fn reserved_mib(&self) -> u64 {
        pool::reserved_bytes(&self.own.api, self.handle).unwrap() / MIB as u64
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        let destroyed = pool::destroy(&self.own.api, self.handle);
        assert!(std::thread::panicking() || destroyed == Ok(()), "a pool is destroyed: {destroyed:?}");
    }
}

/// Makes later work of `to` wait for the work in `from`.
fn order(own: &Context, from: CUstream, to: CUstream) {
    let event = event::create(&own.api, 2).unwrap();
    event::record(&own.api, event, from).unwrap();
    stream::wait_event(&own.api, to, event, 0).unwrap();
    event::destroy(&own.api, event).unwrap();
}

#[test]
fn a_block_is_used_and_freed_in_the_order_of_its_stream() {
    let own = Context::create();
    let (pool, stream, copied) = (Pool::new(&own), own.stream(), own.pinned(4096));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    let block = gate.shut_during(|| pool.alloc(4096, stream));
    fill::d8_async(&own.api, block, 5, 4096, stream).unwrap();
    copy::device_to_device_async(&own.api, copied.address(), block, 4096, stream).unwrap();
    gate.shut_during(|| pool.free(block, stream));
    gate.open();
    own.finish(stream);
    assert_eq!(common::same(&copied.to_vec()), 5);
}

#[test]
fn a_stream_gets_at_once_what_it_freed() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let block = pool.alloc(MIB, stream);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    fill::d8_async(&own.api, block, 1, MIB, stream).unwrap();
    pool.free(block, stream);
    assert_eq!(gate.shut_during(|| pool.alloc(MIB, stream)), block);
}

#[test]
fn another_stream_does_not_get_what_is_not_yet_free() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    let block = pool.alloc(MIB, first);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    pool.free(block, first);
    assert_ne!(gate.shut_during(|| pool.alloc(MIB, second)), block);
}

#[test]
fn another_stream_that_waits_for_the_free_gets_the_block() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    let block = pool.alloc(MIB, first);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    pool.free(block, first);
    order(&own, first, second);
    assert_eq!(gate.shut_during(|| pool.alloc(MIB, second)), block);
    fill::d8_async(&own.api, block, 3, MIB, second).unwrap();
    gate.opened_during(|| own.finish(second));
    assert_eq!(own.byte(block, MIB), 3);
}

#[test]
fn another_stream_that_waited_before_the_free_does_not_get_the_block() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    let block = pool.alloc(MIB, first);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    order(&own, first, second);
    pool.free(block, first);
    assert_ne!(gate.shut_during(|| pool.alloc(MIB, second)), block);
}

#[test]
fn a_wait_over_a_third_stream_counts() {
    let own = Context::create();
    let [first, second, third] = [(); 3].map(|()| own.stream());
    let pool = Pool::new(&own);
    let block = pool.alloc(MIB, first);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    pool.free(block, first);
    order(&own, first, second);
    order(&own, second, third);
    assert_eq!(gate.shut_during(|| pool.alloc(MIB, third)), block);
}

#[test]
fn a_pool_that_does_not_follow_events_gives_another_block() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    pool.set(CUmemPool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
    let block = pool.alloc(MIB, first);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, first);
    pool.free(block, first);
    order(&own, first, second);
    assert_ne!(gate.shut_during(|| pool.alloc(MIB, second)), block);
}

#[test]
fn any_stream_gets_what_the_host_knows_to_be_free() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    pool.set(CUmemPool_attribute::RELEASE_THRESHOLD, u64::MAX);
    for opportunistic in [1, 0] {
        pool.set(CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC, opportunistic);
        let block = pool.alloc(MIB, first);
        pool.free(block, first);
        own.finish(first);
        let again = pool.alloc(MIB, second);
        assert_eq!(again, block);
        pool.free(again, second);
        own.finish(second);
    }
}

#[test]
fn any_stream_gets_what_is_free_unknown_to_the_host_if_the_pool_looks() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    let words = own.words();
    for (opportunistic, word) in [(0, &words[0]), (1, &words[1])] {
        pool.set(CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC, opportunistic);
        let block = pool.alloc(MIB, first);
        pool.free(block, first);
        stream::write_value_32(&own.api, first, address(word), 1, 0).unwrap();
        // The stream has passed the free, but no driver call has observed that.
        until(|| word.load(Ordering::SeqCst) == 1);
        let other = pool.alloc(MIB, second);
        assert_eq!(other == block, opportunistic == 1);
        pool.free(other, second);
        context::synchronize(&own.api).unwrap();
    }
}

#[test]
fn a_block_freed_where_another_stream_still_writes_is_overwritten() {
    let own = Context::create();
    let (pool, writer, other) = (Pool::new(&own), own.stream(), own.stream());
    let block = pool.alloc(4096, other);
    own.finish(other);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, writer);
    fill::d8_async(&own.api, block, 0xaa, 4096, writer).unwrap();
    pool.free(block, other);
    assert_eq!(pool.alloc(4096, other), block);
    fill::d8_async(&own.api, block, 0xbb, 4096, other).unwrap();
    gate.shut_during(|| own.finish(other));
    assert_eq!(own.byte(block, 4096), 0xbb);
    gate.open();
    own.finish(writer);
    assert_eq!(own.byte(block, 4096), 0xaa);
}

#[test]
fn a_freed_block_is_divided() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let block = pool.alloc(MIB, stream);
    pool.free(block, stream);
    let halves = [pool.alloc(MIB / 2, stream), pool.alloc(MIB / 2, stream)];
    assert!(halves.contains(&block) && halves.contains(&at(block, MIB as u64 / 2)), "{halves:?} lie in {block:?}");
}

#[test]
fn two_single_bytes_of_a_pool_lie_512_bytes_apart() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let (first, second) = (pool.alloc(1, stream), pool.alloc(1, stream));
    assert_eq!(second.0.abs_diff(first.0), 512);
}

#[test]
fn another_stream_uses_a_block_that_it_waited_for() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    let block = pool.alloc(4096, first);
    order(&own, first, second);
    fill::d8_async(&own.api, block, 4, 4096, second).unwrap();
    order(&own, second, first);
    pool.free(block, first);
    own.finish(first);
}

#[test]
fn a_block_is_freed_once() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let (_beside, block) = (pool.alloc(512, stream), pool.alloc(4096, stream));
    assert_eq!(memory::free_async(&own.api, block, stream), Ok(()));
    assert_eq!(memory::free_async(&own.api, block, stream).code(), CUerror::INVALID_VALUE);
    assert_eq!(memory::free(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn freeing_null_does_nothing_and_freeing_an_invalid_address_is_refused() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let block = pool.alloc(4096, stream);
    assert_eq!(memory::free_async(&own.api, CUdeviceptr::NULL, stream), Ok(()));
    for wrong in [at(block, 256), CUdeviceptr(0x1234_5600), own.pinned(512).address()] {
        assert_eq!(memory::free_async(&own.api, wrong, stream).code(), CUerror::INVALID_VALUE);
    }
    let managed = own.managed(512).address();
    assert_eq!(memory::free_async(&own.api, managed, stream).code(), CUerror::NOT_SUPPORTED);
    assert_eq!(memory::free_async(&own.api, block, stream), Ok(()));
}

#[test]
fn a_block_of_no_pool_is_freed_in_the_order_of_a_stream_too() {
    let own = Context::create();
    let (_beside, block, stream) = (own.block(512), own.block(4096), own.stream());
    assert_eq!(memory::free_async(&own.api, block, stream), Ok(()));
    own.finish(stream);
    assert_eq!(memory::free(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_block_of_a_pool_is_freed_at_once_too_and_its_stream_is_not_waited_for() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let (_beside, block) = (pool.alloc(512, stream), pool.alloc(4096, stream));
    own.finish(stream);
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    assert_eq!(gate.shut_during(|| memory::free(&own.api, block)), Ok(()));
    gate.open();
    assert_eq!(memory::free_async(&own.api, block, stream).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_freed_block_is_not_used_any_more() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let (_beside, block) = (pool.alloc(512, stream), pool.alloc(4096, stream));
    pool.free(block, stream);
    assert_eq!(fill::d8_async(&own.api, block, 1, 4096, stream).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_block_outlives_its_stream() {
    let own = Context::create();
    let (pool, first, second) = (Pool::new(&own), own.stream(), own.stream());
    let block = pool.alloc(4096, first);
    stream::destroy(&own.api, first).unwrap();
    fill::d8(&own.api, block, 2, 4096).unwrap();
    assert_eq!(own.byte(block, 4096), 2);
    assert_eq!(memory::free_async(&own.api, block, second), Ok(()));
}

#[test]
fn a_block_is_freed_in_a_stream_of_another_context() {
    let one = Context::create();
    let (pool, stream) = (Pool::new(&one), one.stream());
    let block = pool.alloc(4096, stream);
    one.finish(stream);
    let two = one.another();
    let other = two.stream();
    assert_eq!(memory::free_async(&two.api, block, other), Ok(()));
    two.finish(other);
}

#[test]
fn a_pool_begins_empty_with_all_reuse_on_and_keeps_nothing() {
    let own = Context::create();
    let pool = Pool::new(&own);
    let attributes: Vec<_> =
        (1..=8).map(|number| pool::attribute(&own.api, pool.handle, CUmemPool_attribute(number)).unwrap()).collect();
    assert_eq!(attributes, [1, 1, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn used_memory_is_what_was_asked_for() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let (byte, block) = (pool.alloc(1, stream), pool.alloc(MIB, stream));
    assert_eq!(pool.used(), 1_048_577);
    pool.free(block, stream);
    assert_eq!(pool.used(), 1);
    pool.free(byte, stream);
    assert_eq!(pool.used(), 0);
}

#[test]
fn a_pool_grows_by_steps_of_32_mib() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let small = pool.alloc(1, stream);
    assert_eq!(pool.reserved_mib(), 32);
    let large = pool.alloc(40 * MIB, stream);
    assert_eq!(pool.reserved_mib(), 64);
    pool.free(small, stream);
    pool.free(large, stream);
    assert_eq!(pool.reserved_mib(), 64);
}

#[test]
fn a_wait_gives_back_what_the_pool_may_not_keep() {
    let own = Context::create();
    let stream = own.stream();
    for (threshold, kept_mib) in [(0, 0), (u64::MAX, 64)] {
        let pool = Pool::new(&own);
        pool.set(CUmemPool_attribute::RELEASE_THRESHOLD, threshold);
        let block = pool.alloc(40 * MIB, stream);
        pool.free(block, stream);
        own.finish(stream);
        assert_eq!(pool.reserved_mib(), kept_mib);
    }
}

#[test]
fn a_trim_returns_free_memory_down_to_the_minimum() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    pool.set(CUmemPool_attribute::RELEASE_THRESHOLD, u64::MAX);
    let (live, free) = (pool.alloc(40 * MIB, stream), pool.alloc(40 * MIB, stream));
    pool.free(free, stream);
    own.finish(stream);
    assert_eq!(pool.reserved_mib(), 96);
    pool::trim(&own.api, pool.handle, 96 * MIB).unwrap();
    assert_eq!(pool.reserved_mib(), 96);
    pool::trim(&own.api, pool.handle, 0).unwrap();
    assert_eq!(pool.reserved_mib(), 64);
    fill::d8_async(&own.api, live, 1, 40 * MIB, stream).unwrap();
    pool.free(live, stream);
    own.finish(stream);
    pool::trim(&own.api, pool.handle, 0).unwrap();
    assert_eq!(pool.reserved_mib(), 0);
}

#[test]
fn high_water_marks_stay_until_they_are_set_to_zero() {
    let own = Context::create();
    let (pool, stream) = (Pool::new(&own), own.stream());
    let high = || pool::used_bytes_high(&own.api, pool.handle).unwrap();
    let set = |attribute, value| pool::set_attribute(&own.api, pool.handle, attribute, value);
    pool.free(pool.alloc(MIB, stream), stream);
    assert_eq!(high(), 1_048_576);
    assert_eq!(set(CUmemPool_attribute::USED_MEM_HIGH, 1).code(), CUerror::INVALID_VALUE);
    assert_eq!(high(), 1_048_576);
    assert_eq!(set(CUmemPool_attribute::USED_MEM_HIGH, 0), Ok(()));
    assert_eq!(high(), 0);
    for current in [CUmemPool_attribute::USED_MEM_CURRENT, CUmemPool_attribute::RESERVED_MEM_CURRENT] {
        assert_eq!(set(current, 0).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn a_destroyed_pool_lives_as_long_as_its_blocks() {
    let own = Context::create();
    let stream = own.stream();
    let pool = Pool::new(&own);
    let block = pool.alloc(4096, stream);
    let handle = pool.handle;
    drop(pool);
    assert_eq!(memory::alloc_from_pool_async(&own.api, 512, handle, stream).code(), CUerror::INVALID_VALUE);
    fill::d8_async(&own.api, block, 9, 4096, stream).unwrap();
    own.finish(stream);
    assert_eq!(own.byte(block, 4096), 9);
    assert_eq!(memory::free_async(&own.api, block, stream), Ok(()));
    own.finish(stream);
}

#[test]
fn the_default_pool_is_not_destroyed() {
    let own = Context::create();
    let default = device::default_pool(&own.api, own.device).unwrap();
    assert_eq!(pool::destroy(&own.api, default).code(), CUerror::INVALID_VALUE);
    let block = memory::alloc_from_pool_async(&own.api, 512, default, CUstream::LEGACY).unwrap();
    assert_eq!(memory::free_async(&own.api, block, CUstream::LEGACY), Ok(()));
}

#[test]
fn a_pool_takes_no_more_than_it_may() {
    let own = Context::create();
    let stream = own.stream();
    let props = CUmemPoolProps { maxSize: 32 * MIB, ..CUmemPoolProps::on_device(own.device) };
    let pool = Pool { own: &own, handle: pool::create(&own.api, &props).unwrap() };
    let alloc = |bytes| memory::alloc_from_pool_async(&own.api, bytes, pool.handle, stream);
    assert_eq!(alloc(64 * MIB).code(), CUerror::OUT_OF_MEMORY);
    pool.free(alloc(16 * MIB).unwrap(), stream);
    own.finish(stream);
}

#[test]
fn more_than_the_device_has_is_out_of_memory() {
    let own = Context::create();
    let stream = own.stream();
    assert_eq!(memory::alloc_async(&own.api, 1 << 50, stream).code(), CUerror::OUT_OF_MEMORY);
    let block = memory::alloc_async(&own.api, 512, stream).unwrap();
    assert_eq!(memory::free_async(&own.api, block, stream), Ok(()));
}

#[test]
fn a_pool_is_of_a_device_and_of_a_kind() {
    let own = Context::create();
    let right = CUmemPoolProps::on_device(own.device);
    let nowhere = CUmemPoolProps { location: CUmemLocation { kind: CUmemLocationType::DEVICE, id: 99 }, ..right };
    let nothing = CUmemPoolProps { allocType: CUmemAllocationType::INVALID, ..right };
    for wrong in [nowhere, nothing] {
        assert_eq!(pool::create(&own.api, &wrong).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn the_device_of_a_pool_may_read_and_write_it() {
    let own = Context::create();
    let pool = Pool::new(&own);
    let here = CUmemLocation { kind: CUmemLocationType::DEVICE, id: own.device.0 };
    assert_eq!(pool::access(&own.api, pool.handle, here), Ok(CUmemAccess_flags::PROT_READWRITE));
}

#[test]
fn allocation_in_the_null_stream_needs_a_context() {
    let (api, _) = common::driver();
    assert_eq!(context::current(&api), Ok(CUcontext::NULL));
    assert_eq!(memory::alloc_async(&api, 512, CUstream::NULL).code(), CUerror::INVALID_CONTEXT);
}

#[test]
fn the_current_pool_of_a_device_is_what_allocation_takes_from() {
    child::run_in_child("the_current_pool_of_a_device_is_what_allocation_takes_from", || {
        let own = Context::create();
        let stream = own.stream();
        let default = device::default_pool(&own.api, own.device).unwrap();
        assert_eq!(device::pool(&own.api, own.device), Ok(default));
        let made = pool::create(&own.api, &CUmemPoolProps::on_device(own.device)).unwrap();
        device::set_pool(&own.api, own.device, made).unwrap();
        let block = memory::alloc_async(&own.api, 4096, stream).unwrap();
        assert_eq!(pointer::pool(&own.api, block), Ok(made));
        pool::destroy(&own.api, made).unwrap();
        assert_eq!(device::pool(&own.api, own.device), Ok(default));
        assert_eq!(memory::free_async(&own.api, block, stream), Ok(()));
    });
}
