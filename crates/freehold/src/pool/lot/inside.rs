//! What a lot's lock guards: the heap, the slabs on it, what waits for marks, and what is remembered of blocks that are no
//! more. Everything free here is free in the order of the lot's stream.

use std::sync::Arc;

use super::super::book::Book;
use super::super::class::CLASSES;
use super::super::heap::{Heap, Taken};
use super::super::outside::{Mark, Track};
use super::super::record::{Gone, Record, Site, Stage};

/// How many records are made at once for a lot.
const RECORDS: u32 = 64;

/// How many blocks that are no more a lot remembers.
const GONE_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Inside {
    pub(super) home: Arc<Track>,
    /// Whether the stream is gone, so that another may have the lot.
    pub(super) is_orphan: bool,
    /// Whether its context is gone, too, so that a stream of any context may.
    pub(super) is_anybodys: bool,
    pub(super) heap: Heap,
    /// Slabs with free blocks.
    pub(super) partial: [Vec<u32>; CLASSES],
    /// Slabs without a place, to be used again.
    pub(super) bare: [Vec<u32>; CLASSES],
    /// How many blocks the slabs of each class have that have a place.
    pub(super) slab_blocks: [u32; CLASSES],
    pub(super) vacant: Vec<u32>,
    pub(super) waiting: Vec<Waiting>,
    /// When a block was asked for last, by the book's clock.
    pub(super) asked: u64,
    /// Whether what waits was looked at since blocks were taken last.
    pub(super) is_settled: bool,
    /// The blocks of the heap that went last, and where the next one is noted.
    pub(super) gone: Vec<Gone>,
    pub(super) next_gone: usize,
}

/// A block that was given up with marks.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) record: u32,
    pub(super) marks: Vec<Mark>,
}

impl Inside {
    /// Whether a block can be made: a record is left for one.
    pub(super) fn has_record(&self, book: &Book) -> bool {
        !self.vacant.is_empty() || !book.records.is_full()
    }

    /// Makes a block of a place.
    pub(super) fn begin(&mut self, book: &Book, lot: u32, taken: Taken, stream: u32) -> u32 {
        if self.vacant.is_empty() {
            let first = book.records.add(RECORDS);
            self.vacant.extend((first..first + RECORDS).rev());
        }
        let number = self.vacant.pop().expect("records were just made");
        let site = Site::at_place(taken.place);
        book.records.at(number).begin(taken.base, taken.bytes, stream, lot, site, taken.position);
        book.table.set_record(taken.base, number);
        number
    }

    /// Takes back a block that `from` gave up in its order, behind marks of other streams.
    pub(super) fn give_from(&mut self, book: &Book, record: u32, from: &Track, marks: &[Mark]) {
        if from.id == self.home.id && marks.is_empty() {
            return self.give(book, record);
        }
        let mut marks = marks.to_vec();
        if from.id != self.home.id {
            marks.push(Mark { stream: from.id, position: from.edge() });
        }
        let waiting = book.records.at(record);
        waiting.set_waiting_for(marks.len());
        waiting.set_stage(Stage::Waiting);
        self.waiting.push(Waiting { record, marks });
    }

    /// Takes back a block that is free in the order of the lot's stream.
    pub(super) fn give(&mut self, book: &Book, number: u32) {
        let record = book.records.at(number);
        let site = record.site();
        if let Some(place) = site.place() {
            self.note_gone(Gone::of(record));
            book.table.clear(record.base(), 1);
            let position = self.position_of(record);
            record.end();
            self.vacant.push(number);
            return self.heap.give(place, position);
        }
        let slab = book.slabs.at(site.slab().expect("what is no place is a slab's"));
        let was_full = slab.is_full();
        slab.give(number);
        if was_full {
            self.list(book, slab.number());
        }
    }

    /// The position behind which nobody uses a block: its last use where work is counted, and all work by now elsewhere, or
    /// where the block came from another stream.
    pub(super) fn position_of(&self, record: &Record) -> u64 {
        let is_known = record.stream() == self.home.id.0 && !self.home.is_foreign();
        if is_known { record.position() } else { self.home.edge() }
    }

    /// Remembers a block that is no more, for who releases it again.
    pub(super) fn note_gone(&mut self, gone: Gone) {
        if self.gone.len() < GONE_MAX {
            self.gone.push(gone);
        } else {
            self.gone[self.next_gone] = gone;
            self.next_gone = (self.next_gone + 1) % GONE_MAX;
        }
    }

    /// Notes that a slab has free blocks.
    pub(super) fn list(&mut self, book: &Book, number: u32) {
        let slab = book.slabs.at(number);
        let partial = &mut self.partial[slab.class().index()];
        slab.set_spot(partial.len());
        partial.push(number);
    }

    pub(super) fn empty_slabs(&self, book: &Book) -> Vec<u32> {
        self.partial.iter().flatten().copied().filter(|&slab| book.slabs.at(slab).is_empty()).collect()
    }

    /// Makes a place of a slab again, all of whose blocks are free.
    pub(super) fn raze(&mut self, book: &Book, number: u32) {
        let slab = book.slabs.at(number);
        let class = slab.class();
        let partial = &mut self.partial[class.index()];
        let spot = slab.spot();
        partial.swap_remove(spot);
        if let Some(&moved) = partial.get(spot) {
            book.slabs.at(moved).set_spot(spot);
        }
        book.table.clear(slab.base(), slab.bytes());
        self.slab_blocks[class.index()] -= slab.blocks();
        let mut position = 0;
        for record in slab.records() {
            let record = book.records.at(record);
            position = position.max(self.position_of(record));
            record.end();
        }
        self.bare[class.index()].push(number);
        self.heap.give(slab.place(), position);
    }
}
