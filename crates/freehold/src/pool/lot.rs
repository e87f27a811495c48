//! A lot: the ground that a stream has of the pool. Its heap, the slabs on it, and the blocks that wait for marks before they
//! can be had again. Everything free here is free in the order of the lot's stream.
//!
//! Knows the book and tracks, and calls no driver: what it needs is asked of the pool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::book::Book;
use super::class::{CLASSES, Class};
use super::heap::{Chunk, Heap, Need, Taken};
use super::rack::Rack;
use super::record::{Record, Stage};
use crate::ledger::{ContextId, Mark};
use crate::track::Track;

/// A record's place that is a slab's number.
const SLAB: u32 = 1 << 31;

/// How many records are made at once for a lot.
const RECORDS: u32 = 64;

/// How many blocks that are no more a lot remembers.
const GONE_MAX: usize = 1024;

/// How many blocks that wait are looked at for one request.
const LOOKS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Lot {
    pub(crate) number: u32,
    pub(crate) context: ContextId,
    inside: Mutex<Inside>,
    racks: Mutex<Vec<Weak<Rack>>>,
    pub(crate) counts: Counts,
}

/// How much was handed out and taken back, ever. A rack's are written by its thread alone.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handed_blocks: AtomicU64,
    pub(crate) handed_bytes: AtomicU64,
    pub(crate) taken_blocks: AtomicU64,
    pub(crate) taken_bytes: AtomicU64,
}

#[derive(Debug)]
struct Inside {
    home: Arc<Track>,
    /// Whether the stream is gone, so that another may have the lot.
    is_orphan: bool,
    heap: Heap,
    /// Slabs with free blocks.
    partial: [Vec<u32>; CLASSES],
    /// Slabs without a place, to be used again.
    bare: [Vec<u32>; CLASSES],
    vacant: Vec<u32>,
    waiting: Vec<Waiting>,
    /// The blocks of the heap that went last, and where the next one is noted.
    gone: Vec<(u64, u64)>,
    next_gone: usize,
}

/// A block that was given up with marks.
#[derive(Debug)]
struct Waiting {
    record: u32,
    marks: Vec<Mark>,
}

impl Counts {
    /// For the one thread that writes them.
    #[inline]
    pub(crate) fn hand(&self, bytes: u64) {
        bump(&self.handed_blocks, 1);
        bump(&self.handed_bytes, bytes);
    }

    /// For the one thread that writes them.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) {
        bump(&self.taken_blocks, 1);
        bump(&self.taken_bytes, bytes);
    }

    pub(crate) fn add(&self, other: &Self) {
        for (to, from) in self.all().into_iter().zip(other.all()) {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn all(&self) -> [&AtomicU64; 4] {
        [&self.handed_blocks, &self.handed_bytes, &self.taken_blocks, &self.taken_bytes]
    }
}

#[inline]
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Lot {
    pub(crate) fn new(number: u32, home: Arc<Track>) -> Self {
        Self {
            number,
            context: home.context,
            inside: Mutex::new(Inside {
                home,
                is_orphan: false,
                heap: Heap::new(),
                partial: [const { Vec::new() }; CLASSES],
                bare: [const { Vec::new() }; CLASSES],
                vacant: Vec::new(),
                waiting: Vec::new(),
                gone: Vec::new(),
                next_gone: 0,
            }),
            racks: Mutex::default(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn home(&self) -> Arc<Track> {
        self.inside().home.clone()
    }

    /// Whether the lot's stream is gone; then another has it from now on.
    pub(crate) fn adopt(&self, stream: &Arc<Track>) -> bool {
        let mut inside = self.inside();
        if !inside.is_orphan || self.context != stream.context {
            return false;
        }
        inside.is_orphan = false;
        inside.home = stream.clone();
        true
    }

    pub(crate) fn orphan(&self) {
        self.inside().is_orphan = true;
    }

    // Blocks.

    /// Blocks of a class, as many as there are of slabs here, up to `count`.
    pub(crate) fn take_small(&self, book: &Book, class: Class, count: usize, mut found: impl FnMut(u32)) -> usize {
        let inside = &mut *self.inside();
        let partial = &mut inside.partial[class.index()];
        let mut taken = 0;
        while taken < count
            && let Some(&number) = partial.last()
        {
            let slab = book.slabs.at(number);
            match slab.take() {
                Some(record) => {
                    let record = book.records.at(record);
                    record.set_stream(inside.home.id.0);
                    found(record.number());
                    taken += 1;
                }
                None => {
                    partial.pop();
                }
            }
        }
        taken
    }

    /// A block that fits no class, of the heap.
    pub(crate) fn take_large(&self, book: &Book, bytes: u64) -> Option<u32> {
        let inside = &mut *self.inside();
        let taken = inside.heap.take(bytes)?;
        Some(inside.begin(book, self.number, taken, inside.home.id.0))
    }

    /// Takes back blocks that `from` gave up in its order, and takes one that fits no class.
    pub(crate) fn exchange(&self, book: &Book, given: &[u32], from: &Track, bytes: u64) -> Option<u32> {
        let inside = &mut *self.inside();
        for &record in given {
            inside.give_from(book, record, from, &[]);
        }
        if from.id != inside.home.id {
            return None;
        }
        let taken = inside.heap.take(bytes)?;
        Some(inside.begin(book, self.number, taken, inside.home.id.0))
    }

    /// A block of this lot's heap for another stream: one that this lot's stream has passed.
    pub(crate) fn lend(&self, book: &Book, bytes: u64, to: u32, has_passed: impl Fn(Mark) -> bool) -> Option<u32> {
        let inside = &mut *self.inside();
        let stream = inside.home.id;
        let taken = inside.heap.take_if(bytes, |position| has_passed(Mark { stream, position }))?;
        Some(inside.begin(book, self.number, taken, to))
    }

    /// As [`lend`](Self::lend), of a range that the lot's stream has not passed: it has to be waited for.
    pub(crate) fn lend_unpassed(&self, book: &Book, bytes: u64, to: u32) -> Option<(u32, Mark)> {
        let inside = &mut *self.inside();
        let taken = inside.heap.take(bytes)?;
        // Whatever the range's own position, everything up to now is behind this one.
        let mark = Mark { stream: inside.home.id, position: inside.home.edge() };
        Some((inside.begin(book, self.number, taken, to), mark))
    }

    /// Makes a slab of a block that was taken of this lot's heap.
    pub(crate) fn add_slab(&self, book: &Book, class: Class, block: u32) {
        let block = book.records.at(block);
        let (base, place) = (block.base(), block.place());
        assert_eq!(block.lot(), self.number, "a slab lies on the ground of its lot");
        let inside = &mut *self.inside();
        let number = inside.bare[class.index()].pop().unwrap_or_else(|| {
            let number = book.slabs.add(1);
            book.slabs.at(number).equip(class, book.records.add(class.slab_blocks()));
            number
        });
        let slab = book.slabs.at(number);
        for (index, record) in slab.records().enumerate() {
            let at = base + index as u64 * class.bytes();
            book.records.at(record).begin(at, class.bytes(), inside.home.id.0, self.number, number | SLAB);
        }
        slab.settle(base, place);
        book.table.set_slab(base, block.capacity_bytes(), number);
        inside.list(book, number);
        // The place is the slab's now.
        block.end();
        inside.vacant.push(block.number());
    }

    /// Takes back a block that `from` gave up in its order, behind marks of other streams.
    pub(crate) fn give(&self, book: &Book, record: u32, from: &Track, marks: &[Mark]) {
        self.inside().give_from(book, record, from, marks);
    }

    /// Takes back blocks whose marks have passed; the marks of others that were looked at.
    pub(crate) fn settle(&self, book: &Book, has_passed: impl Fn(Mark) -> bool) -> Vec<Mark> {
        self.settle_some(book, LOOKS_MAX, has_passed)
    }

    pub(crate) fn settle_all(&self, book: &Book, has_passed: impl Fn(Mark) -> bool) -> Vec<Mark> {
        self.settle_some(book, usize::MAX, has_passed)
    }

    fn settle_some(&self, book: &Book, looks: usize, has_passed: impl Fn(Mark) -> bool) -> Vec<Mark> {
        let inside = &mut *self.inside();
        let mut left = Vec::new();
        let looked = inside.waiting.len().min(looks);
        let mut index = 0;
        for _ in 0..looked {
            let waiting = &mut inside.waiting[index];
            waiting.marks.retain(|&mark| !has_passed(mark));
            if waiting.marks.is_empty() {
                let Waiting { record, .. } = inside.waiting.swap_remove(index);
                book.records.at(record).set_stage(Stage::Parked);
                inside.give(book, record);
            } else {
                left.extend_from_slice(&waiting.marks);
                index += 1;
            }
        }
        // The next request looks at others first.
        inside.waiting.rotate_left(index);
        left
    }

    /// Lets a block have other bytes where it lies, if it can.
    pub(crate) fn resize(&self, book: &Book, record: &Record, bytes: u64) -> bool {
        let mut inside = self.inside();
        let position = inside.home.edge();
        if record.place() & SLAB != 0 {
            let fits = bytes <= record.capacity_bytes();
            if fits {
                record.resize(bytes, record.capacity_bytes());
            }
            return fits;
        }
        // What follows is free in the order of the lot's stream only.
        if record.stream() != inside.home.id.0 && bytes > record.capacity_bytes() {
            return false;
        }
        if record.stream() != inside.home.id.0 || !inside.heap.resize(record.place(), bytes, position) {
            let fits = bytes <= record.capacity_bytes();
            if fits {
                record.resize(bytes, record.capacity_bytes());
            }
            return fits;
        }
        record.resize(bytes, bytes.next_multiple_of(super::heap::GRANULE_BYTES));
        book.table.set_record(record.base(), record.number());
        true
    }

    /// Makes places again of all slabs whose blocks nobody has.
    pub(crate) fn raze_empty(&self, book: &Book) {
        let inside = &mut *self.inside();
        for class in Class::all() {
            let empty = |number: &u32| book.slabs.at(*number).is_empty();
            let slabs: Vec<u32> = inside.partial[class.index()].iter().copied().filter(empty).collect();
            slabs.into_iter().for_each(|slab| inside.raze(book, slab));
        }
    }

    // Ground.

    pub(crate) fn add_region(&self, base: u64, bytes: u64) {
        self.inside().heap.add_region(base, bytes);
    }

    /// Where memory has to be mapped for a request, and the free range beside it, which nobody else takes meanwhile.
    pub(crate) fn need(&self, bytes: u64) -> Option<(Need, Option<u32>)> {
        let inside = &mut *self.inside();
        let need = inside.heap.need(bytes)?;
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

    /// How much could be emptied.
    pub(crate) fn emptiable_bytes(&self, has_passed: impl Fn(Mark) -> bool) -> u64 {
        let inside = self.inside();
        let stream = inside.home.id;
        inside.heap.free_chunks(|position| has_passed(Mark { stream, position })).iter().map(|chunk| chunk.bytes).sum()
    }

    /// The last position up to which somebody may use what is free here.
    pub(crate) fn edge(&self) -> Mark {
        let inside = self.inside();
        Mark { stream: inside.home.id, position: inside.home.edge() }
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.inside().heap.mapped_bytes()
    }

    /// What is free in the heap, and the longest range of it.
    pub(crate) fn free_bytes(&self) -> (u64, u64) {
        let inside = self.inside();
        (inside.heap.free_bytes(), inside.heap.longest_bytes())
    }

    pub(crate) fn waiting_blocks(&self) -> usize {
        self.inside().waiting.len()
    }

    /// The base of the block that an address lies in, if one does.
    pub(crate) fn taken_at(&self, address: u64) -> Option<u64> {
        let inside = self.inside();
        if inside.heap.has(address) { inside.heap.taken_at(address) } else { None }
    }

    /// The block that went last from an address.
    pub(crate) fn gone_at(&self, address: u64) -> Option<(u64, u64)> {
        let inside = self.inside();
        let (newer, older) = inside.gone.split_at(inside.next_gone);
        newer.iter().rev().chain(older.iter().rev()).find(|(base, _)| *base == address).copied()
    }

    /// Ends everything here, whoever has it: the context is gone. The chunks, to be unmapped.
    pub(crate) fn clear(&self, book: &Book) -> Vec<Chunk> {
        let inside = &mut *self.inside();
        inside.waiting.clear();
        for class in Class::all() {
            inside.partial[class.index()].clear();
            inside.bare[class.index()].clear();
        }
        for record in book.records.iter().filter(|record| record.lot() == self.number) {
            if record.state().stage() != Stage::Vacant {
                book.table.clear(record.base(), 1);
                record.end();
            }
        }
        inside.is_orphan = true;
        inside.heap.clear()
    }

    // Racks.

    pub(crate) fn add_rack(&self, rack: &Arc<Rack>) {
        let mut racks = self.racks();
        racks.retain(|rack| rack.strong_count() > 0);
        racks.push(Arc::downgrade(rack));
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

impl Inside {
    /// Makes a block of a place.
    fn begin(&mut self, book: &Book, lot: u32, taken: Taken, stream: u32) -> u32 {
        if self.vacant.is_empty() {
            let first = book.records.add(RECORDS);
            self.vacant.extend((first..first + RECORDS).rev());
        }
        let number = self.vacant.pop().expect("records were just made");
        book.records.at(number).begin(taken.base, taken.bytes, stream, lot, taken.place);
        book.table.set_record(taken.base, number);
        number
    }

    /// Takes back a block that `from` gave up in its order, behind marks of other streams.
    fn give_from(&mut self, book: &Book, record: u32, from: &Track, marks: &[Mark]) {
        if from.id == self.home.id && marks.is_empty() {
            return self.give(book, record);
        }
        let mut marks = marks.to_vec();
        if from.id != self.home.id {
            marks.push(Mark { stream: from.id, position: from.edge() });
        }
        book.records.at(record).set_stage(Stage::Waiting);
        self.waiting.push(Waiting { record, marks });
    }

    /// Takes back a block that is free in the order of the lot's stream.
    fn give(&mut self, book: &Book, number: u32) {
        let record = book.records.at(number);
        let place = record.place();
        if place & SLAB == 0 {
            self.note_gone(record.base(), record.bytes());
            book.table.clear(record.base(), 1);
            record.end();
            self.vacant.push(number);
            let position = self.home.edge();
            return self.heap.give(place, position);
        }
        let slab = book.slabs.at(place & !SLAB);
        let was_full = slab.is_full();
        slab.give(number);
        if was_full {
            self.list(book, slab.number());
        }
        // One is kept for requests to come.
        if slab.is_empty() && self.partial[slab.class().index()].len() > 1 {
            self.raze(book, slab.number());
        }
    }

    /// Remembers a block that is no more, for who releases it again.
    fn note_gone(&mut self, base: u64, bytes: u64) {
        if self.gone.len() < GONE_MAX {
            self.gone.push((base, bytes));
        } else {
            self.gone[self.next_gone] = (base, bytes);
            self.next_gone = (self.next_gone + 1) % GONE_MAX;
        }
    }

    /// Notes that a slab has free blocks.
    fn list(&mut self, book: &Book, number: u32) {
        let slab = book.slabs.at(number);
        let partial = &mut self.partial[slab.class().index()];
        slab.set_spot(partial.len());
        partial.push(number);
    }

    /// Makes a place of a slab again, all of whose blocks are free.
    fn raze(&mut self, book: &Book, number: u32) {
        let slab = book.slabs.at(number);
        let class = slab.class();
        let partial = &mut self.partial[class.index()];
        let spot = slab.spot();
        partial.swap_remove(spot);
        if let Some(&moved) = partial.get(spot) {
            book.slabs.at(moved).set_spot(spot);
        }
        book.table.clear(slab.base(), class.slab_bytes());
        for record in slab.records() {
            book.records.at(record).end();
        }
        self.bare[class.index()].push(number);
        let position = self.home.edge();
        self.heap.give(slab.place(), position);
    }
}
