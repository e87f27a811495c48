//! Sleep: all memory of a pool goes back to the driver, while its addresses stay reserved and its blocks stay owned.
//!
//! For a pool of its own only (`Pool::separate`), whose chunks contain no other blocks. While it sleeps, its chunks are
//! addresses without memory: blocks are allocated and freed there as ever, chunks are added and removed, and the driver
//! is not called. Waking maps new memory at the addresses of all chunks that are in use then.
//!
//! A checker has no sleeping blocks: to it they are freed and handed out again, with the contents that are restored.
//!
//! The caller guarantees that no work uses the pool's memory, from before it falls asleep until it is awake. So every
//! free block is complete, whatever its fences are, except those of captured graphs, which use the memory again when they
//! are launched: it keeps its addresses and wakes like blocks that have an owner.

use std::ops::Range;
use std::sync::Arc;

use freehold_driver::{BlockChange, CallError};

use super::block_meta::MetaSnapshot;
use super::device_pool::Pool;
use super::extent_map::Chunk;
use super::stream_heap::StreamHeap;
use crate::ledger::Fence;

/// The result of waking a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeOutcome {
    /// All chunks are mapped, this many bytes.
    Awake { mapped_bytes: u64 },
    /// The device or the budget does not have the memory. The pool sleeps on.
    OutOfMemory { wanted_bytes: u64 },
}

impl Pool {
    pub(crate) fn is_asleep(&self) -> bool {
        self.chunks.lock().is_asleep()
    }

    /// Gives all memory back to the driver, after `save` has copied the ranges that are in use. Returns how many bytes
    /// went back. After an error, [`is_asleep`](Self::is_asleep) says whether the pool sleeps. `is_for_graphs` says
    /// which fences stand for graphs that may be launched again.
    pub(crate) fn sleep(
        &self,
        is_for_graphs: impl Fn(Fence) -> bool,
        save: impl FnOnce(&[Range<u64>]) -> Result<(), CallError>,
    ) -> Result<u64, CallError> {
        let locked = &mut *self.chunks.lock();
        let heaps = self.heaps.all();
        self.free_everything_unused(&heaps, &is_for_graphs);
        for heap in &heaps {
            let chunks = heap.take_free_chunks(u64::MAX, |fence| !is_for_graphs(fence));
            self.unmap_and_keep(locked, heap, &chunks)?;
        }
        save(&self.used(&heaps))?;
        self.announce_all(|block| BlockChange::Freed { address: block.base });
        let unmapped = self.chunks.unmap_all(locked, &chunks_of(&heaps));
        if !locked.is_asleep() {
            self.announce_all(|block| BlockChange::HandedOut { address: block.base, bytes: block.bytes });
        }
        unmapped?;
        self.chunks.release(locked, 0)
    }

    /// Gives memory back that the driver refused to take when the pool fell asleep. Returns how many bytes went back.
    pub(crate) fn release_left_over(&self) -> Result<u64, CallError> {
        self.chunks.release(&mut self.chunks.lock(), 0)
    }

    /// Maps new memory for all chunks that are in use, and calls `restore` with the ranges that are in use there. After
    /// an error the pool sleeps on.
    pub(crate) fn wake(
        &self,
        is_for_graphs: impl Fn(Fence) -> bool,
        restore: impl FnOnce(&[Range<u64>]) -> Result<(), CallError>,
    ) -> Result<WakeOutcome, CallError> {
        let locked = &mut *self.chunks.lock();
        let heaps = self.heaps.all();
        self.free_everything_unused(&heaps, &is_for_graphs);
        // They have no memory.
        heaps.iter().for_each(|heap| drop(heap.take_free_chunks(u64::MAX, |fence| !is_for_graphs(fence))));
        let asleep = chunks_of(&heaps);
        let bytes = asleep.iter().map(|chunk| chunk.bytes).sum();
        let Some(mapped) = self.chunks.map_all(locked, &asleep)? else {
            return Ok(WakeOutcome::OutOfMemory { wanted_bytes: bytes });
        };
        self.announce_all(|block| BlockChange::HandedOut { address: block.base, bytes: block.bytes });
        if let Err(error) = restore(&self.used(&heaps)) {
            self.announce_all(|block| BlockChange::Freed { address: block.base });
            // The next call meets what is refused here.
            return self.chunks.unmap_again(locked, mapped).and(Err(error));
        }
        heaps.iter().for_each(|heap| heap.replace_chunks(&mapped));
        self.chunks.note_awake(locked);
        Ok(WakeOutcome::Awake { mapped_bytes: bytes })
    }

    /// Returns the ranges that are in use, by address. To a checker only what owners have is in use.
    fn used(&self, heaps: &[Arc<StreamHeap>]) -> Vec<Range<u64>> {
        let mut ranges: Vec<_> = if self.chunks.is_checked() {
            self.owned().into_iter().map(|(_, block)| block.base..block.base + block.bytes).collect()
        } else {
            heaps.iter().flat_map(|heap| heap.allocated()).collect()
        };
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }

    /// Tells a checker of all blocks.
    fn announce_all(&self, change: impl Fn(MetaSnapshot) -> BlockChange) {
        if self.chunks.is_checked() {
            self.owned().into_iter().for_each(|(_, block)| self.chunks.announce_now(change(block)));
        }
    }

    /// Frees cached and pending blocks and empty slabs that no work uses.
    fn free_everything_unused(&self, heaps: &[Arc<StreamHeap>], is_for_graphs: &impl Fn(Fence) -> bool) {
        heaps.iter().flat_map(|heap| heap.caches.all()).for_each(|cache| cache.flush());
        for heap in heaps {
            heap.reclaim_all(&self.table, |fence| !is_for_graphs(fence));
            heap.free_empty_slabs(&self.table);
        }
    }
}

fn chunks_of(heaps: &[Arc<StreamHeap>]) -> Vec<Chunk> {
    heaps.iter().flat_map(|heap| heap.chunks().1).collect()
}
