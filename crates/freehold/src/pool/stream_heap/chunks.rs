//! The chunks of a heap, reports on it, and its end.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot};
use super::super::block_table::BlockTable;
use super::super::extent_map::{Chunk, MapRequest};
use super::super::imports::{Fence, StreamState};
use super::super::size_class::CLASSES;
use super::StreamHeap;

impl StreamHeap {
    pub(crate) fn add_region(&self, base: u64, bytes: u64) {
        self.lock().extents.add_region(base, bytes);
    }

    /// Removes whole regions in which nothing is mapped, and returns their bases and lengths.
    pub(crate) fn take_bare_regions(&self) -> Vec<(u64, u64)> {
        self.lock().extents.take_bare_regions()
    }

    /// Finds where to map memory for a request, and claims the free range before it, so that no other request takes it.
    pub(crate) fn map_request(&self, bytes: u64, spare_bytes: u64) -> Option<(MapRequest, Option<u32>)> {
        let locked = &mut *self.lock();
        let need = locked.extents.map_request(bytes, spare_bytes)?;
        Some((need, locked.extents.claim(need)))
    }

    /// Returns a claimed range.
    pub(crate) fn unclaim(&self, claimed: Option<u32>) {
        let locked = &mut *self.lock();
        if let Some(extent) = claimed {
            locked.extents.free(extent, locked.stream.released_seq());
        }
    }

    /// Adds chunks that were mapped, and allocates a block from them for this heap's stream.
    pub(crate) fn add_chunks(
        &self,
        table: &BlockTable,
        claimed: Option<u32>,
        chunks: &[Chunk],
        bytes: u64,
    ) -> Option<u32> {
        let locked = &mut *self.lock();
        let seq = locked.stream.released_seq();
        if let Some(extent) = claimed {
            locked.extents.free(extent, seq);
        }
        for &chunk in chunks {
            locked.extents.add_chunk(chunk, 0);
        }
        let taken = locked.extents.alloc(bytes)?;
        Some(locked.new_block(table, self.number, taken, locked.stream.id.0))
    }

    /// Removes chunks that are entirely free and complete, up to `wanted_bytes`. The caller unmaps them.
    pub(crate) fn take_free_chunks(&self, wanted_bytes: u64, is_complete: impl Fn(Fence) -> bool) -> Vec<Chunk> {
        let locked = &mut *self.lock();
        let stream = locked.stream.id;
        let mut free = locked.extents.free_chunks(|seq| is_complete(Fence { stream, seq }));
        free.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.bytes));
        let mut bytes = 0;
        let mut emptied = Vec::new();
        for chunk in free {
            if bytes >= wanted_bytes {
                break;
            }
            bytes += chunk.bytes;
            locked.extents.remove_chunk(chunk);
            emptied.push(chunk);
        }
        emptied
    }

    /// Removes the chunks in a span that are entirely free and complete.
    pub(crate) fn take_free_chunks_within(&self, span: &Range<u64>, is_complete: impl Fn(Fence) -> bool) -> Vec<Chunk> {
        let locked = &mut *self.lock();
        if !locked.extents.has(span.start) {
            return Vec::new();
        }
        let stream = locked.stream.id;
        let free = locked.extents.free_chunks(|seq| is_complete(Fence { stream, seq }));
        let within = |chunk: &Chunk| chunk.base < span.end && span.start < chunk.base + chunk.bytes;
        let chunks: Vec<_> = free.into_iter().filter(within).collect();
        chunks.iter().for_each(|&chunk| locked.extents.remove_chunk(chunk));
        chunks
    }

    /// Puts chunks back that could not be unmapped.
    pub(crate) fn restore_chunks(&self, chunks: &[Chunk]) {
        let locked = &mut *self.lock();
        chunks.iter().for_each(|&chunk| locked.extents.add_chunk(chunk, 0));
    }

    /// How many bytes of chunks could be removed.
    pub(crate) fn free_chunk_bytes(&self, is_complete: impl Fn(Fence) -> bool) -> u64 {
        let locked = self.lock();
        let stream = locked.stream.id;
        locked.extents.free_chunks(|seq| is_complete(Fence { stream, seq })).iter().map(|chunk| chunk.bytes).sum()
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.lock().extents.mapped_bytes()
    }

    /// Returns the free bytes of the extents, and the longest free range.
    pub(crate) fn free_bytes(&self) -> (u64, u64) {
        let locked = self.lock();
        (locked.extents.free_bytes(), locked.extents.longest_bytes())
    }

    /// Returns how many blocks wait for fences, and how many bytes their owners had requested.
    pub(crate) fn pending(&self, table: &BlockTable) -> (u64, u64) {
        let locked = self.lock();
        let bytes = locked.pending.iter().map(|waiting| table.metas.at(waiting.meta).bytes()).sum();
        (locked.pending.len() as u64, bytes)
    }

    /// Returns the base of the block that contains an address.
    pub(crate) fn allocated_at(&self, address: u64) -> Option<u64> {
        let locked = self.lock();
        if locked.extents.has(address) { locked.extents.allocated_at(address) } else { None }
    }

    /// Returns the heap's stream and its chunks, in the order of their addresses.
    pub(crate) fn chunks(&self) -> (Arc<StreamState>, Vec<Chunk>) {
        let locked = self.lock();
        (locked.stream.clone(), locked.extents.chunks().collect())
    }

    /// Notes that the heap's chunks have other memory.
    pub(crate) fn replace_chunks(&self, chunks: &[Chunk]) {
        let locked = &mut *self.lock();
        let own = chunks.iter().filter(|chunk| locked.extents.chunk_at(chunk.base).is_some()).copied();
        own.collect::<Vec<_>>().into_iter().for_each(|chunk| locked.extents.replace_chunk(chunk));
    }

    /// Returns the ranges that have blocks or slabs.
    pub(crate) fn allocated(&self) -> Vec<Range<u64>> {
        self.lock().extents.allocated()
    }

    /// Returns the chunk that contains an address.
    pub(crate) fn chunk_at(&self, address: u64) -> Option<Chunk> {
        self.lock().extents.chunk_at(address)
    }

    /// Returns the last block freed at an address.
    pub(crate) fn freed_at(&self, address: u64) -> Option<FreedBlock> {
        let locked = self.lock();
        let (newer, older) = locked.freed.split_at(locked.next_freed);
        let mut gone = newer.iter().rev().chain(older.iter().rev());
        gone.find(|gone| address.wrapping_sub(gone.base) < gone.bytes.max(1)).copied()
    }

    /// Takes all blocks here from their owners, because their context is closed, and returns them. The memory stays as
    /// it is.
    pub(crate) fn disown_all(&self, table: &BlockTable, when: Duration) -> Vec<(u32, MetaSnapshot)> {
        let mut locked = self.lock();
        let mut disowned = Vec::new();
        for meta in table.metas.iter().filter(|meta| meta.heap() == self.number) {
            let state = meta.state();
            if state.state() == BlockState::Owned && meta.disown_with_info(state.generation(), None, when) {
                self.counters.sub_live_shared(meta.bytes());
                meta.set_state(BlockState::Ended);
                locked.note_freed(FreedBlock::of(meta));
                disowned.push((meta.number(), meta.snapshot()));
            }
        }
        disowned
    }

    /// Frees everything here, owned or not: the context is gone, and all work with it. Any stream may adopt the heap.
    pub(crate) fn clear(&self, table: &BlockTable) {
        let locked = &mut *self.lock();
        locked.pending.clear();
        locked.partial_slabs.iter_mut().for_each(Vec::clear);
        let is_here = |meta: &&BlockMeta| meta.heap() == self.number && meta.state().state() != BlockState::Vacant;
        for meta in table.metas.iter().filter(is_here) {
            match meta.placement().slab().map(|slab| table.slabs.at(slab)) {
                None => {
                    table.pages.clear(meta.base(), 1);
                    locked.free_metas.push(meta.number());
                }
                Some(slab) if meta.number() == slab.metas().start => {
                    table.pages.clear(slab.base(), slab.bytes());
                    locked.unused_slabs[slab.class().index()].push(slab.number());
                }
                Some(_) => {}
            }
            meta.end();
        }
        locked.slab_blocks = [0; CLASSES];
        locked.is_orphan = true;
        locked.is_context_gone = true;
        locked.extents.free_all();
    }
}
