//! A bitmap of the bytes of shared memory that the threads of a block have written.

use crate::access::{AccessKind, LANES, WarpAccess};
use crate::words::page::for_each_run;

/// The bytes of a word of bits.
const WORD: u64 = u64::BITS as u64;

#[derive(Debug)]
pub(super) struct Written {
    /// With a further word, so that a mask may reach beyond the last byte.
    words: Vec<u64>,
    bytes: u64,
    /// How many bytes are not written.
    left: u64,
}

/// Returns the number of the word that has the first of up to 64 bytes, and their bits in it and in the next one.
#[inline]
fn masks(at: u64, bytes: u64) -> (usize, [u64; 2]) {
    let ones = u64::MAX >> (WORD - bytes);
    let shift = at % WORD;
    ((at / WORD) as usize, [ones << shift, if shift == 0 { 0 } else { ones >> (WORD - shift) }])
}

/// Returns the parts of a range, of up to 64 bytes each.
#[inline]
fn parts(start: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes).step_by(WORD as usize).map(move |offset| (start + offset, (bytes - offset).min(WORD)))
}

impl Written {
    pub(super) fn new(bytes: u64) -> Self {
        Self { words: vec![0; bytes.div_ceil(WORD) as usize + 1], bytes, left: bytes }
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.left = self.bytes;
    }

    /// Notes the bytes that an access writes. Returns the first lane that reads bytes of which none is written: others may read
    /// padding.
    #[inline]
    pub(super) fn access(&mut self, access: &WarpAccess<'_>) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        // An acquire or a release is an operation of a barrier, such as its initialization.
        let needs_value = access.kind == AccessKind::Read || access.kind == AccessKind::Atomic && !access.is_ordering;
        let found = if needs_value { self.unwritten_lane(access) } else { None };
        if access.kind != AccessKind::Read {
            for_each_run(access, |lane, lanes| {
                self.write(access.addresses[lane as usize], u64::from(lanes) * access.bytes);
            });
        }
        found
    }

    fn unwritten_lane(&self, access: &WarpAccess<'_>) -> Option<u32> {
        let bytes = access.bytes;
        let mut found = None;
        for_each_run(access, |first, lanes| {
            if found.is_none() && !self.has_all(access.addresses[first as usize], u64::from(lanes) * bytes) {
                found = (first..first + lanes).find(|&lane| {
                    let at = access.addresses[lane as usize];
                    // An access beyond the end is another error.
                    at.saturating_add(bytes) <= self.bytes && !self.has_any(at, bytes)
                });
            }
        });
        found
    }

    /// Returns whether words are written: one for each lane of half a warp, at equal distances.
    #[inline]
    pub(super) fn has_words(&self, first: u32, distance: u32) -> bool {
        const LANES_OF_HALF: u32 = LANES as u32 / 2;
        match distance {
            _ if self.left == 0 => true,
            0 => self.has(first.into(), 4),
            4 => self.has(first.into(), 4 * u64::from(LANES_OF_HALF)),
            _ => (0..LANES_OF_HALF).all(|lane| self.has(first.wrapping_add(lane.wrapping_mul(distance)).into(), 4)),
        }
    }

    /// Returns whether up to 64 bytes are written.
    #[inline]
    fn has(&self, at: u64, bytes: u64) -> bool {
        let (word, [low, high]) = masks(at, bytes);
        match self.words.get(word..) {
            Some([first, second, ..]) => first & low == low && second & high == high,
            _ => false,
        }
    }

    #[inline]
    fn has_all(&self, start: u64, bytes: u64) -> bool {
        parts(start, bytes).all(|(at, bytes)| self.has(at, bytes))
    }

    fn has_any(&self, start: u64, bytes: u64) -> bool {
        parts(start, bytes).any(|(at, bytes)| {
            let (word, [low, high]) = masks(at, bytes);
            let has = |word: usize, mask: u64| self.words.get(word).is_some_and(|word| word & mask != 0);
            has(word, low) || has(word + 1, high)
        })
    }

    #[inline]
    fn write(&mut self, start: u64, bytes: u64) {
        let bytes = bytes.min(self.bytes.saturating_sub(start));
        for (at, bytes) in parts(start, bytes) {
            let (word, masks) = masks(at, bytes);
            for (word, mask) in self.words[word..].iter_mut().zip(masks) {
                let added = mask & !*word;
                if added != 0 {
                    self.left -= u64::from(added.count_ones());
                    *word |= added;
                }
            }
        }
    }
}
