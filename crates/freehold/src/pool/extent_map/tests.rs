//! The extent map against a naive model, a list of spans. Random operations; after each, the map's invariants hold and
//! it agrees with the list.
//!
//! `FREEHOLD_SEED` names the only seed to run.

use freehold_testing::{Random, at_effort, print_seed, report_covered, seeds};

use super::*;

/// What the extents says, span by span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Hole,
    Free(u64),
    AllocatedExtent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    base: u64,
    bytes: u64,
    what: What,
}

impl Span {
    fn end(&self) -> u64 {
        self.base + self.bytes
    }
}

impl ExtentMap {
    /// Checks all that holds between calls, and returns the spans by address.
    fn assert_sound(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let (mut free, mut tops, mut holes) = (Vec::new(), Vec::new(), Vec::new());
        for region in &self.regions {
            let (mut at, mut before, mut index) = (region.base, NONE, region.first);
            while index != NONE {
                let extent = self.extent(index);
                assert_eq!((extent.base, extent.before), (at, before), "places follow each other without gaps");
                assert!(extent.granules > 0, "no extent is empty");
                let what = match extent.kind {
                    ExtentKind::Vacant => panic!("a vacant extent is nobody's neighbour"),
                    ExtentKind::Hole => What::Hole,
                    ExtentKind::Allocated => What::AllocatedExtent,
                    ExtentKind::Free | ExtentKind::Top => What::Free(extent.seq),
                };
                match extent.kind {
                    ExtentKind::Free => free.push(index),
                    ExtentKind::Top => tops.push(index),
                    ExtentKind::Hole => holes.push(index),
                    ExtentKind::Vacant | ExtentKind::Allocated => {}
                }
                let after = (extent.after != NONE).then(|| self.extent(extent.after).kind);
                let is_one = extent.after == NONE || !self.is_chunk_boundary(extent.after);
                match extent.kind {
                    ExtentKind::Free if !is_one => assert_ne!(after, Some(ExtentKind::Hole), "a top is before a hole"),
                    ExtentKind::Free => assert!(
                        !matches!(after, Some(ExtentKind::Free | ExtentKind::Top | ExtentKind::Hole)),
                        "{after:?}"
                    ),
                    ExtentKind::Top => assert_eq!(after, Some(ExtentKind::Hole), "a top is before a hole"),
                    ExtentKind::Hole => assert_ne!(after, Some(ExtentKind::Hole), "two holes are one"),
                    ExtentKind::Vacant | ExtentKind::Allocated => {}
                }
                spans.push(Span { base: at, bytes: self.bytes_of(index), what });
                (at, before, index) = (at + self.bytes_of(index), index, extent.after);
            }
            assert_eq!(at, region.base + region.bytes, "places fill their region");
        }
        let mut binned = self.bins.from(&self.extents, 1);
        let mut listed = self.holes.clone();
        for list in [&mut free, &mut holes, &mut binned, &mut listed] {
            list.sort_unstable();
        }
        assert_eq!(binned, free, "bins hold exactly the free ranges");
        assert_eq!(listed, holes, "every hole is listed once");
        assert_eq!(self.tops().count(), tops.len());
        self.assert_sums(&spans);
        spans.sort_unstable_by_key(|span| span.base);
        spans
    }

    fn assert_parted(&self, taken: &[AllocatedExtent]) {
        let chunk_at = |address| self.chunk_at(address).expect("what is taken is mapped").base;
        for taken in taken.iter().filter(|_| self.is_chunked) {
            assert_eq!(chunk_at(taken.base), chunk_at(taken.base + taken.bytes - 1), "{taken:?} lies in two chunks");
        }
    }

    fn assert_sums(&self, spans: &[Span]) {
        let sum = |is: fn(What) -> bool| spans.iter().filter(|span| is(span.what)).map(|span| span.bytes).sum::<u64>();
        assert_eq!(self.free_bytes, sum(|what| matches!(what, What::Free(_))));
        assert_eq!(self.mapped_bytes, sum(|what| what != What::Hole));
        assert_eq!(self.mapped_bytes, self.chunks.values().map(|chunk| chunk.bytes).sum::<u64>());
        for chunk in self.chunks.values() {
            let over_a_hole = spans.iter().find(|span| {
                span.what == What::Hole && span.base < chunk.base + chunk.bytes && chunk.base < span.end()
            });
            assert_eq!(over_a_hole, None, "chunks cover what is not a hole");
        }
    }
}

/// Lengths of all kinds: of a few granules, about a megabyte, a few pages.
fn random_bytes(random: &mut Random) -> u64 {
    match random.below(8) {
        0..4 => 1 + random.below(40 * GRANULE_BYTES),
        4..6 => 1 + random.below(PAGE_BYTES * 5 / 4),
        6 => PAGE_BYTES * (1 + random.below(3)),
        _ => 1 + random.below(6 * PAGE_BYTES),
    }
}

struct Run {
    extents: ExtentMap,
    /// The list: spans by address, of all regions.
    model: Vec<Span>,
    regions: u32,
    /// Where regions of a parted extents begin: spans on both sides are two.
    bounds: Vec<u64>,
    chunks: Vec<Chunk>,
    taken: Vec<AllocatedExtent>,
    seq: u64,
    numbers: Random,
}

impl Run {
    fn new(seed: u64, extents: ExtentMap) -> Self {
        Self {
            extents,
            model: Vec::new(),
            regions: 0,
            bounds: Vec::new(),
            chunks: Vec::new(),
            taken: Vec::new(),
            seq: 1,
            numbers: Random::new(seed),
        }
    }

    fn step(&mut self) {
        self.seq += self.numbers.below(2);
        match self.numbers.below(100) {
            0..30 => self.alloc_one(),
            30..58 => self.free_one(),
            58..75 => self.grow(),
            75..83 => self.remove_chunks(),
            83..97 => self.resize(),
            97..99 if self.regions < 6 => self.add_region(),
            99 if self.numbers.below(20) == 0 => self.free_all(),
            _ => self.look(),
        }
        assert_eq!(self.extents.assert_sound(), self.model);
        self.extents.assert_parted(&self.taken);
    }

    fn add_region(&mut self) {
        // Some regions are neighbours by address. They become one, of an extent map that is not parted.
        let end = self.model.last().map_or(1 << 40, Span::end);
        let base = end + self.numbers.below(2) * PAGE_BYTES;
        let bytes = PAGE_BYTES * (1 + self.numbers.below(16));
        self.extents.add_region(base, bytes);
        self.regions += 1;
        self.bounds.extend(Some(base).filter(|_| self.extents.is_chunked));
        self.model.push(Span { base, bytes, what: What::Hole });
        self.merge();
    }

    /// Makes a span of the list something else.
    fn set(&mut self, base: u64, bytes: u64, what: What) {
        let end = base + bytes;
        let index = self.model.iter().position(|span| base < span.end()).expect("the list has the address");
        let old = self.model.remove(index);
        assert!(old.base <= base && end <= old.end(), "{old:?} does not hold {bytes} bytes at {base:#x}");
        let parts = [(old.base, base, old.what), (base, end, what), (end, old.end(), old.what)];
        let parts = parts.into_iter().filter(|(base, end, _)| base < end);
        self.model.splice(index..index, parts.map(|(base, end, what)| Span { base, bytes: end - base, what }));
        self.merge();
    }

    /// Whether a chunk begins at an address, of an extent map that parts what is free there.
    fn is_chunk_boundary(&self, address: u64) -> bool {
        self.extents.is_chunked && self.chunks.iter().any(|chunk| chunk.base == address)
            || self.bounds.contains(&address)
    }

    fn merge(&mut self) {
        let chunks = self.chunks.iter().map(|chunk| chunk.base).filter(|_| self.extents.is_chunked);
        let bounds: Vec<_> = chunks.chain(self.bounds.iter().copied()).collect();
        self.model.dedup_by(|later, earlier| {
            let joined = match (earlier.what, later.what) {
                (What::Hole, What::Hole) => What::Hole,
                (What::Free(one), What::Free(other)) => What::Free(one.max(other)),
                _ => return false,
            };
            if earlier.end() != later.base || bounds.contains(&later.base) {
                return false;
            }
            (earlier.bytes, earlier.what) = (earlier.bytes + later.bytes, joined);
            true
        });
    }

    /// The free spans that serve a request.
    fn fitting(&self, bytes: u64, passed: u64) -> Vec<Span> {
        let wanted = bytes.next_multiple_of(GRANULE_BYTES);
        let fits = |span: &&Span| matches!(span.what, What::Free(seq) if seq <= passed) && span.bytes >= wanted;
        self.model.iter().filter(fits).copied().collect()
    }

    fn is_before_a_hole(&self, span: &Span) -> bool {
        let is_next = |other: &&Span| other.base == span.end() && !self.bounds.contains(&other.base);
        self.model.iter().find(is_next).is_some_and(|other| other.what == What::Hole)
    }

    fn alloc_one(&mut self) {
        let bytes = random_bytes(&mut self.numbers);
        let passed = if self.numbers.below(3) == 0 { self.numbers.below(self.seq + 1) } else { u64::MAX };
        let fitting = self.fitting(bytes, passed);
        let Some(taken) = self.extents.alloc_if(bytes, |seq| seq <= passed) else {
            assert_eq!(fitting, [], "what is free and fits is found");
            return;
        };
        assert_eq!(taken.bytes, bytes.next_multiple_of(GRANULE_BYTES));
        let found =
            *fitting.iter().find(|span| span.base == taken.base).expect("a block is cut from what is free and fits");
        let inner: Vec<_> = fitting.iter().filter(|span| !self.is_before_a_hole(span)).collect();
        assert_eq!(self.is_before_a_hole(&found), inner.is_empty(), "what is before a hole is cut last");
        let shortest = if inner.is_empty() {
            fitting.iter().map(|span| span.bytes).min()
        } else {
            inner.iter().map(|span| span.bytes).min()
        };
        if found.bytes < PAGE_BYTES / 2 {
            assert_eq!(Some(found.bytes), shortest, "the range that fits best is cut");
        }
        self.set(taken.base, taken.bytes, What::AllocatedExtent);
        self.taken.push(taken);
    }

    /// One of the places that are taken.
    fn pick(&mut self) -> Option<AllocatedExtent> {
        if self.taken.is_empty() {
            return None;
        }
        let index = self.numbers.below(self.taken.len() as u64) as usize;
        Some(self.taken.swap_remove(index))
    }

    fn free_one(&mut self) {
        let Some(taken) = self.pick() else { return };
        self.extents.free(taken.extent, self.seq);
        self.free(taken.base, taken.bytes, self.seq);
    }

    /// Notes that a taken span is free.
    fn free(&mut self, base: u64, bytes: u64, seq: u64) {
        let index = self.model.iter().position(|span| base < span.end()).expect("the list has the address");
        assert_eq!(self.model[index].what, What::AllocatedExtent);
        self.set(base, bytes, What::Free(seq));
    }

    /// As the pool does when a request finds nothing: asks where, keeps what lies beside, lets others give and take in
    /// between, and maps.
    fn grow(&mut self) {
        let bytes = random_bytes(&mut self.numbers);
        let Some(need) = self.extents.map_request(bytes, 0) else {
            let room = |span: &Span| span.what == What::Hole && span.bytes >= bytes.next_multiple_of(PAGE_BYTES);
            assert!(!self.model.iter().any(room), "a hole that is large enough is found");
            return;
        };
        let claimed = self.extents.claim(need);
        let beside = self.model.iter().find(|span| span.end() == need.base).copied();
        if claimed.is_some() {
            let beside = beside.expect("what is claimed lies before the hole");
            self.set(beside.base, beside.bytes, What::AllocatedExtent);
        }
        assert_eq!(self.extents.assert_sound(), self.model);
        for _ in 0..self.numbers.below(4) {
            self.free_one();
        }
        if self.numbers.below(2) == 0 {
            self.remove_chunks();
        }
        let is_mapped = self.numbers.below(4) > 0;
        if let Some(extent) = claimed {
            let beside = beside.expect("what is claimed lies before the hole");
            self.extents.free(extent, self.seq);
            self.free(beside.base, beside.bytes, self.seq);
        }
        if !is_mapped {
            return;
        }
        let mut mapped = 0;
        while mapped < need.bytes {
            let room = (need.room_bytes - mapped) / PAGE_BYTES;
            // A parted extents has use for one chunk only.
            let least = if self.extents.is_chunked { need.bytes / PAGE_BYTES } else { 1 };
            let bytes = PAGE_BYTES * (least + self.numbers.below((room - least + 1).min(4)));
            let chunk = Chunk { base: need.base + mapped, bytes, handle: self.numbers.next() };
            self.add_one(chunk);
            mapped += bytes;
        }
        let taken = self.extents.alloc(bytes).expect("what was mapped is enough, with what was there");
        self.set(taken.base, taken.bytes, What::AllocatedExtent);
        self.taken.push(taken);
    }

    fn add_one(&mut self, chunk: Chunk) {
        self.extents.add_chunk(chunk, 0);
        self.chunks.push(chunk);
        self.set(chunk.base, chunk.bytes, What::Free(0));
        assert_eq!(self.extents.assert_sound(), self.model);
    }

    /// Takes some of the chunks away that are free as a whole, and maps some of them again where they were.
    fn remove_chunks(&mut self) {
        let passed = self.numbers.below(self.seq + 1);
        let mut free = self.extents.free_chunks(|seq| seq <= passed);
        let mut expected: Vec<Chunk> = self.chunks.clone();
        expected.retain(|chunk| {
            let holds = |span: &Span| span.base <= chunk.base && chunk.base + chunk.bytes <= span.end();
            self.model.iter().any(|span| matches!(span.what, What::Free(seq) if seq <= passed) && holds(span))
        });
        for list in [&mut free, &mut expected] {
            list.sort_unstable_by_key(|chunk| chunk.base);
        }
        assert_eq!(free, expected);
        for chunk in free {
            if self.numbers.below(2) == 0 {
                continue;
            }
            self.extents.remove_chunk(chunk);
            self.chunks.retain(|other| *other != chunk);
            self.set(chunk.base, chunk.bytes, What::Hole);
            assert_eq!(self.extents.assert_sound(), self.model);
            if self.numbers.below(8) == 0 {
                self.add_one(chunk);
            }
        }
    }

    fn resize(&mut self) {
        let Some(mut taken) = self.pick() else { return };
        let bytes = match self.numbers.below(3) {
            0 => 1 + self.numbers.below(taken.bytes),
            1 => taken.bytes + self.numbers.below(20 * GRANULE_BYTES),
            _ => random_bytes(&mut self.numbers),
        };
        let wanted = bytes.next_multiple_of(GRANULE_BYTES);
        let end = taken.base + taken.bytes;
        let after = self.model.iter().find(|span| span.base == end && !self.is_chunk_boundary(end));
        let room = after.filter(|span| matches!(span.what, What::Free(_))).map_or(0, |span| span.bytes);
        let could = self.extents.resize(taken.extent, bytes, self.seq);
        assert_eq!(could, wanted <= taken.bytes + room, "a block grows where what follows it is free and enough");
        if could && wanted > taken.bytes {
            self.set(end, wanted - taken.bytes, What::AllocatedExtent);
            self.model.retain(|span| span.base != end || span.what != What::AllocatedExtent);
            let grown = self.model.iter_mut().find(|span| span.base == taken.base).expect("a taken extent is listed");
            grown.bytes = wanted;
        } else if could && wanted < taken.bytes {
            self.free(taken.base + wanted, taken.bytes - wanted, self.seq);
        }
        if could {
            taken.bytes = wanted;
        }
        self.taken.push(taken);
    }

    fn free_all(&mut self) {
        self.extents.free_all();
        for taken in std::mem::take(&mut self.taken) {
            self.free(taken.base, taken.bytes, 0);
        }
        for span in &mut self.model {
            if let What::Free(seq) = &mut span.what {
                *seq = 0;
            }
        }
    }

    /// Asks where an address lies.
    fn look(&mut self) {
        let Some(span) = self.model.get(self.numbers.below(self.model.len().max(1) as u64) as usize).copied() else {
            return;
        };
        let address = span.base + self.numbers.below(span.bytes);
        assert_eq!(self.extents.allocated_at(address), (span.what == What::AllocatedExtent).then_some(span.base));
        let longest = self.model.iter().filter(|span| matches!(span.what, What::Free(_))).map(|span| span.bytes).max();
        assert_eq!(self.extents.longest_bytes(), longest.unwrap_or(0));
        assert!(!self.extents.has(self.model.last().map_or(0, Span::end)));
    }
}

#[test]
fn random_operations_leave_what_a_list_of_spans_says() {
    under_seeds(ExtentMap::new);
}

#[test]
fn random_operations_on_a_parted_heap_leave_what_a_list_says_and_no_place_in_two_chunks() {
    under_seeds(ExtentMap::chunked);
}

fn under_seeds(extents: fn() -> ExtentMap) {
    let (seeds, steps) = (seeds(4, 40, 400), at_effort(500, 2000, 2000));
    report_covered(seeds.clone().count() as u64 * steps, "operations of heaps");
    for seed in seeds {
        print_seed(seed);
        let mut run = Run::new(seed, extents());
        run.add_region();
        (0..steps).for_each(|_| run.step());
    }
}

#[test]
fn a_range_is_found_behind_any_number_of_shorter_ones_of_its_bin() {
    let mut extents = ExtentMap::new();
    extents.add_region(1 << 40, 128 * PAGE_BYTES);
    // 768 and 770 granules share a bin; each lies between two that stay taken.
    extents.add_chunk(Chunk { base: 1 << 40, bytes: 64 * PAGE_BYTES, handle: 1 }, 0);
    let lengths = [770].into_iter().chain([768; 40]);
    let taken: Vec<_> = lengths
        .map(|granules| {
            let taken = extents.alloc(granules * GRANULE_BYTES).unwrap();
            extents.alloc(GRANULE_BYTES).unwrap();
            taken
        })
        .collect();
    // The end of what is mapped is taken too.
    let rest = extents.free_bytes();
    extents.alloc(rest).unwrap();
    taken.iter().for_each(|taken| extents.free(taken.extent, 1));
    extents.assert_sound();
    assert_eq!(extents.alloc(770 * GRANULE_BYTES).map(|found| found.base), Some(1 << 40));
}

#[test]
fn a_block_lies_across_two_regions_that_are_neighbours() {
    let mut extents = ExtentMap::new();
    extents.add_region(1 << 40, 2 * PAGE_BYTES);
    extents.add_chunk(Chunk { base: 1 << 40, bytes: 2 * PAGE_BYTES, handle: 1 }, 0);
    extents.alloc(PAGE_BYTES).unwrap();
    // What is free at the end of the first is used: two pages are lacking of three.
    extents.add_region((1 << 40) + 2 * PAGE_BYTES, 4 * PAGE_BYTES);
    let need = extents.map_request(3 * PAGE_BYTES, 0).unwrap();
    assert_eq!((need.base, need.bytes), ((1 << 40) + 2 * PAGE_BYTES, 2 * PAGE_BYTES));
    extents.add_chunk(Chunk { base: need.base, bytes: need.bytes, handle: 2 }, 0);
    assert_eq!(extents.alloc(3 * PAGE_BYTES).map(|taken| taken.base), Some((1 << 40) + PAGE_BYTES));
    extents.assert_sound();
}

#[test]
fn regions_of_a_parted_heap_stay_two_and_go_one_by_one() {
    let mut extents = ExtentMap::chunked();
    let chunks = [(1, 1 << 40), (2, (1 << 40) + PAGE_BYTES)];
    for chunk in chunks.map(|(handle, base)| Chunk { base, bytes: PAGE_BYTES, handle }) {
        extents.add_region(chunk.base, PAGE_BYTES);
        extents.add_chunk(chunk, 0);
    }
    assert!(extents.alloc(2 * PAGE_BYTES).is_none());
    extents.remove_chunk(Chunk { base: 1 << 40, bytes: PAGE_BYTES, handle: 1 });
    assert_eq!(extents.take_bare_regions(), [(1 << 40, PAGE_BYTES)]);
    assert_eq!(extents.map_request(PAGE_BYTES, 0).map(|need| need.base), None);
    assert_eq!(extents.alloc(PAGE_BYTES).map(|taken| taken.base), Some((1 << 40) + PAGE_BYTES));
    extents.assert_sound();
}

#[test]
fn a_block_lies_across_no_gap_between_regions() {
    let mut extents = ExtentMap::new();
    extents.add_region(1 << 40, 2 * PAGE_BYTES);
    extents.add_chunk(Chunk { base: 1 << 40, bytes: 2 * PAGE_BYTES, handle: 1 }, 0);
    extents.add_region((1 << 40) + 3 * PAGE_BYTES, 4 * PAGE_BYTES);
    let need = extents.map_request(3 * PAGE_BYTES, 0).unwrap();
    assert_eq!((need.base, need.bytes), ((1 << 40) + 3 * PAGE_BYTES, 3 * PAGE_BYTES));
    extents.assert_sound();
}
