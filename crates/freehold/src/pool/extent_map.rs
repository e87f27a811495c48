//! An extent map: which addresses are reserved, mapped and allocated. Pure arithmetic; its caller calls the driver.
//!
//! A region is a span of reserved addresses. It is divided into extents without gaps: holes, where nothing is mapped;
//! free ranges; and allocated extents. Adjacent free ranges are coalesced, and so are holes. Memory comes in chunks,
//! which are mapped over holes and removed when all of a chunk is free.

use std::collections::BTreeMap;
use std::ops::Range;

use super::bins::{BinItems, Bins, Link, NONE};

/// The unit of an extent's length.
pub(crate) const GRANULE_BYTES: u64 = 2048;

/// The unit of mappings: the driver's granularity.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtentKind {
    Vacant,
    Hole,
    Free,
    /// A free range before a hole: the end of what is mapped. It is in no bin, because it is cut only if nothing else
    /// fits: that leaves fewer remainders, and less has to be mapped.
    Top,
    Allocated,
}

impl ExtentKind {
    fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::Top)
    }
}

#[derive(Debug)]
struct Extent {
    base: u64,
    granules: u32,
    kind: ExtentKind,
    /// Neighbours by address, within the region. `after` also links the vacant entries.
    before: u32,
    after: u32,
    link: Link,
    /// For a free range: the seq of the heap's stream after which nothing uses it.
    seq: u64,
}

#[derive(Debug, Default)]
struct Extents(Vec<Extent>);

impl BinItems for Extents {
    fn link(&self, range: u32) -> Link {
        self.0[range as usize].link
    }

    fn link_mut(&mut self, range: u32) -> &mut Link {
        &mut self.0[range as usize].link
    }

    fn length(&self, range: u32) -> u32 {
        self.0[range as usize].granules
    }
}

#[derive(Clone, Copy, Debug)]
struct Region {
    base: u64,
    bytes: u64,
    /// Its first extent, which is only cut and joined at its end, and so stays the first.
    first: u32,
}

/// Memory that is mapped as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// The driver's handle.
    pub(crate) handle: u64,
}

impl Chunk {
    /// Addresses of a pool that is asleep.
    pub(crate) fn without_memory(base: u64, bytes: u64) -> Self {
        Self { base, bytes, handle: 0 }
    }
}

/// An allocated extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedExtent {
    pub(crate) extent: u32,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// The seq of the heap's stream after which nothing uses it.
    pub(crate) seq: u64,
}

/// Where to map memory for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapRequest {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// The most that can be mapped there.
    pub(crate) room_bytes: u64,
    /// The free range before it, which the request would use too.
    free_before: Option<u32>,
}

impl MapRequest {
    /// For addresses outside this map.
    pub(crate) fn outside(base: u64, bytes: u64, room_bytes: u64) -> Self {
        Self { base, bytes, room_bytes, free_before: None }
    }
}

#[derive(Debug)]
pub(crate) struct ExtentMap {
    extents: Extents,
    vacant: u32,
    bins: Bins,
    holes: Vec<u32>,
    regions: Vec<Region>,
    chunks: BTreeMap<u64, Chunk>,
    mapped_bytes: u64,
    free_bytes: u64,
    /// Whether a free range ends at its chunk's end, so that every extent lies in one chunk.
    is_chunked: bool,
}

impl ExtentMap {
    /// Makes a map in which each extent lies in one chunk.
    pub(crate) fn chunked() -> Self {
        Self { is_chunked: true, ..Self::new() }
    }

    pub(crate) fn new() -> Self {
        Self {
            is_chunked: false,
            extents: Extents::default(),
            vacant: NONE,
            bins: Bins::new(),
            holes: Vec::new(),
            regions: Vec::new(),
            chunks: BTreeMap::new(),
            mapped_bytes: 0,
            free_bytes: 0,
        }
    }

    /// Adds reserved addresses, with nothing mapped. Both are whole pages. Addresses that follow a region extend it, so
    /// that a free range at its end continues. In a chunked map no range would, and each region stays as it was added.
    pub(crate) fn add_region(&mut self, base: u64, bytes: u64) {
        assert!(base.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES), "a region is whole pages");
        let is_behind = |region: &Region| region.base + region.bytes == base && !self.is_chunked;
        if let Some(index) = self.regions.iter().position(is_behind) {
            let last = self.at(base - 1).expect("the end of a region lies in it");
            self.regions[index].bytes += bytes;
            let hole = self.add_extent(base, granules_of(bytes), ExtentKind::Allocated, last, NONE);
            return self.coalesce_hole(hole);
        }
        let hole = self.add_extent(base, granules_of(bytes), ExtentKind::Hole, NONE, NONE);
        self.holes.push(hole);
        self.regions.push(Region { base, bytes, first: hole });
    }

    /// Removes the regions in which nothing is mapped, and returns their bases and lengths.
    pub(crate) fn take_bare_regions(&mut self) -> Vec<(u64, u64)> {
        let places = &self.extents.0;
        let is_bare = |region: &mut Region| {
            let first = &places[region.first as usize];
            first.kind == ExtentKind::Hole && first.granules == granules_of(region.bytes)
        };
        let bare: Vec<_> = self.regions.extract_if(.., is_bare).collect();
        for region in &bare {
            self.holes.retain(|&hole| hole != region.first);
            let vacant = self.vacant;
            let extent = self.extent_mut(region.first);
            (extent.kind, extent.after) = (ExtentKind::Vacant, vacant);
            self.vacant = region.first;
        }
        bare.into_iter().map(|region| (region.base, region.bytes)).collect()
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Allocates from the free range that fits best.
    pub(crate) fn alloc(&mut self, bytes: u64) -> Option<AllocatedExtent> {
        self.alloc_if(bytes, |_| true)
    }

    /// Allocates from the best fit among the free ranges whose seq `is_good` accepts.
    pub(crate) fn alloc_if(&mut self, bytes: u64, is_good: impl Fn(u64) -> bool) -> Option<AllocatedExtent> {
        let granules = u32::try_from(bytes.div_ceil(GRANULE_BYTES)).ok()?;
        let is_good = |range| is_good(self.extent(range).seq);
        let range = self.bins.best(&self.extents, granules, is_good).or_else(|| self.best_top(granules, is_good))?;
        Some(self.split(range, granules))
    }

    /// Frees an extent, which nothing uses after a seq of the heap's stream.
    pub(crate) fn free(&mut self, extent: u32, seq: u64) {
        assert_eq!(self.extent(extent).kind, ExtentKind::Allocated, "an extent is freed once");
        self.free_bytes += self.bytes_of(extent);
        self.extent_mut(extent).seq = seq;
        self.coalesce_free(extent);
    }

    #[cold]
    fn best_top(&self, granules: u32, is_good: impl Fn(u32) -> bool) -> Option<u32> {
        let tops = self.tops().filter(|&top| self.extent(top).granules >= granules && is_good(top));
        tops.min_by_key(|&top| self.extent(top).granules)
    }

    /// Returns the free ranges before holes.
    fn tops(&self) -> impl Iterator<Item = u32> {
        let befores = self.holes.iter().map(|&hole| self.extent(hole).before);
        befores.filter(|&before| before != NONE && self.extent(before).kind == ExtentKind::Top)
    }

    /// Returns all free ranges of at least `granules`.
    fn ranges(&self, granules: u32) -> Vec<u32> {
        let mut ranges = self.bins.from(&self.extents, granules);
        ranges.extend(self.tops().filter(|&top| self.extent(top).granules >= granules));
        ranges
    }

    /// Makes an extent free, in a bin or as a top.
    fn set_free(&mut self, extent: u32) {
        let after = self.extent(extent).after;
        if after != NONE && self.extent(after).kind == ExtentKind::Hole {
            self.extent_mut(extent).kind = ExtentKind::Top;
        } else {
            self.extent_mut(extent).kind = ExtentKind::Free;
            self.bins.insert(&mut self.extents, extent);
        }
    }

    /// Removes a free range from its bin, if it is in one.
    fn unlist(&mut self, range: u32) {
        if self.extent(range).kind == ExtentKind::Free {
            self.bins.remove(&mut self.extents, range);
        }
    }

    fn split(&mut self, range: u32, granules: u32) -> AllocatedExtent {
        self.unlist(range);
        let rest = self.extent(range).granules - granules;
        if rest > 0 {
            let (base, after, seq) = {
                let extent = self.extent(range);
                (extent.base + u64::from(granules) * GRANULE_BYTES, extent.after, extent.seq)
            };
            let rest = self.add_extent(base, rest, ExtentKind::Free, range, after);
            self.extent_mut(rest).seq = seq;
            self.extent_mut(range).granules = granules;
            self.set_free(rest);
        }
        let extent = self.extent_mut(range);
        extent.kind = ExtentKind::Allocated;
        let taken = AllocatedExtent {
            extent: range,
            base: extent.base,
            bytes: u64::from(granules) * GRANULE_BYTES,
            seq: extent.seq,
        };
        self.free_bytes -= taken.bytes;
        taken
    }

    /// Makes an extent free and coalesces it with its free neighbours.
    fn coalesce_free(&mut self, mut extent: u32) {
        let (before, after) = (self.extent(extent).before, self.extent(extent).after);
        if after != NONE && self.extent(after).kind.is_free() && !self.is_chunk_boundary(after) {
            self.unlist(after);
            self.join(extent, after);
        }
        if before != NONE && self.extent(before).kind.is_free() && !self.is_chunk_boundary(extent) {
            self.unlist(before);
            self.join(before, extent);
            extent = before;
        }
        self.set_free(extent);
        let before = self.extent(extent).before;
        // A hole no longer follows.
        if before != NONE && self.extent(before).kind == ExtentKind::Top {
            self.set_free(before);
        }
    }

    /// Whether an extent must not be joined with the one before it.
    fn is_chunk_boundary(&self, extent: u32) -> bool {
        self.is_chunked && self.chunks.contains_key(&self.extent(extent).base)
    }

    /// Returns the chunk that contains an address.
    pub(crate) fn chunk_at(&self, address: u64) -> Option<Chunk> {
        let (_, &chunk) = self.chunks.range(..=address).next_back()?;
        (address - chunk.base < chunk.bytes).then_some(chunk)
    }

    /// Notes that a chunk has other memory.
    pub(crate) fn replace_chunk(&mut self, chunk: Chunk) {
        let before = self.chunks.insert(chunk.base, chunk);
        assert_eq!(before.map(|before| before.bytes), Some(chunk.bytes), "a chunk keeps its addresses");
    }

    /// Returns the allocated ranges, in no order. Adjacent ones are one range.
    pub(crate) fn allocated(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for region in &self.regions {
            let mut next = region.first;
            while next != NONE {
                let extent = self.extent(next);
                let end = extent.base + self.bytes_of(next);
                match ranges.last_mut().filter(|last| last.end == extent.base) {
                    _ if extent.kind != ExtentKind::Allocated => {}
                    Some(last) => last.end = end,
                    None => ranges.push(extent.base..end),
                }
                next = extent.after;
            }
        }
        ranges
    }

    /// Returns the chunks in the order of their addresses.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk> {
        self.chunks.values().copied()
    }

    /// Joins an extent with the one after it.
    fn join(&mut self, extent: u32, behind: u32) {
        let (granules, after, seq) = {
            let behind = self.extent(behind);
            (behind.granules, behind.after, behind.seq)
        };
        let joined = self.extent_mut(extent);
        joined.granules += granules;
        joined.after = after;
        joined.seq = joined.seq.max(seq);
        if after != NONE {
            self.extent_mut(after).before = extent;
        }
        let gone = self.vacant;
        let vacated = self.extent_mut(behind);
        vacated.kind = ExtentKind::Vacant;
        vacated.after = gone;
        self.vacant = behind;
    }

    /// Finds where to map memory for a request: where the least is needed, and among those in the smallest hole that
    /// has space for `spare_bytes` more.
    pub(crate) fn map_request(&self, bytes: u64, spare_bytes: u64) -> Option<MapRequest> {
        let needs = self.holes.iter().filter_map(|&hole| {
            let hole = self.extent(hole);
            let beside =
                Some(hole.before).filter(|&before| before != NONE && self.extent(before).kind == ExtentKind::Top);
            let beside = beside.filter(|_| !self.is_chunked);
            let there = beside.map_or(0, |beside| self.bytes_of(beside));
            let need = bytes.saturating_sub(there).max(1).next_multiple_of(PAGE_BYTES);
            let room_bytes = u64::from(hole.granules) * GRANULE_BYTES;
            (need + spare_bytes <= room_bytes).then_some(MapRequest {
                base: hole.base,
                bytes: need,
                room_bytes,
                free_before: beside,
            })
        });
        needs.min_by_key(|need| (need.bytes, need.room_bytes, need.base))
    }

    /// Adds a chunk that was mapped in a hole: its addresses are free after a seq. The hole may have grown on both
    /// sides while it was mapped.
    pub(crate) fn add_chunk(&mut self, chunk: Chunk, seq: u64) {
        let index =
            self.holes.iter().position(|&hole| chunk.base.wrapping_sub(self.extent(hole).base) < self.bytes_of(hole));
        let hole = self.holes.swap_remove(index.expect("a chunk is mapped in a hole"));
        let filled = self.cut(hole, chunk.base - self.extent(hole).base, ExtentKind::Hole);
        let rest = self.cut(filled, chunk.bytes, ExtentKind::Hole);
        self.holes.extend([(filled != hole).then_some(hole), (rest != filled).then_some(rest)].into_iter().flatten());
        self.chunks.insert(chunk.base, chunk);
        self.mapped_bytes += chunk.bytes;
        self.free_bytes += chunk.bytes;
        self.extent_mut(filled).seq = seq;
        self.coalesce_free(filled);
    }

    /// Allocates the free range before the new mapping, which the request would use too, so that no other request takes
    /// it.
    pub(crate) fn claim(&mut self, need: MapRequest) -> Option<u32> {
        let range = need.free_before?;
        let granules = self.extent(range).granules;
        Some(self.split(range, granules).extent)
    }

    /// Clears the seqs of all free ranges: nothing uses them.
    pub(crate) fn clear_seqs(&mut self) {
        self.extents.0.iter_mut().for_each(|extent| extent.seq = 0);
    }

    /// Returns the length of the longest free range.
    pub(crate) fn longest_bytes(&self) -> u64 {
        self.ranges(1).into_iter().map(|range| self.bytes_of(range)).max().unwrap_or(0)
    }

    /// Returns the chunks that are entirely free, in ranges whose seq `is_good` accepts.
    pub(crate) fn free_chunks(&self, is_good: impl Fn(u64) -> bool) -> Vec<Chunk> {
        let ranges = self.ranges(granules_of(PAGE_BYTES));
        let good = ranges.into_iter().filter(|&range| is_good(self.extent(range).seq));
        good.flat_map(|range| {
            let (base, end) = (self.extent(range).base, self.extent(range).base + self.bytes_of(range));
            self.chunks.range(base..end).map(|(_, &chunk)| chunk).filter(move |chunk| chunk.base + chunk.bytes <= end)
        })
        .collect()
    }

    /// Makes a hole of an entirely free chunk, which the caller then unmaps.
    pub(crate) fn remove_chunk(&mut self, chunk: Chunk) {
        assert_eq!(self.chunks.remove(&chunk.base), Some(chunk), "a chunk is removed where it was mapped");
        let range = self.at(chunk.base).expect("a chunk lies in a region");
        assert!(self.extent(range).kind.is_free(), "a chunk is removed only when all of it is free");
        self.unlist(range);
        self.extent_mut(range).kind = ExtentKind::Allocated;
        let hole = self.cut(range, chunk.base - self.extent(range).base, ExtentKind::Allocated);
        let rest = self.cut(hole, chunk.bytes, ExtentKind::Allocated);
        self.mapped_bytes -= chunk.bytes;
        self.free_bytes -= chunk.bytes;
        // The hole first: it decides whether the range before it is a top.
        self.coalesce_hole(hole);
        for part in [(hole != range).then_some(range), (rest != hole).then_some(rest)].into_iter().flatten() {
            self.set_free(part);
        }
    }

    /// Frees everything that is mapped.
    pub(crate) fn free_all(&mut self) {
        let (chunks, regions) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.regions));
        *self = Self { is_chunked: self.is_chunked, ..Self::new() };
        for region in regions {
            self.add_region(region.base, region.bytes);
        }
        for chunk in chunks.into_values() {
            self.add_chunk(chunk, 0);
        }
    }

    /// Resizes an allocated extent, if the extent after it is free. Returns whether it could.
    pub(crate) fn resize(&mut self, extent: u32, bytes: u64, seq: u64) -> bool {
        let (had, wanted) = (self.bytes_of(extent), bytes.next_multiple_of(GRANULE_BYTES));
        if wanted < had {
            let rest = self.cut(extent, wanted, ExtentKind::Allocated);
            self.free(rest, seq);
            return true;
        }
        let after = self.extent(extent).after;
        if wanted > had && (after == NONE || !self.extent(after).kind.is_free() || self.bytes_of(after) < wanted - had)
        {
            return false;
        }
        if wanted > had && self.is_chunk_boundary(after) {
            return false;
        }
        if wanted > had {
            self.split(after, granules_of(wanted - had));
            self.join(extent, after);
        }
        true
    }

    /// Returns the base of the allocated extent that contains an address.
    pub(crate) fn allocated_at(&self, address: u64) -> Option<u64> {
        let extent = self.extent(self.at(address)?);
        (extent.kind == ExtentKind::Allocated).then_some(extent.base)
    }

    /// Whether an address lies in a region of this map.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.region_of(address).is_some()
    }

    fn region_of(&self, address: u64) -> Option<&Region> {
        self.regions.iter().find(|region| address.wrapping_sub(region.base) < region.bytes)
    }

    /// Returns the extent that contains an address.
    fn at(&self, address: u64) -> Option<u32> {
        let mut index = self.region_of(address)?.first;
        while address >= self.extent(index).base + self.bytes_of(index) {
            index = self.extent(index).after;
        }
        Some(index)
    }

    /// Cuts an extent after `bytes` and gives the rest another kind. Returns the rest, or the extent itself if nothing
    /// lies before the cut or nothing after it.
    fn cut(&mut self, index: u32, bytes: u64, kind: ExtentKind) -> u32 {
        let granules = granules_of(bytes);
        let extent = self.extent(index);
        if granules == 0 || granules == extent.granules {
            return index;
        }
        let (base, rest, after, seq) = (extent.base + bytes, extent.granules - granules, extent.after, extent.seq);
        self.extent_mut(index).granules = granules;
        let behind = self.add_extent(base, rest, kind, index, after);
        self.extent_mut(behind).seq = seq;
        behind
    }

    /// Makes an extent a hole and coalesces it with its neighbours that are holes.
    fn coalesce_hole(&mut self, mut extent: u32) {
        let (before, after) = (self.extent(extent).before, self.extent(extent).after);
        if after != NONE && self.extent(after).kind == ExtentKind::Hole {
            self.holes.retain(|&hole| hole != after);
            self.join(extent, after);
        }
        if before != NONE && self.extent(before).kind == ExtentKind::Hole {
            self.holes.retain(|&hole| hole != before);
            self.join(before, extent);
            extent = before;
        }
        self.extent_mut(extent).kind = ExtentKind::Hole;
        self.holes.push(extent);
        let before = self.extent(extent).before;
        if before != NONE && self.extent(before).kind == ExtentKind::Free {
            self.unlist(before);
            self.extent_mut(before).kind = ExtentKind::Top;
        }
    }

    fn bytes_of(&self, extent: u32) -> u64 {
        u64::from(self.extent(extent).granules) * GRANULE_BYTES
    }

    fn add_extent(&mut self, base: u64, granules: u32, kind: ExtentKind, before: u32, after: u32) -> u32 {
        let extent = Extent { base, granules, kind, before, after, link: Link::NONE, seq: 0 };
        let index = if self.vacant == NONE {
            self.extents.0.push(extent);
            u32::try_from(self.extents.0.len() - 1).expect("fewer than 2^32 extents")
        } else {
            let index = self.vacant;
            self.vacant = self.extent(index).after;
            *self.extent_mut(index) = extent;
            index
        };
        if before != NONE {
            self.extent_mut(before).after = index;
        }
        if after != NONE {
            self.extent_mut(after).before = index;
        }
        index
    }

    fn extent(&self, index: u32) -> &Extent {
        &self.extents.0[index as usize]
    }

    fn extent_mut(&mut self, index: u32) -> &mut Extent {
        &mut self.extents.0[index as usize]
    }
}

fn granules_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(GRANULE_BYTES)).expect("fewer than 2^32 granules")
}

#[cfg(test)]
#[path = "extent_map/tests.rs"]
mod tests;
