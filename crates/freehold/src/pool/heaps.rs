//! All heaps of a pool, by number, and the lookup of blocks by any address inside them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use freehold_driver::BlockBounds;
use rustix::io;

use super::block_meta::{BlockMeta, BlockState, FreedBlock, MetaSnapshot};
use super::block_table::BlockTable;
use super::extent_map::PAGE_BYTES;
use super::imports::ContextId;
use super::page_map::PageEntry;
use super::stable_array::{AtomicNumber, StableArray};
use super::stream_heap::StreamHeap;

#[derive(Debug)]
pub(crate) struct Heaps {
    pub(crate) table: Arc<BlockTable>,
    heaps: RwLock<Vec<Arc<StreamHeap>>>,
    /// The context of each heap, by its number.
    contexts: StableArray<AtomicNumber>,
}

impl Heaps {
    /// Makes an empty list. Fails if the system has no address space for the metadata.
    pub(crate) fn new(table: Arc<BlockTable>) -> io::Result<Self> {
        Ok(Self { table, heaps: RwLock::default(), contexts: StableArray::new()? })
    }

    /// Returns the meta of the block that contains an address. Takes a lock if the block begins more than a page before
    /// it.
    pub(crate) fn meta_around(&self, address: u64) -> Option<&BlockMeta> {
        if !self.table.pages.has(address) {
            return None;
        }
        // The block begins in this granule, or belongs to a slab.
        if let Some(found) = self.table.meta_at(address) {
            return Some(found);
        }
        match self.table.pages.last_up_to(address, PAGE_BYTES) {
            Some((at, PageEntry::Block(number))) if at < address => {
                let found = self.table.metas.at(number);
                (address.wrapping_sub(found.base()) < found.capacity_bytes()).then_some(found)
            }
            // No block lies after a slab's blocks.
            Some(_) => None,
            None => {
                let base = self.read_heaps().iter().find_map(|heap| heap.allocated_at(address))?;
                self.table.meta_at(base)
            }
        }
    }

    /// Returns the bounds of the block whose capacity contains an address.
    pub(crate) fn bounds_at(&self, address: u64) -> Option<BlockBounds> {
        let MetaSnapshot { state, base, bytes, capacity_bytes, .. } = self.meta_around(address)?.snapshot();
        let is_live = match state.state() {
            BlockState::Owned => true,
            // A block that never had an owner was not released.
            BlockState::Free | BlockState::Pending if bytes > 0 => false,
            _ => return None,
        };
        (address.wrapping_sub(base) < capacity_bytes).then_some(BlockBounds { base, bytes, is_live })
    }

    /// Returns the last freed block that contained an address.
    pub(crate) fn freed_at(&self, address: u64) -> Option<FreedBlock> {
        self.table.pages.has(address).then(|| self.all().iter().find_map(|heap| heap.freed_at(address)))?
    }

    /// Returns the context of a heap's stream. Takes no lock.
    pub(crate) fn context_of(&self, heap: u32) -> ContextId {
        ContextId(self.contexts.at(heap).0.load(Ordering::Relaxed))
    }

    /// Notes that a heap now belongs to another context.
    pub(crate) fn note_context(&self, heap: &StreamHeap) {
        self.contexts.at(heap.number).0.store(heap.context().0, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, number: u32) -> Arc<StreamHeap> {
        self.read_heaps()[number as usize].clone()
    }

    /// Makes a heap with the next number.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> StreamHeap) -> Arc<StreamHeap> {
        let mut heaps = self.heaps.write().unwrap_or_else(PoisonError::into_inner);
        let heap = Arc::new(make(u32::try_from(heaps.len()).expect("fewer than 2^32 heaps")));
        assert_eq!(self.contexts.add(1), heap.number, "a heap's context has the heap's number");
        self.note_context(&heap);
        heaps.push(heap.clone());
        heap
    }

    pub(crate) fn all(&self) -> Vec<Arc<StreamHeap>> {
        self.read_heaps().clone()
    }

    fn read_heaps(&self) -> RwLockReadGuard<'_, Vec<Arc<StreamHeap>>> {
        self.heaps.read().unwrap_or_else(PoisonError::into_inner)
    }
}
