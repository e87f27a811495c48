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
    /// Memory of the device and what of it is taken, in bytes.
    total_bytes: u64,
    used_bytes: u64,
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

impl Heap {
    /// A device with `total_bytes` of memory and `address_bytes` of addresses.
    pub(crate) fn new(total_bytes: u64, address_bytes: u64) -> Self {
        Self {
            addresses: Ranges::new(address_bytes / PAGE_BYTES),
            total_bytes,
            used_bytes: 0,
            shared: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.total_bytes - self.used_bytes
    }

    /// The offset of a block of `bytes` for `owner`, or nothing if the device has not that much.
    pub(crate) fn allocate(&mut self, bytes: u64, owner: u64) -> Option<u64> {
        debug_assert!(bytes > 0, "an allocation has at least one byte");
        if bytes <= SMALL_BYTES_MAX {
            return self.allocate_small(bytes.div_ceil(GRAIN_BYTES), owner);
        }
        let pages = bytes.div_ceil(PAGE_BYTES);
        let offset = self.allocate_pages(pages)?;
        self.blocks.insert(offset, Block::Pages { pages });
        Some(offset)
    }

    fn allocate_small(&mut self, grains: u64, owner: u64) -> Option<u64> {
        let mine = self.shared.iter_mut().filter(|(_, page)| page.owner == owner);
        let found = mine.into_iter().find_map(|(&page, shared)| Some((page, shared.grains.take(grains)?)));
        let (page, grain) = match found {
            Some(found) => found,
            None => {
                let page = self.allocate_pages(1)?;
                let mut free = Ranges::new(GRAINS);
                let grain = free.take(grains).expect("an empty page holds a small block");
                self.shared.insert(page, Shared { owner, grains: free });
                (page, grain)
            }
        };
        let offset = page + grain * GRAIN_BYTES;
        self.blocks.insert(offset, Block::Small { grains });
        Some(offset)
    }

    fn allocate_pages(&mut self, pages: u64) -> Option<u64> {
        let bytes = pages.checked_mul(PAGE_BYTES)?;
        if bytes > self.free_bytes() {
            return None;
        }
        let offset = self.reserve(pages)?;
        self.used_bytes += bytes;
        Some(offset)
    }

    /// The offset of `pages` of addresses, without memory.
    pub(crate) fn reserve(&mut self, pages: u64) -> Option<u64> {
        Some(self.addresses.take(pages)? * PAGE_BYTES)
    }

    /// Gives back what [`reserve`](Self::reserve) gave.
    pub(crate) fn unreserve(&mut self, offset: u64, pages: u64) {
        self.addresses.give(offset / PAGE_BYTES, pages);
    }

    /// Takes memory for addresses that were reserved. False if there is not so much.
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
        if fits {
            self.used_bytes += bytes;
        }
        fits
    }

    /// Gives back what [`charge`](Self::charge) took.
    pub(crate) fn discharge(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
    }

    /// Gives back a block that [`allocate`](Self::allocate) placed at `offset`.
    pub(crate) fn release(&mut self, offset: u64) {
        match self.blocks.remove(&offset).expect("a live span has a block in the heap of its device") {
            Block::Pages { pages } => self.release_pages(offset, pages),
            Block::Small { grains } => {
                let page = offset - offset % PAGE_BYTES;
                let shared = self.shared.get_mut(&page).expect("a small block lies in a shared page");
                shared.grains.give(offset % PAGE_BYTES / GRAIN_BYTES, grains);
                if shared.grains.is_whole(GRAINS) {
                    self.shared.remove(&page);
                    self.release_pages(page, 1);
                }
            }
        }
    }

    fn release_pages(&mut self, offset: u64, pages: u64) {
        self.unreserve(offset, pages);
        self.discharge(pages * PAGE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn two_bytes_lie_512_bytes_apart_and_take_one_page() {
        let mut heap = Heap::new(64 * MIB, 256 * MIB);
        assert_eq!(heap.allocate(1, 7), Some(0));
        assert_eq!(heap.allocate(1, 7), Some(512));
        assert_eq!(heap.free_bytes(), 62 * MIB);
    }

    #[test]
    fn small_blocks_of_two_owners_share_no_page() {
        let mut heap = Heap::new(64 * MIB, 256 * MIB);
        assert_eq!(heap.allocate(1, 7), Some(0));
        assert_eq!(heap.allocate(1, 8), Some(2 * MIB));
    }

    #[test]
    fn a_page_returns_with_its_last_small_block() {
        let mut heap = Heap::new(64 * MIB, 256 * MIB);
        let (a, b) = (heap.allocate(700, 7).unwrap(), heap.allocate(700, 7).unwrap());
        heap.release(a);
        assert_eq!(heap.free_bytes(), 62 * MIB);
        heap.release(b);
        assert_eq!(heap.free_bytes(), 64 * MIB);
    }

    #[test]
    fn free_memory_is_never_out_of_reach_for_lack_of_neighbouring_addresses() {
        let mut heap = Heap::new(64 * MIB, 256 * MIB);
        let blocks: Vec<_> = (0..32).map(|_| heap.allocate(2 * MIB, 7).unwrap()).collect();
        assert_eq!(heap.allocate(2 * MIB, 7), None);
        for block in blocks.iter().step_by(2) {
            heap.release(*block);
        }
        assert_eq!(heap.free_bytes(), 32 * MIB);
        assert!(heap.allocate(32 * MIB, 7).is_some());
        assert_eq!(heap.free_bytes(), 0);
    }

    #[test]
    fn more_than_the_device_has_is_refused_and_changes_nothing() {
        let mut heap = Heap::new(64 * MIB, 256 * MIB);
        assert_eq!(heap.allocate(65 * MIB, 7), None);
        assert_eq!(heap.allocate(u64::MAX, 7), None);
        assert_eq!(heap.free_bytes(), 64 * MIB);
    }

    #[test]
    fn reserved_addresses_take_no_memory_until_they_are_charged() {
        let mut heap = Heap::new(64 * MIB, 256 * MIB);
        let offset = heap.reserve(64).unwrap();
        assert_eq!(heap.free_bytes(), 64 * MIB);
        assert!(heap.charge(64 * MIB));
        assert!(!heap.charge(2 * MIB));
        assert_eq!(heap.allocate(1, 7), None);
        heap.discharge(64 * MIB);
        heap.unreserve(offset, 64);
        assert_eq!(heap.allocate(64 * MIB, 7), Some(offset));
    }

    #[test]
    fn a_released_block_is_placed_again_at_once() {
        let mut heap = Heap::new(64 * MIB, 256 * MIB);
        let blocks: Vec<_> = (0..4).map(|_| heap.allocate(4 * MIB, 7).unwrap()).collect();
        heap.release(blocks[2]);
        assert_eq!(heap.allocate(4 * MIB, 7), Some(blocks[2]));
    }
}
