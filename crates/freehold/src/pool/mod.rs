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
mod heap;
#[forbid(unsafe_code)]
mod lot;
mod rack;
#[forbid(unsafe_code)]
pub(crate) mod record;
#[forbid(unsafe_code)]
mod resize;
#[forbid(unsafe_code)]
mod shelf;
#[forbid(unsafe_code)]
mod slab;
mod supply;
#[forbid(unsafe_code)]
mod table;

use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use freehold_driver::cuda::{Api, CUcontext, CUdevice, CallError};

use self::book::Book;
use self::class::Class;
use self::lot::{Counts, Lot};
use self::rack::Rack;
use self::record::{Record, Seen, Stage, State};
use self::supply::{Grown, Inside, Supply};
use self::table::Table;
use crate::core::Core;
use crate::ledger::{BlockId, ContextId, Kind, Mark, Owner, StreamId, WrongRelease};
use crate::track::Track;

pub(crate) use self::rack::Key;

/// Chunks are moved to where they are needed, before new ones are made, if more than this part of what is mapped is free.
const IDLE_PART: u64 = 8;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) book: Arc<Book>,
    pub(crate) supply: Supply,
    /// The lot of each stream.
    lots: Mutex<std::collections::HashMap<u32, Arc<Lot>>>,
}

/// Why there is no block.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// So much cannot be had, or not now.
    Short,
    Call(CallError),
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// How much memory there is in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) live_blocks: u64,
    /// What owners asked for.
    pub(crate) live_bytes: u64,
    /// What the driver gave.
    pub(crate) reserved_bytes: u64,
}

impl Pool {
    pub(crate) fn new(api: &Api, device: CUdevice, total_bytes: u64) -> Result<Self, CallError> {
        let supply = Supply::new(api, device, total_bytes)?;
        let table = Table::new(supply.base, supply.bytes).expect("a table is memory only where it is written");
        Ok(Self { book: Arc::new(Book::new(table)), supply, lots: Mutex::default() })
    }

    /// What this thread finds the magazines of one of the library's streams by.
    #[inline]
    pub(crate) fn key(&self, track: &Track) -> Key {
        Key::own(self.book.number, track.id.0)
    }

    /// A block that this thread keeps, for an owner.
    #[inline]
    pub(crate) fn take_kept(&self, key: Key, bytes: u64) -> Option<Taken> {
        rack::within(key, |_, rack| {
            let record = match Class::of(bytes) {
                Some(class) => rack.take_small(class, bytes),
                None => rack.take_large(bytes),
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
        let lot = self.lot_of(track);
        // A thread that is ending gets no magazines.
        let has_rack = rack::within(key, |_, _| ()).is_some()
            || rack::add(key, Arc::new(Rack::new(self.book.clone(), lot.clone(), track.clone())));
        let Some(class) = Class::of(bytes) else {
            let exchanged = rack::within(key, |_, rack| rack.exchange_large(bytes).map(Taken::of));
            if let Some(Some(taken)) = exchanged {
                return Ok(taken);
            }
            let record = self.ground(core, &lot, track, bytes, Origin::Any)?;
            return Ok(self.hand(key, &lot, record, bytes));
        };
        loop {
            let refilled = rack::within(key, |_, rack| {
                rack.refill(class);
                rack.take_small(class, bytes).map(Taken::of)
            });
            if let Some(Some(taken)) = refilled {
                return Ok(taken);
            }
            let mut found = None;
            if !has_rack && lot.take_small(&self.book, class, 1, |record| found = Some(record)) == 1 {
                return Ok(self.hand(key, &lot, found.expect("a block was found"), bytes));
            }
            let block = self.ground(core, &lot, track, class.slab_bytes(), Origin::Own)?;
            lot.add_slab(&self.book, class, block);
        }
    }

    /// Gives a block that was taken of a lot to its owner.
    fn hand(&self, key: Key, lot: &Lot, record: u32, bytes: u64) -> Taken {
        let record = self.book.records.at(record);
        record.own(bytes);
        if rack::within(key, |rack, _| rack.counts.hand(bytes)).is_none() {
            lot.counts.handed_blocks.fetch_add(1, Ordering::Relaxed);
            lot.counts.handed_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Taken::of(record)
    }

    /// Takes back a block by its address, in the order of the stream that this thread's rack is for: the warm path. The
    /// others are told why it is not one for it.
    #[inline]
    pub(crate) fn put_kept(&self, key: Key, address: u64) -> Result<(), Returned> {
        let Some(record) = self.book.record_at(address) else { return Err(Returned::Unknown) };
        let put = rack::within(key, |rack, entered| {
            if record.stream() != rack.stream {
                return Err(Returned::Elsewhere);
            }
            match record.disown(address) {
                Ok(state) if state.is_used_elsewhere() => Err(Returned::Used(record.number(), state)),
                Ok(_) => {
                    entered.put(record);
                    Ok(())
                }
                Err(_) => Err(Returned::Unknown),
            }
        });
        put.unwrap_or(Err(Returned::Elsewhere))
    }

    /// Takes back a block that nobody owns any more, in the order of `from` and behind marks. Without `from` its own stream has
    /// passed all of its work.
    pub(crate) fn put(&self, record: u32, from: Option<&Track>, marks: &[Mark]) {
        let record = self.book.records.at(record);
        let lot = self.book.lot(record.lot());
        lot.counts.taken_blocks.fetch_add(1, Ordering::Relaxed);
        lot.counts.taken_bytes.fetch_add(record.bytes(), Ordering::Relaxed);
        match from {
            Some(from) => lot.give(&self.book, record.number(), from, marks),
            None => lot.give(&self.book, record.number(), &lot.home(), marks),
        }
    }

    /// Closes the magazines of all threads for a stream.
    pub(crate) fn close_racks(&self, track: &Track) {
        let lot = self.lots.lock().unwrap_or_else(PoisonError::into_inner).get(&track.id.0).cloned();
        for rack in lot.iter().flat_map(|lot| lot.all_racks()).filter(|rack| rack.stream == track.id.0) {
            rack.empty(true);
        }
    }

    /// Who owns the block that an address lies in.
    pub(crate) fn owner_of(&self, address: u64, process: u32) -> Option<Owner> {
        let record = self.book.record_around(address)?;
        let seen = record.seen();
        if seen.state.stage() != Stage::Owned || address.wrapping_sub(seen.base) >= seen.bytes {
            return None;
        }
        Some(self.owner(record.number(), seen, process))
    }

    fn owner(&self, record: u32, seen: Seen, process: u32) -> Owner {
        Owner {
            base: seen.base,
            bytes: seen.bytes,
            context: self.book.lot(seen.lot).context,
            stream: Some(StreamId(seen.stream)),
            process,
            kind: Kind::Own,
            tag: None,
            allocated_at: Location::caller(),
            state: crate::ledger::State::Owned,
            block: BlockId::of_pool(record, seen.state.generation() as u32),
        }
    }

    /// What is wrong with a release of an address at which nobody has a block.
    pub(crate) fn wrong_release(&self, address: u64, process: u32) -> WrongRelease {
        if let Some(of) = self.owner_of(address, process) {
            let offset_bytes = address - of.base;
            return WrongRelease::Interior { of: Box::new(of), offset_bytes };
        }
        let parked = self.book.record_at(address).map(Record::seen).filter(|seen| seen.state.stage() != Stage::Vacant);
        let gone = parked.map(|seen| (seen.base, seen.bytes)).or_else(|| self.book.gone_at(address));
        let Some((base, bytes)) = gone else { return WrongRelease::NeverAllocated { address } };
        WrongRelease::AlreadyReleased {
            base,
            bytes,
            allocated_at: Location::caller(),
            released_at: None,
            when: None,
            offset_bytes: address - base,
        }
    }

    /// The lot of a stream: one that lost its own stream, if there is one, or else new.
    pub(crate) fn lot_of(&self, track: &Arc<Track>) -> Arc<Lot> {
        let mut lots = self.lots.lock().unwrap_or_else(PoisonError::into_inner);
        lots.entry(track.id.0)
            .or_insert_with(|| {
                let orphan = self.book.lots().into_iter().find(|lot| lot.adopt(track));
                orphan.unwrap_or_else(|| self.book.add_lot(|number| Lot::new(number, track.clone())))
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

    /// Takes all memory of a context's lots from whoever has it: the context is gone, and all work with it.
    pub(crate) fn end_context(&self, api: &Api, current: CUcontext, context: ContextId) -> Result<(), CallError> {
        let of_context = |lot: &Arc<Lot>| lot.context == context;
        self.lots.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, lot| !of_context(lot));
        let mut inside = self.supply.lock();
        let mut outcome = Ok(());
        for lot in self.book.lots().iter().filter(|lot| of_context(lot)) {
            lot.all_racks().iter().for_each(|rack| rack.empty(true));
            for chunk in lot.clear(&self.book) {
                outcome = outcome.and(self.supply.keep(api, current, &mut inside, chunk));
            }
        }
        outcome
    }

    pub(crate) fn sums(&self) -> Sums {
        let total = Counts::default();
        for lot in self.book.lots() {
            lot.all_racks().iter().for_each(|rack| total.add(&rack.counts));
            total.add(&lot.counts);
        }
        let [handed_blocks, handed_bytes, taken_blocks, taken_bytes] =
            total.all().map(|count| count.load(Ordering::Relaxed));
        Sums {
            live_blocks: handed_blocks.wrapping_sub(taken_blocks),
            live_bytes: handed_bytes.wrapping_sub(taken_bytes),
            reserved_bytes: self.supply.reserved_bytes(),
        }
    }

    /// Ground for a block: of the stream's own lot, of another's, or newly mapped.
    fn ground(
        &self,
        core: &Core,
        lot: &Arc<Lot>,
        track: &Arc<Track>,
        bytes: u64,
        origin: Origin,
    ) -> Result<u32, Refusal> {
        if let Some(record) = lot.take_large(&self.book, bytes) {
            return Ok(record);
        }
        core.refresh_tracks()?;
        let has_passed = |mark| core.has_passed(mark);
        let unmarked = lot.settle(&self.book, has_passed);
        lot.all_racks().iter().for_each(|rack| rack.empty(false));
        if let Some(record) = lot.take_large(&self.book, bytes) {
            return Ok(record);
        }
        core.mark_each(&unmarked)?;
        if origin == Origin::Any
            && let Some(record) = self.borrow(core, lot, track, bytes)?
        {
            return Ok(record);
        }
        if let Some(record) = self.grow(core, lot, bytes)? {
            return Ok(record);
        }
        if origin == Origin::Any
            && let Some(record) = self.borrow_behind(core, lot, track, bytes)?
        {
            return Ok(record);
        }
        Err(Refusal::Short)
    }

    /// A block of another lot of the context, which that one's stream has passed.
    fn borrow(&self, core: &Core, lot: &Lot, track: &Track, bytes: u64) -> Result<Option<u32>, CallError> {
        for other in self.others(lot) {
            other.settle(&self.book, |mark| core.has_passed(mark));
            if let Some(record) = other.lend(&self.book, bytes, track.id.0, |mark| core.has_passed(mark)) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// A block of another lot of the context that the device waits for, before the stream's next work.
    fn borrow_behind(&self, core: &Core, lot: &Lot, track: &Track, bytes: u64) -> Result<Option<u32>, CallError> {
        for other in self.others(lot) {
            let home = other.home();
            if !track.can_wait_for(&core.api, &home)? {
                continue;
            }
            let Some((record, mark)) = other.lend_unpassed(&self.book, bytes, track.id.0) else { continue };
            if let Err(error) = track.wait_for(&core.api, &home, mark.position) {
                other.give(&self.book, record, &home, &[]);
                return Err(error);
            }
            return Ok(Some(record));
        }
        Ok(None)
    }

    fn others(&self, lot: &Lot) -> impl Iterator<Item = Arc<Lot>> {
        let (number, context) = (lot.number, lot.context);
        self.book.lots().into_iter().filter(move |other| other.number != number && other.context == context)
    }

    /// Maps memory for a block: what is kept, what lies free elsewhere, or what the driver makes.
    fn grow(&self, core: &Core, lot: &Lot, bytes: u64) -> Result<Option<u32>, CallError> {
        let mut inside = self.supply.lock();
        let mut need = lot.need(bytes);
        if need.is_none() {
            let Some((base, region_bytes)) = self.supply.region(&mut inside, bytes, lot.mapped_bytes()) else {
                return Ok(None);
            };
            lot.add_region(base, region_bytes);
            need = lot.need(bytes);
        }
        let (need, claimed) = need.expect("a region was added that is long enough");
        let grown = self.grown(core, &mut inside, need);
        match grown {
            Ok(Grown::Chunks(chunks)) => {
                let record = lot.fill(&self.book, claimed, &chunks, bytes);
                Ok(Some(record.expect("what was mapped is enough, with what was there")))
            }
            Ok(Grown::Nothing) => {
                lot.unclaim(claimed);
                Ok(None)
            }
            Err(error) => {
                lot.unclaim(claimed);
                Err(error)
            }
        }
    }

    fn grown(&self, core: &Core, inside: &mut Inside, need: heap::Need) -> Result<Grown, CallError> {
        let (api, current) = (&core.api, core.primary);
        let lots = self.book.lots();
        let free_bytes: u64 = lots.iter().map(|lot| lot.free_bytes().0).sum();
        let is_idle = free_bytes > self.supply.reserved_bytes() / IDLE_PART && free_bytes >= need.bytes;
        if !is_idle && let grown @ Grown::Chunks(_) = self.supply.grow(api, current, inside, need)? {
            return Ok(grown);
        }
        // Everything that nobody has comes back, whoever kept it.
        self.recall(core, &lots)?;
        let kept: u64 = inside.kept_bytes();
        let mut missing = need.bytes.saturating_sub(kept);
        for lot in &lots {
            if missing == 0 {
                break;
            }
            for chunk in lot.empty(missing, |mark| core.has_passed(mark)) {
                missing = missing.saturating_sub(chunk.bytes);
                self.supply.keep(api, current, inside, chunk)?;
            }
        }
        if is_idle
            && missing > 0
            && let grown @ Grown::Chunks(_) = self.supply.grow(api, current, inside, need)?
        {
            return Ok(grown);
        }
        self.supply.assemble(api, current, inside, need)
    }

    /// Gets back what threads keep and what waits for marks that have passed, and asks how far streams have come.
    fn recall(&self, core: &Core, lots: &[Arc<Lot>]) -> Result<(), CallError> {
        core.ask_tracks()?;
        for lot in lots {
            lot.all_racks().iter().for_each(|rack| rack.empty(false));
            lot.settle_all(&self.book, |mark| core.has_passed(mark));
            lot.raze_empty(&self.book);
        }
        Ok(())
    }

    /// Gives memory that nobody has back to the driver until the pool has no more than `keep_bytes`. How many bytes went.
    pub(crate) fn trim(&self, core: &Core, keep_bytes: u64) -> Result<u64, CallError> {
        let (api, current) = (&core.api, core.primary);
        let lots = self.book.lots();
        self.recall(core, &lots)?;
        let mut inside = self.supply.lock();
        let mut freed_bytes = self.supply.release(api, current, &mut inside, keep_bytes)?;
        for lot in &lots {
            let excess = self.supply.reserved_bytes().saturating_sub(keep_bytes);
            if excess == 0 {
                break;
            }
            for chunk in lot.empty(excess, |mark| core.has_passed(mark)) {
                self.supply.keep(api, current, &mut inside, chunk)?;
            }
            freed_bytes += self.supply.release(api, current, &mut inside, keep_bytes)?;
        }
        Ok(freed_bytes)
    }
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) record: u32,
    pub(crate) base: u64,
}

impl Taken {
    #[inline]
    fn of(record: &Record) -> Self {
        Self { record: record.number(), base: record.base() }
    }
}

/// Why a block is not taken back on the warm path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// There is no block that somebody has at the address.
    Unknown,
    /// The block is in the order of another stream.
    Elsewhere,
    /// Other streams used it. It is nobody's now: who is told this puts it back.
    Used(u32, State),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The stream's own lot.
    Own,
    Any,
}
