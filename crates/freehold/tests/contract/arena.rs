//! Arenas: pieces come and go with their scopes, behind the work of what lay there before.

use freehold::{Arena, Error};

use crate::rig::{N, Rig, grid};

const ARENA_BYTES: usize = 1 << 20;

#[test]
fn a_scope_gives_back_what_it_took() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut arena = Arena::new(&stream, ARENA_BYTES).unwrap();
    let first = arena.scope(|scope| scope.alloc::<u32>(N).unwrap().address());
    let second = arena.scope(|scope| scope.alloc::<u32>(N).unwrap().address());
    assert_eq!((first, second), (arena.address(), arena.address()));
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
fn an_arena_gives_no_more_than_it_has() {
    let rig = Rig::new();
    let [stream] = rig.streams();
    let mut arena = Arena::new(&stream, ARENA_BYTES).unwrap();
    arena.scope(|scope| {
        let refused = scope.alloc::<u8>(ARENA_BYTES + 1).unwrap_err();
        assert!(matches!(refused, Error::ArenaFull { .. }), "{refused}");
        scope.alloc::<u8>(ARENA_BYTES).unwrap();
    });
}
