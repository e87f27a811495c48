//! Gives registers that are never needed together the same slot, so that a frame is small however many registers a text
//! declares.

use std::collections::VecDeque;

use super::flow::{group, part};
use super::instruction::*;
use super::invariant::Invariants;
use super::liveness::{FileSizes, Interval, Liveness};
use super::range::{RangeUse, Uniform, find_ranges, use_of};
use super::reg::*;
use super::registers::{Access, RegisterUses};
use super::temporary::find_temporaries;

/// Which registers have the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotSharing {
    /// Those that are never needed together.
    Shared,
    /// None: the reference that tests compare with.
    #[cfg(test)]
    Apart,
}

/// The slots of a function's registers.
#[derive(Debug)]
pub(crate) struct SlotAssignment {
    /// The slot of each register.
    slots: Vec<Reg>,
    files: FileSizes,
    pub(crate) sizes: FileSizes,
    /// Slots that have to be zero when a frame begins: a thread may read them before it has written them.
    pub(crate) uninitialized: Vec<Reg>,
    pub(crate) invariants: Invariants,
    pub(crate) kinds: StepKinds,
}

/// What is known of instructions from their registers, by position. Empty if nothing is known.
#[derive(Debug, Default)]
pub(crate) struct StepKinds {
    /// Whether the result is temporary, so that it may be written in all lanes.
    is_whole: Vec<bool>,
    /// Whether in addition no instruction after the next one needs it.
    dies: Vec<bool>,
    ranges: Vec<RangeUse>,
    /// Slots that are the same in every block, and which threads do not write.
    kept: Vec<Reg>,
}

impl StepKinds {
    pub(super) fn is_whole(&self, position: usize) -> bool {
        self.is_whole.get(position).copied().unwrap_or_default()
    }

    pub(super) fn dies(&self, position: usize) -> bool {
        self.dies.get(position).copied().unwrap_or_default()
    }

    pub(super) fn kept(&self) -> &[Reg] {
        &self.kept
    }

    pub(super) fn range(&self, position: usize) -> RangeUse {
        self.ranges.get(position).copied().unwrap_or_default()
    }
}

impl SlotAssignment {
    /// Assigns the slots. `constants` keep theirs to themselves, since a frame may be used again. A kernel has
    /// invariants, and states the size of its parameters.
    ///
    /// The registers of one instruction never share a slot, even if one is read for the last time where another is
    /// written: an instruction may write a result before it has read all operands, or be executed again.
    pub(crate) fn new(
        instructions: &[Instruction],
        uses: &RegisterUses,
        constants: &[(Reg, Constant)],
        files: FileSizes,
        parameter_bytes: Option<u64>,
    ) -> Self {
        let liveness = Liveness::new(instructions, uses, files);
        let invariants = parameter_bytes.map_or_else(Invariants::default, |bytes| {
            Invariants::new(instructions, uses, constants, files, &liveness, bytes)
        });
        let is_kept = invariants.kept(constants, files);
        let is_temporary = find_temporaries(instructions, uses, files);
        let uniform = invariants.uniform(instructions, uses, constants, files);
        let uniform = Uniform {
            narrow: &|slot| uniform[files.number(Reg::Narrow(slot))],
            wide: &|slot| uniform[files.number(Reg::Wide(slot))],
        };
        let may_be_range = |slot: u32| {
            let number = files.number(Reg::Wide(slot));
            !is_kept[number] && !liveness.is_read_first[number]
        };
        let is_range = find_ranges(instructions, uses, &uniform, (0..files.wide).map(may_be_range).collect());
        // The register that an instruction writes in all lanes.
        let whole = |position: usize| {
            let written = uses.of(position).last().filter(|(_, access)| *access == Access::Write);
            let number = files.number(written.filter(|_| instructions[position].guard.is_none())?.0);
            is_temporary[number].then_some(number)
        };
        let dies = |position: usize| {
            whole(position).is_some_and(|number| liveness.intervals[number].last == position as u32 + 1)
        };
        let kinds = StepKinds {
            is_whole: (0..instructions.len()).map(|position| whole(position).is_some()).collect(),
            dies: (0..instructions.len()).map(dies).collect(),
            ranges: instructions.iter().map(|instruction| use_of(instruction, &uniform, &is_range)).collect(),
            kept: Vec::new(),
        };
        let Liveness { mut intervals, mut is_read_first } = liveness;
        let last = instructions.len() as u32 - 1;
        for reg in constants.iter().map(|(reg, _)| reg).chain(&invariants.filled) {
            intervals[files.number(*reg)] = Interval { first: 0, last };
            is_read_first[files.number(*reg)] = false;
        }
        for (reg, _) in &invariants.copies {
            intervals[files.number(*reg)] = Interval::EMPTY;
        }
        let registers: Vec<Reg> = files.all().collect();
        let mut this = Self {
            slots: registers.clone(),
            files,
            sizes: FileSizes { narrow: 0, wide: 0, predicates: 0 },
            uninitialized: Vec::new(),
            invariants,
            kinds,
        };
        // Registers of different kinds do not share slots.
        let kind = |reg: Reg| {
            let is_range = matches!(reg, Reg::Wide(slot) if is_range[slot as usize]);
            usize::from(is_temporary[files.number(reg)]) + 2 * usize::from(is_range)
        };
        let mut narrow = SlotPool::default();
        let mut wide = SlotPool::default();
        let mut predicates = SlotPool::default();
        let numbered = || files.all().enumerate().filter(|&(number, _)| !intervals[number].is_empty());
        let by_first: Vec<_> = numbered().map(|(number, _)| (intervals[number].first, number as u32)).collect();
        let by_last: Vec<_> = numbered().map(|(number, _)| (intervals[number].last, number as u32)).collect();
        let (by_first, first_ends) = group(&by_first, instructions.len());
        let (by_last, last_ends) = group(&by_last, instructions.len());
        for position in 0..instructions.len() {
            for &number in part(&by_first, &first_ends, position) {
                let reg = &mut this.slots[number as usize];
                let kind = kind(*reg);
                match reg {
                    Reg::Narrow(slot) => *slot = narrow.take(kind),
                    Reg::Wide(slot) => *slot = wide.take(kind),
                    Reg::Predicate(slot) => *slot = predicates.take(0),
                }
            }
            for &number in part(&by_last, &last_ends, position) {
                let kind = kind(registers[number as usize]);
                match this.slots[number as usize] {
                    Reg::Narrow(slot) => narrow.free[kind].push_back(slot),
                    Reg::Wide(slot) => wide.free[kind].push_back(slot),
                    Reg::Predicate(slot) => predicates.free[0].push_back(slot),
                }
            }
        }
        for (reg, of) in &this.invariants.copies {
            this.slots[files.number(*reg)] = this.slots[files.number(*of)];
        }
        this.kinds.kept = this.invariants.filled.iter().map(|&reg| this.slot_of(reg)).collect();
        this.sizes = FileSizes { narrow: narrow.size, wide: wide.size, predicates: predicates.size };
        let is_first = |number: usize| is_read_first[number] && !intervals[number].is_empty();
        this.uninitialized = (0..files.count()).filter(|&number| is_first(number)).map(|n| this.slots[n]).collect();
        this
    }

    /// Gives each register a slot of its own: the reference that tests compare with.
    #[cfg(test)]
    pub(crate) fn apart(constants: &[(Reg, Constant)], files: FileSizes) -> Self {
        let is_constant = |reg: &Reg| constants.iter().any(|(constant, _)| constant == reg);
        let uninitialized = files.all().filter(|reg| !is_constant(reg)).collect();
        let (invariants, kinds) = (Invariants::default(), StepKinds::default());
        Self { slots: files.all().collect(), files, sizes: files, uninitialized, invariants, kinds }
    }

    /// Returns the slot of a register that is a constant or that an instruction uses. The other registers have no slot.
    pub(crate) fn slot_of(&self, reg: Reg) -> Reg {
        self.slots[self.files.number(reg)]
    }
}

/// The slots of one file.
#[derive(Debug, Default)]
struct SlotPool {
    size: Slot,
    /// Those of each kind of register. The one that has been free for longest is the next: a write to some lanes also
    /// reads the slot, and need not wait for what was written there last.
    free: [VecDeque<Slot>; 4],
}

impl SlotPool {
    fn take(&mut self, kind: usize) -> Slot {
        self.free[kind].pop_front().unwrap_or_else(|| {
            self.size += 1;
            self.size - 1
        })
    }
}

#[cfg(test)]
mod tests;
