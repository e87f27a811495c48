//! Which blocks begin in 2 MiB of addresses, and which one lies across their beginning. Knows one page only.
//!
//! A page is 64 groups of 64 granules of 512 bytes. A group is one cache line: a bit for each granule in which a block
//! begins, and the heads of those granules. A head is the block that begins last in its granule; the others follow
//! as its siblings, in descending order. A page in which one block begins has no groups at all.

use super::record::{NONE, Records};

pub(super) const PAGE_BITS: u32 = 21;
const GRANULE_BITS: u32 = 9;
const GROUPS: usize = 64;

/// Heads that fit a cache line beside the bits.
const FEW: usize = 13;

/// A group with many heads becomes one with few at this count: well below `FEW`, so that it does not go to and fro.
const FEW_AGAIN: u32 = 6;

/// Tables of groups that are kept for pages to come.
const SPARES_MAX: usize = 16;

type Groups = [Group; GROUPS];

#[derive(Debug)]
pub(super) struct Page {
    /// A bit for each group in which a block begins.
    summary: u64,
    /// The block that began in an earlier page and lies at the first address of this one.
    pub(super) cover: u32,
    /// The block that begins here, where there are no groups.
    sole: u32,
    groups: Option<Box<Groups>>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Group {
    starts: u64,
    heads: Heads,
}

const _: () = assert!(size_of::<Group>() == 64, "a group is one cache line");

#[derive(Debug)]
enum Heads {
    /// In the order of their granules, without gaps.
    Few([u32; FEW]),
    /// One for each granule.
    Many(Box<[u32; 64]>),
}

/// Empty tables of groups.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Box<Groups>>);

impl Page {
    pub(super) const EMPTY: Self = Self { summary: 0, cover: NONE, sole: NONE, groups: None };

    pub(super) fn is_empty(&self) -> bool {
        self.cover == NONE && self.sole == NONE && self.groups.is_none()
    }

    /// The last block that begins in this page at an address or before it, or else the one across its beginning.
    #[inline]
    pub(super) fn at_or_before(&self, records: &Records, address: u64) -> u32 {
        let Some(groups) = &self.groups else {
            let begun = self.sole != NONE && records.line(self.sole).base <= address;
            return if begun { self.sole } else { self.cover };
        };
        let (group, bit) = place(address);
        let starts = groups[group].starts & (u64::MAX >> (63 - bit));
        if starts != 0 {
            let top = starts.ilog2();
            let found = sibling_at_or_before(records, groups[group].head(top), address);
            if found != NONE {
                return found;
            }
            let starts = starts & !(1 << top);
            if starts != 0 {
                return groups[group].head(starts.ilog2());
            }
        }
        let earlier = self.summary & ((1 << group) - 1);
        if earlier == 0 {
            return self.cover;
        }
        let group = &groups[earlier.ilog2() as usize];
        group.head(group.starts.ilog2())
    }

    /// The first block that begins in this page at an address of it or after it.
    pub(super) fn at_or_after(&self, records: &Records, address: u64) -> u32 {
        let Some(groups) = &self.groups else {
            let to_come = self.sole != NONE && records.line(self.sole).base >= address;
            return if to_come { self.sole } else { NONE };
        };
        let (group, bit) = place(address);
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
        let later = self.summary & !(u64::MAX >> (63 - group));
        if later == 0 {
            return NONE;
        }
        let group = &groups[later.trailing_zeros() as usize];
        sibling_at_or_after(records, group.head(group.starts.trailing_zeros()), address)
    }

    /// Notes a block that begins here and at whose base none does.
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

    /// Strikes a block that was noted here.
    pub(super) fn remove(&mut self, records: &mut Records, spares: &mut Spares, index: u32) {
        let Some(groups) = &mut self.groups else {
            assert_eq!(self.sole, index, "a block is removed from the page in which it begins");
            self.sole = NONE;
            return;
        };
        let base = records.line(index).base;
        let (group, bit) = place(base);
        let head = groups[group].head(bit);
        let sibling = records.rest(index).sibling;
        if head != index {
            let before = sibling_before(records, head, index);
            records.rest_mut(before).sibling = sibling;
        } else if sibling != NONE {
            *groups[group].head_mut(bit) = sibling;
        } else {
            groups[group].remove(bit);
            if groups[group].starts == 0 {
                self.summary &= !(1 << group);
            }
        }
        if self.summary == 0
            && let Some(groups) = self.groups.take()
        {
            spares.keep(groups);
        }
    }

    fn insert_in_group(&mut self, records: &mut Records, index: u32) {
        let groups = self.groups.as_mut().expect("a page has groups before a block is noted in one");
        let base = records.line(index).base;
        let (group, bit) = place(base);
        self.summary |= 1 << group;
        let group = &mut groups[group];
        records.rest_mut(index).sibling = NONE;
        if group.starts & (1 << bit) == 0 {
            return group.insert(bit, index);
        }
        let head = group.head_mut(bit);
        if records.line(*head).base < base {
            records.rest_mut(index).sibling = std::mem::replace(head, index);
            return;
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

impl Group {
    const EMPTY: Self = Self { starts: 0, heads: Heads::Few([NONE; FEW]) };

    /// How many granules before that of `bit` have heads.
    fn rank(&self, bit: u32) -> usize {
        (self.starts & ((1 << bit) - 1)).count_ones() as usize
    }

    #[inline]
    fn head(&self, bit: u32) -> u32 {
        match &self.heads {
            Heads::Few(heads) => heads[self.rank(bit)],
            Heads::Many(heads) => heads[bit as usize],
        }
    }

    fn head_mut(&mut self, bit: u32) -> &mut u32 {
        let rank = self.rank(bit);
        match &mut self.heads {
            Heads::Few(heads) => &mut heads[rank],
            Heads::Many(heads) => &mut heads[bit as usize],
        }
    }

    /// Gives a head to a granule that has none.
    fn insert(&mut self, bit: u32, index: u32) {
        let rank = self.rank(bit);
        let count = self.starts.count_ones() as usize;
        if count == FEW
            && let Heads::Few(few) = &self.heads
        {
            let mut many = Box::new([NONE; 64]);
            for (&head, bit) in few.iter().zip(bits(self.starts)) {
                many[bit as usize] = head;
            }
            self.heads = Heads::Many(many);
        }
        self.starts |= 1 << bit;
        match &mut self.heads {
            Heads::Few(heads) => {
                heads.copy_within(rank..count, rank + 1);
                heads[rank] = index;
            }
            Heads::Many(heads) => heads[bit as usize] = index,
        }
    }

    /// Takes the head from a granule.
    fn remove(&mut self, bit: u32) {
        let rank = self.rank(bit);
        let count = self.starts.count_ones();
        self.starts &= !(1 << bit);
        match &mut self.heads {
            Heads::Few(heads) => heads.copy_within(rank + 1..count as usize, rank),
            Heads::Many(many) if count == FEW_AGAIN + 1 => {
                let mut few = [NONE; FEW];
                for (head, bit) in few.iter_mut().zip(bits(self.starts)) {
                    *head = many[bit as usize];
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
            let Ok(groups) = groups.try_into() else { unreachable!("a table has as many groups as were made for it") };
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

/// The group and the granule within it of an address.
#[inline]
fn place(address: u64) -> (usize, u32) {
    let granule = (address >> GRANULE_BITS) as u32;
    ((granule / 64) as usize % GROUPS, granule % 64)
}

/// The bits that are set, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.checked_ilog2().map(|_| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

/// The last of a granule that begins at an address or before it.
#[inline]
fn sibling_at_or_before(records: &Records, head: u32, address: u64) -> u32 {
    let mut found = head;
    while found != NONE && records.line(found).base > address {
        found = records.rest(found).sibling;
    }
    found
}

/// The first of a granule that begins at an address or after it.
fn sibling_at_or_after(records: &Records, head: u32, address: u64) -> u32 {
    let (mut found, mut next) = (NONE, head);
    while next != NONE && records.line(next).base >= address {
        (found, next) = (next, records.rest(next).sibling);
    }
    found
}

/// The one of a granule whose next sibling is `index`.
fn sibling_before(records: &Records, head: u32, index: u32) -> u32 {
    let mut before = head;
    while records.rest(before).sibling != index {
        before = records.rest(before).sibling;
        assert_ne!(before, NONE, "a block is removed from the granule in which it begins");
    }
    before
}
