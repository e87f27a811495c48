//! Segregated free lists of ranges, by length. Pure: knows the ranges' numbers and lengths only.
//!
//! Each length below [`EXACT`] granules has its own bin; longer ranges share a bin with ranges of about their length. A
//! two-level bitmap finds the next bin that is not empty in a few instructions.

/// Lengths below this have a bin of their own.
const EXACT: usize = 512;
const EXACT_BITS: u32 = EXACT.trailing_zeros();
/// Bins for each doubling of length above.
const STEP_BITS: u32 = 6;
const COUNT: usize = EXACT + ((32 - EXACT_BITS as usize) << STEP_BITS);
const WORDS: usize = COUNT.div_ceil(64);

/// How many ranges of one bin are compared before the best fit so far is taken.
const LOOKS_MAX: usize = 16;

/// Marks the absence of a range.
pub(super) const NONE: u32 = u32::MAX;

/// A range's links in its bin, stored by the owner of the ranges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) before: u32,
    pub(super) after: u32,
}

impl Link {
    pub(super) const NONE: Self = Self { before: NONE, after: NONE };
}

/// The ranges, as the bins see them.
pub(super) trait BinItems {
    fn link(&self, range: u32) -> Link;
    fn link_mut(&mut self, range: u32) -> &mut Link;
    /// In granules.
    fn length(&self, range: u32) -> u32;
}

#[derive(Debug)]
pub(super) struct Bins {
    heads: Box<[u32; COUNT]>,
    full: [u64; WORDS],
    /// A bit for each word of `full` that is not zero.
    summary: u64,
}

const _: () = assert!(WORDS <= 64, "one summary word covers all words");

impl Bins {
    pub(super) fn new() -> Self {
        Self { heads: Box::new([NONE; COUNT]), full: [0; WORDS], summary: 0 }
    }

    pub(super) fn insert(&mut self, ranges: &mut impl BinItems, range: u32) {
        let bin = bin_of(ranges.length(range));
        let head = self.heads[bin];
        *ranges.link_mut(range) = Link { before: NONE, after: head };
        if head == NONE {
            self.full[bin / 64] |= 1 << (bin % 64);
            self.summary |= 1 << (bin / 64);
        } else {
            ranges.link_mut(head).before = range;
        }
        self.heads[bin] = range;
    }

    pub(super) fn remove(&mut self, ranges: &mut impl BinItems, range: u32) {
        let Link { before, after } = ranges.link(range);
        if after != NONE {
            ranges.link_mut(after).before = before;
        }
        if before != NONE {
            ranges.link_mut(before).after = after;
            return;
        }
        let bin = bin_of(ranges.length(range));
        self.heads[bin] = after;
        if after == NONE {
            self.full[bin / 64] &= !(1 << (bin % 64));
            if self.full[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }

    /// Returns the best fit for `length` among the ranges that `is_good` accepts.
    pub(super) fn best(&self, ranges: &impl BinItems, length: u32, is_good: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.best_within(LOOKS_MAX, ranges, length, &is_good);
        // A range that fits is found even after many that do not.
        found.or_else(|| self.best_within(usize::MAX, ranges, length, &is_good))
    }

    fn best_within(
        &self,
        looks: usize,
        ranges: &impl BinItems,
        length: u32,
        is_good: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut bin = bin_of(length);
        loop {
            bin = self.full_from(bin)?;
            if let Some(found) = self.best_of(ranges, bin, looks, length, is_good) {
                return Some(found);
            }
            bin += 1;
        }
    }

    /// Returns all ranges of at least `length`.
    pub(super) fn from(&self, ranges: &impl BinItems, length: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut bin = bin_of(length);
        while let Some(full) = self.full_from(bin) {
            let mut range = self.heads[full];
            while range != NONE {
                if ranges.length(range) >= length {
                    found.push(range);
                }
                range = ranges.link(range).after;
            }
            bin = full + 1;
        }
        found
    }

    fn best_of(
        &self,
        ranges: &impl BinItems,
        bin: usize,
        looks: usize,
        length: u32,
        is_good: &impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let (mut best, mut best_length) = (None, u32::MAX);
        let mut range = self.heads[bin];
        for _ in 0..looks {
            if range == NONE {
                break;
            }
            let found = ranges.length(range);
            if found >= length && found < best_length && is_good(range) {
                (best, best_length) = (Some(range), found);
                if bin < EXACT || found == length {
                    break;
                }
            }
            range = ranges.link(range).after;
        }
        best
    }

    /// Returns the first bin from `bin` on that is not empty.
    fn full_from(&self, bin: usize) -> Option<usize> {
        if bin >= COUNT {
            return None;
        }
        let word = bin / 64;
        let here = self.full[word] & (u64::MAX << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let later = self.summary & (u64::MAX << word) & !(1 << word);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some(word * 64 + self.full[word].trailing_zeros() as usize)
    }
}

fn bin_of(length: u32) -> usize {
    if (length as usize) < EXACT {
        return length as usize;
    }
    let bits = length.ilog2();
    let step = (length >> (bits - STEP_BITS)) as usize & ((1 << STEP_BITS) - 1);
    EXACT + (((bits - EXACT_BITS) as usize) << STEP_BITS) + step
}
