//! Where the value of each register may still be needed: from its first mention to its last, and through every block on
//! the way to a read. A lane follows one path of the control flow, whatever other lanes of its warp do, and an
//! instruction writes only the lanes that execute it: so what holds for the paths of a function holds for each lane.

use super::flow::{Flow, group, part};
use super::instruction::*;
use super::reg::*;
use super::registers::{Access, RegisterUses};

/// The steps of the search, for each instruction. Beyond it, a register counts as needed everywhere.
const STEPS_PER_INSTRUCTION_MAX: usize = 32;

/// The number of slots of each register file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSizes {
    pub(crate) narrow: u32,
    pub(crate) wide: u32,
    pub(crate) predicates: u32,
}

impl FileSizes {
    pub(super) fn count(self) -> usize {
        (self.narrow + self.wide + self.predicates) as usize
    }

    /// Returns the number of a register among those of all files.
    pub(super) fn number(self, reg: Reg) -> usize {
        let number = match reg {
            Reg::Narrow(slot) => slot,
            Reg::Wide(slot) => self.narrow + slot,
            Reg::Predicate(slot) => self.narrow + self.wide + slot,
        };
        number as usize
    }

    pub(super) fn all(self) -> impl Iterator<Item = Reg> {
        let narrow = (0..self.narrow).map(Reg::Narrow);
        narrow.chain((0..self.wide).map(Reg::Wide)).chain((0..self.predicates).map(Reg::Predicate))
    }
}

/// The positions between which a register's value may be needed, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Interval {
    pub(super) const EMPTY: Self = Self { first: u32::MAX, last: 0 };

    fn extend(&mut self, position: u32) {
        self.first = self.first.min(position);
        self.last = self.last.max(position);
    }

    pub(super) fn is_empty(self) -> bool {
        self.first > self.last
    }
}

#[derive(Debug)]
pub(super) struct Liveness {
    /// By the number of the register. Empty for one that no instruction has.
    pub(super) intervals: Vec<Interval>,
    /// Whether a thread may read it before it has written it.
    pub(super) is_read_first: Vec<bool>,
}

impl Liveness {
    pub(super) fn new(instructions: &[Instruction], uses: &RegisterUses, files: FileSizes) -> Self {
        let flow = Flow::new(instructions);
        let blocks = Blocks::new(instructions, uses, files, &flow);
        let Blocks { intervals, reads, writes } = blocks;
        let mut this = Self { intervals, is_read_first: vec![false; files.count()] };
        let (reads, read_ends) = group(&reads, files.count());
        let (writes, write_ends) = group(&writes, files.count());
        let mut search = Search::new(&flow, STEPS_PER_INSTRUCTION_MAX * instructions.len());
        for number in 0..files.count() {
            let (reads, writes) = (part(&reads, &read_ends, number), part(&writes, &write_ends, number));
            if reads.is_empty() {
                continue;
            }
            // One that is never written keeps its first value, which every path that reads it needs.
            let found = if writes.is_empty() { None } else { search.run(number as u32, reads, writes) };
            match found {
                Some((interval, is_read_first)) => {
                    this.intervals[number].extend(interval.first);
                    this.intervals[number].extend(interval.last);
                    this.is_read_first[number] = is_read_first;
                }
                None => {
                    this.intervals[number] = Interval { first: 0, last: instructions.len() as u32 - 1 };
                    this.is_read_first[number] = true;
                }
            }
        }
        this
    }
}

/// What each block does with the registers.
struct Blocks {
    /// From the first to the last instruction that has the register.
    intervals: Vec<Interval>,
    /// Registers that a block reads before it writes them, and the block.
    reads: Vec<(u32, u32)>,
    /// Registers that a block writes in every lane, and the block.
    writes: Vec<(u32, u32)>,
}

impl Blocks {
    fn new(instructions: &[Instruction], uses: &RegisterUses, files: FileSizes, flow: &Flow) -> Self {
        let mut this = Self { intervals: vec![Interval::EMPTY; files.count()], reads: Vec::new(), writes: Vec::new() };
        // The last block that has read or written a register, plus one.
        let (mut read_in, mut written_in) = (vec![0u32; files.count()], vec![0u32; files.count()]);
        for (position, instruction) in instructions.iter().enumerate() {
            let block = flow.block_of[position];
            for &(reg, access) in uses.of(position) {
                let number = files.number(reg);
                this.intervals[number].extend(position as u32);
                let reads = access != Access::Write;
                if reads && written_in[number] != block + 1 && read_in[number] != block + 1 {
                    read_in[number] = block + 1;
                    this.reads.push((number as u32, block));
                }
                // A guarded write leaves the value of some lanes.
                let writes = access != Access::Read && instruction.guard.is_none();
                if writes && written_in[number] != block + 1 {
                    written_in[number] = block + 1;
                    this.writes.push((number as u32, block));
                }
            }
        }
        this
    }
}

/// The search for the blocks through which a register's value has to be kept, against the control flow.
struct Search<'f> {
    flow: &'f Flow,
    /// The last register that was found to be needed at the start of a block, or written in it, plus one.
    needed_by: Vec<u32>,
    written_by: Vec<u32>,
    todo: Vec<u32>,
    steps_left: usize,
}

impl<'f> Search<'f> {
    fn new(flow: &'f Flow, steps_left: usize) -> Self {
        let (needed_by, written_by) = (vec![0; flow.blocks()], vec![0; flow.blocks()]);
        Self { flow, needed_by, written_by, todo: Vec::new(), steps_left }
    }

    /// Returns the interval of the blocks at whose start the register is needed, and whether the first is among them.
    /// `None` if it takes too long.
    fn run(&mut self, number: u32, reads: &[u32], writes: &[u32]) -> Option<(Interval, bool)> {
        let mark = number + 1;
        writes.iter().for_each(|&block| self.written_by[block as usize] = mark);
        self.todo.clear();
        self.todo.extend(reads);
        reads.iter().for_each(|&block| self.needed_by[block as usize] = mark);
        let mut interval = Interval::EMPTY;
        while let Some(block) = self.todo.pop() {
            interval.extend(self.flow.span(block).0);
            for &before in self.flow.predecessors(block) {
                self.steps_left = self.steps_left.checked_sub(1)?;
                interval.extend(self.flow.span(before).1);
                let is_written = self.written_by[before as usize] == mark;
                if !is_written && self.needed_by[before as usize] != mark {
                    self.needed_by[before as usize] = mark;
                    self.todo.push(before);
                }
            }
        }
        Some((interval, self.needed_by[0] == mark))
    }
}
