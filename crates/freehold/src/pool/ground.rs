//! Ground for blocks where a stream's own magazines have none: of its lot, of other streams', of chunks that lie idle, of
//! the driver, or behind a wait on the device. And the way back, from free chunks to the driver.
//!
//! The order is thrift's, where it costs little: a wait on the device comes behind new memory, because it may hold a
//! stream up for as long as another works.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use freehold_driver::CallError;

use super::heap::{self, Chunk, Need};
use super::lot::Lot;
use super::supply::{Grown, Inside};
use super::{Pool, Refusal};
use crate::core::Core;
use crate::track::Track;

/// Chunks of streams that rest are moved to where they are needed, before new ones are made, if more than this part of
/// what the pool has is free there.
const IDLE_PART: u64 = 8;

/// A stream's own chunks are moved with them only if more than this part is free in its lot. A chunk that leaves the midst
/// of what a stream works with parts the free ranges on its two sides for good, so that fewer requests fit: where blocks
/// come and go at random, moving at an eighth ended with more memory than growing did.
const OWN_IDLE_PART: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The stream's own lot.
    Own,
    Any,
}

impl Pool {
    /// Gives what is free of the chunks in a span back to the driver, if all of a chunk is free.
    pub(crate) fn give_back(&self, core: &Core, span: Range<u64>) -> Result<(), CallError> {
        let lots = self.book.lots();
        self.recall(core, &lots)?;
        let mut inside = self.supply.lock();
        for lot in &lots {
            let chunks = lot.empty_within(&span, |mark| core.has_passed(mark));
            self.keep(&mut inside, lot, &chunks)?;
            // What is not mapped goes where nothing is pending: see `release_alone`.
            for _ in chunks.iter().filter(|_| self.supply.maps()) {
                self.supply.release_one(&mut inside)?;
            }
        }
        Ok(())
    }

    /// Gives memory that is kept, and came with its addresses, back to the driver until the pool has no more than `keep_bytes`. That
    /// waits for all work, so that it is done only where there is none. For who is in no context's gate. How many bytes went.
    pub(crate) fn release_alone(&self, core: &Core, keep_bytes: u64) -> Result<u64, CallError> {
        let mut freed_bytes = 0;
        if self.supply.maps() {
            return Ok(0);
        }
        core.all_alone(|| {
            // Who has the lock may be about to enter a gate.
            if let Some(mut inside) = self.supply.try_lock() {
                freed_bytes = self.supply.release(&mut inside, keep_bytes)?;
            }
            Ok(())
        })?;
        Ok(freed_bytes)
    }

    /// Ground for a block: of the stream's own lot, of another's, or newly mapped.
    pub(super) fn ground(
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
        let unmarked = lot.settle(&self.book, |mark| core.has_passed(mark));
        // A slab is little: for that nobody's magazines are emptied, and few slabs given up, before memory is short.
        if origin == Origin::Any {
            lot.all_racks().iter().for_each(|rack| rack.empty(false));
            lot.raze_empty(&self.book);
        } else {
            lot.raze_idle(&self.book);
        }
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
            && let Some(record) = self.borrow_behind(lot, track, bytes)?
        {
            return Ok(record);
        }
        Err(if lot.has_record(&self.book) { Refusal::Short } else { Refusal::TooMany })
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
    pub(super) fn put_unowned(&self, record: u32, track: &Track) {
        self.book.lot(self.book.records.at(record).lot()).give(&self.book, record, track, &[]);
    }

    /// Maps memory for a block: what is kept, what lies free elsewhere, or what the driver makes.
    fn grow(&self, core: &Core, lot: &Lot, bytes: u64) -> Result<Option<u32>, CallError> {
        let mut inside = self.supply.lock();
        if let Some(record) = self.grow_at(core, lot, &mut inside, bytes, 0)? {
            return Ok(Some(record));
        }
        // Chunks that are kept may be too long for the room that there is. One that is not mapped is its own room.
        if !self.supply.maps() {
            return Ok(None);
        }
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
        if !lot.has_record(&self.book) {
            return Ok(None);
        }
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
        if !self.supply.maps() {
            return self.whole_region(core, inside, room_bytes);
        }
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
            self.keep(inside, lot, &chunks)?;
            inside.take_back(lot.take_bare_regions());
        }
        Ok(self.supply.region(inside, room_bytes, had_bytes))
    }

    /// A chunk for a region of its own, where memory comes with its addresses.
    fn whole_region(&self, core: &Core, inside: &mut Inside, room_bytes: u64) -> Result<Option<(u64, u64)>, CallError> {
        let lots = self.book.lots();
        if let found @ Some(_) = self.supply.find_whole(inside, room_bytes)? {
            return Ok(found);
        }
        self.recall(core, &lots)?;
        for lot in &lots {
            let chunks = lot.empty(u64::MAX, |mark| core.has_passed(mark));
            self.keep(inside, lot, &chunks)?;
        }
        self.supply.find_whole(inside, room_bytes)
    }

    fn grown(&self, core: &Core, inside: &mut Inside, own: Option<&Lot>, need: heap::Need) -> Result<Grown, CallError> {
        if !self.supply.maps() {
            return Ok(Grown::Chunks(vec![self.supply.take_whole(inside, need.base)]));
        }
        let lots = self.book.lots();
        let reserved_bytes = self.supply.reserved_bytes();
        // What other streams that work have free they need again at once.
        let is_own = |lot: &Lot| own.is_some_and(|own| own.number == lot.number);
        let has_much = |lot: &Lot| lot.free_bytes().0 > reserved_bytes / OWN_IDLE_PART;
        let may_give = |lot: &&Arc<Lot>| if is_own(lot) { has_much(lot) } else { lot.is_resting(&self.book) };
        let givers: Vec<_> = lots.iter().filter(may_give).cloned().collect();
        let free_bytes: u64 = givers.iter().map(|lot| lot.free_bytes().0).sum();
        if free_bytes > reserved_bytes / IDLE_PART && free_bytes >= need.bytes {
            self.gather(core, inside, &givers, need.bytes)?;
            if inside.kept_bytes() >= need.bytes
                && let grown @ Grown::Chunks(_) = self.supply.assemble(inside, need)?
            {
                return Ok(grown);
            }
        }
        if let grown @ Grown::Chunks(_) = self.supply.grow(inside, need)? {
            return Ok(grown);
        }
        self.gather(core, inside, &lots, need.bytes)?;
        self.supply.assemble(inside, need)
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
            self.keep(inside, lot, &chunks)?;
            missing = missing.saturating_sub(chunks.iter().map(|chunk| chunk.bytes).sum());
        }
        Ok(())
    }

    /// Maps memory at addresses that are no lot's: a chunk that is kept, or else a new one.
    pub(crate) fn map_beyond(&self, need: Need) -> Result<Grown, CallError> {
        self.supply.grow(&mut self.supply.lock(), need)
    }

    /// As [`map_beyond`](Self::map_beyond), of whatever nobody has.
    pub(crate) fn gather_beyond(&self, core: &Core, need: Need) -> Result<Grown, CallError> {
        let inside = &mut *self.supply.lock();
        if let grown @ Grown::Chunks(_) = self.grown(core, inside, None, need)? {
            return Ok(grown);
        }
        // What is kept and longer than the room there is goes back, so that the driver can make what fits.
        let keep_bytes = self.supply.reserved_bytes().saturating_sub(need.bytes);
        match self.supply.release(inside, keep_bytes)? {
            0 => Ok(Grown::Nothing),
            _ => self.supply.assemble(inside, need),
        }
    }

    /// Unmaps a chunk of addresses that are no lot's, which nothing uses any more, and keeps its memory.
    pub(crate) fn unmap_beyond(&self, chunk: Chunk) -> Result<(), CallError> {
        self.supply.keep(&mut self.supply.lock(), chunk)
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
    fn keep(&self, inside: &mut Inside, lot: &Lot, chunks: &[Chunk]) -> Result<(), CallError> {
        for (index, &chunk) in chunks.iter().enumerate() {
            if let Err(error) = self.supply.keep(inside, chunk) {
                lot.refill(&chunks[index..]);
                return Err(error);
            }
        }
        if !self.supply.maps() {
            // A chunk is a region, whose addresses go with it.
            drop(lot.take_bare_regions());
        }
        Ok(())
    }

    /// Gives memory that nobody has back to the driver until the pool has no more than `keep_bytes`. How many bytes went.
    pub(crate) fn trim(&self, core: &Core, keep_bytes: u64) -> Result<u64, CallError> {
        let lots = self.book.lots();
        self.recall(core, &lots)?;
        if !self.supply.maps() {
            return self.trim_alone(core, &lots, keep_bytes);
        }
        let mut inside = self.supply.lock();
        let mut freed_bytes = self.supply.release(&mut inside, keep_bytes)?;
        for lot in &lots {
            let excess = self.supply.reserved_bytes().saturating_sub(keep_bytes);
            if excess == 0 {
                break;
            }
            let chunks = lot.empty(excess, |mark| core.has_passed(mark));
            self.keep(&mut inside, lot, &chunks)?;
            freed_bytes += self.supply.release(&mut inside, keep_bytes)?;
        }
        Ok(freed_bytes)
    }

    /// As [`trim`](Self::trim), of memory that came with its addresses. What cannot go yet is kept for whoever asks.
    fn trim_alone(&self, core: &Core, lots: &[Arc<Lot>], keep_bytes: u64) -> Result<u64, CallError> {
        if !core.is_all_idle() {
            return Ok(0);
        }
        let mut inside = self.supply.lock();
        for lot in lots {
            let excess = self.supply.reserved_bytes().saturating_sub(keep_bytes.saturating_add(inside.kept_bytes()));
            if excess == 0 {
                break;
            }
            let chunks = lot.empty(excess, |mark| core.has_passed(mark));
            self.keep(&mut inside, lot, &chunks)?;
        }
        drop(inside);
        self.release_alone(core, keep_bytes)
    }
}
