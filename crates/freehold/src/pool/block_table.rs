//! What a pool knows of its blocks, apart from the driver: metas, slabs, the table that leads to them, and the heaps.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use freehold_driver::BlockBounds;
use rustix::io;

use super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot};
use super::extent_map::PAGE_BYTES;
use super::outside::ContextId;
use super::page_map::{PageEntry, PageMap};
use super::slab::Slab;
use super::stable_array::{AtomicNumber, StableArray};
use super::stream_heap::StreamHeap;
use crate::base::fork::ForkGuard;

/// Numbers of pools: no two of a process have the same, ever.
static POOLS: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(crate) struct BlockTable {
    pub(crate) number: u32,
    /// The process that made the pool. Its forks have a copy, whose locks may be held for ever.
    pub(crate) process: u32,
    pub(crate) fork_guard: ForkGuard,
    pub(crate) metas: StableArray<BlockMeta>,
    pub(crate) slabs: StableArray<Slab>,
    pub(crate) pages: PageMap,
    heaps: RwLock<Vec<Arc<StreamHeap>>>,
    /// The context of each heap, by its number.
    contexts: StableArray<AtomicNumber>,
    /// How often a heap had nothing for a request: the pool's clock.
    pub(crate) misses: AtomicU64,
}

impl BlockTable {
    /// A table without blocks for so many bytes of addresses, unless the system has no addresses for what it may have to note.
    pub(crate) fn new(base: u64, bytes: u64, fork_guard: ForkGuard) -> io::Result<Self> {
        Ok(Self {
            number: POOLS.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            fork_guard,
            metas: StableArray::new()?,
            slabs: StableArray::new()?,
            pages: PageMap::new(base, bytes).ok_or(io::Errno::NOMEM)?,
            heaps: RwLock::default(),
            contexts: StableArray::new()?,
            misses: AtomicU64::new(0),
        })
    }

    /// The meta of the block that begins at an address, or that a slab has there.
    #[inline]
    pub(crate) fn meta_at(&self, address: u64) -> Option<&BlockMeta> {
        match self.pages.at(address) {
            PageEntry::Nothing => None,
            PageEntry::Block(number) => Some(self.metas.at(number)),
            PageEntry::Slab(number) => {
                let number = self.slabs.at(number).meta_at(address)?;
                Some(self.metas.at(number))
            }
        }
    }

    /// The meta of the block that an address lies in, at its beginning or further in. Takes a lock where the block begins more
    /// than a page before.
    pub(crate) fn meta_around(&self, address: u64) -> Option<&BlockMeta> {
        if !self.pages.has(address) {
            return None;
        }
        // The block begins in this granule, or is a slab's.
        if let Some(found) = self.meta_at(address) {
            return Some(found);
        }
        match self.pages.last_up_to(address, PAGE_BYTES) {
            Some((at, PageEntry::Block(number))) if at < address => {
                let found = self.metas.at(number);
                (address.wrapping_sub(found.base()) < found.capacity_bytes()).then_some(found)
            }
            // Behind the blocks of a slab lies none.
            Some(_) => None,
            None => {
                let base = self.read_heaps().iter().find_map(|heap| heap.allocated_at(address))?;
                self.meta_at(base)
            }
        }
    }

    /// The bounds of the block that an address lies in, or in what its size class has beyond them.
    pub(crate) fn bounds_at(&self, address: u64) -> Option<BlockBounds> {
        let MetaSnapshot { state, base, bytes, capacity_bytes, .. } = self.meta_around(address)?.snapshot();
        let is_live = match state.state() {
            BlockState::Owned => true,
            // One that nobody has had yet was not released.
            BlockState::Cached | BlockState::Pending if bytes > 0 => false,
            _ => return None,
        };
        (address.wrapping_sub(base) < capacity_bytes).then_some(BlockBounds { base, bytes, is_live })
    }

    /// The last block that lay at an address, and is no more.
    pub(crate) fn freed_at(&self, address: u64) -> Option<FreedBlock> {
        self.pages.has(address).then(|| self.heaps().iter().find_map(|heap| heap.freed_at(address)))?
    }

    /// The context of a heap's stream. Takes no lock.
    pub(crate) fn context_of(&self, heap: u32) -> ContextId {
        ContextId(self.contexts.at(heap).0.load(Ordering::Relaxed))
    }

    /// Notes that a heap is one of another context from now on.
    pub(crate) fn note_context(&self, heap: &StreamHeap) {
        self.contexts.at(heap.number).0.store(heap.context().0, Ordering::Relaxed);
    }

    pub(crate) fn heap(&self, number: u32) -> Arc<StreamHeap> {
        self.read_heaps()[number as usize].clone()
    }

    /// Makes a heap of the next number.
    pub(crate) fn add_heap(&self, make: impl FnOnce(u32) -> StreamHeap) -> Arc<StreamHeap> {
        let mut heaps = self.heaps.write().unwrap_or_else(PoisonError::into_inner);
        let heap = Arc::new(make(u32::try_from(heaps.len()).expect("fewer heaps than a u32 counts")));
        assert_eq!(self.contexts.add(1), heap.number, "a heap's context has the heap's number");
        self.note_context(&heap);
        heaps.push(heap.clone());
        heap
    }

    pub(crate) fn heaps(&self) -> Vec<Arc<StreamHeap>> {
        self.read_heaps().clone()
    }

    fn read_heaps(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<StreamHeap>>> {
        self.heaps.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::block_meta::Placement;

    #[test]
    fn a_block_is_disowned_once() {
        let metas = StableArray::<BlockMeta>::new().unwrap();
        let meta = metas.at(metas.add(1));
        meta.begin(4096, 1024, 7, 0, Placement::in_extent(0), 0);
        assert_eq!(meta.disown(4096).unwrap_err().state(), BlockState::Cached);
        meta.own(1000);
        assert_eq!(meta.disown(4097).unwrap_err().state(), BlockState::Owned);
        assert!(!meta.disown(4096).unwrap().is_used_in_other_streams());
        assert_eq!(meta.disown(4096).unwrap_err().state(), BlockState::Cached);
        meta.own(10);
        meta.note_used_in_other_stream(4096).unwrap();
        assert!(meta.disown(4096).unwrap().is_used_in_other_streams());
        assert_eq!(meta.snapshot().bytes, 10);
    }
}
