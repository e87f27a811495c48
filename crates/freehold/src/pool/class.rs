//! Sizes of small blocks: a class for each, so that blocks of about one size serve each other. Pure arithmetic.
//!
//! Multiples of 512 bytes up to 4 KiB, and then eight for each doubling: a block is at most an eighth larger than was asked.

use super::heap::GRANULE_BYTES;

/// The least that blocks lie apart, and what they are aligned to.
pub(crate) const STEP_BYTES: u64 = 512;

/// Larger blocks are places of the heap themselves.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 << 10;

const EVEN: u64 = 8;
pub(crate) const CLASSES: usize = 40;

/// The blocks of small classes are cut from places of at least this many bytes.
const SLAB_BYTES_MIN: u64 = 64 << 10;
const SLAB_BLOCKS_MIN: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// The class that serves so many bytes; none serves more than [`SMALL_BYTES_MAX`].
    #[inline]
    pub(crate) fn of(bytes: u64) -> Option<Self> {
        if bytes > SMALL_BYTES_MAX {
            return None;
        }
        let steps = bytes.div_ceil(STEP_BYTES).max(1);
        if steps <= EVEN {
            return Some(Self(steps as u8 - 1));
        }
        // The last step of a doubling belongs to it, not to the next.
        let last = steps - 1;
        let doubling = last.ilog2() - EVEN.ilog2();
        let eighth = (last >> doubling) - EVEN;
        Some(Self((EVEN + u64::from(doubling) * EVEN + eighth) as u8))
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// How long a block of the class is.
    pub(crate) fn bytes(self) -> u64 {
        let index = u64::from(self.0);
        if index < EVEN {
            return (index + 1) * STEP_BYTES;
        }
        let (doubling, eighth) = ((index - EVEN) / EVEN, (index - EVEN) % EVEN);
        ((EVEN + eighth + 1) << doubling) * STEP_BYTES
    }

    /// How long a place is that blocks of the class are cut from: whole granules.
    pub(crate) fn slab_bytes(self) -> u64 {
        (self.bytes() * SLAB_BLOCKS_MIN).max(SLAB_BYTES_MIN).next_multiple_of(GRANULE_BYTES)
    }

    /// How many blocks such a place has.
    pub(crate) fn slab_blocks(self) -> u32 {
        (self.slab_bytes() / self.bytes()) as u32
    }

    /// How many blocks of the class a thread keeps for itself.
    #[inline]
    pub(crate) fn kept(self) -> usize {
        KEPT[self.index()] as usize
    }

    /// The class of an index.
    pub(crate) fn at(index: usize) -> Self {
        assert!(index < CLASSES, "there are as many classes as that");
        Self(index as u8)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }
}

/// What a thread keeps of one class, in bytes, and in blocks at the least and the most.
const KEPT_BYTES: u64 = 256 << 10;
const KEPT_MIN: u64 = 4;
pub(crate) const KEPT_MAX: usize = 32;

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
        } else if count > KEPT_MAX as u64 {
            KEPT_MAX as u8
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
        for class in Class::all() {
            assert_eq!(Class::of(bytes_before + 1), Some(class));
            assert_eq!(Class::of(class.bytes()), Some(class));
            bytes_before = class.bytes();
        }
        assert_eq!(bytes_before, SMALL_BYTES_MAX);
        assert_eq!(Class::of(SMALL_BYTES_MAX + 1), None);
        assert_eq!(Class::of(0), Class::of(1));
    }

    #[test]
    fn blocks_are_at_most_an_eighth_larger_than_asked_above_4_kib() {
        for bytes in (4097..=SMALL_BYTES_MAX).step_by(97) {
            let class = Class::of(bytes).expect("it is small");
            assert!(class.bytes() < bytes + bytes / 8 + STEP_BYTES, "{bytes} bytes in {}", class.bytes());
        }
    }

    #[test]
    fn slabs_hold_at_least_eight_blocks_and_waste_little() {
        for class in Class::all() {
            let used = class.bytes() * u64::from(class.slab_blocks());
            assert!(class.slab_blocks() >= 8 && class.slab_blocks() <= 128, "{class:?}");
            assert!(class.slab_bytes() - used < class.slab_bytes() / 16, "{class:?}");
            assert_eq!(class.slab_bytes() % GRANULE_BYTES, 0);
        }
        assert_eq!((Class(0).kept(), Class(39).kept(), Class(31).kept()), (32, 4, 8));
    }
}
