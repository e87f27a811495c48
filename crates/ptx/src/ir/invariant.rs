//! Instructions of a kernel whose results are the same in every block of a launch, and copies of constants: threads need
//! not execute them. Their registers are filled when a warp gets its first frame, like constants, or share the slot of
//! what they are a copy of.

use super::instruction::*;
use super::liveness::{FileSizes, Liveness};
use super::operands::MemorySpace;
use super::reg::*;
use super::registers::{Access, RegisterUses};

/// The number of registers that may get a slot of their own for the whole kernel.
const SLOTS_MAX: usize = 48;

/// What threads need not execute.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    /// The positions of the instructions, in order.
    pub(crate) skipped: Vec<u32>,
    /// Those whose results are computed when a frame is made, in an order in which each follows what it depends on.
    pub(crate) prelude: Vec<u32>,
    /// The registers that they write.
    pub(super) filled: Vec<Reg>,
    /// Registers that are copies, and of what: a constant, or one of `filled`.
    pub(super) copies: Vec<(Reg, Reg)>,
}

/// What is known of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It is not a constant, or threads write it more than once.
    Nothing,
    /// It keeps its value while a block runs, and its slot is that of this register.
    Kept { slot: Reg, is_same_in_all_blocks: bool },
}

impl Invariants {
    /// Finds them in a kernel with this many bytes of parameters.
    pub(super) fn new(
        instructions: &[Instruction],
        uses: &RegisterUses,
        constants: &[(Reg, Constant)],
        files: FileSizes,
        liveness: &Liveness,
        parameter_bytes: u64,
    ) -> Self {
        let mut writes = vec![0u8; files.count()];
        for position in 0..instructions.len() {
            for (reg, _) in uses.of(position).iter().filter(|(_, access)| *access != Access::Read) {
                let count = &mut writes[files.number(*reg)];
                *count = count.saturating_add(1);
            }
        }
        let mut known = vec![Known::Nothing; files.count()];
        for &(reg, constant) in constants {
            let is_same_in_all_blocks = !constant.varies_between_blocks();
            known[files.number(reg)] = Known::Kept { slot: reg, is_same_in_all_blocks };
        }
        let mut this = Self::default();
        for (position, instruction) in instructions.iter().enumerate() {
            let [operands @ .., (to, Access::Write)] = uses.of(position) else { continue };
            let number = files.number(*to);
            let is_only_value = writes[number] == 1 && !liveness.is_read_first[number];
            if instruction.guard.is_some() || !is_only_value {
                continue;
            }
            let of = |reg: &Reg| known[files.number(*reg)];
            let copied = copied(&instruction.op).map(|from| of(&from));
            if let Some(from @ Known::Kept { slot, .. }) = copied {
                known[number] = from;
                this.copies.push((*to, slot));
                this.skipped.push(position as u32);
                continue;
            }
            let is_same = |(reg, _): &(Reg, Access)| matches!(of(reg), Known::Kept { is_same_in_all_blocks: true, .. });
            let is_pure = is_pure(&instruction.op, parameter_bytes) && operands.iter().all(is_same);
            if is_pure && this.filled.len() < SLOTS_MAX {
                known[number] = Known::Kept { slot: *to, is_same_in_all_blocks: true };
                this.filled.push(*to);
                this.prelude.push(position as u32);
                this.skipped.push(position as u32);
            }
        }
        this
    }
}

/// Returns the register that an instruction copies.
fn copied(op: &Op) -> Option<Reg> {
    match *op {
        Op::MoveNarrow { from, .. } => Some(Reg::Narrow(from)),
        Op::MoveWide { from, .. } => Some(Reg::Wide(from)),
        // Addresses of these spaces are generic ones already.
        Op::ToGeneric { space, to: Reg::Wide(_), from: from @ Reg::Wide(_) }
        | Op::FromGeneric { space, to: Reg::Wide(_), from: from @ Reg::Wide(_) }
            if !matches!(space, MemorySpace::Shared | MemorySpace::Cluster | MemorySpace::Local) =>
        {
            Some(from)
        }
        _ => None,
    }
}

/// Returns whether an instruction has no effect but its result, which depends on its registers and on the arguments
/// alone.
fn is_pure(op: &Op, parameter_bytes: u64) -> bool {
    match op {
        Op::Narrow { .. } | Op::Wide { .. } | Op::Widening { .. } | Op::ShiftWide { .. } | Op::Bits { .. } => true,
        Op::Single { .. } | Op::Double { .. } | Op::Convert { .. } => true,
        Op::LoadParameter { width, offset, .. } => u64::from(*offset) + width.bytes() <= parameter_bytes,
        _ => false,
    }
}
