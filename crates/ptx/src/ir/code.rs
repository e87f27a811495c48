//! The code of a function.

use super::flow::{ends, targets};
use super::instruction::Instruction;
use super::liveness::FileSizes;
use super::provenance::PointerProvenance;
use super::reg::{Constant, Reg, Signature, SymbolIndex};
use super::registers::RegisterUses;
use super::step::Step;
use crate::observer::Ordering;

/// A lowered function.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) instructions: Vec<Instruction>,
    /// The compact form of each instruction.
    pub(crate) steps: Vec<Step>,
    /// The line of the text for each instruction.
    pub(crate) lines: Vec<u32>,
    /// The number of registers of the text, and of the slots that they share.
    pub(crate) registers: FileSizes,
    pub(crate) slots: FileSizes,
    /// Slots that are filled when a frame is made.
    pub(crate) constants: Vec<(Reg, Constant)>,
    /// The slots that a thread may read before it has written them: they are zero then.
    pub(crate) uninitialized: Vec<Reg>,
    /// The instructions whose results fill slots when the first frame of a warp is made: threads skip them.
    pub(crate) prelude: Vec<u32>,
    /// Local variables, formal parameters and call arguments of one thread.
    pub(crate) local_bytes: u32,
    /// The alignment of the frame's local memory.
    pub(crate) local_align: u32,
    pub(crate) signature: Signature,
    /// Symbols of the unit that the code refers to.
    pub(crate) mentions: Vec<SymbolIndex>,
    /// Whether it calls through addresses.
    pub(crate) calls_indirectly: bool,
    /// Whether it has an instruction for the barrier of the cluster.
    pub(crate) uses_cluster_barrier: bool,
    /// Which launch arguments its addresses are derived from.
    pub(crate) provenance: PointerProvenance,
    /// The ordering of accesses and fences that state one, by position.
    pub(crate) orderings: Vec<(u32, Ordering)>,
}

impl Code {
    /// Checks what the loop over steps relies on: all slots are within the files, all targets within the code, and the
    /// last instruction does not continue after itself.
    ///
    /// # Panics
    /// If the code is not like that.
    pub(crate) fn check(&self, uses: &RegisterUses) {
        let FileSizes { narrow, wide, predicates } = self.slots;
        for (position, instruction) in self.instructions.iter().enumerate() {
            let is_within = |(reg, _): &(Reg, _)| match *reg {
                Reg::Narrow(slot) => slot < narrow,
                Reg::Wide(slot) => slot < wide,
                Reg::Predicate(slot) => slot < predicates,
            };
            assert!(uses.of(position).iter().all(is_within), "a slot is within its file");
            let is_target = |target: &u32| (*target as usize) < self.instructions.len();
            assert!(targets(&instruction.op).iter().all(is_target), "a branch leads to an instruction");
        }
        assert_eq!(self.steps.len(), self.instructions.len(), "each instruction has a step");
        let last = self.instructions.last().expect("a function ends with a return");
        assert!(last.guard.is_none() && ends(&last.op), "the last instruction ends the function");
    }

    /// Returns the ordering of an access or a fence.
    pub(crate) fn ordering(&self, position: u32) -> Ordering {
        let found = self.orderings.binary_search_by_key(&position, |(position, _)| *position);
        found.map_or(Ordering::default(), |index| self.orderings[index].1)
    }
}
