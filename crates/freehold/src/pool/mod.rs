//! The pool: memory that is used again. Which block serves a request, and when a block that was given up serves another.
//!
//! A thread keeps magazines of blocks for each stream (`rack`). Behind them each stream has a lot: addresses, the memory that is
//! mapped there, and what of it is free in the order of the stream (`lot`, `heap`, `slab`). A block's record is found
//! from its address without a lock (`book`, `table`, `record`). Memory comes from the driver in chunks (`supply`).

#[forbid(unsafe_code)]
mod bins;
#[forbid(unsafe_code)]
mod book;
#[forbid(unsafe_code)]
mod class;
#[forbid(unsafe_code)]
mod counts;
#[forbid(unsafe_code)]
mod ground;
#[forbid(unsafe_code)]
mod heap;
mod here;
#[forbid(unsafe_code)]
mod lend;
#[forbid(unsafe_code)]
mod lot;
mod outside;
mod rack;
pub(crate) mod record;
mod shelf;
mod slab;
mod supply;
mod sync;
#[forbid(unsafe_code)]
mod table;
mod turn;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::{Backend, CallError};

use self::book::Book;
use self::class::Class;
use self::counts::Counts;
use self::ground::Origin;
use self::heap::Heap;
use self::lot::Lot;
use self::rack::Rack;
use self::record::{Gone, Record, Seen, Stage};
use self::supply::Supply;
use crate::core::Core;
use crate::error::Error;
use crate::fork::Family;
use crate::ledger::{ContextId, Mark};
use crate::track::Track;

pub(crate) use self::heap::{Chunk, Need, PAGE_BYTES};
pub(crate) use self::rack::Key;
pub(crate) use self::shelf::THINGS_MAX as BLOCKS_MAX;
pub(crate) use self::supply::{Grown, Reach};

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) book: Arc<Book>,
    pub(crate) supply: Supply,
    /// The lot of each stream.
    lots: Mutex<HashMap<u32, Arc<Lot>>>,
    /// What is kept when the device is synchronised.
    threshold_bytes: AtomicU64,
    /// Which other lots a stream that needs a block looks at first.
    turn: AtomicUsize,
}

/// Why there is no block.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// So much cannot be had, or not now.
    Short,
    /// There are as many blocks as the pool can tell apart.
    TooMany,
    Call(CallError),
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Pool {
    /// The pool of a device.
    ///
    /// # Errors
    /// [`Error::System`] where the process may not have as many addresses as a pool notes its blocks at.
    pub(crate) fn new(backend: Arc<dyn Backend>, family: Family) -> Result<Self, Error> {
        Self::of(Supply::new(backend)?, family)
    }

    /// A pool beside this one whose blocks other processes can have.
    pub(crate) fn for_others(&self) -> Result<Self, Error> {
        Self::of(self.supply.for_others()?, self.book.family.clone())
    }

    fn of(supply: Supply, family: Family) -> Result<Self, Error> {
        let book = match Book::new(supply.base, supply.bytes, family) {
            Ok(book) => book,
            Err(error) => {
                supply.close()?;
                return Err(Error::System { kind: error.kind() });
            }
        };
        let book = Arc::new(book);
        let known = book.clone();
        supply.describe(Box::new(move |address| known.bounds_at(address)));
        Ok(Self {
            book,
            supply,
            lots: Mutex::default(),
            threshold_bytes: AtomicU64::new(u64::MAX),
            turn: AtomicUsize::new(0),
        })
    }

    /// A number for a record of this pool that is no other's of the device.
    pub(crate) fn number_of(&self, record: u32) -> u32 {
        match self.supply.reach {
            Reach::Process => record,
            // A pool has fewer than 2^24 records.
            Reach::Others => record | 1 << 24,
        }
    }

    /// The chunk that the block of a record lies in, which is live.
    pub(crate) fn chunk_of(&self, record: &Record) -> Chunk {
        let chunk = self.book.lot(record.lot()).chunk_at(record.base());
        chunk.expect("a block lies in a chunk")
    }

    pub(crate) fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_threshold_bytes(&self, bytes: u64) {
        self.threshold_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The longest range that is free anywhere.
    pub(crate) fn longest_bytes(&self) -> u64 {
        self.book.lots().iter().map(|lot| lot.free_bytes().1).max().unwrap_or(0)
    }

    /// What can be mapped anew of what is free.
    pub(crate) fn movable_bytes(&self, core: &Core) -> u64 {
        // Where memory is not mapped, what is free stays where it is.
        if !self.supply.maps() {
            return 0;
        }
        let lots = self.book.lots();
        let free_bytes: u64 = lots.iter().map(|lot| lot.emptiable_bytes(|mark| core.has_passed(mark))).sum();
        free_bytes + self.supply.kept_bytes()
    }

    /// What this thread finds the magazines of one of the library's streams by.
    #[inline]
    pub(crate) fn key(&self, track: &Track) -> Key {
        Key::own(self.book.number, track.id.0)
    }

    /// A block that this thread keeps, for an owner: the warm path. It calls nothing.
    #[inline(always)]
    pub(crate) fn take_at_once(key: Key, bytes: u64) -> Option<Taken> {
        rack::at_once(key, |entered| entered.take(bytes, |record| record.own(bytes)).map(Taken::of))
    }

    /// As [`take_at_once`](Self::take_at_once), for an owner without a name who says where it allocates.
    #[inline(always)]
    pub(crate) fn hold_at_once(key: Key, bytes: u64, at: &'static Location<'static>) -> Option<Held> {
        rack::at_once(key, |entered| {
            let held = entered.take(bytes, |record| record.hold(bytes, at)).map(Held::of)?;
            Some(Held { has_home: entered.take_home(), ..held })
        })
    }

    /// Takes back a block of [`hold_at_once`](Self::hold_at_once), in the order of the stream that this thread's rack is for,
    /// and behind a position there, if there is room: the warm path. Nothing if it could not: then nothing has changed. Else
    /// whether a count of the stream's home was kept with it, which `lends` allows.
    #[inline(always)]
    pub(crate) fn unhold_at_once(
        key: Key,
        (record, generation): (u32, u64),
        position: u64,
        lends: impl FnOnce() -> bool,
    ) -> Option<bool> {
        rack::at_once(key, |entered| {
            let rack = entered.rack;
            let record = rack.book.records.at(record);
            let state = record.held_plainly(generation)?;
            if record.stream() != rack.stream || !entered.put_at_once(record, state) {
                return None;
            }
            // Nobody has the block before this thread is outside of the rack.
            record.set_position(position);
            Some(lends() && entered.keep_home())
        })
    }

    /// A block that this thread keeps, or else one of the stream's lot, for an owner. Calls no driver.
    pub(crate) fn take_kept(key: Key, bytes: u64) -> Option<Taken> {
        Self::take_at_once(key, bytes).or_else(|| Self::take_fetched(key, bytes))
    }

    /// A block of the stream's lot, for an owner. Calls no driver.
    pub(crate) fn take_fetched(key: Key, bytes: u64) -> Option<Taken> {
        rack::within(key, |entered| {
            let record = match Class::of(bytes) {
                // There may be some: the magazine was not looked at where another thread wanted in.
                Some(class) => entered.take(bytes, |record| record.own(bytes)).or_else(|| entered.refill(class, bytes)),
                None => entered.exchange_large(bytes),
            };
            record.map(Taken::of)
        })?
    }

    /// A block for work in a stream, from wherever one can be had.
    #[cold]
    pub(crate) fn take(&self, core: &Core, key: Key, track: &Arc<Track>, bytes: u64) -> Result<Taken, Refusal> {
        if bytes > self.supply.most_bytes() {
            return Err(Refusal::Short);
        }
        core.refresh_tracks()?;
        let lot = self.lot_of(track);
        self.equip(key, track);
        let Some(class) = Class::of(bytes) else {
            if !lot.has_record(&self.book) {
                return Err(Refusal::TooMany);
            }
            let record = self.ground(core, &lot, track, bytes, Origin::Any)?;
            // The lot may have gone with the stream meanwhile: then the block is in another's order.
            if self.book.records.at(record).stream() != track.id.0 {
                self.put_unowned(record, track);
                return Err(Refusal::Short);
            }
            return Ok(self.hand(key, &lot, record, bytes));
        };
        let unmarked = lot.settle(&self.book, |mark| core.has_passed(mark));
        core.mark_each(&unmarked)?;
        let mut has_borrowed = false;
        loop {
            if let Some(taken) = Self::take_kept(key, bytes) {
                return Ok(taken);
            }
            // The magazines, or the lot, may have gone with the stream meanwhile.
            if track.is_retired() {
                return Err(Refusal::Short);
            }
            let mut found = None;
            if lot.take_small(&self.book, track.id.0, class, 1, |record| found = Some(record)) == 1 {
                return Ok(self.hand(key, &lot, found.expect("a block was found"), bytes));
            }
            let slab_bytes = lot.next_slab_bytes(class);
            if let Some(block) = lot.take_large(&self.book, slab_bytes) {
                self.settle(&lot, track, class, block)?;
                continue;
            }
            if !has_borrowed && let Some(record) = self.borrow_small(core, &lot, track, class)? {
                return Ok(self.hand(key, &lot, record, bytes));
            }
            has_borrowed = true;
            let block = self.ground(core, &lot, track, slab_bytes, Origin::Own)?;
            self.settle(&lot, track, class, block)?;
        }
    }

    /// Makes a slab of ground for one.
    fn settle(&self, lot: &Lot, track: &Track, class: Class, block: u32) -> Result<(), Refusal> {
        if lot.add_slab(&self.book, class, block) {
            return Ok(());
        }
        lot.give(&self.book, block, track, &[]);
        Err(Refusal::TooMany)
    }

    /// Gives this thread magazines for a stream, if it has none. A thread that is ending gets none.
    pub(crate) fn equip(&self, key: Key, track: &Arc<Track>) {
        if !rack::is_there(key) {
            rack::add(key, Arc::new(Rack::new(self.book.clone(), self.lot_of(track), track.clone())));
        }
    }

    /// Whether this thread is ending, and has marked its default streams for the last time.
    pub(crate) fn is_thread_ending() -> bool {
        rack::is_thread_ending()
    }

    /// Gives a block that was taken of a lot to its owner.
    fn hand(&self, key: Key, lot: &Lot, record: u32, bytes: u64) -> Taken {
        let record = self.book.records.at(record);
        record.own(bytes);
        if rack::within(key, |entered| entered.rack.counts.hand(bytes)).is_none() {
            lot.counts.hand_shared(bytes);
        }
        Taken::of(record)
    }

    /// Lets a block be of other bytes where it lies, while one ownership of it lasts. Whether it could.
    pub(crate) fn resize(&self, record: &Record, generation: u64, bytes: u64) -> bool {
        // A record's blocks are all of one lot.
        self.book.lot(record.lot()).resize(record, generation, bytes)
    }

    /// Calls `act` while one ownership of a block lasts, which nobody ends meanwhile. Nothing where it has ended.
    pub(crate) fn while_owned<R>(&self, record: &Record, generation: u64, act: impl FnOnce() -> R) -> Option<R> {
        self.book.lot(record.lot()).while_owned(record, generation, act)
    }

    /// Takes back a block by its address, in the order of the stream that this thread's rack is for, if there is room: the
    /// warm path. It calls nothing. Whether it could: otherwise nothing has changed.
    #[inline(always)]
    pub(crate) fn put_at_once(key: Key, address: u64) -> bool {
        rack::at_once(key, |entered| {
            let rack = entered.rack;
            let record = rack.book.record_at(address)?;
            let state = record.owned_at(address)?;
            (record.stream() == rack.stream && entered.put_at_once(record, state)).then_some(())
        })
        .is_some()
    }

    /// As [`put_at_once`](Self::put_at_once), with room made. Whether this thread has it now: otherwise nothing has changed.
    pub(crate) fn put_kept(key: Key, address: u64) -> bool {
        let put = rack::within(key, |entered| {
            let rack = entered.rack;
            let record = rack.book.record_at(address)?;
            let state = record.owned_at(address)?;
            let is_here = record.stream() == rack.stream && record.disown_from(state);
            is_here.then(|| entered.put(record))
        });
        put.flatten().is_some()
    }

    /// Keeps a block that its owner has given up in this thread, in the order of the block's own stream. Whether it could.
    pub(crate) fn put_own(&self, key: Key, record: &Record) -> bool {
        let put = rack::within(key, |entered| {
            let is_own = record.stream() == entered.rack.stream;
            if is_own {
                entered.put(record);
            }
            is_own
        });
        put == Some(true)
    }

    /// Takes back a block that nobody owns any more, in the order of `from` and behind marks. Without `from` its own stream has
    /// passed all of its work.
    pub(crate) fn put(&self, record: u32, from: Option<&Track>, marks: &[Mark]) {
        let record = self.book.records.at(record);
        let lot = self.book.lot(record.lot());
        lot.counts.take_shared(record.bytes());
        match from {
            Some(from) => lot.give(&self.book, record.number(), from, marks),
            None => lot.give(&self.book, record.number(), &lot.home(), marks),
        }
    }

    /// Takes all counts of a stream's home that threads keep.
    pub(crate) fn take_homes(&self, track: &Track) -> u32 {
        self.lot_if_any(track).map_or(0, |lot| lot.take_homes(track.id.0))
    }

    fn lot_if_any(&self, track: &Track) -> Option<Arc<Lot>> {
        self.lots.lock().unwrap_or_else(PoisonError::into_inner).get(&track.id.0).cloned()
    }

    /// Closes the magazines of all threads for a stream.
    pub(crate) fn close_racks(&self, track: &Track) {
        let lot = self.lot_if_any(track);
        for rack in lot.iter().flat_map(|lot| lot.all_racks()).filter(|rack| rack.stream == track.id.0) {
            rack.empty(true);
        }
    }

    /// What is known of the block that an address lies in, owned or not yet anybody else's.
    pub(crate) fn seen_at(&self, address: u64) -> Option<(u32, Seen)> {
        let record = self.book.record_around(address)?;
        let seen = record.seen();
        let is_there = matches!(seen.state.stage(), Stage::Owned | Stage::Parked | Stage::Waiting);
        (is_there && address.wrapping_sub(seen.base) < seen.bytes).then(|| (record.number(), seen))
    }

    /// What is known of a block that is gone, or parked, by an address.
    pub(crate) fn gone_at(&self, address: u64) -> Option<Gone> {
        let parked = self.book.record_around(address);
        let parked = parked.filter(|record| record.state().stage() != Stage::Vacant).map(Gone::of);
        parked.filter(|gone| gone.bytes > 0).or_else(|| self.book.gone_at(address))
    }

    /// All blocks that somebody has.
    pub(crate) fn owned(&self) -> Vec<(u32, Seen)> {
        let all = self.book.records.iter().map(|record| (record.number(), record.seen()));
        all.filter(|(_, seen)| seen.state.stage() == Stage::Owned).collect()
    }

    pub(crate) fn context_of(&self, lot: u32) -> ContextId {
        self.book.context_of(lot)
    }

    /// The lot of a stream: one that lost its own stream, if there is one, or else new.
    pub(crate) fn lot_of(&self, track: &Arc<Track>) -> Arc<Lot> {
        let mut lots = self.lots.lock().unwrap_or_else(PoisonError::into_inner);
        lots.entry(track.id.0)
            .or_insert_with(|| {
                let orphan = self.book.lots().into_iter().find(|lot| lot.adopt(track));
                orphan.iter().for_each(|lot| self.book.note_context(lot));
                let heap = || if self.supply.assembles() { Heap::new() } else { Heap::parted() };
                orphan.unwrap_or_else(|| self.book.add_lot(|number| Lot::new(number, track.clone(), heap())))
            })
            .clone()
    }

    /// Lets the lot of a stream that has passed all of its work serve others.
    pub(crate) fn end_stream(&self, track: &Track) {
        let lot = self.lots.lock().unwrap_or_else(PoisonError::into_inner).remove(&track.id.0);
        if let Some(lot) = lot {
            lot.all_racks().iter().for_each(|rack| rack.empty(true));
            lot.orphan();
        }
    }

    /// Takes all blocks of a context from their owners: these. The memory stays until [`end_context`](Self::end_context).
    pub(crate) fn disown_context(&self, context: ContextId, when: Duration) -> Vec<(u32, Seen)> {
        let lots = self.book.lots().into_iter().filter(|lot| lot.context() == context);
        lots.flat_map(|lot| lot.disown_all(&self.book, when)).collect()
    }

    /// Takes all memory of a context's lots from whoever has it: the context is gone, and all work with it.
    pub(crate) fn end_context(&self, context: ContextId) {
        let lots: Vec<_> = self.book.lots().into_iter().filter(|lot| lot.context() == context).collect();
        self.lots.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, lot| lot.context() != context);
        // What one keeps may lie on another's ground.
        lots.iter().flat_map(|lot| lot.all_racks()).for_each(|rack| rack.empty(true));
        lots.iter().for_each(|lot| lot.clear(&self.book));
    }

    /// Adds what somebody has of this pool, and what waits for marks.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        let total = Counts::default();
        for lot in self.book.lots() {
            lot.add_to(&total);
            let (blocks, bytes) = lot.waiting(&self.book);
            totals.released_blocks += blocks;
            totals.released_bytes += bytes;
        }
        // While threads go on, what one took back may be seen before another handed it out.
        let [blocks, bytes] = [&total.blocks, &total.bytes].map(|sum| sum.load(Ordering::Relaxed).cast_signed().max(0));
        totals.owned_blocks += blocks.cast_unsigned();
        totals.owned_bytes += bytes.cast_unsigned();
    }
}

/// How much memory a device's pools have, in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks that somebody has.
    pub owned_blocks: u64,
    /// What the owners asked for.
    pub owned_bytes: u64,
    /// Given up by their owners, while marks have not passed.
    pub released_blocks: u64,
    /// What the owners had asked for.
    pub released_bytes: u64,
    /// What can be handed out again, and what is lost to roundness.
    pub cached_bytes: u64,
    /// What the driver gave.
    pub reserved_bytes: u64,
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) record: u32,
    pub(crate) base: u64,
}

/// A block that was handed to an owner who has it by a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) record: u32,
    pub(crate) base: u64,
    /// Which ownership of it this is.
    pub(crate) generation: u64,
    /// The position in the stream behind which nobody used it before.
    pub(crate) position: u64,
    /// Whether a count of the stream's home comes with it.
    pub(crate) has_home: bool,
}

impl Held {
    #[inline]
    pub(crate) fn of(record: &Record) -> Self {
        let generation = record.state().generation();
        Self { record: record.number(), base: record.base(), generation, position: record.position(), has_home: false }
    }
}

impl Taken {
    #[inline]
    fn of(record: &Record) -> Self {
        Self { record: record.number(), base: record.base() }
    }
}
