//! The pages that the threads of a kernel have accessed, and the flags in them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::words::clock::Known;
use crate::words::page::Page;

pub(super) const PAGE_BYTES: u64 = 4096;

/// A word that blocks synchronize with.
#[derive(Debug, Default)]
pub(super) struct Flag {
    pub(super) known: Known,
    /// The number of times that it was published to.
    pub(super) version: u64,
}

/// Finds the number of a page: these are not chosen by an adversary.
#[derive(Debug, Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

pub(super) type Pages = HashMap<u64, Page, BuildHasherDefault<PageHasher>>;

/// Returns the page of a number, if it is there or may be added.
#[inline]
pub(super) fn page(pages: &mut Pages, number: u64, may_add: impl FnOnce() -> bool) -> Option<&mut Page> {
    match pages.entry(number) {
        Entry::Occupied(entry) => Some(entry.into_mut()),
        Entry::Vacant(entry) => may_add().then(|| entry.insert(Page::new(PAGE_BYTES))),
    }
}

/// Forgets the accesses to a range.
pub(super) fn forget(pages: &mut Pages, address: u64, end: u64) {
    for (&number, page) in pages {
        let start = number * PAGE_BYTES;
        let (from, to) = (address.max(start), end.min(start + PAGE_BYTES));
        if from < to {
            page.forget(from - start, to - start);
        }
    }
}
