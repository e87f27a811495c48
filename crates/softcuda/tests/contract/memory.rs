//! Device memory: the blocks of `cuMemAlloc`, what `cuMemFree` accepts and waits for, and the owner of an address.

use crate::common;

use std::thread;

use common::{Context, Gate, Refused, at, child, driver};
use freehold_driver::cuda::memory::{Info, Pitched, Range};
use freehold_driver::cuda::{CUcontext, CUdeviceptr, CUerror, context, device, fill, memory, pointer};

// The tests of one binary share a process, so another test may reuse an address that a test has freed. A test that uses
// a freed address again keeps a second block in the same page, which blocks of other contexts cannot share, or runs in
// its own process.

const MIB: usize = 1 << 20;
const PIB: usize = 1 << 50;

/// An address that no driver returns.
const WILD: CUdeviceptr = CUdeviceptr(0x1234_5600);

#[test]
fn a_block_is_freed_once() {
    let own = Context::create();
    let (_beside, block) = (own.block(512), own.block(4096));
    assert_eq!(memory::free(&own.api, block), Ok(()));
    assert_eq!(memory::free(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn null_is_freed_for_nothing() {
    let own = Context::create();
    assert_eq!(memory::free(&own.api, CUdeviceptr::NULL), Ok(()));
}

#[test]
fn a_wild_address_is_not_freed() {
    let own = Context::create();
    assert_eq!(memory::free(&own.api, WILD).code(), CUerror::INVALID_VALUE);
}

#[test]
fn an_interior_address_is_not_freed_and_its_block_stays_good() {
    let own = Context::create();
    let block = own.block(4096);
    assert_eq!(memory::free(&own.api, at(block, 1)).code(), CUerror::INVALID_VALUE);
    assert_eq!(memory::free(&own.api, at(block, 256)).code(), CUerror::INVALID_VALUE);
    fill::d8(&own.api, block, 7, 4096).unwrap();
    assert_eq!(own.byte(block, 4096), 7);
    assert_eq!(memory::free(&own.api, block), Ok(()));
}

#[test]
fn zero_bytes_are_refused_and_one_byte_is_not() {
    let own = Context::create();
    assert_eq!(memory::alloc(&own.api, 0).code(), CUerror::INVALID_VALUE);
    let block = own.block(1);
    own.write(block, &[9]);
    assert_eq!(own.read(block, 1), [9]);
}

#[test]
fn more_than_the_device_has_is_out_of_memory_and_changes_nothing() {
    let own = Context::create();
    let block = own.block(4096);
    fill::d8(&own.api, block, 3, 4096).unwrap();
    assert_eq!(memory::alloc(&own.api, PIB).code(), CUerror::OUT_OF_MEMORY);
    assert_eq!(memory::alloc(&own.api, usize::MAX).code(), CUerror::OUT_OF_MEMORY);
    assert_eq!(own.byte(block, 4096), 3);
    assert_eq!(memory::free(&own.api, own.block(MIB)), Ok(()));
}

#[test]
fn two_single_bytes_lie_512_bytes_apart() {
    let own = Context::create();
    let (first, second) = (own.block(1), own.block(1));
    assert_eq!(second.0.abs_diff(first.0), 512);
}

#[test]
fn a_large_block_starts_on_a_boundary_of_2_mib() {
    let own = Context::create();
    let _small = own.block(1);
    for bytes in [2 * MIB, 2 * MIB + 1, 5 * MIB] {
        assert_eq!(own.block(bytes).0 % (2 * MIB as u64), 0);
    }
}

#[test]
fn live_blocks_do_not_overlap() {
    let own = Context::create();
    let sizes = [1, 511, 512, 513, 4096, 100_000, MIB, 3 * MIB];
    let blocks: Vec<_> = sizes.iter().map(|&bytes| (own.block(bytes), bytes)).collect();
    for (value, &(block, bytes)) in blocks.iter().enumerate() {
        fill::d8(&own.api, block, value as u8, bytes).unwrap();
    }
    for (value, &(block, bytes)) in blocks.iter().enumerate() {
        assert_eq!(own.byte(block, bytes), value as u8);
    }
}

#[test]
fn rows_of_a_pitched_block_start_on_a_multiple_of_512() {
    let own = Context::create();
    let pitch = |width| memory::alloc_pitch(&own.api, width, 16, 4).unwrap().pitch_bytes;
    assert_eq!([pitch(1), pitch(512), pitch(513), pitch(1000)], [512, 512, 1024, 1024]);
}

#[test]
fn a_pitched_block_holds_all_its_rows() {
    let own = Context::create();
    let Pitched { start, pitch_bytes } = memory::alloc_pitch(&own.api, 1000, 16, 8).unwrap();
    fill::rectangle_d8(&own.api, start, pitch_bytes, 5, pitch_bytes, 16).unwrap();
    assert_eq!(own.byte(start, 16 * pitch_bytes), 5);
    assert_eq!(memory::free(&own.api, start), Ok(()));
}

#[test]
fn a_pitched_block_is_of_elements_of_4_8_or_16_bytes() {
    let own = Context::create();
    for element in [4, 8, 16] {
        assert_eq!(memory::alloc_pitch(&own.api, 64, 4, element).unwrap().pitch_bytes, 512);
    }
    for element in [0, 1, 2, 3, 5, 32] {
        assert_eq!(memory::alloc_pitch(&own.api, 64, 4, element).code(), CUerror::INVALID_VALUE);
    }
}

#[test]
fn a_pitched_block_has_a_row_and_a_byte_at_least() {
    let own = Context::create();
    assert_eq!(memory::alloc_pitch(&own.api, 0, 4, 4).code(), CUerror::INVALID_VALUE);
    assert_eq!(memory::alloc_pitch(&own.api, 64, 0, 4).code(), CUerror::INVALID_VALUE);
    assert_eq!(memory::alloc_pitch(&own.api, 1, 1, 4).unwrap().pitch_bytes, 512);
}

#[test]
fn the_range_of_an_interior_address_is_its_whole_block() {
    let own = Context::create();
    let block = own.block(1000);
    let whole = Range { base: block, bytes: 1000 };
    for offset in [0, 1, 300, 999] {
        assert_eq!(memory::range(&own.api, at(block, offset)), Ok(whole));
    }
}

#[test]
fn an_address_outside_all_blocks_has_no_range() {
    let own = Context::create();
    let (_beside, block) = (own.block(512), own.block(4096));
    assert_eq!(memory::range(&own.api, at(block, 4095)).unwrap().base, block);
    assert_eq!(memory::range(&own.api, WILD).code(), CUerror::NOT_FOUND);
    memory::free(&own.api, block).unwrap();
    assert_eq!(memory::range(&own.api, block).code(), CUerror::NOT_FOUND);
}

#[test]
fn without_a_context_nothing_is_allocated_but_a_block_is_freed() {
    let own = Context::create();
    let (_beside, block) = (own.block(512), own.block(4096));
    let (allocated, freed) = thread::scope(|scope| {
        let api = &own.api;
        scope.spawn(move || (memory::alloc(api, 4096), memory::free(api, block))).join().unwrap()
    });
    assert_eq!(allocated.code(), CUerror::INVALID_CONTEXT);
    assert_eq!(freed, Ok(()));
    assert_eq!(memory::free(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn another_context_uses_and_frees_a_block_that_keeps_its_owner() {
    let one = Context::create();
    let (_beside, block) = (one.block(512), one.block(4096));
    let two = one.another();
    assert_eq!(context::current(&two.api), Ok(two.handle));
    assert_eq!(pointer::context(&two.api, block), Ok(one.handle));
    two.write(block, &[1; 4096]);
    fill::d32(&two.api, block, 0x0202_0202, 512).unwrap();
    context::synchronize(&two.api).unwrap();
    assert_eq!(two.byte(block, 2048), 2);
    assert_eq!(two.byte(at(block, 2048), 2048), 1);
    assert_eq!(memory::free(&two.api, block), Ok(()));
    one.enter();
    assert_eq!(memory::free(&one.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn another_thread_frees_a_block() {
    let own = Context::create();
    let (_beside, block) = (own.block(512), own.block(4096));
    let freed = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            own.enter();
            memory::free(&own.api, block)
        });
        thread.join().unwrap()
    });
    assert_eq!(freed, Ok(()));
    assert_eq!(memory::free(&own.api, block).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_context_takes_its_blocks_with_it_and_leaves_others() {
    child::run_in_child("a_context_takes_its_blocks_with_it_and_leaves_others", || {
        let stays = Context::create();
        let kept = stays.block(4096);
        fill::d8(&stays.api, kept, 6, 4096).unwrap();
        let ends = stays.another();
        let lost = ends.block(4096);
        ends.destroy();
        stays.enter();
        assert_eq!(memory::free(&stays.api, lost).code(), CUerror::INVALID_VALUE);
        assert_eq!(memory::range(&stays.api, lost).code(), CUerror::NOT_FOUND);
        assert_eq!(stays.byte(kept, 4096), 6);
        assert_eq!(memory::free(&stays.api, kept), Ok(()));
    });
}

#[test]
fn free_waits_for_work_that_has_nothing_to_do_with_the_block() {
    let own = Context::create();
    let (stream, block) = (own.stream(), own.block(4096));
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    assert_eq!(gate.opened_during(|| memory::free(&own.api, block)), Ok(()));
}

#[test]
fn a_refused_free_and_a_free_of_null_do_not_wait() {
    let own = Context::create();
    let stream = own.stream();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    assert_eq!(gate.shut_during(|| memory::free(&own.api, CUdeviceptr::NULL)), Ok(()));
    assert_eq!(gate.shut_during(|| memory::free(&own.api, WILD)).code(), CUerror::INVALID_VALUE);
}

#[test]
fn alloc_does_not_wait_for_work() {
    let own = Context::create();
    let (blocking, free_standing) = (own.blocking(), own.stream());
    let gate = Gate::closed(&own);
    gate.hold(&own.api, blocking);
    gate.hold(&own.api, free_standing);
    let block = gate.shut_during(|| memory::alloc(&own.api, 4 * MIB)).unwrap();
    gate.open();
    assert_eq!(memory::free(&own.api, block), Ok(()));
}

#[test]
fn free_waits_for_the_context_that_owns_the_block_whichever_is_current() {
    let busy = Context::create();
    let (stream, block) = (busy.stream(), busy.block(4096));
    let idle = busy.another();
    let gate = Gate::closed(&idle);
    gate.hold(&busy.api, stream);
    assert_eq!(gate.opened_during(|| memory::free(&idle.api, block)), Ok(()));
}

#[test]
fn free_does_not_wait_for_a_context_that_does_not_own_the_block() {
    let busy = Context::create();
    let stream = busy.stream();
    let idle = busy.another();
    let block = idle.block(4096);
    let gate = Gate::closed(&idle);
    gate.hold(&busy.api, stream);
    assert_eq!(gate.shut_during(|| memory::free(&idle.api, block)), Ok(()));
}

#[test]
fn all_memory_is_what_the_device_says_it_has() {
    let own = Context::create();
    own.block(1);
    let Info { free_bytes, total_bytes } = memory::info(&own.api).unwrap();
    assert_eq!(Ok(total_bytes), device::total_bytes(&own.api, own.device));
    assert!(free_bytes < total_bytes, "{free_bytes} of {total_bytes} are free");
}

#[test]
fn memory_is_asked_of_a_context() {
    let (api, _) = driver();
    assert_eq!(context::current(&api), Ok(CUcontext::NULL));
    assert_eq!(memory::info(&api).code(), CUerror::INVALID_CONTEXT);
    assert_eq!(memory::range(&api, WILD).code(), CUerror::INVALID_CONTEXT);
}
