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
pub(crate) mod record;
#[forbid(unsafe_code)]
mod shelf;
#[forbid(unsafe_code)]
mod slab;
mod supply;
mod sync;
#[forbid(unsafe_code)]
mod table;
mod turn;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::cuda::{Api, CUdevice, CallError};

use self::book::Book;
use self::class::Class;
use self::lot::{Counts, Lot};
use self::rack::Rack;
use self::record::{Gone, Record, Seen, Stage, State};
use self::supply::{Inside, Supply};
use self::table::Table;
use crate::core::Core;
use crate::ledger::{ContextId, Mark};
use crate::track::Track;

pub(crate) use self::heap::{Chunk, Need, PAGE_BYTES};
pub(crate) use self::rack::Key;
pub(crate) use self::supply::Grown;

/// Chunks are moved to where they are needed, before new ones are made, if more than this part of what is mapped is free.
const IDLE_PART: u64 = 8;

/// How many other lots a stream that needs a block looks at.
const OTHERS_MAX: usize = 16;

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
    Call(CallError),
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Pool {
    pub(crate) fn new(api: &Api, device: CUdevice, total_bytes: u64) -> Result<Self, CallError> {
        let supply = Supply::new(api, device, total_bytes)?;
        let table = Table::new(supply.base, supply.bytes).expect("a table is memory only where it is written");
        Ok(Self {
            book: Arc::new(Book::new(table)),
            supply,
            lots: Mutex::default(),
            threshold_bytes: AtomicU64::new(u64::MAX),
            turn: AtomicUsize::new(0),
        })
    }

    pub(crate) fn threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_threshold_bytes(&self, bytes: u64) {
        self.threshold_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The longest range that is free anywhere, and what can be mapped anew of what is free.
    pub(crate) fn largest_bytes(&self, core: &Core) -> (u64, u64) {
        let lots = self.book.lots();
        let longest = lots.iter().map(|lot| lot.free_bytes().1).max().unwrap_or(0);
        let movable = lots.iter().map(|lot| lot.emptiable_bytes(|mark| core.has_passed(mark))).sum::<u64>();
        (longest, movable + self.supply.kept_bytes())
    }

    /// What this thread finds the magazines of one of the library's streams by.
    #[inline]
    pub(crate) fn key(&self, track: &Track) -> Key {
        Key::own(self.book.number, track.id.0)
    }

    /// A block that this thread keeps, or else one of the stream's lot, for an owner. Calls no driver.
    #[inline(always)]
    pub(crate) fn take_kept(&self, key: Key, bytes: u64) -> Option<Taken> {
        rack::within(key, |_, rack| {
            let record = match Class::of(bytes) {
                Some(class) => rack.take_small(class, bytes).or_else(|| rack.refill(class, bytes)),
                None => rack.take_large(bytes).or_else(|| rack.exchange_large(bytes)),
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
        let has_rack = self.equip(key, track);
        let Some(class) = Class::of(bytes) else {
            let record = self.ground(core, &lot, track, bytes, Origin::Any)?;
            return Ok(self.hand(key, &lot, record, bytes));
        };
        let unmarked = lot.settle(&self.book, |mark| core.has_passed(mark));
        core.mark_each(&unmarked)?;
        let mut has_borrowed = false;
        loop {
            if let Some(taken) = self.take_kept(key, bytes) {
                return Ok(taken);
            }
            let slab_bytes = lot.next_slab_bytes(class);
            if let Some(block) = lot.take_large(&self.book, slab_bytes) {
                lot.add_slab(&self.book, class, block);
                continue;
            }
            if !has_borrowed && let Some(record) = self.borrow_small(core, &lot, track, class)? {
                return Ok(self.hand(key, &lot, record, bytes));
            }
            has_borrowed = true;
            let mut found = None;
            if !has_rack && lot.take_small(&self.book, track.id.0, class, 1, |record| found = Some(record)) == 1 {
                return Ok(self.hand(key, &lot, found.expect("a block was found"), bytes));
            }
            let block = self.ground(core, &lot, track, slab_bytes, Origin::Own)?;
            lot.add_slab(&self.book, class, block);
        }
    }

    /// Gives this thread magazines for a stream, if it has none. Whether it has them: a thread that is ending gets none.
    pub(crate) fn equip(&self, key: Key, track: &Arc<Track>) -> bool {
        rack::within(key, |_, _| ()).is_some()
            || rack::add(key, Arc::new(Rack::new(self.book.clone(), self.lot_of(track), track.clone())))
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

    /// Lets a block that somebody has be of other bytes where it lies. Whether it could.
    pub(crate) fn resize(&self, record: &Record, bytes: u64) -> bool {
        let lot = self.book.lot(record.lot());
        let before = record.bytes();
        let is_resized = lot.resize(record, bytes);
        if is_resized {
            lot.counts.handed_bytes.fetch_add(bytes, Ordering::Relaxed);
            lot.counts.taken_bytes.fetch_add(before, Ordering::Relaxed);
        }
        is_resized
    }

    /// Takes back a block by its address, in the order of the stream that this thread's rack is for: the warm path. The
    /// others are told why it is not one for it.
    #[inline(always)]
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

    /// Keeps a block that its owner has given up in this thread, in the order of the block's own stream. Whether it could.
    pub(crate) fn put_own(&self, key: Key, record: &Record) -> bool {
        let put = rack::within(key, |rack, entered| {
            let is_own = record.stream() == rack.stream;
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
        self.book.lot(lot).context()
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

    /// How much memory there is in which state.
    pub(crate) fn totals(&self) -> Totals {
        let total = Counts::default();
        let (mut released_blocks, mut released_bytes) = (0, 0);
        for lot in self.book.lots() {
            lot.add_to(&total);
            let (blocks, bytes) = lot.waiting(&self.book);
            released_blocks += blocks;
            released_bytes += bytes;
        }
        let [handed_blocks, handed_bytes, taken_blocks, taken_bytes] =
            total.all().map(|count| count.load(Ordering::Relaxed));
        let owned_bytes = handed_bytes.wrapping_sub(taken_bytes);
        let reserved_bytes = self.supply.reserved_bytes();
        Totals {
            owned_blocks: handed_blocks.wrapping_sub(taken_blocks),
            owned_bytes,
            released_blocks,
            released_bytes,
            cached_bytes: reserved_bytes.saturating_sub(owned_bytes + released_bytes),
            reserved_bytes,
        }
    }

    /// Gives what is free of the chunks in a span back to the driver, if all of a chunk is free.
    pub(crate) fn give_back(&self, core: &Core, span: std::ops::Range<u64>) -> Result<(), CallError> {
        let lots = self.book.lots();
        self.recall(core, &lots)?;
        let mut inside = self.supply.lock();
        for lot in &lots {
            let chunks = lot.empty_within(&span, |mark| core.has_passed(mark));
            self.keep(core, &mut inside, lot, &chunks)?;
            for _ in &chunks {
                self.supply.release_one(&core.api, core.primary, &mut inside)?;
            }
        }
        Ok(())
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
        self.book.misses.fetch_add(1, Ordering::Relaxed);
        core.refresh_tracks()?;
        let has_passed = |mark| core.has_passed(mark);
        let unmarked = lot.settle(&self.book, has_passed);
        // A slab is little: for that nobody's magazines are emptied before memory is short.
        if origin == Origin::Any {
            lot.all_racks().iter().for_each(|rack| rack.empty(false));
        }
        lot.raze_idle(&self.book);
        if let Some(record) = lot.take_large(&self.book, bytes) {
            return Ok(record);
        }
        let found = self.ground_elsewhere(core, lot, track, bytes, origin);
        // Not before streams were asked how far they have come: one that has a mark to write is not done.
        if let Err(error) = core.mark_each(&unmarked) {
            found.into_iter().flatten().for_each(|record| self.put_unowned(record, track));
            return Err(error.into());
        }
        if let Some(record) = found? {
            return Ok(record);
        }
        // All that was kept somewhere has come back meanwhile.
        if let Some(record) = lot.take_large(&self.book, bytes) {
            return Ok(record);
        }
        // Vectors have given memory back that nobody has looked at since.
        if core.unmap_passed()?
            && let Some(record) = self.grow(core, lot, bytes)?
        {
            return Ok(record);
        }
        if let Some(record) = self.take_behind(core, lot, track, bytes)? {
            return Ok(record);
        }
        if origin == Origin::Any
            && let Some(record) = self.borrow_behind(core, lot, track, bytes)?
        {
            return Ok(record);
        }
        Err(Refusal::Short)
    }

    /// Ground of another lot, or newly mapped.
    fn ground_elsewhere(
        &self,
        core: &Core,
        lot: &Lot,
        track: &Track,
        bytes: u64,
        origin: Origin,
    ) -> Result<Option<u32>, CallError> {
        if origin == Origin::Any
            && let Some(record) = self.borrow(core, lot, track, bytes)?
        {
            return Ok(Some(record));
        }
        self.grow(core, lot, bytes)
    }

    /// Gives back ground that nobody had.
    fn put_unowned(&self, record: u32, track: &Track) {
        self.book.lot(self.book.records.at(record).lot()).give(&self.book, record, track, &[]);
    }

    /// A block of the stream's own lot that waits for other streams: the device waits for them, before the stream's next work.
    fn take_behind(&self, core: &Core, lot: &Lot, track: &Track, bytes: u64) -> Result<Option<u32>, CallError> {
        if lot.home().id != track.id {
            return Ok(None);
        }
        for mark in lot.awaited() {
            if let Some(other) = core.track(mark.stream)
                && track.can_wait_for(&core.api, &other)?
            {
                track.wait_for(&core.api, &other, mark.position)?;
            }
        }
        let is_before = |mark: Mark| core.has_passed(mark) || track.has_waited(mark.stream, mark.position);
        lot.settle_behind(&self.book, track, is_before);
        Ok(lot.take_large(&self.book, bytes))
    }

    /// A block of another lot of the context, which that one's stream has passed.
    fn borrow(&self, core: &Core, lot: &Lot, track: &Track, bytes: u64) -> Result<Option<u32>, CallError> {
        self.idle_others(core, lot)?;
        for other in self.others(lot) {
            if let Some(record) = other.lend(&self.book, bytes, track.id.0, |mark| core.has_passed(mark)) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// As [`borrow`](Self::borrow), of a class.
    fn borrow_small(&self, core: &Core, lot: &Lot, track: &Track, class: Class) -> Result<Option<u32>, CallError> {
        let idle = self.idle_others(core, lot)?;
        let has_passed = |mark| core.has_passed(mark);
        Ok(idle.iter().find_map(|other| other.lend_small(&self.book, class, track.id.0, has_passed)))
    }

    /// Some other lots of the context whose streams have passed all of their work, with all that is theirs and nobody has.
    /// Those that have not are marked, so that a later request finds them.
    fn idle_others(&self, core: &Core, lot: &Lot) -> Result<Vec<Arc<Lot>>, CallError> {
        let others: Vec<_> = self.others(lot).collect();
        // Another part of them each time.
        let turn = self.turn.fetch_add(OTHERS_MAX, Ordering::Relaxed);
        let mut idle = Vec::new();
        for index in 0..others.len().min(OTHERS_MAX) {
            let other = &others[turn.wrapping_add(index) % others.len()];
            match other.is_idle(|mark| core.has_passed(mark)) {
                Ok(()) => {
                    other.all_racks().iter().for_each(|rack| rack.empty(false));
                    other.settle(&self.book, |mark| core.has_passed(mark));
                    idle.push(other.clone());
                }
                Err(Some(mark)) => core.mark_each_in_turn(mark)?,
                Err(None) => {}
            }
        }
        Ok(idle)
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
            // Who uses it in a third stream does so behind the wait.
            self.book.records.at(record).set_position(track.now().position);
            return Ok(Some(record));
        }
        Ok(None)
    }

    fn others(&self, lot: &Lot) -> impl Iterator<Item = Arc<Lot>> {
        let (number, context) = (lot.number, lot.context());
        self.book.lots().into_iter().filter(move |other| other.number != number && other.context() == context)
    }

    /// Maps memory for a block: what is kept, what lies free elsewhere, or what the driver makes.
    fn grow(&self, core: &Core, lot: &Lot, bytes: u64) -> Result<Option<u32>, CallError> {
        let mut inside = self.supply.lock();
        if let Some(record) = self.grow_at(core, lot, &mut inside, bytes, 0)? {
            return Ok(Some(record));
        }
        // Chunks that are kept may be too long for the room that there is.
        match inside.longest_kept_bytes() {
            0 => Ok(None),
            longest => self.grow_at(core, lot, &mut inside, bytes, longest),
        }
    }

    /// Maps memory where there is room for `spare_bytes` more.
    fn grow_at(
        &self,
        core: &Core,
        lot: &Lot,
        inside: &mut Inside,
        bytes: u64,
        spare_bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        let mut need = lot.need(bytes, spare_bytes);
        if need.is_none() {
            let room_bytes = bytes.next_multiple_of(heap::PAGE_BYTES) + spare_bytes;
            let Some((base, region_bytes)) = self.region(core, inside, room_bytes, lot.mapped_bytes())? else {
                return Ok(None);
            };
            lot.add_region(base, region_bytes);
            need = lot.need(bytes, spare_bytes);
        }
        let (need, claimed) = need.expect("a region was added that is long enough");
        // Nothing of its own is moved for little.
        let own = Some(lot).filter(|_| bytes >= heap::PAGE_BYTES);
        let grown = self.grown(core, inside, own, need);
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

    /// Addresses for a lot: of those that are nobody's, or else of those that lots have and nothing is mapped to.
    fn region(
        &self,
        core: &Core,
        inside: &mut Inside,
        room_bytes: u64,
        had_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        if let Some(region) = self.supply.region(inside, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        let lots = self.book.lots();
        lots.iter().for_each(|lot| inside.take_back(lot.take_bare_regions()));
        if let Some(region) = self.supply.region(inside, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        self.recall(core, &lots)?;
        for lot in &lots {
            let chunks = lot.empty(u64::MAX, |mark| core.has_passed(mark));
            self.keep(core, inside, lot, &chunks)?;
            inside.take_back(lot.take_bare_regions());
        }
        Ok(self.supply.region(inside, room_bytes, had_bytes))
    }

    fn grown(&self, core: &Core, inside: &mut Inside, own: Option<&Lot>, need: heap::Need) -> Result<Grown, CallError> {
        let (api, current) = (&core.api, core.primary);
        let lots = self.book.lots();
        // What other streams that work have free they need again at once.
        let is_own = |lot: &Lot| own.is_some_and(|own| own.number == lot.number);
        let may_give = |lot: &&Arc<Lot>| is_own(lot) || lot.is_resting(&self.book);
        let resting: Vec<_> = lots.iter().filter(may_give).cloned().collect();
        let free_bytes: u64 = resting.iter().map(|lot| lot.free_bytes().0).sum();
        if free_bytes > self.supply.reserved_bytes() / IDLE_PART && free_bytes >= need.bytes {
            self.gather(core, inside, &resting, need.bytes)?;
            if inside.kept_bytes() >= need.bytes
                && let grown @ Grown::Chunks(_) = self.supply.assemble(api, current, inside, need)?
            {
                return Ok(grown);
            }
        }
        if let grown @ Grown::Chunks(_) = self.supply.grow(api, current, inside, need)? {
            return Ok(grown);
        }
        self.gather(core, inside, &lots, need.bytes)?;
        self.supply.assemble(api, current, inside, need)
    }

    /// Gets back everything that nobody has of some lots, whoever keeps it, and unmaps as much as is lacking.
    fn gather(&self, core: &Core, inside: &mut Inside, lots: &[Arc<Lot>], bytes: u64) -> Result<(), CallError> {
        self.recall(core, lots)?;
        let mut missing = bytes.saturating_sub(inside.kept_bytes());
        for lot in lots {
            if missing == 0 {
                break;
            }
            let chunks = lot.empty(missing, |mark| core.has_passed(mark));
            self.keep(core, inside, lot, &chunks)?;
            missing = missing.saturating_sub(chunks.iter().map(|chunk| chunk.bytes).sum());
        }
        Ok(())
    }

    /// Maps memory at addresses that are no lot's: a chunk that is kept, or else a new one.
    pub(crate) fn map_beyond(&self, core: &Core, need: Need) -> Result<Grown, CallError> {
        self.supply.grow(&core.api, core.primary, &mut self.supply.lock(), need)
    }

    /// As [`map_beyond`](Self::map_beyond), of whatever nobody has.
    pub(crate) fn gather_beyond(&self, core: &Core, need: Need) -> Result<Grown, CallError> {
        let (api, current, inside) = (&core.api, core.primary, &mut *self.supply.lock());
        if let grown @ Grown::Chunks(_) = self.grown(core, inside, None, need)? {
            return Ok(grown);
        }
        // What is kept and longer than the room there is goes back, so that the driver can make what fits.
        let keep_bytes = self.supply.reserved_bytes().saturating_sub(need.bytes);
        match self.supply.release(api, current, inside, keep_bytes)? {
            0 => Ok(Grown::Nothing),
            _ => self.supply.assemble(api, current, inside, need),
        }
    }

    /// Unmaps a chunk of addresses that are no lot's, which nothing uses any more, and keeps its memory.
    pub(crate) fn unmap_beyond(&self, core: &Core, chunk: Chunk) -> Result<(), CallError> {
        self.supply.keep(&core.api, core.primary, &mut self.supply.lock(), chunk)
    }

    /// Gets back what threads keep and what waits for marks that have passed, and asks how far streams have come.
    fn recall(&self, core: &Core, lots: &[Arc<Lot>]) -> Result<(), CallError> {
        lots.iter().flat_map(|lot| lot.all_racks()).for_each(|rack| rack.empty(false));
        // Only then: what others put into their streams before is passed by who is asked now.
        core.ask_tracks()?;
        for lot in lots {
            lot.settle_all(&self.book, |mark| core.has_passed(mark));
            lot.raze_empty(&self.book);
        }
        // What was just given back is behind all that is in its stream now, others' work too.
        core.ask_tracks()
    }

    /// Unmaps chunks that a lot was emptied of, and keeps them. What the driver refuses to unmap is the lot's again.
    fn keep(&self, core: &Core, inside: &mut Inside, lot: &Lot, chunks: &[Chunk]) -> Result<(), CallError> {
        for (index, &chunk) in chunks.iter().enumerate() {
            if let Err(error) = self.supply.keep(&core.api, core.primary, inside, chunk) {
                lot.refill(&chunks[index..]);
                return Err(error);
            }
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
            let chunks = lot.empty(excess, |mark| core.has_passed(mark));
            self.keep(core, &mut inside, lot, &chunks)?;
            freed_bytes += self.supply.release(api, current, &mut inside, keep_bytes)?;
        }
        Ok(freed_bytes)
    }
}

/// How much memory the pool has, in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
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
