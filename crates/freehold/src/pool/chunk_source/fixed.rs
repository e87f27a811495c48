//! Chunks of a device that cannot map memory: a chunk comes from the driver with its own addresses, is one region of
//! its heap, and keeps its addresses until it is freed. Chunks are not joined, so a request may fail although enough is
//! free in total.

use std::sync::{Arc, PoisonError};

use freehold_driver::{CallError, DeviceMemory};

use super::{AddressSource, Budget, ChunkSource, LockedChunks, NewPoolError, SpareChunk, Visibility};
use crate::pool::extent_map::{Chunk, PAGE_BYTES};

/// The address window on both sides of the first chunk: a multiple of the device's memory, and its minimum. A driver's
/// addresses lie close together.
const WINDOW_TIMES: u64 = 4;
const WINDOW_BYTES_MIN: u64 = 64 << 30;

/// The shortest chunk, if memory allows it.
const CHUNK_BYTES_MIN: u64 = 16 << 20;

impl ChunkSource {
    /// Allocates the first chunk, which shows where the driver's addresses are.
    pub(super) fn fixed(
        memory: Arc<dyn DeviceMemory>,
        total_bytes: u64,
        budget: Arc<Budget>,
    ) -> Result<Self, NewPoolError> {
        let window_bytes = (total_bytes * WINDOW_TIMES).max(WINDOW_BYTES_MIN).next_multiple_of(PAGE_BYTES);
        let mut chunks = Self {
            memory,
            visibility: Visibility::Process,
            address_source: AddressSource::Allocator,
            base: 0,
            bytes: u64::MAX,
            total_bytes,
            budget,
            is_exportable: Default::default(),
            fixed: Default::default(),
            locked: Default::default(),
            described: Default::default(),
        };
        let first = chunks.create_fixed(&mut chunks.lock(), PAGE_BYTES)?;
        let first = first.ok_or(NewPoolError::Short { wanted_bytes: PAGE_BYTES })?;
        chunks.base = base_of(first).saturating_sub(window_bytes);
        chunks.bytes = base_of(first) - chunks.base + window_bytes;
        chunks.lock().spare.push(first);
        Ok(chunks)
    }

    /// Finds a chunk to be a region of its own: a spare one, or a new one. Returns its base and length; it stays
    /// spare until [`take_fixed`](Self::take_fixed).
    pub(in crate::pool) fn find_fixed(
        &self,
        locked: &mut LockedChunks,
        wanted_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        let fitting = locked.spare.iter().filter(|chunk| chunk.bytes >= wanted_bytes);
        let found = match fitting.min_by_key(|chunk| chunk.bytes).copied() {
            Some(chunk) => Some(chunk),
            None => {
                let preferred = self.create_fixed(locked, wanted_bytes.max(CHUNK_BYTES_MIN))?;
                let made = match preferred {
                    None if wanted_bytes < CHUNK_BYTES_MIN => self.create_fixed(locked, wanted_bytes)?,
                    preferred => preferred,
                };
                locked.spare.extend(made);
                made
            }
        };
        Ok(found.map(|chunk| (base_of(chunk), chunk.bytes)))
    }

    /// Takes the chunk that was found at a base.
    pub(in crate::pool) fn take_fixed(&self, locked: &mut LockedChunks, base: u64) -> Chunk {
        let index = locked.spare.iter().position(|&chunk| base_of(chunk) == base);
        let SpareChunk { handle, bytes } = locked.spare.swap_remove(index.expect("a chunk is taken when it was found"));
        Chunk { base, bytes, handle }
    }

    /// Allocates new memory with its addresses, if the driver has it, the budget allows it, and it lies in the address
    /// window. Memory that turns out unusable is kept as spare or set aside: freeing it now would wait for all work.
    fn create_fixed(&self, locked: &mut LockedChunks, bytes: u64) -> Result<Option<SpareChunk>, CallError> {
        // While unusable memory is set aside, no more is requested.
        if !locked.strays.is_empty() {
            return Ok(None);
        }
        loop {
            let asked_bytes = if locked.is_padded { bytes + PAGE_BYTES } else { bytes };
            let Some(chunk) = self.allocate_fixed(asked_bytes)? else { return Ok(None) };
            if !self.covers(base_of(chunk)) || !self.covers(base_of(chunk) + chunk.bytes) {
                locked.strays.push(chunk);
                return Ok(None);
            }
            self.fixed.write().unwrap_or_else(PoisonError::into_inner).push(chunk);
            if chunk.bytes >= bytes {
                return Ok(Some(chunk));
            }
            // It is a page shorter than requested, and serves shorter requests.
            locked.is_padded = true;
            locked.spare.push(chunk);
        }
    }

    /// Allocates memory from the driver and keeps its whole pages.
    fn allocate_fixed(&self, bytes: u64) -> Result<Option<SpareChunk>, CallError> {
        if !self.reserve_budget(bytes) {
            return Ok(None);
        }
        let made = self.memory.alloc(bytes);
        if made.is_err() {
            self.release_budget(bytes);
        }
        match made {
            Ok(start) if start.is_multiple_of(PAGE_BYTES) => Ok(Some(SpareChunk { handle: start, bytes })),
            Ok(start) => Ok(Some(SpareChunk { handle: start, bytes: bytes - PAGE_BYTES })),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Frees the unusable memory, which waits for all work of the context. Returns how many bytes were freed.
    pub(super) fn free_strays(&self, locked: &mut LockedChunks) -> Result<u64, CallError> {
        let mut freed_bytes = 0;
        while let Some(&chunk) = locked.strays.last() {
            freed_bytes += self.free_fixed(chunk)?;
            locked.strays.pop();
        }
        Ok(freed_bytes)
    }

    /// Frees a chunk, which waits for all work of the context. Returns how many bytes were freed.
    pub(super) fn free_fixed(&self, chunk: SpareChunk) -> Result<u64, CallError> {
        let wholes = || self.fixed.write().unwrap_or_else(PoisonError::into_inner);
        // Before another device can get the addresses.
        let had = wholes().extract_if(.., |whole| *whole == chunk).next();
        // SAFETY: the chunk is spare or unusable: nothing uses it, and it is freed once.
        if let Err(error) = unsafe { self.memory.free(chunk.handle) } {
            wholes().extend(had);
            return Err(error);
        }
        self.release_budget(given_bytes(chunk));
        Ok(given_bytes(chunk))
    }

    /// Returns the first result of `first` over the chunks' addresses.
    pub(super) fn first_fixed(&self, first: impl Fn(u64, u64) -> Option<u64>) -> Option<u64> {
        let wholes = self.fixed.read().unwrap_or_else(PoisonError::into_inner);
        wholes.iter().filter_map(|&chunk| first(base_of(chunk), chunk.bytes)).min()
    }

    pub(super) fn has_fixed(&self, address: u64) -> bool {
        let wholes = self.fixed.read().unwrap_or_else(PoisonError::into_inner);
        wholes.iter().any(|&chunk| address.wrapping_sub(base_of(chunk)) < chunk.bytes)
    }
}

/// Where a chunk's whole pages begin. The driver's own address is its handle.
fn base_of(chunk: SpareChunk) -> u64 {
    chunk.handle.next_multiple_of(PAGE_BYTES)
}

/// The bytes that the driver allocated for a chunk: one page more than its whole pages if it is not aligned.
fn given_bytes(chunk: SpareChunk) -> u64 {
    chunk.bytes + if chunk.handle.is_multiple_of(PAGE_BYTES) { 0 } else { PAGE_BYTES }
}
