//! Bounds checks: the memory blocks that a launch's pointer arguments refer to, and the check of each access whose
//! address is derived from them.

use std::ops::Range;

use crate::ir::PointerProvenance;

/// How a launch may access a memory block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: the block was released before the launch.
    Released,
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

/// A block of memory that a pointer refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its first address.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// How the launch may access it.
    pub access: Access,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.bytes && self.bytes - offset >= bytes
    }

    fn allows(&self, write: bool) -> bool {
        match self.access {
            Access::Released => false,
            Access::Read => !write,
            Access::ReadWrite => true,
        }
    }

    /// Returns the distance from the block to an access outside it.
    fn distance(&self, address: u64) -> u64 {
        self.start.saturating_sub(address).max(address.saturating_sub(self.end()))
    }

    /// Describes a violation, for a message.
    fn describe_violation(&self, address: u64, bytes: u64) -> String {
        let block = format!("a block of {} bytes at {:#x}", self.bytes, self.start);
        if self.contains(address, bytes) {
            return match self.access {
                Access::Released => format!("{block} that was released before the launch"),
                Access::Read | Access::ReadWrite => format!("{block} that the launch may only read"),
            };
        }
        if address < self.start {
            format!("{} bytes before the start of {block}", self.start - address)
        } else {
            format!("{} bytes past the end of {block}", address.saturating_add(bytes) - self.end())
        }
    }
}

/// A word of a launch's arguments that is an address in a region whose memory blocks are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The offset of the word in the arguments, in bytes.
    pub offset: u32,
    /// The addresses in which every block is known.
    pub region: Range<u64>,
    /// The blocks that it may refer to. If empty, its target is unknown.
    pub extents: Vec<Extent>,
}

/// The allowed memory blocks, for each set of arguments that addresses of a kernel are derived from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds(Vec<Option<AllowedExtents>>);

/// The memory blocks that addresses derived from one set of arguments may access.
#[derive(Debug, Clone)]
pub(crate) struct AllowedExtents {
    extents: Vec<Extent>,
    /// Accesses outside these regions are not checked.
    regions: Vec<Range<u64>>,
}

impl Bounds {
    pub(crate) fn new(origins: &PointerProvenance, pointers: &[Pointer]) -> Self {
        if pointers.is_empty() {
            return Self::default();
        }
        let of_word = |word: &u32| pointers.iter().find(|pointer| pointer.offset == *word);
        let found: Vec<_> = origins.words.iter().map(of_word).collect();
        let limits = origins.sets.iter().map(|set| {
            let is_in = |index: &usize| set >> index & 1 != 0;
            AllowedExtents::from_pointers((0..found.len()).filter(is_in).filter_map(|index| found[index]))
        });
        Self(limits.collect())
    }

    /// Returns whether no access of the launch is limited.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn for_set(&self, set: usize) -> Option<&AllowedExtents> {
        self.0.get(set)?.as_ref()
    }
}

impl AllowedExtents {
    /// Returns `None` if the target of some pointer is unknown, or if no pointer has a target.
    fn from_pointers<'p>(pointers: impl Iterator<Item = &'p Pointer>) -> Option<Self> {
        let (mut extents, mut regions) = (Vec::new(), Vec::new());
        for pointer in pointers {
            if pointer.extents.is_empty() {
                return None;
            }
            extents.extend(&pointer.extents);
            regions.push(pointer.region.clone());
        }
        (!extents.is_empty()).then_some(Self { extents, regions })
    }

    /// Returns whether one block contains everything from the lowest address to the end of the highest access.
    pub(crate) fn contains_all(&self, low: u64, high: u64, bytes: u64, write: bool) -> bool {
        let span = high.wrapping_sub(low).saturating_add(bytes);
        self.extents.iter().any(|block| block.allows(write) && block.contains(low, span))
    }

    /// Describes why an access is rejected; `None` if it is allowed.
    pub(crate) fn violation(&self, address: u64, bytes: u64, write: bool) -> Option<String> {
        if self.contains_all(address, address, bytes, write) {
            return None;
        }
        let last = address.saturating_add(bytes - 1);
        let is_known = |region: &Range<u64>| region.contains(&address) || region.contains(&last);
        if !self.regions.iter().any(is_known) {
            return None;
        }
        let nearest = self.extents.iter().min_by_key(|block| block.distance(address))?;
        Some(nearest.describe_violation(address, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Extent = Extent { start: 4096, bytes: 16, access: Access::ReadWrite };

    fn limits(blocks: &[Extent]) -> AllowedExtents {
        let pointer = Pointer { offset: 0, region: 0..1 << 20, extents: blocks.to_vec() };
        AllowedExtents::from_pointers([pointer].iter()).unwrap()
    }

    #[test]
    fn an_access_is_refused_from_one_byte_past_either_end() {
        let limits = limits(&[BLOCK]);
        assert_eq!(limits.violation(4096, 4, true), None);
        assert_eq!(limits.violation(4108, 4, true), None);
        let said = |address, bytes| limits.violation(address, bytes, true).unwrap();
        assert_eq!(said(4112, 4), "4 bytes past the end of a block of 16 bytes at 0x1000");
        assert_eq!(said(4109, 4), "1 bytes past the end of a block of 16 bytes at 0x1000");
        assert_eq!(said(4095, 1), "1 bytes before the start of a block of 16 bytes at 0x1000");
        assert_eq!(limits.violation(2 << 20, 4, true), None, "an access outside the regions is not checked");
    }

    #[test]
    fn a_block_to_read_refuses_writes_alone() {
        let limits = limits(&[Extent { access: Access::Read, ..BLOCK }]);
        assert_eq!(limits.violation(4096, 4, false), None);
        let said = limits.violation(4096, 4, true).unwrap();
        assert_eq!(said, "a block of 16 bytes at 0x1000 that the launch may only read");
    }

    #[test]
    fn of_two_blocks_either_may_be_used_and_nothing_between_them() {
        let other = Extent { start: 8192, bytes: 8, access: Access::ReadWrite };
        let limits = limits(&[BLOCK, other]);
        assert_eq!(limits.violation(8196, 4, true), None);
        assert!(limits.contains_all(4096, 4108, 4, true) && !limits.contains_all(4096, 8192, 4, true));
        let said = limits.violation(8188, 4, true).unwrap();
        assert_eq!(said, "4 bytes before the start of a block of 8 bytes at 0x2000");
    }

    #[test]
    fn a_released_block_may_not_be_used() {
        let limits = limits(&[Extent { access: Access::Released, ..BLOCK }]);
        let said = limits.violation(4100, 4, false).unwrap();
        assert_eq!(said, "a block of 16 bytes at 0x1000 that was released before the launch");
    }

    #[test]
    fn a_pointer_of_unknown_target_disables_the_bounds() {
        let known = Pointer { offset: 0, region: 0..1 << 20, extents: vec![BLOCK] };
        let unknown = Pointer { offset: 8, region: 0..1 << 20, extents: Vec::new() };
        assert!(AllowedExtents::from_pointers([known.clone(), unknown].iter()).is_none());
        assert!(AllowedExtents::from_pointers([known].iter()).is_some());
    }
}
