//! Maps memory for a heap, or outside all heaps: spare chunks, new ones, and free chunks of other heaps, which are
//! unmapped there.

use std::sync::Arc;

use freehold_driver::CallError;

use super::chunk_source::{LockedChunks, MapOutcome};
use super::device_pool::Pool;
use super::device_work::DeviceWork;
use super::extent_map::{self, Chunk, MapRequest};
use super::stream_heap::StreamHeap;

/// Chunks of resting streams are moved, before new ones are created, if more than this fraction of the pool's memory is
/// free there.
const IDLE_PART: u64 = 8;

/// A stream's own chunks are moved with them only if more than this fraction is free in its heap. Removing a chunk from
/// the middle of a stream's working set splits the free ranges on both sides for good, so fewer requests fit: with
/// random lifetimes, moving at an eighth ended with more memory than growing did.
const OWN_IDLE_PART: u64 = 4;

impl Pool {
    /// Maps memory in the heap's addresses and allocates an extent of it. [`map_chunks`](Self::map_chunks) says where
    /// the memory comes from. Returns `None` if there is none.
    pub(super) fn grow(
        &self,
        device: &dyn DeviceWork,
        heap: &StreamHeap,
        bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        let mut locked = self.chunks.lock();
        if let Some(meta) = self.grow_at(device, heap, &mut locked, bytes, 0)? {
            return Ok(Some(meta));
        }
        // A spare chunk may be longer than the hole: try again with addresses for the longest one. Memory that comes
        // with its addresses has no hole to fit into.
        if !self.chunks.can_map() {
            return Ok(None);
        }
        match locked.longest_spare_bytes() {
            0 => Ok(None),
            longest => self.grow_at(device, heap, &mut locked, bytes, longest),
        }
    }

    /// Maps memory for a block, at addresses after which `spare_bytes` more are free.
    fn grow_at(
        &self,
        device: &dyn DeviceWork,
        heap: &StreamHeap,
        locked: &mut LockedChunks,
        bytes: u64,
        spare_bytes: u64,
    ) -> Result<Option<u32>, CallError> {
        if !heap.has_meta(&self.table) {
            return Ok(None);
        }
        let mut need = heap.map_request(bytes, spare_bytes);
        if need.is_none() {
            let room_bytes = bytes.next_multiple_of(extent_map::PAGE_BYTES) + spare_bytes;
            let Some((base, region_bytes)) = self.region(device, locked, room_bytes, heap.mapped_bytes())? else {
                return Ok(None);
            };
            heap.add_region(base, region_bytes);
            need = heap.map_request(bytes, spare_bytes);
        }
        let (need, claimed) = need.expect("a region was added that is long enough");
        // Small requests do not move the heap's own chunks.
        let own = Some(heap).filter(|_| bytes >= extent_map::PAGE_BYTES);
        let grown = self.map_chunks(device, locked, own, need);
        match grown {
            Ok(MapOutcome::Chunks(chunks)) => {
                let meta = heap.add_chunks(&self.table, claimed, &chunks, bytes);
                Ok(Some(meta.expect("the new mapping and the claimed range are long enough")))
            }
            Ok(MapOutcome::OutOfMemory) => {
                heap.unclaim(claimed);
                Ok(None)
            }
            Err(error) => {
                heap.unclaim(claimed);
                Err(error)
            }
        }
    }

    /// Finds addresses for a heap: unused ones, or regions of other heaps in which nothing is mapped.
    fn region(
        &self,
        device: &dyn DeviceWork,
        locked: &mut LockedChunks,
        room_bytes: u64,
        had_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        if !self.chunks.can_map() {
            return self.fixed_region(device, locked, room_bytes);
        }
        if let Some(region) = self.chunks.region(locked, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        let heaps = self.heaps.all();
        heaps.iter().for_each(|heap| locked.return_regions(heap.take_bare_regions()));
        if let Some(region) = self.chunks.region(locked, room_bytes, had_bytes) {
            return Ok(Some(region));
        }
        self.gather_free(device, &heaps)?;
        for heap in &heaps {
            let chunks = heap.take_free_chunks(u64::MAX, |fence| device.is_complete(fence));
            self.unmap_and_keep(locked, heap, &chunks)?;
            locked.return_regions(heap.take_bare_regions());
        }
        Ok(self.chunks.region(locked, room_bytes, had_bytes))
    }

    /// Finds a chunk to be a region of its own, on devices where memory comes with its addresses.
    fn fixed_region(
        &self,
        device: &dyn DeviceWork,
        locked: &mut LockedChunks,
        room_bytes: u64,
    ) -> Result<Option<(u64, u64)>, CallError> {
        let heaps = self.heaps.all();
        if let found @ Some(_) = self.chunks.find_fixed(locked, room_bytes)? {
            return Ok(found);
        }
        self.gather_free(device, &heaps)?;
        for heap in &heaps {
            let chunks = heap.take_free_chunks(u64::MAX, |fence| device.is_complete(fence));
            self.unmap_and_keep(locked, heap, &chunks)?;
        }
        self.chunks.find_fixed(locked, room_bytes)
    }

    /// Maps chunks: those of resting heaps if much memory is free there, else a spare or a new one, and last free
    /// chunks of any heap.
    fn map_chunks(
        &self,
        device: &dyn DeviceWork,
        locked: &mut LockedChunks,
        own: Option<&StreamHeap>,
        need: extent_map::MapRequest,
    ) -> Result<MapOutcome, CallError> {
        if !self.chunks.can_map() {
            return Ok(MapOutcome::Chunks(vec![self.chunks.take_fixed(locked, need.base)]));
        }
        let heaps = self.heaps.all();
        let reserved_bytes = self.chunks.reserved_bytes();
        // Busy streams would need their free memory again at once.
        let is_own = |heap: &StreamHeap| own.is_some_and(|own| own.number == heap.number);
        let has_much = |heap: &StreamHeap| heap.free_bytes().0 > reserved_bytes / OWN_IDLE_PART;
        let may_give =
            |heap: &&Arc<StreamHeap>| if is_own(heap) { has_much(heap) } else { heap.is_resting(&self.table) };
        let givers: Vec<_> = heaps.iter().filter(may_give).cloned().collect();
        let free_bytes: u64 = givers.iter().map(|heap| heap.free_bytes().0).sum();
        if free_bytes > reserved_bytes / IDLE_PART && free_bytes >= need.bytes {
            self.unmap_free_chunks(device, locked, &givers, need.bytes)?;
            if locked.spare_bytes() >= need.bytes
                && let grown @ MapOutcome::Chunks(_) = self.chunks.assemble(locked, need)?
            {
                return Ok(grown);
            }
        }
        if let grown @ MapOutcome::Chunks(_) = self.chunks.grow(locked, need)? {
            return Ok(grown);
        }
        self.unmap_free_chunks(device, locked, &heaps, need.bytes)?;
        self.chunks.assemble(locked, need)
    }

    /// Gathers the free memory of some heaps, and unmaps chunks until `bytes` are spare.
    pub(super) fn unmap_free_chunks(
        &self,
        device: &dyn DeviceWork,
        locked: &mut LockedChunks,
        heaps: &[Arc<StreamHeap>],
        bytes: u64,
    ) -> Result<(), CallError> {
        self.gather_free(device, heaps)?;
        let mut missing = bytes.saturating_sub(locked.spare_bytes());
        for heap in heaps {
            if missing == 0 {
                break;
            }
            let chunks = heap.take_free_chunks(missing, |fence| device.is_complete(fence));
            self.unmap_and_keep(locked, heap, &chunks)?;
            missing = missing.saturating_sub(chunks.iter().map(|chunk| chunk.bytes).sum());
        }
        Ok(())
    }

    /// Returns the blocks that threads cache to the heaps, reclaims blocks whose fences are complete, and queries the
    /// streams.
    pub(super) fn gather_free(&self, device: &dyn DeviceWork, heaps: &[Arc<StreamHeap>]) -> Result<(), CallError> {
        heaps.iter().flat_map(|heap| heap.caches.all()).for_each(|cache| cache.flush());
        // Only now: the query covers everything that other threads submitted before.
        device.query()?;
        for heap in heaps {
            heap.reclaim_all(&self.table, |fence| device.is_complete(fence));
            heap.free_empty_slabs(&self.table);
        }
        // What was just returned comes after all work that is in its stream now, including other threads'.
        device.query()
    }

    /// Unmaps chunks that were removed from a heap, and keeps them as spare. Chunks that the driver refuses to unmap go back to
    /// the heap.
    pub(super) fn unmap_and_keep(
        &self,
        locked: &mut LockedChunks,
        heap: &StreamHeap,
        chunks: &[Chunk],
    ) -> Result<(), CallError> {
        for (index, &chunk) in chunks.iter().enumerate() {
            if let Err(error) = self.chunks.unmap_and_keep(locked, chunk) {
                heap.restore_chunks(&chunks[index..]);
                return Err(error);
            }
        }
        if !self.chunks.can_map() {
            // A chunk is a region, and its addresses go with it.
            drop(heap.take_bare_regions());
        }
        Ok(())
    }

    /// Maps memory at addresses outside all heaps: a spare chunk, or a new one.
    pub(crate) fn map_outside(&self, need: MapRequest) -> Result<MapOutcome, CallError> {
        self.chunks.grow(&mut self.chunks.lock(), need)
    }

    /// Like [`map_outside`](Self::map_outside), also with free chunks of the heaps.
    pub(crate) fn map_outside_from_heaps(
        &self,
        device: &dyn DeviceWork,
        need: MapRequest,
    ) -> Result<MapOutcome, CallError> {
        let locked = &mut *self.chunks.lock();
        if let grown @ MapOutcome::Chunks(_) = self.map_chunks(device, locked, None, need)? {
            return Ok(grown);
        }
        // Returns spare chunks that are too long for the hole to the driver, so that it has memory for one that fits.
        let keep_bytes = self.chunks.reserved_bytes().saturating_sub(need.bytes);
        match self.chunks.release(locked, keep_bytes)? {
            0 => Ok(MapOutcome::OutOfMemory),
            _ => self.chunks.assemble(locked, need),
        }
    }

    /// Unmaps an unused chunk that is in no heap, and caches its memory.
    pub(crate) fn unmap_outside(&self, chunk: Chunk) -> Result<(), CallError> {
        self.chunks.unmap_and_keep(&mut self.chunks.lock(), chunk)
    }
}
