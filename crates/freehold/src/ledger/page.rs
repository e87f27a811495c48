//! Which blocks begin in 2 MiB of addresses, and which one covers their first address. Knows one page only.
//!
//! A page is 64 groups of 64 granules of 512 bytes. A group is one cache line: a bit for each granule in which a block
//! begins, the heads of those granules, and the last head of the groups before. A head is the block that begins last in
//! its granule; the others follow as its siblings, in descending order. So a lookup reads the page, one group and the
//! record, and no branch depends on the group's content. A page in which one block begins has no groups at all.

use std::hint::select_unpredictable;

use super::record::{NONE, Records};

pub(super) const PAGE_BITS: u32 = 21;
const GRANULE_BITS: u32 = 9;
const GROUPS: usize = 64;

/// Heads that fit in a cache line together with the bits.
const FEW: usize = 12;

/// A group with many heads becomes one with few at this count: well below `FEW`, so that it does not switch back and
/// forth.
const FEW_AGAIN: u32 = 6;

/// How many tables of groups are kept for reuse.
const SPARES_MAX: usize = 16;

type Groups = [Group; GROUPS];

#[derive(Debug)]
pub(super) struct Page {
    /// The groups in which blocks begin.
    summary: Summary,
    /// The block that began in an earlier page and covers the first address of this one.
    pub(super) cover: u32,
    /// The block that begins here, if there are no groups.
    sole: u32,
    groups: Option<Box<Groups>>,
}

/// A set of groups, the first in the highest bit, so that the last group up to a given one is found by counting
/// trailing zeros. Counting leading zeros would compile to `bsr`, which depends on the previous value of its register:
/// the result of the previous lookup.
#[derive(Clone, Copy, Debug)]
struct Summary(u64);

#[derive(Debug)]
#[repr(align(64))]
struct Group {
    starts: u64,
    heads: Heads,
}

const _: () = assert!(size_of::<Group>() == 64, "a group is one cache line");

/// The heads of a group, after the last head of the groups before, which is meaningless in an empty group.
#[derive(Debug)]
enum Heads {
    /// In the order of their granules, without gaps.
    Few([u32; 1 + FEW]),
    /// One for each granule.
    Many(Box<[u32; 1 + 64]>),
}

/// Empty tables of groups.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Box<Groups>>);

impl Page {
    pub(super) const EMPTY: Self = Self { summary: Summary(0), cover: NONE, sole: NONE, groups: None };

    pub(super) fn is_empty(&self) -> bool {
        self.cover == NONE && self.sole == NONE && self.groups.is_none()
    }

    /// Returns the block that begins last in the granule of an address or before it, or else the one that covers the
    /// page's first address. If the page has groups, this reads no record: the caller does, and nothing else has to
    /// wait for it.
    #[inline]
    pub(super) fn likely_at(&self, records: &Records, address: u64) -> u32 {
        let Some(groups) = &self.groups else { return self.sole_or_cover(records, address) };
        let (group, bit) = position(address);
        let Some(last) = self.summary.last_upto(group) else { return self.cover };
        let bit = select_unpredictable(last == group, bit, 63);
        let found = groups[last].upto(bit);
        if found == NONE { self.cover } else { found }
    }

    /// Returns the last block that begins in this page at an address or before it, or else the one that covers its
    /// first address.
    pub(super) fn at_or_before(&self, records: &Records, address: u64) -> u32 {
        let likely = self.likely_at(records, address);
        match &self.groups {
            Some(groups) if likely != NONE && records.line(likely).base > address => {
                self.within_granule(records, &groups[position(address).0], address)
            }
            _ => likely,
        }
    }

    #[inline(never)]
    fn sole_or_cover(&self, records: &Records, address: u64) -> u32 {
        let begun = self.sole != NONE && records.line(self.sole).base <= address;
        if begun { self.sole } else { self.cover }
    }

    /// Like `at_or_before`, if the head of the address's own granule begins after it.
    #[cold]
    fn within_granule(&self, records: &Records, group: &Group, address: u64) -> u32 {
        let (_, bit) = position(address);
        let sibling = sibling_at_or_before(records, group.head(bit), address);
        if sibling != NONE {
            return sibling;
        }
        let found = if bit == 0 { group.before() } else { group.upto(bit - 1) };
        if found == NONE { self.cover } else { found }
    }

    /// Returns the first block that begins in this page at an address or after it.
    pub(super) fn at_or_after(&self, records: &Records, address: u64) -> u32 {
        let Some(groups) = &self.groups else {
            let to_come = self.sole != NONE && records.line(self.sole).base >= address;
            return if to_come { self.sole } else { NONE };
        };
        let (group, bit) = position(address);
        let starts = groups[group].starts & (u64::MAX << bit);
        if starts != 0 {
            let found = sibling_at_or_after(records, groups[group].head(starts.trailing_zeros()), address);
            if found != NONE {
                return found;
            }
            let starts = starts & (starts - 1);
            if starts != 0 {
                return sibling_at_or_after(records, groups[group].head(starts.trailing_zeros()), address);
            }
        }
        let Some(next) = self.summary.next_after(group) else { return NONE };
        let group = &groups[next];
        sibling_at_or_after(records, group.head(group.starts.trailing_zeros()), address)
    }

    /// Inserts a block that begins here, at a base where none does.
    pub(super) fn insert(&mut self, records: &mut Records, spares: &mut Spares, index: u32) {
        if self.groups.is_none() {
            if self.sole == NONE {
                self.sole = index;
                return;
            }
            self.groups = Some(spares.take());
            let sole = std::mem::replace(&mut self.sole, NONE);
            self.insert_in_group(records, sole);
        }
        self.insert_in_group(records, index);
    }

    /// Removes a block.
    pub(super) fn remove(&mut self, records: &mut Records, spares: &mut Spares, index: u32) {
        let Some(groups) = &mut self.groups else {
            assert_eq!(self.sole, index, "a block is removed from the page in which it begins");
            self.sole = NONE;
            return;
        };
        let base = records.line(index).base;
        let (group, bit) = position(base);
        let head = groups[group].head(bit);
        let sibling = records.rest(index).sibling;
        if head != index {
            let before = sibling_before(records, head, index);
            records.rest_mut(before).sibling = sibling;
        } else if sibling != NONE {
            *groups[group].head_mut(bit) = sibling;
            tell_next(groups, self.summary, group);
        } else {
            groups[group].remove(bit);
            tell_next(groups, self.summary, group);
            if groups[group].starts == 0 {
                self.summary.remove(group);
            }
        }
        if self.summary.is_empty()
            && let Some(groups) = self.groups.take()
        {
            spares.keep(groups);
        }
    }

    fn insert_in_group(&mut self, records: &mut Records, index: u32) {
        let groups = self.groups.as_mut().expect("a page has groups before a block is inserted in one");
        let base = records.line(index).base;
        let (group, bit) = position(base);
        records.rest_mut(index).sibling = NONE;
        if groups[group].starts == 0 {
            let earlier = self.summary.last_upto(group);
            *groups[group].before_mut() = earlier.map_or(NONE, |last| groups[last].upto(63));
            self.summary.insert(group);
        }
        if groups[group].starts & (1 << bit) == 0 {
            groups[group].insert(bit, index);
            return tell_next(groups, self.summary, group);
        }
        let head = groups[group].head_mut(bit);
        if records.line(*head).base < base {
            records.rest_mut(index).sibling = std::mem::replace(head, index);
            return tell_next(groups, self.summary, group);
        }
        let mut before = *head;
        loop {
            let next = records.rest(before).sibling;
            if next == NONE || records.line(next).base < base {
                records.rest_mut(before).sibling = index;
                records.rest_mut(index).sibling = next;
                return;
            }
            before = next;
        }
    }
}

/// Updates the last head before the next group in which blocks begin, after one of `group` changed.
fn tell_next(groups: &mut Groups, summary: Summary, group: usize) {
    if let Some(next) = summary.next_after(group) {
        *groups[next].before_mut() = groups[group].upto(63);
    }
}

impl Summary {
    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn insert(&mut self, group: usize) {
        self.0 |= 1 << (63 - group);
    }

    fn remove(&mut self, group: usize) {
        self.0 &= !(1 << (63 - group));
    }

    #[inline]
    fn last_upto(self, group: usize) -> Option<usize> {
        let upto = self.0 & (u64::MAX << (63 - group));
        (upto != 0).then(|| 63 - upto.trailing_zeros() as usize)
    }

    fn next_after(self, group: usize) -> Option<usize> {
        let after = self.0 & !(u64::MAX << (63 - group));
        (after != 0).then(|| after.leading_zeros() as usize)
    }
}

impl Group {
    const EMPTY: Self = Self { starts: 0, heads: Heads::Few([NONE; 1 + FEW]) };

    /// Returns how many granules before that of `bit` have heads.
    fn rank(&self, bit: u32) -> usize {
        (self.starts & ((1 << bit) - 1)).count_ones() as usize
    }

    /// Returns the last head up to the granule of `bit`, or else the last of the groups before.
    #[inline]
    fn upto(&self, bit: u32) -> u32 {
        let starts = self.starts & (u64::MAX >> (63 - bit));
        match &self.heads {
            Heads::Few(heads) => heads[starts.count_ones() as usize],
            Heads::Many(heads) => heads[64 - starts.leading_zeros() as usize],
        }
    }

    /// Returns the head of a granule that has one.
    fn head(&self, bit: u32) -> u32 {
        self.upto(bit)
    }

    fn head_mut(&mut self, bit: u32) -> &mut u32 {
        let rank = self.rank(bit);
        match &mut self.heads {
            Heads::Few(heads) => &mut heads[1 + rank],
            Heads::Many(heads) => &mut heads[1 + bit as usize],
        }
    }

    fn before(&self) -> u32 {
        match &self.heads {
            Heads::Few(heads) => heads[0],
            Heads::Many(heads) => heads[0],
        }
    }

    fn before_mut(&mut self) -> &mut u32 {
        match &mut self.heads {
            Heads::Few(heads) => &mut heads[0],
            Heads::Many(heads) => &mut heads[0],
        }
    }

    /// Gives a head to a granule that has none.
    fn insert(&mut self, bit: u32, index: u32) {
        let rank = self.rank(bit);
        let count = self.starts.count_ones() as usize;
        if count == FEW
            && let Heads::Few([before, few @ ..]) = &self.heads
        {
            let mut many = Box::new([NONE; 1 + 64]);
            many[0] = *before;
            for (&head, bit) in few.iter().zip(bits(self.starts)) {
                many[1 + bit as usize] = head;
            }
            self.heads = Heads::Many(many);
        }
        self.starts |= 1 << bit;
        match &mut self.heads {
            Heads::Few([_, heads @ ..]) => {
                heads.copy_within(rank..count, rank + 1);
                heads[rank] = index;
            }
            Heads::Many(heads) => heads[1 + bit as usize] = index,
        }
    }

    /// Removes the head of a granule.
    fn remove(&mut self, bit: u32) {
        let rank = self.rank(bit);
        let count = self.starts.count_ones();
        self.starts &= !(1 << bit);
        match &mut self.heads {
            Heads::Few([_, heads @ ..]) => heads.copy_within(rank + 1..count as usize, rank),
            Heads::Many(many) if count == FEW_AGAIN + 1 => {
                let mut few = [NONE; 1 + FEW];
                few[0] = many[0];
                for (head, bit) in few[1..].iter_mut().zip(bits(self.starts)) {
                    *head = many[1 + bit as usize];
                }
                self.heads = Heads::Few(few);
            }
            Heads::Many(_) => {}
        }
    }
}

impl Spares {
    fn take(&mut self) -> Box<Groups> {
        self.0.pop().unwrap_or_else(|| {
            let groups: Box<[Group]> = (0..GROUPS).map(|_| Group::EMPTY).collect();
            let Ok(groups) = groups.try_into() else { unreachable!("the table has the length of its groups") };
            groups
        })
    }

    /// Keeps a table whose groups are all empty.
    fn keep(&mut self, groups: Box<Groups>) {
        if self.0.len() < SPARES_MAX {
            self.0.push(groups);
        }
    }
}

/// Returns the group of an address and the granule within it.
#[inline]
fn position(address: u64) -> (usize, u32) {
    let granule = (address >> GRANULE_BITS) as u32;
    ((granule / 64) as usize % GROUPS, granule % 64)
}

/// Returns the bits that are set, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.checked_ilog2().map(|_| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

/// Returns the last block of a granule that begins at an address or before it.
#[inline]
fn sibling_at_or_before(records: &Records, head: u32, address: u64) -> u32 {
    let mut found = head;
    while found != NONE && records.line(found).base > address {
        found = records.rest(found).sibling;
    }
    found
}

/// Returns the first block of a granule that begins at an address or after it.
fn sibling_at_or_after(records: &Records, head: u32, address: u64) -> u32 {
    let (mut found, mut next) = (NONE, head);
    while next != NONE && records.line(next).base >= address {
        (found, next) = (next, records.rest(next).sibling);
    }
    found
}

/// Returns the block of a granule whose next sibling is `index`.
fn sibling_before(records: &Records, head: u32, index: u32) -> u32 {
    let mut before = head;
    while records.rest(before).sibling != index {
        before = records.rest(before).sibling;
        assert_ne!(before, NONE, "a block is removed from the granule in which it begins");
    }
    before
}
