//! Size classes of small blocks. Pure arithmetic.
//!
//! Multiples of 512 bytes up to 4 KiB, then eight classes per doubling: a block is at most an eighth larger than
//! requested.

use super::extent_map::GRANULE_BYTES;

/// The smallest distance between blocks, and their alignment.
pub(crate) const STEP_BYTES: u64 = 512;

/// Larger blocks are extents of their own.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 << 10;

const EVEN: u64 = 8;
pub(crate) const CLASSES: usize = 40;

/// The size of a slab, and the most blocks that it is cut into.
const SLAB_BYTES_MIN: u64 = 32 << 10;
const SLAB_BYTES_MAX: u64 = 512 << 10;
const SLAB_BLOCKS_MAX: u32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    /// Returns the class for `bytes`. No class is larger than [`SMALL_BYTES_MAX`].
    #[inline]
    pub(crate) fn of(bytes: u64) -> Option<Self> {
        let last = bytes.saturating_sub(1) / STEP_BYTES;
        BY_LAST_STEP.get(last as usize).copied().map(Self)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The length of the class's blocks.
    pub(crate) fn bytes(self) -> u64 {
        let index = u64::from(self.0);
        if index < EVEN {
            return (index + 1) * STEP_BYTES;
        }
        let (doubling, eighth) = ((index - EVEN) / EVEN, (index - EVEN) % EVEN);
        ((EVEN + eighth + 1) << doubling) * STEP_BYTES
    }

    /// How many blocks the next slab of the class has, if the heap has `had`: half as many again, so that a class with
    /// few blocks uses little memory.
    pub(crate) fn slab_blocks(self, had: u32) -> u32 {
        let least = (SLAB_BYTES_MIN / self.bytes()).max(1) as u32;
        let most = ((SLAB_BYTES_MAX / self.bytes()) as u32).min(SLAB_BLOCKS_MAX);
        (had / 2).clamp(least, most)
    }

    /// The length of a slab with `blocks` blocks, in whole granules.
    pub(crate) fn slab_bytes(self, blocks: u32) -> u64 {
        (self.bytes() * u64::from(blocks)).next_multiple_of(GRANULE_BYTES)
    }

    /// How many blocks of the class a thread caches.
    #[inline]
    pub(crate) fn magazine_blocks(self) -> usize {
        KEPT[self.index()] as usize
    }

    /// Returns the class with an index.
    #[inline]
    pub(crate) fn at(index: usize) -> Self {
        assert!(index < CLASSES, "the index is below the number of classes");
        Self(index as u8)
    }

    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }
}

/// The class for each number of steps before a block's last one.
const BY_LAST_STEP: [u8; (SMALL_BYTES_MAX / STEP_BYTES) as usize] = {
    let mut classes = [0; (SMALL_BYTES_MAX / STEP_BYTES) as usize];
    let mut last = 0;
    while last < classes.len() as u64 {
        classes[last as usize] = if last < EVEN {
            last as u8
        } else {
            // The last step of a doubling belongs to that doubling, not to the next.
            let doubling = last.ilog2() - EVEN.ilog2();
            let eighth = (last >> doubling) - EVEN;
            (EVEN + doubling as u64 * EVEN + eighth) as u8
        };
        last += 1;
    }
    classes
};

/// How much a thread caches of one class: in bytes, and the least and the most in blocks.
const KEPT_BYTES: u64 = 256 << 10;
const KEPT_MIN: u64 = 4;
pub(crate) const MAGAZINE_MAX: usize = 32;

const KEPT: [u8; CLASSES] = {
    let mut kept = [0; CLASSES];
    let mut index = 0;
    while index < CLASSES {
        let bytes = if index < EVEN as usize {
            (index as u64 + 1) * STEP_BYTES
        } else {
            let (doubling, eighth) = ((index as u64 - EVEN) / EVEN, (index as u64 - EVEN) % EVEN);
            ((EVEN + eighth + 1) << doubling) * STEP_BYTES
        };
        let count = KEPT_BYTES / bytes;
        kept[index] = if count < KEPT_MIN {
            KEPT_MIN as u8
        } else if count > MAGAZINE_MAX as u64 {
            MAGAZINE_MAX as u8
        } else {
            count as u8
        };
        index += 1;
    }
    kept
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        let mut bytes_before = 0;
        for class in SizeClass::all() {
            assert_eq!(SizeClass::of(bytes_before + 1), Some(class));
            assert_eq!(SizeClass::of(class.bytes()), Some(class));
            bytes_before = class.bytes();
        }
        assert_eq!(bytes_before, SMALL_BYTES_MAX);
        assert_eq!(SizeClass::of(SMALL_BYTES_MAX + 1), None);
        assert_eq!(SizeClass::of(0), SizeClass::of(1));
    }

    #[test]
    fn blocks_are_at_most_an_eighth_larger_than_asked_above_4_kib() {
        for bytes in (4097..=SMALL_BYTES_MAX).step_by(97) {
            let class = SizeClass::of(bytes).expect("the size has a class");
            assert!(class.bytes() < bytes + bytes / 8 + STEP_BYTES, "{bytes} bytes in {}", class.bytes());
        }
    }

    #[test]
    fn slabs_grow_with_their_heap_and_waste_little() {
        for class in SizeClass::all() {
            for had in [0, 1, 10, 100, 10_000] {
                let blocks = class.slab_blocks(had);
                let used = class.bytes() * u64::from(blocks);
                assert!((1..=128).contains(&blocks), "{class:?}");
                assert!(class.slab_bytes(blocks) - used < GRANULE_BYTES, "{class:?}");
                assert!(class.slab_bytes(blocks) <= SLAB_BYTES_MAX, "{class:?}");
            }
        }
        assert_eq!((SizeClass(0).slab_blocks(0), SizeClass(0).slab_blocks(1000)), (64, 128));
        assert_eq!((SizeClass(39).slab_blocks(0), SizeClass(39).slab_blocks(1000)), (1, 8));
        assert_eq!(
            (SizeClass(0).magazine_blocks(), SizeClass(39).magazine_blocks(), SizeClass(31).magazine_blocks()),
            (32, 4, 8)
        );
    }
}
