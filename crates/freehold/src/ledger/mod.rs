//! The record of who owns which span of device memory, and when it may be used again.
//!
//! A block goes `Owned -> Released{fences}`, or at once to `Free` where there are none, and is forgotten. The ledger decides; it calls no
//! driver, reads no clock, and does not know in which process it runs. It lives behind a lock that its keeper holds
//! for a moment: an operation costs about as much as its cache misses, except those that list blocks.

mod entry;
mod map;
mod page;
mod record;
mod traces;
mod wrong;

use std::time::Duration;

pub use entry::{BlockId, ContextId, Entry, Fence, Gone, Kind, LedgerStats, Owner, Release, State, StreamId};
pub use wrong::{NotEntered, WrongRelease};

use map::RangeMap;
use record::{Record, Records, Stage};
use traces::Traces;

/// Who owns which span of device memory.
///
/// A [`BlockId`] whose generation is over is a mistake of the ledger's keeper: except in [`Ledger::owner`] it panics.
///
/// ```
/// use std::panic::Location;
/// use freehold::ledger::{ContextId, Entry, Kind, Ledger};
///
/// let mut ledger = Ledger::new();
/// let entry = Entry {
///     base: 0x1000,
///     bytes: 100,
///     capacity_bytes: 512,
///     context: ContextId(0),
///     stream: None,
///     process: 1,
///     kind: Kind::Own,
///     tag: None,
///     allocated_at: Location::caller(),
/// };
/// let block = ledger.enter(entry).expect("nothing lies there");
/// assert_eq!(ledger.owner_of(0x1063).map(|owner| owner.block), Some(block));
/// assert_eq!(ledger.owner_of(0x1064), None); // nobody asked for more than 100 bytes
/// ```
#[derive(Debug)]
pub struct Ledger {
    records: Records,
    map: RangeMap,
    traces: Traces,
    stats: LedgerStats,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// A ledger with no entry.
    pub fn new() -> Self {
        Self { records: Records::new(), map: RangeMap::new(), traces: Traces::new(), stats: LedgerStats::default() }
    }

    /// Enters a block as owned. What is remembered of blocks that are gone gives way to it.
    ///
    /// # Errors
    ///
    /// The span overlaps a block that is not gone, has no bytes, or ends beyond all addresses.
    pub fn enter(&mut self, entry: Entry) -> Result<BlockId, NotEntered> {
        let Entry { base, bytes, capacity_bytes, .. } = entry;
        if bytes == 0 {
            return Err(NotEntered::Empty { base });
        }
        assert!(bytes <= capacity_bytes, "the driver gave at least what was asked for");
        let Some(last) = base.checked_add(capacity_bytes - 1) else {
            return Err(NotEntered::BeyondAddresses { base, bytes: capacity_bytes });
        };
        self.clear(base, last)?;
        let index = self.records.add(entry);
        self.map.insert(&mut self.records, index);
        self.count(index, LedgerStats::add);
        Ok(self.records.line(index).id(index))
    }

    /// Who owns the block that an address lies in, at its base or further in.
    #[inline]
    pub fn owner_of(&self, address: u64) -> Option<Owner> {
        let (index, record) = self.map.at(&self.records, address)?;
        record.owner(index)
    }

    /// Who owns a block, unless the id's generation is over.
    pub fn owner(&self, block: BlockId) -> Option<Owner> {
        self.records.live(block)?.owner(block.index)
    }

    /// The block that a release of an address would release. Changes nothing.
    ///
    /// # Errors
    ///
    /// The address is no beginning of an owned block of our own.
    pub fn releasable(&self, address: u64) -> Result<BlockId, WrongRelease> {
        let Some((index, record)) = self.map.at(&self.records, address) else {
            return Err(WrongRelease::NeverAllocated { address });
        };
        if record.stage == Stage::Owned && record.kind == Kind::Own && record.base == address {
            return Ok(record.id(index));
        }
        Err(self.wrong_release(index, address - record.base))
    }

    /// Gives a block up: it is free when all fences have passed, at once where there are none.
    pub fn release(&mut self, block: BlockId, release: Release) {
        let record = self.live_mut(block);
        assert_eq!(record.stage, Stage::Owned, "a block is released by its owner, once");
        let waiting_for = u32::try_from(release.fences.len()).expect("a release has fewer than 2^32 fences");
        self.count(block.index, LedgerStats::subtract);
        let record = self.records.line_mut(block.index);
        record.stage = if waiting_for == 0 { Stage::Free } else { Stage::Released };
        record.waiting_for = waiting_for;
        let rest = self.records.rest_mut(block.index);
        rest.fences = release.fences;
        rest.released_at = release.released_at;
        rest.set_when(release.when);
        self.count(block.index, LedgerStats::add);
    }

    /// Gives an owned block more bytes behind what it has, or fewer. It keeps its id; what it has is all that it asked for.
    ///
    /// # Errors
    ///
    /// As of [`Ledger::enter`]; the block is as it was.
    pub fn resize(&mut self, block: BlockId, bytes: u64) -> Result<(), NotEntered> {
        let record = self.live_mut(block);
        assert_eq!(record.stage, Stage::Owned, "a block is resized by its owner");
        let base = record.base;
        if bytes == 0 {
            return Err(NotEntered::Empty { base });
        }
        let Some(last) = base.checked_add(bytes - 1) else {
            return Err(NotEntered::BeyondAddresses { base, bytes });
        };
        let last_before = self.records.last(block.index);
        if last > last_before {
            self.clear(last_before + 1, last)?;
        }
        self.count(block.index, LedgerStats::subtract);
        self.map.resize(&mut self.records, block.index, bytes);
        self.records.line_mut(block.index).bytes = bytes;
        self.count(block.index, LedgerStats::add);
        Ok(())
    }

    /// Notes that the memory of a block is gone, whatever its state was. The id is over.
    ///
    /// The 65,536 blocks that went last are remembered until their addresses are entered again, so that a late release
    /// is told what happened. Adopted memory that is given back is not: it may well be alive where it came from.
    pub fn forget(&mut self, block: BlockId, why: Gone) {
        self.live_mut(block);
        self.count(block.index, LedgerStats::subtract);
        let rest = self.records.rest_mut(block.index);
        rest.fences = Vec::new();
        if let Gone::ContextDestroyed(when) = why {
            rest.set_when(when);
        }
        let record = self.records.line_mut(block.index);
        record.tag = None;
        record.generation = record.generation.wrapping_add(1);
        record.stage = match why {
            Gone::GivenBack => Stage::GivenBack,
            Gone::ContextDestroyed(_) => Stage::ContextDestroyed,
        };
        let silent = record.kind == Kind::Adopted && why == Gone::GivenBack;
        self.traces.add(&mut self.records, block.index);
        let excess = if silent { Some(block.index) } else { self.traces.excess() };
        if let Some(index) = excess {
            self.erase(index);
        }
    }

    /// Notes that a context was destroyed and all of its blocks with it, of any kind and state: these, by base.
    pub fn end_context(&mut self, context: ContextId, when: Duration) -> Vec<BlockId> {
        let of_context = |record: &Record| record.context == context;
        let blocks: Vec<BlockId> = self.list(of_context).into_iter().map(|owner| owner.block).collect();
        for &block in &blocks {
            self.forget(block, Gone::ContextDestroyed(when));
        }
        blocks
    }

    /// The owned blocks of our own, by base.
    pub fn owned(&self) -> Vec<Owner> {
        self.list(is_owned)
    }

    /// How much there is in each state, without counting it anew.
    pub fn stats(&self) -> LedgerStats {
        self.stats
    }

    fn live_mut(&mut self, block: BlockId) -> &mut Record {
        assert!(self.records.live(block).is_some(), "a block is changed while its id's generation lasts");
        self.records.line_mut(block.index)
    }

    /// The blocks that are not gone and meet a condition, by base.
    fn list(&self, condition: impl Fn(&Record) -> bool) -> Vec<Owner> {
        let chosen = self.records.iter().filter(|(_, record)| condition(record));
        let mut owners: Vec<Owner> = chosen.filter_map(|(index, record)| record.owner(index)).collect();
        owners.sort_unstable_by_key(|owner| owner.base);
        owners
    }

    /// Erases what is remembered of blocks that were in a span, if no block that is not gone is there.
    fn clear(&mut self, first: u64, last: u64) -> Result<(), NotEntered> {
        let mut met = self.map.overlap(&self.records, first, last);
        let lone = met;
        while let Some(index) = met {
            if let Some(owner) = self.records.line(index).owner(index) {
                return Err(NotEntered::Overlap { base: first, bytes: last - first + 1, with: Box::new(owner) });
            }
            let end = self.records.last(index);
            met = if end < last { self.map.overlap(&self.records, end + 1, last) } else { None };
        }
        let mut trace = lone;
        while let Some(index) = trace {
            let end = self.records.last(index);
            self.erase(index);
            trace = if end < last { self.map.overlap(&self.records, end + 1, last) } else { None };
        }
        Ok(())
    }

    /// Forgets that a block was there.
    fn erase(&mut self, index: u32) {
        assert!(self.records.line(index).is_trace(), "only what is gone is erased");
        self.traces.remove(&mut self.records, index);
        self.map.remove(&mut self.records, index);
        self.records.vacate(index);
    }

    fn count(&mut self, index: u32, change: fn(&mut LedgerStats, Stage, u64, u64)) {
        let record = self.records.line(index);
        if record.kind == Kind::Own {
            change(&mut self.stats, record.stage, record.bytes, self.records.rest(index).capacity_bytes);
        }
    }

    /// What is wrong with a release at an offset into a block that is not to be released so.
    fn wrong_release(&self, index: u32, offset_bytes: u64) -> WrongRelease {
        let record = self.records.line(index);
        let rest = self.records.rest(index);
        let (base, bytes, allocated_at) = (record.base, record.bytes, record.allocated_at);
        let owner = record.owner(index).filter(|owner| owner.state == State::Owned).map(Box::new);
        match (owner, record.kind) {
            (Some(of), Kind::Own) => WrongRelease::Interior { of, offset_bytes },
            (Some(of), Kind::Adopted) => WrongRelease::Adopted { of },
            (Some(of), Kind::Imported) => WrongRelease::Imported { of },
            (None, _) if record.stage == Stage::ContextDestroyed => {
                let when = rest.when().expect("a block that went with its context has the time of it");
                WrongRelease::ContextDestroyed { base, bytes, allocated_at, when, offset_bytes }
            }
            (None, _) => {
                let (released_at, when) = (rest.released_at, rest.when());
                WrongRelease::AlreadyReleased { base, bytes, allocated_at, released_at, when, offset_bytes }
            }
        }
    }
}

fn is_owned(record: &Record) -> bool {
    record.stage == Stage::Owned && record.kind == Kind::Own
}

impl LedgerStats {
    fn add(&mut self, stage: Stage, bytes: u64, capacity_bytes: u64) {
        let (blocks, in_bytes, counted) = self.of(stage, bytes, capacity_bytes);
        *blocks += 1;
        *in_bytes += counted;
        self.held_bytes += capacity_bytes;
    }

    fn subtract(&mut self, stage: Stage, bytes: u64, capacity_bytes: u64) {
        let (blocks, in_bytes, counted) = self.of(stage, bytes, capacity_bytes);
        *blocks -= 1;
        *in_bytes -= counted;
        self.held_bytes -= capacity_bytes;
    }

    /// The counters of a stage, and how many bytes of a block count there.
    fn of(&mut self, stage: Stage, bytes: u64, capacity_bytes: u64) -> (&mut u64, &mut u64, u64) {
        match stage {
            Stage::Owned => (&mut self.owned_blocks, &mut self.owned_bytes, bytes),
            Stage::Released => (&mut self.released_blocks, &mut self.released_bytes, bytes),
            Stage::Free => (&mut self.free_blocks, &mut self.free_bytes, capacity_bytes),
            Stage::Vacant | Stage::GivenBack | Stage::ContextDestroyed => unreachable!("what is gone is not counted"),
        }
    }
}
