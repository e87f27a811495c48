//! Virtual memory management: reserved addresses, allocations without an address, and mappings between them.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use freehold_driver::cuda::{CUerror, CUmemAccess_flags, CUmemAllocationProp};

use super::arena::{ARENA_BYTES_MAX, Arena};
use super::backing::Backing;
use super::free_ranges::FreeRanges;
use super::mem_ref::MappingStatus;
use super::page_heap::PAGE_BYTES;
use crate::base::sync::lock;

/// Number of addresses that can be reserved.
const ADDRESS_BYTES: u64 = ARENA_BYTES_MAX;

/// The addresses that programs reserve. They belong to no device.
#[derive(Debug)]
pub(crate) struct AddressReservations {
    arena: Arena,
    reserved: Mutex<ReservationState>,
}

#[derive(Debug)]
struct ReservationState {
    /// In pages from the start of the arena.
    free: FreeRanges,
    /// Length in bytes by address.
    ranges: BTreeMap<u64, u64>,
}

impl AddressReservations {
    pub(crate) fn new(is_coherent: bool) -> io::Result<Self> {
        let reserved = ReservationState { free: FreeRanges::new(ADDRESS_BYTES / PAGE_BYTES), ranges: BTreeMap::new() };
        Ok(Self { arena: Arena::reserve(0, ADDRESS_BYTES, is_coherent)?, reserved: Mutex::new(reserved) })
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Reserves `bytes`, a number of whole pages, at a multiple of `alignment`: at `hint` if that is free, else
    /// anywhere.
    pub(crate) fn reserve(&self, bytes: u64, alignment: u64, hint: u64) -> Option<u64> {
        let base = self.arena.base();
        let pages = bytes / PAGE_BYTES;
        let mut reserved = lock(&self.reserved);
        let hinted = hint.checked_sub(base).filter(|offset| offset.is_multiple_of(PAGE_BYTES));
        let at_hint = hinted.map(|offset| offset / PAGE_BYTES).filter(|&page| reserved.free.alloc_at(page, pages));
        let page = at_hint.or_else(|| {
            let aligned = |page: u64| (base + page * PAGE_BYTES).next_multiple_of(alignment.max(PAGE_BYTES));
            reserved.free.alloc_aligned(pages, |page| (aligned(page) - base) / PAGE_BYTES)
        })?;
        let start = base + page * PAGE_BYTES;
        reserved.ranges.insert(start, bytes);
        Some(start)
    }

    /// Frees a whole reservation. Returns false if there is no reservation with this start and size.
    pub(crate) fn free(&self, start: u64, bytes: u64) -> bool {
        let mut reserved = lock(&self.reserved);
        let is_whole = reserved.ranges.get(&start) == Some(&bytes);
        if is_whole {
            reserved.ranges.remove(&start);
            reserved.free.free((start - self.arena.base()) / PAGE_BYTES, bytes / PAGE_BYTES);
        }
        is_whole
    }

    /// Returns whether one reservation contains the whole range.
    pub(crate) fn contains(&self, start: u64, bytes: u64) -> bool {
        self.containing(start).is_some_and(|(base, length)| bytes <= base + length - start)
    }

    /// Returns the start and length of the reservation that contains an address.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, u64)> {
        let reserved = lock(&self.reserved);
        let (&base, &length) = reserved.ranges.range(..=address).next_back()?;
        (address - base < length).then_some((base, length))
    }
}

/// Memory without an address.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) handle: u64,
    pub(crate) device: usize,
    pub(crate) prop: CUmemAllocationProp,
    pub(crate) memory: Arc<Backing>,
    /// References to the handle that the program holds.
    refcount: AtomicUsize,
}

impl Allocation {
    pub(crate) fn new(handle: u64, device: usize, prop: CUmemAllocationProp, memory: Arc<Backing>) -> Self {
        Self { handle, device, prop, memory, refcount: 1.into() }
    }

    /// Adds a reference to the handle. Returns false if the handle is dead.
    pub(crate) fn retain(&self) -> bool {
        let more = |count: usize| (count > 0).then_some(count + 1);
        self.refcount.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Drops a reference and returns whether it was the last.
    pub(crate) fn release(&self) -> Result<bool, CUerror> {
        let fewer = |count: usize| count.checked_sub(1);
        let before = self.refcount.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
        before.map(|before| before == 1).map_err(|_| CUerror::INVALID_VALUE)
    }
}

/// Memory mapped to reserved addresses.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) allocation: Arc<Allocation>,
    /// Access by device ordinal.
    access: Mutex<BTreeMap<usize, CUmemAccess_flags>>,
    /// Ends when the memory is unmapped: work that still accesses it faults.
    pub(crate) status: Arc<MappingStatus>,
}

impl Mapping {
    pub(crate) fn new(allocation: Arc<Allocation>) -> Self {
        let status = Arc::new(MappingStatus::new(allocation.memory.is_imported()));
        Self { allocation, access: Mutex::default(), status }
    }

    pub(crate) fn access(&self, device: usize) -> CUmemAccess_flags {
        lock(&self.access).get(&device).copied().unwrap_or(CUmemAccess_flags::PROT_NONE)
    }

    /// Returns whether no device has access.
    pub(crate) fn is_inaccessible(&self) -> bool {
        self.max_access() == CUmemAccess_flags::PROT_NONE
    }

    /// Returns the highest access that any device has.
    pub(crate) fn max_access(&self) -> CUmemAccess_flags {
        let most = lock(&self.access).values().map(|flags| flags.0).max();
        most.map_or(CUmemAccess_flags::PROT_NONE, CUmemAccess_flags)
    }

    pub(crate) fn set_access(&self, device: usize, flags: CUmemAccess_flags) {
        lock(&self.access).insert(device, flags);
    }
}
