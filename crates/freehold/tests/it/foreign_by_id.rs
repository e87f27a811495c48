//! Streams of foreign code by their ids: memory that is freed in one serves the same stream at once, and others when its
//! work is complete, whether the stream was destroyed meanwhile or not. No handle is named after its call.

use crate::children::{all_wrong, alone};
use crate::foreign_pools::{Host, MIB};
use crate::own::{Gate, Own};

use std::thread;

use freehold::foreign::{CaptureGate, StreamById};
use freehold_driver::cuda::{
    CUdeviceptr, CUstream, CUstreamCaptureMode, capture, copy, fill, graph, memory, stream, wait_value_flags,
};
use freehold_testing::{Random, at_effort, child, env_seed, seeds};

static CAPTURES: CaptureGate = CaptureGate::new();

const SIZES: [u64; 4] = [512, 40 << 10, 300 << 10, 3 * MIB];

fn named(host: &Host, handle: CUstream) -> StreamById {
    StreamById { id: stream::id(&host.api, handle).unwrap(), handle, gate: &CAPTURES }
}

fn alloc(host: &Host, bytes: u64, stream: StreamById) -> u64 {
    let cached = host.allocator.try_alloc_by_id(bytes, stream.id);
    cached.unwrap_or_else(|| host.allocator.alloc_by_id(bytes, stream).unwrap())
}

/// Frees in the order of the stream that the block was allocated in.
fn free(host: &Host, block: u64, stream: StreamById) {
    let is_free = host.allocator.try_free_by_id(block, stream.id);
    assert!(is_free || host.allocator.free_by_id(block, stream).unwrap(), "{block:#x} is another stream's");
}

fn hold(host: &Host, gate: &Gate, stream: CUstream) {
    stream::wait_value_32(&host.api, stream, CUdeviceptr(gate.address()), 1, wait_value_flags::GEQ).unwrap();
}

fn write(host: &Host, block: u64, value: u8, bytes: u64, stream: CUstream) {
    fill::d8_async(&host.api, CUdeviceptr(block), value, bytes as usize, stream).unwrap();
}

fn overlap(freed: &[u64], block: u64, bytes: u64) -> bool {
    freed.iter().any(|freed| (block..block + bytes).contains(freed))
}

#[test]
fn memory_freed_in_a_stream_serves_it_at_once_and_others_later() {
    alone("memory_freed_in_a_stream_serves_it_at_once_and_others_later", || {
        let (own, host) = (Own::new(), Host::new());
        let (gate, first, second) = (own.gate(), named(&host, host.stream()), named(&host, host.stream()));
        hold(&host, &gate, first.handle);
        let freed = SIZES.map(|bytes| {
            let block = alloc(&host, bytes, first);
            write(&host, block, 1, bytes, first.handle);
            block
        });
        freed.iter().for_each(|&block| free(&host, block, first));
        for bytes in SIZES {
            let block = alloc(&host, bytes, second);
            assert!(!overlap(&freed, block, bytes), "its work is still to come");
            free(&host, block, second);
            let any = host.allocator.alloc(bytes, CUstream::NULL).unwrap();
            assert!(!overlap(&freed, any, bytes), "its work is still to come");
            host.allocator.free(any, CUstream::NULL).unwrap();
        }
        for (bytes, &block) in SIZES.iter().zip(&freed) {
            assert_eq!(alloc(&host, *bytes, first), block, "the same stream has it at once");
            free(&host, block, first);
        }
        host.allocator.trim(0).unwrap();
        assert!(host.allocator.reserved_bytes() > 0, "its work is still to come");
        gate.open();
        host.allocator.wait_for_ids().unwrap();
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0, "all work is complete");
    });
}

#[test]
fn a_block_is_freed_in_its_own_stream_only() {
    alone("a_block_is_freed_in_its_own_stream_only", || {
        let host = Host::new();
        let (first, second) = (named(&host, host.stream()), named(&host, host.stream()));
        for bytes in SIZES {
            let block = alloc(&host, bytes, first);
            assert!(!host.allocator.try_free_by_id(block, second.id));
            assert!(!host.allocator.free_by_id(block, second).unwrap());
            assert!(!host.allocator.try_free_by_id(block + 8, first.id));
            free(&host, block, first);
            assert!(!host.allocator.try_free_by_id(block, first.id), "freed twice");
        }
        assert_eq!(host.allocator.live_bytes(), 0);
    });
}

#[test]
fn no_stream_is_named_after_foreign_code_has_destroyed_it() {
    alone("no_stream_is_named_after_foreign_code_has_destroyed_it", || {
        let (own, host) = (Own::new(), Host::new());
        let gate = own.gate();
        let mut freed = Vec::new();
        for _ in 0..20 {
            let old = named(&host, host.stream());
            hold(&host, &gate, old.handle);
            let blocks = SIZES.map(|bytes| {
                let block = alloc(&host, bytes, old);
                assert!(!overlap(&freed, block, bytes), "its work is still to come");
                write(&host, block, 1, bytes, old.handle);
                free(&host, block, old);
                block
            });
            freed.extend(blocks);
            stream::destroy(&host.api, old.handle).unwrap();
        }
        gate.open();
        host.allocator.wait_for_ids().unwrap();
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
        let new = named(&host, host.stream());
        let block = alloc(&host, MIB, new);
        free(&host, block, new);
    });
}

#[test]
fn memory_of_announced_streams_comes_back() {
    alone("memory_of_announced_streams_comes_back", || {
        let host = Host::new();
        let round = || {
            let stream = named(&host, host.stream());
            let blocks = SIZES.map(|bytes| alloc(&host, bytes, stream));
            blocks.iter().for_each(|&block| free(&host, block, stream));
            host.allocator.retire_id(stream.id).unwrap();
            stream::destroy(&host.api, stream.handle).unwrap();
            host.synchronize();
        };
        round();
        let reserved = host.allocator.reserved_bytes();
        (0..at_effort(40, 200, 2000)).for_each(|_| round());
        assert_eq!(host.allocator.reserved_bytes(), reserved, "each stream has the memory of those before it");
    });
}

#[test]
fn memory_of_ended_threads_comes_back_by_id() {
    alone("memory_of_ended_threads_comes_back_by_id", || {
        let host = Host::new();
        let round = || {
            let work = || {
                host.enter();
                let stream = named(&host, CUstream::PER_THREAD);
                let blocks = SIZES.map(|bytes| alloc(&host, bytes, stream));
                blocks.iter().for_each(|&block| free(&host, block, stream));
            };
            thread::scope(|scope| scope.spawn(work).join().unwrap());
            host.synchronize();
        };
        round();
        let reserved = host.allocator.reserved_bytes();
        (0..at_effort(40, 200, 2000)).for_each(|_| round());
        assert_eq!(host.allocator.reserved_bytes(), reserved, "each thread has the memory of those before it");
    });
}

#[test]
fn nothing_invalidates_a_capture_that_is_counted() {
    alone("nothing_invalidates_a_capture_that_is_counted", || {
        let host = Host::new();
        let (first, second, captured) = (named(&host, host.stream()), named(&host, host.stream()), host.stream());
        let block = alloc(&host, 3 * MIB, first);
        CAPTURES.begin();
        capture::begin(&host.api, captured, CUstreamCaptureMode::RELAXED).unwrap();
        write(&host, block, 1, 512, captured);
        free(&host, block, first);
        let other = alloc(&host, 3 * MIB, second);
        free(&host, other, second);
        host.allocator.retire_id(second.id).unwrap();
        host.allocator.trim(0).unwrap();
        graph::destroy(&host.api, capture::end(&host.api, captured).unwrap()).unwrap();
        CAPTURES.end();
        host.allocator.wait_for_ids().unwrap();
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}

/// A use of a block: a value is written, some work waits at a gate, and the value is read into a place of its own.
struct Use {
    value: u8,
    bytes: u64,
    place: u64,
}

/// Random allocations and frees in streams that are held, replaced and served by one pool, most of the time with too little
/// memory. Each block must have its own value when its stream comes to read it.
fn every_block_keeps_its_value() {
    let (own, host) = (Own::new(), Host::new());
    let mut numbers = Random::new(env_seed().expect("a child has a seed"));
    // Outside of the pool's memory.
    let places_bytes = 64 << 10;
    let places = memory::alloc(&host.api, places_bytes).unwrap();
    for _ in 0..at_effort(8, 20, 40) {
        let mut streams: Vec<_> = (0..4).map(|_| named(&host, host.stream())).collect();
        let (mut gates, mut live, mut uses): (Vec<Gate>, Vec<(u64, StreamById)>, Vec<Use>) = Default::default();
        for step in 0..100 {
            let index = numbers.below(4) as usize;
            match numbers.below(8) {
                0..=3 => {
                    let (stream, bytes) = (streams[index], 512 << numbers.below(16));
                    let Some(block) = host
                        .allocator
                        .try_alloc_by_id(bytes, stream.id)
                        .or_else(|| host.allocator.alloc_by_id(bytes, stream).ok())
                    else {
                        continue;
                    };
                    let value = (step + 1) as u8;
                    write(&host, block, value, bytes, stream.handle);
                    if numbers.below(3) == 0 {
                        let gate = own.gate();
                        hold(&host, &gate, stream.handle);
                        gates.push(gate);
                    }
                    let place = uses.len() as u64 * 512;
                    let to = CUdeviceptr(places.0 + place);
                    // The last bytes: the first may have been another block's.
                    let from = CUdeviceptr(block + bytes - 512);
                    copy::device_to_device_async(&host.api, to, from, 512, stream.handle).unwrap();
                    uses.push(Use { value, bytes, place });
                    live.push((block, stream));
                }
                4..=5 if !live.is_empty() => {
                    let (block, stream) = live.swap_remove(numbers.below(live.len() as u64) as usize);
                    free(&host, block, stream);
                }
                6 if !gates.is_empty() => gates.swap_remove(numbers.below(gates.len() as u64) as usize).open(),
                7 if live.iter().all(|(_, stream)| stream.id != streams[index].id) => {
                    if numbers.below(2) == 0 {
                        host.allocator.retire_id(streams[index].id).unwrap();
                    }
                    stream::destroy(&host.api, streams[index].handle).unwrap();
                    streams[index] = named(&host, host.stream());
                }
                _ => {}
            }
        }
        gates.iter().for_each(Gate::open);
        host.synchronize();
        let mut read = vec![0; places_bytes];
        copy::device_to_host(&host.api, &mut read, places).unwrap();
        for Use { value, bytes, place } in &uses {
            let found = &read[*place as usize..][..512];
            assert!(found.iter().all(|byte| byte == value), "a block of {bytes} bytes has {}, not {value}", found[0]);
        }
        live.iter().for_each(|&(block, stream)| free(&host, block, stream));
        streams.iter().for_each(|stream| stream::destroy(&host.api, stream.handle).unwrap());
    }
}

#[test]
fn every_block_by_id_keeps_its_value_until_its_stream_has_read_it() {
    const NAME: &str = "every_block_by_id_keeps_its_value_until_its_stream_has_read_it";
    if child::is_child(NAME) {
        return every_block_keeps_its_value();
    }
    assert_eq!(all_wrong(NAME, seeds(3, 12, 400), &[("FREEHOLD_SOFT_MEMORY", "96MiB")]), [""; 0]);
}

#[test]
fn a_wrong_free_of_foreign_code_names_no_line() {
    alone("a_wrong_free_of_foreign_code_names_no_line", || {
        let (_own, host) = (Own::new(), Host::new());
        let stream = host.stream();
        for bytes in [512, 3 * MIB] {
            let block = host.allocator.alloc(bytes, stream).unwrap();
            let interior = host.allocator.free(block + 256, stream).unwrap_err().to_string();
            let told = format!("256 bytes into {bytes} bytes at {block:#x}: release the block by its first address");
            assert_eq!(interior, told);
            host.allocator.free(block, stream).unwrap();
            let second = host.allocator.free(block, stream).unwrap_err().to_string();
            assert_eq!(second, format!("{bytes} bytes at {block:#x} are already released: release a block once"));
        }
        host.allocator.retire(stream).unwrap();
    });
}
