//! Magazines: blocks that a thread keeps for one stream, so that most requests and releases touch nothing that others use.
//!
//! A rack is its thread's. Another thread that needs what lies there takes it over (`turn`).

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::book::Book;
use super::class::{CLASSES, Class, KEPT_MAX};
use super::counts::Counts;
use super::heap::GRANULE_BYTES;
use super::lot::Lot;
use super::record::Record;
use super::turn::{self, Closed, Turn};
use crate::track::Track;

/// How many blocks that fit no class are kept.
const LARGE: usize = 8;

/// How many streams a thread finds at once.
const SLOTS: usize = 16;

/// In lines of its own: neighbours are other threads'.
#[repr(align(128))]
pub(crate) struct Rack {
    /// The stream whose order the blocks here are in.
    pub(crate) stream: u32,
    pub(crate) counts: Counts,
    /// Whether the lot's counts hold those of this rack, which is closed. Written under the lock of the lot's racks.
    pub(crate) is_counted: AtomicBool,
    pub(crate) book: Arc<Book>,
    pub(crate) lot: Arc<Lot>,
    track: Arc<Track>,
    inside: Turn<Inside>,
}

impl std::fmt::Debug for Rack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rack").field("stream", &self.stream).finish_non_exhaustive()
    }
}

struct Inside {
    small: [Magazine; CLASSES],
    /// The last blocks that were given up, by their lengths in granules.
    large_granules: [u32; LARGE],
    large: [u32; LARGE],
    /// Where the next one goes.
    next_large: usize,
}

#[derive(Clone, Copy)]
struct Magazine {
    count: u32,
    records: [u32; KEPT_MAX],
}

/// The right to be inside, of the rack's thread.
pub(crate) struct Entered<'a> {
    rack: &'a Rack,
    turn: turn::Entered<'a, Inside>,
}

impl Rack {
    pub(crate) fn new(book: Arc<Book>, lot: Arc<Lot>, track: Arc<Track>) -> Self {
        Self {
            stream: track.id.0,
            counts: Counts::default(),
            is_counted: AtomicBool::new(false),
            book,
            lot,
            track,
            inside: Turn::new(Inside {
                small: [Magazine { count: 0, records: [0; KEPT_MAX] }; CLASSES],
                large_granules: [0; LARGE],
                large: [0; LARGE],
                next_large: 0,
            }),
        }
    }

    /// Goes inside. For the rack's thread alone, which is not inside already. Who finds the rack closed looks for another.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_>, Closed> {
        Ok(Entered { rack: self, turn: self.inside.enter()? })
    }

    /// Gives all blocks here to the lots that they lie on, from any thread but inside the rack. With `close` the rack is used
    /// no more.
    pub(crate) fn empty(&self, close: bool) {
        // At the door: who closes the rack after this finds all of them with their lots.
        let give_up = |inside: &mut Inside| self.give_up_all(&inside.drain());
        if close {
            self.inside.close(give_up);
            self.lot.count_closed(self);
        } else {
            self.inside.take_over(give_up);
        }
    }

    /// Gives a block that nobody has to its lot.
    fn give_up(&self, record: u32) {
        let lot = self.book.records.at(record).lot();
        if lot == self.lot.number {
            self.lot.give(&self.book, record, &self.track, &[]);
        } else {
            self.book.lot(lot).give(&self.book, record, &self.track, &[]);
        }
    }

    /// As [`give_up`](Self::give_up), with one lock for those of the rack's own lot.
    fn give_up_all(&self, records: &[u32]) {
        let is_own = |record: &u32| self.book.records.at(*record).lot() == self.lot.number;
        let own = records.iter().copied().filter(is_own);
        self.lot.give_all(&self.book, own, &self.track);
        records.iter().filter(|record| !is_own(record)).for_each(|&record| self.give_up(record));
    }
}

impl<'a> Entered<'a> {
    #[inline]
    fn inside(&mut self) -> &mut Inside {
        self.turn.inside()
    }

    /// Takes a block of a class, for an owner.
    #[inline]
    pub(crate) fn take_small(&mut self, class: Class, bytes: u64) -> Option<&'a Record> {
        let rack = self.rack;
        let magazine = &mut self.inside().small[class.index()];
        let last = magazine.count.checked_sub(1)?;
        magazine.count = last;
        let record = rack.book.records.at(magazine.records[last as usize % KEPT_MAX]);
        record.own(bytes);
        rack.counts.hand(bytes);
        Some(record)
    }

    /// Takes a block of just the length that a request needs, for an owner.
    #[inline]
    pub(crate) fn take_large(&mut self, bytes: u64) -> Option<&'a Record> {
        let rack = self.rack;
        let inside = self.inside();
        let granules = u32::try_from(bytes.div_ceil(GRANULE_BYTES)).ok()?;
        let index = inside.large_granules.iter().position(|&length| length == granules)?;
        inside.large_granules[index] = 0;
        // The next one goes where room is.
        inside.next_large = index;
        let record = rack.book.records.at(inside.large[index]);
        record.own(bytes);
        rack.counts.hand(bytes);
        Some(record)
    }

    /// Keeps a block that its owner gave up.
    #[inline]
    pub(crate) fn put(&mut self, record: &Record) {
        self.rack.counts.take(record.bytes());
        let capacity_bytes = record.capacity_bytes();
        match Class::of(capacity_bytes) {
            Some(class) => self.put_small(class, record.number()),
            None => self.put_large((capacity_bytes / GRANULE_BYTES) as u32, record.number()),
        }
    }

    #[inline]
    fn put_small(&mut self, class: Class, record: u32) {
        let magazine = &mut self.inside().small[class.index()];
        if magazine.count as usize >= class.kept() {
            self.spill(class);
        }
        let magazine = &mut self.inside().small[class.index()];
        magazine.records[magazine.count as usize % KEPT_MAX] = record;
        magazine.count += 1;
    }

    #[inline]
    fn put_large(&mut self, granules: u32, record: u32) {
        let inside = self.inside();
        let index = inside.next_large;
        inside.next_large = (index + 1) % LARGE;
        let evicted = (inside.large_granules[index] != 0).then_some(inside.large[index]);
        inside.large_granules[index] = granules;
        inside.large[index] = record;
        if let Some(evicted) = evicted {
            self.rack.give_up(evicted);
        }
    }

    /// Gives the older half of a magazine to the lots.
    #[cold]
    fn spill(&mut self, class: Class) {
        let rack = self.rack;
        let magazine = &mut self.inside().small[class.index()];
        let spilled = (magazine.count / 2 + 1).min(magazine.count) as usize;
        let records: [u32; KEPT_MAX] = magazine.records;
        magazine.records.copy_within(spilled.., 0);
        magazine.count -= spilled as u32;
        rack.give_up_all(&records[..spilled]);
    }

    /// Gives all kept blocks that fit no class to the lots, and takes one of the lot's heap, which sees them as one with what
    /// lies beside them: so what is kept never makes a longer range of the heap be cut.
    #[inline(never)]
    pub(crate) fn exchange_large(&mut self, bytes: u64) -> Option<&'a Record> {
        let rack = self.rack;
        let mut kept = [0; LARGE];
        let mut count = 0;
        let inside = self.inside();
        for (granules, &record) in inside.large_granules.iter_mut().zip(&inside.large) {
            if std::mem::take(granules) == 0 {
                continue;
            }
            if rack.book.records.at(record).lot() == rack.lot.number {
                kept[count] = record;
                count += 1;
            } else {
                rack.give_up(record);
            }
        }
        let record = rack.lot.exchange(&rack.book, &kept[..count], &rack.track, bytes)?;
        let record = rack.book.records.at(record);
        record.own(bytes);
        rack.counts.hand(bytes);
        Some(record)
    }

    /// Fetches blocks of a class from the lot's slabs, and takes one.
    #[cold]
    pub(crate) fn refill(&mut self, class: Class, bytes: u64) -> Option<&'a Record> {
        let rack = self.rack;
        let magazine = &mut self.inside().small[class.index()];
        let count = class.kept() / 2 + 1;
        rack.lot.take_small(&rack.book, rack.stream, class, count, |record| {
            magazine.records[magazine.count as usize % KEPT_MAX] = record;
            magazine.count += 1;
        });
        self.take_small(class, bytes)
    }
}

impl Inside {
    fn drain(&mut self) -> Vec<u32> {
        let mut records = Vec::new();
        for magazine in &mut self.small {
            records.extend_from_slice(&magazine.records[..magazine.count as usize]);
            magazine.count = 0;
        }
        for (granules, record) in self.large_granules.iter_mut().zip(self.large) {
            if std::mem::take(granules) != 0 {
                records.push(record);
            }
        }
        records
    }
}

/// What a thread finds its racks by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// A number or a handle, all bits of it: a driver may tell its handles apart by any of them.
    stream: u64,
    /// Whose numbers or handles those are.
    space: u32,
}

impl Key {
    /// A stream of the library's own: its number never comes again.
    #[inline]
    pub(crate) fn own(pool: u32, stream: u32) -> Self {
        Self { stream: u64::from(stream), space: pool << 1 }
    }

    /// A stream that other people's code names by its handle. The handle may come again: then the rack is closed first.
    #[inline]
    pub(crate) fn foreign(device: i32, handle: u64) -> Self {
        Self { stream: handle, space: (device as u32) << 1 | 1 }
    }

    #[inline]
    fn slot(self) -> usize {
        let word = self.stream ^ u64::from(self.space) << 32;
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SLOTS
    }
}

thread_local! {
    /// The racks of this thread.
    static DESK: Desk = const { Desk { slots: [const { Slot::empty() }; SLOTS], racks: RefCell::new(Vec::new()) } };
}

/// A rack that was found by its key. Null where there is none.
struct Slot {
    key: Cell<Key>,
    rack: Cell<*const Rack>,
}

impl Slot {
    const fn empty() -> Self {
        Self { key: Cell::new(Key { stream: 0, space: 0 }), rack: Cell::new(ptr::null()) }
    }

    fn set(&self, key: Key, rack: *const Rack) {
        self.key.set(key);
        self.rack.set(rack);
    }
}

struct Desk {
    slots: [Slot; SLOTS],
    racks: RefCell<Vec<(Key, Arc<Rack>)>>,
}

/// Calls `act` inside this thread's rack for a key. Nothing where there is none, or where the thread is ending.
#[inline(always)]
pub(crate) fn within<R>(key: Key, act: impl FnOnce(&Rack, &mut Entered<'_>) -> R) -> Option<R> {
    DESK.try_with(|desk| {
        let slot = &desk.slots[key.slot()];
        // SAFETY: a rack in a slot is in the list of the same thread, which keeps it, until it is taken from both.
        if let Some(rack) = unsafe { slot.rack.get().as_ref() }
            && slot.key.get() == key
            && let Ok(mut entered) = rack.enter()
        {
            return Some(act(rack, &mut entered));
        }
        desk.within_listed(key, act)
    })
    .ok()?
}

/// Gives this thread a rack for a key. Whether it took it: a thread that is ending takes none.
pub(crate) fn add(key: Key, rack: Arc<Rack>) -> bool {
    let added = DESK.try_with(|desk| {
        rack.lot.add_rack(&rack);
        desk.racks.borrow_mut().push((key, rack));
    });
    added.is_ok()
}

impl Desk {
    #[cold]
    fn within_listed<R>(&self, key: Key, act: impl FnOnce(&Rack, &mut Entered<'_>) -> R) -> Option<R> {
        self.forget_closed();
        let rack = self.racks.borrow().iter().find(|(found, _)| *found == key).map(|(_, rack)| rack.clone())?;
        self.slots[key.slot()].set(key, Arc::as_ptr(&rack));
        let mut entered = rack.enter().ok()?;
        Some(act(&rack, &mut entered))
    }

    fn forget_closed(&self) {
        let is_closed = |rack: &Rack| rack.inside.is_closed();
        let closed: Vec<_> = self.racks.borrow_mut().extract_if(.., |(_, rack)| is_closed(rack)).collect();
        for (key, _) in closed {
            self.slots[key.slot()].set(key, ptr::null());
        }
    }
}

impl Drop for Desk {
    /// What an ending thread kept goes to the lots, but for those of a parent.
    fn drop(&mut self) {
        let process = std::process::id();
        for slot in &self.slots {
            slot.rack.set(ptr::null());
        }
        for (_, rack) in self.racks.borrow_mut().drain(..) {
            if rack.book.process == process {
                rack.empty(true);
            }
        }
    }
}
