//! Memory of stream captures: what is allocated or freed in a capturing stream belongs to a private pool until that is
//! released. Each test has its own process, in which the library was not called before.

use crate::children;
use crate::foreign_pools;

use children::{alone, alone_with};
use foreign_pools::{Host, MIB};
use freehold::Error;
use freehold::foreign::PoolId;
use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUgraphExec, CUstream, CUstreamCaptureMode, capture, context, copy, event, event_flags,
    fill, graph, host, host_alloc_flags, primary, stream, wait_value_flags,
};

const POOL: PoolId = PoolId::Named(7, 0);
const CHECKED: (&str, &str) = ("FREEHOLD_STREAMS", "checked");

/// Lets the work that is put into a stream from now on wait for a word, which is this.
fn hold(host: &Host, held: CUstream) -> *mut u64 {
    let word = host::alloc_with_flags(&host.api, 4096, host_alloc_flags::DEVICEMAP).unwrap();
    let address = host::device_address(&host.api, word, 0).unwrap();
    // SAFETY: the page is pinned memory of this process's own, which stays until it ends.
    unsafe { word.cast::<u64>().write_volatile(0) };
    stream::wait_value_64(&host.api, held, address, 1, wait_value_flags::GEQ).unwrap();
    word.cast()
}

fn open(host: &Host, word: *mut u64) {
    // SAFETY: as above.
    unsafe { word.write_volatile(1) };
    context::synchronize(&host.api).unwrap();
}

fn begin(host: &Host, stream: CUstream) -> u64 {
    capture::begin(&host.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
    capture::info(&host.api, stream).unwrap().id
}

/// Hands out a block in a capturing stream, captures a fill of it with ones, and frees it.
fn use_and_free(host: &Host, captured: CUstream, bytes: u64) -> u64 {
    let block = host.allocator.alloc(bytes, captured).unwrap();
    fill::d8_async(&host.api, CUdeviceptr(block), 1, bytes as usize, captured).unwrap();
    host.allocator.free(block, captured).unwrap();
    block
}

/// A graph that fills memory which was freed during the capture, and where that lies.
fn graph_of(host: &Host, captured: CUstream, bytes: u64) -> (CUgraphExec, u64) {
    begin(host, captured);
    let block = use_and_free(host, captured, bytes);
    let made = capture::end(&host.api, captured).unwrap();
    (graph::instantiate(&host.api, made, 0).unwrap(), block)
}

/// Fills new blocks of each stream with sevens, launches a graph over and over, and looks at the blocks.
fn survive_replays(host: &Host, graph: CUgraphExec, streams: &[CUstream], bytes: u64) {
    let blocks: Vec<u64> = streams
        .iter()
        .flat_map(|&stream| {
            (0..16).map(move |_| {
                let block = host.allocator.alloc(bytes, stream).unwrap();
                fill::d8_async(&host.api, CUdeviceptr(block), 7, bytes as usize, stream).unwrap();
                block
            })
        })
        .collect();
    context::synchronize(&host.api).unwrap();
    for _ in 0..10 {
        // SAFETY: the nodes fill memory of the device, which stays mapped.
        unsafe { graph::launch(&host.api, graph, streams[0]) }.unwrap();
    }
    context::synchronize(&host.api).unwrap();
    for block in blocks {
        let mut bytes = vec![0_u8; bytes as usize];
        copy::device_to_host(&host.api, &mut bytes, CUdeviceptr(block)).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7), "a launch of the graph wrote to a live block");
    }
}

/// Small and large blocks, in magazines and not.
const SIZES: [u64; 3] = [1000, 300 << 10, 5 << 20];

/// Warms the stream's magazines, so that what the capture is given would come from there.
fn warm(host: &Host, stream: CUstream) {
    for bytes in SIZES {
        for _ in 0..4 {
            let block = host.allocator.alloc(bytes, stream).unwrap();
            host.allocator.free(block, stream).unwrap();
        }
    }
}

fn replays_leave_live_blocks_alone(host: &Host, begin: impl Fn(), end: impl Fn()) {
    let (captured, other) = (host.stream(), host.stream());
    warm(host, captured);
    for bytes in SIZES {
        begin();
        let (graph, _) = graph_of(host, captured, bytes);
        end();
        survive_replays(host, graph, &[captured, other, CUstream::NULL, CUstream::PER_THREAD], bytes);
    }
}

#[test]
fn replays_write_to_no_live_block_where_captures_are_not_announced() {
    alone("replays_write_to_no_live_block_where_captures_are_not_announced", || {
        replays_leave_live_blocks_alone(&Host::new(), || (), || ());
    });
}

#[test]
fn replays_write_to_no_live_block_where_streams_are_checked() {
    alone_with("replays_write_to_no_live_block_where_streams_are_checked", &[CHECKED], || {
        replays_leave_live_blocks_alone(&Host::new(), || (), || ());
    });
}

#[test]
fn replays_write_to_no_live_block_where_captures_are_announced() {
    alone("replays_write_to_no_live_block_where_captures_are_announced", || {
        let host = Host::new();
        // SAFETY: this test begins a pool before each capture, or wants to see what happens.
        unsafe { freehold::open::announce_captures() };
        let (begin, end) = (|| host.allocator.begin_pool(POOL).unwrap(), || host.allocator.end_pool(POOL).unwrap());
        replays_leave_live_blocks_alone(&host, begin, end);
    });
}

#[test]
fn a_stream_first_named_in_an_announced_process_while_it_is_captured_is_captured() {
    alone("a_stream_first_named_in_an_announced_process_while_it_is_captured_is_captured", || {
        let host = Host::new();
        // SAFETY: this test begins a pool before each capture, or wants to see what happens.
        unsafe { freehold::open::announce_captures() };
        let captured = host.stream();
        let (graph, _) = graph_of(&host, captured, 1000);
        survive_replays(&host, graph, &[captured], 1000);
    });
}

#[test]
fn within_a_capture_freed_memory_serves_the_same_stream_again() {
    alone("within_a_capture_freed_memory_serves_the_same_stream_again", || {
        let host = Host::new();
        let captured = host.stream();
        begin(&host, captured);
        for bytes in SIZES {
            assert_eq!(use_and_free(&host, captured, bytes), use_and_free(&host, captured, bytes));
        }
        capture::end(&host.api, captured).unwrap();
    });
}

#[test]
fn captures_of_one_pool_share_its_memory_and_those_of_two_share_none() {
    alone("captures_of_one_pool_share_its_memory_and_those_of_two_share_none", || {
        let host = Host::new();
        let captured = host.stream();
        let mut blocks = Vec::new();
        for pool in [POOL, POOL, PoolId::Named(8, 0), PoolId::Named(7, 1)] {
            host.allocator.begin_pool(pool).unwrap();
            blocks.push(graph_of(&host, captured, 5 * MIB).1);
            host.allocator.end_pool(pool).unwrap();
        }
        assert_eq!(blocks[0], blocks[1]);
        assert!(blocks[1] != blocks[2] && blocks[2] != blocks[3] && blocks[1] != blocks[3], "{blocks:x?}");
    });
}

#[test]
fn a_released_pool_gives_its_memory_to_others_and_its_live_blocks_when_they_are_freed() {
    alone("a_released_pool_gives_its_memory_to_others_and_its_live_blocks_when_they_are_freed", || {
        let host = Host::new();
        let captured = host.stream();
        host.allocator.begin_pool(POOL).unwrap();
        begin(&host, captured);
        let live = host.allocator.alloc(4 * MIB, captured).unwrap();
        use_and_free(&host, captured, 4 * MIB);
        capture::end(&host.api, captured).unwrap();
        host.allocator.end_pool(POOL).unwrap();
        assert_eq!(host.allocator.pool_blocks(POOL).unwrap(), [(live, 4 * MIB)]);
        host.allocator.set_budget_bytes(host.allocator.reserved_bytes());
        for stream in [captured, CUstream::NULL] {
            assert!(matches!(host.allocator.alloc(4 * MIB, stream), Err(Error::Short { .. })));
        }
        host.allocator.release_pool(POOL).unwrap();
        let other = host.allocator.alloc(4 * MIB, captured).unwrap();
        assert!(matches!(host.allocator.alloc(4 * MIB, captured), Err(Error::Short { .. })));
        host.allocator.free(live, captured).unwrap();
        context::synchronize(&host.api).unwrap();
        host.allocator.alloc(4 * MIB, captured).map(|block| host.allocator.free(block, captured)).unwrap().unwrap();
        host.allocator.free(other, captured).unwrap();
        context::synchronize(&host.api).unwrap();
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}

#[test]
fn a_pool_is_released_as_often_as_it_was_begun() {
    alone("a_pool_is_released_as_often_as_it_was_begun", || {
        let host = Host::new();
        let captured = host.stream();
        assert!(matches!(host.allocator.end_pool(POOL), Err(Error::NoSuchPool)));
        assert!(matches!(host.allocator.release_pool(POOL), Err(Error::NoSuchPool)));
        for _ in 0..2 {
            host.allocator.begin_pool(POOL).unwrap();
            assert!(matches!(host.allocator.pool_blocks(PoolId::Named(9, 9)), Err(Error::NoSuchPool)));
            graph_of(&host, captured, 4 * MIB);
            host.allocator.end_pool(POOL).unwrap();
        }
        host.allocator.set_budget_bytes(host.allocator.reserved_bytes());
        host.allocator.release_pool(POOL).unwrap();
        assert!(matches!(host.allocator.alloc(4 * MIB, captured), Err(Error::Short { .. })));
        host.allocator.release_pool(POOL).unwrap();
        host.allocator.alloc(4 * MIB, captured).unwrap();
        assert!(matches!(host.allocator.release_pool(POOL), Err(Error::NoSuchPool)));
    });
}

#[test]
fn a_pool_that_is_released_during_a_capture_spoils_it_not_and_is_had_again_after_it() {
    alone("a_pool_that_is_released_during_a_capture_spoils_it_not_and_is_had_again_after_it", || {
        let host = Host::new();
        let (captured, other) = (host.stream(), host.stream());
        host.allocator.begin_pool(POOL).unwrap();
        graph_of(&host, captured, 4 * MIB);
        host.allocator.end_pool(POOL).unwrap();
        let live = host.allocator.alloc(4 * MIB, other).unwrap();
        capture::begin(&host.api, other, CUstreamCaptureMode::GLOBAL).unwrap();
        host.allocator.release_pool(POOL).unwrap();
        host.allocator.set_budget_bytes(host.allocator.reserved_bytes());
        assert!(matches!(host.allocator.alloc(4 * MIB, captured), Err(Error::Short { .. })));
        capture::end(&host.api, other).unwrap();
        host.allocator.trim(u64::MAX).unwrap();
        host.allocator.alloc(4 * MIB, captured).unwrap();
        host.allocator.free(live, other).unwrap();
    });
}

#[test]
fn memory_of_an_unannounced_capture_is_reused_when_it_is_released() {
    for (name, variables) in [
        ("memory_of_an_unannounced_capture_is_reused_when_it_is_released", &[][..]),
        ("memory_of_an_unannounced_capture_is_reused_when_it_is_released", &[CHECKED][..]),
    ] {
        alone_with(name, variables, || {
            let host = Host::new();
            let captured = host.stream();
            let id = begin(&host, captured);
            use_and_free(&host, captured, 4 * MIB);
            capture::end(&host.api, captured).unwrap();
            host.allocator.retire(captured).unwrap();
            stream::destroy(&host.api, captured).unwrap();
            host.allocator.trim(0).unwrap();
            assert!(host.allocator.reserved_bytes() >= 4 * MIB);
            host.allocator.release_pool(PoolId::Capture(id)).unwrap();
            host.allocator.trim(0).unwrap();
            assert_eq!(host.allocator.reserved_bytes(), 0);
        });
    }
}

#[test]
fn a_capture_whose_memory_is_released_while_it_goes_on_is_not_spoilt() {
    alone("a_capture_whose_memory_is_released_while_it_goes_on_is_not_spoilt", || {
        let host = Host::new();
        let captured = host.stream();
        let id = begin(&host, captured);
        use_and_free(&host, captured, 4 * MIB);
        host.allocator.release_pool(PoolId::Capture(id)).unwrap();
        host.allocator.trim(0).unwrap();
        capture::end(&host.api, captured).expect("nothing has spoilt the capture");
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}

#[test]
fn a_block_from_before_that_is_freed_in_a_capture_belongs_to_the_capture() {
    alone("a_block_from_before_that_is_freed_in_a_capture_belongs_to_the_capture", || {
        let host = Host::new();
        let (captured, other) = (host.stream(), host.stream());
        let block = host.allocator.alloc(4 * MIB, captured).unwrap();
        let word = hold(&host, captured);
        fill::d8_async(&host.api, CUdeviceptr(block), 1, 4 << 20, captured).unwrap();
        let id = begin(&host, captured);
        host.allocator.free(block, captured).unwrap();
        assert!(matches!(host.allocator.retire(captured), Err(Error::StreamCaptured)));
        host.allocator.set_budget_bytes(host.allocator.reserved_bytes());
        capture::end(&host.api, captured).unwrap();
        open(&host, word);
        for stream in [other, captured] {
            assert!(matches!(host.allocator.alloc(4 * MIB, stream), Err(Error::Short { .. })));
        }
        host.allocator.release_pool(PoolId::Capture(id)).unwrap();
        host.allocator.alloc(4 * MIB, other).unwrap();
    });
}

#[test]
fn a_block_of_a_capture_that_is_freed_after_it_serves_no_one_outside_of_its_pool() {
    alone("a_block_of_a_capture_that_is_freed_after_it_serves_no_one_outside_of_its_pool", || {
        let host = Host::new();
        let captured = host.stream();
        host.allocator.begin_pool(POOL).unwrap();
        begin(&host, captured);
        let output = host.allocator.alloc(4 * MIB, captured).unwrap();
        capture::end(&host.api, captured).unwrap();
        host.allocator.end_pool(POOL).unwrap();
        host.allocator.free(output, captured).unwrap();
        assert!(host.allocator.pool_blocks(POOL).unwrap().is_empty());
        context::synchronize(&host.api).unwrap();
        host.allocator.set_budget_bytes(host.allocator.reserved_bytes());
        assert!(matches!(host.allocator.alloc(4 * MIB, captured), Err(Error::Short { .. })));
        host.allocator.begin_pool(POOL).unwrap();
        begin(&host, captured);
        assert_eq!(host.allocator.alloc(4 * MIB, captured).unwrap(), output);
        capture::end(&host.api, captured).unwrap();
        host.allocator.end_pool(POOL).unwrap();
    });
}

#[test]
fn another_stream_of_the_process_gets_memory_during_a_global_capture() {
    alone("another_stream_of_the_process_gets_memory_during_a_global_capture", || {
        let host = Host::new();
        let (captured, other) = (host.stream(), host.stream());
        capture::begin(&host.api, captured, CUstreamCaptureMode::GLOBAL).unwrap();
        for stream in [other, captured] {
            for bytes in [1000, 3 * MIB] {
                let block = host.allocator.alloc(bytes, stream).unwrap();
                host.allocator.free(block, stream).unwrap();
            }
        }
        capture::end(&host.api, captured).unwrap();
    });
}

#[test]
fn what_was_freed_in_one_stream_of_a_capture_is_not_the_others() {
    alone("what_was_freed_in_one_stream_of_a_capture_is_not_the_others", || {
        let host = Host::new();
        let (origin, joined) = (host.stream(), host.stream());
        let fork = event::create(&host.api, event_flags::DISABLE_TIMING).unwrap();
        begin(&host, origin);
        event::record(&host.api, fork, origin).unwrap();
        stream::wait_event(&host.api, joined, fork, 0).unwrap();
        let block = host.allocator.alloc(1000, origin).unwrap();
        host.allocator.free(block, origin).unwrap();
        assert_ne!(host.allocator.alloc(1000, joined).unwrap(), block);
        assert_eq!(host.allocator.alloc(1000, origin).unwrap(), block);
        let join = event::create(&host.api, event_flags::DISABLE_TIMING).unwrap();
        event::record(&host.api, join, joined).unwrap();
        stream::wait_event(&host.api, origin, join, 0).unwrap();
        capture::end(&host.api, origin).unwrap();
    });
}

#[test]
fn threads_with_a_pool_each_capture_into_their_own() {
    alone("threads_with_a_pool_each_capture_into_their_own", || {
        let host = Host::new();
        // SAFETY: this test begins a pool before each capture, or wants to see what happens.
        unsafe { freehold::open::announce_captures() };
        std::thread::scope(|scope| {
            for index in 0..4 {
                let host = &host;
                scope.spawn(move || {
                    host.enter();
                    let (pool, captured) = (PoolId::Named(index, 0), host.stream());
                    warm(host, captured);
                    for _ in 0..20 {
                        host.allocator.begin_pool(pool).unwrap();
                        begin(host, captured);
                        let output = host.allocator.alloc(1000, captured).unwrap();
                        capture::end(&host.api, captured).unwrap();
                        host.allocator.end_pool(pool).unwrap();
                        assert_eq!(host.allocator.pool_blocks(pool).unwrap(), [(output, 1000)]);
                        host.allocator.free(output, captured).unwrap();
                        host.allocator.release_pool(pool).unwrap();
                    }
                });
            }
        });
    });
}

const OTHER: PoolId = PoolId::Named(8, 0);

#[test]
fn a_capture_without_calls_does_not_belong_to_a_pool_that_another_thread_has_begun() {
    alone("a_capture_without_calls_does_not_belong_to_a_pool_that_another_thread_has_begun", || {
        let host = Host::new();
        let (mine, theirs) = (host.stream(), host.stream());
        host.allocator.begin_pool(POOL).unwrap();
        begin(&host, mine);
        let (graph, id) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                host.enter();
                let id = begin(&host, theirs);
                use_and_free(&host, theirs, 5 * MIB);
                let made = capture::end(&host.api, theirs).unwrap();
                (graph::instantiate(&host.api, made, 0).unwrap(), id)
            });
            theirs.join().unwrap()
        });
        use_and_free(&host, mine, 3 * MIB);
        capture::end(&host.api, mine).unwrap();
        host.allocator.end_pool(POOL).unwrap();
        host.allocator.release_pool(POOL).unwrap();
        survive_replays(&host, graph, &[theirs, mine, CUstream::NULL], 5 * MIB);
        host.allocator.release_pool(PoolId::Capture(id)).unwrap();
    });
}

#[test]
fn a_capture_that_began_before_a_pool_does_not_belong_to_it() {
    alone("a_capture_that_began_before_a_pool_does_not_belong_to_it", || {
        let host = Host::new();
        let captured = host.stream();
        let id = begin(&host, captured);
        host.allocator.begin_pool(POOL).unwrap();
        let block = host.allocator.alloc(MIB, captured).unwrap();
        assert!(host.allocator.pool_blocks(POOL).unwrap().is_empty());
        assert_eq!(host.allocator.pool_blocks(PoolId::Capture(id)).unwrap(), [(block, MIB)]);
        capture::end(&host.api, captured).unwrap();
        host.allocator.end_pool(POOL).unwrap();
    });
}

#[test]
fn a_thread_that_helps_with_a_capture_takes_from_its_pool() {
    alone("a_thread_that_helps_with_a_capture_takes_from_its_pool", || {
        let host = Host::new();
        let captured = host.stream();
        // A capture that is known by its id, and one that only a helper names where each capture is announced.
        for is_known in [true, false] {
            host.allocator.begin_pool(POOL).unwrap();
            begin(&host, captured);
            if is_known {
                use_and_free(&host, captured, MIB);
            } else {
                // SAFETY: from here on this test begins a pool before each capture.
                unsafe { freehold::open::announce_captures() };
            }
            let helper = || host.allocator.alloc(MIB, captured).unwrap();
            let block = std::thread::scope(|scope| scope.spawn(helper).join().unwrap());
            assert_eq!(host.allocator.pool_blocks(POOL).unwrap(), [(block, MIB)]);
            capture::end(&host.api, captured).unwrap();
            host.allocator.end_pool(POOL).unwrap();
            host.allocator.free(block, captured).unwrap();
            host.allocator.release_pool(POOL).unwrap();
        }
    });
}

/// Captures with a pool, and releases it. How many bytes are reserved then.
fn come_and_go(host: &Host, captured: CUstream, pool: PoolId) -> u64 {
    host.allocator.begin_pool(pool).unwrap();
    capture::begin(&host.api, captured, CUstreamCaptureMode::GLOBAL).unwrap();
    use_and_free(host, captured, 64 * MIB);
    let made = capture::end(&host.api, captured).unwrap();
    host.allocator.end_pool(pool).unwrap();
    graph::destroy(&host.api, made).unwrap();
    host.allocator.release_pool(pool).unwrap();
    host.allocator.trim(0).unwrap();
    host.allocator.reserved_bytes()
}

fn graphs_after_a_failed_capture_are_given_back(next: impl Fn(u64) -> PoolId) {
    let host = Host::new();
    // SAFETY: this test begins a pool before each capture.
    unsafe { freehold::open::announce_captures() };
    let captured = host.stream();
    warm(&host, captured);
    host.allocator.trim(0).unwrap();
    let before = come_and_go(&host, captured, OTHER);
    for takes in [false, true] {
        // PyTorch's `capture_end` throws before it ends the pool, and then releases nothing.
        host.allocator.begin_pool(POOL).unwrap();
        capture::begin(&host.api, captured, CUstreamCaptureMode::GLOBAL).unwrap();
        if takes {
            use_and_free(&host, captured, MIB);
        }
        stream::synchronize(&host.api, captured).unwrap_err();
        capture::end(&host.api, captured).unwrap_err();
        let after: Vec<u64> = (0..4).map(|n| come_and_go(&host, captured, next(n))).collect();
        let most = before + if takes { 32 * MIB } else { 0 };
        assert!(after.iter().all(|&bytes| bytes <= most), "{before} before, {after:?} after");
    }
}

#[test]
fn graphs_after_a_failed_capture_go_with_pools_of_other_ids() {
    alone("graphs_after_a_failed_capture_go_with_pools_of_other_ids", || {
        graphs_after_a_failed_capture_are_given_back(|n| PoolId::Named(100 + n, 0));
    });
}

#[test]
fn a_pool_begun_again_after_a_failed_capture_is_released_once() {
    alone("a_pool_begun_again_after_a_failed_capture_is_released_once", || {
        let host = Host::new();
        let captured = host.stream();
        for _ in 0..3 {
            host.allocator.begin_pool(POOL).unwrap();
            capture::begin(&host.api, captured, CUstreamCaptureMode::GLOBAL).unwrap();
            use_and_free(&host, captured, MIB);
            stream::synchronize(&host.api, captured).unwrap_err();
            capture::end(&host.api, captured).unwrap_err();
        }
        assert_eq!(come_and_go(&host, captured, POOL), 0);
        assert!(matches!(host.allocator.release_pool(POOL), Err(Error::NoSuchPool)));
    });
}

#[test]
fn a_pool_begun_twice_for_captures_at_the_same_time_is_released_twice() {
    alone("a_pool_begun_twice_for_captures_at_the_same_time_is_released_twice", || {
        let host = Host::new();
        let streams = [host.stream(), host.stream()];
        for captured in streams {
            host.allocator.begin_pool(POOL).unwrap();
            begin(&host, captured);
            use_and_free(&host, captured, MIB);
        }
        for captured in streams {
            capture::end(&host.api, captured).unwrap();
            host.allocator.end_pool(POOL).unwrap();
        }
        host.allocator.release_pool(POOL).unwrap();
        host.allocator.trim(0).unwrap();
        assert!(host.allocator.reserved_bytes() > 0);
        host.allocator.release_pool(POOL).unwrap();
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}

#[test]
fn a_capture_is_of_the_pool_that_its_thread_began_last() {
    alone("a_capture_is_of_the_pool_that_its_thread_began_last", || {
        let host = Host::new();
        // SAFETY: this test begins a pool before each capture.
        unsafe { freehold::open::announce_captures() };
        let captured = host.stream();
        host.allocator.begin_pool(OTHER).unwrap();
        for n in 0..3 {
            let inner = PoolId::Named(0, n);
            host.allocator.begin_pool(inner).unwrap();
            begin(&host, captured);
            use_and_free(&host, captured, 64 * MIB);
            let live = host.allocator.alloc(MIB, captured).unwrap();
            assert!(host.allocator.pool_blocks(OTHER).unwrap().is_empty());
            assert_eq!(host.allocator.pool_blocks(inner).unwrap(), [(live, MIB)]);
            capture::end(&host.api, captured).unwrap();
            host.allocator.end_pool(inner).unwrap();
            host.allocator.free(live, captured).unwrap();
            host.allocator.release_pool(inner).unwrap();
            host.allocator.trim(0).unwrap();
            assert_eq!(host.allocator.reserved_bytes(), 0);
        }
        host.allocator.end_pool(OTHER).unwrap();
        host.allocator.release_pool(OTHER).unwrap();
    });
}

#[test]
fn memory_of_a_second_device_in_an_announced_capture_is_kept_too() {
    let name = "memory_of_a_second_device_in_an_announced_capture_is_kept_too";
    // The software device, of which there can be two everywhere.
    alone_with(name, &[("FREEHOLD_DEVICE", "soft"), ("FREEHOLD_SOFT_DEVICES", "2")], || {
        let host = Host::new();
        // SAFETY: the test names streams that it made, and begins a pool before each capture.
        let other = unsafe { freehold::open::foreign_pool(1) }.unwrap();
        // SAFETY: as above.
        unsafe { freehold::open::announce_captures() };
        let origin = host.stream();
        let primary = primary::retain(&host.api, CUdevice(1)).unwrap();
        context::push_current(&host.api, primary).unwrap();
        let (joined, join) = (host.stream(), event::create(&host.api, event_flags::DISABLE_TIMING).unwrap());
        context::pop_current(&host.api).unwrap();
        let fork = event::create(&host.api, event_flags::DISABLE_TIMING).unwrap();
        let warm = other.alloc(5 * MIB, joined).unwrap();
        other.free(warm, joined).unwrap();
        host.allocator.begin_pool(POOL).unwrap();
        let id = begin(&host, origin);
        event::record(&host.api, fork, origin).unwrap();
        stream::wait_event(&host.api, joined, fork, 0).unwrap();
        let block = other.alloc(5 * MIB, joined).unwrap();
        other.free(block, joined).unwrap();
        event::record(&host.api, join, joined).unwrap();
        stream::wait_event(&host.api, origin, join, 0).unwrap();
        capture::end(&host.api, origin).unwrap();
        host.allocator.end_pool(POOL).unwrap();
        let live: Vec<u64> = (0..8).map(|_| other.alloc(5 * MIB, joined).unwrap()).collect();
        assert!(!live.contains(&block), "memory of a graph is handed out");
        live.into_iter().for_each(|block| other.free(block, joined).unwrap());
        other.release_pool(PoolId::Capture(id)).unwrap();
        other.trim(0).unwrap();
        assert_eq!(other.reserved_bytes(), 0);
    });
}

#[test]
fn what_is_freed_in_a_spoilt_capture_comes_back_with_the_captures_memory() {
    for variables in [&[][..], &[CHECKED][..]] {
        let name = "what_is_freed_in_a_spoilt_capture_comes_back_with_the_captures_memory";
        alone_with(name, variables, || {
            let host = Host::new();
            for is_known in [true, false] {
                let captured = host.stream();
                let id = begin(&host, captured);
                let before = if is_known {
                    host.allocator.alloc(64 * MIB, captured).unwrap()
                } else {
                    host.allocator.alloc(64 * MIB, CUstream::NULL).unwrap()
                };
                stream::synchronize(&host.api, captured).unwrap_err();
                host.allocator.free(before, captured).unwrap();
                let within = host.allocator.alloc(MIB, captured).unwrap();
                host.allocator.free(within, captured).unwrap();
                capture::end(&host.api, captured).unwrap_err();
                if is_known {
                    host.allocator.release_pool(PoolId::Capture(id)).unwrap();
                }
                host.allocator.retire(captured).unwrap();
                stream::destroy(&host.api, captured).unwrap();
                host.allocator.trim(0).unwrap();
                assert_eq!(host.allocator.reserved_bytes(), 0);
            }
            assert!(matches!(host.allocator.release_pool(PoolId::Capture(0)), Err(Error::NoSuchPool)));
        });
    }
}

#[test]
fn a_release_or_an_end_that_cannot_wait_has_happened() {
    alone("a_release_or_an_end_that_cannot_wait_has_happened", || {
        let host = Host::new();
        let (captured, unknown) = (host.stream(), host.stream());
        for fails in [true, false] {
            host.allocator.begin_pool(POOL).unwrap();
            graph_of(&host, captured, 4 * MIB);
            host.allocator.end_pool(POOL).unwrap();
            if fails {
                capture::begin(&host.api, unknown, CUstreamCaptureMode::GLOBAL).unwrap();
            }
            host.allocator.release_pool(POOL).unwrap();
            assert!(matches!(host.allocator.release_pool(POOL), Err(Error::NoSuchPool)));
            if fails {
                // A stream that the library was never told of: the wait for the device has spoilt its capture.
                capture::end(&host.api, unknown).unwrap_err();
                capture::begin(&host.api, unknown, CUstreamCaptureMode::GLOBAL).unwrap();
                host.allocator.begin_pool(OTHER).unwrap();
                host.allocator.end_pool(OTHER).unwrap();
                assert!(matches!(host.allocator.end_pool(OTHER), Err(Error::NoSuchPool)));
                host.allocator.release_pool(OTHER).unwrap();
                capture::end(&host.api, unknown).unwrap_err();
            }
        }
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}

#[test]
fn a_checked_capture_that_is_over_keeps_no_released_pool() {
    alone_with("a_checked_capture_that_is_over_keeps_no_released_pool", &[CHECKED], || {
        let host = Host::new();
        let (first, captured) = (host.stream(), host.stream());
        let id = begin(&host, first);
        use_and_free(&host, first, MIB);
        // While it goes on, nothing is waited for.
        assert!(come_and_go(&host, captured, POOL) >= 64 * MIB);
        capture::end(&host.api, first).expect("nothing has spoilt the capture");
        // The stream is named again, and known not to be captured.
        let block = host.allocator.alloc(MIB, first).unwrap();
        host.allocator.free(block, first).unwrap();
        assert!(come_and_go(&host, captured, OTHER) < 64 * MIB);
        host.allocator.release_pool(PoolId::Capture(id)).unwrap();
    });
}

#[test]
fn a_pool_that_is_not_ended_is_not_released() {
    alone("a_pool_that_is_not_ended_is_not_released", || {
        let host = Host::new();
        host.allocator.begin_pool(POOL).unwrap();
        let refused = host.allocator.release_pool(POOL).unwrap_err();
        assert_eq!(refused.to_string(), "the private pool is still open: end it first");
        host.allocator.end_pool(POOL).unwrap();
        host.allocator.release_pool(POOL).unwrap();
    });
}

#[test]
fn a_misspelt_way_to_know_streams_is_refused() {
    for said in ["chekced", "", "trusted", "checked"] {
        alone_with("a_misspelt_way_to_know_streams_is_refused", &[("FREEHOLD_STREAMS", said)], || {
            let is_wrong = std::env::var("FREEHOLD_STREAMS").unwrap() == "chekced";
            // SAFETY: no stream is named.
            let refused = unsafe { freehold::open::foreign_pool(0) }.err().map(|error| error.to_string());
            let sentence = "unknown FREEHOLD_STREAMS \"chekced\": expected trusted or checked";
            assert_eq!(refused.as_deref(), is_wrong.then_some(sentence));
        });
    }
}
