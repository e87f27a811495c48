//! The pool: budgets, trimming, and memory that never has two owners at once, from many threads and in random order.

use std::sync::mpsc;
use std::thread;

use freehold::{Block, Error};
use freehold_testing::{Random, at_effort, seed};

use super::rig::{N, Rig};

#[test]
fn what_is_live_is_counted_and_trimming_gives_the_rest_back() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let block = stream.alloc::<u8>(3 << 20).unwrap();
    let totals = rig.device.stats();
    assert!(totals.owned_bytes >= 3 << 20, "{totals:?}");
    assert!(totals.reserved_bytes >= totals.owned_bytes, "{totals:?}");
    drop(block);
    stream.synchronize().unwrap();
    rig.device.synchronize().unwrap();
    rig.device.trim().unwrap();
    assert_eq!(rig.device.stats().reserved_bytes, 0);
}

#[test]
fn a_budget_is_not_exceeded_and_the_refusal_says_what_was_wanted() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    rig.device.set_budget(64 << 20);
    let refused = stream.alloc::<u8>(100 << 20).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
    assert!(refused.to_string().starts_with("out of memory: 100.0 MiB requested"), "{refused}");
    stream.alloc::<u8>(16 << 20).unwrap();
}

#[test]
fn more_than_the_device_has_is_refused() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let refused = stream.alloc::<u8>(1 << 50).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
}

#[test]
fn a_tag_has_a_budget_of_its_own() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    rig.device.set_tag_budget("model", 1 << 20).unwrap();
    let block = stream.alloc_tagged::<u8>(512 << 10, "model/cache").unwrap();
    let refused = stream.alloc_tagged::<u8>(600 << 10, "model").unwrap_err();
    assert!(matches!(refused, Error::BudgetFull { .. }), "{refused}");
    drop(block);
    stream.alloc_tagged::<u8>(600 << 10, "model").unwrap();
}

#[test]
fn blocks_keep_what_they_hold_in_random_programs() {
    let rig = Rig::new();
    let streams = rig.streams::<3>();
    let mut random = Random::new(seed());
    let mut below = |end: usize| random.below(end as u64) as usize;
    let mut live: Vec<(Block<u32>, u32)> = Vec::new();
    for step in 0..at_effort(40, 600, 6000) {
        let stream = &streams[below(3)];
        match below(4) {
            0 | 1 if live.len() < 40 => {
                let len = N + below(300_000);
                let mut block = stream.alloc::<u32>(len).unwrap();
                stream.fill_bytes(&mut block, step as u8).unwrap();
                live.push((block, u32::from(step as u8) * 0x0101_0101));
            }
            2 if !live.is_empty() => {
                let at = below(live.len());
                rig.add(stream, &mut live[at].0, 3);
                let (block, value) = &live[at];
                let found = stream.download(block).unwrap();
                assert_eq!(found[..N], [value.wrapping_add(3); N], "step {step}");
                assert!(found[N..].iter().all(|found| found == value), "step {step}");
                live.swap_remove(at);
            }
            _ if !live.is_empty() => drop(live.swap_remove(below(live.len()))),
            _ => {}
        }
    }
    for (block, value) in &live {
        let found = streams[0].download(block).unwrap();
        assert!(found.iter().all(|found| found == value));
    }
}

#[test]
fn threads_have_memory_of_their_own() {
    let rig = Rig::new();
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let rig = &rig;
            scope.spawn(move || {
                let [stream] = rig.streams();
                for round in 0..at_effort(10, 50, 500) {
                    let mut block = stream.upload(&[thread << 16 | round; N]).unwrap();
                    rig.add(&stream, &mut block, 1);
                    assert_eq!(stream.download(&block).unwrap(), [(thread << 16 | round) + 1; N]);
                }
            });
        }
    });
}

#[test]
fn a_block_that_another_thread_releases_is_as_released_as_any() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut block = stream.upload(&[1_u32; N]).unwrap();
    rig.add(&stream, &mut block, 1);
    thread::scope(|scope| scope.spawn(move || drop(block)).join().unwrap());
    stream.synchronize().unwrap();
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.blocks().len(), 0);
}

#[test]
fn blocks_of_all_sizes_lie_apart() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let sizes = [1, 511, 512, 513, 1024, 4096, 5000, 65_536, 65_537, 1 << 20, (2 << 20) + 1, 5 << 20];
    let mut live = Vec::new();
    for (number, bytes) in sizes.into_iter().chain(sizes).enumerate() {
        let mut block = stream.alloc::<u8>(bytes).unwrap();
        stream.fill_bytes(&mut block, number as u8).unwrap();
        live.push(block);
    }
    for (number, block) in live.iter().enumerate() {
        assert!(stream.download(block).unwrap().iter().all(|&byte| byte == number as u8), "block {number}");
    }
    let owners = rig.device.blocks();
    assert_eq!(owners.len(), 24);
    assert!(owners.windows(2).all(|pair| pair[0].base + pair[0].bytes <= pair[1].base), "{owners:?}");
}

#[test]
fn what_is_beyond_the_threshold_goes_back_when_the_device_is_synchronized() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    drop(stream.alloc::<u8>(40 << 20).unwrap());
    rig.device.synchronize().unwrap();
    assert!(rig.device.stats().reserved_bytes >= 40 << 20);
    rig.device.set_release_threshold(0);
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.stats().reserved_bytes, 0);
}

#[test]
fn threads_that_release_what_others_allocated_lose_nothing() {
    let rig = Rig::new();
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<(Block<u32>, u32)>()).unzip();
    senders.rotate_left(1);
    thread::scope(|scope| {
        for (thread, (next, news)) in (0_u32..).zip(senders.into_iter().zip(receivers)) {
            let rig = &rig;
            scope.spawn(move || {
                let [stream] = rig.streams();
                for round in 0..at_effort(10, 50, 500) {
                    let value = thread << 16 | round;
                    // A thread that has finished receives no more.
                    drop(next.send((stream.upload(&[value; N]).unwrap(), value)));
                    for (block, value) in news.try_iter() {
                        assert_eq!(stream.download(&block).unwrap(), [value; N]);
                    }
                }
                drop(next);
                news.iter().for_each(drop);
            });
        }
    });
    rig.device.synchronize().unwrap();
    assert_eq!(rig.device.stats().owned_blocks, 0);
    assert!(rig.device.drop_errors().is_empty());
}
