//! The heaps of streams under a checker that tries the orders of two threads: memory that is lent from one stream's lot to another
//! stream while the lot becomes a third stream's, and a block that is resized while its context ends.
//!
//! The files are those of the library, with the checker's locks and atomics in the place of the standard library's. Streams are
//! counters here: how much work was put in, and how much of it has passed.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each file is used in part")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

mod outside {
    use std::sync::{Arc, PoisonError};

    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use loom::sync::{Mutex, MutexGuard};

    #[derive(Debug)]
    pub(crate) struct CallError;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ContextId(pub(crate) u32);

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct StreamId(pub(crate) u32);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Mark {
        pub(crate) stream: StreamId,
        pub(crate) position: u64,
    }

    #[derive(Clone, Copy)]
    pub(crate) enum Point {
        LendBehind,
        LendSmall,
    }

    pub(crate) mod pause {
        pub(crate) fn reach(_: super::Point) {}
    }

    /// A stream.
    #[derive(Debug)]
    pub(crate) struct Track {
        pub(crate) id: StreamId,
        pub(crate) context: ContextId,
        is_foreign: bool,
        put: AtomicU64,
        passed: AtomicU64,
        is_retired: AtomicBool,
        /// What its next work comes behind, of other streams.
        waited: Mutex<Vec<Mark>>,
    }

    impl Track {
        pub(crate) fn new(id: u32, is_foreign: bool) -> Arc<Self> {
            Arc::new(Self {
                id: StreamId(id),
                context: ContextId(0),
                is_foreign,
                put: AtomicU64::new(0),
                passed: AtomicU64::new(0),
                is_retired: AtomicBool::new(false),
                waited: Mutex::new(Vec::new()),
            })
        }

        /// Puts work in, which has not passed. Its position, as the library counts it: others' work is not counted.
        pub(crate) fn work(&self) -> Mark {
            let position = self.put.fetch_add(1, Ordering::AcqRel) + 1;
            Mark { stream: self.id, position }
        }

        /// The stream is gone, and all of its work has passed: so has what it waited for, which is returned.
        pub(crate) fn end(&self) -> Vec<Mark> {
            let waited = self.waited();
            self.is_retired.store(true, Ordering::Release);
            self.passed.store(u64::MAX, Ordering::Release);
            waited.clone()
        }

        pub(crate) fn pass(&self, position: u64) {
            self.passed.fetch_max(position, Ordering::AcqRel);
        }

        pub(crate) fn is_foreign(&self) -> bool {
            self.is_foreign
        }

        pub(crate) fn now(&self) -> Mark {
            Mark { stream: self.id, position: self.put.load(Ordering::Acquire) }
        }

        pub(crate) fn edge(&self) -> u64 {
            self.put.load(Ordering::Acquire) + u64::from(self.is_foreign)
        }

        pub(crate) fn has_passed(&self, position: u64) -> bool {
            self.passed.load(Ordering::Acquire) >= position
        }

        pub(crate) fn can_wait_for(&self, other: &Self) -> Result<bool, CallError> {
            Ok(!other.is_retired.load(Ordering::Acquire))
        }

        pub(crate) fn wait_for(&self, other: &Self, position: u64) -> Result<bool, CallError> {
            let mut waited = self.waited();
            if self.is_retired.load(Ordering::Acquire) || other.has_passed(position) {
                return Ok(false);
            }
            waited.push(Mark { stream: other.id, position });
            Ok(true)
        }

        pub(crate) fn has_waited(&self, stream: StreamId, position: u64) -> bool {
            let is_it = |mark: &Mark| mark.stream == stream && mark.position >= position;
            stream == self.id || self.waited().iter().any(is_it)
        }

        fn waited(&self) -> MutexGuard<'_, Vec<Mark>> {
            self.waited.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// All streams.
    #[derive(Debug)]
    pub(crate) struct Core {
        pub(crate) tracks: Vec<Arc<Track>>,
    }

    impl Core {
        pub(crate) fn track(&self, id: StreamId) -> Option<Arc<Track>> {
            self.tracks.iter().find(|track| track.id == id).cloned()
        }

        pub(crate) fn has_passed(&self, mark: Mark) -> bool {
            self.track(mark.stream).is_some_and(|track| track.has_passed(mark.position))
        }

        /// The host hears of all work at once here.
        pub(crate) fn mark_each_in_turn(&self, _: &[Mark]) -> Result<(), CallError> {
            Ok(())
        }
    }
}

mod shelf {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    pub(crate) const THINGS_MAX: usize = 256;

    pub(crate) use crate::pool_loom::shelf::Numbered;

    /// Things that are made when they are first asked for: each has many of the checker's atomics.
    #[derive(Debug)]
    pub(crate) struct Shelf<T> {
        things: Vec<OnceLock<Box<T>>>,
        next: AtomicU32,
    }

    impl<T: Numbered + Default> Shelf<T> {
        pub(crate) fn new() -> Self {
            Self { things: (0..THINGS_MAX).map(|_| OnceLock::new()).collect(), next: AtomicU32::new(0) }
        }

        pub(crate) fn at(&self, number: u32) -> &T {
            self.things[number as usize].get_or_init(|| {
                let thing = Box::<T>::default();
                thing.set_number(number);
                thing
            })
        }

        pub(crate) fn is_full(&self) -> bool {
            false
        }

        pub(crate) fn add(&self, count: u32) -> u32 {
            self.next.fetch_add(count, Ordering::Relaxed)
        }

        /// Those that were ever asked for: the others are vacant.
        pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
            self.things.iter().filter_map(|thing| thing.get().map(|thing| &**thing))
        }
    }
}

mod book {
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::lot::Lot;
    use super::record::Record;
    use super::shelf::Shelf;
    use super::slab::Slab;
    use super::table::Table;

    #[derive(Debug)]
    pub(crate) struct Book {
        pub(crate) records: Shelf<Record>,
        pub(crate) slabs: Shelf<Slab>,
        pub(crate) table: Table,
        pub(crate) misses: AtomicU64,
        pub(crate) lots: Mutex<Vec<Arc<Lot>>>,
    }

    impl Book {
        pub(crate) fn lots(&self) -> Vec<Arc<Lot>> {
            self.lots.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }
}

mod rack {
    use std::sync::atomic::AtomicBool;

    use super::counts::Counts;

    /// Threads keep nothing here.
    #[derive(Debug)]
    pub(crate) struct Rack {
        pub(crate) stream: u32,
        pub(crate) counts: Counts,
        pub(crate) is_counted: AtomicBool,
    }

    impl Rack {
        pub(crate) fn take_homes(&self) -> u32 {
            0
        }

        pub(crate) fn empty(&self, _close: bool) {}
    }
}

#[path = "../../src/pool/bins.rs"]
mod bins;
#[path = "../../src/pool/class.rs"]
mod class;
#[path = "../../src/pool/counts.rs"]
mod counts;
#[path = "../../src/pool/heap.rs"]
mod heap;
#[path = "../../src/pool/lend.rs"]
mod lend;
#[path = "../../src/pool/lot.rs"]
mod lot;
#[path = "../../src/pool/slab.rs"]
mod slab;
#[path = "../../src/pool/table.rs"]
mod table;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::pool_loom::record;
use book::Book;
use class::Class;
use freehold_testing::at_effort;
use heap::{Chunk, Heap, PAGE_BYTES};
use loom::thread;
use lot::Lot;
use outside::{Core, Mark, StreamId, Track};
use shelf::Shelf;
use table::Table;

const BASE: u64 = 1 << 30;

/// All of the memory that a lot has.
const LARGE: u64 = PAGE_BYTES;
const SMALL: u64 = 512;

/// A lot that a stream has, and another stream's, which has nothing.
#[derive(Debug)]
pub(crate) struct Pool {
    book: Arc<Book>,
    turn: AtomicUsize,
}

struct Model {
    pool: Pool,
    core: Core,
    /// The lot with memory, and the one without.
    lots: [Arc<Lot>; 2],
    /// The last use of the memory, wherever in it.
    used: Mutex<Option<Mark>>,
}

impl Model {
    /// Streams of these numbers: the first has a lot with memory, the second has one without.
    fn new(streams: &[(u32, bool)]) -> Arc<Self> {
        let tracks: Vec<_> = streams.iter().map(|&(id, is_foreign)| Track::new(id, is_foreign)).collect();
        let lots = [0, 1].map(|number: u32| {
            let home = tracks[number as usize].clone();
            Arc::new(Lot::new(number, home, Heap::new()))
        });
        let book = Book {
            records: Shelf::new(),
            slabs: Shelf::new(),
            table: Table::new(BASE, 4 * PAGE_BYTES).expect("a short table"),
            misses: AtomicU64::new(0),
            lots: Mutex::new(lots.to_vec()),
        };
        let pool = Pool { book: Arc::new(book), turn: AtomicUsize::new(0) };
        let model = Self { pool, core: Core { tracks }, lots, used: Mutex::new(None) };
        model.lots[0].add_region(BASE, 2 * PAGE_BYTES);
        let chunk = Chunk { base: BASE, bytes: LARGE, handle: 1 };
        let whole = model.lots[0].fill(&model.pool.book, None, &[chunk], LARGE).expect("as much as was mapped");
        model.lots[0].give(&model.pool.book, whole, model.track(0), &[]);
        Arc::new(model)
    }

    fn track(&self, index: usize) -> &Arc<Track> {
        &self.core.tracks[index]
    }

    fn book(&self) -> &Book {
        &self.pool.book
    }

    /// Work of a stream with a block, which it gives up then in its order.
    fn use_and_give(&self, record: u32, track: &Track) {
        let mark = track.work();
        *self.used.lock().unwrap() = Some(mark);
        self.book().records.at(record).set_position(mark.position);
        self.lots[0].give(self.book(), record, track, &[]);
    }

    /// The first stream has passed everything and is gone; another has its lot from now on.
    fn hand_over(&self, to: usize) {
        for mark in self.track(0).end() {
            self.core.track(mark.stream).unwrap().pass(mark.position);
        }
        self.lots[0].orphan();
        assert!(self.lots[0].adopt(self.track(to)));
    }

    /// Fails where a stream was handed memory that another may still use.
    fn check_handed(&self, to: &Track) {
        let Some(used) = *self.used.lock().unwrap() else { return };
        let is_behind = self.core.has_passed(used) || to.has_waited(used.stream, used.position);
        assert!(is_behind, "{:?} was handed memory that {used:?} still uses", to.id);
    }
}

/// Tries all orders in which a thread loses its turn so often at the most where it could go on.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(at_effort(2, 2, 3));
    builder.max_branches = 10_000;
    builder.check(model);
}

#[test]
fn memory_that_is_lent_behind_a_wait_is_behind_the_stream_that_has_its_lot() {
    check(|| {
        let model = Model::new(&[(1, false), (2, false), (3, false)]);
        let block = model.lots[0].take_large(model.book(), LARGE).unwrap();
        model.use_and_give(block, model.track(0));
        let other = model.clone();
        let next = thread::spawn(move || {
            other.hand_over(2);
            if let Some(block) = other.lots[0].take_large(other.book(), LARGE) {
                other.use_and_give(block, other.track(2));
            }
        });
        let lent = model.pool.borrow_behind(&model.lots[1], model.track(1), LARGE).unwrap();
        if let Some(lent) = lent {
            assert_eq!(model.book().records.at(lent).stream(), 2);
            model.check_handed(model.track(1));
        }
        next.join().unwrap();
    });
}

#[test]
fn a_small_block_is_lent_when_the_stream_that_has_its_lot_has_passed_it() {
    for is_foreign in [false, true] {
        check(move || {
            let model = Model::new(&[(1, false), (2, false), (3, is_foreign)]);
            let class = Class::of(SMALL).unwrap();
            let place = model.lots[0].take_large(model.book(), model.lots[0].next_slab_bytes(class)).unwrap();
            assert!(model.lots[0].add_slab(model.book(), class, place));
            let other = model.clone();
            let next = thread::spawn(move || {
                other.hand_over(2);
                let mut found = None;
                other.lots[0].take_small(other.book(), 3, class, 1, |record| found = Some(record));
                // The other thread may have it.
                let Some(record) = found else { return };
                let base = other.book().records.at(record).base();
                let track = other.track(2);
                let mark = track.work();
                if !track.is_foreign() {
                    other.book().records.at(record).set_position(mark.position);
                }
                *other.used.lock().unwrap() = (base == BASE).then_some(mark);
                other.lots[0].give(other.book(), record, track, &[]);
            });
            let lent = model.pool.borrow_small(&model.core, &model.lots[1], model.track(1), class).unwrap();
            if let Some(lent) = lent
                && model.book().records.at(lent).base() == BASE
            {
                model.check_handed(model.track(1));
            }
            next.join().unwrap();
        });
    }
}

#[test]
fn what_a_stream_waits_for_is_not_free_for_the_one_that_has_its_lot_next() {
    check(|| {
        let model = Model::new(&[(1, false), (2, false), (3, false)]);
        let block = model.lots[0].take_large(model.book(), LARGE).unwrap();
        // The second stream uses the block when it is given up.
        let mark = model.track(1).work();
        *model.used.lock().unwrap() = Some(mark);
        model.lots[0].give(model.book(), block, model.track(0), &[mark]);
        let other = model.clone();
        let next = thread::spawn(move || {
            other.hand_over(2);
            if other.lots[0].take_large(other.book(), LARGE).is_some() {
                other.check_handed(other.track(2));
            }
        });
        let taken = model.pool.take_behind(&model.core, &model.lots[0], model.track(0), LARGE).unwrap();
        // What is in the order of another stream is given back: see `Pool::take`.
        if let Some(taken) = taken
            && model.book().records.at(taken).stream() == 1
        {
            model.check_handed(model.track(0));
        }
        next.join().unwrap();
    });
}

/// The addresses of a block.
fn span(model: &Model, record: u32) -> Range<u64> {
    let record = model.book().records.at(record);
    record.base()..record.base() + record.capacity_bytes()
}

#[test]
fn a_block_that_is_resized_while_its_context_ends_shares_no_address_with_the_next() {
    check(|| {
        let model = Model::new(&[(1, false), (2, false), (3, false)]);
        let block = model.lots[0].take_large(model.book(), LARGE).unwrap();
        let record = model.book().records.at(block);
        record.own(LARGE);
        let generation = record.state().generation();
        let other = model.clone();
        let next = thread::spawn(move || {
            other.lots[0].disown_all(other.book(), Duration::from_secs(1));
            other.lots[0].clear(other.book());
            assert!(other.lots[0].adopt(other.track(2)));
            let taken = other.lots[0].take_large(other.book(), LARGE).expect("all of it is free");
            other.book().records.at(taken).own(LARGE);
            taken
        });
        model.lots[0].resize(record, generation, LARGE / 2);
        let next = next.join().unwrap();
        let whole = span(&model, next);
        assert_eq!(whole, BASE..BASE + LARGE);
        if let Some(another) = model.lots[0].take_large(model.book(), LARGE / 2) {
            panic!("{:?} lies in {whole:?}, which has an owner", span(&model, another));
        }
    });
}
