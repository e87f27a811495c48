//! Sleep and wake where the driver refuses a call: every block of the name is awake or every one asleep, nothing is
//! lost, and the call can be repeated.

use crate::own;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::ledger::State;
use freehold::{Block, Contents, Device, PoolStats, Stream};
use freehold_driver::cuda::faults::{Fault, Faults};
use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, CUmemGenericAllocationHandle, CUresult};
use freehold_testing::report_covered;
use own::{Own, opened};

const MIB: usize = 1 << 20;

fn blocks(device: &Device, stream: &Stream) -> Vec<Block<u8>> {
    device.set_sleepable("weights").unwrap();
    let sizes = [2 * MIB, 3000, 2 * MIB, 70_000];
    let blocks = sizes.iter().zip(1_u8..).map(|(&bytes, value)| {
        let mut block = stream.alloc_tagged(bytes, "weights").unwrap();
        stream.fill(&mut block, value).unwrap();
        block
    });
    blocks.collect()
}

/// Whether all blocks are asleep; otherwise all are awake, with what they had.
fn are_asleep(stream: &Stream, blocks: &[Block<u8>]) -> bool {
    let is_asleep = |block: &Block<u8>| block.owner().unwrap().state == State::Asleep;
    if blocks.iter().all(is_asleep) {
        assert!(blocks.iter().all(|block| stream.download(block).is_err()));
        return true;
    }
    assert!(!blocks.iter().any(is_asleep), "some are asleep and some are not");
    for (block, value) in blocks.iter().zip(1_u8..) {
        assert!(stream.download(block).unwrap() == vec![value; block.len()], "the contents of {value}");
    }
    false
}

/// Makes one call of the driver after the other fail during `act`, until it meets none that does. `check` comes after
/// each failure.
fn sweep<T>(opened: &freehold::open::Opened, code: CUerror, act: impl Fn() -> freehold::Result<T>, check: impl Fn()) {
    for nth in 1.. {
        let faults = Faults::plan(&opened.api, Fault { function: None, nth, code });
        let outcome = act();
        let (has_fired, call) = (faults.has_fired(), faults.record().get(nth as usize - 1).copied());
        drop(faults);
        if !has_fired {
            report_covered(nth - 1, "failed calls");
            return drop(outcome.unwrap());
        }
        eprintln!("call {nth} fails with {code}: {call:?}: {:?}", outcome.as_ref().err().map(ToString::to_string));
        check();
    }
}

#[test]
fn whichever_call_of_a_sleep_fails_all_blocks_are_awake_or_all_asleep_and_it_can_be_repeated() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    drop(faults);
    let ([stream], device) = (own.streams(), &own.device);
    for code in [CUerror::INVALID_VALUE, CUerror::OUT_OF_MEMORY] {
        let blocks = blocks(device, &stream);
        let check = || {
            if are_asleep(&stream, &blocks) {
                device.sleep("weights", Contents::Keep).unwrap();
                assert_eq!(device.stats().reserved_bytes, 0);
                device.wake("weights").unwrap();
            }
            assert!(!are_asleep(&stream, &blocks));
        };
        sweep(&opened, code, || device.sleep("weights", Contents::Keep), check);
        assert!(are_asleep(&stream, &blocks));
        assert_eq!(device.stats().reserved_bytes, 0);
        device.wake("weights").unwrap();
        assert!(!are_asleep(&stream, &blocks));
        drop(blocks);
        end(device);
    }
}

#[test]
fn whichever_call_of_a_wake_fails_all_blocks_are_awake_or_all_asleep_and_it_can_be_repeated() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    drop(faults);
    let ([stream], device) = (own.streams(), &own.device);
    for code in [CUerror::INVALID_VALUE, CUerror::OUT_OF_MEMORY] {
        let blocks = blocks(device, &stream);
        device.sleep("weights", Contents::Keep).unwrap();
        let check = || {
            if !are_asleep(&stream, &blocks) {
                device.sleep("weights", Contents::Keep).unwrap();
            }
            assert_eq!(device.stats().reserved_bytes, 0);
        };
        sweep(&opened, code, || device.wake("weights"), check);
        assert!(!are_asleep(&stream, &blocks));
        drop(blocks);
        end(device);
    }
}

/// Everything goes back. Errors of drops are those that were caused.
fn end(device: &Device) {
    device.synchronize().unwrap();
    device.trim().unwrap();
    assert_eq!(device.stats(), PoolStats::default());
    drop(device.drop_errors());
}

/// The driver's own functions, for those below.
static PLAIN: OnceLock<Api> = OnceLock::new();

/// Which call of each of them fails, counted down.
static UNMAP: AtomicU64 = AtomicU64::new(0);
static MAP: AtomicU64 = AtomicU64::new(0);

fn fails(countdown: &AtomicU64) -> bool {
    countdown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
}

unsafe extern "C" fn map(
    at: CUdeviceptr,
    bytes: usize,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    flags: u64,
) -> CUresult {
    if fails(&MAP) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { (PLAIN.get().unwrap().cuMemMap)(at, bytes, offset, memory, flags) }
}

unsafe extern "C" fn unmap(at: CUdeviceptr, bytes: usize) -> CUresult {
    if fails(&UNMAP) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: as above.
    unsafe { (PLAIN.get().unwrap().cuMemUnmap)(at, bytes) }
}

#[test]
fn memory_that_is_neither_unmapped_nor_mapped_again_sleeps_with_its_contents_and_goes_back_later() {
    let opened = opened();
    PLAIN.get_or_init(|| opened.api);
    let own = Own::over(Api { cuMemMap: map, cuMemUnmap: unmap, ..opened.api }, &opened);
    let ([stream], device) = (own.streams(), &own.device);
    let blocks = blocks(device, &stream);
    for left_first in [false, true] {
        // The third chunk stays mapped, and the second one cannot be mapped again.
        UNMAP.store(3, Ordering::Relaxed);
        MAP.store(2, Ordering::Relaxed);
        device.sleep("weights", Contents::Keep).unwrap_err();
        assert_eq!((UNMAP.load(Ordering::Relaxed), MAP.load(Ordering::Relaxed)), (0, 0));
        assert!(are_asleep(&stream, &blocks));
        if left_first {
            assert!(device.sleep("weights", Contents::Keep).unwrap().is_some());
            assert_eq!(device.stats().reserved_bytes, 0);
            assert_eq!(device.sleep("weights", Contents::Keep).unwrap(), None);
        }
        device.wake("weights").unwrap();
        assert!(!are_asleep(&stream, &blocks));
    }
    drop(blocks);
    end(device);
}
