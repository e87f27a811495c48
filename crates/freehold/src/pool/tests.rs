//! The pool at its limits, which are low in these tests; its counters; and memory that moves between streams while
//! other threads look at it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use freehold_driver::cuda::{CUstream, context, primary, stream, stream_flags};

use crate::api::block::Block;
use crate::api::device::Device;
use crate::api::external_access::ExternalAccess;
use crate::api::foreign::ForeignPool;
use crate::api::stream::Stream;
use crate::base::pool_stats::PoolStats;
use crate::base::sync_point::{self, SyncPoint};
use crate::error::Error;
use crate::ledger::StreamId;
use crate::pool::biased_lock::{BiasedLock, Closed};

const LARGE: usize = 8 << 20;

fn device() -> Device {
    // SAFETY: the table is the device's alone.
    let opened = unsafe { crate::api::open::open(None) }.unwrap();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    unsafe { Device::new(opened.api, opened.device) }.unwrap()
}

/// Holds all later work of `stream` up until the lending is done.
fn hold(stream: &Stream, gate: &mut Block<u8>) -> ExternalAccess {
    let lent = stream.lend_mut(gate).unwrap();
    stream.fill_bytes(gate, 1).unwrap();
    lent
}

/// Calls `act` in a thread, and returns when that has ended, and given all that it kept to the heaps.
fn in_thread(act: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(act).join().unwrap());
}

/// Destroys a stream, and returns when its heap can be another's.
fn end(device: &Device, stream: Stream) {
    let id = stream.id();
    stream.synchronize().unwrap();
    stream.close().unwrap();
    while device.inner().streams.get(id).is_some() {
        device.tidy().unwrap();
        thread::yield_now();
    }
}

#[test]
fn a_block_is_lent_after_the_stream_that_has_adopted_its_heap() {
    let device = device();
    let [a, c] = [(); 2].map(|()| device.new_stream().unwrap());
    let [mut gate_a, mut gate_b] = [(); 2].map(|()| c.zeros::<u8>(512).unwrap());
    let mut block = a.alloc::<u8>(LARGE).unwrap();
    let address = block.address();
    c.synchronize().unwrap();
    let held_a = hold(&a, &mut gate_a);
    a.fill_bytes(&mut block, 1).unwrap();
    in_thread(|| drop(block));
    // What is free is that block, which the first stream has not passed.
    device.set_budget(device.stats().reserved_bytes);
    let mut second: Option<(Stream, ExternalAccess)> = None;
    let lent = sync_point::within(
        SyncPoint::LendIncomplete,
        || c.alloc::<u8>(LARGE),
        || {
            held_a.done();
            end(&device, a);
            let b = device.new_stream().unwrap();
            let mut block = b.alloc::<u8>(LARGE).unwrap();
            assert_eq!(block.address(), address, "the second stream has the first one's heap");
            let held_b = hold(&b, &mut gate_b);
            b.fill_bytes(&mut block, 2).unwrap();
            in_thread(|| drop(block));
            second = Some((b, held_b));
        },
    );
    let (b, held_b) = second.unwrap();
    assert_eq!(lent.unwrap().address(), address);
    let used: (StreamId, u64) = (b.id(), b.inner.state.current_fence().seq);
    assert!(c.inner.state.has_waited(used.0, used.1), "the second stream is still to write the block");
    held_b.done();
}

#[test]
fn a_small_block_of_a_heap_that_a_foreign_stream_adopted_is_not_lent() {
    // SAFETY: the table is the device's alone.
    let opened = unsafe { crate::api::open::open(None) }.unwrap();
    let device = device();
    let foreign_pool = ForeignPool::new(&device, 77, false);
    let [a, c] = [(); 2].map(|()| device.new_stream().unwrap());
    let block = a.alloc::<u8>(512).unwrap();
    in_thread(|| drop(block));
    a.synchronize().unwrap();
    let mut freed = 0;
    let lent = sync_point::within(
        SyncPoint::LendSmall,
        || c.alloc::<u8>(512),
        || {
            end(&device, a);
            let primary = primary::retain(&opened.api, opened.device).unwrap();
            context::push_current(&opened.api, primary).unwrap();
            let b: CUstream = stream::create(&opened.api, stream_flags::NON_BLOCKING).unwrap();
            context::pop_current(&opened.api).unwrap();
            // Nobody can tell what the program has put into its stream.
            freed = foreign_pool.alloc(512, b).unwrap();
            in_thread(|| foreign_pool.free(freed, b).unwrap());
        },
    );
    // The thread here keeps some of the slab's blocks, and the one that was freed comes first of the rest.
    assert_ne!(lent.unwrap().address(), freed, "the block is free in the order of the program's stream");
}

#[test]
fn a_block_too_many_is_refused_and_one_that_was_released_is_handed_out_again() {
    let opened = crate::api::open::opened(None).unwrap();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let device = unsafe { Device::new(opened.api, opened.device) }.unwrap();
    let stream = device.new_stream().unwrap();
    let mut blocks = Vec::new();
    let refused = loop {
        match stream.alloc::<u8>(1) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyBlocks { blocks_max: 131_072 }), "{refused}");
    assert!(blocks.len() > 110_000, "{} blocks", blocks.len());
    // Nor one that is longer than the classes, when the last metas are used.
    let mut longer = Vec::new();
    let refused = loop {
        match stream.alloc::<u8>(100 << 10) {
            Ok(block) => longer.push(block),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyBlocks { blocks_max: 131_072 }), "{refused}");
    assert!(longer.len() <= 64, "{} blocks", longer.len());
    drop(longer);
    blocks.pop();
    blocks.push(stream.alloc::<u8>(1).unwrap());
    drop(blocks);
    device.synchronize().unwrap();
    device.trim().unwrap();
    assert_eq!(device.stats(), PoolStats::default());
}

#[test]
fn totals_of_a_moment_in_which_a_release_is_seen_before_its_allocation_are_nothing_and_not_all() {
    let opened = crate::api::open::opened(None).unwrap();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let device = unsafe { Device::new(opened.api, opened.device) }.unwrap();
    let (stream, device) = (device.new_stream().unwrap(), &device.primary.inner.device);
    let reserved_bytes = device.stats().reserved_bytes;
    let heap = device.pool.heap_of(&stream.inner.state);
    heap.counters.sub_live_shared(100);
    let expected = PoolStats { cached_bytes: reserved_bytes, reserved_bytes, ..PoolStats::default() };
    assert_eq!(device.stats(), expected);
    heap.counters.add_live_shared(100);
    assert_eq!(device.stats(), expected);
    heap.counters.add_live_shared(30);
    assert_eq!((device.stats().owned_blocks, device.stats().owned_bytes), (1, 30));
    heap.counters.sub_live_shared(30);
}

#[test]
fn a_thread_enters_its_magazines_again_after_a_revoker_panicked() {
    let lock = BiasedLock::new(1);
    let taken = catch_unwind(AssertUnwindSafe(|| lock.revoke(|_| panic!("in the middle"))));
    assert!(taken.is_err());
    assert_eq!(lock.try_enter().map(|mut entered| *entered.value()), Some(1));
    let closed = catch_unwind(AssertUnwindSafe(|| lock.close(|_| panic!("in the middle"))));
    assert!(closed.is_err());
    assert!(lock.is_closed());
    assert_eq!(lock.enter().map(drop), Err(Closed));
}

#[test]
fn every_address_of_a_block_leads_to_it_and_those_behind_it_do_not() {
    let device = device();
    let stream = device.new_stream().unwrap();
    let sizes = [1, 512, 40_000, 70_000, 300 << 10, (2 << 20) - 1, 3 << 20, 40 << 20];
    let blocks: Vec<_> = sizes.iter().cycle().take(24).map(|&bytes| stream.alloc::<u8>(bytes).unwrap()).collect();
    for block in &blocks {
        let (base, bytes) = (block.address(), block.len() as u64);
        let owner = block.owner();
        assert!(owner.is_some());
        for offset in [0, 1, bytes / 3, bytes / 2, bytes - 1] {
            assert_eq!(device.owner_of(base + offset.min(bytes - 1)), owner, "{offset} bytes into {bytes}");
        }
        let behind = device.owner_of(base + bytes);
        assert!(behind.is_none_or(|behind| behind.base == base + bytes), "the byte after {bytes}");
    }
    let spans: Vec<_> = blocks.iter().map(|block| (block.address(), block.len() as u64)).collect();
    drop(blocks);
    device.synchronize().unwrap();
    device.trim().unwrap();
    for (base, bytes) in spans {
        assert_eq!([base, base + bytes - 1].map(|address| device.owner_of(address)), [None, None]);
    }
}
