//! Which bytes of a segment are whose: free spans by offset. Pure arithmetic.

use std::collections::BTreeMap;

/// Blocks begin at multiples of this, as those of a driver do.
pub(crate) const GRANULE_BYTES: u64 = 512;

/// What a block of so many bytes takes.
pub(crate) fn span_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE_BYTES)
}

/// What is free of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// Lengths by offset, without neighbours.
    free: BTreeMap<u64, u64>,
    /// None is longer. So one that is full is not searched again and again.
    longest_max: u64,
}

impl PartialEq for Room {
    fn eq(&self, other: &Self) -> bool {
        self.free == other.free
    }
}

impl Eq for Room {}

impl Room {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]), longest_max: bytes }
    }

    /// The first bytes that are long enough.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
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

    /// Takes bytes that are known to be free. Whether they were.
    pub(crate) fn take_at(&mut self, offset: u64, bytes: u64) -> bool {
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

    pub(crate) fn give(&mut self, offset: u64, bytes: u64) {
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
        let mut room = Room::new(4096);
        let offsets = [512, 1024, 512].map(|bytes| room.take(bytes).unwrap());
        assert_eq!(offsets, [0, 512, 1536]);
        room.give(0, 512);
        room.give(1536, 512);
        room.give(512, 1024);
        assert_eq!(room, Room::new(4096));
    }

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut room = Room::new(1024);
        assert_eq!(room.take(2048), None);
        assert!(room.take_at(512, 512));
        assert!(!room.take_at(512, 512));
        assert!(!room.take_at(0, 1024));
        assert!(!room.take_at(u64::MAX, 512));
        assert_eq!(room.take(512), Some(0));
        assert_eq!(room.take(512), None);
    }

    #[test]
    fn what_was_not_there_is_there_when_it_was_given_back() {
        let mut room = Room::new(1024);
        let offsets = [512, 512].map(|bytes| room.take(bytes).unwrap());
        assert_eq!(room.take(512), None);
        room.give(offsets[0], 512);
        assert_eq!(room.take(1024), None);
        room.give(offsets[1], 512);
        assert_eq!(room.take(1024), Some(0));
    }
}
