//! A device that cannot map memory: its pool uses memory that comes with addresses, and everything else works the same.
//!
//! `FREEHOLD_SEED` names the only seed to run of the random operations.

use crate::own;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use freehold::{Block, DeviceVec, Error, PoolStats, Stream};
use freehold_driver::cuda::{
    Api, CUdevice, CUdevice_attribute, CUdeviceptr, CUerror, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUresult,
};
use freehold_testing::{Random, at_effort, print_seed, report_covered, seeds};
use own::{Gate, N, Own, grid, opened};

const MIB: usize = 1 << 20;

/// The driver's own answers, for the tables below.
static PLAIN: OnceLock<Api> = OnceLock::new();

unsafe extern "C" fn maps_nothing(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    if attribute == CUdevice_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED {
        // SAFETY: the caller gives a pointer to one `i32`, which outlives the call.
        unsafe { value.write(0) };
        return Ok(());
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { (PLAIN.get().unwrap().cuDeviceGetAttribute)(value, attribute, device) }
}

unsafe extern "C" fn reserves_nothing(_: *mut CUdeviceptr, _: usize, _: usize, _: CUdeviceptr, _: u64) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

unsafe extern "C" fn creates_nothing(
    _: *mut CUmemGenericAllocationHandle,
    _: usize,
    _: *const CUmemAllocationProp,
    _: u64,
) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}

/// How far past its real address the driver reports memory to be, and the real address for each reported one.
static SHIFT_BYTES: AtomicU64 = AtomicU64::new(0);
static SHIFTED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

unsafe extern "C" fn allocates_shifted(start: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let shift_bytes = SHIFT_BYTES.load(Ordering::Relaxed);
    // SAFETY: the caller gives a pointer to one address, which outlives the call; there is more than is told of.
    unsafe { (PLAIN.get().unwrap().cuMemAlloc_v2)(start, bytes + shift_bytes.min(MIB as u64) as usize) }?;
    // SAFETY: as above, and the driver has written it.
    let real = unsafe { start.read() }.0;
    let shifted = real + shift_bytes;
    SHIFTED.lock().unwrap().insert(shifted, real);
    // SAFETY: as above.
    unsafe { start.write(CUdeviceptr(shifted)) };
    Ok(())
}

unsafe extern "C" fn frees_shifted(start: CUdeviceptr) -> CUresult {
    let real = SHIFTED.lock().unwrap().remove(&start.0).unwrap_or(start.0);
    // SAFETY: the call takes no pointer.
    unsafe { (PLAIN.get().unwrap().cuMemFree_v2)(CUdeviceptr(real)) }
}

/// A device whose memory lies elsewhere than the driver says, while a test wants it to.
fn shifted() -> Own {
    let api = Api { cuMemAlloc_v2: allocates_shifted, cuMemFree_v2: frees_shifted, ..tables()[0] };
    Own::over(api, &opened())
}

/// Holds a stream up with work that uses a block of its own.
fn hold_up(own: &Own, busy: &Stream, gate: &Gate) {
    let mut used = busy.alloc::<u32>(N).unwrap();
    own.hold(busy, gate);
    busy.launch(&own.kernels.add, grid(), (&mut used, 1_u32, N as u32)).unwrap();
}

/// Devices that say so, and one whose driver does not have the calls.
fn tables() -> [Api; 2] {
    let plain = *PLAIN.get_or_init(|| opened().api);
    let without = Api { cuMemAddressReserve: reserves_nothing, cuMemCreate: creates_nothing, ..plain };
    [Api { cuDeviceGetAttribute: maps_nothing, ..without }, without]
}

fn own() -> Own {
    Own::over(tables()[0], &opened())
}

#[test]
fn blocks_are_had_used_again_and_given_back_on_a_driver_without_the_calls() {
    for api in tables() {
        let own = Own::over(api, &opened());
        let [stream] = own.streams();
        for bytes in [100, 5000, 300_000, 3 * MIB, 40 * MIB] {
            let mut block = stream.alloc::<u8>(bytes).unwrap();
            stream.fill_bytes(&mut block, 7).unwrap();
            assert!(stream.download(&block).unwrap().iter().all(|byte| *byte == 7));
            let address = block.address();
            drop(block);
            assert_eq!(stream.alloc::<u8>(bytes).unwrap().address(), address);
        }
        own.device.synchronize().unwrap();
        own.device.trim().unwrap();
        assert_eq!(own.device.stats(), PoolStats::default());
        assert!(matches!(stream.alloc_shareable::<u8>(1), Err(Error::CannotShare)));
        assert!(!DeviceVec::<u8>::new(&stream).unwrap().grows_in_place());
    }
}

#[test]
fn memory_is_not_given_back_while_that_would_wait() {
    let own = own();
    let ([busy, idle], gate) = (own.streams(), own.gate());
    hold_up(&own, &busy, &gate);
    drop(idle.alloc::<u8>(20 * MIB).unwrap());
    assert_eq!(own.device.trim().unwrap(), 0);
    gate.open();
    own.device.synchronize().unwrap();
    assert!(own.device.trim().unwrap() >= 20 * MIB as u64);
}

#[test]
fn release_now_frees_memory_only_while_the_device_is_idle_and_waits_for_no_other_stream() {
    let own = own();
    let ([busy, idle], gate) = (own.streams(), own.gate());
    let reserved_bytes = own.device.stats().reserved_bytes;
    idle.alloc::<u8>(40 * MIB).unwrap().release_now().unwrap();
    assert_eq!(own.device.stats().reserved_bytes, reserved_bytes);
    hold_up(&own, &busy, &gate);
    let block = idle.alloc::<u8>(40 * MIB).unwrap();
    let held_bytes = own.device.stats().reserved_bytes;
    let address = block.address();
    block.release_now().unwrap();
    assert_eq!(own.device.stats().reserved_bytes, held_bytes);
    // What could not go is handed out again.
    assert_eq!(idle.alloc::<u8>(40 * MIB).unwrap().address(), address);
    gate.open();
    assert!(own.device.drop_errors().is_empty());
    own.device.synchronize().unwrap();
    assert!(own.device.trim().unwrap() >= 40 * MIB as u64);
}

#[test]
fn memory_that_begins_with_no_whole_page_is_used_and_given_back_when_nothing_runs() {
    let own = shifted();
    let ([busy, idle], gate) = (own.streams(), own.gate());
    hold_up(&own, &busy, &gate);
    SHIFT_BYTES.store(4096, Ordering::Relaxed);
    let mut blocks = [20, 30].map(|mib| idle.alloc::<u8>(mib * MIB).unwrap());
    SHIFT_BYTES.store(0, Ordering::Relaxed);
    gate.open();
    for block in &mut blocks {
        assert_eq!(block.address() % (2 * MIB as u64), 0);
        idle.fill_bytes(block, 7).unwrap();
        assert!(idle.download(block).unwrap().iter().all(|byte| *byte == 7));
    }
    drop(blocks);
    own.device.synchronize().unwrap();
    own.device.trim().unwrap();
    assert_eq!(own.device.stats(), PoolStats::default());
    assert_eq!(SHIFTED.lock().unwrap().len(), 0);
}

#[test]
fn memory_at_addresses_that_the_pool_cannot_tell_apart_is_refused_and_given_back_when_nothing_runs() {
    let own = shifted();
    let ([busy, idle], gate) = (own.streams(), own.gate());
    hold_up(&own, &busy, &gate);
    SHIFT_BYTES.store(1 << 46, Ordering::Relaxed);
    let known = SHIFTED.lock().unwrap().len();
    assert!(matches!(idle.alloc::<u8>(20 * MIB), Err(Error::OutOfMemory(_))));
    assert!(matches!(idle.alloc::<u8>(20 * MIB), Err(Error::OutOfMemory(_))));
    SHIFT_BYTES.store(0, Ordering::Relaxed);
    assert_eq!(SHIFTED.lock().unwrap().len(), known + 1);
    gate.open();
    own.device.synchronize().unwrap();
    drop(idle.alloc::<u8>(20 * MIB).unwrap());
    own.device.trim().unwrap();
    assert_eq!(own.device.stats(), PoolStats::default());
    assert_eq!(SHIFTED.lock().unwrap().len(), 0);
}

#[test]
fn a_budget_holds_and_chunks_that_are_too_short_make_room_for_a_longer_one() {
    let own = own();
    let [one, other] = own.streams();
    own.device.trim().unwrap();
    own.device.set_budget(24 * MIB as u64);
    let blocks = [(); 3].map(|()| one.alloc::<u8>(8 * MIB).unwrap());
    assert!(matches!(other.alloc::<u8>(8 * MIB), Err(Error::OutOfMemory(_))));
    assert!(own.device.stats().reserved_bytes <= 24 * MIB as u64);
    drop(blocks);
    let whole = other.alloc::<u8>(24 * MIB).unwrap();
    assert_eq!(own.device.stats().reserved_bytes, 24 * MIB as u64);
    drop(whole);
}

#[test]
fn a_context_uses_the_memory_and_leaves_it_to_others_when_it_is_closed() {
    let own = own();
    let context = own.device.new_context().unwrap();
    let stream = context.new_stream().unwrap();
    let block = stream.upload(&vec![3_u8; 5 * MIB]).unwrap();
    assert_eq!(stream.download(&block).unwrap(), vec![3; 5 * MIB]);
    context.close_with_blocks().unwrap();
    drop((block, stream));
    own.device.synchronize().unwrap();
    own.device.trim().unwrap();
    assert_eq!(own.device.stats(), PoolStats::default());
}

/// Checks that a block holds what it was filled with, and drops it.
fn check(stream: &Stream, (block, value): (Block<u8>, u8)) {
    assert!(stream.download(&block).unwrap().iter().all(|byte| *byte == value), "another wrote into a block");
}

#[test]
fn no_owner_finds_what_another_wrote() {
    let seeds = seeds(1, 6, 200);
    report_covered(seeds.clone().count() as u64, "seeds of memory that is not mapped");
    for seed in seeds {
        print_seed(seed);
        let own = own();
        own.device.set_budget(96 * MIB as u64);
        let (streams, mut random): ([Stream; 3], Random) = (own.streams(), Random::new(seed));
        let mut below = |end: u64| random.below(end) as usize;
        let mut live: Vec<(Block<u8>, u8)> = Vec::new();
        for step in 0..at_effort(60, 300, 300) {
            let stream = &streams[below(3)];
            let bytes = [4096, MIB as u64, 6 * MIB as u64][below(3)];
            let bytes = 1 + below(bytes);
            match below(10) {
                0..5 => match stream.alloc::<u8>(bytes) {
                    Ok(mut block) => {
                        stream.fill_bytes(&mut block, step as u8).unwrap();
                        live.push((block, step as u8));
                    }
                    Err(Error::OutOfMemory(_)) => {}
                    Err(error) => panic!("{error}"),
                },
                5..8 if !live.is_empty() => {
                    let index = below(live.len() as u64);
                    check(stream, live.swap_remove(index));
                }
                8 => drop(own.device.trim_to(bytes as u64).unwrap()),
                _ => own.device.synchronize().unwrap(),
            }
            let live_bytes: u64 = live.iter().map(|(block, _)| block.len() as u64).sum();
            assert_eq!(own.device.stats().owned_bytes, live_bytes);
            assert!(own.device.stats().reserved_bytes <= 96 * MIB as u64);
        }
        live.into_iter().for_each(|block| check(&streams[0], block));
        own.device.synchronize().unwrap();
        own.device.trim().unwrap();
        assert_eq!(own.device.stats(), PoolStats::default());
    }
}
