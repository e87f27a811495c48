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
use super::here;
use super::lot::Lot;
use super::record::{Record, State};
use super::turn::{self, Turn};
use crate::track::Track;

/// How many blocks that fit no class are kept.
const LARGE: usize = 8;

/// How many counts of a home are kept. Taking one back from another thread costs as much as counting once.
const HOMES_MAX: u32 = 1024;

/// How many streams a thread finds at once.
const SLOTS: usize = 16;

/// In lines of its own: neighbours are other threads'.
#[repr(C, align(128))]
pub(crate) struct Rack {
    /// The stream whose order the blocks here are in.
    pub(crate) stream: u32,
    /// Written by the rack's thread alone.
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

#[repr(C)]
struct Inside {
    /// How many counts of the stream's home were kept, of blocks that were taken back.
    homes: u32,
    /// How many blocks of each class there are, and their records.
    counts: [u8; CLASSES],
    small: [[u32; KEPT_MAX]; CLASSES],
    /// The last blocks that were given up, by their lengths in granules.
    large_granules: [u32; LARGE],
    large: [u32; LARGE],
    /// Where the next one goes.
    next_large: usize,
}

/// The right to be inside, of the rack's thread.
pub(crate) struct Entered<'a> {
    pub(crate) rack: &'a Rack,
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
                homes: 0,
                counts: [0; CLASSES],
                small: [[0; KEPT_MAX]; CLASSES],
                large_granules: [0; LARGE],
                large: [0; LARGE],
                next_large: 0,
            }),
        }
    }

    /// Goes inside, unless somebody else wants in, the device has failed, or this is a fork, whose locks may be held for ever.
    /// For the rack's thread alone, which is not inside already.
    #[inline]
    fn enter_at_once(&self) -> Option<Entered<'_>> {
        if !self.book.family.is_well() {
            return None;
        }
        Some(Entered { rack: self, turn: self.inside.enter_at_once()? })
    }

    /// As [`enter_at_once`](Self::enter_at_once), behind who is there. Who finds the rack closed looks for another.
    fn enter(&self) -> Option<Entered<'_>> {
        if !self.book.family.is_well() {
            return None;
        }
        Some(Entered { rack: self, turn: self.inside.enter().ok()? })
    }

    /// Gives all blocks here to the lots that they lie on, from any thread but inside the rack. With `close` the rack is used
    /// no more.
    pub(crate) fn empty(&self, close: bool) {
        // At the door: who closes the rack after this finds all of them with their lots.
        let give_up = |inside: &mut Inside| self.give_up_all(&inside.drain());
        if close {
            self.inside.close(|inside| {
                self.lot.keep_homes(std::mem::take(&mut inside.homes));
                give_up(inside);
            });
            self.lot.count_closed(self);
        } else {
            self.inside.take_over(give_up);
        }
    }

    /// Takes all counts of the stream's home that were kept here, from any thread but inside the rack.
    pub(crate) fn take_homes(&self) -> u32 {
        self.inside.take_over(|inside| std::mem::take(&mut inside.homes))
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

    /// Takes a block that fits, for an owner, whom `own` gives it to.
    #[inline(always)]
    pub(crate) fn take(&mut self, bytes: u64, own: impl FnOnce(&Record)) -> Option<&'a Record> {
        let record = match Class::of(bytes) {
            Some(class) => self.pick_small(class),
            None => self.pick_large(bytes),
        }?;
        own(record);
        self.rack.counts.hand(bytes);
        Some(record)
    }

    /// Takes a count of the stream's home that was kept. Whether there was one.
    #[inline]
    pub(crate) fn take_home(&mut self) -> bool {
        let inside = self.inside();
        let had = inside.homes;
        inside.homes = had.saturating_sub(1);
        had > 0
    }

    /// Keeps a count of the stream's home. Whether there was room.
    #[inline]
    pub(crate) fn keep_home(&mut self) -> bool {
        let inside = self.inside();
        let has_room = inside.homes < HOMES_MAX;
        inside.homes += u32::from(has_room);
        has_room
    }

    /// A block of a class.
    #[inline]
    fn pick_small(&mut self, class: Class) -> Option<&'a Record> {
        let rack = self.rack;
        let inside = self.inside();
        let last = inside.counts[class.index()].checked_sub(1)?;
        inside.counts[class.index()] = last;
        Some(rack.book.records.at(inside.small[class.index()][usize::from(last) % KEPT_MAX]))
    }

    /// A block of just the length that a request needs.
    #[inline]
    fn pick_large(&mut self, bytes: u64) -> Option<&'a Record> {
        let rack = self.rack;
        let inside = self.inside();
        let granules = u32::try_from(bytes.div_ceil(GRANULE_BYTES)).ok()?;
        let index = inside.large_granules.iter().position(|&length| length == granules)?;
        inside.large_granules[index] = 0;
        // The next one goes where room is.
        inside.next_large = index;
        Some(rack.book.records.at(inside.large[index]))
    }

    /// Takes a block from its owner and keeps it, if its state is still `state` and there is room. Whether it did: otherwise
    /// nothing has changed.
    #[inline]
    pub(crate) fn put_at_once(&mut self, record: &Record, state: State) -> bool {
        let rack = self.rack;
        let inside = self.inside();
        match record.site().class().map(Class::at) {
            Some(class) => {
                if !inside.has_room(class) || !record.disown_from(state) {
                    return false;
                }
                inside.add(class, record.number());
            }
            None => {
                if !inside.has_large_room() || !record.disown_from(state) {
                    return false;
                }
                inside.add_large(record);
            }
        }
        rack.counts.take(record.bytes());
        true
    }

    /// Keeps a block that its owner gave up, and gives up others where there is no room.
    pub(crate) fn put(&mut self, record: &Record) {
        let rack = self.rack;
        rack.counts.take(record.bytes());
        match record.site().class().map(Class::at) {
            Some(class) => {
                if !self.inside().has_room(class) {
                    self.spill(class);
                }
                self.inside().add(class, record.number());
            }
            None => {
                if let Some(evicted) = self.inside().evict() {
                    rack.give_up(evicted);
                }
                self.inside().add_large(record);
            }
        }
    }

    /// Gives the older half of a magazine to the lots.
    fn spill(&mut self, class: Class) {
        let rack = self.rack;
        let inside = self.inside();
        let (count, records) = (&mut inside.counts[class.index()], &mut inside.small[class.index()]);
        let spilled = (*count / 2 + 1).min(*count);
        *count -= spilled;
        let older = *records;
        records.copy_within(usize::from(spilled).., 0);
        rack.give_up_all(&older[..usize::from(spilled)]);
    }

    /// Gives all kept blocks that fit no class to the lots, and takes one of the lot's heap, which sees them as one with what
    /// lies beside them: so what is kept never makes a longer range of the heap be cut.
    #[inline(never)]
    pub(crate) fn exchange_large(&mut self, bytes: u64) -> Option<&'a Record> {
        let rack = self.rack;
        let mut own = [0; LARGE];
        let mut count = 0;
        let inside = self.inside();
        let bit = |(index, &granules)| u32::from(granules != 0) << index;
        // A bit for each: most often there is one, and only what is there is looked at.
        let mut kept = (0..LARGE).zip(&inside.large_granules).map(bit).fold(0, |all, one| all | one);
        while kept != 0 {
            let record = inside.large[kept.trailing_zeros() as usize % LARGE];
            kept &= kept - 1;
            if rack.book.records.at(record).lot() == rack.lot.number {
                own[count % LARGE] = record;
                count += 1;
            } else {
                rack.give_up(record);
            }
        }
        inside.large_granules = [0; LARGE];
        let record = rack.lot.exchange(&rack.book, &own[..count.min(LARGE)], &rack.track, bytes)?;
        let record = rack.book.records.at(record);
        record.own(bytes);
        rack.counts.hand(bytes);
        Some(record)
    }

    /// Fetches blocks of a class from the lot's slabs, and takes one.
    #[cold]
    pub(crate) fn refill(&mut self, class: Class, bytes: u64) -> Option<&'a Record> {
        let rack = self.rack;
        let inside = self.inside();
        let count = class.kept() / 2 + 1;
        rack.lot.take_small(&rack.book, rack.stream, class, count, |record| inside.add(class, record));
        self.take(bytes, |record| record.own(bytes))
    }
}

impl Inside {
    #[inline]
    fn has_room(&self, class: Class) -> bool {
        usize::from(self.counts[class.index()]) < class.kept()
    }

    /// Whether the next block that fits no class takes no other's place.
    #[inline]
    fn has_large_room(&self) -> bool {
        self.large_granules[self.next_large % LARGE] == 0
    }

    /// Keeps a block that fits no class where there is room.
    #[inline]
    fn add_large(&mut self, record: &Record) {
        let index = self.next_large % LARGE;
        self.next_large = index + 1;
        self.large_granules[index] = (record.capacity_bytes() / GRANULE_BYTES) as u32;
        self.large[index] = record.number();
    }

    /// Makes room for a block that fits no class: the one that was there.
    fn evict(&mut self) -> Option<u32> {
        let index = self.next_large % LARGE;
        (std::mem::take(&mut self.large_granules[index]) != 0).then_some(self.large[index])
    }

    /// Puts a block into a magazine that has room.
    #[inline]
    fn add(&mut self, class: Class, record: u32) {
        let count = &mut self.counts[class.index()];
        self.small[class.index()][usize::from(*count) % KEPT_MAX] = record;
        *count += 1;
    }

    fn drain(&mut self) -> Vec<u32> {
        let mut records = Vec::new();
        for (count, magazine) in self.counts.iter_mut().zip(&self.small) {
            records.extend_from_slice(&magazine[..usize::from(std::mem::take(count))]);
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
    /// Whose numbers or handles those are: a pool, or a device, and above that number which of the two, and who looks.
    space: u64,
}

const OWN: u64 = 1 << 32;
const ASKED: u64 = 1 << 33;

impl Key {
    /// A stream of the library's own: its number never comes again.
    #[inline]
    pub(crate) fn own(pool: u32, stream: u32) -> Self {
        Self { stream: u64::from(stream), space: OWN | u64::from(pool) }
    }

    /// A stream that other people's code names by its handle. The handle may come again: then the rack is closed first.
    #[inline]
    pub(crate) fn foreign(device: i32, handle: u64) -> Self {
        Self { stream: handle, space: u64::from(device as u32) }
    }

    /// As [`foreign`](Self::foreign), for who has asked whether the stream is capturing. The warm path, which does not ask, finds no rack
    /// by this.
    pub(crate) fn asked(device: i32, handle: u64) -> Self {
        Self { stream: handle, space: ASKED | u64::from(device as u32) }
    }

    /// That of no stream.
    const fn nobodys() -> Self {
        Self { stream: 0, space: u64::MAX }
    }

    #[inline]
    fn slot(self) -> usize {
        let word = self.stream ^ self.space << 32;
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % SLOTS
    }
}

thread_local! {
    /// The racks that this thread finds at once, through `here`. Apart from its list of them, which goes when the thread ends.
    static FOUND: [Slot; SLOTS] = const { [const { Slot::empty() }; SLOTS] };

    /// The racks of this thread.
    static DESK: Desk = const { Desk { racks: RefCell::new(Vec::new()) } };

    /// The racks of this thread's own default streams. Made when one was named, so that it is dropped before what the driver keeps
    /// for the thread.
    static DEFAULTS: Defaults = const { Defaults { racks: RefCell::new(Vec::new()) } };

    /// Whether those have been dropped. Asking for this makes nothing.
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// A rack that was found by its key. A rack, or null and nobody's key.
#[repr(align(32))]
struct Slot {
    key: Cell<Key>,
    rack: Cell<*const Rack>,
}

impl Slot {
    const fn empty() -> Self {
        Self { key: Cell::new(Key::nobodys()), rack: Cell::new(ptr::null()) }
    }

    fn set(&self, key: Key, rack: &Rack) {
        self.key.set(key);
        self.rack.set(rack);
    }

    fn clear(&self) {
        self.key.set(Key::nobodys());
        self.rack.set(ptr::null());
    }
}

struct Desk {
    racks: RefCell<Vec<(Key, Arc<Rack>)>>,
}

struct Defaults {
    racks: RefCell<Vec<Arc<Rack>>>,
}

/// Calls `act` inside this thread's rack for a key, if it is found at once and nobody else wants in.
#[inline(always)]
pub(crate) fn at_once<R>(key: Key, act: impl FnOnce(&mut Entered<'_>) -> Option<R>) -> Option<R> {
    found(key, |rack| act(&mut rack?.enter_at_once()?))
}

/// Calls `act` inside this thread's rack for a key. Nothing where there is none, or where the thread is ending.
#[inline]
pub(crate) fn within<R>(key: Key, act: impl FnOnce(&mut Entered<'_>) -> R) -> Option<R> {
    found(key, |rack| match rack.and_then(Rack::enter) {
        Some(mut entered) => Some(act(&mut entered)),
        None => within_listed(key, act),
    })
}

/// Calls `act` with the rack that this thread finds at once.
#[inline(always)]
fn found<R>(key: Key, act: impl FnOnce(Option<&Rack>) -> R) -> R {
    // SAFETY: null, or the slots of this thread, which need no drop and so last until it has ended; nobody else touches them.
    let slots = unsafe { here::get().cast::<[Slot; SLOTS]>().as_ref() };
    let slot = slots.map(|slots| &slots[key.slot()]).filter(|slot| slot.key.get() == key);
    // SAFETY: a slot with somebody's key has a rack that is in the list of the same thread, which keeps it, until it is
    // taken from both.
    let rack = slot.map(|slot| unsafe { &*slot.rack.get() });
    // Called at one place, so that it becomes a part of who called.
    act(rack)
}

/// Whether this thread has a rack for a key.
pub(crate) fn is_there(key: Key) -> bool {
    listed(key).is_some()
}

/// Whether this thread is ending, and has marked its default streams for the last time.
pub(crate) fn is_thread_ending() -> bool {
    HAS_ENDED.get()
}

/// Gives this thread a rack for a key. Whether it took it: a thread that is ending takes none.
pub(crate) fn add(key: Key, rack: Arc<Rack>) -> bool {
    if rack.track.is_of_thread() && !Defaults::add(&rack) {
        return false;
    }
    let added = DESK.try_with(|desk| {
        rack.lot.add_rack(&rack);
        desk.racks.borrow_mut().push((key, rack));
    });
    added.is_ok()
}

#[cold]
fn within_listed<R>(key: Key, act: impl FnOnce(&mut Entered<'_>) -> R) -> Option<R> {
    let rack = listed(key)?;
    FOUND.with(|slots| {
        slots[key.slot()].set(key, &rack);
        here::set(ptr::from_ref(slots).cast());
    });
    let mut entered = rack.enter()?;
    Some(act(&mut entered))
}

/// This thread's rack for a key, unless it is closed or the thread is ending.
fn listed(key: Key) -> Option<Arc<Rack>> {
    let racks = DESK.try_with(|desk| {
        desk.forget_closed();
        desk.racks.borrow().iter().find(|(found, _)| *found == key).map(|(_, rack)| rack.clone())
    });
    racks.ok()?
}

impl Desk {
    fn forget_closed(&self) {
        // In a fork the locks that tell may be held for ever.
        let is_closed = |rack: &Rack| !rack.book.family.is_child() && rack.inside.is_closed();
        let closed: Vec<_> = self.racks.borrow_mut().extract_if(.., |(_, rack)| is_closed(rack)).collect();
        for (key, _) in closed {
            FOUND.with(|found| found[key.slot()].clear());
        }
    }
}

impl Drop for Desk {
    /// What an ending thread kept goes to the lots, but for those of a parent.
    fn drop(&mut self) {
        let process = std::process::id();
        FOUND.with(|found| found.iter().for_each(Slot::clear));
        for (_, rack) in self.racks.borrow_mut().drain(..) {
            if rack.book.process == process {
                rack.empty(true);
            }
        }
    }
}

impl Defaults {
    /// Whether the thread is not ending.
    fn add(rack: &Arc<Rack>) -> bool {
        let added = DEFAULTS.try_with(|defaults| {
            let mut racks = defaults.racks.borrow_mut();
            racks.retain(|rack| !rack.track.is_retired());
            racks.push(rack.clone());
        });
        added.is_ok()
    }
}

impl Drop for Defaults {
    /// Marks the default streams of an ending thread for the last time, so that others have their memory when they have passed.
    fn drop(&mut self) {
        HAS_ENDED.set(true);
        for rack in self.racks.get_mut().drain(..) {
            // Neither in a fork nor on a device that has failed is a driver called.
            if !rack.book.family.is_well() {
                continue;
            }
            // Before the mark: nothing is handed out in the stream's order behind it.
            rack.empty(true);
            if let Err(error) = rack.track.end_with_thread() {
                tracing::warn!(target: "freehold", %error, "the default stream of a thread was not marked at its end");
            }
        }
    }
}
