//! Regressions: memory that other streams still used when the pool reused it, and free memory that was not found.

use crate::children;
use crate::foreign_pools;
use crate::own;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use children::{alone, alone_with};
use foreign_pools::{Host, MIB};
use freehold::{Block, DeviceVec, Stream};
use freehold_driver::cuda::{CUdeviceptr, CUstream, stream, wait_value_flags};
use freehold_testing::{HANG_TIMEOUT, at_effort};
use own::{Gate, Own};

/// Elements of 4 MiB.
const LARGE: usize = 1 << 20;

/// Whether work in `stream` with a block is done, as far as nothing holds it up.
fn is_written(own: &Own, stream: &Stream, block: &mut Block<u32>) -> bool {
    stream.fill_bytes(block, 7).unwrap();
    let written = stream.event().unwrap();
    own.device.set_budget(u64::MAX);
    own.pass_by();
    written.is_complete().unwrap()
}

/// Lets the pool have no more than it has.
fn allow_no_more(own: &Own) {
    own.device.set_budget(own.device.stats().reserved_bytes);
}

/// A block of `home` that work in `user` is held up with, released.
fn released_while_used(own: &Own, home: &Stream, user: &Stream, gate: &Gate) -> u64 {
    let mut block = home.alloc::<u32>(LARGE).unwrap();
    own.hold(user, gate);
    user.fill_bytes(&mut block, 1).unwrap();
    block.address()
}

#[test]
fn memory_that_its_stream_waits_for_is_waited_for_in_third_streams_too() {
    let own = Own::new();
    let ([a, b, c], gate) = (own.streams(), own.gate());
    let address = released_while_used(&own, &a, &b, &gate);
    allow_no_more(&own);
    let mut again = a.alloc::<u32>(LARGE).unwrap();
    assert_eq!(again.address(), address);
    assert!(!is_written(&own, &c, &mut again), "the work in the second stream is still to come");
    gate.open();
}

#[test]
fn memory_that_its_stream_waits_for_and_gives_up_unused_is_not_lent_before() {
    let own = Own::new();
    let ([a, b, c], gate) = (own.streams(), own.gate());
    released_while_used(&own, &a, &b, &gate);
    allow_no_more(&own);
    drop(a.alloc::<u32>(LARGE).unwrap());
    let mut lent = c.alloc::<u32>(LARGE).unwrap();
    assert!(!is_written(&own, &c, &mut lent), "the work in the second stream is still to come");
    gate.open();
}

#[test]
fn memory_lent_behind_a_wait_is_waited_for_in_third_streams_too() {
    let own = Own::new();
    let ([a, b, c], gate) = (own.streams(), own.gate());
    let address = released_while_used(&own, &a, &a, &gate);
    allow_no_more(&own);
    let mut lent = b.alloc::<u32>(LARGE).unwrap();
    assert_eq!(lent.address(), address);
    assert!(!is_written(&own, &c, &mut lent), "the work in the first stream is still to come");
    gate.open();
}

#[test]
fn a_block_that_becomes_shorter_keeps_what_other_streams_use() {
    let own = Own::new();
    let ([a, b], gate) = (own.streams(), own.gate());
    let mut block = a.upload(&[5_u32; LARGE]).unwrap();
    let mut copy = b.alloc::<u32>(LARGE).unwrap();
    own.device.synchronize().unwrap();
    own.hold(&b, &gate);
    b.copy(&block, &mut copy).unwrap();
    block.resize(&a, LARGE / 2).unwrap();
    let mut tail = a.alloc::<u32>(LARGE / 2).unwrap();
    a.fill_bytes(&mut tail, 0).unwrap();
    own.pass_by();
    gate.open();
    assert!(b.download(&copy).unwrap() == [5; LARGE], "what was copied is what the block held");
}

#[test]
fn a_small_block_does_not_cut_up_what_is_free_while_others_wait() {
    let own = Own::new();
    let ([a, b], gate) = (own.streams(), own.gate());
    released_while_used(&own, &a, &b, &gate);
    drop(a.alloc::<u32>(16 * LARGE).unwrap());
    // Of another length: what the thread keeps goes where it can be cut.
    drop(a.alloc::<u32>(2 * LARGE).unwrap());
    let reserved = own.device.stats().reserved_bytes;
    let small = a.alloc::<u8>(8 << 10).unwrap();
    let large = a.alloc::<u32>(13 * LARGE).unwrap();
    assert_eq!(own.device.stats().reserved_bytes, reserved);
    gate.open();
    drop((small, large));
}

#[test]
fn a_vector_has_memory_of_a_chunk_that_is_longer_than_its_room() {
    let own = Own::new();
    let [stream] = own.streams();
    drop(stream.alloc::<u8>(64 << 20).unwrap());
    own.device.synchronize().unwrap();
    allow_no_more(&own);
    let mut vector = DeviceVec::<u8>::with_max_len(&stream, 4 << 20).unwrap();
    vector.reserve(&stream, 4 << 20).unwrap();
    assert_eq!(vector.capacity(), 4 << 20);
}

#[test]
fn a_context_is_closed_while_threads_allocate_and_release_in_it() {
    let own = Own::new();
    for _ in 0..at_effort(10, 100, 1000) {
        let context = own.device.new_context().unwrap();
        let streams: Vec<_> = (0..3).map(|_| context.new_stream().unwrap()).collect();
        thread::scope(|scope| {
            for stream in &streams {
                scope.spawn(|| {
                    while let Ok(block) = stream.alloc_tagged::<u8>(100_000, "short-lived") {
                        drop(block)
                    }
                });
            }
            while own.device.stats().owned_blocks == 0 {
                thread::yield_now();
            }
            context.close_with_blocks().unwrap();
        });
        drop(streams);
        own.device.synchronize().unwrap();
        own.device.tidy().unwrap();
        assert_eq!((own.device.blocks(), own.device.live_by_tag()), (vec![], vec![]));
        let totals = own.device.stats();
        assert_eq!((totals.owned_blocks, totals.owned_bytes), (0, 0));
    }
}

fn hold(host: &Host, gate: &Gate, stream: CUstream) {
    stream::wait_value_32(&host.api, stream, CUdeviceptr(gate.address()), 1, wait_value_flags::GEQ).unwrap();
}

#[test]
fn a_wrong_use_of_a_block_leaves_its_other_uses_known() {
    let own = Own::new();
    let host = Host::new();
    let (gate, [a, b]) = (own.gate(), [host.stream(), host.stream()]);
    let block = host.allocator.alloc(4096, a).unwrap();
    hold(&host, &gate, b);
    host.allocator.record_use(block, b).unwrap();
    for wrong in [a, b] {
        host.allocator.record_use(block + 1, wrong).unwrap_err();
    }
    host.allocator.free(block, a).unwrap();
    let others: Vec<_> = (0..100).map(|_| host.allocator.alloc(4096, a).unwrap()).collect();
    assert!(!others.contains(&block), "the work in the second stream is still to come");
    gate.open();
    others.into_iter().for_each(|other| host.allocator.free(other, a).unwrap());
}

#[test]
fn what_a_block_gives_up_in_a_checked_stream_is_lent_behind_its_work() {
    let name = "what_a_block_gives_up_in_a_checked_stream_is_lent_behind_its_work";
    alone_with(name, &[("FREEHOLD_STREAMS", "checked")], || {
        let own = Own::new();
        let host = Host::new();
        let (gate, [a, b]) = (own.gate(), [host.stream(), host.stream()]);
        let block = host.allocator.alloc(8 * MIB, a).unwrap();
        hold(&host, &gate, a);
        assert_eq!(host.allocator.realloc(block, 4 * MIB, a).unwrap(), block);
        let other = host.allocator.alloc(2 * MIB, b).unwrap();
        assert!(!(block..block + 8 * MIB).contains(&other), "the work in the first stream is still to come");
        gate.open();
    });
}

#[test]
fn every_stream_in_turn_has_all_memory() {
    let name = "every_stream_in_turn_has_all_memory";
    alone_with(name, &[("FREEHOLD_SOFT_MEMORY", "1GiB")], || {
        let host = Host::new();
        for turn in 0..160 {
            let stream = host.stream();
            let block =
                host.allocator.alloc(900 * MIB, stream).unwrap_or_else(|error| panic!("stream {turn}: {error}"));
            host.allocator.free(block, stream).unwrap();
        }
    });
}

#[test]
fn a_forked_child_ends_whatever_other_threads_of_its_parent_did() {
    alone("a_forked_child_ends_whatever_other_threads_of_its_parent_did", || {
        let host = Host::new();
        let stream = host.stream();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut sizes = (1..=20).cycle();
                while !is_done.load(Ordering::Relaxed) {
                    let block = host.allocator.alloc(sizes.next().unwrap() * MIB, stream).unwrap();
                    host.allocator.free(block, stream).unwrap();
                }
            });
            let kept = host.allocator.alloc(MIB, stream).unwrap();
            host.allocator.free(kept, stream).unwrap();
            let stuck = (0..at_effort(10, 100, 1000)).map(|_| status_of_child()).find(|&status| status != 0);
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(stuck, None);
        });
    });
}

/// Forks a child that ends at once, as a program does. How it ended: one that waits for a lock is killed.
fn status_of_child() -> i32 {
    // SAFETY: the child ends at once, which needs no other thread.
    match unsafe { libc::fork() } {
        -1 => panic!("the system has room for a process"),
        0 => {
            // SAFETY: has no conditions.
            unsafe { libc::alarm(HANG_TIMEOUT.as_secs() as u32) };
            // SAFETY: ends the child as a return from its first function would, once.
            unsafe { libc::exit(0) }
        }
        process => {
            let mut status = 0;
            // SAFETY: `status` outlives the call, which writes one `i32` to it.
            assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
            status
        }
    }
}

#[test]
fn a_named_block_grows_within_its_budget_where_it_lies_and_elsewhere() {
    const LEN: usize = 64 << 10;
    let own = Own::new();
    let live = |device: &freehold::Device| {
        device.live_by_tag().iter().find(|(name, _)| &**name == "grown").map_or(0, |&(_, bytes)| bytes)
    };
    for is_blocked in [false, true] {
        let stream = own.device.new_stream().unwrap();
        own.device.set_tag_budget("grown", 3 * LEN as u64 / 2).unwrap();
        let mut block = stream.alloc_tagged::<u8>(LEN, "grown").unwrap();
        // What follows it is in use, so that it has to move.
        let behind: Vec<_> = (0..if is_blocked { 64 } else { 0 }).map(|_| stream.alloc::<u8>(LEN).unwrap()).collect();
        stream.write(&mut block, &[7; LEN]).unwrap();
        block.resize(&stream, 3 * LEN / 2).unwrap();
        assert_eq!((live(&own.device), block.len()), (3 * LEN as u64 / 2, 3 * LEN / 2));
        assert!(matches!(block.resize(&stream, 2 * LEN), Err(freehold::Error::BudgetFull { .. })));
        assert_eq!((live(&own.device), block.len()), (3 * LEN as u64 / 2, 3 * LEN / 2));
        assert_eq!(stream.download(&block.view(..LEN).unwrap()).unwrap(), [7; LEN]);
        block.resize(&stream, LEN / 2).unwrap();
        assert_eq!(live(&own.device), LEN as u64 / 2);
        drop((block, behind));
        assert_eq!(live(&own.device), 0);
    }
}
