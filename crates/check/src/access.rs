//! Accesses of the threads of a kernel.

use std::collections::HashMap;

/// Threads of a warp.
pub const LANES: usize = 32;

/// An access of several threads of a warp with one instruction.
#[derive(Debug, Clone, Copy)]
pub struct WarpAccess<'a> {
    /// The number of the block in the grid.
    pub block: u64,
    /// The number of the warp in its block.
    pub warp: u32,
    /// The instruction.
    pub instruction: Instruction,
    /// What it does.
    pub kind: AccessKind,
    /// Whether it is strong: volatile, relaxed, an acquire or a release. Strong and atomic accesses do not race with each other.
    pub is_strong: bool,
    /// Whether it is an acquire or a release.
    pub is_ordering: bool,
    /// Whether it is complete only later: an asynchronous copy.
    pub is_async: bool,
    /// The number of bytes of each thread.
    pub bytes: u64,
    /// The address of each lane.
    pub addresses: &'a [u64; LANES],
    /// A mask of the lanes that take part, in ascending order.
    pub lanes: u32,
    /// A mask of the lanes that wrote what the memory already had.
    pub unchanged: u32,
    /// Whether it is known that all lanes access one range, in ascending order and without gaps.
    pub is_range: bool,
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Reads and writes, with nothing in between.
    Atomic,
}

/// An instruction of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Instruction {
    /// The function.
    pub function: u32,
    /// The line of its PTX; zero if it is not known.
    pub line: u32,
}

/// Two accesses of which neither happens before the other, and at least one is a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Race {
    /// The first byte that both access; in shared memory its offset.
    pub address: u64,
    /// The access that was executed first.
    pub first: ThreadAccess,
    /// The access that was executed last.
    pub second: ThreadAccess,
}

/// An access of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadAccess {
    /// The number of its block in the grid.
    pub block: u64,
    /// The number of the thread in its block.
    pub thread: u32,
    /// The instruction.
    pub instruction: Instruction,
    /// What it does.
    pub kind: AccessKind,
}

impl ThreadAccess {
    pub(crate) fn spot(self) -> Spot {
        Spot::new(self.instruction.line, self.block, self.thread)
    }
}

/// Where in a kernel an access is: the line of the PTX, the block, and the thread. Zero for other work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot(u64);

const THREAD_BITS: u32 = 10;
const BLOCK_BITS: u32 = 30;

impl WarpAccess<'_> {
    /// Finds out whether all lanes access one range.
    #[inline]
    #[must_use]
    pub fn with_range(self) -> Self {
        if self.is_range {
            return self;
        }
        let start = self.addresses[0];
        let last = self.addresses[LANES - 1];
        if self.lanes != u32::MAX || last.wrapping_sub(start) != self.bytes * (LANES as u64 - 1) {
            return self;
        }
        let pairs = self.addresses[..LANES - 1].iter().zip(&self.addresses[1..]);
        let gaps = pairs.fold(0, |gaps, (at, next)| gaps | (next.wrapping_sub(*at) ^ self.bytes));
        Self { is_range: gaps == 0, ..self }
    }

    /// Returns the first address if it is known that all lanes access one range.
    #[inline]
    pub(crate) fn range_start(&self) -> Option<u64> {
        self.is_range.then(|| self.addresses[0])
    }

    /// Returns the place of a lane.
    pub(crate) fn spot(&self, lane: u32) -> Spot {
        Spot::new(self.instruction.line, self.block, self.warp * LANES as u32 + lane)
    }
}

impl AccessKind {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Atomic => "changes atomically",
        }
    }
}

impl Spot {
    /// A block beyond the first 2^30 counts as the last of these, as does a line beyond 2^24.
    pub fn new(line: u32, block: u64, thread: u32) -> Self {
        let line = u64::from(line.min((1 << 24) - 1));
        let block = block.min((1 << BLOCK_BITS) - 1);
        Self(line << (BLOCK_BITS + THREAD_BITS) | block << THREAD_BITS | u64::from(thread & ((1 << THREAD_BITS) - 1)))
    }

    /// Returns the place as a number that is zero for other work.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn line(self) -> u32 {
        (self.0 >> (BLOCK_BITS + THREAD_BITS)) as u32
    }

    pub(crate) fn block(self) -> u64 {
        self.0 >> THREAD_BITS & ((1 << BLOCK_BITS) - 1)
    }

    pub(crate) fn thread(self) -> u32 {
        (self.0 & ((1 << THREAD_BITS) - 1)) as u32
    }
}

/// Returns the lanes that have to be checked. Of adjacent lanes that read from one address, the last two stand for all:
/// they become the reads that are remembered, and a write that races with any of them races with one of two.
#[inline]
pub(crate) fn representative_lanes(access: &WarpAccess<'_>) -> u32 {
    let lanes = access.lanes;
    if access.kind != AccessKind::Read {
        return lanes;
    }
    let mut same = 0;
    for (lane, pair) in access.addresses.windows(2).enumerate() {
        same |= u32::from(pair[0] == pair[1]) << lane;
    }
    let same = same & lanes & lanes >> 1;
    lanes & !(same & same >> 1)
}

/// The number of instructions that are found without a search.
const RECENT: usize = 64;

/// The numbers of instructions. Number 0 is the unknown one.
#[derive(Debug, Default)]
pub(crate) struct Instructions {
    all: Vec<Instruction>,
    numbers: HashMap<Instruction, u16>,
    recent: RecentInstructions,
}

/// The numbers of the last instructions, by line.
#[derive(Debug)]
pub(crate) struct RecentInstructions([(Instruction, u16); RECENT]);

impl Default for RecentInstructions {
    fn default() -> Self {
        Self([(Instruction::default(), 0); RECENT])
    }
}

impl RecentInstructions {
    /// Returns the number of an instruction, and finds it if it is not known here.
    #[inline]
    pub(crate) fn number(&mut self, instruction: Instruction, find: impl FnOnce() -> u16) -> u16 {
        let recent = &mut self.0[instruction.line as usize % RECENT];
        if recent.0 != instruction {
            *recent = (instruction, find());
        }
        recent.1
    }
}

impl Instructions {
    #[inline]
    pub(crate) fn number(&mut self, instruction: Instruction) -> u16 {
        let Self { all, numbers, recent } = self;
        recent.number(instruction, || find(all, numbers, instruction))
    }

    pub(crate) fn get(&self, number: u16) -> Instruction {
        usize::from(number).checked_sub(1).map_or(Instruction::default(), |index| self.all[index])
    }
}

fn find(all: &mut Vec<Instruction>, numbers: &mut HashMap<Instruction, u16>, instruction: Instruction) -> u16 {
    if let Some(&number) = numbers.get(&instruction) {
        return number;
    }
    let Ok(number) = u16::try_from(all.len() + 1) else { return 0 };
    all.push(instruction);
    numbers.insert(instruction, number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_keeps_line_block_and_thread() {
        let spot = Spot::new(70_000, 1 << 20, 1023);
        assert_eq!((spot.line(), spot.block(), spot.thread()), (70_000, 1 << 20, 1023));
        let last = Spot::new(u32::MAX, u64::MAX, 5);
        assert_eq!((last.line(), last.block(), last.thread()), ((1 << 24) - 1, (1 << 30) - 1, 5));
    }
}
