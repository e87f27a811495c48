//! Address patterns: which loads from shared memory use the same register with the same value, so that the pattern
//! found at one of them holds at the next. That of a register which is the same in every block of a launch holds as long as
//! the frame lives.

use super::flow::ends;
use super::instruction::*;
use super::reg::*;
use super::registers::{Access, RegisterUses};
use super::step::{Opcode, Step};

/// The number of address patterns that are remembered.
pub(crate) const PATTERNS: usize = 8;

/// Those from this number on are of registers that keep their values.
const FIRST_KEPT: usize = 4;

/// A bit for each pattern of a register that keeps its value.
pub(crate) const KEPT_PATTERNS: u32 = (1 << PATTERNS) - (1 << FIRST_KEPT);

/// How a load from shared memory gets the pattern of the addresses in its register.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pattern {
    /// To be found, and remembered under this number.
    New(usize),
    /// The same as at an earlier load, if that was executed in the same run of steps, or if the register keeps its value.
    Known(usize),
}

impl Pattern {
    #[inline(always)]
    pub(crate) fn of(step: &Step) -> Option<Self> {
        let code = step.c.checked_sub(1)?;
        let number = code as usize / 2 % PATTERNS;
        Some(if code & 1 == 0 { Self::New(number) } else { Self::Known(number) })
    }

    fn code(self) -> u32 {
        match self {
            Self::New(number) => 2 * number as u32 + 1,
            Self::Known(number) => 2 * number as u32 + 2,
        }
    }
}

/// Numbers the registers that loads from shared memory use as addresses, until they are written or branches meet. Those
/// among `kept` are the same in all blocks, and written before the first.
pub(super) fn number_patterns(instructions: &[Instruction], uses: &RegisterUses, steps: &mut [Step], kept: &[Reg]) {
    let (mut known, mut next) = ([None; FIRST_KEPT], 0);
    let mut known_kept = Vec::with_capacity(PATTERNS - FIRST_KEPT);
    for (position, (step, instruction)) in steps.iter_mut().zip(instructions).enumerate() {
        let base = match step.opcode {
            Opcode::LoadShared => Some(Reg::Wide(step.a)),
            Opcode::LoadSharedNarrow => Some(Reg::Narrow(step.a)),
            // One with a guard is executed for some lanes.
            _ => None,
        };
        if let Some(base) = base.filter(|base| kept.contains(base))
            && (known_kept.contains(&base) || known_kept.len() < PATTERNS - FIRST_KEPT)
        {
            let index = known_kept.iter().position(|&reg| reg == base).unwrap_or_else(|| {
                known_kept.push(base);
                known_kept.len() - 1
            });
            step.c = Pattern::Known(FIRST_KEPT + index).code();
        } else if base.is_some() {
            let pattern = known.iter().position(|&reg| reg == base).map_or(Pattern::New(next), Pattern::Known);
            step.c = pattern.code();
            if let Pattern::New(number) = pattern {
                known[number] = base;
                next = (number + 1) % FIRST_KEPT;
            }
        }
        for (reg, _) in uses.of(position).iter().filter(|(_, access)| *access != Access::Read) {
            known.iter_mut().filter(|known| **known == Some(*reg)).for_each(|known| *known = None);
        }
        if ends(&instruction.op) || matches!(instruction.op, Op::Label) {
            known = [None; FIRST_KEPT];
        }
    }
}
