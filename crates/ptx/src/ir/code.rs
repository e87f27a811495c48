//! The code of a function.

use super::instruction::Instruction;
use super::liveness::FileSizes;
use super::provenance::PointerProvenance;
use super::reg::{Constant, Reg, Signature, SymbolIndex};
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
    /// Returns the ordering of an access or a fence.
    pub(crate) fn ordering(&self, position: u32) -> Ordering {
        let found = self.orderings.binary_search_by_key(&position, |(position, _)| *position);
        found.map_or(Ordering::default(), |index| self.orderings[index].1)
    }
}
