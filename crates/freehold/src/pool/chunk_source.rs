//! Where the pool's memory comes from: addresses that are reserved once, and chunks of memory that the driver makes, that are
//! mapped to them, and that are kept for later where nobody needs them.
//!
//! Calls the driver, under its own lock and no other. None of these calls waits for the device, but those that give back memory
//! which came with its addresses: they are made where nothing is pending.

mod unmapped;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use freehold_driver::handle::Memory;
use freehold_driver::{Backend, BlockAnnotation, BlockLookupFn, CallError, Permission, Sharing, VirtualMemory};

use super::extent_map::{Chunk, MapRequest, PAGE_BYTES};
use crate::error::Error;

/// Addresses are reserved for so many times the device's memory, and at least so many.
const ADDRESSES_TIMES: u64 = 8;
const ADDRESSES_BYTES_MIN: u64 = 128 << 30;

/// A heap's first region.
const REGION_BYTES_MIN: u64 = 32 << 20;

/// Who can have the memory of a pool's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// This process.
    Process,
    /// Other processes too, chunk by chunk: so a block lies in one chunk.
    Shareable,
}

/// How memory gets its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressSource {
    /// It is mapped to addresses that were reserved.
    Mapped,
    /// It comes with addresses of its own.
    Allocator,
}

/// What all pools of a device have together.
#[derive(Debug)]
struct Budget {
    /// The most that they may have.
    budget_bytes: AtomicU64,
    /// What they have: mapped, or kept for later.
    reserved_bytes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct ChunkSource {
    backend: Arc<dyn Backend>,
    pub(crate) visibility: Visibility,
    address_source: AddressSource,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// All memory of the device.
    pub(crate) total_bytes: u64,
    budget: Arc<Budget>,
    /// What came with addresses of its own, and is not given back.
    unmapped: RwLock<Vec<CachedChunk>>,
    locked: Mutex<Locked>,
    /// Lets the device ask for the bounds of blocks, where it checks what kernels do, until the addresses go.
    described: Mutex<Option<BlockAnnotation>>,
}

#[derive(Debug, Default)]
pub(crate) struct Locked {
    /// Addresses from here on are no region's.
    used_bytes: u64,
    /// Addresses before that which are no region's any more: bases and lengths, by address and without neighbours.
    spare: Vec<(u64, u64)>,
    /// Chunks that are mapped nowhere.
    cached: Vec<CachedChunk>,
    /// Memory whose addresses the pool cannot tell apart, until it can be given back without waiting.
    strays: Vec<CachedChunk>,
    /// Whether the driver's addresses are no whole pages, so that one more is asked for.
    is_padded: bool,
    /// Chunks that are mapped where nobody knows of them, because the driver refused to unmap them.
    stranded: Vec<Chunk>,
}

impl Locked {
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Takes addresses back that were a region's.
    pub(crate) fn free_regions(&mut self, regions: Vec<(u64, u64)>) {
        self.spare.extend(regions);
        self.spare.sort_unstable();
        self.spare.dedup_by(|&mut (base, bytes), (before, before_bytes)| {
            let is_next = *before + *before_bytes == base;
            if is_next {
                *before_bytes += bytes;
            }
            is_next
        });
    }

    /// Addresses that were a region's before.
    fn alloc_spare(&mut self, bytes: u64) -> Option<u64> {
        let fitting = self.spare.iter_mut().filter(|(_, spare_bytes)| *spare_bytes >= bytes);
        let (base, spare_bytes) = fitting.min_by_key(|(_, spare_bytes)| *spare_bytes)?;
        let taken = *base;
        *base += bytes;
        *spare_bytes -= bytes;
        self.spare.retain(|&(_, bytes)| bytes > 0);
        Some(taken)
    }

    pub(crate) fn longest_cached_bytes(&self) -> u64 {
        self.cached.iter().map(|chunk| chunk.bytes).max().unwrap_or(0)
    }
}

/// Memory without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CachedChunk {
    handle: u64,
    bytes: u64,
}

/// What became of a selector for memory.
#[derive(Debug)]
pub(crate) enum MapOutcome {
    /// Mapped from the selector's base on.
    Chunks(Vec<Chunk>),
    /// There is not so much, or it may not be had.
    OutOfMemory,
}

impl ChunkSource {
    /// Reserves addresses, where the device can map memory to some.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Result<Self, Error> {
        let budget = Budget { budget_bytes: AtomicU64::new(u64::MAX), reserved_bytes: AtomicU64::new(0) };
        let (budget, total_bytes) = (Arc::new(budget), backend.total_bytes()?);
        if backend.virtual_memory().is_none() {
            return Self::unmapped(backend, total_bytes, budget);
        }
        match Self::with(backend.clone(), total_bytes, Visibility::Process, budget.clone()) {
            // A driver may know of it and not have the calls.
            Err(error) if error.is_unsupported() => Self::unmapped(backend, total_bytes, budget),
            outcome => Ok(outcome?),
        }
    }

    /// Whether memory is mapped to addresses, so that chunks can lie side by side.
    pub(crate) fn can_map(&self) -> bool {
        self.address_source == AddressSource::Mapped
    }

    /// Whether a block may lie in chunks that are side by side.
    pub(crate) fn can_assemble(&self) -> bool {
        self.can_map() && self.visibility == Visibility::Process
    }

    /// Counts bytes that are to be made, unless that is more than the budget. Another chunks has the same budget.
    fn reserve_budget(&self, bytes: u64) -> bool {
        let budget_bytes = self.budget_bytes();
        let within = |reserved: u64| reserved.checked_add(bytes).filter(|&sum| sum <= budget_bytes);
        self.budget.reserved_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Takes bytes off again that were set aside.
    fn release_budget(&self, bytes: u64) {
        self.budget.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// As [`new`](Self::new), for memory that other processes can have, out of the same budget.
    pub(crate) fn shareable(&self) -> Result<Self, CallError> {
        Self::with(self.backend.clone(), self.total_bytes, Visibility::Shareable, self.budget.clone())
    }

    fn with(
        backend: Arc<dyn Backend>,
        total_bytes: u64,
        visibility: Visibility,
        budget: Arc<Budget>,
    ) -> Result<Self, CallError> {
        let mut bytes = (total_bytes * ADDRESSES_TIMES).max(ADDRESSES_BYTES_MIN).next_multiple_of(1 << 30);
        let base = loop {
            match mapping(&*backend).reserve(bytes, PAGE_BYTES) {
                Ok(base) => break base,
                // A process may be allowed fewer addresses than that.
                Err(error) if error.is_out_of_memory() && bytes > total_bytes => bytes /= 2,
                Err(error) => return Err(error),
            }
        };
        Ok(Self {
            backend,
            visibility,
            address_source: AddressSource::Mapped,
            base,
            bytes,
            total_bytes,
            budget,
            unmapped: RwLock::default(),
            locked: Mutex::default(),
            described: Mutex::default(),
        })
    }

    /// What the driver gave, to all pools of the device.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.budget.reserved_bytes.load(Ordering::Relaxed)
    }

    /// What all pools of the device may have.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget.budget_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_budget_bytes(&self, bytes: u64) {
        self.budget.budget_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether an address is one of those that the pool can tell apart. Those of two devices that map nothing may be the same.
    pub(crate) fn covers(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    /// Whether an address is one of this chunks's alone: it was reserved, or came with memory that the chunks has.
    pub(crate) fn has(&self, address: u64) -> bool {
        match self.address_source {
            AddressSource::Mapped => self.covers(address),
            AddressSource::Allocator => self.has_unmapped(address),
        }
    }

    /// The first address of a range that is this chunks's alone.
    pub(crate) fn first_within(&self, range: Range<u64>) -> Option<u64> {
        let first = |base: u64, bytes: u64| {
            let first = base.max(range.start);
            (first < range.end.min(base + bytes)).then_some(first)
        };
        match self.address_source {
            AddressSource::Mapped => first(self.base, self.bytes),
            AddressSource::Allocator => self.first_unmapped(first),
        }
    }

    /// The most that one block can ever have.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.budget_bytes().min(self.total_bytes)
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.lock().cached_bytes()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`lock`](Self::lock), unless somebody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Locked>> {
        match self.locked.try_lock() {
            Ok(locked) => Some(locked),
            Err(TryLockError::Poisoned(locked)) => Some(locked.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Addresses for a heap: a region with room for `wanted_bytes`, and for as much again as it has.
    pub(crate) fn region(&self, locked: &mut Locked, wanted_bytes: u64, had_bytes: u64) -> Option<(u64, u64)> {
        let left = self.bytes - locked.used_bytes;
        let least = wanted_bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let selector = least.max(had_bytes).max(REGION_BYTES_MIN).next_multiple_of(PAGE_BYTES);
        let bytes = if selector <= left { selector } else { least };
        if bytes > left {
            return locked.alloc_spare(least).map(|base| (base, least));
        }
        let base = self.base + locked.used_bytes;
        locked.used_bytes += bytes;
        Some((base, bytes))
    }

    /// Maps memory where it is needed: a chunk that is kept, or else a new one.
    pub(crate) fn grow(&self, locked: &mut Locked, need: MapRequest) -> Result<MapOutcome, CallError> {
        self.unmap_stranded(locked)?;
        let fitting =
            locked.cached.iter().enumerate().filter(|(_, chunk)| (need.bytes..=need.room_bytes).contains(&chunk.bytes));
        if let Some((index, _)) = fitting.min_by_key(|(_, chunk)| chunk.bytes) {
            let chunk = locked.cached.swap_remove(index);
            return self.map(locked, need.base, vec![chunk]);
        }
        match self.create(need.bytes)? {
            Some(chunk) => self.map(locked, need.base, vec![chunk]),
            None => Ok(MapOutcome::OutOfMemory),
        }
    }

    /// Maps chunks that are kept side by side, and a new one for what they lack. Where a block lies in one chunk, those that are
    /// too short go back to the driver instead, for one that is not.
    pub(crate) fn assemble(&self, locked: &mut Locked, need: MapRequest) -> Result<MapOutcome, CallError> {
        self.unmap_stranded(locked)?;
        if self.visibility == Visibility::Shareable {
            if let grown @ MapOutcome::Chunks(_) = self.grow(locked, need)? {
                return Ok(grown);
            }
            let keep_bytes = self.reserved_bytes().saturating_sub(need.bytes);
            self.release(locked, keep_bytes)?;
            return self.grow(locked, need);
        }
        locked.cached.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.bytes));
        let (mut chunks, mut bytes, mut index) = (Vec::new(), 0, 0);
        while bytes < need.bytes && index < locked.cached.len() {
            if bytes + locked.cached[index].bytes <= need.room_bytes {
                bytes += locked.cached[index].bytes;
                chunks.push(locked.cached.remove(index));
            } else {
                index += 1;
            }
        }
        if bytes < need.bytes {
            match self.create(need.bytes - bytes) {
                Ok(Some(chunk)) => chunks.push(chunk),
                outcome => {
                    locked.cached.append(&mut chunks);
                    return outcome.map(|_| MapOutcome::OutOfMemory);
                }
            }
        }
        self.map(locked, need.base, chunks)
    }

    /// New memory, if there is some and the budget allows it.
    fn create(&self, bytes: u64) -> Result<Option<CachedChunk>, CallError> {
        if !self.reserve_budget(bytes) {
            return Ok(None);
        }
        let created = match self.visibility {
            Visibility::Process => self.mapping().create(bytes),
            Visibility::Shareable => self.sharing().create_shareable(bytes),
        };
        if created.is_err() {
            self.release_budget(bytes);
        }
        match created {
            Ok(handle) => Ok(Some(CachedChunk { handle: handle.as_raw(), bytes })),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn map(&self, locked: &mut Locked, base: u64, mut cached: Vec<CachedChunk>) -> Result<MapOutcome, CallError> {
        let mut chunks = Vec::with_capacity(cached.len());
        let mut next = base;
        let mapped = cached.iter().try_for_each(|chunk| {
            // SAFETY: the addresses are the pool's, nothing is mapped there, and the chunk has so many bytes.
            unsafe { self.mapping().map(next, chunk.bytes, memory(chunk.handle)) }?;
            chunks.push(Chunk { base: next, bytes: chunk.bytes, handle: chunk.handle });
            next += chunk.bytes;
            Ok(())
        });
        // SAFETY: all of it was mapped above, and nobody has it yet.
        let permit = || unsafe { self.mapping().set_access(base, next - base, Permission::ReadWrite) };
        let mapped = mapped.and_then(|()| permit());
        let Err(error) = mapped else { return Ok(MapOutcome::Chunks(chunks)) };
        locked.cached.extend(cached.split_off(chunks.len()));
        locked.stranded.append(&mut chunks);
        self.unmap_stranded(locked).and(Err(error))
    }

    /// Unmaps what the driver refused to unmap before, and keeps it. What lies in the way of other chunks goes so.
    fn unmap_stranded(&self, locked: &mut Locked) -> Result<(), CallError> {
        while let Some(&chunk) = locked.stranded.last() {
            self.unmap_and_cache(locked, chunk)?;
            locked.stranded.pop();
        }
        Ok(())
    }

    /// Unmaps a chunk that nothing uses any more, and keeps its memory for later.
    pub(crate) fn unmap_and_cache(&self, locked: &mut Locked, chunk: Chunk) -> Result<(), CallError> {
        if self.can_map() {
            // SAFETY: a chunk is one mapping, and nothing uses it any more.
            unsafe { self.mapping().unmap(chunk.base, chunk.bytes) }?;
        }
        locked.cached.push(CachedChunk { handle: chunk.handle, bytes: chunk.bytes });
        Ok(())
    }

    /// Gives memory that is kept back to the driver until the pool has no more than `keep_bytes`. How many bytes went.
    pub(crate) fn release(&self, locked: &mut Locked, keep_bytes: u64) -> Result<u64, CallError> {
        self.unmap_stranded(locked)?;
        let mut freed_bytes = self.free_strays(locked)?;
        while self.reserved_bytes() > keep_bytes && !locked.cached.is_empty() {
            freed_bytes += self.release_one(locked)?;
        }
        Ok(freed_bytes)
    }

    /// Gives the memory that was kept last back to the driver. How many bytes went.
    pub(crate) fn release_one(&self, locked: &mut Locked) -> Result<u64, CallError> {
        let Some(chunk) = locked.cached.last().copied() else { return Ok(0) };
        if !self.can_map() {
            let freed_bytes = self.free_unmapped(chunk)?;
            locked.cached.pop();
            return Ok(freed_bytes);
        }
        // SAFETY: the chunk is kept: it is mapped nowhere, and is named for the last time.
        unsafe { self.mapping().release(memory(chunk.handle)) }?;
        locked.cached.pop();
        self.release_budget(chunk.bytes);
        Ok(chunk.bytes)
    }

    /// A descriptor of a chunk that other processes can have.
    pub(crate) fn export(&self, chunk: Chunk) -> Result<OwnedFd, CallError> {
        // SAFETY: the chunk is there, and was made to be shared.
        unsafe { self.sharing().export(memory(chunk.handle)) }
    }

    /// Gives back everything, of which nobody has had anything yet.
    pub(crate) fn close(&self) -> Result<(), CallError> {
        self.release(&mut self.lock(), 0)?;
        self.free_addresses()
    }

    /// Has the device ask for the blocks at these addresses, where it checks what kernels do.
    pub(crate) fn describe(&self, look_up: BlockLookupFn) {
        let described = self.backend.annotate_blocks(self.base, self.bytes, look_up);
        *self.described.lock().unwrap_or_else(PoisonError::into_inner) = described;
    }

    /// Gives the addresses back, to which nothing is mapped any more.
    pub(crate) fn free_addresses(&self) -> Result<(), CallError> {
        drop(self.described.lock().unwrap_or_else(PoisonError::into_inner).take());
        // SAFETY: they were reserved as a whole, and nothing is mapped there any more.
        if self.can_map() { unsafe { self.mapping().unreserve(self.base, self.bytes) } } else { Ok(()) }
    }

    fn mapping(&self) -> &dyn VirtualMemory {
        mapping(&*self.backend)
    }

    fn sharing(&self) -> &dyn Sharing {
        self.backend.sharing().expect("memory for others is of a device that shares")
    }
}

/// The handle of a chunk's memory, which is kept as a number.
fn memory(handle: u64) -> Memory {
    // SAFETY: it is the number of one that `create` made, and that was not released yet.
    unsafe { Memory::from_raw(handle) }
}

fn mapping(backend: &dyn Backend) -> &dyn VirtualMemory {
    backend.virtual_memory().expect("what is mapped is of a device that maps")
}
