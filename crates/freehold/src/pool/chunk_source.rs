//! The source of the pool's memory: addresses that are reserved once, and chunks of memory that the driver creates,
//! which are mapped there, and spare while no heap needs them.
//!
//! Calls the driver, holding its own lock only. None of these calls waits for the device, except to free memory that
//! the driver allocated together with its addresses; that is done when nothing is pending.

mod asleep;
mod fixed;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use freehold_driver::handle::Memory;
use freehold_driver::{
    BlockAnnotation, BlockChange, BlockLookupFn, CallError, DeviceMemory, Permission, Sharing, VirtualMemory,
};

use super::extent_map::{Chunk, MapRequest, PAGE_BYTES};

/// The reserved address space, as a multiple of the device's memory, and its minimum.
const ADDRESSES_TIMES: u64 = 8;
const ADDRESSES_BYTES_MIN: u64 = 128 << 30;

/// The size of a heap's first region.
const REGION_BYTES_MIN: u64 = 32 << 20;

/// Which processes can map the memory of a pool's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// This process only.
    Process,
    /// Other processes too, chunk by chunk: so a block lies in one chunk.
    Shareable,
}

/// Why a pool could not be created.
#[derive(Debug)]
pub(crate) enum NewPoolError {
    /// The device has no memory for `wanted_bytes`, the least that a pool needs.
    Short {
        wanted_bytes: u64,
    },
    /// The process may not reserve enough address space for the pool's metadata.
    System(rustix::io::Errno),
    Call(CallError),
}

impl From<CallError> for NewPoolError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// How memory gets its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressSource {
    /// Memory is mapped to reserved addresses.
    Mapped,
    /// Memory comes with its own addresses.
    Allocator,
}

/// The budget that all pools of a device share.
#[derive(Debug)]
struct Budget {
    /// The upper limit.
    budget_bytes: AtomicU64,
    /// The memory that they have now, mapped or spare.
    reserved_bytes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct ChunkSource {
    memory: Arc<dyn DeviceMemory>,
    pub(crate) visibility: Visibility,
    address_source: AddressSource,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// The device's total memory.
    pub(crate) total_bytes: u64,
    budget: Arc<Budget>,
    /// Whether new chunks can be exported although blocks span them.
    is_exportable: AtomicBool,
    /// Chunks that came with their own addresses and were not freed yet.
    fixed: RwLock<Vec<SpareChunk>>,
    locked: Mutex<LockedChunks>,
    /// Lets a device that checks kernels' accesses look up the bounds of blocks, until the addresses are freed.
    described: Mutex<Option<BlockAnnotation>>,
}

#[derive(Debug, Default)]
pub(crate) struct LockedChunks {
    /// Addresses from here on belong to no region.
    used_bytes: u64,
    /// Free addresses below that: bases and lengths, sorted and coalesced.
    free_regions: Vec<(u64, u64)>,
    /// Chunks that are not mapped.
    spare: Vec<SpareChunk>,
    /// Memory outside the pool's address window, until it can be freed without waiting.
    strays: Vec<SpareChunk>,
    /// Whether the driver's addresses are not page-aligned, so that a page more is requested.
    is_padded: bool,
    /// Chunks that are mapped outside all heaps because the driver refused to unmap them.
    stranded: Vec<Chunk>,
    /// The numbers of other devices that may access all chunks.
    peers: Vec<i32>,
    /// Whether the chunks of all heaps are addresses only: none of them has memory.
    is_asleep: bool,
}

impl LockedChunks {
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Takes back the addresses of regions.
    pub(crate) fn return_regions(&mut self, regions: Vec<(u64, u64)>) {
        self.free_regions.extend(regions);
        self.free_regions.sort_unstable();
        self.free_regions.dedup_by(|&mut (base, bytes), (before, before_bytes)| {
            let is_next = *before + *before_bytes == base;
            if is_next {
                *before_bytes += bytes;
            }
            is_next
        });
    }

    /// Allocates addresses that a region used before.
    fn alloc_free_region(&mut self, bytes: u64) -> Option<u64> {
        let fitting = self.free_regions.iter_mut().filter(|(_, region_bytes)| *region_bytes >= bytes);
        let (base, region_bytes) = fitting.min_by_key(|(_, region_bytes)| *region_bytes)?;
        let taken = *base;
        *base += bytes;
        *region_bytes -= bytes;
        self.free_regions.retain(|&(_, bytes)| bytes > 0);
        Some(taken)
    }

    pub(crate) fn longest_spare_bytes(&self) -> u64 {
        self.spare.iter().map(|chunk| chunk.bytes).max().unwrap_or(0)
    }
}

/// Memory that is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpareChunk {
    handle: u64,
    bytes: u64,
}

/// The result of a request for memory.
#[derive(Debug)]
pub(crate) enum MapOutcome {
    /// Mapped from the request's base on.
    Chunks(Vec<Chunk>),
    /// Not enough memory, or the budget does not allow it.
    OutOfMemory,
}

impl ChunkSource {
    /// Reserves addresses, if the device can map memory.
    pub(crate) fn new(memory: Arc<dyn DeviceMemory>) -> Result<Self, NewPoolError> {
        let budget = Budget { budget_bytes: AtomicU64::new(u64::MAX), reserved_bytes: AtomicU64::new(0) };
        let (budget, total_bytes) = (Arc::new(budget), memory.total_bytes()?);
        if memory.virtual_memory().is_none() {
            return Self::fixed(memory, total_bytes, budget);
        }
        match Self::with(memory.clone(), total_bytes, Visibility::Process, budget.clone()) {
            // A driver may know the feature and lack the calls.
            Err(error) if error.is_unsupported() => Self::fixed(memory, total_bytes, budget),
            outcome => Ok(outcome?),
        }
    }

    /// Whether memory is mapped to reserved addresses, so that chunks can be adjacent.
    pub(crate) fn can_map(&self) -> bool {
        self.address_source == AddressSource::Mapped
    }

    /// Whether a block may span adjacent chunks.
    pub(crate) fn can_assemble(&self) -> bool {
        self.can_map() && self.visibility == Visibility::Process
    }

    /// Counts bytes against the budget, unless they exceed it. Other chunk sources share the budget.
    fn reserve_budget(&self, bytes: u64) -> bool {
        let budget_bytes = self.budget_bytes();
        let within = |reserved: u64| reserved.checked_add(bytes).filter(|&sum| sum <= budget_bytes);
        self.budget.reserved_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Returns bytes to the budget.
    fn release_budget(&self, bytes: u64) {
        self.budget.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Like [`new`](Self::new), for memory that other processes can map, from the same budget.
    pub(crate) fn shareable(&self) -> Result<Self, CallError> {
        Self::with(self.memory.clone(), self.total_bytes, Visibility::Shareable, self.budget.clone())
    }

    /// Like [`new`](Self::new), with addresses of its own, from the same budget.
    pub(crate) fn separate(&self) -> Result<Self, CallError> {
        let separate = Self::with(self.memory.clone(), self.total_bytes, Visibility::Process, self.budget.clone())?;
        separate.set_peers(&self.peers());
        Ok(separate)
    }

    fn with(
        memory: Arc<dyn DeviceMemory>,
        total_bytes: u64,
        visibility: Visibility,
        budget: Arc<Budget>,
    ) -> Result<Self, CallError> {
        let mut bytes = (total_bytes * ADDRESSES_TIMES).max(ADDRESSES_BYTES_MIN).next_multiple_of(1 << 30);
        let base = loop {
            match mapping(&*memory).reserve(bytes, PAGE_BYTES) {
                Ok(base) => break base,
                // A process may be limited to fewer addresses.
                Err(error) if error.is_out_of_memory() && bytes > total_bytes => bytes /= 2,
                Err(error) => return Err(error),
            }
        };
        Ok(Self {
            memory,
            visibility,
            address_source: AddressSource::Mapped,
            base,
            bytes,
            total_bytes,
            budget,
            is_exportable: AtomicBool::new(false),
            fixed: RwLock::default(),
            locked: Mutex::default(),
            described: Mutex::default(),
        })
    }

    /// Returns the memory that all pools of the device have from the driver.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.budget.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Returns the limit for all pools of the device.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget.budget_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_budget_bytes(&self, bytes: u64) {
        self.budget.budget_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether an address lies in the pool's address window. The windows of two devices that map nothing may overlap.
    pub(crate) fn covers(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    /// Whether an address belongs to this source alone: it was reserved, or came with memory that the source has.
    pub(crate) fn has(&self, address: u64) -> bool {
        match self.address_source {
            AddressSource::Mapped => self.covers(address),
            AddressSource::Allocator => self.has_fixed(address),
        }
    }

    /// Returns the first address of a range that belongs to this source alone.
    pub(crate) fn first_within(&self, range: Range<u64>) -> Option<u64> {
        let first = |base: u64, bytes: u64| {
            let first = base.max(range.start);
            (first < range.end.min(base + bytes)).then_some(first)
        };
        match self.address_source {
            AddressSource::Mapped => first(self.base, self.bytes),
            AddressSource::Allocator => self.first_fixed(first),
        }
    }

    /// Returns the largest size that a block can ever have.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.budget_bytes().min(self.total_bytes)
    }

    pub(crate) fn spare_bytes(&self) -> u64 {
        self.lock().spare_bytes()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LockedChunks> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`lock`](Self::lock), unless the lock is held.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, LockedChunks>> {
        match self.locked.try_lock() {
            Ok(locked) => Some(locked),
            Err(TryLockError::Poisoned(locked)) => Some(locked.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Allocates a region for a heap: with space for `wanted_bytes` and, if addresses are left, as long as what the
    /// heap has.
    pub(crate) fn region(&self, locked: &mut LockedChunks, wanted_bytes: u64, had_bytes: u64) -> Option<(u64, u64)> {
        let left = self.bytes - locked.used_bytes;
        let least = wanted_bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let preferred_bytes = least.max(had_bytes).max(REGION_BYTES_MIN).next_multiple_of(PAGE_BYTES);
        let bytes = if preferred_bytes <= left { preferred_bytes } else { least };
        if bytes > left {
            return locked.alloc_free_region(least).map(|base| (base, least));
        }
        let base = self.base + locked.used_bytes;
        locked.used_bytes += bytes;
        Some((base, bytes))
    }

    /// Maps memory for a request: a spare chunk, or a new one.
    pub(crate) fn grow(&self, locked: &mut LockedChunks, need: MapRequest) -> Result<MapOutcome, CallError> {
        if locked.is_asleep {
            return Ok(MapOutcome::Chunks(vec![Chunk::without_memory(need.base, need.bytes)]));
        }
        self.unmap_stranded(locked)?;
        let fitting =
            locked.spare.iter().enumerate().filter(|(_, chunk)| (need.bytes..=need.room_bytes).contains(&chunk.bytes));
        if let Some((index, _)) = fitting.min_by_key(|(_, chunk)| chunk.bytes) {
            let chunk = locked.spare.swap_remove(index);
            return self.map(locked, need.base, vec![chunk]);
        }
        match self.create(need.bytes)? {
            Some(chunk) => self.map(locked, need.base, vec![chunk]),
            None => Ok(MapOutcome::OutOfMemory),
        }
    }

    /// Maps spare chunks side by side, and a new one for the rest. Where a block must lie in one chunk, chunks that
    /// are too short go back to the driver instead, to make space for one that is not.
    pub(crate) fn assemble(&self, locked: &mut LockedChunks, need: MapRequest) -> Result<MapOutcome, CallError> {
        if locked.is_asleep {
            return self.grow(locked, need);
        }
        self.unmap_stranded(locked)?;
        if self.visibility == Visibility::Shareable {
            if let grown @ MapOutcome::Chunks(_) = self.grow(locked, need)? {
                return Ok(grown);
            }
            let keep_bytes = self.reserved_bytes().saturating_sub(need.bytes);
            self.release(locked, keep_bytes)?;
            return self.grow(locked, need);
        }
        locked.spare.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.bytes));
        let (mut chunks, mut bytes, mut index) = (Vec::new(), 0, 0);
        while bytes < need.bytes && index < locked.spare.len() {
            if bytes + locked.spare[index].bytes <= need.room_bytes {
                bytes += locked.spare[index].bytes;
                chunks.push(locked.spare.remove(index));
            } else {
                index += 1;
            }
        }
        if bytes < need.bytes {
            match self.create(need.bytes - bytes) {
                Ok(Some(chunk)) => chunks.push(chunk),
                outcome => {
                    locked.spare.append(&mut chunks);
                    return outcome.map(|_| MapOutcome::OutOfMemory);
                }
            }
        }
        self.map(locked, need.base, chunks)
    }

    /// Creates new memory, if the driver has it and the budget allows it.
    fn create(&self, bytes: u64) -> Result<Option<SpareChunk>, CallError> {
        if !self.reserve_budget(bytes) {
            return Ok(None);
        }
        let created = match self.visibility {
            Visibility::Process if !self.is_exportable.load(Ordering::Relaxed) => self.mapping().create(bytes),
            Visibility::Process | Visibility::Shareable => self.sharing().create_shareable(bytes),
        };
        if created.is_err() {
            self.release_budget(bytes);
        }
        match created {
            Ok(handle) => Ok(Some(SpareChunk { handle: handle.as_raw(), bytes })),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn map(&self, locked: &mut LockedChunks, base: u64, mut spare: Vec<SpareChunk>) -> Result<MapOutcome, CallError> {
        let mut chunks = Vec::with_capacity(spare.len());
        let mut next = base;
        let mapped = spare.iter().try_for_each(|chunk| {
            // SAFETY: the addresses are the pool's, nothing is mapped there, and the chunk has that many bytes.
            unsafe { self.mapping().map(next, chunk.bytes, memory(chunk.handle)) }?;
            chunks.push(Chunk { base: next, bytes: chunk.bytes, handle: chunk.handle });
            next += chunk.bytes;
            Ok(())
        });
        // SAFETY: all of it was mapped above, and has no owner yet.
        let permit = || unsafe { self.mapping().set_access(base, next - base, Permission::ReadWrite) };
        let permit_peers = || match &*locked.peers {
            [] => Ok(()),
            // SAFETY: as above.
            peers => unsafe { self.mapping().set_peer_access(base, next - base, peers) },
        };
        let mapped = mapped.and_then(|()| permit()).and_then(|()| permit_peers());
        let Err(error) = mapped else { return Ok(MapOutcome::Chunks(chunks)) };
        locked.spare.extend(spare.split_off(chunks.len()));
        locked.stranded.append(&mut chunks);
        self.unmap_stranded(locked).and(Err(error))
    }

    /// Unmaps and caches chunks that the driver refused to unmap before, including those in the way of other chunks.
    fn unmap_stranded(&self, locked: &mut LockedChunks) -> Result<(), CallError> {
        while let Some(&chunk) = locked.stranded.last() {
            self.unmap_mapped(locked, chunk)?;
            locked.stranded.pop();
        }
        Ok(())
    }

    /// Unmaps a chunk that is no longer used, and caches its memory.
    pub(crate) fn unmap_and_keep(&self, locked: &mut LockedChunks, chunk: Chunk) -> Result<(), CallError> {
        if locked.is_asleep {
            return Ok(());
        }
        self.unmap_mapped(locked, chunk)
    }

    fn unmap_mapped(&self, locked: &mut LockedChunks, chunk: Chunk) -> Result<(), CallError> {
        if self.can_map() {
            // SAFETY: a chunk is one mapping, and it is no longer used.
            unsafe { self.mapping().unmap(chunk.base, chunk.bytes) }?;
        }
        locked.spare.push(SpareChunk { handle: chunk.handle, bytes: chunk.bytes });
        Ok(())
    }

    /// Returns spare memory to the driver until the pool has at most `keep_bytes`. Returns how many bytes were
    /// returned.
    pub(crate) fn release(&self, locked: &mut LockedChunks, keep_bytes: u64) -> Result<u64, CallError> {
        self.unmap_stranded(locked)?;
        let mut freed_bytes = self.free_strays(locked)?;
        while self.reserved_bytes() > keep_bytes && !locked.spare.is_empty() {
            freed_bytes += self.release_one(locked)?;
        }
        Ok(freed_bytes)
    }

    /// Returns the chunk that became spare last to the driver. Returns its size in bytes.
    pub(crate) fn release_one(&self, locked: &mut LockedChunks) -> Result<u64, CallError> {
        let Some(chunk) = locked.spare.last().copied() else { return Ok(0) };
        if !self.can_map() {
            let freed_bytes = self.free_fixed(chunk)?;
            locked.spare.pop();
            return Ok(freed_bytes);
        }
        // SAFETY: the chunk is spare: it is not mapped, and its handle is not used again.
        unsafe { self.mapping().release(memory(chunk.handle)) }?;
        locked.spare.pop();
        self.release_budget(chunk.bytes);
        Ok(chunk.bytes)
    }

    /// Makes chunks that are created from now on exportable. Returns whether the device can export memory.
    pub(crate) fn make_exportable(&self) -> bool {
        let can_export = self.can_map() && self.memory.sharing().is_some();
        self.is_exportable.store(can_export, Ordering::Relaxed);
        can_export
    }

    /// Makes chunks that are mapped from now on accessible to other devices, by their numbers.
    pub(crate) fn set_peers(&self, peers: &[i32]) {
        self.lock().peers = peers.to_vec();
    }

    /// Returns the numbers of the devices that may access what is mapped from now on.
    pub(crate) fn peers(&self) -> Vec<i32> {
        self.lock().peers.clone()
    }

    /// Makes these chunks, which heaps have, and all that are mapped from now on accessible to other devices.
    pub(crate) fn permit_peers(
        &self,
        locked: &mut LockedChunks,
        peers: &[i32],
        chunks: &[Chunk],
    ) -> Result<(), CallError> {
        // Sleeping chunks become accessible when they are mapped again.
        let are_mapped = self.can_map() && !locked.is_asleep;
        let chunks = if are_mapped && !peers.is_empty() { chunks } else { &[] };
        chunks.iter().try_for_each(|chunk| {
            // SAFETY: a chunk that a heap has is mapped, and is unmapped only with the lock.
            unsafe { self.mapping().set_peer_access(chunk.base, chunk.bytes, peers) }
        })?;
        locked.peers = peers.to_vec();
        Ok(())
    }

    /// Exports a chunk as a descriptor that other processes can import.
    pub(crate) fn export(&self, chunk: Chunk) -> Result<OwnedFd, CallError> {
        // SAFETY: the chunk exists, and was created to be shared.
        unsafe { self.sharing().export(memory(chunk.handle)) }
    }

    /// Returns everything to the driver; nothing was allocated yet.
    pub(crate) fn close(&self) -> Result<(), CallError> {
        self.release(&mut self.lock(), 0)?;
        self.free_addresses()
    }

    /// Registers a lookup of the blocks at these addresses, on a device that checks kernels' accesses.
    pub(crate) fn describe(&self, look_up: BlockLookupFn) {
        let described = self.memory.annotate_blocks(self.base, self.bytes, look_up);
        *self.described.lock().unwrap_or_else(PoisonError::into_inner) = described;
    }

    /// Returns whether a checker wants to know what happens to each block.
    pub(crate) fn is_checked(&self) -> bool {
        self.memory.is_checked()
    }

    /// Tells the checker what happens to a block, if there is a checker. It knows no sleeping blocks.
    pub(crate) fn announce(&self, change: BlockChange) {
        if self.is_checked() {
            let locked = self.lock();
            if !locked.is_asleep {
                self.announce_now(change);
            }
        }
    }

    /// Tells the checker what happens to a block. Only if there is a checker.
    pub(super) fn announce_now(&self, change: BlockChange) {
        self.memory.announce(change);
    }

    /// Frees the addresses, to which nothing is mapped.
    pub(crate) fn free_addresses(&self) -> Result<(), CallError> {
        drop(self.described.lock().unwrap_or_else(PoisonError::into_inner).take());
        // SAFETY: they were reserved as a whole, and nothing is mapped there.
        if self.can_map() { unsafe { self.mapping().unreserve(self.base, self.bytes) } } else { Ok(()) }
    }

    fn mapping(&self) -> &dyn VirtualMemory {
        mapping(&*self.memory)
    }

    fn sharing(&self) -> &dyn Sharing {
        self.memory.sharing().expect("shareable memory belongs to a device that can share")
    }
}

/// Converts the stored number of a chunk's memory into its handle.
fn memory(handle: u64) -> Memory {
    // SAFETY: it is the number of a handle that `create` made and that was not released yet.
    unsafe { Memory::from_raw(handle) }
}

fn mapping(memory: &dyn DeviceMemory) -> &dyn VirtualMemory {
    memory.virtual_memory().expect("mapped memory belongs to a device that can map")
}
