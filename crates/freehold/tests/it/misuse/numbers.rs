//! Programs that pass invalid or too large numbers: each gets an error, and memory is unchanged.

use std::ops::Bound;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold::{Adoption, Arena, DeviceVec, DynArg, Error, Grid, Permission, RawAddress, Value};

use crate::own::{N, Own, grid};
use crate::shared::{self, CHUNK};

#[test]
fn a_view_never_has_what_its_block_has_not() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut x = stream.upload(&[1_u32, 2, 3, 4]).unwrap();
    #[allow(clippy::reversed_empty_ranges, reason = "what is refused")]
    {
        assert!(x.view(3..2).is_err() && x.view(5..5).is_err() && x.view(0..usize::MAX).is_err());
    }
    assert!(x.view(..=usize::MAX).is_err() && x.view(usize::MAX..).is_err() && x.view(5..).is_err());
    assert!(x.view(4..).unwrap().is_empty() && x.view(0..0).unwrap().is_empty());
    let past_the_end = (Bound::Excluded(usize::MAX), Bound::Unbounded);
    assert!(x.view(past_the_end).is_err() && x.view_mut(past_the_end).is_err());
    assert!(x.view((Bound::Excluded(3), Bound::Excluded(5))).is_err());
    let part = x.view(1..3).unwrap();
    assert!(part.view(..3).is_err() && part.view(3..).is_err() && part.view(2..).unwrap().is_empty());
    assert_eq!(stream.download(&part.view(1..).unwrap()).unwrap(), [3]);
    for middle in [5, usize::MAX] {
        assert!(x.view_mut(..).unwrap().split_at(middle).is_err(), "{middle}");
    }
    for middle in [0, 4] {
        let (low, high) = x.view_mut(..).unwrap().split_at(middle).unwrap();
        assert_eq!((low.len(), high.len()), (middle, 4 - middle));
    }
    let (mut low, mut high) = x.view_mut(1..).unwrap().split_at(1).unwrap();
    stream.fill(&mut low, 7).unwrap();
    stream.fill(&mut high, 8).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [1, 7, 8, 8]);
}

#[test]
fn copies_stay_within_both_ends_for_any_arguments() {
    let own = Own::new();
    let [stream] = own.streams();
    let from = stream.upload(&[1_u32; 100]).unwrap();
    let (mut to, beside) = (stream.zeros::<u32>(100).unwrap(), stream.upload(&[9_u32; 100]).unwrap());
    let most = usize::MAX;
    let rows = [
        (1, 1, 1, 101),
        (most, most, 1, 2),
        (1, 1, most, 1),
        (most, 1, most, most),
        (50, 100, 60, 2),
        (1, 2, 2, 50),
        (100, 100, 1, 2),
    ];
    for (from_pitch, to_pitch, row, count) in rows {
        let refused = stream.copy_rows(&from, from_pitch, &mut to, to_pitch, row, count);
        assert!(matches!(refused, Err(Error::NoSuchRows { .. })), "{from_pitch} {to_pitch} {row} {count}");
    }
    assert!(stream.copy(&from.view(..3).unwrap(), &mut to).is_err() && stream.write(&mut to, &[1; 101]).is_err());
    assert!(stream.read(&from, &mut [0; 99]).is_err() && stream.read(&from, &mut [0; 101]).is_err());
    stream.copy_rows(&from, most, &mut to, most, 100, 1).unwrap(); // one row has no next one
    assert_eq!((stream.download(&to).unwrap(), stream.download(&beside).unwrap()), (vec![1; 100], vec![9; 100]));
}

#[test]
fn no_length_overflows() {
    let own = Own::new();
    let [stream] = own.streams();
    for len in [usize::MAX, usize::MAX / 4, usize::MAX / 4 + 1, isize::MAX as usize, 1 << 61] {
        assert!(stream.alloc::<u32>(len).is_err() && stream.zeros::<u32>(len).is_err(), "{len}");
        assert!(
            stream.alloc_shareable::<u32>(len).is_err() && DeviceVec::<u32>::with_max_len(&stream, len).is_err(),
            "{len}"
        );
        assert!(Arena::new(&stream, len).is_err() || len < 1 << 40, "{len}");
        let mut x = stream.upload(&[1_u32]).unwrap();
        assert!(x.resize(&stream, len).is_err(), "{len}");
        let mut vec = DeviceVec::<u32>::with_max_len(&stream, 10).unwrap();
        vec.extend_from_host(&stream, &[5]).unwrap();
        assert!(vec.reserve(&stream, len).is_err() && vec.extend_unset(&stream, len).is_err(), "{len}");
        assert!(vec.resize(&stream, len, 1).is_err(), "{len}");
        assert_eq!((stream.download(&x).unwrap(), vec.download(&stream).unwrap()), (vec![1], vec![5]));
        Arena::new(&stream, 4096).unwrap().scope(|scope| assert!(scope.alloc::<u32>(len).is_err(), "{len}"));
    }
    // Elements without bytes are as many as one likes, and none.
    assert!(
        stream.alloc::<()>(5).is_err()
            && stream.alloc::<[u32; 0]>(5).is_err()
            && DeviceVec::<()>::new(&stream).is_err()
    );
}

#[test]
fn an_address_that_was_left_is_released_or_claimed_once() {
    let own = Own::new();
    let [stream] = own.streams();
    let device = &own.device;
    let x = stream.upload(&[7_u8; 1000]).unwrap();
    let at = x.address();
    device.release(0).unwrap();
    assert!(device.claim(0).is_err(), "nothing was left there");
    for address in [1, 4096, at, at + 1, at + 999, at + 1000, at ^ 1 << 63, u64::MAX] {
        assert!(device.release(address).is_err() && device.claim(address).is_err(), "{address:#x}");
    }
    assert_eq!(stream.download(&x).unwrap(), [7; 1000]);
    assert_eq!(x.into_address(), at);
    let mut again = device.claim(at).unwrap();
    assert!(device.claim(at).is_err() && device.release(at).is_err(), "somebody holds it");
    stream.fill(&mut again, 8).unwrap();
    assert_eq!(stream.download(&again).unwrap(), [8; 1000]);
    assert_eq!(again.into_address(), at);
    device.release(at).unwrap();
    assert!(device.release(at).is_err() && device.claim(at).is_err(), "nobody has it");
}

#[test]
fn memory_is_not_adopted_from_its_owner() {
    let own = Own::new();
    let [stream] = own.streams();
    let x = stream.upload(&[7_u8; 1000]).unwrap();
    let adopt = |address, bytes| own.device.adopt(address, bytes, Adoption::Foreign, "mine");
    assert!(
        adopt(x.address(), 1000).is_err() && adopt(x.address() + 10, 1).is_err() && adopt(x.address() - 1, 2).is_err()
    );
    assert!(adopt(u64::MAX, 2).is_err() && adopt(1, u64::MAX).is_err() && adopt(4096, 0).is_err());
    let adopted = adopt(1 << 20, 4096).unwrap();
    assert!(own.device.release(1 << 20).is_err() && own.device.claim(1 << 20).is_err());
    drop(adopted);
    assert_eq!(stream.download(&x).unwrap(), [7; 1000]);
}

#[test]
fn a_use_of_any_address_is_noted_for_a_block_or_refused() {
    let own = Own::new();
    let [stream, other] = own.streams();
    let x = stream.upload(&[7_u8; 1000]).unwrap();
    for address in [0, 1, 4096, u64::MAX] {
        assert!(own.device.note_use(address, &other).is_err(), "{address:#x}");
        assert_eq!(own.device.owner_of(address), None);
    }
    assert!(own.device.note_use(x.address(), &other).is_err(), "its owner says what uses it");
    assert_eq!(stream.download(&x).unwrap(), [7; 1000]);
    let at = x.into_address();
    own.device.note_use(at, &other).unwrap();
    assert_eq!(stream.download(&own.device.claim(at).unwrap()).unwrap(), [7; 1000]);
}

#[test]
fn out_of_range_semaphores_and_host_memory_are_refused() {
    let own = Own::new();
    let [stream] = own.streams();
    let memory = shared::words(128);
    let semaphores = own.device.shared_semaphores(memory.as_fd(), 16).unwrap();
    let panics = |act: &dyn Fn()| catch_unwind(AssertUnwindSafe(act)).is_err();
    for word in [16, 17, usize::MAX / 8, usize::MAX] {
        assert!(
            stream.write_value(&semaphores, word, 1).is_err() && stream.wait_value(&semaphores, word, 1).is_err(),
            "{word}"
        );
        assert!(panics(&|| assert_eq!(semaphores.read(word), 0)) && panics(&|| semaphores.write(word, 1)), "{word}");
    }
    assert!(
        own.device.shared_semaphores(memory.as_fd(), usize::MAX).is_err()
            && own.device.shared_semaphores(memory.as_fd(), 1 << 30).is_err()
    );
    let host = own.device.host_memory(memory.as_fd(), 128).unwrap();
    for (offset, len) in [(128, 1), (127, 2), (u64::MAX, 1), (u64::MAX - 3, 4), (0, usize::MAX), (0, 129)] {
        assert!(host.slice::<u8>(&stream, offset, len).is_err(), "{offset} {len}");
    }
    assert!(host.read(125, &mut [0_u32]).is_err() && host.read(128, &mut [0_u8]).is_err());
    assert!(host.write(u64::MAX, &[1_u8]).is_err() && host.write(2, &[1_u32]).is_err());
    assert!(
        host.words().iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0),
        "nothing was written"
    );
}

#[test]
fn an_import_is_as_long_as_it_is() {
    let own = Own::new();
    let [stream] = own.streams();
    let memory = shared::memory(CHUNK);
    for bytes in [0, 1, CHUNK - 1, CHUNK + 1, 2 * CHUNK, u64::MAX, !(CHUNK - 1)] {
        assert!(own.device.import(memory.as_fd(), bytes, Permission::ReadWrite).is_err(), "{bytes}");
    }
    let imported = own.device.import(memory.as_fd(), CHUNK, Permission::ReadWrite).unwrap();
    for (offset, len) in [(CHUNK, 1), (CHUNK - 4, 2), (u64::MAX, 1), (u64::MAX - 3, 1), (0, usize::MAX), (2, 1)] {
        assert!(imported.slice::<u32>(&stream, offset, len).is_err(), "{offset} {len}");
    }
    let mut part = imported.slice::<u32>(&stream, CHUNK - 8, 2).unwrap();
    stream.fill(&mut part, 7).unwrap();
    assert_eq!(stream.download(&part).unwrap(), [7, 7]);
    // Odd places, where no fill of words goes.
    let mut odd = imported.slice::<[u8; 4]>(&stream, 3, 5).unwrap();
    stream.fill(&mut odd, [1, 2, 3, 4]).unwrap();
    let found = stream.download(&imported.slice::<u8>(&stream, 0, 24).unwrap()).unwrap();
    assert_eq!(found[3..23], [[1, 2, 3, 4]; 5].concat());
    let read = own.device.import(memory.as_fd(), CHUNK, Permission::Read).unwrap();
    let mut part = read.slice::<u32>(&stream, 0, 2).unwrap();
    assert!(matches!(stream.fill(&mut part, 7), Err(Error::ReadOnly { .. })));
    assert!(matches!(stream.launch(&own.kernels.add, grid(), (&mut part, 1_u32, 2_u32)), Err(Error::ReadOnly { .. })));
}

#[test]
fn arguments_that_are_too_long_are_none() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut x = stream.upload(&[1_u32; N]).unwrap();
    let words = [0; 2];
    assert!(DynArg::bytes(&words, 17).is_none() && DynArg::bytes(&words, usize::MAX).is_none());
    assert!(DynArg::memory(&x, N).is_none() && DynArg::memory_mut(&mut x, usize::MAX).is_none());
    let add = &own.kernels.add;
    assert!(stream.launch(add, grid(), (&mut x, Value([1_u64; 100]), 1_u32)).is_err());
    for grid in [
        Grid::line(1, 0),
        Grid::cover(u64::MAX, 0),
        Grid::cover(-1, 1),
        Grid::line(1, u32::MAX),
        Grid::line(u32::MAX, 1),
    ] {
        assert!(stream.launch(add, grid, (&mut x, 1_u32, 0_u32)).is_err(), "{grid:?}");
    }
    let grid = Grid { blocks: [u32::MAX; 3], threads: [u32::MAX; 3], shared_bytes: u32::MAX };
    assert!(stream.launch(add, grid, (&mut x, 1_u32, 0_u32)).is_err());
    assert_eq!(stream.download(&x).unwrap(), [1; N]);
}

#[test]
fn a_raw_address_is_what_its_maker_said() {
    let own = Own::new();
    let [stream] = own.streams();
    let x = stream.upload(&[1_u32; N]).unwrap();
    // SAFETY: `add` writes as many elements there as the block has, and nothing else uses it during that time.
    let there = unsafe { RawAddress::new(x.address()) };
    stream.launch(&own.kernels.add, grid(), (there, 4_u32, N as u32)).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [5; N]);
}

#[test]
fn variables_are_read_and_written_in_their_size_and_by_their_name() {
    let own = Own::new();
    let [stream] = own.streams();
    let module = &own.kernels.module;
    assert!(
        stream.write_variable(module, "counter", &[1_u8; 4096]).is_err()
            && stream.read_variable::<u8>(module, "counter").is_err()
    );
    assert!(stream.write_variable(module, "co\0unter", &1_u32).is_err() && module.variable("").is_err());
    stream.write_variable(module, "counter", &5_u32).unwrap();
    assert_eq!(stream.read_variable::<u32>(module, "counter").unwrap(), 5);
}

#[test]
fn a_budget_that_is_too_small_takes_nothing_away() {
    let own = Own::new();
    let [stream] = own.streams();
    let x = stream.upload(&[7_u8; 1 << 20]).unwrap();
    own.device.set_budget(0);
    own.device.set_release_threshold(0);
    assert!(stream.alloc::<u8>(1 << 30).is_err());
    own.device.trim().unwrap();
    own.device.synchronize().unwrap();
    assert_eq!(stream.download(&x).unwrap(), [7; 1 << 20]);
    own.device.set_tag_budget("x", 0).unwrap();
    assert!(stream.alloc_tagged::<u8>(1, "x/y").is_err());
}
