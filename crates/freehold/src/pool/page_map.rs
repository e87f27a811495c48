//! A page map: one word for each granule of a pool's reserved addresses. Read without a lock.
//!
//! The table spans all of the addresses; the system commits memory only where a word was written.

use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

use super::extent_map::GRANULE_BYTES;

/// Set in a word that refers to a slab rather than to a meta.
const SLAB: u32 = 1 << 31;

/// The entry of a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageEntry {
    Nothing,
    /// The block with this meta begins here.
    Block(u32),
    /// The slab with this number covers this granule.
    Slab(u32),
}

#[derive(Debug)]
pub(crate) struct PageMap {
    base: u64,
    bytes: u64,
    words: Box<[AtomicU32]>,
}

impl PageMap {
    /// Makes a table for `bytes` of addresses. Returns `None` if the system has no address space for it.
    pub(crate) fn new(base: u64, bytes: u64) -> Option<Self> {
        let words = <[AtomicU32]>::new_box_zeroed_with_elems((bytes / GRANULE_BYTES) as usize).ok()?;
        Some(Self { base, bytes, words })
    }

    pub(crate) fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }

    #[inline]
    pub(crate) fn at(&self, address: u64) -> PageEntry {
        let offset = address.wrapping_sub(self.base);
        let Some(word) = self.words.get((offset / GRANULE_BYTES) as usize) else { return PageEntry::Nothing };
        match word.load(Ordering::Acquire) {
            0 => PageEntry::Nothing,
            word if word & SLAB != 0 => PageEntry::Slab((word & !SLAB) - 1),
            word => PageEntry::Block(word - 1),
        }
    }

    /// Finds the last entry within `within_bytes` before an address. Returns the address itself, or that of the granule
    /// where the entry begins, and the entry.
    pub(crate) fn last_up_to(&self, address: u64, within_bytes: u64) -> Option<(u64, PageEntry)> {
        let last = usize::try_from(address.checked_sub(self.base)? / GRANULE_BYTES).ok()?;
        let first = last.saturating_sub((within_bytes / GRANULE_BYTES) as usize);
        let words = self.words.get(first..=last)?;
        let index = words.iter().rposition(|word| word.load(Ordering::Relaxed) != 0)? + first;
        let at = if index == last { address } else { self.base + index as u64 * GRANULE_BYTES };
        // Read again with acquire ordering. The entry may be gone by now.
        Some((at, self.at(at))).filter(|&(_, entry)| entry != PageEntry::Nothing)
    }

    pub(crate) fn set_block(&self, address: u64, meta: u32) {
        self.word(address).store(meta + 1, Ordering::Release);
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
    use super::super::extent_map::PAGE_BYTES;
    use super::*;

    /// Fewer under Miri, which interprets every access.
    const BYTES: u64 = if cfg!(miri) { 1 << 30 } else { 1 << 40 };

    #[test]
    fn addresses_lead_to_what_lies_there() {
        let table = PageMap::new(1 << 30, BYTES).unwrap();
        let at = (1 << 30) + 10 * GRANULE_BYTES;
        table.set_block(at, 0);
        table.set_slab(at + GRANULE_BYTES, 3 * GRANULE_BYTES, 5);
        assert_eq!(table.at(at), PageEntry::Block(0));
        assert_eq!(table.at(at + 4 * GRANULE_BYTES - 1), PageEntry::Slab(5));
        assert_eq!(table.at(at + 4 * GRANULE_BYTES), PageEntry::Nothing);
        assert_eq!(table.at((1 << 30) - 1), PageEntry::Nothing);
        assert_eq!(table.at((1 << 30) + BYTES), PageEntry::Nothing);
        let before = at - GRANULE_BYTES;
        table.set_block(before, 7);
        assert_eq!(table.last_up_to(before + 5, PAGE_BYTES), Some((before + 5, PageEntry::Block(7))));
        assert_eq!(table.last_up_to(before - 1, PAGE_BYTES), None);
        table.clear(before, 1);
        let behind = at + 4 * GRANULE_BYTES;
        let last_of_slab = Some((behind - GRANULE_BYTES, PageEntry::Slab(5)));
        assert_eq!(table.last_up_to(behind + 100, PAGE_BYTES), last_of_slab);
        assert_eq!(table.last_up_to(behind - GRANULE_BYTES + PAGE_BYTES, PAGE_BYTES), last_of_slab);
        assert_eq!(table.last_up_to(behind + PAGE_BYTES, PAGE_BYTES), None);
        assert_eq!(table.last_up_to((1 << 30) - 1, PAGE_BYTES), None);
        assert_eq!(table.last_up_to((1 << 30) + BYTES, PAGE_BYTES), None);
        table.clear(at, 2 * GRANULE_BYTES);
        assert_eq!(table.at(at + GRANULE_BYTES), PageEntry::Nothing);
        assert!(table.has(at) && !table.has(0));
    }
}
