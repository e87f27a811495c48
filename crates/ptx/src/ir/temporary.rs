//! Registers that no lane needs while other lanes of its warp run: each is written, and then read, between two
//! instructions at which lanes can part or a group can wait. A write need not keep what such a register has in the lanes
//! that do not take part. Their slots are not those of other registers, which the other lanes may need.

use super::instruction::*;
use super::liveness::FileSizes;
use super::registers::{Access, RegisterUses};

/// Returns, by the number of the register, whether it is temporary.
pub(super) fn find_temporaries(instructions: &[Instruction], uses: &RegisterUses, files: FileSizes) -> Vec<bool> {
    /// What is known of a register.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Known {
        Unseen,
        /// All that has been seen of it is in this part of the code.
        Within(u32),
        Needed,
    }
    let mut known = vec![Known::Unseen; files.count()];
    let mut part = 0;
    for (position, instruction) in instructions.iter().enumerate() {
        let stays = keeps_lanes_together(&instruction.op);
        for &(reg, access) in uses.of(position) {
            let known = &mut known[files.number(reg)];
            let is_first_write = access == Access::Write && instruction.guard.is_none();
            *known = match *known {
                Known::Unseen if stays && is_first_write => Known::Within(part),
                Known::Within(first) if stays && first == part => Known::Within(part),
                _ => Known::Needed,
            };
        }
        part += u32::from(!stays);
    }
    known.iter().map(|known| matches!(known, Known::Within(_))).collect()
}

/// Returns whether the lanes that execute an instruction and those that do not all continue after it, at once.
fn keeps_lanes_together(op: &Op) -> bool {
    matches!(
        op,
        Op::MoveNarrow { .. }
            | Op::MoveWide { .. }
            | Op::MovePredicate { .. }
            | Op::Split { .. }
            | Op::Join { .. }
            | Op::Narrow { .. }
            | Op::Wide { .. }
            | Op::Widening { .. }
            | Op::ShiftWide { .. }
            | Op::Bits { .. }
            | Op::Single { .. }
            | Op::Double { .. }
            | Op::Convert { .. }
            | Op::Compare(_)
            | Op::Logic { .. }
            | Op::SelectNarrow { .. }
            | Op::SelectWide { .. }
            | Op::ToGeneric { .. }
            | Op::FromGeneric { .. }
            | Op::Load { .. }
            | Op::Store { .. }
            | Op::LoadParameter { .. }
            | Op::LoadVector { .. }
            | Op::StoreVector { .. }
            | Op::Atomic(_)
    )
}

#[cfg(test)]
mod tests {
    use crate::image::Unit;
    use crate::ir::Opcode;

    /// Returns how many of the sums in a kernel are written in all lanes.
    fn whole_sums(body: &str) -> usize {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {{
            .reg .b32 %r<8>; .reg .b64 %a<8>; .reg .pred %p<4>;\n{body}\nst.global.u32 [%a7], %r1; ret;\n}}"
        );
        let unit = Unit::compile(&text).unwrap();
        let steps = &unit.functions()[0].steps;
        steps.iter().filter(|step| step.opcode == Opcode::Add && step.is_whole).count()
    }

    const SUM: &str = "mov.u32 %r6, %ctaid.x; add.u32 %r0, %r6, %r7;";

    #[test]
    fn a_register_is_temporary_if_its_first_write_and_its_last_read_are_within_a_block() {
        assert_eq!(whole_sums(&format!("{SUM} mul.lo.u32 %r1, %r0, %r0;")), 1);
        assert_eq!(whole_sums(&format!("{SUM} ld.global.u32 %r2, [%a7]; mul.lo.u32 %r1, %r0, %r2;")), 1);
    }

    #[test]
    fn a_register_that_lanes_need_elsewhere_is_not_temporary() {
        assert_eq!(whole_sums(&format!("{SUM} @%p1 bra L; L: mul.lo.u32 %r1, %r0, %r0;")), 0);
        assert_eq!(whole_sums(&format!("{SUM} bar.sync 0; mul.lo.u32 %r1, %r0, %r0;")), 0);
        assert_eq!(whole_sums(&format!("{SUM} shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;")), 0);
        assert_eq!(whole_sums("mov.u32 %r6, %ctaid.x; @%p1 add.u32 %r0, %r6, %r7; mul.lo.u32 %r1, %r0, 3;"), 0);
        assert_eq!(whole_sums(&format!("mul.lo.u32 %r1, %r0, 3; {SUM}")), 0);
    }
}
