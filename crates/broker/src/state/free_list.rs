//! The free ranges of a segment, by offset. Pure arithmetic.

use std::collections::BTreeMap;

/// The alignment of blocks, as that of a driver.
pub(crate) const GRANULE_BYTES: u64 = 512;

/// The bytes that a block takes.
pub(crate) fn span_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE_BYTES)
}

/// The free ranges of a segment.
#[derive(Clone, Debug)]
pub(crate) struct FreeList {
    /// Length by offset. No two ranges are adjacent.
    free: BTreeMap<u64, u64>,
    /// An upper bound of the longest range, so that a full segment is not searched again and again.
    longest_max: u64,
}

impl PartialEq for FreeList {
    fn eq(&self, other: &Self) -> bool {
        self.free == other.free
    }
}

impl Eq for FreeList {}

impl FreeList {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]), longest_max: bytes }
    }

    /// Allocates from the first range that is large enough. Returns the offset.
    pub(crate) fn alloc(&mut self, bytes: u64) -> Option<u64> {
        if bytes > self.longest_max {
            return None;
        }
        let Some((&offset, &length)) = self.free.iter().find(|&(_, &length)| length >= bytes) else {
            self.longest_max = bytes - 1;
            return None;
        };
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        Some(offset)
    }

    /// Allocates a given range. Returns whether it was free.
    pub(crate) fn alloc_at(&mut self, offset: u64, bytes: u64) -> bool {
        let Some((&base, &length)) = self.free.range(..=offset).next_back() else { return false };
        if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > base + length) {
            return false;
        }
        self.free.remove(&base);
        if offset > base {
            self.free.insert(base, offset - base);
        }
        if offset + bytes < base + length {
            self.free.insert(offset + bytes, base + length - offset - bytes);
        }
        true
    }

    pub(crate) fn free(&mut self, offset: u64, bytes: u64) {
        let (mut offset, mut bytes) = (offset, bytes);
        if let Some((&before, &length)) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.free.remove(&before);
            offset = before;
            bytes += length;
        }
        if let Some(length) = self.free.remove(&(offset + bytes)) {
            bytes += length;
        }
        self.free.insert(offset, bytes);
        self.longest_max = self.longest_max.max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_one_with_its_neighbours() {
        let mut free_list = FreeList::new(4096);
        let offsets = [512, 1024, 512].map(|bytes| free_list.alloc(bytes).unwrap());
        assert_eq!(offsets, [0, 512, 1536]);
        free_list.free(0, 512);
        free_list.free(1536, 512);
        free_list.free(512, 1024);
        assert_eq!(free_list, FreeList::new(4096));
    }

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut free_list = FreeList::new(1024);
        assert_eq!(free_list.alloc(2048), None);
        assert!(free_list.alloc_at(512, 512));
        assert!(!free_list.alloc_at(512, 512));
        assert!(!free_list.alloc_at(0, 1024));
        assert!(!free_list.alloc_at(u64::MAX, 512));
        assert_eq!(free_list.alloc(512), Some(0));
        assert_eq!(free_list.alloc(512), None);
    }

    #[test]
    fn what_was_not_there_is_there_when_it_was_given_back() {
        let mut free_list = FreeList::new(1024);
        let offsets = [512, 512].map(|bytes| free_list.alloc(bytes).unwrap());
        assert_eq!(free_list.alloc(512), None);
        free_list.free(offsets[0], 512);
        assert_eq!(free_list.alloc(1024), None);
        free_list.free(offsets[1], 512);
        assert_eq!(free_list.alloc(1024), Some(0));
    }
}
