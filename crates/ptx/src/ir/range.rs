//! Registers for the addresses of consecutive words: computed from the number of a thread with operands that are the same
//! in all lanes, and used for nothing but to access words. Where all lanes of a warp are active and their numbers follow
//! each other, such a register is kept as the address of its first lane, and no lane's address is computed.

use super::instruction::*;
use super::operands::*;
use super::reg::*;
use super::registers::RegisterUses;
use crate::memory::Width;

/// The maximum number of passes over the instructions. If more were needed, no register is kept as a range.
const PASSES_MAX: usize = 16;

/// What an instruction has to do with ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RangeUse {
    #[default]
    None,
    /// Its result or its address is a range, computed from the first operand.
    First,
    /// The same, from the second operand.
    Second,
}

/// The registers of a function for which this holds, by their number in their file.
pub(super) struct Uniform<'u> {
    pub(super) narrow: &'u dyn Fn(Slot) -> bool,
    pub(super) wide: &'u dyn Fn(Slot) -> bool,
}

/// Returns which of the 64-bit registers are ranges, among those that may be.
pub(super) fn find_ranges(
    instructions: &[Instruction],
    uses: &RegisterUses,
    uniform: &Uniform<'_>,
    mut may_be: Vec<bool>,
) -> Vec<bool> {
    for _ in 0..PASSES_MAX {
        let mut has_changed = false;
        for (position, instruction) in instructions.iter().enumerate() {
            let wide = uses.of(position).iter().filter_map(|(reg, _)| match reg {
                Reg::Wide(slot) => Some(*slot as usize),
                _ => None,
            });
            // Most instructions have none.
            if wide.clone().any(|slot| may_be[slot]) && use_of(instruction, uniform, &may_be) == RangeUse::None {
                wide.for_each(|slot| has_changed |= std::mem::take(&mut may_be[slot]));
            }
        }
        if !has_changed {
            return may_be;
        }
    }
    vec![false; may_be.len()]
}

/// Returns what an instruction does with the ranges among its registers: nothing, if it needs the value of each lane.
pub(super) fn use_of(instruction: &Instruction, uniform: &Uniform<'_>, is_range: &[bool]) -> RangeUse {
    let is = |slot: Slot| is_range[slot as usize];
    match instruction.op {
        Op::Load {
            space, width: Width::Four, to: Reg::Narrow(_), at: Address { base: Reg::Wide(base), .. }, ..
        }
        | Op::Store { space, width: Width::Four, from: Reg::Narrow(_), at: Address { base: Reg::Wide(base), .. } }
            if matches!(space, MemorySpace::Global | MemorySpace::Const | MemorySpace::Generic) && is(base) =>
        {
            RangeUse::First
        }
        _ if instruction.guard.is_some() => RangeUse::None,
        Op::Widening { half: false, to, b, c, .. }
            if is(to) && (uniform.narrow)(b) && c.is_none_or(|c| (uniform.wide)(c)) =>
        {
            RangeUse::First
        }
        Op::Wide { op: Integer::Add | Integer::Sub, to, a, b, .. } if is(to) && is(a) && (uniform.wide)(b) => {
            RangeUse::First
        }
        Op::Wide { op: Integer::Add, to, a, b, .. } if is(to) && (uniform.wide)(a) && is(b) => RangeUse::Second,
        _ => RangeUse::None,
    }
}

#[cfg(test)]
mod tests {
    use crate::image::Unit;
    use crate::ir::Opcode;

    /// Returns whether the address of the last load is a range.
    fn is_range(body: &str) -> bool {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n) {{
            .reg .b32 %r<8>; .reg .b64 %a<8>; .reg .pred %p<4>;
            ld.param.u64 %a0, [p]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r0, 64, %r1;\n{body}\nret;\n}}"
        );
        let unit = Unit::compile(&text).unwrap();
        unit.functions()[0].steps.iter().any(|step| step.opcode == Opcode::LoadRange)
    }

    #[test]
    fn an_address_is_a_range_if_it_is_computed_from_a_number_and_what_is_the_same_in_all_lanes() {
        let load = "ld.global.u32 %r3, [%a2]; st.global.u32 [%a0], %r3;";
        assert!(is_range(&format!("mul.wide.u32 %a1, %r2, 4; add.s64 %a2, %a0, %a1; {load}")));
        assert!(is_range(&format!("mad.wide.s32 %a2, %r2, 4, %a0; {load} add.s64 %a2, %a2, 128; {load}")));
        // The register is also a value, or what is added differs between lanes.
        let value = "mul.wide.u32 %a1, %r2, 4; add.s64 %a2, %a0, %a1; st.global.u64 [%a0], %a2;";
        assert!(!is_range(&format!("{value} {load}")));
        assert!(!is_range(&format!("cvt.u64.u32 %a3, %r2; mul.wide.u32 %a1, %r2, 4; add.s64 %a2, %a3, %a1; {load}")));
        assert!(!is_range(&format!("@%p1 mul.wide.u32 %a1, %r2, 4; add.s64 %a2, %a0, %a1; {load}")));
    }
}
