//! The stream heaps under loom, with two threads: memory lent from one stream's heap to another stream while a third
//! stream adopts the heap, and a block that is resized while its context ends.
//!
//! The files are those of the library, with loom's locks and atomics in place of the standard library's. Streams are
//! counters here: how much work was submitted, and how much of it is complete.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each file is used in part")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

mod imports {
    use std::sync::{Arc, PoisonError};

    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use loom::sync::{Mutex, MutexGuard};

    use super::device_work::DeviceWork;

    #[derive(Debug)]
    pub(crate) struct CallError;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ContextId(pub(crate) u32);

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct StreamId(pub(crate) u32);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Fence {
        pub(crate) stream: StreamId,
        pub(crate) seq: u64,
    }

    #[derive(Clone, Copy)]
    pub(crate) enum SyncPoint {
        LendIncomplete,
        LendSmall,
    }

    pub(crate) mod sync_point {
        pub(crate) fn reach(_: super::SyncPoint) {}
    }

    /// A stream.
    #[derive(Debug)]
    pub(crate) struct StreamState {
        pub(crate) id: StreamId,
        pub(crate) context: ContextId,
        is_foreign: bool,
        enqueued: AtomicU64,
        completed: AtomicU64,
        is_retired: AtomicBool,
        /// The work of other streams that its next work must follow.
        waited: Mutex<Vec<Fence>>,
    }

    impl StreamState {
        pub(crate) fn new(id: u32, is_foreign: bool) -> Arc<Self> {
            Arc::new(Self {
                id: StreamId(id),
                context: ContextId(0),
                is_foreign,
                enqueued: AtomicU64::new(0),
                completed: AtomicU64::new(0),
                is_retired: AtomicBool::new(false),
                waited: Mutex::new(Vec::new()),
            })
        }

        /// Puts work in, which has not passed. Its seq, as the library counters it: others' work is not counted.
        pub(crate) fn work(&self) -> Fence {
            let seq = self.enqueued.fetch_add(1, Ordering::AcqRel) + 1;
            Fence { stream: self.id, seq }
        }

        /// The stream is gone, and all of its work has passed: so has what it waited for, which is returned.
        pub(crate) fn end(&self) -> Vec<Fence> {
            let waited = self.waited();
            self.is_retired.store(true, Ordering::Release);
            self.completed.store(u64::MAX, Ordering::Release);
            waited.clone()
        }

        pub(crate) fn pass(&self, seq: u64) {
            self.completed.fetch_max(seq, Ordering::AcqRel);
        }

        pub(crate) fn is_foreign(&self) -> bool {
            self.is_foreign
        }

        pub(crate) fn current_fence(&self) -> Fence {
            Fence { stream: self.id, seq: self.enqueued.load(Ordering::Acquire) }
        }

        pub(crate) fn released_seq(&self) -> u64 {
            self.enqueued.load(Ordering::Acquire) + u64::from(self.is_foreign)
        }

        pub(crate) fn is_complete(&self, seq: u64) -> bool {
            self.completed.load(Ordering::Acquire) >= seq
        }

        pub(crate) fn can_wait_for(&self, other: &Self) -> Result<bool, CallError> {
            Ok(!other.is_retired.load(Ordering::Acquire))
        }

        pub(crate) fn wait_for(&self, other: &Self, seq: u64) -> Result<bool, CallError> {
            let mut waited = self.waited();
            if self.is_retired.load(Ordering::Acquire) || other.is_complete(seq) {
                return Ok(false);
            }
            waited.push(Fence { stream: other.id, seq });
            Ok(true)
        }

        pub(crate) fn has_waited(&self, stream: StreamId, seq: u64) -> bool {
            let is_it = |fence: &Fence| fence.stream == stream && fence.seq >= seq;
            stream == self.id || self.waited().iter().any(is_it)
        }

        fn waited(&self) -> MutexGuard<'_, Vec<Fence>> {
            self.waited.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// All streams.
    #[derive(Debug)]
    pub(crate) struct Streams {
        pub(crate) all: Vec<Arc<StreamState>>,
    }

    impl Streams {
        pub(crate) fn get(&self, id: StreamId) -> Option<Arc<StreamState>> {
            self.all.iter().find(|stream| stream.id == id).cloned()
        }
    }

    impl DeviceWork for Streams {
        fn is_complete(&self, fence: Fence) -> bool {
            self.get(fence.stream).is_some_and(|stream| stream.is_complete(fence.seq))
        }

        fn is_idle(&self) -> bool {
            self.all.iter().all(|stream| stream.is_complete(stream.current_fence().seq))
        }

        // Nothing to query or record: here the host sees all progress at once.

        fn refresh(&self) -> Result<(), CallError> {
            Ok(())
        }

        fn query(&self) -> Result<(), CallError> {
            Ok(())
        }

        fn record_fences(&self, _: &[Fence]) -> Result<(), CallError> {
            Ok(())
        }

        fn record_fences_coalesced(&self, _: &[Fence]) -> Result<(), CallError> {
            Ok(())
        }

        fn can_wait(&self, stream: &StreamState, other: StreamId) -> Result<bool, CallError> {
            self.get(other).map_or(Ok(false), |other| stream.can_wait_for(&other))
        }

        fn wait_for(&self, stream: &StreamState, fence: Fence) -> Result<(), CallError> {
            self.get(fence.stream).map_or(Ok(()), |other| stream.wait_for(&other, fence.seq).map(drop))
        }

        fn when_idle(&self, call: &mut dyn FnMut() -> Result<(), CallError>) -> Result<bool, CallError> {
            if self.is_idle() { call().map(|()| true) } else { Ok(false) }
        }

        fn unmap_completed(&self) -> Result<bool, CallError> {
            Ok(false)
        }
    }
}

mod stable_array {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    pub(crate) const ITEMS_MAX: usize = 256;

    pub(crate) use crate::pool_loom::stable_array::Numbered;

    /// Things that are made when they are first asked for: each has many of the checker's atomics.
    #[derive(Debug)]
    pub(crate) struct StableArray<T> {
        items: Vec<OnceLock<Box<T>>>,
        next: AtomicU32,
    }

    impl<T: Numbered + Default> StableArray<T> {
        pub(crate) fn new() -> Self {
            Self { items: (0..ITEMS_MAX).map(|_| OnceLock::new()).collect(), next: AtomicU32::new(0) }
        }

        pub(crate) fn at(&self, number: u32) -> &T {
            self.items[number as usize].get_or_init(|| {
                let item = Box::<T>::default();
                item.set_number(number);
                item
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
            self.items.iter().filter_map(|item| item.get().map(|item| &**item))
        }
    }
}

mod block_table {
    use super::block_meta::BlockMeta;
    use super::page_map::PageMap;
    use super::slab::Slab;
    use super::stable_array::StableArray;
    use std::sync::atomic::AtomicU64;

    #[derive(Debug)]
    pub(crate) struct BlockTable {
        pub(crate) metas: StableArray<BlockMeta>,
        pub(crate) slabs: StableArray<Slab>,
        pub(crate) pages: PageMap,
        pub(crate) misses: AtomicU64,
    }
}

mod heaps {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::stream_heap::StreamHeap;

    #[derive(Debug)]
    pub(crate) struct Heaps {
        pub(crate) heaps: Mutex<Vec<Arc<StreamHeap>>>,
    }

    impl Heaps {
        pub(crate) fn all(&self) -> Vec<Arc<StreamHeap>> {
            self.heaps.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }
}

#[path = "../../src/pool/attached_caches.rs"]
mod attached_caches;
#[path = "../../src/pool/bins.rs"]
mod bins;
#[path = "../../src/pool/borrow.rs"]
mod borrow;
#[path = "../../src/pool/device_work.rs"]
mod device_work;
#[path = "../../src/pool/extent_map.rs"]
mod extent_map;
#[path = "../../src/pool/page_map.rs"]
mod page_map;
#[path = "../../src/pool/size_class.rs"]
mod size_class;
#[path = "../../src/pool/slab.rs"]
mod slab;
#[path = "../../src/pool/stats.rs"]
mod stats;
#[path = "../../src/pool/stream_heap.rs"]
mod stream_heap;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::pool_loom::block_meta::{self, OwnedBy};
use block_table::BlockTable;
use device_work::DeviceWork;
use extent_map::{Chunk, ExtentMap, PAGE_BYTES};
use freehold_testing::at_effort;
use heaps::Heaps;
use imports::{Fence, StreamId, StreamState, Streams};
use loom::thread;
use page_map::PageMap;
use size_class::SizeClass;
use stable_array::StableArray;
use stream_heap::StreamHeap;

/// Where the library's files find the pool.
mod device_pool {
    pub(crate) use super::Pool;
}

const BASE: u64 = 1 << 30;

/// All of the memory that a heap has.
const LARGE: u64 = PAGE_BYTES;
const SMALL: u64 = 512;

/// A heap that a stream has, and another stream's, which has nothing.
#[derive(Debug)]
pub(crate) struct Pool {
    table: Arc<BlockTable>,
    heaps: Heaps,
    next_lender: AtomicUsize,
}

struct Model {
    pool: Pool,
    streams: Streams,
    /// The heap with memory, and the one without.
    heaps: [Arc<StreamHeap>; 2],
    /// The last use of the memory, wherever in it.
    used: Mutex<Option<Fence>>,
}

impl Model {
    /// Streams of these numbers: the first has a heap with memory, the second has one without.
    fn new(streams: &[(u32, bool)]) -> Arc<Self> {
        let streams: Vec<_> = streams.iter().map(|&(id, is_foreign)| StreamState::new(id, is_foreign)).collect();
        let heaps = [0, 1].map(|number: u32| {
            let home = streams[number as usize].clone();
            Arc::new(StreamHeap::new(number, home, ExtentMap::new()))
        });
        let table = BlockTable {
            metas: StableArray::new(),
            slabs: StableArray::new(),
            pages: PageMap::new(BASE, 4 * PAGE_BYTES).expect("a short table"),
            misses: AtomicU64::new(0),
        };
        let pool = Pool {
            table: Arc::new(table),
            heaps: Heaps { heaps: Mutex::new(heaps.to_vec()) },
            next_lender: AtomicUsize::new(0),
        };
        let model = Self { pool, streams: Streams { all: streams }, heaps, used: Mutex::new(None) };
        model.heaps[0].add_region(BASE, 2 * PAGE_BYTES);
        let chunk = Chunk { base: BASE, bytes: LARGE, handle: 1 };
        let whole = model.heaps[0].add_chunks(&model.pool.table, None, &[chunk], LARGE).expect("as much as was mapped");
        model.heaps[0].free(&model.pool.table, whole, model.stream_state(0), &[]);
        Arc::new(model)
    }

    fn stream_state(&self, index: usize) -> &Arc<StreamState> {
        &self.streams.all[index]
    }

    fn table(&self) -> &BlockTable {
        &self.pool.table
    }

    /// Work of a stream with a block, which it gives up then in its order.
    fn use_and_give(&self, meta: u32, stream: &StreamState) {
        let fence = stream.work();
        *self.used.lock().unwrap() = Some(fence);
        self.table().metas.at(meta).set_seq(fence.seq);
        self.heaps[0].free(self.table(), meta, stream, &[]);
    }

    /// The first stream has passed everything and is gone; another has its heap from now on.
    fn hand_over(&self, to: usize) {
        for fence in self.stream_state(0).end() {
            self.streams.get(fence.stream).unwrap().pass(fence.seq);
        }
        self.heaps[0].orphan();
        assert!(self.heaps[0].adopt(self.stream_state(to)));
    }

    /// Fails where a stream was handed memory that another may still use.
    fn check_handed(&self, to: &StreamState) {
        let Some(used) = *self.used.lock().unwrap() else { return };
        let is_behind = self.streams.is_complete(used) || to.has_waited(used.stream, used.seq);
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
fn memory_that_is_lent_after_a_wait_comes_after_the_stream_of_its_heap() {
    check(|| {
        let model = Model::new(&[(1, false), (2, false), (3, false)]);
        let block = model.heaps[0].alloc_large(model.table(), LARGE).unwrap();
        model.use_and_give(block, model.stream_state(0));
        let other = model.clone();
        let next = thread::spawn(move || {
            other.hand_over(2);
            if let Some(block) = other.heaps[0].alloc_large(other.table(), LARGE) {
                other.use_and_give(block, other.stream_state(2));
            }
        });
        let lent = model.pool.borrow_after_wait(&model.streams, &model.heaps[1], model.stream_state(1), LARGE).unwrap();
        if let Some(lent) = lent {
            assert_eq!(model.table().metas.at(lent).stream(), 2);
            model.check_handed(model.stream_state(1));
        }
        next.join().unwrap();
    });
}

#[test]
fn a_small_block_is_lent_when_the_stream_of_its_heap_has_completed_its_work() {
    for is_foreign in [false, true] {
        check(move || {
            let model = Model::new(&[(1, false), (2, false), (3, is_foreign)]);
            let class = SizeClass::of(SMALL).unwrap();
            let place = model.heaps[0].alloc_large(model.table(), model.heaps[0].next_slab_bytes(class)).unwrap();
            assert!(model.heaps[0].add_slab(model.table(), class, place));
            let other = model.clone();
            let next = thread::spawn(move || {
                other.hand_over(2);
                let mut found = None;
                other.heaps[0].alloc_small(other.table(), 3, class, 1, |meta| found = Some(meta));
                // The other thread may have it.
                let Some(meta) = found else { return };
                let base = other.table().metas.at(meta).base();
                let stream = other.stream_state(2);
                let fence = stream.work();
                if !stream.is_foreign() {
                    other.table().metas.at(meta).set_seq(fence.seq);
                }
                *other.used.lock().unwrap() = (base == BASE).then_some(fence);
                other.heaps[0].free(other.table(), meta, stream, &[]);
            });
            let lent = model.pool.borrow_small(&model.streams, &model.heaps[1], model.stream_state(1), class).unwrap();
            if let Some(lent) = lent
                && model.table().metas.at(lent).base() == BASE
            {
                model.check_handed(model.stream_state(1));
            }
            next.join().unwrap();
        });
    }
}

#[test]
fn what_a_stream_waits_for_is_not_free_for_the_next_stream_of_its_heap() {
    check(|| {
        let model = Model::new(&[(1, false), (2, false), (3, false)]);
        let block = model.heaps[0].alloc_large(model.table(), LARGE).unwrap();
        // The second stream uses the block when it is given up.
        let fence = model.stream_state(1).work();
        *model.used.lock().unwrap() = Some(fence);
        model.heaps[0].free(model.table(), block, model.stream_state(0), &[fence]);
        let other = model.clone();
        let next = thread::spawn(move || {
            other.hand_over(2);
            if other.heaps[0].alloc_large(other.table(), LARGE).is_some() {
                other.check_handed(other.stream_state(2));
            }
        });
        let taken = model.pool.alloc_after_wait(&model.streams, &model.heaps[0], model.stream_state(0), LARGE).unwrap();
        // What is in the order of another stream is given back: see `Pool::take`.
        if let Some(taken) = taken
            && model.table().metas.at(taken).stream() == 1
        {
            model.check_handed(model.stream_state(0));
        }
        next.join().unwrap();
    });
}

/// The addresses of a block.
fn span(model: &Model, meta: u32) -> Range<u64> {
    let meta = model.table().metas.at(meta);
    meta.base()..meta.base() + meta.capacity_bytes()
}

#[test]
fn a_block_that_is_resized_while_its_context_ends_shares_no_address_with_the_next() {
    check(|| {
        let model = Model::new(&[(1, false), (2, false), (3, false)]);
        let block = model.heaps[0].alloc_large(model.table(), LARGE).unwrap();
        let meta = model.table().metas.at(block);
        meta.own(LARGE, OwnedBy::Address);
        let generation = meta.state().generation();
        let other = model.clone();
        let next = thread::spawn(move || {
            other.heaps[0].disown_all(other.table(), Duration::from_secs(1));
            other.heaps[0].clear(other.table());
            assert!(other.heaps[0].adopt(other.stream_state(2)));
            let taken = other.heaps[0].alloc_large(other.table(), LARGE).expect("all of it is free");
            other.table().metas.at(taken).own(LARGE, OwnedBy::Address);
            taken
        });
        model.heaps[0].resize(meta, generation, LARGE / 2);
        let next = next.join().unwrap();
        let whole = span(&model, next);
        assert_eq!(whole, BASE..BASE + LARGE);
        if let Some(another) = model.heaps[0].alloc_large(model.table(), LARGE / 2) {
            panic!("{:?} lies in {whole:?}, which has an owner", span(&model, another));
        }
    });
}
