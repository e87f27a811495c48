//! From an address to a number: one word for each granule of the addresses that a pool has reserved. Read without a lock.
//!
//! The table is as long as the addresses are many, and memory only where something was written.

use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

use super::heap::GRANULE_BYTES;

/// In a word that tells of a slab, not of a record.
const SLAB: u32 = 1 << 31;

/// What lies at a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Nothing,
    /// The block with this record begins here.
    Record(u32),
    /// The slab with this number is here.
    Slab(u32),
}

#[derive(Debug)]
pub(crate) struct Table {
    base: u64,
    bytes: u64,
    words: Box<[AtomicU32]>,
}

impl Table {
    /// A table for so many bytes of addresses, or nothing where the system has no room for one.
    pub(crate) fn new(base: u64, bytes: u64) -> Option<Self> {
        let words = <[AtomicU32]>::new_box_zeroed_with_elems((bytes / GRANULE_BYTES) as usize).ok()?;
        Some(Self { base, bytes, words })
    }

    pub(crate) fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    #[inline]
    pub(crate) fn at(&self, address: u64) -> Entry {
        let offset = address.wrapping_sub(self.base);
        let Some(word) = self.words.get((offset / GRANULE_BYTES) as usize) else { return Entry::Nothing };
        match word.load(Ordering::Acquire) {
            0 => Entry::Nothing,
            word if word & SLAB != 0 => Entry::Slab((word & !SLAB) - 1),
            word => Entry::Record(word - 1),
        }
    }

    pub(crate) fn set_record(&self, address: u64, record: u32) {
        self.word(address).store(record + 1, Ordering::Release);
    }

    pub(crate) fn set_slab(&self, address: u64, bytes: u64, slab: u32) {
        for granule in (address..address + bytes).step_by(GRANULE_BYTES as usize) {
            self.word(granule).store((slab + 1) | SLAB, Ordering::Release);
        }
    }

    pub(crate) fn clear(&self, address: u64, bytes: u64) {
        for granule in (address..address + bytes).step_by(GRANULE_BYTES as usize) {
            self.word(granule).store(0, Ordering::Release);
        }
    }

    fn word(&self, address: u64) -> &AtomicU32 {
        &self.words[((address - self.base) / GRANULE_BYTES) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_what_lies_there() {
        let table = Table::new(1 << 30, 1 << 40).unwrap();
        let at = (1 << 30) + 10 * GRANULE_BYTES;
        table.set_record(at, 0);
        table.set_slab(at + GRANULE_BYTES, 3 * GRANULE_BYTES, 5);
        assert_eq!(table.at(at), Entry::Record(0));
        assert_eq!(table.at(at + 4 * GRANULE_BYTES - 1), Entry::Slab(5));
        assert_eq!(table.at(at + 4 * GRANULE_BYTES), Entry::Nothing);
        assert_eq!(table.at((1 << 30) - 1), Entry::Nothing);
        assert_eq!(table.at((1 << 30) + (1 << 40)), Entry::Nothing);
        table.clear(at, 2 * GRANULE_BYTES);
        assert_eq!(table.at(at + GRANULE_BYTES), Entry::Nothing);
        assert!(table.has(at) && !table.has(0));
    }
}
