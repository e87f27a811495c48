//! Advice for managed memory, and the queries that report it.

use crate::common;

use common::{Context, Refused, at};
use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUerror, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUmemLocationType,
    CUstreamCaptureMode, attach_flags, capture, managed, stream,
};

const BYTES: usize = 1 << 20;

fn attribute(own: &Context, attribute: CUmem_range_attribute, start: CUdeviceptr, bytes: usize) -> i32 {
    let mut number = [i32::MAX];
    managed::range_attribute(&own.api, &mut number, attribute, start, bytes).unwrap();
    number[0]
}

fn on(device: CUdevice) -> CUmemLocation {
    CUmemLocation { kind: CUmemLocationType::DEVICE, id: device.0 }
}

#[test]
fn memory_is_attached_to_all_streams_to_the_host_or_to_one_stream() {
    let own = Context::create();
    let (memory, stream) = (own.managed(BYTES), own.stream());
    for flags in [attach_flags::SINGLE, attach_flags::HOST, attach_flags::GLOBAL] {
        managed::attach(&own.api, stream, memory.address(), 0, flags).unwrap();
        managed::attach(&own.api, stream, memory.address(), BYTES, flags).unwrap();
    }
    own.finish(stream);
}

#[test]
fn only_whole_allocations_are_attached() {
    let own = Context::create();
    let (memory, stream) = (own.managed(BYTES), own.stream());
    let attached = managed::attach(&own.api, stream, memory.address(), 4096, attach_flags::SINGLE);
    assert_eq!(attached.code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_block_is_not_attached() {
    let own = Context::create();
    let (block, stream) = (own.block(BYTES), own.stream());
    assert_eq!(managed::attach(&own.api, stream, block, 0, attach_flags::SINGLE).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_captured_stream_takes_no_attachment() {
    let own = Context::create();
    let (memory, stream) = (own.managed(BYTES), own.stream());
    capture::begin(&own.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
    let attached = managed::attach(&own.api, stream, memory.address(), 0, attach_flags::SINGLE);
    assert_eq!(attached.code(), CUerror::STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(capture::end(&own.api, stream).code(), CUerror::STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn prefetched_memory_reports_its_location() {
    let own = Context::create();
    let (memory, stream, last) = (own.managed(BYTES), own.stream(), CUmem_range_attribute::LAST_PREFETCH_LOCATION);
    memory.fill(7);
    let start = memory.address();
    assert_eq!(attribute(&own, last, start, BYTES), CUdevice::INVALID.0);
    managed::prefetch(&own.api, start, BYTES, own.device, stream).unwrap();
    own.finish(stream);
    assert_eq!(attribute(&own, last, start, BYTES), own.device.0);
    managed::prefetch(&own.api, at(start, BYTES as u64 / 2), BYTES / 2, CUdevice::CPU, stream).unwrap();
    own.finish(stream);
    assert_eq!(attribute(&own, last, at(start, BYTES as u64 / 2), BYTES / 2), CUdevice::CPU.0);
    assert_eq!(attribute(&own, last, start, BYTES), CUdevice::INVALID.0);
    managed::prefetch_to(&own.api, start, BYTES, on(own.device), 0, stream).unwrap();
    let host = CUmemLocation { kind: CUmemLocationType::HOST, id: 0 };
    managed::prefetch_to(&own.api, start, BYTES, host, 0, stream).unwrap();
    let near = CUmemLocation { kind: CUmemLocationType::HOST_NUMA_CURRENT, id: 0 };
    managed::prefetch_to(&own.api, start, BYTES, near, 0, stream).unwrap();
    stream::synchronize(&own.api, stream).unwrap();
    assert_eq!(own.byte(start, BYTES), 7);
}

#[test]
fn what_is_not_managed_is_not_prefetched() {
    let own = Context::create();
    let (memory, block, stream) = (own.managed(BYTES), own.block(4096), own.stream());
    let prefetch = |start, bytes, device| managed::prefetch(&own.api, start, bytes, device, stream).code();
    assert_eq!(prefetch(block, 4096, own.device), CUerror::INVALID_VALUE);
    assert_eq!(prefetch(memory.address(), 0, own.device), CUerror::INVALID_VALUE);
    assert_eq!(prefetch(memory.address(), BYTES * 64, own.device), CUerror::INVALID_VALUE);
    assert_eq!(prefetch(memory.address(), BYTES, CUdevice(99)), CUerror::INVALID_DEVICE);
    let flagged = managed::prefetch_to(&own.api, memory.address(), BYTES, on(own.device), 1, stream);
    assert_eq!(flagged.code(), CUerror::INVALID_VALUE);
}

#[test]
fn advice_is_kept_until_it_is_taken_back() {
    let own = Context::create();
    let memory = own.managed(BYTES);
    let start = memory.address();
    let advise = |advice| managed::advise(&own.api, start, BYTES, advice, own.device).unwrap();
    let told = |of| attribute(&own, of, start, BYTES);

    assert_eq!(told(CUmem_range_attribute::READ_MOSTLY), 0);
    advise(CUmem_advise::SET_READ_MOSTLY);
    assert_eq!(told(CUmem_range_attribute::READ_MOSTLY), 1);
    advise(CUmem_advise::UNSET_READ_MOSTLY);
    assert_eq!(told(CUmem_range_attribute::READ_MOSTLY), 0);

    assert_eq!(told(CUmem_range_attribute::PREFERRED_LOCATION), CUdevice::INVALID.0);
    advise(CUmem_advise::SET_PREFERRED_LOCATION);
    assert_eq!(told(CUmem_range_attribute::PREFERRED_LOCATION), own.device.0);
    advise(CUmem_advise::UNSET_PREFERRED_LOCATION);
    assert_eq!(told(CUmem_range_attribute::PREFERRED_LOCATION), CUdevice::INVALID.0);

    advise(CUmem_advise::SET_ACCESSED_BY);
    let mut devices = [i32::MAX; 3];
    managed::range_attribute(&own.api, &mut devices, CUmem_range_attribute::ACCESSED_BY, start, BYTES).unwrap();
    assert_eq!(devices, [own.device.0, CUdevice::INVALID.0, CUdevice::INVALID.0]);
    advise(CUmem_advise::UNSET_ACCESSED_BY);
    managed::range_attribute(&own.api, &mut devices, CUmem_range_attribute::ACCESSED_BY, start, BYTES).unwrap();
    assert_eq!(devices, [CUdevice::INVALID.0; 3]);
}

#[test]
fn advice_for_a_part_does_not_hold_for_the_whole() {
    let own = Context::create();
    let memory = own.managed(4 * BYTES);
    let start = memory.address();
    managed::advise_for(&own.api, start, BYTES * 2, CUmem_advise::SET_READ_MOSTLY, on(own.device)).unwrap();
    assert_eq!(attribute(&own, CUmem_range_attribute::READ_MOSTLY, start, BYTES * 2), 1);
    assert_eq!(attribute(&own, CUmem_range_attribute::READ_MOSTLY, start, BYTES * 4), 0);
    let mut both = [CUmem_range_attribute::READ_MOSTLY, CUmem_range_attribute::PREFERRED_LOCATION];
    let told = managed::range_attributes(&own.api, &mut both, start, BYTES * 2).unwrap();
    assert_eq!(told, [1, CUdevice::INVALID.0]);
}

#[test]
fn advice_that_there_is_not_is_an_invalid_value() {
    let own = Context::create();
    let (memory, block) = (own.managed(BYTES), own.block(4096));
    let advise = |start, bytes, advice, device| managed::advise(&own.api, start, bytes, advice, device).code();
    let (start, mostly) = (memory.address(), CUmem_advise::SET_READ_MOSTLY);
    assert_eq!(advise(start, BYTES, CUmem_advise(99), own.device), CUerror::INVALID_VALUE);
    assert_eq!(advise(start, 0, mostly, own.device), CUerror::INVALID_VALUE);
    assert_eq!(advise(block, 4096, mostly, own.device), CUerror::INVALID_VALUE);
    let preferred = CUmem_advise::SET_PREFERRED_LOCATION;
    assert_eq!(advise(start, BYTES, preferred, CUdevice(99)), CUerror::INVALID_DEVICE);
    let mut two = [0; 2];
    let read_mostly = CUmem_range_attribute::READ_MOSTLY;
    let told = managed::range_attribute(&own.api, &mut two, read_mostly, start, BYTES);
    assert_eq!(told.code(), CUerror::INVALID_VALUE);
    let unknown = managed::range_attribute(&own.api, &mut two[..1], CUmem_range_attribute(99), start, BYTES);
    assert_eq!(unknown.code(), CUerror::INVALID_VALUE);
}
