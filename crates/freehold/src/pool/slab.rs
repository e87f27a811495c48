//! Slabs: extents that are cut into blocks of one class. A slab's layout is read without a lock; its free blocks change
//! under the lock of its heap.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::size_class::{STEP_BYTES, SizeClass};
use super::stable_array::Numbered;

/// The shift of `inverse`. A slab has fewer than 1024 steps and a block at most 128, so that the product is exact.
const INVERSE_BITS: u32 = 20;

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slab {
    base: AtomicU64,
    /// The blocks that have no owner and that no thread caches.
    free: [AtomicU64; 2],
    /// 2^20 divided by the steps of a block, rounded up.
    inverse: AtomicU32,
    /// The meta of the first block; the others follow it.
    first: AtomicU32,
    blocks: AtomicU32,
    class: AtomicU32,
    /// Its index in the heap's extents, and in the list of its class.
    extent: AtomicU32,
    spot: AtomicU32,
    number: AtomicU32,
}

// SAFETY: all fields are atomic numbers and pointers: zero is a valid value of each, and none needs a drop.
unsafe impl Numbered for Slab {
    fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }
}

impl Slab {
    #[inline]
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    /// Returns the meta of the block that contains an address.
    #[inline]
    pub(crate) fn meta_at(&self, address: u64) -> Option<u32> {
        let steps = (address.wrapping_sub(self.base()) / STEP_BYTES) as u32;
        let index = steps.wrapping_mul(self.inverse.load(Ordering::Relaxed)) >> INVERSE_BITS;
        (index < self.blocks.load(Ordering::Relaxed)).then(|| self.first.load(Ordering::Relaxed) + index)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    pub(crate) fn class(&self) -> SizeClass {
        SizeClass::at(self.class.load(Ordering::Relaxed) as usize)
    }

    /// How many blocks it has.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// The length of its extent.
    pub(crate) fn bytes(&self) -> u64 {
        self.class().slab_bytes(self.blocks())
    }

    pub(crate) fn extent(&self) -> u32 {
        self.extent.load(Ordering::Relaxed)
    }

    pub(crate) fn list_index(&self) -> usize {
        self.spot.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn set_list_index(&self, spot: usize) {
        self.spot.store(spot as u32, Ordering::Relaxed);
    }

    pub(crate) fn metas(&self) -> std::ops::Range<u32> {
        let first = self.first.load(Ordering::Relaxed);
        first..first + self.blocks.load(Ordering::Relaxed)
    }

    /// Gives the slab its metas, which never change afterwards.
    pub(crate) fn set_layout(&self, class: SizeClass, blocks: u32, first: u32) {
        let steps = (class.bytes() / STEP_BYTES) as u32;
        self.inverse.store((1u32 << INVERSE_BITS).div_ceil(steps), Ordering::Relaxed);
        self.blocks.store(blocks, Ordering::Relaxed);
        self.class.store(class.index() as u32, Ordering::Relaxed);
        self.first.store(first, Ordering::Relaxed);
    }

    /// Places the slab in an extent, with all of its blocks free.
    pub(crate) fn set_extent(&self, base: u64, extent: u32) {
        self.base.store(base, Ordering::Relaxed);
        self.extent.store(extent, Ordering::Relaxed);
        let blocks = self.blocks.load(Ordering::Relaxed);
        let all = if blocks == 128 { u128::MAX } else { (1u128 << blocks) - 1 };
        self.set_free_bits(all);
    }

    /// Takes a free block and returns its meta.
    pub(crate) fn alloc(&self) -> Option<u32> {
        let free = self.free_bits();
        if free == 0 {
            return None;
        }
        let index = free.trailing_zeros();
        self.set_free_bits(free & (free - 1));
        Some(self.first.load(Ordering::Relaxed) + index)
    }

    /// Takes a block back.
    pub(crate) fn free(&self, meta: u32) {
        let index = meta - self.first.load(Ordering::Relaxed);
        self.set_free_bits(self.free_bits() | 1 << index);
    }

    /// Whether no block has an owner and no thread caches one.
    pub(crate) fn is_empty(&self) -> bool {
        self.free_bits().count_ones() == self.blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free_bits() == 0
    }

    fn free_bits(&self) -> u128 {
        let [low, high] = [0, 1].map(|half| u128::from(self.free[half].load(Ordering::Relaxed)));
        high << 64 | low
    }

    fn set_free_bits(&self, free: u128) {
        self.free[0].store(free as u64, Ordering::Relaxed);
        self.free[1].store((free >> 64) as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_a_slab_leads_to_its_block() {
        for class in SizeClass::all() {
            let slab = Slab::default();
            let blocks = class.slab_blocks(10_000);
            slab.set_layout(class, blocks, 1000);
            slab.set_extent(1 << 30, 0);
            for offset in (0..slab.bytes()).step_by(STEP_BYTES as usize) {
                let index = (offset / class.bytes()) as u32;
                let expected = (index < blocks).then_some(1000 + index);
                assert_eq!(slab.meta_at((1 << 30) + offset), expected, "{class:?} {offset}");
                assert_eq!(slab.meta_at((1 << 30) + offset + 511), expected, "{class:?} {offset}");
            }
        }
    }

    #[test]
    fn blocks_are_taken_once_and_given_back() {
        let slab = Slab::default();
        let class = SizeClass::of(512).unwrap();
        slab.set_layout(class, 128, 7);
        slab.set_extent(1 << 30, 0);
        let taken: Vec<_> = std::iter::from_fn(|| slab.alloc()).collect();
        assert_eq!(taken, (7..135).collect::<Vec<_>>());
        assert!(slab.is_full());
        slab.free(100);
        assert!(!slab.is_full() && !slab.is_empty());
        assert_eq!(slab.alloc(), Some(100));
    }
}
