//! The lock-free parts of the pool under loom, with two or three threads and everything that the memory model lets them
//! see: the biased lock between a thread and those that revoke its magazines, and block metadata.
//!
//! The files are those of the library, with loom's types in place of the standard library's.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each file is used in part")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    /// The checker sees each use as one of the moment at which the pointer is asked for.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        pub(crate) fn get(&self) -> *mut T {
            self.0.with_mut(|inside| inside)
        }
    }

    /// The system's barrier is a barrier on both sides here.
    pub(crate) mod barrier {
        use loom::sync::atomic::{Ordering, fence};

        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Kind;

        pub(crate) fn kind() -> Kind {
            Kind
        }

        pub(crate) fn light(_: Kind) {
            fence(Ordering::SeqCst);
        }

        pub(crate) fn heavy(_: Kind) {
            fence(Ordering::SeqCst);
        }
    }
}

pub(crate) mod stable_array {
    /// # Safety
    /// As in the library, whose array is not used here.
    pub(crate) unsafe trait Numbered {
        fn set_number(&self, number: u32);
    }
}

#[path = "../../src/pool/biased_lock.rs"]
mod biased_lock;
#[path = "../../src/pool/block_meta.rs"]
pub(crate) mod block_meta;

use biased_lock::{BiasedLock, Closed};
use block_meta::{BlockMeta, BlockState, OwnedBy, Placement};
use freehold_testing::at_effort;
use loom::sync::Arc;
use loom::thread;
use sync::{AtomicBool, Ordering};

const BASE: u64 = 4096;

/// Tries all orders in which a thread is preempted at most this often.
fn check_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    check_within(at_effort(2, 2, 3), model);
}

/// Adds `count` to a cache, one at a time, until it is closed. Returns how many were added.
fn add(lock: &BiasedLock<u32>, count: u32) -> u32 {
    (0..count).filter(|_| lock.enter().map(|mut entered| *entered.value() += 1).is_ok()).count() as u32
}

#[test]
fn what_a_thread_keeps_is_taken_over_once_and_whole() {
    check(|| {
        let lock = Arc::new(BiasedLock::new(0));
        let other = lock.clone();
        let taken = thread::spawn(move || other.revoke(std::mem::take));
        assert_eq!(add(&lock, 2), 2);
        let taken = taken.join().unwrap();
        assert_eq!(taken + lock.revoke(std::mem::take), 2);
    });
}

#[test]
fn two_revokers_and_the_owner_never_meet() {
    check(|| {
        let lock = Arc::new(BiasedLock::new(0));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || lock.revoke(std::mem::take))
            })
            .collect();
        assert_eq!(add(&lock, 1), 1);
        let taken: u32 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(taken + lock.revoke(std::mem::take), 1);
    });
}

#[test]
fn a_closed_cache_is_not_entered_and_is_empty() {
    check(|| {
        let lock = Arc::new(BiasedLock::new(0));
        let other = lock.clone();
        let closed = thread::spawn(move || other.close(std::mem::take));
        let added = add(&lock, 2);
        assert_eq!(closed.join().unwrap(), added, "what was added was there when it was closed");
        assert!(lock.is_closed());
        assert_eq!(lock.enter().map(|_| ()).unwrap_err(), Closed);
        assert_eq!(lock.revoke(|inside| *inside), 0);
        assert!(lock.is_closed(), "a later revoke does not open it");
    });
}

/// Two reference counts of a stream: a thread releases both and caches each, unless the stream's handle is gone, which
/// takes back what is cached.
#[test]
fn a_count_is_kept_and_taken_back_or_given_up_and_never_left() {
    check(|| {
        let kept = Arc::new((BiasedLock::new(0_u32), AtomicBool::new(false)));
        let thread = thread::spawn({
            let kept = kept.clone();
            move || {
                let (lock, is_leaving) = &*kept;
                let mut given_up = 0;
                for _ in 0..2 {
                    let entered = lock.try_enter();
                    let lends = entered.as_ref().is_some_and(|_| !is_leaving.load(Ordering::Relaxed));
                    match entered {
                        Some(mut entered) if lends => *entered.value() += 1,
                        _ => given_up += 1,
                    }
                }
                given_up
            }
        });
        kept.1.store(true, Ordering::Relaxed);
        let taken = kept.0.revoke(std::mem::take);
        assert_eq!(thread.join().unwrap() + taken, 2);
    });
}

fn owned(bytes: u64) -> Arc<BlockMeta> {
    let meta = BlockMeta::default();
    meta.begin(BASE, 1024, 7, 0, Placement::in_extent(0), 0);
    meta.own(bytes, OwnedBy::Address);
    Arc::new(meta)
}

#[test]
fn of_two_releases_one_is_taken() {
    check(|| {
        let meta = owned(10);
        let other = meta.clone();
        let second = thread::spawn(move || other.disown(BASE).is_ok());
        let first = meta.disown(BASE).is_ok();
        assert!(first != second.join().unwrap());
        assert_eq!(meta.state().state(), BlockState::Free);
    });
}

#[test]
fn a_use_elsewhere_is_noted_before_the_release_or_refused_after_it() {
    check(|| {
        let meta = owned(10);
        let other = meta.clone();
        let noted = thread::spawn(move || other.note_used_in_other_stream(BASE).is_ok());
        let state = meta.disown(BASE).unwrap();
        assert_eq!(noted.join().unwrap(), state.is_used_in_other_streams());
        assert!(!meta.state().is_used_in_other_streams());
    });
}

#[test]
fn a_reader_never_sees_a_mixture_of_two_owners() {
    // Two threads that take many steps have very many orders.
    check_within(at_effort(0, 1, 2), || {
        let meta = owned(10);
        let other = meta.clone();
        let owner = thread::spawn(move || {
            other.disown(BASE).unwrap();
            other.end();
            other.begin(2 * BASE, 2048, 8, 1, Placement::in_extent(0), 0);
            other.own(20, OwnedBy::Address);
        });
        let seen = meta.snapshot();
        if seen.state.state() == BlockState::Owned {
            let found = (seen.base, seen.bytes, seen.capacity_bytes, seen.stream, seen.heap);
            assert!([(BASE, 10, 1024, 7, 0), (2 * BASE, 20, 2048, 8, 1)].contains(&found), "{found:?}");
        }
        owner.join().unwrap();
    });
}

#[test]
fn a_release_of_the_block_before_does_not_take_the_one_that_follows() {
    check(|| {
        let meta = owned(10);
        let other = meta.clone();
        let owner = thread::spawn(move || {
            if other.disown(BASE).is_ok() {
                other.end();
                other.begin(2 * BASE, 2048, 8, 1, Placement::in_extent(0), 0);
                other.own(20, OwnedBy::Address);
                return true;
            }
            false
        });
        let was_first = meta.disown(BASE).is_ok();
        assert!(was_first != owner.join().unwrap());
        assert_eq!(meta.disown(2 * BASE).is_ok(), !was_first);
    });
}

/// The release of the warm path: whether it was taken, and of which ownership and stream.
fn release_at_once(meta: &BlockMeta) -> Option<(u64, u32)> {
    let state = meta.owned_at(BASE)?;
    let stream = meta.stream();
    meta.disown_from(state).then(|| (state.generation(), stream))
}

#[test]
fn a_release_at_once_is_taken_or_a_use_elsewhere_is_noted_and_never_both() {
    check(|| {
        let meta = owned(10);
        let (user, owner) = (meta.clone(), meta.clone());
        let noted = thread::spawn(move || user.note_used_in_other_stream(BASE).is_ok());
        let is_taken = thread::spawn(move || release_at_once(&owner).is_some()).join().unwrap();
        assert!(is_taken != noted.join().unwrap());
        assert_eq!(meta.state().is_used_in_other_streams(), !is_taken);
    });
}

#[test]
fn of_two_releases_at_once_each_takes_an_ownership_of_its_own_and_knows_its_stream() {
    check(|| {
        let meta = owned(10);
        let first = meta.state().generation();
        let other = meta.clone();
        let owner = thread::spawn(move || {
            let taken = release_at_once(&other)?;
            other.end();
            other.begin(BASE, 2048, 8, 1, Placement::in_extent(0), 0);
            other.own(20, OwnedBy::Address);
            Some(taken)
        });
        let taken = release_at_once(&meta);
        match owner.join().unwrap() {
            // What is released here is the block before, or the one that follows.
            None => assert_eq!(taken, Some((first, 7))),
            Some(before) => {
                assert_eq!(before, (first, 7));
                assert!([None, Some((first + 2, 8))].contains(&taken), "{taken:?}");
            }
        }
    });
}
