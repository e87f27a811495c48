//! A lot: the ground that a stream has of the pool. Its heap, the slabs on it, and the blocks that wait for marks before they
//! can be had again. Everything free here is free in the order of the lot's stream.
//!
//! Knows the book and tracks, and calls no driver: what it needs is asked of the pool.

#[path = "lot/inside.rs"]
mod inside;

use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use self::inside::{Inside, Waiting};
use super::book::Book;
use super::class::{CLASSES, Class, SMALL_BYTES_MAX};
use super::counts::Counts;
use super::heap::{Chunk, GRANULE_BYTES, Heap, Need, Taken};
use super::outside::{ContextId, Mark, StreamId, Track};
use super::rack::Rack;
use super::record::{Gone, Record, Seen, Site, Stage};
use super::sync::{AtomicU32, Mutex, MutexGuard, Ordering};

/// Slabs whose blocks nobody has are given up where they are more than this part of what is mapped.
const IDLE_SLABS_PART: u64 = 4;

/// A lot that was asked for nothing while others had nothing so often rests.
const RESTING_MISSES: u64 = 64;

/// How many blocks that wait are looked at for one request.
const LOOKS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Lot {
    pub(crate) number: u32,
    /// The context of its stream.
    context: AtomicU32,
    inside: Mutex<Inside>,
    racks: Mutex<Vec<Weak<Rack>>>,
    /// How many counts of the stream's home were kept in racks that are closed. Written under the lock of the racks.
    homes: AtomicU32,
    pub(crate) counts: Counts,
}

impl Lot {
    pub(crate) fn new(number: u32, home: Arc<Track>, heap: Heap) -> Self {
        Self {
            number,
            context: AtomicU32::new(home.context.0),
            inside: Mutex::new(Inside {
                home,
                is_orphan: false,
                is_anybodys: false,
                heap,
                partial: [const { Vec::new() }; CLASSES],
                bare: [const { Vec::new() }; CLASSES],
                slab_blocks: [0; CLASSES],
                vacant: Vec::new(),
                waiting: Vec::new(),
                asked: 0,
                is_settled: false,
                gone: Vec::new(),
                next_gone: 0,
            }),
            racks: Mutex::new(Vec::new()),
            homes: AtomicU32::new(0),
            counts: Counts::default(),
        }
    }

    pub(crate) fn context(&self) -> ContextId {
        ContextId(self.context.load(Ordering::Relaxed))
    }

    pub(crate) fn home(&self) -> Arc<Track> {
        self.inside().home.clone()
    }

    /// Whether the lot's stream is gone; then another has it from now on.
    pub(crate) fn adopt(&self, stream: &Arc<Track>) -> bool {
        let mut inside = self.inside();
        if !inside.is_orphan || self.context() != stream.context && !inside.is_anybodys {
            return false;
        }
        inside.is_anybodys = false;
        self.context.store(stream.context.0, Ordering::Relaxed);
        inside.is_orphan = false;
        inside.home = stream.clone();
        // Positions are the new stream's from now on, and the old one has passed all of its own.
        inside.heap.forget_positions();
        true
    }

    pub(crate) fn orphan(&self) {
        self.inside().is_orphan = true;
    }

    // Blocks.

    /// Blocks of a class for a stream, as many as there are in slabs here, up to `count`: none where the lot has become
    /// another stream's.
    pub(crate) fn take_small(
        &self,
        book: &Book,
        stream: u32,
        class: Class,
        count: usize,
        mut found: impl FnMut(u32),
    ) -> usize {
        let inside = &mut *self.inside();
        // What waits may have passed: who asks can tell, and comes again.
        if inside.home.id.0 != stream || !inside.waiting.is_empty() && !inside.is_settled {
            return 0;
        }
        inside.asked = book.misses.load(Ordering::Relaxed);
        let partial = &mut inside.partial[class.index()];
        let mut taken = 0;
        while taken < count
            && let Some(&number) = partial.last()
        {
            let slab = book.slabs.at(number);
            let record = book.records.at(slab.take().expect("a slab that is listed has free blocks"));
            if record.stream() != inside.home.id.0 {
                // The stream that it was another's of has passed all of its work.
                record.set_stream(inside.home.id.0);
                record.set_position(0);
            }
            found(record.number());
            taken += 1;
            // At once: the next block that comes back lists it again.
            if slab.is_full() {
                partial.pop();
            }
        }
        // Who finds nothing looks once, and comes again with a slab.
        inside.is_settled &= taken == 0;
        taken
    }

    /// A block that fits no class, of the heap.
    pub(crate) fn take_large(&self, book: &Book, bytes: u64) -> Option<u32> {
        let inside = &mut *self.inside();
        if !inside.has_record(book) {
            return None;
        }
        let taken = inside.heap.take(bytes)?;
        Some(inside.begin(book, self.number, taken, inside.home.id.0))
    }

    /// Whether a block can be made here: a record is left for one.
    pub(crate) fn has_record(&self, book: &Book) -> bool {
        self.inside().has_record(book)
    }

    /// Takes back blocks that `from` gave up in its order, and takes one that fits no class.
    pub(crate) fn exchange(&self, book: &Book, given: &[u32], from: &Track, bytes: u64) -> Option<u32> {
        let inside = &mut *self.inside();
        inside.asked = book.misses.load(Ordering::Relaxed);
        if from.id != inside.home.id {
            given.iter().for_each(|&record| inside.give_from(book, record, from, &[]));
            return None;
        }
        given.iter().for_each(|&record| inside.give(book, record));
        if !inside.has_record(book) {
            return None;
        }
        let taken = inside.heap.take(bytes)?;
        Some(inside.begin(book, self.number, taken, inside.home.id.0))
    }

    /// A block of this lot's heap for another stream: one that this lot's stream has passed.
    pub(crate) fn lend(&self, book: &Book, bytes: u64, to: u32, has_passed: impl Fn(Mark) -> bool) -> Option<u32> {
        let inside = &mut *self.inside();
        if !inside.has_record(book) {
            return None;
        }
        let stream = inside.home.id;
        let taken = inside.heap.take_if(bytes, |position| has_passed(Mark { stream, position }))?;
        let taken = Taken { position: 0, ..taken };
        Some(inside.begin(book, self.number, taken, to))
    }

    /// A block of a class for another stream: one that this lot's stream, whose work is counted, has passed.
    pub(crate) fn lend_small(
        &self,
        book: &Book,
        class: Class,
        to: u32,
        has_passed: impl Fn(Mark) -> bool,
    ) -> Option<u32> {
        let inside = &mut *self.inside();
        // The lot may have become another stream's since that of before was seen to have passed all of its work.
        if inside.home.is_foreign() {
            return None;
        }
        let (stream, partial) = (inside.home.id, &mut inside.partial[class.index()]);
        let slab = book.slabs.at(*partial.last()?);
        let record = book.records.at(slab.take().expect("a slab that is listed has free blocks"));
        // It may have been used and given up since the stream was seen to have passed all of its work.
        if record.stream() == stream.0 && !has_passed(Mark { stream, position: record.position() }) {
            slab.give(record.number());
            return None;
        }
        if slab.is_full() {
            partial.pop();
        }
        record.set_stream(to);
        record.set_position(0);
        Some(record.number())
    }

    /// Whether nobody has asked for a block here for a while.
    pub(crate) fn is_resting(&self, book: &Book) -> bool {
        self.inside().asked + RESTING_MISSES < book.misses.load(Ordering::Relaxed)
    }

    /// Whether the lot's stream has passed all that was put in, where that is counted; else how far it has to come.
    pub(crate) fn is_idle(&self, has_passed: impl Fn(Mark) -> bool) -> Result<(), Option<Mark>> {
        let inside = self.inside();
        if inside.home.is_foreign() {
            return Err(None);
        }
        let edge = Mark { stream: inside.home.id, position: inside.home.edge() };
        if has_passed(edge) { Ok(()) } else { Err(Some(edge)) }
    }

    /// As [`lend`](Self::lend), of a range that the lot's stream has not passed: it has to be waited for. Nothing where that
    /// stream is not `home`, which the caller can wait for.
    pub(crate) fn lend_unpassed(&self, book: &Book, bytes: u64, to: u32, home: StreamId) -> Option<(u32, Mark)> {
        let inside = &mut *self.inside();
        if inside.home.id != home || !inside.has_record(book) {
            return None;
        }
        let taken = inside.heap.take(bytes)?;
        // Whatever the range's own position, everything up to now is behind this one.
        let mark = Mark { stream: inside.home.id, position: inside.home.edge() };
        let taken = Taken { position: 0, ..taken };
        Some((inside.begin(book, self.number, taken, to), mark))
    }

    /// How long a place the next slab of a class is to have.
    pub(crate) fn next_slab_bytes(&self, class: Class) -> u64 {
        class.slab_bytes(class.slab_blocks(self.inside().slab_blocks[class.index()]))
    }

    /// Makes a slab of a block that was taken of this lot's heap. Whether records are left for its blocks: the block is as it was
    /// otherwise.
    #[must_use]
    pub(crate) fn add_slab(&self, book: &Book, class: Class, block: u32) -> bool {
        let block = book.records.at(block);
        let (base, site, position) = (block.base(), block.site(), block.position());
        assert_eq!(block.lot(), self.number, "a slab lies on the ground of its lot");
        let inside = &mut *self.inside();
        let blocks = (block.capacity_bytes() / class.bytes()) as u32;
        let bare = &mut inside.bare[class.index()];
        let fitting = bare.iter().position(|&number| book.slabs.at(number).blocks() == blocks);
        if fitting.is_none() && book.records.is_full() {
            return false;
        }
        let number = fitting.map(|index| bare.swap_remove(index)).unwrap_or_else(|| {
            let number = book.slabs.add(1);
            book.slabs.at(number).equip(class, blocks, book.records.add(blocks));
            number
        });
        let slab = book.slabs.at(number);
        inside.slab_blocks[class.index()] += blocks;
        for (index, record) in slab.records().enumerate() {
            let at = base + index as u64 * class.bytes();
            let record = book.records.at(record);
            let site = Site::in_slab(number, class.index());
            record.begin(at, class.bytes(), inside.home.id.0, self.number, site, position);
        }
        slab.settle(base, site.place().expect("a slab is made of a place"));
        book.table.set_slab(base, block.capacity_bytes(), number);
        inside.list(book, number);
        // The place is the slab's now.
        block.end();
        inside.vacant.push(block.number());
        true
    }

    /// Takes back a block that `from` gave up in its order, behind marks of other streams.
    pub(crate) fn give(&self, book: &Book, record: u32, from: &Track, marks: &[Mark]) {
        self.inside().give_from(book, record, from, marks);
    }

    /// As [`give`](Self::give), of blocks without marks.
    pub(crate) fn give_all(&self, book: &Book, records: impl Iterator<Item = u32>, from: &Track) {
        let inside = &mut *self.inside();
        records.for_each(|record| inside.give_from(book, record, from, &[]));
    }

    /// Takes back blocks whose marks have passed; the marks of others that were looked at.
    pub(crate) fn settle(&self, book: &Book, has_passed: impl Fn(Mark) -> bool) -> Vec<Mark> {
        self.settle_some(book, LOOKS_MAX, None, has_passed)
    }

    pub(crate) fn settle_all(&self, book: &Book, has_passed: impl Fn(Mark) -> bool) -> Vec<Mark> {
        self.settle_some(book, usize::MAX, None, has_passed)
    }

    /// Takes back blocks whose marks have passed, or which `stream`, the lot's own, waits for before its next work: others use
    /// them behind that wait. Where the lot has become another stream's meanwhile, `stream` has passed its waits.
    pub(crate) fn settle_behind(&self, book: &Book, stream: &Track, is_before: impl Fn(Mark) -> bool) {
        self.settle_some(book, usize::MAX, Some(stream), is_before);
    }

    fn settle_some(
        &self,
        book: &Book,
        looks: usize,
        waits: Option<&Track>,
        has_passed: impl Fn(Mark) -> bool,
    ) -> Vec<Mark> {
        let inside = &mut *self.inside();
        let mut left = Vec::new();
        let looked = inside.waiting.len().min(looks);
        let mut index = 0;
        for _ in 0..looked {
            let waiting = &mut inside.waiting[index];
            waiting.marks.retain(|&mark| !has_passed(mark));
            if waiting.marks.is_empty() {
                let Waiting { record, .. } = inside.waiting.swap_remove(index);
                let settled = book.records.at(record);
                // A wait that was just found is counted by now.
                if let Some(Mark { stream, position }) = waits.map(Track::now) {
                    settled.set_stream(stream.0);
                    settled.set_position(position);
                }
                settled.set_stage(Stage::Parked);
                inside.give(book, record);
            } else {
                book.records.at(waiting.record).set_waiting_for(waiting.marks.len());
                left.extend_from_slice(&waiting.marks);
                index += 1;
            }
        }
        // The next request looks at others first.
        inside.waiting.rotate_left(index);
        inside.is_settled = true;
        left
    }

    /// Lets a block be of other bytes where it lies, if it can and one ownership of it lasts: where its context has ended that
    /// meanwhile, the place may be another block's. What is added or given up is in the order of the lot's stream.
    pub(crate) fn resize(&self, record: &Record, generation: u64, bytes: u64) -> bool {
        let inside = &mut *self.inside();
        let Some(Seen { bytes: before, .. }) = record.owned_as(generation) else { return false };
        let place = record.site().place().filter(|_| bytes > SMALL_BYTES_MAX);
        let position = inside.home.edge();
        let is_moved_end = place
            .is_some_and(|place| record.stream() == inside.home.id.0 && inside.heap.resize(place, bytes, position));
        if is_moved_end {
            record.resize(bytes, bytes.next_multiple_of(GRANULE_BYTES));
        } else if bytes <= record.capacity_bytes() {
            record.resize(bytes, record.capacity_bytes());
        } else {
            return false;
        }
        self.counts.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        true
    }

    /// Calls `act` while one ownership of a block here lasts, which its context does not end meanwhile. Nothing where it has ended.
    pub(crate) fn while_owned<R>(&self, record: &Record, generation: u64, act: impl FnOnce() -> R) -> Option<R> {
        let _inside = self.inside();
        record.owned_as(generation).map(|_| act())
    }

    /// The last marks that blocks wait for, one for each stream.
    pub(crate) fn awaited(&self) -> Vec<Mark> {
        let inside = self.inside();
        let mut marks: Vec<_> = inside.waiting.iter().flat_map(|waiting| waiting.marks.iter().copied()).collect();
        marks.sort_unstable_by_key(|mark| (mark.stream, std::cmp::Reverse(mark.position)));
        marks.dedup_by_key(|mark| mark.stream);
        marks
    }

    /// Makes places again of all slabs whose blocks nobody has, if they are much of what is mapped: slabs do not come and go
    /// with each few requests.
    pub(crate) fn raze_idle(&self, book: &Book) {
        let inside = &mut *self.inside();
        let empty = inside.empty_slabs(book);
        let empty_bytes: u64 = empty.iter().map(|&slab| book.slabs.at(slab).bytes()).sum();
        if empty_bytes >= inside.heap.mapped_bytes() / IDLE_SLABS_PART {
            empty.into_iter().for_each(|slab| inside.raze(book, slab));
        }
    }

    /// Makes places again of all slabs whose blocks nobody has.
    pub(crate) fn raze_empty(&self, book: &Book) {
        let inside = &mut *self.inside();
        inside.empty_slabs(book).into_iter().for_each(|slab| inside.raze(book, slab));
    }

    // Ground.

    pub(crate) fn add_region(&self, base: u64, bytes: u64) {
        self.inside().heap.add_region(base, bytes);
    }

    /// Takes the addresses away that nothing is mapped to, in whole regions: their bases and lengths.
    pub(crate) fn take_bare_regions(&self) -> Vec<(u64, u64)> {
        self.inside().heap.take_bare_regions()
    }

    /// Where memory has to be mapped for a request, and the free range beside it, which nobody else takes meanwhile.
    pub(crate) fn need(&self, bytes: u64, spare_bytes: u64) -> Option<(Need, Option<u32>)> {
        let inside = &mut *self.inside();
        let need = inside.heap.need(bytes, spare_bytes)?;
        Some((need, inside.heap.claim(need)))
    }

    /// Gives the range back that was kept for what was to be mapped.
    pub(crate) fn unclaim(&self, claimed: Option<u32>) {
        let inside = &mut *self.inside();
        if let Some(place) = claimed {
            inside.heap.give(place, inside.home.edge());
        }
    }

    /// Notes chunks that were mapped, and takes a block of them for this lot's stream.
    pub(crate) fn fill(&self, book: &Book, claimed: Option<u32>, chunks: &[Chunk], bytes: u64) -> Option<u32> {
        let inside = &mut *self.inside();
        let position = inside.home.edge();
        if let Some(place) = claimed {
            inside.heap.give(place, position);
        }
        for &chunk in chunks {
            inside.heap.fill(chunk, 0);
        }
        let taken = inside.heap.take(bytes)?;
        Some(inside.begin(book, self.number, taken, inside.home.id.0))
    }

    /// Takes chunks away that are free as a whole and passed, up to so many bytes. They are to be unmapped.
    pub(crate) fn empty(&self, wanted_bytes: u64, has_passed: impl Fn(Mark) -> bool) -> Vec<Chunk> {
        let inside = &mut *self.inside();
        let stream = inside.home.id;
        let mut free = inside.heap.free_chunks(|position| has_passed(Mark { stream, position }));
        free.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.bytes));
        let mut bytes = 0;
        let mut emptied = Vec::new();
        for chunk in free {
            if bytes >= wanted_bytes {
                break;
            }
            bytes += chunk.bytes;
            inside.heap.empty(chunk);
            emptied.push(chunk);
        }
        emptied
    }

    /// Takes the chunks away that lie in a span and are free as a whole and passed.
    pub(crate) fn empty_within(&self, span: &Range<u64>, has_passed: impl Fn(Mark) -> bool) -> Vec<Chunk> {
        let inside = &mut *self.inside();
        if !inside.heap.has(span.start) {
            return Vec::new();
        }
        let stream = inside.home.id;
        let free = inside.heap.free_chunks(|position| has_passed(Mark { stream, position }));
        let within = |chunk: &Chunk| chunk.base < span.end && span.start < chunk.base + chunk.bytes;
        let chunks: Vec<_> = free.into_iter().filter(within).collect();
        chunks.iter().for_each(|&chunk| inside.heap.empty(chunk));
        chunks
    }

    /// Notes that chunks are still mapped which were to be unmapped.
    pub(crate) fn refill(&self, chunks: &[Chunk]) {
        let inside = &mut *self.inside();
        chunks.iter().for_each(|&chunk| inside.heap.fill(chunk, 0));
    }

    /// How much could be emptied.
    pub(crate) fn emptiable_bytes(&self, has_passed: impl Fn(Mark) -> bool) -> u64 {
        let inside = self.inside();
        let stream = inside.home.id;
        inside.heap.free_chunks(|position| has_passed(Mark { stream, position })).iter().map(|chunk| chunk.bytes).sum()
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.inside().heap.mapped_bytes()
    }

    /// What is free in the heap, and the longest range of it.
    pub(crate) fn free_bytes(&self) -> (u64, u64) {
        let inside = self.inside();
        (inside.heap.free_bytes(), inside.heap.longest_bytes())
    }

    /// How many blocks wait for marks, and how many bytes their owners had asked for.
    pub(crate) fn waiting(&self, book: &Book) -> (u64, u64) {
        let inside = self.inside();
        let bytes = inside.waiting.iter().map(|waiting| book.records.at(waiting.record).bytes()).sum();
        (inside.waiting.len() as u64, bytes)
    }

    /// The base of the block that an address lies in, if one does.
    pub(crate) fn taken_at(&self, address: u64) -> Option<u64> {
        let inside = self.inside();
        if inside.heap.has(address) { inside.heap.taken_at(address) } else { None }
    }

    /// The chunk that an address lies in.
    pub(crate) fn chunk_at(&self, address: u64) -> Option<Chunk> {
        self.inside().heap.chunk_at(address)
    }

    /// The block that went last from an address.
    pub(crate) fn gone_at(&self, address: u64) -> Option<Gone> {
        let inside = self.inside();
        let (newer, older) = inside.gone.split_at(inside.next_gone);
        let mut gone = newer.iter().rev().chain(older.iter().rev());
        gone.find(|gone| address.wrapping_sub(gone.base) < gone.bytes.max(1)).copied()
    }

    /// Takes all blocks here from their owners: their context is closed. The memory stays as it is. What they were.
    pub(crate) fn disown_all(&self, book: &Book, when: Duration) -> Vec<(u32, Seen)> {
        let mut inside = self.inside();
        let mut disowned = Vec::new();
        for record in book.records.iter().filter(|record| record.lot() == self.number) {
            let state = record.state();
            if state.stage() == Stage::Owned && record.disown_described(state.generation(), None, when) {
                self.counts.take_shared(record.bytes());
                record.set_stage(Stage::Ended);
                inside.note_gone(Gone::of(record));
                disowned.push((record.number(), record.seen()));
            }
        }
        disowned
    }

    /// Ends everything here, whoever has it: the context is gone, and all work with it. The memory is anybody's.
    pub(crate) fn clear(&self, book: &Book) {
        let inside = &mut *self.inside();
        inside.waiting.clear();
        inside.partial.iter_mut().for_each(Vec::clear);
        let is_here = |record: &&Record| record.lot() == self.number && record.state().stage() != Stage::Vacant;
        for record in book.records.iter().filter(is_here) {
            match record.site().slab().map(|slab| book.slabs.at(slab)) {
                None => {
                    book.table.clear(record.base(), 1);
                    inside.vacant.push(record.number());
                }
                Some(slab) if record.number() == slab.records().start => {
                    book.table.clear(slab.base(), slab.bytes());
                    inside.bare[slab.class().index()].push(slab.number());
                }
                Some(_) => {}
            }
            record.end();
        }
        inside.slab_blocks = [0; CLASSES];
        inside.is_orphan = true;
        inside.is_anybodys = true;
        inside.heap.free_all();
    }

    // Racks.

    pub(crate) fn add_rack(&self, rack: &Arc<Rack>) {
        let mut racks = self.racks();
        racks.retain(|rack| rack.strong_count() > 0);
        racks.push(Arc::downgrade(rack));
    }

    /// Adds what a rack has counted, which is closed and counts no more.
    pub(crate) fn count_closed(&self, rack: &Rack) {
        let _racks = self.racks();
        if !rack.is_counted.swap(true, Ordering::Relaxed) {
            self.counts.add(&rack.counts);
        }
    }

    /// Adds what was counted here and in all racks to a total, each once, whichever of them are closed meanwhile.
    pub(crate) fn add_to(&self, total: &Counts) {
        let racks = self.racks();
        let open = racks.iter().filter_map(Weak::upgrade).filter(|rack| !rack.is_counted.load(Ordering::Relaxed));
        open.for_each(|rack| total.add(&rack.counts));
        total.add(&self.counts);
    }

    /// Keeps counts of the stream's home for a rack that is being closed.
    pub(crate) fn keep_homes(&self, count: u32) {
        let _racks = self.racks();
        self.homes.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes all counts of the home of `stream` that are kept here and in its racks.
    pub(crate) fn take_homes(&self, stream: u32) -> u32 {
        // In this order: those of a rack that is gone are here.
        let racks = self.all_racks();
        let kept: u32 = racks.iter().filter(|rack| rack.stream == stream).map(|rack| rack.take_homes()).sum();
        let _racks = self.racks();
        kept + self.homes.swap(0, Ordering::Relaxed)
    }

    /// The magazines of all threads for this lot's stream.
    pub(crate) fn all_racks(&self) -> Vec<Arc<Rack>> {
        self.racks().iter().filter_map(Weak::upgrade).collect()
    }

    fn racks(&self) -> MutexGuard<'_, Vec<Weak<Rack>>> {
        self.racks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
