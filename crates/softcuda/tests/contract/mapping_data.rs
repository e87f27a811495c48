//! Mapped memory in use: across the borders of handles, at several addresses, read-only, and while mappings change.

use crate::chunks;
use crate::common;

use chunks::CHUNK;
use common::{Context, Gate, Refused, at, child};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUDA_MEMCPY2D, CUdeviceptr, CUerror, CUmemAccess_flags, CUmemorytype, CUstream, address, allocation, context, copy,
    fill, mapping, stream,
};

/// Returns a pattern with a long period.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Maps two adjacent chunks of two handles; also returns an address some bytes before their border.
fn border(own: &Context) -> (CUdeviceptr, CUdeviceptr) {
    let start = own.mapped(2);
    (start, CUdeviceptr(start.0 + CHUNK as u64 - 30_004))
}

const ACROSS: usize = 60_000;

#[test]
fn copies_cross_the_border_of_two_handles() {
    let own = Context::create();
    let (start, here) = border(&own);
    let (bytes, block) = (pattern(ACROSS), own.block(ACROSS));
    own.write(here, &bytes);
    assert_eq!(own.read(here, ACROSS), bytes);
    copy::device_to_device(&own.api, block, here, ACROSS).unwrap();
    assert_eq!(own.read(block, ACROSS), bytes);
    fill::d8(&own.api, start, 0, 2 * CHUNK).unwrap();
    copy::device_to_device(&own.api, here, block, ACROSS).unwrap();
    assert_eq!(own.read(here, ACROSS), bytes);
    let pinned = own.pinned(ACROSS);
    // SAFETY: the pinned memory is as long as the copy and used through atomics only.
    unsafe { copy::unified(&own.api, pinned.address(), here, ACROSS) }.unwrap();
    own.finish(CUstream::LEGACY);
    assert_eq!(pinned.to_vec(), bytes);
    own.give_back(start, 2);
}

#[test]
fn fills_cross_the_border_of_two_handles() {
    let own = Context::create();
    let (start, here) = border(&own);
    fill::d8(&own.api, start, 1, 2 * CHUNK).unwrap();
    assert_eq!(own.byte(start, 2 * CHUNK), 1);
    fill::d8(&own.api, here, 2, ACROSS).unwrap();
    assert_eq!(own.byte(here, ACROSS), 2);
    fill::d16(&own.api, here, 0x0303, ACROSS / 2).unwrap();
    assert_eq!(own.byte(here, ACROSS), 3);
    fill::d32(&own.api, here, 0x0404_0404, ACROSS / 4).unwrap();
    assert_eq!(own.byte(here, ACROSS), 4);
    assert_eq!(own.byte(at(here, ACROSS as u64), 64), 1);
    own.give_back(start, 2);
}

#[test]
fn rectangles_cross_the_border_of_two_handles() {
    const ROWS: usize = 16;
    const PITCH: usize = 4096;
    const WIDTH: usize = 1024;
    let own = Context::create();
    let start = own.mapped(2);
    // The ninth row lies on both sides.
    let here = CUdeviceptr(start.0 + (CHUNK - 8 * PITCH - 512) as u64);
    fill::d8(&own.api, start, 0, 2 * CHUNK).unwrap();
    fill::rectangle_d8(&own.api, here, PITCH, 7, WIDTH, ROWS).unwrap();
    for row in 0..ROWS as u64 {
        let begin = at(here, row * PITCH as u64);
        assert_eq!(own.byte(begin, WIDTH), 7, "row {row}");
        assert_eq!(own.byte(at(begin, WIDTH as u64), PITCH - WIDTH), 0, "after row {row}");
    }
    let (bytes, block) = (pattern(ROWS * WIDTH), own.block(ROWS * WIDTH));
    own.write(block, &bytes);
    let there = CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: block,
        srcPitch: WIDTH,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: here,
        dstPitch: PITCH,
        WidthInBytes: WIDTH,
        Height: ROWS,
        ..CUDA_MEMCPY2D::default()
    };
    // SAFETY: both sides are the device's.
    unsafe { copy::rectangle(&own.api, &there) }.unwrap();
    for (row, wanted) in bytes.chunks_exact(WIDTH).enumerate() {
        assert_eq!(own.read(at(here, (row * PITCH) as u64), WIDTH), wanted, "row {row}");
    }
    fill::d8(&own.api, block, 0, ROWS * WIDTH).unwrap();
    let back = CUDA_MEMCPY2D { srcDevice: here, srcPitch: PITCH, dstDevice: block, dstPitch: WIDTH, ..there };
    // SAFETY: both sides are the device's.
    unsafe { copy::rectangle(&own.api, &back) }.unwrap();
    assert_eq!(own.read(block, ROWS * WIDTH), bytes);
    own.give_back(start, 2);
}

/// The words that `store` writes for `value`.
fn words(value: u32, count: u32) -> Vec<u8> {
    (value..value + count).flat_map(u32::to_ne_bytes).collect()
}

#[test]
fn kernels_cross_the_border_of_two_handles() {
    let own = Context::create();
    let start = own.mapped(2);
    let here = CUdeviceptr(start.0 + CHUNK as u64 - 2000 * 4);
    own.run(own.kernel(c"store"), LaunchConfig::linear(32, 128), CUstream::LEGACY, &[here.0.into(), 5_u32.into()])
        .unwrap();
    context::synchronize(&own.api).unwrap();
    assert_eq!(own.read(here, 4 * 4096), words(5, 4096));
    own.give_back(start, 2);
}

#[test]
fn a_copy_beyond_the_last_handle_is_invalid_value() {
    let own = Context::create();
    let start = own.addresses(3);
    let chunk = own.chunk();
    own.map(start, chunk);
    own.map(at(start, 2 * CHUNK as u64), chunk);
    let last = at(start, CHUNK as u64 - 8);
    assert_eq!(fill::d8(&own.api, last, 1, 16).code(), CUerror::INVALID_VALUE);
    assert_eq!(copy::device_to_host(&own.api, &mut [0; 16], last).code(), CUerror::INVALID_VALUE);
    // A hole is not skipped either.
    assert_eq!(fill::d8(&own.api, start, 1, 3 * CHUNK).code(), CUerror::INVALID_VALUE);
    own.unmap(start, 1);
    own.unmap(at(start, 2 * CHUNK as u64), 1);
    own.release(chunk);
    address::free(&own.api, start, 3 * CHUNK).unwrap();
}

#[test]
fn one_handle_is_the_same_memory_at_several_addresses() {
    let own = Context::create();
    let (start, chunk, store) = (own.addresses(4), own.chunk(), own.kernel(c"store"));
    let places: Vec<_> = (0..4).map(|index| at(start, index * CHUNK as u64)).collect();
    places.iter().for_each(|place| own.map(*place, chunk));
    own.release(chunk);
    for (index, place) in places.iter().enumerate() {
        let value = 100 * index as u32;
        own.run(store, LaunchConfig::linear(8, 128), CUstream::LEGACY, &[place.0.into(), value.into()]).unwrap();
        context::synchronize(&own.api).unwrap();
        for other in &places {
            assert_eq!(own.read(*other, 4096), words(value, 1024));
        }
        fill::d8(&own.api, *place, index as u8, CHUNK).unwrap();
        places.iter().for_each(|other| assert_eq!(own.byte(*other, CHUNK), index as u8));
    }
    own.unmap(start, 1);
    assert_eq!(own.byte(places[3], CHUNK), 3, "the others stay");
    own.unmap(places[1], 3);
    address::free(&own.api, start, 4 * CHUNK).unwrap();
}

#[test]
fn chunks_are_remapped_with_their_data() {
    let own = Context::create();
    let (start, chunks) = (own.addresses(4), [own.chunk(), own.chunk(), own.chunk(), own.chunk()]);
    let place = |index: usize| at(start, (index * CHUNK) as u64);
    for (index, chunk) in chunks.into_iter().enumerate() {
        own.map(place(index), chunk);
        fill::d8(&own.api, place(index), index as u8, CHUNK).unwrap();
    }
    context::synchronize(&own.api).unwrap();
    own.unmap(start, 4);
    for (index, chunk) in chunks.into_iter().rev().enumerate() {
        mapping::map(&own.api, place(index), CHUNK, 0, chunk).unwrap();
    }
    own.allow(start, 4, CUmemAccess_flags::PROT_READWRITE).unwrap();
    for index in 0..4 {
        assert_eq!(own.byte(place(index), CHUNK), 3 - index as u8);
    }
    chunks.into_iter().for_each(|chunk| own.release(chunk));
    own.give_back(start, 4);
}

#[test]
fn a_handle_that_is_released_while_it_is_mapped_leaves_the_memory() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(1), own.chunk());
    own.map(start, chunk);
    own.release(chunk);
    fill::d8(&own.api, start, 5, CHUNK).unwrap();
    assert_eq!(own.byte(start, CHUNK), 5);
    let retained = allocation::retain(&own.api, start).unwrap();
    own.unmap(start, 1);
    own.map(start, retained);
    assert_eq!(own.byte(start, CHUNK), 5);
    own.release(retained);
    own.give_back(start, 1);
}

/// Neither mapping nor setting access waits, and work on the front part continues.
#[test]
fn a_range_grows_in_place_while_a_kernel_runs_on_its_front() {
    let own = Context::create();
    let (start, busy, other) = (own.addresses(4), own.stream(), own.stream());
    let (wait, first) = (own.kernel(c"wait"), own.chunk());
    own.map(start, first);
    fill::d32_async(&own.api, start, 0, CHUNK / 4, other).unwrap();
    own.finish(other);
    let gate = Gate::closed(&own);
    own.run(wait, LaunchConfig::linear(1, 1), busy, &[gate.address().0.into(), start.0.into()]).unwrap();
    for index in 1..4 {
        let place = at(start, index * CHUNK as u64);
        gate.shut_during(|| {
            let chunk = own.chunk();
            own.map(place, chunk);
            own.release(chunk);
            fill::d32_async(&own.api, place, index as u32, CHUNK / 4, other).unwrap();
            own.finish(other);
        });
    }
    assert_eq!(stream::query(&own.api, busy), Ok(false), "the kernel still runs");
    gate.open();
    own.finish(busy);
    assert_eq!(own.read(start, 4), 1_u32.to_ne_bytes());
    for index in 1..4 {
        let wanted = (index as u32).to_ne_bytes().repeat(CHUNK / 4);
        assert!(own.read(at(start, index * CHUNK as u64), CHUNK) == wanted, "chunk {index}");
    }
    own.release(first);
    own.give_back(start, 4);
}

#[test]
fn memory_that_is_mapped_to_be_read_is_not_written_by_copies_and_fills() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(2), own.chunk());
    let only = at(start, CHUNK as u64);
    own.map(start, chunk);
    mapping::map(&own.api, only, CHUNK, 0, chunk).unwrap();
    own.allow(only, 1, CUmemAccess_flags::PROT_READ).unwrap();
    fill::d8(&own.api, start, 6, CHUNK).unwrap();
    assert_eq!(own.byte(only, CHUNK), 6);
    assert_eq!(fill::d32(&own.api, only, 1, 4).code(), CUerror::INVALID_VALUE);
    assert_eq!(fill::d8(&own.api, only, 1, 4).code(), CUerror::INVALID_VALUE);
    copy::host_to_device(&own.api, only, &[1; 64]).unwrap_err();
    copy::device_to_device(&own.api, only, start, 64).unwrap_err();
    copy::device_to_device(&own.api, start, at(only, 64), 64).unwrap();
    assert_eq!(own.byte(only, CHUNK), 6);
    own.release(chunk);
    own.give_back(start, 2);
}

#[test]
fn access_that_is_widened_lets_writes_through() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(1), own.chunk());
    mapping::map(&own.api, start, CHUNK, 0, chunk).unwrap();
    own.allow(start, 1, CUmemAccess_flags::PROT_READ).unwrap();
    assert_eq!(fill::d32(&own.api, start, 1, 4).code(), CUerror::INVALID_VALUE);
    own.allow(start, 1, CUmemAccess_flags::PROT_READWRITE).unwrap();
    fill::d8(&own.api, start, 2, CHUNK).unwrap();
    assert_eq!(own.byte(start, CHUNK), 2);
    own.release(chunk);
    own.give_back(start, 1);
}

/// Runs a body that ends in a fault in its own process, with a context that ends with it.
fn doomed(name: &str, body: impl FnOnce(&Context)) {
    child::run_in_child(name, || {
        let own = Context::create();
        body(&own);
        std::mem::forget(own);
    });
}

#[test]
fn a_kernel_that_writes_what_it_may_read_ends_in_illegal_address() {
    doomed("a_kernel_that_writes_what_it_may_read_ends_in_illegal_address", |own| {
        let (start, chunk) = (own.addresses(1), own.chunk());
        mapping::map(&own.api, start, CHUNK, 0, chunk).unwrap();
        own.allow(start, 1, CUmemAccess_flags::PROT_READ).unwrap();
        let stream = own.stream();
        own.run(own.kernel(c"store"), LaunchConfig::linear(1, 32), stream, &[start.0.into(), 1_u32.into()]).unwrap();
        assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_ADDRESS);
    });
}

#[test]
fn a_kernel_reads_what_it_may_only_read() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(2), own.chunk());
    let only = at(start, CHUNK as u64);
    own.map(start, chunk);
    mapping::map(&own.api, only, CHUNK, 0, chunk).unwrap();
    own.allow(only, 1, CUmemAccess_flags::PROT_READ).unwrap();
    fill::d32(&own.api, start, 1, 1).unwrap();
    fill::d32(&own.api, at(start, 4), 0, 1).unwrap();
    // The word is not zero, so `wait` reads it once and counts.
    let arguments = [only.0.into(), at(start, 4).0.into()];
    own.run(own.kernel(c"wait"), LaunchConfig::linear(1, 1), CUstream::LEGACY, &arguments).unwrap();
    context::synchronize(&own.api).unwrap();
    assert_eq!(own.read(at(only, 4), 4), 1_u32.to_ne_bytes());
    own.release(chunk);
    own.give_back(start, 2);
}

#[test]
fn unmapping_does_not_wait_and_a_running_kernel_gets_an_illegal_address() {
    doomed("unmapping_does_not_wait_and_a_running_kernel_gets_an_illegal_address", |own| {
        let (start, stream) = (own.mapped(1), own.stream());
        let gate = Gate::closed(own);
        own.run(own.kernel(c"wait"), LaunchConfig::linear(1, 1), stream, &[gate.address().0.into(), start.0.into()])
            .unwrap();
        gate.shut_during(|| own.unmap(start, 1));
        gate.open();
        assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_ADDRESS);
    });
}

#[test]
fn a_kernel_beyond_the_last_handle_ends_in_illegal_address() {
    doomed("a_kernel_beyond_the_last_handle_ends_in_illegal_address", |own| {
        let start = own.addresses(2);
        own.map(start, own.chunk());
        let here = at(start, CHUNK as u64 - 64);
        own.run(own.kernel(c"store"), LaunchConfig::linear(1, 32), CUstream::LEGACY, &[here.0.into(), 1_u32.into()])
            .unwrap();
        assert_eq!(context::synchronize(&own.api).code(), CUerror::ILLEGAL_ADDRESS);
    });
}
