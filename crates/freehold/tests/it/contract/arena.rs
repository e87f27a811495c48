//! Arenas: slices live as long as their scopes, and are used after the work of earlier slices at the same place.

use freehold::{Arena, Error, Result};

use super::rig::{N, Rig, grid};

const ARENA_BYTES: usize = 1 << 20;

/// Pieces begin at multiples of this.
fn begins(rig: &Rig) -> u64 {
    rig.device.backend().alignment_bytes().max(256)
}

#[test]
fn a_piece_is_used_as_a_block_is_and_behind_what_lay_there() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let mut arena = Arena::new(&stream, ARENA_BYTES).unwrap();
    let mut copy = other.zeros::<u32>(N).unwrap();
    other.synchronize().unwrap();
    let gate = rig.hold(&other);
    arena.scope(|scope| {
        let mut piece = scope.alloc::<u32>(N).unwrap();
        stream.write(&mut piece, &[1; N]).unwrap();
        other.copy(&piece, &mut copy).unwrap();
    });
    // The next piece lies where the first is still read.
    arena.scope(|scope| {
        let mut piece = scope.alloc::<u32>(N).unwrap();
        stream.write(&mut piece, &[5; N]).unwrap();
        stream.launch(&rig.add, grid(), (&mut piece, 1_u32, N as u32)).unwrap();
        gate.open();
        assert_eq!(stream.download(&piece).unwrap(), [6; N]);
    });
    assert_eq!(other.download(&copy).unwrap(), [1; N]);
}

#[test]
fn pieces_lie_one_behind_the_other_and_scopes_rewind() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut arena = Arena::new(&stream, ARENA_BYTES).unwrap();
    let base = arena.address();
    let addresses = arena.scope(|scope| {
        let first = scope.alloc::<u8>(1).unwrap();
        let second = scope.alloc::<u32>(N).unwrap();
        let inner = scope.scope(|inner| {
            let third = inner.alloc::<u8>(257).unwrap();
            let fourth = inner.alloc::<u8>(1).unwrap();
            [third.address(), fourth.address()]
        });
        let again = scope.alloc::<u64>(1).unwrap();
        [first.address(), second.address(), inner[0], inner[1], again.address()]
    });
    let begins = begins(&rig);
    let (second, third) = (begins, begins + (4 * N as u64).next_multiple_of(begins));
    let fourth = third + 257_u64.next_multiple_of(begins);
    assert_eq!(addresses, [0, second, third, fourth, third].map(|offset| base + offset));
    assert_eq!(arena.scope(|scope| scope.alloc::<u8>(ARENA_BYTES).unwrap().address()), base);
}

#[test]
fn pieces_are_used_like_blocks_and_those_of_outer_scopes_stay() {
    let rig = Rig::new();
    let [stream, other] = rig.streams();
    let mut arena = Arena::new(&stream, ARENA_BYTES).unwrap();
    let found = arena.scope(|scope| -> Result<_> {
        let mut x = scope.alloc::<u32>(N)?;
        stream.write(&mut x, &[1; N])?;
        for _ in 0..3 {
            scope.scope(|inner| -> Result<()> {
                let mut y = inner.alloc::<u32>(N)?;
                other.copy(&x, &mut y)?;
                other.launch(&rig.add, grid(), (&mut y, 1_u32, N as u32))?;
                stream.copy(&y.view(1..)?, &mut x.view_mut(1..)?)
            })?;
        }
        stream.download(&x)
    });
    let mut wanted = [4; N];
    wanted[0] = 1;
    assert_eq!(found.unwrap(), wanted);
}

#[test]
fn what_does_not_fit_is_refused_with_numbers_and_nothing_grows() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let begins = begins(&rig);
    let mut arena = Arena::new(&stream, begins as usize + 744).unwrap();
    arena.scope(|scope| {
        let _first = scope.alloc::<u8>(100).unwrap();
        assert_eq!(scope.free_bytes(), 744);
        let refused = scope.alloc::<u64>(94).unwrap_err();
        let wanted = Error::ArenaFull { wanted_bytes: 752, free_bytes: 744, capacity_bytes: begins + 744 };
        assert_eq!(refused.to_string(), wanted.to_string());
        assert!(matches!(scope.alloc::<[u8; 0]>(5), Err(Error::NothingAsked)));
        assert!(matches!(scope.alloc::<u64>(usize::MAX), Err(Error::TooManyElements { element_bytes: 8, .. })));
        let _rest = scope.alloc::<u64>(93).unwrap();
        assert_eq!(scope.free_bytes(), 0);
        assert!(matches!(scope.alloc::<u8>(1), Err(Error::ArenaFull { free_bytes: 0, .. })));
    });
}

#[test]
fn an_empty_slice_takes_nothing() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut arena = Arena::new(&stream, 1000).unwrap();
    arena.scope(|scope| {
        let mut empty = scope.alloc::<u64>(0).unwrap();
        assert_eq!((empty.len(), scope.free_bytes()), (0, 1000));
        stream.write(&mut empty, &[]).unwrap();
        assert_eq!(stream.download(&empty).unwrap(), [0; 0]);
    });
}

#[test]
fn a_scope_whose_work_panics_is_rewound() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut arena = Arena::new(&stream, 1000).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        arena.scope(|scope| {
            let _piece = scope.alloc::<u8>(1000).unwrap();
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(arena.scope(|scope| scope.free_bytes()), 1000);
}

#[test]
fn what_lies_there_next_waits_on_the_device_for_another_streams_work() {
    let rig = Rig::new();
    let [home, busy] = rig.streams();
    let mut arena = Arena::new(&home, ARENA_BYTES).unwrap();
    let mut kept = home.alloc::<u32>(N).unwrap();
    home.synchronize().unwrap();
    let gate = rig.hold(&busy);
    arena.scope(|scope| {
        let mut x = scope.alloc::<u32>(N).unwrap();
        busy.write(&mut x, &[3; N]).unwrap();
        busy.copy(&x, &mut kept).unwrap();
        // A piece that is forgotten is waited for all the same.
        std::mem::forget(x);
    });
    let beyond = arena.scope(|scope| {
        let mut x = scope.alloc::<u32>(N).unwrap();
        home.fill_bytes(&mut x, 0).unwrap();
        scope.scope(|inner| {
            let mut beside = inner.alloc::<u32>(N).unwrap();
            let third = rig.device.new_stream().unwrap();
            third.fill_bytes(&mut beside, 0).unwrap();
            third
        })
    });
    // The host waited for nothing, and neither did what lies elsewhere.
    beyond.synchronize().unwrap();
    rig.pass_by();
    assert!(!home.is_idle().unwrap());
    gate.open();
    assert_eq!(busy.download(&kept).unwrap(), [3; N]);
}

#[test]
fn an_arena_dropped_in_use_goes_behind_the_work_with_its_pieces() {
    let rig = Rig::new();
    let [home, busy] = rig.streams();
    let mut kept = home.alloc::<u32>(N).unwrap();
    let mut arena = Arena::new(&home, ARENA_BYTES).unwrap();
    let address = arena.address();
    home.synchronize().unwrap();
    let gate = rig.hold(&busy);
    arena.scope(|scope| {
        let mut x = scope.alloc::<u32>(N).unwrap();
        busy.write(&mut x, &[3; N]).unwrap();
        busy.copy(&x, &mut kept).unwrap();
    });
    drop(arena);
    let mut next = home.alloc::<u8>(ARENA_BYTES).unwrap();
    assert_ne!(next.address(), address);
    home.fill_bytes(&mut next, 0).unwrap();
    home.synchronize().unwrap();
    gate.open();
    assert_eq!(busy.download(&kept).unwrap(), [3; N]);
}
