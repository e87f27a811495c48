//! Where an allocation lies: pure arithmetic on offsets into a device's addresses.
//!
//! As the real driver (facts 0.4 and "granularity"): memory comes in pages of 2 MiB; small blocks of one owner share
//! a page, 512 bytes apart or a multiple of it; a large block starts a page of its own.

use std::collections::BTreeMap;

use super::PAGE_BYTES;
use super::ranges::Ranges;

/// Small blocks start on a multiple of this.
pub(crate) const GRAIN_BYTES: u64 = 512;

/// Blocks up to this size share pages with others of their owner.
const SMALL_BYTES_MAX: u64 = 1 << 20;

const GRAINS: u64 = PAGE_BYTES / GRAIN_BYTES;

#[derive(Debug)]
pub(crate) struct Heap {
    /// In pages. There are more addresses than memory.
    addresses: Ranges,
    /// Pages that hold small blocks, by offset.
    shared: BTreeMap<u64, Shared>,
    /// Blocks by offset.
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
struct Shared {
    owner: u64,
    grains: Ranges,
}

#[derive(Debug, Clone, Copy)]
enum Block {
    Small { grains: u64 },
    Pages { pages: u64 },
}

/// Neighbouring pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) offset: u64,
    /// Pages that nothing lay in before, to be given memory.
    pub(crate) fresh: Option<Run>,
}

impl Heap {
    /// A device with `address_bytes` of addresses.
    pub(crate) fn new(address_bytes: u64) -> Self {
        Self { addresses: Ranges::new(address_bytes / PAGE_BYTES), shared: BTreeMap::new(), blocks: BTreeMap::new() }
    }

    /// The place of a block of `bytes` for `owner`, or nothing if there are no addresses.
    pub(crate) fn allocate(&mut self, bytes: u64, owner: u64) -> Option<Placed> {
        debug_assert!(bytes > 0, "an allocation has at least one byte");
        if bytes <= SMALL_BYTES_MAX {
            return self.allocate_small(bytes.div_ceil(GRAIN_BYTES), owner);
        }
        let pages = bytes.div_ceil(PAGE_BYTES);
        let offset = self.reserve(pages)?;
        self.blocks.insert(offset, Block::Pages { pages });
        Some(Placed { offset, fresh: Some(Run { offset, bytes: pages * PAGE_BYTES }) })
    }

    fn allocate_small(&mut self, grains: u64, owner: u64) -> Option<Placed> {
        let mine = self.shared.iter_mut().filter(|(_, page)| page.owner == owner);
        let found = mine.into_iter().find_map(|(&page, shared)| Some((page, shared.grains.take(grains)?)));
        let (page, grain, fresh) = match found {
            Some((page, grain)) => (page, grain, None),
            None => {
                let page = self.reserve(1)?;
                let mut free = Ranges::new(GRAINS);
                let grain = free.take(grains).expect("an empty page holds a small block");
                self.shared.insert(page, Shared { owner, grains: free });
                (page, grain, Some(Run { offset: page, bytes: PAGE_BYTES }))
            }
        };
        let offset = page + grain * GRAIN_BYTES;
        self.blocks.insert(offset, Block::Small { grains });
        Some(Placed { offset, fresh })
    }

    /// The offset of `pages` of addresses.
    pub(crate) fn reserve(&mut self, pages: u64) -> Option<u64> {
        Some(self.addresses.take(pages)? * PAGE_BYTES)
    }

    /// Gives back what [`reserve`](Self::reserve) gave.
    pub(crate) fn unreserve(&mut self, offset: u64, pages: u64) {
        self.addresses.give(offset / PAGE_BYTES, pages);
    }

    /// Gives back a block that [`allocate`](Self::allocate) placed at `offset`, and says which pages nothing lies in any
    /// more. Their addresses are given back already.
    pub(crate) fn release(&mut self, offset: u64) -> Option<Run> {
        let run = match self.blocks.remove(&offset).expect("a live span has a block in the heap of its device") {
            Block::Pages { pages } => Run { offset, bytes: pages * PAGE_BYTES },
            Block::Small { grains } => {
                let page = offset - offset % PAGE_BYTES;
                let shared = self.shared.get_mut(&page).expect("a small block lies in a shared page");
                shared.grains.give(offset % PAGE_BYTES / GRAIN_BYTES, grains);
                if !shared.grains.is_whole(GRAINS) {
                    return None;
                }
                self.shared.remove(&page);
                Run { offset: page, bytes: PAGE_BYTES }
            }
        };
        self.unreserve(run.offset, run.bytes / PAGE_BYTES);
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn page(offset: u64) -> Option<Run> {
        Some(Run { offset, bytes: 2 * MIB })
    }

    #[test]
    fn two_bytes_lie_512_bytes_apart_and_take_one_page() {
        let mut heap = Heap::new(256 * MIB);
        assert_eq!(heap.allocate(1, 7), Some(Placed { offset: 0, fresh: page(0) }));
        assert_eq!(heap.allocate(1, 7), Some(Placed { offset: 512, fresh: None }));
    }

    #[test]
    fn small_blocks_of_two_owners_share_no_page() {
        let mut heap = Heap::new(256 * MIB);
        assert_eq!(heap.allocate(1, 7).unwrap().offset, 0);
        assert_eq!(heap.allocate(1, 8), Some(Placed { offset: 2 * MIB, fresh: page(2 * MIB) }));
    }

    #[test]
    fn a_page_returns_with_its_last_small_block() {
        let mut heap = Heap::new(256 * MIB);
        let (a, b) = (heap.allocate(700, 7).unwrap(), heap.allocate(700, 7).unwrap());
        assert_eq!(heap.release(a.offset), None);
        assert_eq!(heap.release(b.offset), page(0));
    }

    #[test]
    fn a_large_block_has_pages_of_its_own() {
        let mut heap = Heap::new(256 * MIB);
        let run = Run { offset: 0, bytes: 4 * MIB };
        assert_eq!(heap.allocate(3 * MIB, 7), Some(Placed { offset: 0, fresh: Some(run) }));
        assert_eq!(heap.release(0), Some(run));
    }

    #[test]
    fn more_than_there_are_addresses_is_refused_and_changes_nothing() {
        let mut heap = Heap::new(256 * MIB);
        assert_eq!(heap.allocate(257 * MIB, 7), None);
        assert_eq!(heap.allocate(u64::MAX, 7), None);
        assert!(heap.allocate(256 * MIB, 7).is_some());
    }

    #[test]
    fn reserved_addresses_are_nobody_elses() {
        let mut heap = Heap::new(256 * MIB);
        let offset = heap.reserve(128).unwrap();
        assert_eq!(heap.allocate(1, 7), None);
        heap.unreserve(offset, 128);
        assert_eq!(heap.allocate(64 * MIB, 7).unwrap().offset, offset);
    }

    #[test]
    fn a_released_block_is_placed_again_at_once() {
        let mut heap = Heap::new(256 * MIB);
        let blocks: Vec<_> = (0..4).map(|_| heap.allocate(4 * MIB, 7).unwrap().offset).collect();
        heap.release(blocks[2]);
        assert_eq!(heap.allocate(4 * MIB, 7).unwrap().offset, blocks[2]);
    }
}
