//! Blocks: sizes, zeroing, resizing, owners, budgets, and every kind of wrong release.

use crate::fixture;

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

use fixture::{Fixture, NONE, alloc, free, handle, last_error};
use freehold_capi::*;

const MIB: usize = 1 << 20;

/// Frees an invalid pointer: returns the code, and checks that nothing changed.
fn free_error(block: *mut std::ffi::c_void, device: i32, stream: CUstream) -> i32 {
    let before = (freehold_live_bytes(0), freehold_reserved_bytes(0));
    let code = freehold_try_free(block, 0, device, stream);
    assert_eq!((freehold_live_bytes(0), freehold_reserved_bytes(0)), before);
    assert_eq!(freehold_last_error_code(), code);
    code
}

fn owner(block: *const std::ffi::c_void) -> Result<FreeholdOwner, i32> {
    let mut out = MaybeUninit::uninit();
    match freehold_owner_of(block, Some(&mut out)) {
        // SAFETY: it was written, as the call succeeded.
        NONE => Ok(unsafe { out.assume_init() }),
        code => Err(code),
    }
}

#[test]
fn zero_or_negative_sizes_are_rejected() {
    let fixture = Fixture::new();
    assert!(freehold_alloc(0, 0, handle(0)).is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::NothingAsked as i32);
    assert_eq!(last_error(), "zero bytes: expected at least one");
    assert!(freehold_alloc(-5, 0, handle(0)).is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::NothingAsked as i32);
    assert_eq!(last_error(), "-5 bytes were requested: a block has at least one");
    drop(fixture);
}

#[test]
fn a_failure_stays_until_it_is_cleared() {
    let fixture = Fixture::new();
    assert_eq!(freehold_last_error_code(), NONE);
    assert_eq!(last_error(), "");
    assert!(freehold_alloc(0, 0, handle(0)).is_null());
    free(alloc(512, handle(0)), handle(0));
    assert_eq!(freehold_last_error_code(), FreeholdError::NothingAsked as i32);
    std::thread::spawn(|| assert_eq!(freehold_last_error_code(), NONE)).join().unwrap();
    freehold_clear_error();
    assert_eq!(freehold_last_error_code(), NONE);
    drop(fixture);
}

#[test]
fn a_text_stays_where_it_is_when_other_calls_fail() {
    let fixture = Fixture::new();
    assert!(freehold_alloc(0, 0, handle(0)).is_null());
    let first = freehold_last_error();
    let text = || {
        // SAFETY: the text ends in a NUL and lasts as long as this thread; it is copied before the next call.
        unsafe { std::ffi::CStr::from_ptr(first) }.to_str().unwrap().to_owned()
    };
    assert!(freehold_alloc(-5, 0, handle(0)).is_null());
    freehold_clear_error();
    assert!(freehold_alloc(-6, 0, handle(0)).is_null());
    assert_eq!(text(), "zero bytes: expected at least one");
    assert_eq!(freehold_last_error(), first);
    assert_eq!(text(), "-6 bytes were requested: a block has at least one");
    drop(fixture);
}

#[test]
fn null_is_freed_by_doing_nothing() {
    let fixture = Fixture::new();
    assert_eq!(freehold_try_free(ptr::null_mut(), 0, 0, handle(0)), NONE);
    assert_eq!(freehold_try_free(ptr::null_mut(), 0, 7, handle(0)), NONE);
    assert_eq!(freehold_last_error_code(), NONE);
    drop(fixture);
}

#[test]
fn a_second_free_fails() {
    let fixture = Fixture::new();
    for bytes in [700, 2 * MIB] {
        let block = alloc(bytes, handle(0));
        free(block, handle(0));
        assert_eq!(free_error(block, 0, handle(0)), FreeholdError::AlreadyReleased as i32);
        let at = block as usize;
        assert_eq!(last_error(), format!("{bytes} bytes at {at:#x} are already released: release a block once"));
    }
    drop(fixture);
}

#[test]
fn freeing_an_interior_pointer_fails_and_keeps_the_block() {
    let fixture = Fixture::new();
    for bytes in [700, 2 * MIB] {
        let block = alloc(bytes, handle(0));
        let middle = block.wrapping_byte_add(256);
        assert_eq!(free_error(middle, 0, handle(0)), FreeholdError::Interior as i32);
        let at = block as usize;
        let told = format!("256 bytes into {bytes} bytes at {at:#x}: release the block by its first address");
        assert_eq!(last_error(), told);
        free(block, handle(0));
    }
    drop(fixture);
}

#[test]
fn freeing_an_unknown_pointer_fails() {
    let fixture = Fixture::new();
    free(alloc(512, handle(0)), handle(0));
    let wild = ptr::without_provenance_mut(0x1234_5000);
    assert_eq!(free_error(wild, 0, handle(0)), FreeholdError::NeverAllocated as i32);
    let told = "0x12345000 is not a block of freehold_alloc: free memory of cuMemAlloc or of another allocator with its own function";
    assert_eq!(last_error(), told);
    drop(fixture);
}

#[test]
fn freeing_on_another_device_fails_and_keeps_the_block() {
    let fixture = Fixture::new();
    let block = alloc(512, handle(0));
    assert_eq!(free_error(block, 1, handle(0)), FreeholdError::WrongDevice as i32);
    let at = block as usize;
    assert_eq!(last_error(), format!("{at:#x} is memory of device 0, not of device 1: pass 0 as the device"));
    free(block, handle(0));
    drop(fixture);
}

#[test]
fn a_missing_device_is_reported() {
    let fixture = Fixture::new();
    assert!(freehold_alloc(512, -1, handle(0)).is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::NoDevice as i32);
    assert_eq!(last_error(), "invalid device number -1: expected 0 or more");
    assert!(freehold_alloc(512, 63, handle(0)).is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::NoDevice as i32);
    assert_eq!((freehold_live_bytes(-1), freehold_reserved_bytes(63)), (0, 0));
    drop(fixture);
}

#[test]
fn an_owner_is_found_from_any_byte() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let (block, other) = (alloc(700, stream), alloc(700, handle(0)));
    let found = owner(block.wrapping_byte_add(699)).unwrap();
    assert_eq!((found.base, found.size, found.device), (block, 700, 0));
    assert_eq!((found.process, found.is_live), (std::process::id(), true));
    assert_ne!(found.stream, owner(other).unwrap().stream);
    free(block, stream);
    let found = owner(block).unwrap();
    assert_eq!((found.base, found.size, found.is_live), (block, 700, false));
    let wild = ptr::without_provenance(0x1234_5000);
    assert_eq!(owner(wild).unwrap_err(), FreeholdError::NeverAllocated as i32);
    assert_eq!(freehold_owner(block, None), FreeholdError::NullArgument as i32);
    free(other, handle(0));
    fixture.end(stream);
}

#[test]
fn zeros_are_zeros_where_something_was_before() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    for bytes in [700, 2 * MIB] {
        let block = alloc(bytes, stream);
        fixture.write(block, &vec![7; bytes]);
        free(block, stream);
        let zeroed = freehold_alloc_zeroed(bytes as isize, 0, stream);
        assert_eq!(zeroed, block);
        fixture.synchronize(stream);
        assert_eq!(fixture.read(zeroed, bytes), vec![0; bytes]);
        free(zeroed, stream);
    }
    fixture.end(stream);
}

#[test]
fn another_size_keeps_the_contents() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    for (bytes, new_bytes) in [(700, 900), (700, 5000), (5000, 700), (100_000, 3 * MIB), (3 * MIB, 100_000), (MIB, 700)]
    {
        let block = alloc(bytes, stream);
        let kept = bytes.min(new_bytes);
        let contents: Vec<u8> = (0..kept).map(|at| (at * 7 % 251) as u8).collect();
        fixture.write(block, &contents);
        let moved = freehold_realloc(block, new_bytes as isize, 0, stream);
        assert!(!moved.is_null(), "{}", last_error());
        fixture.synchronize(stream);
        assert_eq!(fixture.read(moved, kept), contents, "{bytes} to {new_bytes}");
        assert_eq!(freehold_live_bytes(0), new_bytes);
        assert_eq!(owner(moved).unwrap().size, new_bytes);
        free(moved, stream);
        assert_eq!(freehold_live_bytes(0), 0);
    }
    fixture.end(stream);
}

#[test]
fn what_fits_stays_where_it_is() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let block = alloc(600, stream);
    assert_eq!(freehold_realloc(block, 1000, 0, stream), block);
    free(block, stream);
    let block = alloc(3 * MIB, stream);
    assert_eq!(freehold_realloc(block, 2 * MIB as isize, 0, stream), block);
    assert_eq!(freehold_realloc(block, 3 * MIB as isize, 0, stream), block);
    let second = owner(block).unwrap();
    assert_eq!(second.size, 3 * MIB);
    free(block, stream);
    assert!(freehold_realloc(block, 600, 0, stream).is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::AlreadyReleased as i32);
    fixture.end(stream);
}

#[test]
fn a_budget_is_not_exceeded() {
    let fixture = Fixture::new();
    // Memory that streams of other tests still use would come from the cache.
    let before = fixture.left_bytes();
    assert_eq!(freehold_set_budget(0, before + 8 * MIB), NONE);
    let block = alloc(4 * MIB, handle(0));
    assert!(freehold_alloc(8 * MIB as isize, 0, handle(0)).is_null());
    assert_eq!(freehold_last_error_code(), FreeholdError::OutOfMemory as i32);
    let told = last_error();
    assert!(told.starts_with("out of memory: 8.0 MiB requested, at most 4.0 MiB available: "), "{told}");
    assert!(told.ends_with("; raise the pool's budget"), "{told}");
    assert!(freehold_reserved_bytes(0) <= before + 8 * MIB);
    assert_eq!(freehold_set_budget(0, usize::MAX), NONE);
    free(alloc(8 * MIB, handle(0)), handle(0));
    free(block, handle(0));
    drop(fixture);
}

#[test]
fn the_signature_of_cupy_takes_the_stream_as_its_parameter() {
    let fixture = Fixture::new();
    let stream = fixture.stream();
    let block = freehold_cupy_malloc(stream.cast(), 512, 0);
    assert_eq!(freehold_live_bytes(0), 512);
    freehold_cupy_free(stream.cast(), block, 0);
    assert_eq!(freehold_live_bytes(0), 0);
    assert_eq!(alloc(512, stream), block);
    free(block, stream);
    fixture.end(stream);
}

#[test]
fn the_version_is_that_of_the_package() {
    // SAFETY: the text is a constant that ends in a NUL.
    let version = unsafe { CStr::from_ptr(freehold_version()) };
    assert_eq!(version.to_str(), Ok("0.1.0"));
}

#[test]
fn a_block_that_a_handle_holds_is_not_freed_by_its_address_and_stays_usable() {
    let fixture = Fixture::new();
    let (device, other) = (freehold::open::device(None).unwrap(), fixture.stream());
    let stream = device.new_stream().unwrap();
    free(alloc(512, other), other);
    for len in [500, 3 * MIB] {
        let mut held = stream.upload(&vec![5_u8; len]).unwrap();
        let address = ptr::without_provenance_mut(held.address() as usize);
        for named in [handle(0), other] {
            assert_eq!(free_error(address, 0, named), FreeholdError::NotYours as i32);
            assert!(freehold_realloc(address, 100, 0, named).is_null());
            assert_eq!(freehold_last_error_code(), FreeholdError::NotYours as i32);
            assert_eq!(freehold_record_use(address, named), FreeholdError::NotYours as i32);
        }
        assert_eq!(stream.download(&held).unwrap(), vec![5; len]);
        stream.fill_bytes(&mut held, 6).unwrap();
        assert_eq!(stream.download(&held).unwrap(), vec![6; len]);
        // Until then it is not allocated to another stream.
        let next: Vec<_> = (0..40).map(|_| alloc(len, other)).collect();
        assert!(!next.contains(&address));
        next.into_iter().for_each(|block| free(block, other));
        drop(held);
    }
    fixture.end(other);
}
