//! Advice for a block of managed memory, page by page: read-mostly, preferred location, accessing devices, last
//! prefetch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;

use freehold_driver::cuda::CUmemLocation;

use crate::base::sync::lock;

/// The unit of advice.
const PAGE_BYTES: u64 = 4096;

/// The advice for all pages of a block. Each entry applies from its page up to the next entry.
#[derive(Debug)]
pub(crate) struct AdviceMap(Mutex<BTreeMap<u64, Advice>>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) is_read_mostly: bool,
    pub(crate) preferred: Option<CUmemLocation>,
    /// The location of the last prefetch.
    pub(crate) prefetched: Option<CUmemLocation>,
    /// Device ordinals, with -1 for the host.
    pub(crate) accessed_by: BTreeSet<i32>,
}

impl Default for AdviceMap {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::from([(0, Advice::default())])))
    }
}

/// Returns the pages that a range of bytes overlaps.
fn pages(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES)
}

impl AdviceMap {
    /// Changes the advice for all pages that a range of bytes, counted from the start of the block, overlaps.
    pub(crate) fn update(&self, bytes: &Range<u64>, change: impl Fn(&mut Advice)) {
        let pages = pages(bytes);
        let mut advices = lock(&self.0);
        for edge in [pages.start, pages.end] {
            let before = advices.range(..=edge).next_back().map(|(_, advice)| advice.clone());
            advices.entry(edge).or_insert(before.unwrap_or_default());
        }
        advices.range_mut(pages).for_each(|(_, advice)| change(advice));
    }

    /// Returns the different advice values within a range of bytes, in address order.
    pub(crate) fn within(&self, bytes: &Range<u64>) -> Vec<Advice> {
        let pages = pages(bytes);
        let advices = lock(&self.0);
        let first = advices.range(..=pages.start).next_back();
        let rest = advices.range(pages.start + 1..pages.end.max(pages.start + 1));
        first.into_iter().chain(rest).map(|(_, advice)| advice.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_mostly(advices: &AdviceMap, bytes: Range<u64>) -> Vec<bool> {
        advices.within(&bytes).iter().map(|advice| advice.is_read_mostly).collect()
    }

    #[test]
    fn advice_holds_for_the_pages_that_it_touches_and_no_others() {
        let advices = AdviceMap::default();
        advices.update(&(5000..9000), |advice| advice.is_read_mostly = true);
        assert_eq!(read_mostly(&advices, 0..4096), [false]);
        assert_eq!(read_mostly(&advices, 4096..12288), [true]);
        assert_eq!(read_mostly(&advices, 0..20000), [false, true, false]);
        assert_eq!(read_mostly(&advices, 12288..12289), [false]);
    }

    #[test]
    fn advice_within_advice_leaves_the_rest_as_it_was() {
        let advices = AdviceMap::default();
        advices.update(&(0..40960), |advice| advice.is_read_mostly = true);
        advices.update(&(8192..12288), |advice| advice.is_read_mostly = false);
        assert_eq!(read_mostly(&advices, 0..40960), [true, false, true]);
    }
}
