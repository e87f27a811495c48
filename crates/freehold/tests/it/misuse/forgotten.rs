//! Programs that leak values with a destructor: their memory stays allocated, and is not reused.

use std::mem::forget;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold::{Adoption, Arena, DeviceVec, Error, Permission};

use crate::own::{N, Own, grid, is_handed_out};
use crate::shared::{self, CHUNK};

#[test]
fn a_forgotten_block_is_never_handed_out_again() {
    let own = Own::new();
    let [stream, other] = own.streams();
    let x = stream.upload(&[7_u32; N]).unwrap();
    let at = x.address();
    forget(x);
    own.device.synchronize().unwrap();
    assert!(!is_handed_out(&stream, at) && !is_handed_out(&other, at));
    assert!(
        own.device.claim(at).is_err() && own.device.release(at).is_err(),
        "its owner is not here, and still its owner"
    );
    assert_eq!(own.device.owner_of(at).map(|owner| owner.bytes), Some(4 * N as u64));
}

#[test]
fn a_forgotten_reference_keeps_the_block_shared() {
    let own = Own::new();
    let [stream] = own.streams();
    let x = stream.upload(&[7_u32; N]).unwrap().share();
    forget(x.clone());
    let x = x.into_block().unwrap_err();
    assert_eq!((x.count(), stream.download(&x).unwrap()), (2, vec![7; N]));
    let at = x.address();
    drop(x);
    assert!(!is_handed_out(&stream, at));
}

#[test]
#[allow(
    forgetting_copy_types,
    clippy::forget_non_drop,
    reason = "nothing may rely on views being dropped, today or later"
)]
fn forgotten_views_leave_the_block_as_it_is() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut x = stream.upload(&[7_u32; N]).unwrap();
    forget(x.view(1..).unwrap());
    forget(x.view_mut(1..).unwrap());
    forget(x.view_mut(..).unwrap().split_at(1).unwrap());
    stream.fill(&mut x, 8).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [8; N]);
}

#[test]
fn a_forgotten_lending_never_ends_and_its_memory_stays() {
    let own = Own::new();
    let [stream] = own.streams();
    let (x, y) = (stream.upload(&[7_u32; N]).unwrap(), stream.upload(&[7_u32; N]).unwrap());
    let mut y = y;
    let places = [x.address(), y.address()];
    forget(stream.lend(&x).unwrap());
    forget(stream.lend_mut(&mut y).unwrap());
    assert_eq!(stream.download(&x).unwrap(), [7; N], "readers do not wait for each other");
    drop((x, y));
    let [fresh] = own.streams();
    assert!(places.iter().all(|&at| !is_handed_out(&fresh, at)), "somebody may still use it");
}

#[test]
fn a_lending_that_is_dropped_without_a_word_has_failed() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut x = stream.upload(&[7_u32; N]).unwrap();
    drop(stream.lend_mut(&mut x).unwrap());
    assert!(matches!(stream.download(&x), Err(Error::Undefined { .. })));
    assert!(matches!(stream.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)), Err(Error::Undefined { .. })));
    stream.fill(&mut x, 1).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [1; N]);
}

#[test]
fn a_forgotten_stream_leaves_its_work_and_blocks() {
    let own = Own::new();
    let [stream, other] = own.streams();
    let mut x = stream.upload(&[7_u32; N]).unwrap();
    stream.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    forget(stream.event().unwrap());
    forget(stream);
    assert_eq!(other.download(&x).unwrap(), [8; N]);
}

#[test]
fn a_forgotten_vector_and_arena_keep_their_memory() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut vec = DeviceVec::<u32>::new(&stream).unwrap();
    vec.extend_from_host(&stream, &[7; N]).unwrap();
    let arena = Arena::new(&stream, 4 * N).unwrap();
    let places = [vec.address(), arena.address()];
    forget((vec, arena));
    own.device.synchronize().unwrap();
    own.device.trim().unwrap();
    assert!(places.iter().all(|&at| !is_handed_out(&stream, at)));
}

#[test]
fn a_forgotten_piece_goes_with_its_scope() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut arena = Arena::new(&stream, 4096).unwrap();
    let first = arena.scope(|scope| {
        let mut piece = scope.alloc::<u32>(8).unwrap();
        stream.fill(&mut piece, 1).unwrap();
        let at = piece.address();
        forget(piece);
        assert!(scope.alloc::<u8>(4096).is_err(), "it has its memory until the scope ends");
        at
    });
    arena.scope(|scope| {
        let mut piece = scope.alloc::<u32>(8).unwrap();
        assert_eq!(piece.address(), first);
        stream.fill(&mut piece, 2).unwrap();
        assert_eq!(stream.download(&piece).unwrap(), [2; 8]);
    });
}

#[test]
fn a_scope_that_panics_ends() {
    let own = Own::new();
    let [stream] = own.streams();
    let mut arena = Arena::new(&stream, 4096).unwrap();
    for _ in 0..3 {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            arena.scope(|scope| {
                let mut piece = scope.alloc::<u8>(4096).unwrap();
                stream.fill(&mut piece, 1).unwrap();
                scope.scope(|_| panic!("on purpose"));
            });
        }));
        assert!(ended.is_err());
    }
    arena.scope(|scope| assert_eq!(scope.free_bytes(), 4096));
}

#[test]
fn a_forgotten_import_stays_mapped_and_a_forgotten_adoption_entered() {
    let own = Own::new();
    let [stream] = own.streams();
    let memory = shared::memory(CHUNK);
    let imported = own.device.import(memory.as_fd(), CHUNK, Permission::ReadWrite).unwrap();
    let mut part = imported.slice::<u32>(&stream, 0, N).unwrap();
    stream.fill(&mut part, 7).unwrap();
    let at = imported.address();
    forget(part);
    drop(imported);
    own.device.synchronize().unwrap();
    assert!(own.device.owner_of(at).is_some(), "the part keeps it");
    assert!(!is_handed_out(&stream, at));
    forget(own.device.adopt(1 << 20, 4096, Adoption::Foreign, "theirs").unwrap());
    assert!(own.device.release(1 << 20).is_err() && own.device.adopt(1 << 20, 1, Adoption::Foreign, "mine").is_err());
}

#[test]
fn a_forgotten_recording_goes_on() {
    let own = Own::new();
    let [stream] = own.streams();
    forget(own.device.record(None).unwrap());
    assert!(matches!(own.device.record(None), Err(Error::AlreadyRecording)));
    let x = stream.upload(&[7_u32; N]).unwrap();
    assert_eq!(stream.download(&x).unwrap(), [7; N]);
}
