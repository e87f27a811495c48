//! What a pool knows of its blocks, apart from the driver: records, slabs, the table that leads to them, and the lots.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use freehold_driver::BlockBounds;
use rustix::io;

use super::heap::PAGE_BYTES;
use super::lot::Lot;
use super::outside::ContextId;
use super::record::{Gone, Record, Seen, Stage};
use super::shelf::{Note, Shelf};
use super::slab::Slab;
use super::table::{Entry, Table};
use crate::fork::Family;

/// Numbers of pools: no two of a process have the same, ever.
static POOLS: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) number: u32,
    /// The process that made the pool. Its forks have a copy, whose locks may be held for ever.
    pub(crate) process: u32,
    pub(crate) family: Family,
    pub(crate) records: Shelf<Record>,
    pub(crate) slabs: Shelf<Slab>,
    pub(crate) table: Table,
    lots: RwLock<Vec<Arc<Lot>>>,
    /// The context of each lot, by its number.
    contexts: Shelf<Note>,
    /// How often a lot had nothing for a request: the pool's clock.
    pub(crate) misses: AtomicU64,
}

impl Book {
    /// A book without blocks for so many bytes of addresses, unless the system has no addresses for what it may have to note.
    pub(crate) fn new(base: u64, bytes: u64, family: Family) -> io::Result<Self> {
        Ok(Self {
            number: POOLS.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            family,
            records: Shelf::new()?,
            slabs: Shelf::new()?,
            table: Table::new(base, bytes).ok_or(io::Errno::NOMEM)?,
            lots: RwLock::default(),
            contexts: Shelf::new()?,
            misses: AtomicU64::new(0),
        })
    }

    /// The record of the block that begins at an address, or that a slab has there.
    #[inline]
    pub(crate) fn record_at(&self, address: u64) -> Option<&Record> {
        match self.table.at(address) {
            Entry::Nothing => None,
            Entry::Record(number) => Some(self.records.at(number)),
            Entry::Slab(number) => {
                let number = self.slabs.at(number).record_at(address)?;
                Some(self.records.at(number))
            }
        }
    }

    /// The record of the block that an address lies in, at its beginning or further in. Takes a lock where the block begins more
    /// than a page before.
    pub(crate) fn record_around(&self, address: u64) -> Option<&Record> {
        if !self.table.has(address) {
            return None;
        }
        // The block begins in this granule, or is a slab's.
        if let Some(found) = self.record_at(address) {
            return Some(found);
        }
        match self.table.last_up_to(address, PAGE_BYTES) {
            Some((at, Entry::Record(number))) if at < address => {
                let found = self.records.at(number);
                (address.wrapping_sub(found.base()) < found.capacity_bytes()).then_some(found)
            }
            // Behind the blocks of a slab lies none.
            Some(_) => None,
            None => {
                let base = self.read_lots().iter().find_map(|lot| lot.taken_at(address))?;
                self.record_at(base)
            }
        }
    }

    /// The bounds of the block that an address lies in, or in what its size class has beyond them.
    pub(crate) fn bounds_at(&self, address: u64) -> Option<BlockBounds> {
        let Seen { state, base, bytes, capacity_bytes, .. } = self.record_around(address)?.seen();
        let is_live = match state.stage() {
            Stage::Owned => true,
            // One that nobody has had yet was not released.
            Stage::Parked | Stage::Waiting if bytes > 0 => false,
            _ => return None,
        };
        (address.wrapping_sub(base) < capacity_bytes).then_some(BlockBounds { base, bytes, is_live })
    }

    /// The last block that lay at an address, and is no more.
    pub(crate) fn gone_at(&self, address: u64) -> Option<Gone> {
        self.table.has(address).then(|| self.lots().iter().find_map(|lot| lot.gone_at(address)))?
    }

    /// The context of a lot's stream. Takes no lock.
    pub(crate) fn context_of(&self, lot: u32) -> ContextId {
        ContextId(self.contexts.at(lot).0.load(Ordering::Relaxed))
    }

    /// Notes that a lot is one of another context from now on.
    pub(crate) fn note_context(&self, lot: &Lot) {
        self.contexts.at(lot.number).0.store(lot.context().0, Ordering::Relaxed);
    }

    pub(crate) fn lot(&self, number: u32) -> Arc<Lot> {
        self.read_lots()[number as usize].clone()
    }

    /// Makes a lot of the next number.
    pub(crate) fn add_lot(&self, make: impl FnOnce(u32) -> Lot) -> Arc<Lot> {
        let mut lots = self.lots.write().unwrap_or_else(PoisonError::into_inner);
        let lot = Arc::new(make(u32::try_from(lots.len()).expect("fewer lots than a u32 counts")));
        assert_eq!(self.contexts.add(1), lot.number, "a lot's context has the lot's number");
        self.note_context(&lot);
        lots.push(lot.clone());
        lot
    }

    pub(crate) fn lots(&self) -> Vec<Arc<Lot>> {
        self.read_lots().clone()
    }

    fn read_lots(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<Lot>>> {
        self.lots.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::record::Site;

    #[test]
    fn a_block_is_disowned_once() {
        let records = Shelf::<Record>::new().unwrap();
        let record = records.at(records.add(1));
        record.begin(4096, 1024, 7, 0, Site::at_place(0), 0);
        assert_eq!(record.disown(4096).unwrap_err().stage(), Stage::Parked);
        record.own(1000);
        assert_eq!(record.disown(4097).unwrap_err().stage(), Stage::Owned);
        assert!(!record.disown(4096).unwrap().is_used_elsewhere());
        assert_eq!(record.disown(4096).unwrap_err().stage(), Stage::Parked);
        record.own(10);
        record.note_used_elsewhere(4096).unwrap();
        assert!(record.disown(4096).unwrap().is_used_elsewhere());
        assert_eq!(record.seen().bytes, 10);
    }
}
