//! Pools for stream-ordered allocation.
//!
//! Each free block carries the fences at which it was freed. A stream can reuse it without a wait if it comes after
//! those fences: they are in the same stream, or it waited for an event after them, or they have completed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::{CUerror, CUmemAccess_flags, CUmemPool_attribute, CUmemoryPool};

use crate::base::check;
use crate::base::sync::lock;
use crate::engine::queue::{Fence, Queue};
use crate::memory::arena::HOST_READ_WRITE;
use crate::memory::backing::Backing;
use crate::memory::device_memory::DeviceMemory;
use crate::memory::page_heap::GRANULE_BYTES;

/// The unit in which a pool takes memory from its device, at addresses that it has reserved before.
pub(crate) const CHUNK_BYTES: u64 = 32 << 20;

/// A pool reserves addresses for at least this fraction of its device's memory at a time. There are sixteen times as
/// many addresses as memory, so there are enough for over a hundred pools.
const SEGMENTS_PER_DEVICE: u64 = 8;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) handle: CUmemoryPool,
    /// The ordinal of its device.
    pub(crate) device: usize,
    device_memory: Arc<DeviceMemory>,
    pub(crate) origin: Origin,
    /// Maximum memory that the pool may take from its device.
    max_bytes: u64,
    /// The pool's memory. The offset of a block in it equals the offset of its address in the device's arena.
    pub(crate) memory: Arc<Backing>,
    is_destroyed: AtomicBool,
    state: Mutex<State>,
}

/// The origin of a pool, which decides the operations it allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The default pool of its device.
    Default,
    Created,
    /// Created to be shared with other processes.
    Exportable,
    /// Imported from another process: its blocks are opened one by one, and none can be allocated.
    Imported,
}

#[derive(Debug)]
struct State {
    /// Size in bytes of each range of reserved addresses, by start. A multiple of the chunk size.
    segments: BTreeMap<u64, u64>,
    /// Free address ranges by start.
    free: BTreeMap<u64, FreeBlock>,
    /// Blocks in use, by address.
    live: BTreeMap<u64, LiveBlock>,
    /// The block that was freed last, which is tried first.
    last_freed: Option<u64>,
    /// Frees since the free ranges were last coalesced.
    frees_since_coalesce: usize,
    reserved_bytes: u64,
    reserved_high: u64,
    used_bytes: u64,
    used_high: u64,
    follow_events: bool,
    opportunistic: bool,
    internal_dependencies: bool,
    release_threshold: u64,
    /// Access of other devices, by ordinal.
    access: BTreeMap<i32, CUmemAccess_flags>,
}

/// A block in use.
#[derive(Debug, Clone, Copy)]
struct LiveBlock {
    /// The requested size, which counts as used.
    requested_bytes: u64,
    /// The size that the block occupies.
    bytes: u64,
}

/// A range of free addresses within one segment.
#[derive(Debug, Clone)]
struct FreeBlock {
    segment: u64,
    bytes: u64,
    /// Whether there is memory behind the range. A chunk is backed as a whole or not at all.
    is_backed: bool,
    /// The fences at which it was freed. Empty once all have completed.
    fences: Vec<Fence>,
}

/// Memory for a stream, which must wait for `after` before it accesses the memory.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) address: u64,
    pub(crate) dependencies: Vec<Fence>,
}

/// The strategies for a request, cheapest first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// Free memory that the stream comes after.
    Reuse,
    /// The same, extended by new memory.
    Grow,
    /// Any free memory, with a wait that the driver inserts.
    Wait,
}

impl Pool {
    pub(crate) fn new(
        handle: CUmemoryPool,
        device: usize,
        device_memory: Arc<DeviceMemory>,
        origin: Origin,
        max_bytes: u64,
        memory: Arc<Backing>,
    ) -> Self {
        Self {
            memory,
            handle,
            device,
            device_memory,
            origin,
            max_bytes: if max_bytes == 0 { u64::MAX } else { max_bytes },
            is_destroyed: false.into(),
            state: Mutex::new(State {
                segments: BTreeMap::new(),
                free: BTreeMap::new(),
                live: BTreeMap::new(),
                last_freed: None,
                frees_since_coalesce: 0,
                reserved_bytes: 0,
                reserved_high: 0,
                used_bytes: 0,
                used_high: 0,
                follow_events: true,
                opportunistic: true,
                internal_dependencies: true,
                release_threshold: 0,
                access: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Allocates memory that `queue` can use without a wait: free memory that it comes after, or new memory of the
    /// device.
    pub(crate) fn try_alloc(&self, bytes: u64, queue: &Queue) -> Option<Grant> {
        let attempt = |strategy| self.attempt(bytes, queue, strategy);
        let grown = || {
            self.reserve(bytes);
            let grant = attempt(Strategy::Grow);
            if grant.is_none() {
                self.state().drop_empty_segments(&self.device_memory);
            }
            grant
        };
        attempt(Strategy::Reuse).or_else(|| attempt(Strategy::Grow)).or_else(grown)
    }

    /// Allocates memory after other pools have returned what they do not use: new memory of the device, or free memory
    /// with a wait.
    pub(crate) fn alloc_after_trim(&self, bytes: u64, queue: &Queue) -> Option<Grant> {
        let waiting =
            || if self.state().internal_dependencies { self.attempt(bytes, queue, Strategy::Wait) } else { None };
        self.attempt(bytes, queue, Strategy::Grow).or_else(waiting)
    }

    fn attempt(&self, bytes: u64, queue: &Queue, strategy: Strategy) -> Option<Grant> {
        self.state().try_alloc(&self.memory, self.max_bytes, bytes, queue, strategy)
    }

    /// Reserves addresses for at least `bytes` more, and some to grow.
    fn reserve(&self, bytes: u64) {
        let device = &self.device_memory;
        let Some(least) = bytes.checked_next_multiple_of(CHUNK_BYTES) else { return };
        if least > device.bytes.next_multiple_of(CHUNK_BYTES) {
            return;
        }
        let most = (device.bytes / SEGMENTS_PER_DEVICE).next_multiple_of(CHUNK_BYTES).max(least);
        let found = [most, least].into_iter().find_map(|bytes| Some((device.reserve(bytes)?, bytes)));
        if let Some((segment, bytes)) = found {
            if device
                .arena
                .attach(segment, &self.memory, segment - device.arena.base(), bytes, HOST_READ_WRITE)
                .is_err()
            {
                return device.unreserve(segment, bytes);
            }
            let mut state = self.state();
            state.segments.insert(segment, bytes);
            state.free.insert(segment, FreeBlock { segment, bytes, is_backed: false, fences: Vec::new() });
        }
    }

    /// Overwrites a freed block.
    pub(crate) fn poison(&self, base: u64, bytes: u64) {
        if !self.memory.is_shared() {
            let arena = &self.device_memory.arena;
            arena.poison_written(base, bytes, &self.memory, base - arena.base());
        }
    }

    /// Frees a block at a fence in a stream, or without an order.
    pub(crate) fn free(&self, address: u64, at: Option<Fence>) {
        self.state().free(address, at);
    }

    /// Returns free chunks whose fences have completed to the device, down to `keep_bytes`.
    pub(crate) fn trim(&self, keep_bytes: u64) {
        let device = &self.device_memory;
        let mut state = self.state();
        if state.reserved_bytes <= keep_bytes {
            return;
        }
        state.coalesce();
        let chunks: Vec<_> = state.free.iter().flat_map(|(&at, block)| block.whole_chunks(at)).collect();
        for chunk in chunks {
            if state.reserved_bytes - CHUNK_BYTES < keep_bytes {
                break;
            }
            state.split_chunk(chunk, |block| block.is_backed = false);
            state.reserved_bytes -= CHUNK_BYTES;
            // If the hole cannot be punched, the memory merely stays; a damaged usage file is reported by the next
            // charge.
            drop(self.memory.punch_hole(chunk - device.arena.base(), CHUNK_BYTES));
            drop(self.memory.uncharge(CHUNK_BYTES));
        }
        state.coalesce();
        state.drop_empty_segments(device);
    }

    /// Destroys the handle. Blocks in use stay until they are freed.
    pub(crate) fn destroy(&self) {
        self.is_destroyed.store(true, Ordering::Release);
    }

    /// Returns whether the pool is destroyed and holds no memory.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_destroyed.load(Ordering::Acquire) && self.state().reserved_bytes == 0
    }

    /// Returns how much memory the pool may keep when the program synchronizes.
    pub(crate) fn retained_bytes(&self) -> u64 {
        if self.is_destroyed.load(Ordering::Acquire) { 0 } else { self.state().release_threshold }
    }

    /// Returns the value of an attribute. Switches are 0 or 1.
    pub(crate) fn attribute(&self, attribute: CUmemPool_attribute) -> Result<u64, CUerror> {
        let state = self.state();
        Ok(match attribute {
            CUmemPool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES => state.follow_events.into(),
            CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC => state.opportunistic.into(),
            CUmemPool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => state.internal_dependencies.into(),
            CUmemPool_attribute::RELEASE_THRESHOLD => state.release_threshold,
            CUmemPool_attribute::RESERVED_MEM_CURRENT => state.reserved_bytes,
            CUmemPool_attribute::RESERVED_MEM_HIGH => state.reserved_high,
            CUmemPool_attribute::USED_MEM_CURRENT => state.used_bytes,
            CUmemPool_attribute::USED_MEM_HIGH => state.used_high,
            _ => return Err(CUerror::INVALID_VALUE),
        })
    }

    /// Sets an attribute. The high-water marks can only be reset: zero sets them to the current value.
    pub(crate) fn set_attribute(&self, attribute: CUmemPool_attribute, value: u64) -> Result<(), CUerror> {
        let mut state = self.state();
        match attribute {
            CUmemPool_attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES => state.follow_events = value != 0,
            CUmemPool_attribute::REUSE_ALLOW_OPPORTUNISTIC => state.opportunistic = value != 0,
            CUmemPool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => state.internal_dependencies = value != 0,
            CUmemPool_attribute::RELEASE_THRESHOLD => state.release_threshold = value,
            CUmemPool_attribute::RESERVED_MEM_HIGH if value == 0 => state.reserved_high = state.reserved_bytes,
            CUmemPool_attribute::USED_MEM_HIGH if value == 0 => state.used_high = state.used_bytes,
            _ => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }

    pub(crate) fn access(&self, ordinal: i32) -> Option<CUmemAccess_flags> {
        self.state().access.get(&ordinal).copied()
    }

    pub(crate) fn set_access(&self, ordinal: i32, flags: CUmemAccess_flags) {
        self.state().access.insert(ordinal, flags);
    }
}

impl FreeBlock {
    /// Returns the backed chunks that lie wholly in this block, if all its fences have completed.
    fn whole_chunks(&self, at: u64) -> impl Iterator<Item = u64> {
        let end = if self.is_backed && self.fences.is_empty() { at + self.bytes } else { at };
        let first = self.segment + (at - self.segment).next_multiple_of(CHUNK_BYTES);
        (first..end).step_by(CHUNK_BYTES as usize).filter(move |chunk| chunk + CHUNK_BYTES <= end)
    }
}

impl State {
    fn try_alloc(
        &mut self,
        memory: &Backing,
        max_bytes: u64,
        requested_bytes: u64,
        queue: &Queue,
        strategy: Strategy,
    ) -> Option<Grant> {
        let bytes = check::guarded(requested_bytes).checked_next_multiple_of(GRANULE_BYTES)?;
        let clock = queue.clock();
        let (follow, opportunistic) = (self.follow_events, self.opportunistic);
        let comes_after = |fence: &Fence| {
            fence.queue.id == queue.id
                || fence.queue.is_observed(fence.seq)
                || follow && clock.includes(fence)
                || opportunistic && fence.is_complete()
        };
        let usable = |block: &FreeBlock| match strategy {
            Strategy::Reuse => block.is_backed && block.fences.iter().all(comes_after),
            Strategy::Grow => block.fences.iter().all(comes_after),
            Strategy::Wait => block.is_backed,
        };
        let last_freed = self
            .last_freed
            .take()
            .filter(|address| self.free.get(address).is_some_and(|block| block.bytes >= bytes && usable(block)));
        let start = last_freed.or_else(|| first_fit(&self.free, bytes, usable))?;
        self.commit(memory, max_bytes, start, bytes)?;
        let is_needed = |fence: &Fence| !comes_after(fence);
        let after = self.carve(start, bytes).into_iter().filter(is_needed).collect();
        self.live.insert(start, LiveBlock { requested_bytes, bytes });
        self.used_bytes += requested_bytes;
        self.used_high = self.used_high.max(self.used_bytes);
        Some(Grant { address: start, dependencies: after })
    }

    /// Attaches memory to all chunks of a run of free addresses, or changes nothing.
    fn commit(&mut self, memory: &Backing, max_bytes: u64, start: u64, bytes: u64) -> Option<()> {
        let (&segment, _) = self.segments.range(..=start).next_back()?;
        let first = start - (start - segment) % CHUNK_BYTES;
        let chunks = (first..start + bytes).step_by(CHUNK_BYTES as usize);
        let bare: Vec<_> = chunks.filter(|&chunk| !self.is_backed(chunk.max(start))).collect();
        let wanted_bytes = bare.len() as u64 * CHUNK_BYTES;
        let fits = wanted_bytes == 0 || self.reserved_bytes + wanted_bytes <= max_bytes;
        if !fits || wanted_bytes > 0 && !memory.charge(wanted_bytes).unwrap_or(false) {
            return None;
        }
        for chunk in bare {
            self.split_chunk(chunk, |block| block.is_backed = true);
        }
        self.reserved_bytes += wanted_bytes;
        self.reserved_high = self.reserved_high.max(self.reserved_bytes);
        Some(())
    }

    /// Returns whether there is memory behind a free address.
    fn is_backed(&self, address: u64) -> bool {
        let found = self.free.range(..=address).next_back();
        found.expect("a run of free addresses has no gap").1.is_backed
    }

    /// Splits a chunk off the block that contains it, and changes it.
    fn split_chunk(&mut self, chunk: u64, change: impl FnOnce(&mut FreeBlock)) {
        let (&at, whole) = self.free.range(..=chunk).next_back().expect("the chunk is free");
        let whole = whole.clone();
        let (end, chunk_end) = (at + whole.bytes, chunk + CHUNK_BYTES);
        if at < chunk {
            self.free.insert(at, FreeBlock { bytes: chunk - at, ..whole.clone() });
        }
        if chunk_end < end {
            self.free.insert(chunk_end, FreeBlock { bytes: end - chunk_end, ..whole.clone() });
        }
        let mut middle = FreeBlock { bytes: CHUNK_BYTES, ..whole };
        change(&mut middle);
        self.free.insert(chunk, middle);
    }

    /// Removes `bytes` from `start` on from the free addresses, and returns their fences.
    fn carve(&mut self, start: u64, bytes: u64) -> Vec<Fence> {
        let (mut at, end) = (start, start + bytes);
        let mut freed = Vec::new();
        while at < end {
            let block = self.free.remove(&at).expect("a run of free addresses has no gap");
            freed.extend(block.fences.iter().cloned());
            let block_end = at + block.bytes;
            if block_end > end {
                self.free.insert(end, FreeBlock { bytes: block_end - end, ..block });
            }
            at = block_end;
        }
        freed
    }

    fn free(&mut self, address: u64, at: Option<Fence>) {
        let live = self.live.remove(&address).expect("a live span of a pool is a live block of it");
        self.used_bytes -= live.requested_bytes;
        let (&segment, _) = self.segments.range(..=address).next_back().expect("a block lies in a segment");
        self.free
            .insert(address, FreeBlock { segment, bytes: live.bytes, is_backed: true, fences: Vec::from_iter(at) });
        self.last_freed = Some(address);
        self.frees_since_coalesce += 1;
        if self.frees_since_coalesce > self.free.len().max(64) {
            self.coalesce();
        }
    }

    /// Drops completed fences and merges adjacent ranges without fences.
    fn coalesce(&mut self) {
        self.frees_since_coalesce = 0;
        let mut merged: BTreeMap<u64, FreeBlock> = BTreeMap::new();
        for (address, mut block) in std::mem::take(&mut self.free) {
            block.fences.retain(|fence| !fence.is_complete());
            if let Some(mut last) = merged.last_entry()
                && last.key() + last.get().bytes == address
                && last.get().segment == block.segment
                && last.get().is_backed == block.is_backed
                && last.get().fences.is_empty()
                && block.fences.is_empty()
            {
                last.get_mut().bytes += block.bytes;
                continue;
            }
            merged.insert(address, block);
        }
        self.free = merged;
    }

    /// Releases the addresses of segments without memory.
    fn drop_empty_segments(&mut self, device: &DeviceMemory) {
        let State { segments, free, .. } = self;
        segments.retain(|segment, bytes| {
            let is_empty = |block: &FreeBlock| !block.is_backed && block.bytes == *bytes;
            let keep = !free.get(segment).is_some_and(is_empty);
            if !keep {
                free.remove(segment);
                device.unreserve(*segment, *bytes);
            }
            keep
        });
    }
}

/// Returns the start of the first run of adjacent usable ranges of one segment that holds `bytes`. A run starts with
/// backed memory if possible: a pool grows by unbacked addresses after free memory.
fn first_fit(free: &BTreeMap<u64, FreeBlock>, bytes: u64, usable: impl Fn(&FreeBlock) -> bool) -> Option<u64> {
    let mut run: Option<(u64, u64, u64)> = None;
    for (&address, block) in free {
        if !usable(block) {
            run = None;
            continue;
        }
        let (start, end) = match run {
            Some((segment, start, end)) if segment == block.segment && end == address => (start, end + block.bytes),
            _ => (address, address + block.bytes),
        };
        if end - start >= bytes {
            return Some(start);
        }
        run = Some((block.segment, start, end));
    }
    None
}
