//! The default stream of each thread (`CU_STREAM_PER_THREAD`) in foreign code: what happens to its memory when the
//! thread ends.

use crate::children::{alone, alone_with};
use crate::foreign_pools::{Host, MIB};
use crate::own::Own;

use std::cell::{Cell, RefCell};
use std::thread;

use freehold_driver::cuda::{CUdeviceptr, CUstream, fill, stream, wait_value_flags};
use freehold_testing::at_effort;

const SIZES: [u64; 4] = [512, 40 << 10, 300 << 10, 3 * MIB];

/// Runs `work` in a thread that the context is current in, and returns when that has ended.
fn in_thread<R: Send>(host: &Host, work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let ended = scope.spawn(|| {
            host.enter();
            work()
        });
        ended.join().unwrap()
    })
}

fn write(host: &Host, block: u64, stream: CUstream) {
    fill::d8_async(&host.api, CUdeviceptr(block), 1, 512, stream).unwrap();
}

fn hold(host: &Host, gate: u64, stream: CUstream) {
    stream::wait_value_32(&host.api, stream, CUdeviceptr(gate), 1, wait_value_flags::GEQ).unwrap();
}

/// Many threads, one after the other, each of which allocates, writes and frees in its own default stream.
fn memory_of_ended_threads_comes_back() {
    let host = Host::new();
    let round = || {
        in_thread(&host, || {
            let blocks = SIZES.map(|bytes| host.allocator.alloc(bytes, CUstream::PER_THREAD).unwrap());
            blocks.iter().for_each(|&block| write(&host, block, CUstream::PER_THREAD));
            blocks.iter().for_each(|&block| host.allocator.free(block, CUstream::PER_THREAD).unwrap());
        });
        host.synchronize();
    };
    round();
    let reserved = host.allocator.reserved_bytes();
    (0..at_effort(40, 200, 2000)).for_each(|_| round());
    assert_eq!(host.allocator.reserved_bytes(), reserved, "each thread has the memory of those before it");
    assert_eq!(host.allocator.live_bytes(), 0);
    host.allocator.trim(0).unwrap();
    assert_eq!(host.allocator.reserved_bytes(), 0);
}

#[test]
fn memory_of_default_streams_whose_threads_ended_comes_back() {
    alone("memory_of_default_streams_whose_threads_ended_comes_back", memory_of_ended_threads_comes_back);
}

#[test]
fn memory_of_checked_default_streams_whose_threads_ended_comes_back() {
    let name = "memory_of_checked_default_streams_whose_threads_ended_comes_back";
    alone_with(name, &[("FREEHOLD_STREAMS", "checked")], memory_of_ended_threads_comes_back);
}

#[test]
fn memory_that_ended_threads_used_in_their_default_streams_comes_back() {
    let name = "memory_that_ended_threads_used_in_their_default_streams_comes_back";
    alone(name, || {
        let host = Host::new();
        let home = host.stream();
        let block = host.allocator.alloc(3 * MIB, home).unwrap();
        in_thread(&host, || {
            write(&host, block, CUstream::PER_THREAD);
            host.allocator.record_use(block, CUstream::PER_THREAD).unwrap();
        });
        host.allocator.free(block, home).unwrap();
        host.synchronize();
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}

#[test]
fn memory_of_an_ended_thread_is_not_handed_on_before_its_work_has_passed() {
    let name = "memory_of_an_ended_thread_is_not_handed_on_before_its_work_has_passed";
    alone(name, || {
        let own = Own::new();
        let host = Host::new();
        let gate = own.gate();
        let word = gate.address();
        let freed = in_thread(&host, || {
            SIZES.map(|bytes| {
                let block = host.allocator.alloc(bytes, CUstream::PER_THREAD).unwrap();
                hold(&host, word, CUstream::PER_THREAD);
                write(&host, block, CUstream::PER_THREAD);
                host.allocator.free(block, CUstream::PER_THREAD).unwrap();
                block
            })
        });
        let streams = [host.stream(), CUstream::PER_THREAD];
        let blocks: Vec<_> = streams
            .into_iter()
            .flat_map(|stream| SIZES.map(|bytes| (host.allocator.alloc(bytes, stream).unwrap(), bytes, stream)))
            .collect();
        for &(block, bytes, _) in &blocks {
            assert!(!freed.iter().any(|freed| (block..block + bytes).contains(freed)), "its work is still to come");
        }
        gate.open();
        host.synchronize();
        blocks.into_iter().for_each(|(block, _, stream)| host.allocator.free(block, stream).unwrap());
        host.synchronize();
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}

/// Frees a block, and allocates and frees others, when the library has dropped what it kept for the thread.
struct Last<'a> {
    host: &'a Host,
    block: Cell<u64>,
}

impl Drop for Last<'_> {
    fn drop(&mut self) {
        let allocator = self.host.allocator;
        write(self.host, self.block.get(), CUstream::PER_THREAD);
        allocator.free(self.block.get(), CUstream::PER_THREAD).unwrap();
        for bytes in SIZES {
            let block = allocator.alloc(bytes, CUstream::PER_THREAD).unwrap();
            write(self.host, block, CUstream::PER_THREAD);
            allocator.free(block, CUstream::PER_THREAD).unwrap();
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<Last<'static>>> = const { RefCell::new(None) };
}

#[test]
fn the_last_destructors_of_a_thread_allocate_and_free_in_its_default_stream() {
    let name = "the_last_destructors_of_a_thread_allocate_and_free_in_its_default_stream";
    alone(name, || {
        let host: &'static Host = Box::leak(Box::new(Host::new()));
        let ended = thread::spawn(|| {
            host.enter();
            // After what the driver keeps for the thread, and before what the library keeps: so it is dropped between
            // them.
            stream::synchronize(&host.api, CUstream::PER_THREAD).unwrap();
            LAST.set(Some(Last { host, block: Cell::new(0) }));
            let block = host.allocator.alloc(3 * MIB, CUstream::PER_THREAD).unwrap();
            LAST.with_borrow(|last| last.as_ref().unwrap().block.set(block));
        });
        ended.join().unwrap();
        host.synchronize();
        assert_eq!(host.allocator.live_bytes(), 0);
        host.allocator.trim(0).unwrap();
        assert_eq!(host.allocator.reserved_bytes(), 0);
    });
}
