//! What a pool knows of its blocks, apart from the driver: metas, slabs, and the table that leads to them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io;

use super::block_meta::BlockMeta;
use super::page_map::{PageEntry, PageMap};
use super::slab::Slab;
use super::stable_array::StableArray;
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::block_meta::{BlockState, Placement};

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
