//! A pool on a full device: a request succeeds whenever enough chunks are free, wherever they are and whichever thread
//! cached them; a request that cannot succeed fails at once, and nothing is lost.
//!
//! The device's size is chosen when the software driver starts, so each test runs in its own process.

use crate::children::alone_with;
use crate::foreign_pools;

use std::sync::mpsc;
use std::thread;

use foreign_pools::{Host, MIB};
use freehold::Error;
use freehold_driver::cuda::{CUdeviceptr, CUstream, context, copy, fill, memory, stream};

const CHUNK: u64 = 2 * MIB;

/// Runs the test in a child that has a small device.
#[track_caller]
fn on_a_small_device(name: &str, test: fn(&Host)) {
    alone_with(name, &[("FREEHOLD_SOFT_MEMORY", "128MiB")], || test(&Host::new()));
}

/// How much can be had: the device's memory but for what is the driver's own.
fn fill_with_chunks(host: &Host, streams: &[CUstream]) -> Vec<(u64, CUstream)> {
    let mut blocks = Vec::new();
    loop {
        let stream = streams[blocks.len() % streams.len()];
        match host.allocator.alloc(CHUNK, stream) {
            Ok(address) => blocks.push((address, stream)),
            Err(Error::Short { wanted_bytes: CHUNK }) => return blocks,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Releases every other block; how many bytes.
fn free_every_other(host: &Host, blocks: &mut Vec<(u64, CUstream)>) -> u64 {
    let mut index = 0;
    let mut bytes = 0;
    blocks.retain(|&(address, stream)| {
        index += 1;
        if index % 2 == 0 {
            host.allocator.free(address, stream).unwrap();
            bytes += CHUNK;
        }
        index % 2 != 0
    });
    bytes
}

/// A block can be used over all of its length.
fn check_block(host: &Host, address: u64, bytes: u64, stream: CUstream) {
    fill::d8_async(&host.api, CUdeviceptr(address), 7, bytes as usize, stream).unwrap();
    stream::synchronize(&host.api, stream).unwrap();
    let mut last = [0; 4];
    copy::device_to_host(&host.api, &mut last, CUdeviceptr(address + bytes - 4)).unwrap();
    assert_eq!(last, [7; 4]);
}

/// Fills the device, makes holes, and asks for all of them as one block, and for one byte more.
fn assert_holes_serve_one_block(host: &Host, streams: &[CUstream]) {
    let mut blocks = fill_with_chunks(host, streams);
    assert!(blocks.len() > 40, "{} chunks of a device of 64", blocks.len());
    let reserved = host.allocator.reserved_bytes();
    let free = free_every_other(host, &mut blocks);
    let live = host.allocator.live_bytes();
    let driver_free = memory::info(&host.api).unwrap().free_bytes as u64 / CHUNK * CHUNK;
    assert!(matches!(host.allocator.alloc(free + driver_free + 1, streams[0]), Err(Error::Short { .. })));
    assert_eq!((host.allocator.live_bytes(), host.allocator.reserved_bytes()), (live, reserved));
    let large = host.allocator.alloc(free, streams[0]).unwrap();
    check_block(host, large, free, streams[0]);
    assert_eq!((host.allocator.live_bytes(), host.allocator.reserved_bytes()), (live + free, reserved));
    blocks.push((large, streams[0]));
    blocks.into_iter().for_each(|(address, stream)| host.allocator.free(address, stream).unwrap());
    context::synchronize(&host.api).unwrap();
    host.allocator.trim(0).unwrap();
    assert_eq!((host.allocator.live_bytes(), host.allocator.reserved_bytes()), (0, 0));
}

#[test]
fn free_chunks_of_one_stream_serve_one_large_block() {
    on_a_small_device("free_chunks_of_one_stream_serve_one_large_block", |host| {
        assert_holes_serve_one_block(host, &[host.stream()]);
        // And again with what was learned.
        assert_holes_serve_one_block(host, &[host.stream()]);
    });
}

#[test]
fn free_chunks_of_several_streams_serve_one_large_block() {
    on_a_small_device("free_chunks_of_several_streams_serve_one_large_block", |host| {
        let streams: Vec<_> = (0..5).map(|_| host.stream()).collect();
        assert_holes_serve_one_block(host, &streams);
    });
}

#[test]
fn chunks_in_the_magazines_of_other_threads_serve_one_large_block() {
    on_a_small_device("chunks_in_the_magazines_of_other_threads_serve_one_large_block", |host| {
        let streams: Vec<_> = (0..4).map(|_| host.stream()).collect();
        let (freed, is_freed) = mpsc::channel();
        let ends: Vec<_> = streams
            .iter()
            .map(|&stream| {
                let (freed, (end, ended)) = (freed.clone(), mpsc::channel::<()>());
                thread::spawn(move || {
                    let host = Host::new();
                    let blocks: Vec<_> = (0..6).map(|_| host.allocator.alloc(CHUNK, stream).unwrap()).collect();
                    let small: Vec<_> = (0..200).map(|_| host.allocator.alloc(40 << 10, stream).unwrap()).collect();
                    blocks.into_iter().chain(small).for_each(|block| host.allocator.free(block, stream).unwrap());
                    freed.send(()).unwrap();
                    // The thread goes on living, and keeps what it has.
                    assert!(ended.recv().is_err());
                });
                end
            })
            .collect();
        ends.iter().for_each(|_| is_freed.recv().unwrap());
        let reserved = host.allocator.reserved_bytes();
        let driver_free = memory::info(&host.api).unwrap().free_bytes as u64 / CHUNK * CHUNK;
        let stream = host.stream();
        let all = host.allocator.alloc(reserved + driver_free, stream).unwrap();
        check_block(host, all, reserved + driver_free, stream);
        assert_eq!(host.allocator.live_bytes(), reserved + driver_free);
    });
}

#[test]
fn a_chunk_that_is_longer_than_the_room_serves_a_shorter_request() {
    on_a_small_device("a_chunk_that_is_longer_than_the_room_serves_a_shorter_request", |host| {
        let (one, other) = (host.stream(), host.stream());
        // A heap whose addresses are nearly used up, on a device that is full of one long chunk of another heap.
        let short = host.allocator.alloc(46 * MIB, one).unwrap();
        let free = memory::info(&host.api).unwrap().free_bytes as u64 / CHUNK * CHUNK;
        let long = host.allocator.alloc(free, other).unwrap();
        host.allocator.free(long, other).unwrap();
        let wanted = 10 * MIB;
        let block = host.allocator.alloc(wanted, one).unwrap();
        check_block(host, block, wanted, one);
        [short, block].into_iter().for_each(|address| host.allocator.free(address, one).unwrap());
    });
}

#[test]
fn memory_that_waited_for_a_stream_at_the_end_of_what_is_mapped_serves_a_larger_request() {
    let name = "memory_that_waited_for_a_stream_at_the_end_of_what_is_mapped_serves_a_larger_request";
    on_a_small_device(name, |host| {
        let (one, other) = (host.stream(), host.stream());
        let mut blocks = fill_with_chunks(host, &[one]);
        // The last chunks before the free range wait for fences, so they are not its neighbours when it is searched for.
        for (address, stream) in blocks.split_off(blocks.len() - 6) {
            host.allocator.record_use(address, other).unwrap();
            host.allocator.free(address, stream).unwrap();
        }
        context::synchronize(&host.api).unwrap();
        let block = host.allocator.alloc(6 * CHUNK, one).unwrap();
        check_block(host, block, 6 * CHUNK, one);
    });
}

#[test]
fn memory_that_waits_for_another_stream_serves_a_request_behind_it() {
    on_a_small_device("memory_that_waits_for_another_stream_serves_a_request_behind_it", |host| {
        let (one, other, opener) = (host.stream(), host.stream(), host.stream());
        let gate = memory::alloc(&host.api, 4).unwrap();
        fill::d32(&host.api, gate, 0, 1).unwrap();
        context::synchronize(&host.api).unwrap();
        let mut blocks = fill_with_chunks(host, &[one]);
        for (address, stream) in blocks.split_off(blocks.len() - 6) {
            host.allocator.record_use(address, other).unwrap();
            stream::wait_value_32(&host.api, other, gate, 1, 0).unwrap();
            fill::d8_async(&host.api, CUdeviceptr(address), 9, CHUNK as usize, other).unwrap();
            host.allocator.free(address, stream).unwrap();
        }
        let block = host.allocator.alloc(6 * CHUNK, one).unwrap();
        fill::d8_async(&host.api, CUdeviceptr(block), 7, 6 * CHUNK as usize, one).unwrap();
        assert!(!stream::query(&host.api, one).unwrap(), "the device waits, not the host");
        stream::write_value_32(&host.api, opener, gate, 1, 0).unwrap();
        context::synchronize(&host.api).unwrap();
        let mut first = [0; 4];
        copy::device_to_host(&host.api, &mut first, CUdeviceptr(block)).unwrap();
        assert_eq!(first, [7; 4]);
    });
}

/// Another stream's request succeeds on a full device, of which one block is free behind a stream's unfinished work: its work waits.
fn assert_a_busy_streams_memory_serves(host: &Host, bytes: u64) {
    let (one, other, opener) = (host.stream(), host.stream(), host.stream());
    let gate = memory::alloc(&host.api, 4).unwrap();
    fill::d32(&host.api, gate, 0, 1).unwrap();
    context::synchronize(&host.api).unwrap();
    let mut blocks = fill_with_chunks(host, &[one]);
    let (address, _) = blocks.pop().unwrap();
    // Nothing else of the device is left, nor of a slab.
    while host.allocator.alloc(bytes, other).is_ok() {}
    stream::wait_value_32(&host.api, one, gate, 1, 0).unwrap();
    fill::d8_async(&host.api, CUdeviceptr(address), 9, CHUNK as usize, one).unwrap();
    host.allocator.free(address, one).unwrap();
    let block = host.allocator.alloc(bytes, other).unwrap();
    fill::d8_async(&host.api, CUdeviceptr(block), 7, bytes as usize, other).unwrap();
    assert!(!stream::query(&host.api, other).unwrap(), "the device waits, not the host");
    stream::write_value_32(&host.api, opener, gate, 1, 0).unwrap();
    context::synchronize(&host.api).unwrap();
    let mut first = [0; 4];
    copy::device_to_host(&host.api, &mut first, CUdeviceptr(block)).unwrap();
    assert_eq!(first, [7; 4]);
    host.allocator.free(block, other).unwrap();
}

#[test]
fn memory_of_a_busy_stream_serves_a_large_request_of_another_one() {
    let name = "memory_of_a_busy_stream_serves_a_large_request_of_another_one";
    on_a_small_device(name, |host| assert_a_busy_streams_memory_serves(host, CHUNK));
}

#[test]
fn memory_of_a_busy_stream_serves_a_small_request_of_another_one() {
    let name = "memory_of_a_busy_stream_serves_a_small_request_of_another_one";
    on_a_small_device(name, |host| assert_a_busy_streams_memory_serves(host, 1 << 10));
}

#[test]
fn an_empty_slab_serves_a_block_when_the_device_is_full() {
    on_a_small_device("an_empty_slab_serves_a_block_when_the_device_is_full", |host| {
        let stream = host.stream();
        // One chunk is shared by a block and by slabs, so that it is never free as a whole.
        let block = host.allocator.alloc(MIB, stream).unwrap();
        let small: Vec<_> = (0..20).map(|_| host.allocator.alloc(40 << 10, stream).unwrap()).collect();
        let _all = fill_with_chunks(host, &[stream]);
        let mut rest = 0;
        while host.allocator.alloc(100 << 10, stream).is_ok() {
            rest += 1;
        }
        assert!(rest < 20, "the device was full but for {rest} blocks");
        small.into_iter().for_each(|small| host.allocator.free(small, stream).unwrap());
        host.allocator.alloc(300 << 10, stream).unwrap();
        host.allocator.free(block, stream).unwrap();
    });
}
