//! Placement of allocations: pure arithmetic on offsets into a device's addresses.
//!
//! The layout is the real driver's: memory comes in pages of 2 MiB. Small blocks of one owner share a page, at
//! multiples of 512 bytes; a large block starts on its own page.

use std::collections::BTreeMap;

use super::free_ranges::FreeRanges;

/// Granularity of device memory, as on the real device.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;

/// Small blocks start on a multiple of this.
pub(crate) const GRANULE_BYTES: u64 = 512;

/// Blocks up to this size share pages with others of their owner.
const SMALL_BYTES_MAX: u64 = 1 << 20;

const GRANULES_PER_PAGE: u64 = PAGE_BYTES / GRANULE_BYTES;

#[derive(Debug)]
pub(crate) struct PageHeap {
    /// In pages. There are more addresses than memory.
    free_pages: FreeRanges,
    /// Pages that hold small blocks, by offset.
    small_pages: BTreeMap<u64, SmallPage>,
    /// Blocks by offset.
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
struct SmallPage {
    owner: u64,
    free_granules: FreeRanges,
}

#[derive(Debug, Clone, Copy)]
enum Block {
    Small { granules: u64 },
    Pages { pages: u64 },
}

/// A run of adjacent pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRun {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The location of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) offset: u64,
    /// Pages that were unused before and need memory.
    pub(crate) new_pages: Option<PageRun>,
}

impl PageHeap {
    /// Creates a heap of `address_bytes` of addresses.
    pub(crate) fn new(address_bytes: u64) -> Self {
        Self {
            free_pages: FreeRanges::new(address_bytes / PAGE_BYTES),
            small_pages: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// Places a block of `bytes` for `owner`. Returns `None` if there are no free addresses.
    pub(crate) fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Placement> {
        debug_assert!(bytes > 0, "an allocation has at least one byte");
        if bytes <= SMALL_BYTES_MAX {
            return self.alloc_small(bytes.div_ceil(GRANULE_BYTES), owner);
        }
        let pages = bytes.div_ceil(PAGE_BYTES);
        let offset = self.reserve(pages)?;
        self.blocks.insert(offset, Block::Pages { pages });
        Some(Placement { offset, new_pages: Some(PageRun { offset, bytes: pages * PAGE_BYTES }) })
    }

    fn alloc_small(&mut self, granules: u64, owner: u64) -> Option<Placement> {
        let mine = self.small_pages.iter_mut().filter(|(_, page)| page.owner == owner);
        let found = mine.into_iter().find_map(|(&page, shared)| Some((page, shared.free_granules.alloc(granules)?)));
        let (page, granule, new_pages) = match found {
            Some((page, granule)) => (page, granule, None),
            None => {
                let page = self.reserve(1)?;
                let mut free = FreeRanges::new(GRANULES_PER_PAGE);
                let granule = free.alloc(granules).expect("an empty page holds a small block");
                self.small_pages.insert(page, SmallPage { owner, free_granules: free });
                (page, granule, Some(PageRun { offset: page, bytes: PAGE_BYTES }))
            }
        };
        let offset = page + granule * GRANULE_BYTES;
        self.blocks.insert(offset, Block::Small { granules });
        Some(Placement { offset, new_pages })
    }

    /// Reserves `pages` of addresses and returns their offset.
    pub(crate) fn reserve(&mut self, pages: u64) -> Option<u64> {
        Some(self.free_pages.alloc(pages)? * PAGE_BYTES)
    }

    /// Releases addresses from [`reserve`](Self::reserve).
    pub(crate) fn unreserve(&mut self, offset: u64, pages: u64) {
        self.free_pages.free(offset / PAGE_BYTES, pages);
    }

    /// Frees the block that [`alloc`](Self::alloc) placed at `offset`. Returns the pages that are now empty; their
    /// addresses are free already.
    pub(crate) fn free(&mut self, offset: u64) -> Option<PageRun> {
        let run = match self.blocks.remove(&offset).expect("a live span has a block in the heap of its device") {
            Block::Pages { pages } => PageRun { offset, bytes: pages * PAGE_BYTES },
            Block::Small { granules } => {
                let page = offset - offset % PAGE_BYTES;
                let shared = self.small_pages.get_mut(&page).expect("a small block lies in a shared page");
                shared.free_granules.free(offset % PAGE_BYTES / GRANULE_BYTES, granules);
                if !shared.free_granules.is_all_free(GRANULES_PER_PAGE) {
                    return None;
                }
                self.small_pages.remove(&page);
                PageRun { offset: page, bytes: PAGE_BYTES }
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

    fn page(offset: u64) -> Option<PageRun> {
        Some(PageRun { offset, bytes: 2 * MIB })
    }

    #[test]
    fn two_bytes_lie_512_bytes_apart_and_take_one_page() {
        let mut heap = PageHeap::new(256 * MIB);
        assert_eq!(heap.alloc(1, 7), Some(Placement { offset: 0, new_pages: page(0) }));
        assert_eq!(heap.alloc(1, 7), Some(Placement { offset: 512, new_pages: None }));
    }

    #[test]
    fn small_blocks_of_two_owners_share_no_page() {
        let mut heap = PageHeap::new(256 * MIB);
        assert_eq!(heap.alloc(1, 7).unwrap().offset, 0);
        assert_eq!(heap.alloc(1, 8), Some(Placement { offset: 2 * MIB, new_pages: page(2 * MIB) }));
    }

    #[test]
    fn a_page_returns_with_its_last_small_block() {
        let mut heap = PageHeap::new(256 * MIB);
        let (a, b) = (heap.alloc(700, 7).unwrap(), heap.alloc(700, 7).unwrap());
        assert_eq!(heap.free(a.offset), None);
        assert_eq!(heap.free(b.offset), page(0));
    }

    #[test]
    fn a_large_block_has_pages_of_its_own() {
        let mut heap = PageHeap::new(256 * MIB);
        let run = PageRun { offset: 0, bytes: 4 * MIB };
        assert_eq!(heap.alloc(3 * MIB, 7), Some(Placement { offset: 0, new_pages: Some(run) }));
        assert_eq!(heap.free(0), Some(run));
    }

    #[test]
    fn more_than_there_are_addresses_is_refused_and_changes_nothing() {
        let mut heap = PageHeap::new(256 * MIB);
        assert_eq!(heap.alloc(257 * MIB, 7), None);
        assert_eq!(heap.alloc(u64::MAX, 7), None);
        assert!(heap.alloc(256 * MIB, 7).is_some());
    }

    #[test]
    fn reserved_addresses_are_not_allocated() {
        let mut heap = PageHeap::new(256 * MIB);
        let offset = heap.reserve(128).unwrap();
        assert_eq!(heap.alloc(1, 7), None);
        heap.unreserve(offset, 128);
        assert_eq!(heap.alloc(64 * MIB, 7).unwrap().offset, offset);
    }

    #[test]
    fn a_released_block_is_placed_again_at_once() {
        let mut heap = PageHeap::new(256 * MIB);
        let blocks: Vec<_> = (0..4).map(|_| heap.alloc(4 * MIB, 7).unwrap().offset).collect();
        heap.free(blocks[2]);
        assert_eq!(heap.alloc(4 * MIB, 7).unwrap().offset, blocks[2]);
    }
}
