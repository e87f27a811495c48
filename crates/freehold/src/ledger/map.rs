//! Maps an address to the record of the block there. Knows where blocks begin and end, and nothing else about them.
//!
//! A two-level table leads from the low 47 bits of an address to its page of 2 MiB; a page knows the blocks that begin
//! in it and the one that covers its first address. So a lookup reads three tables and the record, and a block of 64
//! MiB is listed in at most 33 pages. Larger blocks, and those above 47 bits, are few: they are kept in a tree.

use std::collections::BTreeMap;

use super::page::{PAGE_BITS, Page, Spares};
use super::record::{NONE, Record, Records};

/// Pages of a leaf: 8 GiB of addresses.
const LEAF: usize = 1 << 12;
const LEAVES: usize = 1 << 14;
const LEAF_BITS: u32 = PAGE_BITS + 12;

/// Addresses from here on are in the tree.
const ADDRESSES_END: u64 = (LEAVES as u64) << LEAF_BITS;

/// Longer blocks are in the tree.
const PAGED_BYTES_MAX: u64 = 64 << 20;

type Leaf = [Page; LEAF];

#[derive(Debug)]
pub(super) struct RangeMap {
    leaves: Box<[Option<Box<Leaf>>; LEAVES]>,
    /// How many pages of each leaf are not empty.
    used: Box<[u16; LEAVES]>,
    /// An empty leaf, so that a single block that comes and goes does not allocate one each time.
    spare_leaf: Option<Box<Leaf>>,
    spares: Spares,
    /// The blocks that are not in pages, by base.
    tree: BTreeMap<u64, u32>,
}

impl RangeMap {
    pub(super) fn new() -> Self {
        Self {
            leaves: boxed(|| None),
            used: boxed(|| 0),
            spare_leaf: None,
            spares: Spares::default(),
            tree: BTreeMap::new(),
        }
    }

    /// Returns the block whose first `bytes` contain an address.
    #[inline]
    pub(super) fn at<'a>(&self, records: &'a Records, address: u64) -> Option<(u32, &'a Record)> {
        let likely = self.page(address).map_or(NONE, |page| page.likely_at(records, address));
        if likely != NONE {
            let record = records.line(likely);
            if record.has(address) {
                return Some((likely, record));
            }
        }
        self.at_after_all(records, address)
    }

    /// The slow path of `at`, if the likely block does not contain the address.
    #[cold]
    fn at_after_all<'a>(&self, records: &'a Records, address: u64) -> Option<(u32, &'a Record)> {
        let paged = self.paged_at_or_before(records, address);
        let treed = || self.tree.range(..=address).next_back().map_or(NONE, |(_, &index)| index);
        let at = |index| (index != NONE && records.line(index).has(address)).then(|| (index, records.line(index)));
        at(paged).or_else(|| at(treed()))
    }

    /// Returns the first block whose capacity overlaps `first..=last`.
    pub(super) fn overlap(&self, records: &Records, first: u64, last: u64) -> Option<u32> {
        let across = self.paged_at_or_before(records, first);
        if across != NONE && records.last(across) >= first {
            return Some(across);
        }
        let paged = self.paged_at_or_after(records, first, last);
        if self.tree.is_empty() {
            return paged;
        }
        let before = self.tree.range(..=first).next_back().map(|(_, &index)| index);
        if let Some(across) = before.filter(|&index| records.last(index) >= first) {
            return Some(across);
        }
        let treed = self.tree.range(first..=last).next().map(|(_, &index)| index);
        [paged, treed].into_iter().flatten().min_by_key(|&index| records.line(index).base)
    }

    /// Inserts a block that overlaps none.
    pub(super) fn insert(&mut self, records: &mut Records, index: u32) {
        let (base, last) = (records.line(index).base, records.last(index));
        if !is_paged(base, last) {
            self.tree.insert(base, index);
            return;
        }
        self.change(base >> PAGE_BITS, |page, spares| page.insert(records, spares, index));
        self.cover(base, last, index);
    }

    /// Removes a block.
    pub(super) fn remove(&mut self, records: &mut Records, index: u32) {
        let (base, last) = (records.line(index).base, records.last(index));
        if !is_paged(base, last) {
            self.tree.remove(&base);
            return;
        }
        self.change(base >> PAGE_BITS, |page, spares| page.remove(records, spares, index));
        self.cover(base, last, NONE);
    }

    /// Changes the capacity of a block. Added capacity overlaps no block.
    pub(super) fn resize(&mut self, records: &mut Records, index: u32, capacity_bytes: u64) {
        let (base, before) = (records.line(index).base, records.last(index));
        let after = base + (capacity_bytes - 1);
        match (is_paged(base, before), is_paged(base, after)) {
            (true, true) if after > before => self.cover(before, after, index),
            (true, true) => self.cover(after, before, NONE),
            (false, false) => {}
            _ => {
                self.remove(records, index);
                records.rest_mut(index).capacity_bytes = capacity_bytes;
                return self.insert(records, index);
            }
        }
        records.rest_mut(index).capacity_bytes = capacity_bytes;
    }

    /// Returns the last block of an address's page that begins at it or before it, or the one that covers the page's
    /// first address.
    fn paged_at_or_before(&self, records: &Records, address: u64) -> u32 {
        self.page(address).map_or(NONE, |page| page.at_or_before(records, address))
    }

    #[inline]
    fn page(&self, address: u64) -> Option<&Page> {
        let leaf = self.leaves.get((address >> LEAF_BITS) as usize)?.as_ref()?;
        Some(&leaf[(address >> PAGE_BITS) as usize % LEAF])
    }

    /// Returns the first block in pages that begins in `first..=last`.
    fn paged_at_or_after(&self, records: &Records, first: u64, last: u64) -> Option<u32> {
        if first >= ADDRESSES_END {
            return None;
        }
        let page_last = last.min(ADDRESSES_END - 1) >> PAGE_BITS;
        let mut page = first >> PAGE_BITS;
        while page <= page_last {
            let Some(leaf) = &self.leaves[page as usize / LEAF] else {
                page = (page / LEAF as u64 + 1) * LEAF as u64;
                continue;
            };
            let found = leaf[page as usize % LEAF].at_or_after(records, first.max(page << PAGE_BITS));
            if found != NONE {
                return (records.line(found).base <= last).then_some(found);
            }
            page += 1;
        }
        None
    }

    /// Sets which block covers the first addresses of all pages after that of `base`.
    fn cover(&mut self, base: u64, last: u64, index: u32) {
        for page in (base >> PAGE_BITS) + 1..=last >> PAGE_BITS {
            self.change(page, |page, _| page.cover = index);
        }
    }

    fn change(&mut self, page: u64, change: impl FnOnce(&mut Page, &mut Spares)) {
        let index = page as usize / LEAF;
        let leaf =
            self.leaves[index].get_or_insert_with(|| self.spare_leaf.take().unwrap_or_else(|| boxed(|| Page::EMPTY)));
        let page = &mut leaf[page as usize % LEAF];
        let was_empty = page.is_empty();
        change(page, &mut self.spares);
        match (was_empty, page.is_empty()) {
            (true, false) => self.used[index] += 1,
            (false, true) => self.used[index] -= 1,
            _ => {}
        }
        if self.used[index] == 0 {
            self.spare_leaf = self.leaves[index].take();
        }
    }
}

fn is_paged(base: u64, last: u64) -> bool {
    last < ADDRESSES_END && last - base < PAGED_BYTES_MAX
}

fn boxed<T, const N: usize>(item: impl Fn() -> T) -> Box<[T; N]> {
    let items: Box<[T]> = (0..N).map(|_| item()).collect();
    let Ok(items) = items.try_into() else { unreachable!("the array has the length of its items") };
    items
}
