//! Rules of virtual memory: addresses, handles, mappings, access, descriptors.

use crate::chunks;
use crate::common;

use std::fs::File;
use std::os::fd::AsFd;

use chunks::CHUNK;
use common::{Context, Refused, at, child};
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUmemAccess_flags, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUstream, address, allocation, copy, fill, mapping, memory,
};

const INVALID: CUerror = CUerror::INVALID_VALUE;

#[test]
fn the_granularity_is_2_mib() {
    let own = Context::create();
    for option in [CUmemAllocationGranularity_flags::MINIMUM, CUmemAllocationGranularity_flags::RECOMMENDED] {
        assert_eq!(allocation::granularity_bytes(&own.api, &own.prop(), option), Ok(CHUNK));
    }
}

#[test]
fn reserved_addresses_are_aligned_as_asked() {
    let own = Context::create();
    for alignment in [0, CHUNK, 16 * CHUNK, 1 << 30] {
        let start = address::reserve(&own.api, 4 * CHUNK, alignment, CUdeviceptr::NULL).unwrap();
        let granule = alignment.max(CHUNK) as u64;
        assert_eq!(start.0 % granule, 0, "{start:?} is aligned to {granule} bytes");
        address::free(&own.api, start, 4 * CHUNK).unwrap();
    }
}

#[test]
fn reserved_addresses_do_not_overlap() {
    let own = Context::create();
    let mut starts: Vec<_> = (0..8).map(|_| own.addresses(4).0).collect();
    starts.sort_unstable();
    assert!(starts.windows(2).all(|two| two[1] - two[0] >= 4 * CHUNK as u64), "{starts:x?}");
    starts.iter().for_each(|start| address::free(&own.api, CUdeviceptr(*start), 4 * CHUNK).unwrap());
}

#[test]
fn an_address_hint_is_honoured() {
    let own = Context::create();
    let requested = own.addresses(4);
    address::free(&own.api, requested, 4 * CHUNK).unwrap();
    assert_eq!(address::reserve(&own.api, 4 * CHUNK, 0, requested), Ok(requested));
    // If the hint is taken, other addresses are returned.
    let other = address::reserve(&own.api, 4 * CHUNK, 0, requested).unwrap();
    assert_ne!(other, requested);
    address::free(&own.api, requested, 4 * CHUNK).unwrap();
    address::free(&own.api, other, 4 * CHUNK).unwrap();
}

#[test]
fn no_addresses_are_invalid_value() {
    let own = Context::create();
    assert_eq!(address::reserve(&own.api, 0, 0, CUdeviceptr::NULL).code(), INVALID);
    assert_eq!(address::reserve(&own.api, CHUNK + 1, 0, CUdeviceptr::NULL).code(), INVALID);
    assert_eq!(address::reserve(&own.api, CHUNK, 3, CUdeviceptr::NULL).code(), INVALID);
}

#[test]
fn addresses_are_freed_whole_and_once() {
    let own = Context::create();
    let start = own.addresses(2);
    assert_eq!(address::free(&own.api, start, CHUNK).code(), INVALID);
    assert_eq!(address::free(&own.api, at(start, CHUNK as u64), CHUNK).code(), INVALID);
    assert_eq!(address::free(&own.api, start, 2 * CHUNK), Ok(()));
    assert_eq!(address::free(&own.api, start, 2 * CHUNK).code(), INVALID);
}

#[test]
fn addresses_without_memory_cannot_be_used() {
    let own = Context::create();
    let start = own.addresses(1);
    assert_eq!(fill::d8(&own.api, start, 1, 16).code(), INVALID);
    assert_eq!(copy::device_to_host(&own.api, &mut [0; 16], start).code(), INVALID);
    assert_eq!(memory::free(&own.api, start).code(), INVALID);
    address::free(&own.api, start, CHUNK).unwrap();
}

#[test]
fn memory_has_a_size_of_whole_granules() {
    let own = Context::create();
    for bytes in [0, 1, CHUNK - 1, CHUNK + 4096] {
        assert_eq!(allocation::create(&own.api, bytes, &own.prop()).code(), INVALID, "{bytes} bytes");
    }
    let three = allocation::create(&own.api, 3 * CHUNK, &own.prop()).unwrap();
    own.release(three);
}

#[test]
fn more_memory_than_the_device_has_is_out_of_memory() {
    let own = Context::create();
    assert_eq!(allocation::create(&own.api, 1 << 50, &own.prop()).code(), CUerror::OUT_OF_MEMORY);
}

#[test]
fn memory_reports_the_properties_it_was_created_with() {
    let own = Context::create();
    for handles in [CUmemAllocationHandleType::NONE, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR] {
        let made = CUmemAllocationProp::on_device(own.device, handles);
        let chunk = allocation::create(&own.api, CHUNK, &made).unwrap();
        let told = allocation::properties(&own.api, chunk).unwrap();
        assert_eq!(told.kind, CUmemAllocationType::PINNED);
        assert_eq!(told.location, own.place());
        assert_eq!(told.requestedHandleTypes, handles);
        own.release(chunk);
    }
}

#[test]
fn memory_is_mapped_whole() {
    let own = Context::create();
    let two = allocation::create(&own.api, 2 * CHUNK, &own.prop()).unwrap();
    let start = own.addresses(4);
    assert_eq!(mapping::map(&own.api, start, CHUNK, CHUNK, two).code(), CUerror::NOT_SUPPORTED);
    assert_eq!(mapping::map(&own.api, start, 4 * CHUNK, 0, two).code(), CUerror::NOT_SUPPORTED);
    assert_eq!(mapping::map(&own.api, start, 2 * CHUNK, 0, two), Ok(()));
    own.give_back_four(start);
    own.release(two);
}

#[test]
fn memory_is_mapped_to_reserved_addresses_only() {
    let own = Context::create();
    let (chunk, start) = (own.chunk(), own.addresses(1));
    assert_eq!(mapping::map(&own.api, at(start, 4096), CHUNK, 0, chunk).code(), INVALID);
    address::free(&own.api, start, CHUNK).unwrap();
    assert_eq!(mapping::map(&own.api, start, CHUNK, 0, chunk).code(), INVALID);
    own.release(chunk);
}

#[test]
fn memory_is_not_mapped_over_other_memory() {
    let own = Context::create();
    let (start, chunk) = (own.mapped(1), own.chunk());
    fill::d8(&own.api, start, 3, CHUNK).unwrap();
    mapping::map(&own.api, start, CHUNK, 0, chunk).unwrap_err();
    assert_eq!(own.byte(start, CHUNK), 3);
    own.release(chunk);
    own.give_back(start, 1);
}

#[test]
fn mapped_memory_is_inaccessible_until_access_is_set() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(1), own.chunk());
    mapping::map(&own.api, start, CHUNK, 0, chunk).unwrap();
    let none = u64::from(CUmemAccess_flags::PROT_NONE.0);
    assert_eq!(mapping::access(&own.api, own.place(), start), Ok(none));
    fill::d8(&own.api, start, 1, 16).unwrap_err();
    for flags in [CUmemAccess_flags::PROT_READWRITE, CUmemAccess_flags::PROT_READ] {
        own.allow(start, 1, flags).unwrap();
        assert_eq!(mapping::access(&own.api, own.place(), start), Ok(u64::from(flags.0)));
    }
    own.release(chunk);
    own.give_back(start, 1);
}

#[test]
fn access_is_given_to_several_chunks_at_once_if_all_are_mapped() {
    let own = Context::create();
    let start = own.addresses(3);
    let chunk = own.chunk();
    own.map(start, chunk);
    mapping::map(&own.api, at(start, CHUNK as u64), CHUNK, 0, chunk).unwrap();
    assert_eq!(own.allow(start, 3, CUmemAccess_flags::PROT_READWRITE).code(), INVALID);
    assert_eq!(own.allow(start, 2, CUmemAccess_flags::PROT_READWRITE), Ok(()));
    own.release(chunk);
    own.unmap(start, 2);
    assert_eq!(own.allow(start, 1, CUmemAccess_flags::PROT_READWRITE).code(), INVALID);
    address::free(&own.api, start, 3 * CHUNK).unwrap();
}

#[test]
fn a_mapping_is_unmapped_whole() {
    let own = Context::create();
    let two = allocation::create(&own.api, 2 * CHUNK, &own.prop()).unwrap();
    let start = own.addresses(4);
    mapping::map(&own.api, start, 2 * CHUNK, 0, two).unwrap();
    own.allow(start, 2, CUmemAccess_flags::PROT_READWRITE).unwrap();
    fill::d8(&own.api, start, 9, 2 * CHUNK).unwrap();
    assert_eq!(mapping::unmap(&own.api, start, CHUNK).code(), INVALID);
    assert_eq!(mapping::unmap(&own.api, at(start, CHUNK as u64), CHUNK).code(), INVALID);
    assert_eq!(own.byte(start, 2 * CHUNK), 9);
    own.give_back_four(start);
    own.release(two);
}

#[test]
fn neighbours_are_unmapped_together_or_one_by_one() {
    let own = Context::create();
    let together = own.mapped(3);
    own.give_back(together, 3);
    let single = own.mapped(3);
    for index in [1, 0, 2] {
        own.unmap(at(single, index * CHUNK as u64), 1);
    }
    // Where nothing is mapped there is nothing to do.
    assert_eq!(mapping::unmap(&own.api, single, CHUNK), Ok(()));
    address::free(&own.api, single, 3 * CHUNK).unwrap();
}

#[test]
fn what_is_unmapped_cannot_be_used() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(1), own.chunk());
    own.map(start, chunk);
    fill::d8(&own.api, start, 4, CHUNK).unwrap();
    // Unmapping would not wait for the fill.
    own.finish(CUstream::LEGACY);
    own.unmap(start, 1);
    assert_eq!(fill::d8(&own.api, start, 1, 16).code(), INVALID);
    assert_eq!(copy::device_to_host(&own.api, &mut [0; 16], start).code(), INVALID);
    own.map(start, chunk);
    assert_eq!(own.byte(start, CHUNK), 4);
    own.release(chunk);
    own.give_back(start, 1);
}

#[test]
fn mapped_memory_is_not_freed_like_a_block() {
    let own = Context::create();
    let start = own.mapped(1);
    fill::d8(&own.api, start, 4, CHUNK).unwrap();
    assert_eq!(memory::free(&own.api, start).code(), INVALID);
    assert_eq!(own.byte(start, CHUNK), 4);
    own.give_back(start, 1);
}

#[test]
fn a_mapping_gives_its_handle_again() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(1), own.chunk());
    assert_eq!(allocation::retain(&own.api, start).code(), INVALID);
    own.map(start, chunk);
    assert_eq!(allocation::retain(&own.api, start), Ok(chunk));
    assert_eq!(allocation::retain(&own.api, at(start, 12345)), Ok(chunk));
    // Three references: two of them are these.
    own.release(chunk);
    own.release(chunk);
    own.unmap(start, 1);
    own.map(start, chunk);
    own.release(chunk);
    own.give_back(start, 1);
}

#[test]
fn a_block_gives_no_handle() {
    let own = Context::create();
    let block = own.block(4 * CHUNK);
    allocation::retain(&own.api, block).unwrap_err();
    fill::d8(&own.api, block, 1, 4 * CHUNK).unwrap();
}

#[test]
fn memory_that_was_not_made_to_be_exported_is_not() {
    let own = Context::create();
    let prop = CUmemAllocationProp::on_device(own.device, CUmemAllocationHandleType::NONE);
    let chunk = allocation::create(&own.api, CHUNK, &prop).unwrap();
    allocation::export(&own.api, chunk).unwrap_err();
    own.release(chunk);
}

#[test]
fn memory_is_imported_in_the_process_that_exported_it() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(2), own.chunk());
    own.map(start, chunk);
    fill::d8(&own.api, start, 6, CHUNK).unwrap();
    let descriptor = allocation::export(&own.api, chunk).unwrap();
    let taken = allocation::import(&own.api, descriptor.as_fd()).unwrap();
    drop(descriptor);
    let second = at(start, CHUNK as u64);
    own.map(second, taken);
    assert_eq!(own.byte(second, CHUNK), 6);
    fill::d8(&own.api, second, 7, CHUNK).unwrap();
    assert_eq!(own.byte(start, CHUNK), 7);
    own.release(chunk);
    own.release(taken);
    own.give_back(start, 2);
}

#[test]
fn zeros_of_imported_memory_begin_and_end_where_they_were_asked_for() {
    let own = Context::create();
    let (start, chunk) = (own.addresses(2), own.chunk());
    own.map(start, chunk);
    let descriptor = allocation::export(&own.api, chunk).unwrap();
    let taken = allocation::import(&own.api, descriptor.as_fd()).unwrap();
    let second = CHUNK as u64;
    own.map(at(start, second), taken);
    for (first, end) in [(0, CHUNK), (1, CHUNK - 1), (4096, 4096 + 65536), (4097, 200_001), (30_000, 95_536)] {
        fill::d8(&own.api, start, 6, CHUNK).unwrap();
        fill::d8(&own.api, at(start, second + first), 0, end - first as usize).unwrap();
        let mut expected = vec![6; CHUNK];
        expected[first as usize..end].fill(0);
        assert_eq!(own.read(start, CHUNK), expected, "{first}..{end}");
        assert_eq!(own.read(at(start, second), CHUNK), expected, "{first}..{end}");
    }
    own.release(chunk);
    own.release(taken);
    own.give_back(start, 2);
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let own = Context::create();
    let file = File::open("/dev/null").unwrap();
    allocation::import(&own.api, file.as_fd()).unwrap_err();
    assert_eq!(memory::free(&own.api, own.block(16)), Ok(()));
}

impl Context {
    /// Unmaps two chunks at the start of four reserved ones, and frees the addresses.
    fn give_back_four(&self, start: CUdeviceptr) {
        self.unmap(start, 2);
        address::free(&self.api, start, 4 * CHUNK).unwrap();
    }

    fn free_bytes(&self) -> usize {
        memory::info(&self.api).unwrap().free_bytes
    }
}

/// Runs the body of a test in its own process, where no other test allocates memory.
fn alone(name: &str, body: impl FnOnce(&Context)) {
    child::run_in_child(name, || {
        let own = Context::create();
        // The first mapping may allocate extra memory, which stays allocated.
        let warm = own.mapped(32);
        own.give_back(warm, 32);
        body(&own);
    });
}

#[test]
fn memory_is_taken_when_it_is_made_and_returns_after_the_last_use() {
    alone("memory_is_taken_when_it_is_made_and_returns_after_the_last_use", |own| {
        const BYTES: usize = 32 * CHUNK;
        let before = own.free_bytes();
        let start = own.addresses(64);
        assert_eq!(own.free_bytes(), before, "addresses take no memory");
        let made = allocation::create(&own.api, BYTES, &own.prop()).unwrap();
        assert_eq!(own.free_bytes(), before - BYTES);
        let second = at(start, BYTES as u64);
        for place in [start, second] {
            mapping::map(&own.api, place, BYTES, 0, made).unwrap();
            own.allow(place, 32, CUmemAccess_flags::PROT_READWRITE).unwrap();
        }
        assert_eq!(own.free_bytes(), before - BYTES, "mappings take no more");
        let descriptor = allocation::export(&own.api, made).unwrap();
        own.release(made);
        own.unmap(start, 32);
        assert_eq!(own.free_bytes(), before - BYTES, "one mapping keeps it");
        own.unmap(second, 32);
        assert_eq!(own.free_bytes(), before - BYTES, "the descriptor keeps it");
        drop(descriptor);
        assert_eq!(own.free_bytes(), before);
        address::free(&own.api, start, 64 * CHUNK).unwrap();
    });
}

#[test]
fn memory_lives_on_when_its_context_does_not() {
    alone("memory_lives_on_when_its_context_does_not", |own| {
        let ends = own.another();
        let (start, chunk) = (ends.addresses(1), ends.chunk());
        ends.map(start, chunk);
        fill::d8(&ends.api, start, 8, CHUNK).unwrap();
        ends.destroy();
        own.enter();
        assert_eq!(own.byte(start, CHUNK), 8);
        own.release(chunk);
        own.give_back(start, 1);
    });
}
