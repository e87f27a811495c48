//! The metadata of a pool's blocks, apart from the driver: metas, slabs, and the page map that leads to them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io;

use super::block_meta::BlockMeta;
use super::page_map::{PageEntry, PageMap};
use super::slab::Slab;
use super::stable_array::StableArray;
use crate::base::fork::ForkGuard;

/// The next pool's number, which is unique in the process.
static POOLS: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(crate) struct BlockTable {
    pub(crate) number: u32,
    /// The process that created the pool. A fork has a copy, in which locks may be held forever.
    pub(crate) process: u32,
    pub(crate) fork_guard: ForkGuard,
    pub(crate) metas: StableArray<BlockMeta>,
    pub(crate) slabs: StableArray<Slab>,
    pub(crate) pages: PageMap,
    /// How many requests found no memory in their heap: the clock by which a heap counts as resting.
    pub(crate) misses: AtomicU64,
}

impl BlockTable {
    /// Makes an empty table for `bytes` of addresses. Fails if the system has no address space for the metadata.
    pub(crate) fn new(base: u64, bytes: u64, fork_guard: ForkGuard) -> io::Result<Self> {
        Ok(Self {
            number: POOLS.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            fork_guard,
            metas: StableArray::new()?,
            slabs: StableArray::new()?,
            pages: PageMap::new(base, bytes).ok_or(io::Errno::NOMEM)?,
            misses: AtomicU64::new(0),
        })
    }

    /// Returns the meta of the block that begins at an address, or of the slab's block there.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::block_meta::{BlockState, OwnedBy, Placement};

    #[test]
    fn a_block_is_disowned_once() {
        let metas = StableArray::<BlockMeta>::new().unwrap();
        let meta = metas.at(metas.add(1));
        meta.begin(4096, 1024, 7, 0, Placement::in_extent(0), 0);
        assert_eq!(meta.disown(4096).unwrap_err().state(), BlockState::Free);
        meta.own(1000, OwnedBy::Address);
        assert_eq!(meta.disown(4097).unwrap_err().state(), BlockState::Owned);
        assert!(!meta.disown(4096).unwrap().is_used_in_other_streams());
        assert_eq!(meta.disown(4096).unwrap_err().state(), BlockState::Free);
        meta.own(10, OwnedBy::Address);
        meta.note_used_in_other_stream(4096).unwrap();
        assert!(meta.disown(4096).unwrap().is_used_in_other_streams());
        assert_eq!(meta.snapshot().bytes, 10);
    }
}
