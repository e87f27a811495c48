//! Blocks of foreign code that sleep: the pool by stream handle and address, as C has it. Each test has its own process.

use crate::children::alone;
use crate::foreign_pools;

use foreign_pools::{Host, MIB};
use freehold::ledger::State;
use freehold::{Contents, Error};
use freehold_driver::cuda::{CUdeviceptr, CUstream, CUstreamCaptureMode, capture, copy, fill, graph};

/// Allocates a block under "weights" and fills it in the order of its stream.
fn filled(host: &Host, stream: CUstream, bytes: u64, value: u8) -> u64 {
    let block = host.allocator.alloc_tagged(bytes, stream, "weights").unwrap();
    fill::d8_async(&host.api, CUdeviceptr(block), value, bytes as usize, stream).unwrap();
    block
}

#[track_caller]
fn assert_has(host: &Host, block: u64, bytes: u64, value: u8) {
    host.synchronize();
    let mut found = vec![0; bytes as usize];
    copy::device_to_host(&host.api, &mut found, CUdeviceptr(block)).unwrap();
    assert!(found == vec![value; bytes as usize], "not all of it is {value}");
}

#[test]
fn tagged_blocks_of_foreign_code_sleep_and_wake_with_their_contents() {
    alone("tagged_blocks_of_foreign_code_sleep_and_wake_with_their_contents", || {
        let host = Host::new();
        let pool = host.allocator;
        pool.set_sleepable("weights").unwrap();
        let [one, other] = [(); 2].map(|()| host.stream());
        let plain = pool.alloc(1000, one).unwrap();
        fill::d8_async(&host.api, CUdeviceptr(plain), 9, 1000, one).unwrap();
        host.synchronize();
        let reserved_bytes = pool.reserved_bytes();
        let [small, large, gone] = [(3000, one, 1), (5 * MIB, other, 2), (4 * MIB, one, 3)]
            .map(|(bytes, stream, value)| filled(&host, stream, bytes, value));
        pool.record_use(large, one).unwrap();
        let live_bytes = pool.live_bytes();

        // It waits for the fills.
        assert!(pool.sleep("weights", Contents::Keep).unwrap().unwrap() >= 9 * MIB);
        assert_eq!(pool.sleep("weights", Contents::Keep).unwrap(), None);
        assert_eq!((pool.reserved_bytes(), pool.live_bytes()), (reserved_bytes, live_bytes));
        assert_eq!(pool.owner_of(large + 5).unwrap().state, State::Asleep);
        assert_eq!(pool.block_around(large + 5), Some((large, 5 * MIB)));
        assert_has(&host, plain, 1000, 9);
        pool.free(gone, one).unwrap();
        let grown = pool.alloc_tagged(20 * MIB, other, "weights").unwrap();
        // In place it is bookkeeping; to move it would read it.
        assert!(matches!(pool.realloc(small, 10 * MIB, one), Err(Error::Asleep { .. })));
        assert_eq!(pool.reserved_bytes(), reserved_bytes);

        assert!(pool.wake("weights").unwrap().is_some());
        // SAFETY: the block stays.
        let exported = unsafe { pool.export_block(large) };
        assert!(matches!(exported, Err(Error::NotShareable { .. })), "it would keep the memory");
        fill::d8_async(&host.api, CUdeviceptr(grown), 4, 20 << 20, other).unwrap();
        assert_has(&host, grown, 20 * MIB, 4);
        assert_has(&host, large, 5 * MIB, 2);
        assert_has(&host, small, 3000, 1);
        let moved = pool.realloc(small, 6 * MIB, one).unwrap();
        assert_has(&host, moved, 3000, 1);
        assert_eq!(pool.tag_bytes("weights"), 31 * MIB);

        pool.sleep("weights", Contents::Drop).unwrap().unwrap();
        assert_eq!(pool.reserved_bytes(), reserved_bytes, "what was moved is in the same memory");
        pool.free_after_all(grown).unwrap();
        let pending = pool.begin_free(moved).unwrap();
        let moved = pool.cancel_free(pending);
        let pending = pool.begin_free(moved).unwrap();
        pool.finish_free([pending], one).unwrap();
        pool.free(large, other).unwrap();
        let twice = pool.free(large, other).unwrap_err();
        assert!(matches!(twice, Error::WrongRelease(_)), "{twice}");
        host.synchronize();
        pool.trim(0).unwrap();
        assert_eq!((pool.tag_bytes("weights"), pool.live_bytes()), (0, 1000));
        assert_eq!(pool.wake("weights").unwrap(), Some(0));
        pool.free(plain, one).unwrap();
        host.synchronize();
        pool.trim(0).unwrap();
        assert_eq!((pool.reserved_bytes(), pool.live_bytes()), (0, 0));
    });
}

#[test]
fn a_capture_is_not_invalidated_by_a_sleep_that_it_refuses() {
    alone("a_capture_is_not_invalidated_by_a_sleep_that_it_refuses", || {
        let host = Host::new();
        let (pool, stream) = (host.allocator, host.stream());
        pool.set_sleepable("weights").unwrap();
        let block = filled(&host, stream, MIB, 1);
        host.synchronize();
        capture::begin(&host.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
        // The library learns of the capture.
        pool.record_use(block, stream).unwrap();
        assert!(matches!(pool.sleep("weights", Contents::Keep), Err(Error::StreamCaptured)));
        let made = capture::end(&host.api, stream).unwrap();
        graph::destroy(&host.api, made).unwrap();
        assert_has(&host, block, MIB, 1);
        assert!(pool.sleep("weights", Contents::Keep).unwrap().is_some());
    });
}

#[test]
fn peers_of_the_device_are_peers_of_blocks_that_sleep() {
    alone("peers_of_the_device_are_peers_of_blocks_that_sleep", || {
        let host = Host::new();
        let (pool, stream) = (host.allocator, host.stream());
        pool.set_sleepable("weights").unwrap();
        let block = filled(&host, stream, MIB, 1);
        // Only this block has memory that could be made accessible to a device that does not exist.
        assert!(matches!(pool.permit_peers(&[99]), Err(Error::Call(_))));
        // A refused device is not kept for what is mapped later.
        pool.sleep("weights", Contents::Keep).unwrap();
        pool.wake("weights").unwrap();
        let plain = pool.alloc(MIB, stream).unwrap();
        assert_has(&host, block, MIB, 1);
        // Memory that is asleep becomes accessible when it wakes.
        pool.free(plain, stream).unwrap();
        host.synchronize();
        pool.trim(0).unwrap();
        pool.sleep("weights", Contents::Keep).unwrap();
        pool.permit_peers(&[99]).unwrap();
        assert!(matches!(pool.wake("weights"), Err(Error::Call(_))));
        pool.permit_peers(&[]).unwrap();
        pool.wake("weights").unwrap();
        assert_has(&host, block, MIB, 1);
    });
}

#[test]
fn memory_of_captured_graphs_is_nobody_elses_after_a_sleep() {
    alone("memory_of_captured_graphs_is_nobody_elses_after_a_sleep", || {
        let host = Host::new();
        let (pool, stream) = (host.allocator, host.stream());
        pool.set_sleepable("weights").unwrap();
        let kept = filled(&host, stream, 4 * MIB, 1);
        let before = filled(&host, stream, 4 * MIB, 2);
        host.synchronize();
        capture::begin(&host.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
        let within = pool.alloc_tagged(8 * MIB, stream, "weights").unwrap();
        // The graph may use both whenever it is launched.
        pool.free(within, stream).unwrap();
        pool.free(before, stream).unwrap();
        let made = capture::end(&host.api, stream).unwrap();
        let mapped_bytes = pool.reserved_bytes();
        pool.sleep("weights", Contents::Keep).unwrap();
        // Neither is what an allocation gets meanwhile.
        let meanwhile = pool.alloc_tagged(4 * MIB, stream, "weights").unwrap();
        pool.free(meanwhile, stream).unwrap();
        pool.wake("weights").unwrap();
        assert!(pool.reserved_bytes() >= mapped_bytes, "the graph's memory is mapped again");
        for other in (0..6).map(|_| pool.alloc_tagged(4 * MIB, stream, "weights").unwrap()).chain([meanwhile]) {
            let is_apart = |start: u64, bytes: u64| other + 4 * MIB <= start || start + bytes <= other;
            assert!(is_apart(within, 8 * MIB) && is_apart(before, 4 * MIB), "{other:#x} is the graph's");
        }
        assert_has(&host, kept, 4 * MIB, 1);
        graph::destroy(&host.api, made).unwrap();
    });
}
