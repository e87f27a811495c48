//! Blocks that sleep: their memory goes back to the driver, their addresses and owners stay.

use crate::children::{alone, alone_with};
use crate::own;

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

use freehold::ledger::State;
use freehold::{Block, Contents, Device, Error, PoolStats, RawAddress, Stream};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{CUgraph, CUstream, CUstreamCaptureMode, capture, context, graph, module};
use freehold_testing::at_effort;
use freehold_testing::child::is_child;
use own::{N, Own, grid};

const MIB: usize = 1 << 20;
const MIBS: u64 = MIB as u64;

fn weights(stream: &Stream, bytes: usize, value: u8) -> Block<u8> {
    let mut block = stream.alloc_tagged(bytes, "weights").unwrap();
    stream.fill(&mut block, value).unwrap();
    block
}

fn has(stream: &Stream, block: &Block<u8>, value: u8) -> bool {
    stream.download(block).unwrap() == vec![value; block.len()]
}

fn is_asleep<T>(outcome: freehold::Result<T>) -> bool {
    matches!(outcome, Err(Error::Asleep { tag, .. }) if &*tag == "weights")
}

/// Ends a test: everything that is left goes back.
fn assert_nothing_is_left(device: &Device) {
    device.synchronize().unwrap();
    device.trim().unwrap();
    assert_eq!(device.stats(), PoolStats::default());
    assert!(device.drop_errors().is_empty());
}

#[test]
fn kept_contents_come_back_at_the_same_addresses_and_all_memory_is_the_drivers_meanwhile() {
    // On a machine of its own, where nothing else uses the driver's memory.
    let name = "kept_contents_come_back_at_the_same_addresses_and_all_memory_is_the_drivers_meanwhile";
    alone(name, || {
        let own = Own::new();
        let ([stream], device) = (own.streams(), &own.device);
        device.set_sleepable("weights").unwrap();
        let other = stream.upload(&[9_u8; 100]).unwrap();
        device.synchronize().unwrap();
        let free_bytes = device.free_bytes().unwrap();
        // Small ones lie in slabs.
        let sizes = [5 * MIB, 100, 3000, 17 * MIB, 70_000];
        let blocks: Vec<_> = sizes.iter().zip(1..).map(|(&bytes, value)| weights(&stream, bytes, value)).collect();
        let addresses: Vec<_> = blocks.iter().map(Block::address).collect();
        let taken_bytes = free_bytes - device.free_bytes().unwrap();
        let owned_bytes: usize = sizes.iter().sum();

        assert_eq!(device.sleep("weights", Contents::Keep).unwrap(), Some(taken_bytes));
        assert_eq!(device.free_bytes().unwrap(), free_bytes);
        let stats = device.stats();
        assert_eq!((stats.asleep_kept_bytes, stats.asleep_dropped_bytes), (owned_bytes as u64, 0));
        assert_eq!(stats.owned_bytes, owned_bytes as u64 + 100);
        assert!(stats.asleep_host_bytes >= stats.asleep_kept_bytes);
        assert_eq!(stats.cached_bytes + 100, stats.reserved_bytes);
        assert_eq!(device.owner_of(addresses[0] + 7).unwrap().state, State::Asleep);
        assert!(blocks[0].owner().unwrap().to_string().contains(", asleep"));
        assert_eq!(device.owner_of(other.address()).unwrap().state, State::Owned);
        assert_eq!(stream.download(&other).unwrap(), [9; 100]);

        assert_eq!(device.wake("weights").unwrap(), Some(taken_bytes));
        assert_eq!(device.stats().asleep_host_bytes, 0);
        assert_eq!(device.owner_of(addresses[0]).unwrap().state, State::Owned);
        assert_eq!(blocks.iter().map(Block::address).collect::<Vec<_>>(), addresses);
        for (block, value) in blocks.iter().zip(1..) {
            assert!(has(&stream, block, value), "{value}");
        }
        drop((blocks, other));
        assert_nothing_is_left(device);
    });
}

#[test]
fn dropped_contents_take_no_host_memory_and_the_blocks_can_be_written_again() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let mut block = weights(&stream, 6 * MIB, 1);
    assert_eq!(device.sleep("weights", Contents::Drop).unwrap(), Some(6 * MIBS));
    let stats = device.stats();
    assert_eq!((stats.asleep_dropped_bytes, stats.asleep_host_bytes, stats.reserved_bytes), (6 * MIBS, 0, 0));
    assert_eq!(device.wake("weights").unwrap(), Some(6 * MIBS));
    stream.fill(&mut block, 3).unwrap();
    assert!(has(&stream, &block, 3));
    drop(block);
    assert_nothing_is_left(device);
}

#[test]
fn a_second_sleep_and_a_second_wake_do_nothing() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    device.set_sleepable("weights").unwrap();
    assert_eq!(device.wake("weights").unwrap(), None);
    let block = weights(&stream, 2 * MIB, 1);
    assert_eq!(device.sleep("weights", Contents::Keep).unwrap(), Some(2 * MIBS));
    // The contents stay kept.
    assert_eq!(device.sleep("weights", Contents::Drop).unwrap(), None);
    assert_eq!(device.wake("weights").unwrap(), Some(2 * MIBS));
    assert_eq!(device.wake("weights").unwrap(), None);
    assert!(has(&stream, &block, 1));
}

#[test]
fn every_use_of_a_sleeping_block_is_refused_and_says_what_to_do() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let mut block = stream.alloc_tagged::<u32>(N, "weights").unwrap();
    let mut other = stream.zeros::<u32>(N).unwrap();
    stream.fill(&mut block, 7).unwrap();
    device.sleep("weights", Contents::Keep).unwrap();
    assert!(is_asleep(stream.fill(&mut block, 1)));
    assert!(is_asleep(stream.download(&block)));
    assert!(is_asleep(stream.download(&block.view(10..20).unwrap())));
    assert!(is_asleep(stream.write(&mut block, &[1; N])));
    assert!(is_asleep(stream.copy(&block, &mut other)));
    assert!(is_asleep(stream.copy(&other, &mut block)));
    assert!(is_asleep(stream.launch(&own.kernels.add, grid(), (&mut block, 1_u32, N as u32))));
    assert!(is_asleep(stream.lend(&block)));
    assert!(is_asleep(stream.at_rest(&block)));
    let said = stream.fill(&mut block, 1).unwrap_err().to_string();
    let expected = format!("the block at {:#x} is asleep: call `wake(\"weights\")` before using it", block.address());
    assert_eq!(said, expected);
    device.wake("weights").unwrap();
    stream.launch(&own.kernels.add, grid(), (&mut block, 1_u32, N as u32)).unwrap();
    assert_eq!(stream.download(&block).unwrap(), [8; N]);
}

#[test]
fn a_name_sleeps_with_the_names_within_it_and_not_with_others() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    let wrong = device.sleep("weights", Contents::Keep).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "blocks of \"weights\" cannot sleep: call `set_sleepable(\"weights\")` before allocating them"
    );
    let before = weights(&stream, 100, 1);
    device.set_sleepable("weights").unwrap();
    device.set_sleepable("weights/draft").unwrap();
    let [inner, draft, similar] =
        ["weights/layer", "weights/draft/layer", "weights2"].map(|tag| stream.alloc_tagged::<u8>(100, tag).unwrap());
    device.sleep("weights", Contents::Keep).unwrap();
    let is_asleep = [&before, &inner, &draft, &similar].map(|block| block.owner().unwrap().state == State::Asleep);
    assert_eq!(is_asleep, [false, true, false, false]);
    assert_eq!(stream.download(&before).unwrap(), [1; 100]);
}

#[test]
fn a_lent_block_keeps_its_name_awake() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let block = weights(&stream, 100, 5);
    stream.synchronize().unwrap();
    assert_eq!(stream.at_rest(&block).unwrap(), None, "what is read at rest could be gone");
    let lent = stream.lend(&block).unwrap();
    let refused = device.sleep("weights", Contents::Keep).unwrap_err();
    assert_eq!(refused.to_string(), "\"weights\" cannot sleep while 1 of its blocks is lent: end the accesses first");
    assert!(has(&stream, &block, 5));
    lent.done();
    assert!(device.sleep("weights", Contents::Keep).unwrap().is_some());
}

#[test]
fn sleep_waits_for_work_that_was_submitted_and_other_streams_too() {
    let own = Own::new();
    let ([stream, other], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let mut block = weights(&stream, 4 * MIB, 1);
    let gate = own.gate();
    own.hold(&other, &gate);
    other.fill(&mut block, 2).unwrap();
    std::thread::scope(|scope| {
        let asleep = scope.spawn(|| device.sleep("weights", Contents::Keep));
        // The name refuses uses before its memory goes.
        while block.owner().unwrap().state != State::Asleep {
            std::thread::yield_now();
        }
        assert!(is_asleep(stream.download(&block)));
        assert_eq!(device.stats().asleep_host_bytes, 0);
        gate.open();
        assert_eq!(asleep.join().unwrap().unwrap(), Some(4 * MIBS));
    });
    device.wake("weights").unwrap();
    assert!(has(&stream, &block, 2));
}

#[test]
fn blocks_released_asleep_get_no_memory_and_blocks_allocated_asleep_get_it_at_wake() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let [gone, stays] = [1, 2].map(|value| weights(&stream, 8 * MIB, value));
    device.sleep("weights", Contents::Keep).unwrap();
    drop(gone);
    let grown = stream.alloc_tagged::<u8>(4 * MIB, "weights").unwrap();
    let mut big = stream.alloc_tagged::<u8>(20 * MIB, "weights").unwrap();
    assert_eq!(device.stats().reserved_bytes, 0);
    assert_eq!(big.owner().unwrap().state, State::Asleep);
    assert!(is_asleep(stream.fill(&mut big, 1)));
    drop(grown);
    assert_eq!(device.wake("weights").unwrap(), Some(28 * MIBS), "for what is left");
    assert_eq!(device.stats().reserved_bytes, 28 * MIBS);
    stream.fill(&mut big, 4).unwrap();
    assert!(has(&stream, &stays, 2) && has(&stream, &big, 4));
    drop((stays, big));
    assert_nothing_is_left(device);
}

#[test]
fn what_is_kept_of_blocks_that_are_all_released_is_freed_by_trim_and_by_the_devices_end() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let block = weights(&stream, 8 * MIB, 1);
    device.sleep("weights", Contents::Keep).unwrap();
    device.trim().unwrap();
    assert!(device.stats().asleep_host_bytes >= 8 * MIBS, "its owner may wake it");
    drop(block);
    assert_nothing_is_left(device);
    assert_eq!(device.wake("weights").unwrap(), Some(0));
}

#[test]
fn without_memory_for_all_of_them_the_blocks_sleep_on() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let [first, second] = [1, 2].map(|value| weights(&stream, 8 * MIB, value));
    device.sleep("weights", Contents::Keep).unwrap();
    device.set_budget(12 * MIBS);
    let refused = device.wake("weights");
    assert!(matches!(refused, Err(Error::OutOfMemory(shortage)) if shortage.wanted_bytes == 16 * MIBS));
    assert_eq!(device.stats().reserved_bytes, 0);
    assert!(is_asleep(stream.download(&first)));
    device.set_budget(16 * MIBS);
    // Memory that the pool caches for others makes room.
    drop(stream.zeros::<u8>(10 * MIB).unwrap());
    device.synchronize().unwrap();
    device.wake("weights").unwrap();
    assert!(has(&stream, &first, 1) && has(&stream, &second, 2));
}

/// Captures a launch of `add` with a block, by the driver's own calls.
fn capture_add(own: &Own, stream: CUstream, block: &Block<u32>) -> CUgraph {
    let text = CString::new(include_str!("../../examples/kernels.ptx")).unwrap();
    // SAFETY: the text ends with a NUL.
    let module = unsafe { module::load(&own.api, text.as_ptr().cast()) }.unwrap();
    let add = module::function(&own.api, module, c"add").unwrap();
    capture::begin(&own.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
    let (mut address, mut more, mut count) = (block.address(), 5_u32, N as u32);
    let mut pointers = [(&raw mut address).cast(), (&raw mut more).cast(), (&raw mut count).cast()];
    // SAFETY: these are the parameters of the kernel, which stays within the block.
    unsafe { launch::kernel(&own.api, add, LaunchConfig::linear(8, 128), stream, &mut pointers) }.unwrap();
    let captured = own.device.sleep("weights", Contents::Keep);
    assert!(matches!(captured, Err(Error::StreamCaptured)), "{captured:?}");
    capture::end(&own.api, stream).unwrap()
}

#[test]
fn a_captured_graph_replays_after_wake() {
    let own = Own::new();
    let ([stream], device) = (own.streams(), &own.device);
    device.set_sleepable("weights").unwrap();
    let mut block = stream.alloc_tagged::<u32>(N, "weights").unwrap();
    stream.fill(&mut block, 1).unwrap();
    stream.synchronize().unwrap();
    let raw = stream.raw().into();
    context::push_current(&own.api, own.primary).unwrap();
    let made = capture_add(&own, raw, &block);
    assert_eq!(stream.download(&block).unwrap(), [1; N], "it is awake");
    let graph = graph::instantiate(&own.api, made, 0).unwrap();
    for cycle in 1..4 {
        device.sleep("weights", Contents::Keep).unwrap();
        device.wake("weights").unwrap();
        // SAFETY: the kernel stays within the block, which is awake.
        unsafe { graph::launch(&own.api, graph, raw) }.unwrap();
        stream.foreign_work();
        assert_eq!(stream.download(&block).unwrap(), [1 + 5 * cycle; N]);
    }
    graph::destroy_exec(&own.api, graph).unwrap();
    graph::destroy(&own.api, made).unwrap();
    context::pop_current(&own.api).unwrap();
}

#[test]
fn a_kernel_that_uses_sleeping_memory_by_its_address_faults_on_the_software_device() {
    alone("a_kernel_that_uses_sleeping_memory_by_its_address_faults_on_the_software_device", || {
        let own = Own::new();
        let ([stream], device) = (own.streams(), &own.device);
        if !device.is_software() {
            return;
        }
        device.set_sleepable("weights").unwrap();
        let block = weights(&stream, 4 * N, 1);
        // SAFETY: the software device survives an access to memory that is not there.
        let address = unsafe { RawAddress::new(block.address()) };
        let add = || stream.launch(&own.kernels.add, grid(), (address, 1_u32, N as u32));
        add().unwrap();
        device.sleep("weights", Contents::Keep).unwrap();
        add().unwrap();
        assert!(matches!(stream.synchronize(), Err(Error::Faulted(_))));
    });
}

#[test]
fn threads_that_use_blocks_while_a_name_sleeps_and_wakes_are_served_or_refused() {
    let own = Own::new();
    let device = &own.device;
    device.set_sleepable("weights").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for [stream] in [own.streams(), own.streams()] {
            let (add, is_over) = (&own.kernels.add, &is_over);
            scope.spawn(move || {
                let mut block = stream.alloc_tagged::<u32>(N, "weights").unwrap();
                let (mut count, mut is_defined) = (0, false);
                while !is_over.load(Ordering::Relaxed) {
                    let outcome = if is_defined {
                        stream.launch(add, grid(), (&mut block, 1_u32, N as u32)).map(|()| count += 1)
                    } else {
                        stream.fill(&mut block, 0).map(|()| is_defined = true)
                    };
                    assert!(outcome.is_ok() || is_asleep(outcome));
                    match stream.download(&block) {
                        Ok(values) => assert!(!is_defined || values == [count; N]),
                        Err(error) => assert!(is_asleep::<()>(Err(error))),
                    }
                }
            });
        }
        for _ in 0..at_effort(30, 200, 2000) {
            device.sleep("weights", Contents::Keep).unwrap().unwrap();
            device.wake("weights").unwrap().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_nothing_is_left(device);
}

#[test]
fn a_checker_finds_nothing_wrong_with_blocks_that_sleep() {
    let name = "a_checker_finds_nothing_wrong_with_blocks_that_sleep";
    let findings = std::env::temp_dir().join(format!("freehold-sleep-{}", std::process::id()));
    alone_with(name, &[("FREEHOLD_CHECK", findings.to_str().unwrap())], || {
        let own = Own::new();
        let ([stream], device) = (own.streams(), &own.device);
        device.set_sleepable("weights").unwrap();
        let mut blocks: Vec<_> = [3000, 100, 3000, 5 * MIB, 70_000].map(|bytes| weights(&stream, bytes, 7)).into();
        drop(blocks.remove(0));
        device.sleep("weights", Contents::Keep).unwrap();
        drop(blocks.remove(0));
        let mut more = stream.alloc_tagged::<u8>(9 * MIB, "weights").unwrap();
        device.wake("weights").unwrap();
        stream.fill(&mut more, 1).unwrap();
        assert!(blocks.iter().all(|block| has(&stream, block, 7)));
        drop((blocks, more));
        device.synchronize().unwrap();
    });
    if !is_child(name) {
        let found = std::fs::read_to_string(&findings).unwrap();
        std::fs::remove_file(&findings).unwrap();
        assert!(!found.contains("\"kind\""), "{found}");
    }
}
