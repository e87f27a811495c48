//! The record of who owns which device memory outside the pool (vectors, imports, adopted memory), and when it may be
//! reused.
//!
//! A block goes from `Owned` to `Released` with fences, or directly to `Free` without, and is then forgotten. The
//! ledger only keeps records: it calls no driver, reads no clock, and does not know which process it runs in. Its owner
//! keeps it behind a lock that is held briefly: an operation costs about as much as its cache misses, except those that
//! list blocks.
//!
//! The pool keeps its own blocks in a page map instead. Entering and forgetting one block here takes 95 ns among a
//! thousand blocks and 630 ns among a million (`cargo bench -p freehold --bench ledger`, a virtual machine with two
//! cores), where the pool's whole pair of an allocation and a free takes 21 ns. And a page map has one word for each
//! granule of addresses that were reserved, while vectors, imports and adopted memory lie anywhere.

mod entry;
mod map;
mod page;
mod record;
mod traces;
mod wrong;

use std::time::Duration;

pub use entry::{BlockId, ContextId, EndReason, Entry, Fence, Kind, LedgerStats, Owner, Release, State, StreamId};
pub(crate) use wrong::WrongUse;
pub use wrong::{NotEntered, WrongRelease};

use map::RangeMap;
use record::{Record, Records, Stage};
use traces::Traces;

/// Who owns which span of device memory.
///
/// A [`BlockId`] whose generation is over is a bug in the caller: every function but [`Ledger::owner`] panics.
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
/// let block = ledger.enter(entry).expect("no block lies there");
/// assert_eq!(ledger.owner_of(0x1063).map(|owner| owner.block), Some(block));
/// assert_eq!(ledger.owner_of(0x1064), None); // beyond the 100 requested bytes
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
    /// Makes an empty ledger.
    pub fn new() -> Self {
        Self { records: Records::new(), map: RangeMap::new(), traces: Traces::new(), stats: LedgerStats::default() }
    }

    /// Records a block as owned. Traces of ended blocks in its span are erased.
    ///
    /// # Errors
    ///
    /// If the span overlaps a block that still exists, has no bytes, or overflows the address space.
    pub fn enter(&mut self, entry: Entry) -> Result<BlockId, NotEntered> {
        let Entry { base, bytes, capacity_bytes, .. } = entry;
        if bytes == 0 {
            return Err(NotEntered::Empty { base });
        }
        assert!(bytes <= capacity_bytes, "the capacity is at least the requested bytes");
        let Some(last) = base.checked_add(capacity_bytes - 1) else {
            return Err(NotEntered::BeyondAddresses { base, bytes: capacity_bytes });
        };
        self.clear(base, last)?;
        let index = self.records.add(entry);
        self.map.insert(&mut self.records, index);
        self.count(index, LedgerStats::add);
        Ok(self.records.line(index).id(index))
    }

    /// Returns the owner of the block that contains an address.
    #[inline]
    pub fn owner_of(&self, address: u64) -> Option<Owner> {
        let (index, record) = self.map.at(&self.records, address)?;
        record.owner(index)
    }

    /// Returns the owner of a block, unless the id's generation is over.
    pub fn owner(&self, block: BlockId) -> Option<Owner> {
        self.records.live(block)?.owner(block.index)
    }

    /// Returns the block that a release of an address would release. Changes nothing.
    ///
    /// # Errors
    ///
    /// If no owned block of the library's own begins at the address.
    pub fn releasable(&self, address: u64) -> Result<BlockId, WrongRelease> {
        let Some((index, record)) = self.map.at(&self.records, address) else {
            return Err(WrongRelease::NeverAllocated { address });
        };
        if record.stage == Stage::Owned && record.kind == Kind::Own && record.base == address {
            return Ok(record.id(index));
        }
        Err(self.wrong_release(index, address - record.base))
    }

    /// Releases a block: it is free when all fences are complete, or at once if there are none.
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

    /// Resizes an owned block at its end. It keeps its id, and its capacity equals its bytes afterwards.
    ///
    /// # Errors
    ///
    /// Those of [`Ledger::enter`]; the block is unchanged.
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
    /// The last 65,536 ended blocks are remembered until their addresses are recorded again, so that a late release can
    /// be explained. Adopted memory that is returned is not remembered: it may still exist where it came from.
    pub fn forget(&mut self, block: BlockId, why: EndReason) {
        self.live_mut(block);
        self.count(block.index, LedgerStats::subtract);
        let rest = self.records.rest_mut(block.index);
        rest.fences = Vec::new();
        if let EndReason::ContextDestroyed(when) = why {
            rest.set_when(when);
        }
        let record = self.records.line_mut(block.index);
        record.tag = None;
        record.generation = record.generation.wrapping_add(1);
        record.stage = match why {
            EndReason::Returned => Stage::Returned,
            EndReason::ContextDestroyed(_) => Stage::ContextDestroyed,
        };
        let silent = record.kind == Kind::Adopted && why == EndReason::Returned;
        self.traces.add(&mut self.records, block.index);
        let excess = if silent { Some(block.index) } else { self.traces.excess() };
        if let Some(index) = excess {
            self.erase(index);
        }
    }

    /// Notes that a context was destroyed with all of its blocks, of any kind and state. Returns them, by base.
    pub fn end_context(&mut self, context: ContextId, when: Duration) -> Vec<BlockId> {
        let of_context = |record: &Record| record.context == context;
        let blocks: Vec<BlockId> = self.list(of_context).into_iter().map(|owner| owner.block).collect();
        for &block in &blocks {
            self.forget(block, EndReason::ContextDestroyed(when));
        }
        blocks
    }

    /// Returns the owned blocks of the library's own, by base.
    pub fn owned(&self) -> Vec<Owner> {
        self.list(is_owned)
    }

    /// Returns how much memory is in each state, from running counters.
    pub fn stats(&self) -> LedgerStats {
        self.stats
    }

    fn live_mut(&mut self, block: BlockId) -> &mut Record {
        assert!(self.records.live(block).is_some(), "the id's generation is over");
        self.records.line_mut(block.index)
    }

    /// Returns the existing blocks that meet a condition, by base.
    fn list(&self, condition: impl Fn(&Record) -> bool) -> Vec<Owner> {
        let chosen = self.records.iter().filter(|(_, record)| condition(record));
        let mut owners: Vec<Owner> = chosen.filter_map(|(index, record)| record.owner(index)).collect();
        owners.sort_unstable_by_key(|owner| owner.base);
        owners
    }

    /// Erases the traces of ended blocks in a span, if no existing block is there.
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

    /// Erases the trace of a block.
    fn erase(&mut self, index: u32) {
        assert!(self.records.line(index).is_trace(), "only traces are erased");
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

    /// Returns the error for a release at an offset into a block that cannot be released that way.
    fn wrong_release(&self, index: u32, offset_bytes: u64) -> WrongRelease {
        let record = self.records.line(index);
        let rest = self.records.rest(index);
        let (base, bytes, allocated_at) = (record.base, record.bytes, Some(record.allocated_at));
        let owner = record.owner(index).filter(|owner| owner.state == State::Owned).map(Box::new);
        match (owner, record.kind) {
            (Some(of), Kind::Own) => WrongRelease::Interior { of, offset_bytes },
            (Some(of), Kind::Adopted) => WrongRelease::Adopted { of },
            (Some(of), Kind::Imported) => WrongRelease::Imported { of },
            (None, _) if record.stage == Stage::ContextDestroyed => {
                let when = rest.when().expect("a block that ended with its context has its time");
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

    /// Returns the counters of a stage, and how many bytes of a block count there.
    fn of(&mut self, stage: Stage, bytes: u64, capacity_bytes: u64) -> (&mut u64, &mut u64, u64) {
        match stage {
            Stage::Owned => (&mut self.owned_blocks, &mut self.owned_bytes, bytes),
            Stage::Released => (&mut self.released_blocks, &mut self.released_bytes, bytes),
            Stage::Free => (&mut self.free_blocks, &mut self.free_bytes, capacity_bytes),
            Stage::Vacant | Stage::Returned | Stage::ContextDestroyed => unreachable!("traces are not counted"),
        }
    }
}
