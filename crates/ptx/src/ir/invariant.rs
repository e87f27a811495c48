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

    /// Returns, by the number of the register, whether threads do not write it.
    pub(super) fn kept(&self, constants: &[(Reg, Constant)], files: FileSizes) -> Vec<bool> {
        let mut is_kept = vec![false; files.count()];
        let copies = self.copies.iter().map(|(reg, _)| reg);
        for reg in constants.iter().map(|(reg, _)| reg).chain(&self.filled).chain(copies) {
            is_kept[files.number(*reg)] = true;
        }
        is_kept
    }

    /// Returns, by the number of the register, whether it keeps a value that is the same in all lanes of a warp.
    pub(super) fn uniform(
        &self,
        instructions: &[Instruction],
        uses: &RegisterUses,
        constants: &[(Reg, Constant)],
        files: FileSizes,
    ) -> Vec<bool> {
        let mut is_uniform = vec![false; files.count()];
        for (reg, constant) in constants {
            is_uniform[files.number(*reg)] = !constant.varies_between_lanes();
        }
        for &position in &self.prelude {
            let [operands @ .., (to, _)] = uses.of(position as usize) else { continue };
            let is_pure = is_pure(&instructions[position as usize].op, u64::MAX);
            is_uniform[files.number(*to)] = is_pure && operands.iter().all(|(reg, _)| is_uniform[files.number(*reg)]);
        }
        for (reg, of) in &self.copies {
            is_uniform[files.number(*reg)] = is_uniform[files.number(*of)];
        }
        is_uniform
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

#[cfg(test)]
mod tests {
    use crate::image::Unit;
    use crate::ir::Opcode;

    /// Returns the number of instructions that threads execute, and of those that are executed once for each warp.
    fn counts(body: &str) -> (usize, usize) {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n) {{
            .reg .b32 %r<8>; .reg .b64 %a<8>; .reg .pred %p<4>;\n{body}\nret;\n}}"
        );
        let unit = Unit::compile(&text).unwrap();
        let code = &unit.functions()[0];
        (code.steps.iter().filter(|step| step.opcode != Opcode::Skip).count(), code.prelude.len())
    }

    #[test]
    fn what_is_the_same_in_every_block_is_computed_once() {
        // The body's `ret` and the end of the kernel are executed.
        let same = "ld.param.u64 %a0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %a1, %r0, 4; add.s64 %a2, %a0, %a1;";
        assert_eq!(counts(&format!("{same} st.global.u32 [%a2], %r0;")), (3, 3));
        let of_block =
            "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r3, %r1, %r2, %r0;";
        assert_eq!(counts(&format!("{of_block} st.global.u32 [%a7], %r3;")), (4, 0));
    }

    #[test]
    fn a_register_that_threads_may_read_first_or_write_again_is_not_known() {
        let read_first = "setp.eq.u32 %p0, %r7, 0; @%p0 bra L; ld.param.u32 %r0, [n]; L: st.global.u32 [%a7], %r0;";
        assert_eq!(counts(read_first), (7, 0));
        let guarded = "setp.eq.u32 %p0, %r7, 0; @%p0 ld.param.u32 %r0, [n]; st.global.u32 [%a7], %r0;";
        assert_eq!(counts(guarded), (5, 0));
        let again = "ld.param.u32 %r0, [n]; st.global.u32 [%a7], %r0; ld.param.u32 %r0, [n]; st.global.u32 [%a7], %r0;";
        assert_eq!(counts(again), (6, 0));
    }
}
