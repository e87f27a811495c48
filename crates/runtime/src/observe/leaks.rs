//! The allocated and freed blocks, and the report about them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::fs;

use freehold_check::sites::Site;

/// How many groups are listed.
const GROUPS_MAX: usize = 20;

/// How many freed blocks are remembered, for the first free of a double free.
const FREED_MAX: usize = 1 << 16;

/// What is allocated. Handles of different kinds may have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Device and managed memory.
    Memory,
    /// Pinned memory of the host.
    Host,
    Array,
    Mipmap,
    Stream,
    Event,
}

/// An allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    bytes: u64,
    function: &'static str,
    site: Site,
}

/// What is allocated now, and what was.
#[derive(Default)]
pub(super) struct Leaks {
    live: BTreeMap<(Kind, usize), Block>,
    /// Freed blocks, with the place of the free.
    freed: HashMap<(Kind, usize), (Block, Site)>,
    /// Their keys, the oldest first.
    freed_order: VecDeque<(Kind, usize)>,
    /// Whether anything was allocated. A shell that starts the program has nothing to report.
    has_allocated: bool,
}

impl Leaks {
    pub(super) fn add(&mut self, kind: Kind, address: usize, bytes: u64, function: &'static str, site: Site) {
        self.has_allocated = true;
        self.freed.remove(&(kind, address));
        self.live.insert((kind, address), Block { bytes, function, site });
    }

    /// Removes a block that is about to be freed.
    pub(super) fn take(&mut self, kind: Kind, address: usize) -> Option<Block> {
        self.live.remove(&(kind, address))
    }

    /// Puts back a block whose free failed.
    pub(super) fn put_back(&mut self, kind: Kind, address: usize, block: Block) {
        self.live.entry((kind, address)).or_insert(block);
    }

    pub(super) fn freed(&mut self, kind: Kind, address: usize, block: Block, site: Site) {
        // Another thread may have the address by now.
        if self.live.contains_key(&(kind, address)) {
            return;
        }
        if self.freed.insert((kind, address), (block, site)).is_none() {
            self.freed_order.push_back((kind, address));
        }
        if self.freed_order.len() > FREED_MAX
            && let Some(oldest) = self.freed_order.pop_front()
        {
            self.freed.remove(&oldest);
        }
    }

    pub(super) fn clear(&mut self) {
        self.live.clear();
    }

    /// Says what is wrong with a free that was refused.
    pub(super) fn wrong_free(&self, function: &str, kind: Kind, address: usize, site: Site) -> String {
        let mut text = String::new();
        let mut say = |words: &str, place: Site| {
            let _ = write!(text, "  {words}\n{}", place.describe("    "));
        };
        let here = "wrong free:";
        let what = if let Some((block, first)) = self.freed.get(&(kind, address)) {
            say(here, site);
            say("allocated:", block.site);
            say("freed first:", *first);
            "was freed before".to_owned()
        } else if let Some((start, block)) = self.containing(kind, address) {
            say(here, site);
            say("allocated:", block.site);
            let (bytes, function) = (block.bytes, block.function);
            format!("is {} bytes into a block of {bytes} bytes from {function}", address - start)
        } else if let Some((_, block)) = self.other_kind(kind, address) {
            say(here, site);
            say("allocated:", block.site);
            format!("is from {}, which another function frees", block.function)
        } else {
            say(here, site);
            if is_host_memory(address) { "is memory of the host" } else { "was never allocated" }.to_owned()
        };
        format!("freehold: {function}({address:#x}): the address {what}\n{text}")
    }

    /// Returns the block around an address.
    fn containing(&self, kind: Kind, address: usize) -> Option<(usize, &Block)> {
        let ((_, start), block) = self.live.range((kind, 0)..=(kind, address)).next_back()?;
        ((address - start) as u64 <= block.bytes.saturating_sub(1)).then_some((*start, block))
    }

    fn other_kind(&self, kind: Kind, address: usize) -> Option<(&(Kind, usize), &Block)> {
        [Kind::Memory, Kind::Host, Kind::Array, Kind::Mipmap, Kind::Stream, Kind::Event]
            .into_iter()
            .filter(|other| *other != kind)
            .find_map(|other| self.live.get_key_value(&(other, address)))
    }

    /// Lists what was not freed, the largest first.
    pub(super) fn report(&self) -> String {
        let mut places_of: HashMap<Site, String> = HashMap::new();
        let mut groups: HashMap<(&str, String), (u64, u64)> = HashMap::new();
        for block in self.live.values() {
            // Several addresses may be one line: a loop is unrolled, a function is inlined.
            let place = places_of.entry(block.site).or_insert_with(|| block.site.describe("    "));
            let (bytes, count) = groups.entry((block.function, place.clone())).or_default();
            *bytes += block.bytes;
            *count += 1;
        }
        if !self.has_allocated {
            return String::new();
        }
        if groups.is_empty() {
            return "freehold: everything was freed\n".to_owned();
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        let (bytes, count) = groups.iter().fold((0, 0), |sum, (_, of)| (sum.0 + of.0, sum.1 + of.1));
        let mut text = format!("freehold: not freed: {}, from {}\n", sized(bytes, count), places(groups.len()));
        for ((function, place), (bytes, count)) in groups.iter().take(GROUPS_MAX) {
            let _ = write!(text, "  {} of {function}\n{place}", sized(*bytes, *count));
        }
        if let Some(rest) = groups.get(GROUPS_MAX..).filter(|rest| !rest.is_empty()) {
            let (bytes, count) = rest.iter().fold((0, 0), |sum, (_, of)| (sum.0 + of.0, sum.1 + of.1));
            let _ = writeln!(text, "  {} of {} that are not listed", sized(bytes, count), places(rest.len()));
        }
        text
    }
}

fn sized(bytes: u64, count: u64) -> String {
    format!("{bytes} bytes in {count} {}", if count == 1 { "allocation" } else { "allocations" })
}

fn places(count: usize) -> String {
    format!("{count} {}", if count == 1 { "place" } else { "places" })
}

/// Returns whether an address is in memory that the host can write. Addresses of a device are reserved in the process, but not
/// accessible.
fn is_host_memory(address: usize) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let parsed = range.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
        let is_within = matches!(parsed, Some((Ok(start), Ok(end))) if (start..end).contains(&address));
        is_within && words.next().is_some_and(|access| access.starts_with("rw"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_check::sites::capture;

    #[test]
    fn groups_are_listed_by_size_and_only_twenty() {
        let mut leaks = Leaks::default();
        const NAMES: [&str; 22] = [
            "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12", "f13", "f14", "f15",
            "f16", "f17", "f18", "f19", "f20", "f21",
        ];
        let site = capture();
        for (index, name) in NAMES.into_iter().enumerate() {
            leaks.add(Kind::Memory, 0x1000 * (index + 1), 1 + index as u64, name, site);
            leaks.add(Kind::Memory, 0x1000 * (index + 1) + 0x800, 1 + index as u64, name, site);
        }
        let report = leaks.report();
        let lines: Vec<&str> = report.lines().filter(|line| line.contains(" bytes in ")).collect();
        assert_eq!(lines.len(), 22, "{report}");
        assert_eq!(lines[0], "freehold: not freed: 506 bytes in 44 allocations, from 22 places");
        assert_eq!(lines[1], "  44 bytes in 2 allocations of f21");
        assert_eq!(lines[20], "  6 bytes in 2 allocations of f2");
        assert_eq!(lines[21], "  6 bytes in 4 allocations of 2 places that are not listed");
    }

    #[test]
    fn what_was_freed_is_not_listed() {
        let mut leaks = Leaks::default();
        leaks.add(Kind::Host, 0x1000, 5, "cudaMallocHost", capture());
        let block = leaks.take(Kind::Host, 0x1000).expect("it is there");
        leaks.freed(Kind::Host, 0x1000, block, capture());
        assert_eq!(leaks.report(), "freehold: everything was freed\n");
    }

    #[test]
    fn a_wrong_free_is_told_by_its_cause() {
        let mut leaks = Leaks::default();
        let said = |leaks: &Leaks, address| {
            leaks.wrong_free("cudaFree", Kind::Memory, address, capture()).lines().next().unwrap_or_default().to_owned()
        };
        leaks.add(Kind::Memory, 0x1000, 16, "cudaMalloc", capture());
        leaks.add(Kind::Host, 0x5000, 16, "cudaMallocHost", capture());
        assert_eq!(
            said(&leaks, 0x100f),
            "freehold: cudaFree(0x100f): the address is 15 bytes into a block of 16 bytes from cudaMalloc"
        );
        assert_eq!(said(&leaks, 0x1010), "freehold: cudaFree(0x1010): the address was never allocated");
        assert_eq!(
            said(&leaks, 0x5000),
            "freehold: cudaFree(0x5000): the address is from cudaMallocHost, which another function frees"
        );
        let local = 0;
        let address = (&raw const local).addr();
        assert_eq!(
            said(&leaks, address),
            format!("freehold: cudaFree({address:#x}): the address is memory of the host")
        );
        let block = leaks.take(Kind::Memory, 0x1000).expect("it is there");
        leaks.freed(Kind::Memory, 0x1000, block, capture());
        assert_eq!(said(&leaks, 0x1000), "freehold: cudaFree(0x1000): the address was freed before");
    }
}
