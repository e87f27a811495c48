//! Foreign pools of devices that map no memory, with interleaved addresses.

use freehold_driver::cuda::{
    Api, CUdeviceptr, CUerror, CUresult, CUstream, CUstreamCaptureMode, capture, context, primary, stream, stream_flags,
};
use freehold_testing::child::run_in_child_with;

use super::ForeignPool;
use crate::api::device::Device;
use crate::error::Error;
use crate::ledger::WrongRelease;

unsafe extern "C" fn reserves_nothing(_: *mut CUdeviceptr, _: usize, _: usize, _: CUdeviceptr, _: u64) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

#[test]
fn an_address_is_one_devices_where_two_have_memory_near_each_other() {
    let opened = crate::api::open::opened(None).unwrap();
    let api = Api { cuMemAddressReserve: reserves_nothing, ..opened.api };
    let foreign_pools =
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        [0, 1].map(|ordinal| ForeignPool::new(&unsafe { Device::new(api, opened.device) }.unwrap(), ordinal, false));
    let blocks = [0, 1].map(|index: usize| foreign_pools[index].alloc(3 << 20, CUstream::NULL).unwrap());
    // Both can tell both apart.
    assert!(
        foreign_pools.iter().all(|foreign_pool| blocks.iter().all(|&block| foreign_pool
            .device
            .pool
            .chunks
            .covers(block)))
    );
    let has = |address| foreign_pools.each_ref().map(|foreign_pool| foreign_pool.has(address));
    assert_eq!(blocks.map(has), [[true, false], [false, true]]);
    let refused = foreign_pools[1].record_use(blocks[0], CUstream::PER_THREAD).unwrap_err();
    assert!(matches!(refused, Error::WrongUse(WrongRelease::NeverAllocated { .. })), "{refused}");
    foreign_pools[0].record_use(blocks[0], CUstream::PER_THREAD).unwrap();
    // Freed memory has no owner, and the pool that had it remembers it.
    foreign_pools[0].free(blocks[0], CUstream::NULL).unwrap();
    foreign_pools[0].device.backend.synchronize().unwrap();
    foreign_pools[0].trim(0).unwrap();
    assert_eq!(foreign_pools[0].reserved_bytes(), 0);
    assert_eq!(has(blocks[0]), [false, false]);
    assert_eq!(foreign_pools.each_ref().map(|foreign_pool| foreign_pool.had(blocks[0])), [true, false]);
    foreign_pools[1].free(blocks[1], CUstream::NULL).unwrap();
}

#[test]
fn no_destroyed_stream_of_a_capture_is_named_when_memory_is_given_back() {
    let name = "no_destroyed_stream_of_a_capture_is_named_when_memory_is_given_back";
    run_in_child_with(name, &[], || {
        let opened = crate::api::open::opened(None).unwrap();
        let api = Api { cuMemAddressReserve: reserves_nothing, ..opened.api };
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(api, opened.device) }.unwrap();
        let foreign_pool = ForeignPool::new(&device, 2, false);
        context::push_current(&api, primary::retain(&api, opened.device).unwrap()).unwrap();
        let captured = stream::create(&api, stream_flags::NON_BLOCKING).unwrap();
        capture::begin(&api, captured, CUstreamCaptureMode::RELAXED).unwrap();
        let block = foreign_pool.alloc(3 << 20, captured).unwrap();
        foreign_pool.free(block, captured).unwrap();
        capture::end(&api, captured).unwrap();
        foreign_pool.retire(captured).unwrap();
        stream::destroy(&api, captured).unwrap();
        let other = foreign_pool.alloc(40 << 20, CUstream::NULL).unwrap();
        foreign_pool.free(other, CUstream::NULL).unwrap();
        foreign_pool.device.backend.synchronize().unwrap();
        let reserved = foreign_pool.reserved_bytes();
        foreign_pool.trim(0).unwrap();
        assert!(foreign_pool.reserved_bytes() < reserved, "what no graph uses goes back");
    });
}

#[test]
fn a_pending_free_ends_the_ownership_and_keeps_the_memory() {
    let opened = crate::api::open::opened(None).unwrap();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let foreign_pool = ForeignPool::new(&unsafe { Device::new(opened.api, opened.device) }.unwrap(), 3, false);
    let (bytes, legacy) = (3 << 20, CUstream::NULL);
    let block = foreign_pool.alloc(bytes, legacy).unwrap();
    let pending = foreign_pool.begin_free(block).unwrap();
    assert_eq!(pending.bytes(), bytes);
    let twice = foreign_pool.begin_free(block).unwrap_err();
    assert!(matches!(twice, Error::WrongRelease(_)), "{twice}");
    let twice = foreign_pool.free(block, legacy).unwrap_err();
    assert!(matches!(twice, Error::WrongRelease(_)), "{twice}");
    let other = foreign_pool.alloc(bytes, legacy).unwrap();
    assert_ne!(other, block, "the memory is still in use");
    // A new owner gets the block as it is.
    assert_eq!(foreign_pool.cancel_free(pending), block);
    let pending = [block, other].map(|address| foreign_pool.begin_free(address).unwrap());
    foreign_pool.finish_free(pending, legacy).unwrap();
    let again = [bytes, bytes].map(|bytes| foreign_pool.alloc(bytes, legacy).unwrap());
    assert!(again.contains(&block) && again.contains(&other), "{again:x?} are neither {block:x} nor {other:x}");
    let refused = foreign_pool.begin_free(block + 256).unwrap_err();
    assert!(matches!(refused, Error::WrongRelease(_)), "{refused}");
    for address in again {
        foreign_pool.free(address, legacy).unwrap();
    }
    assert_eq!(foreign_pool.live_bytes(), 0);
}
