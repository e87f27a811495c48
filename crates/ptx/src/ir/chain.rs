//! Pairs of f32 instructions of which the second uses the result of the first: one step executes both. It does not write a
//! result that nothing else needs.

use super::reg::Slot;
use super::step::{Opcode, Step};

/// The codes of pairs: a row for each first instruction, a column for each use of its result.
const PAIRS: [[Opcode; 6]; 4] = [
    [
        Opcode::AddThenAdd,
        Opcode::AddThenMul,
        Opcode::AddThenSub,
        Opcode::AddThenSubFrom,
        Opcode::AddThenFmaFactor,
        Opcode::AddThenFmaTerm,
    ],
    [
        Opcode::SubThenAdd,
        Opcode::SubThenMul,
        Opcode::SubThenSub,
        Opcode::SubThenSubFrom,
        Opcode::SubThenFmaFactor,
        Opcode::SubThenFmaTerm,
    ],
    [
        Opcode::MulThenAdd,
        Opcode::MulThenMul,
        Opcode::MulThenSub,
        Opcode::MulThenSubFrom,
        Opcode::MulThenFmaFactor,
        Opcode::MulThenFmaTerm,
    ],
    [
        Opcode::FmaThenAdd,
        Opcode::FmaThenMul,
        Opcode::FmaThenSub,
        Opcode::FmaThenSubFrom,
        Opcode::FmaThenFmaFactor,
        Opcode::FmaThenFmaTerm,
    ],
];

/// Makes the first step of each pair one that executes both. `dies` returns whether no instruction after the next one
/// needs the result of a position.
pub(super) fn chain(steps: &mut [Step], dies: impl Fn(usize) -> bool) {
    for position in 1..steps.len() {
        let (first, second) = (steps[position - 1], steps[position]);
        let row = match first.opcode {
            Opcode::AddSingle => 0,
            Opcode::SubSingle => 1,
            Opcode::MulSingle => 2,
            Opcode::FmaSingle => 3,
            _ => continue,
        };
        let Some((column, [x, y])) = use_of(first.to, &second) else { continue };
        let first = &mut steps[position - 1];
        (first.opcode, first.dies) = (PAIRS[row][column], dies(position - 1));
        first.offset = i64::from(x) | i64::from(y) << 32;
    }
}

/// Returns how a step uses a register, once, and its other operands.
fn use_of(reg: Slot, step: &Step) -> Option<(usize, [Slot; 2])> {
    let Step { a, b, c, .. } = *step;
    let (is_a, is_b, is_c) = (a == reg, b == reg, c == reg);
    Some(match (step.opcode, is_a, is_b, is_c) {
        (Opcode::AddSingle, true, false, _) => (0, [b, 0]),
        (Opcode::AddSingle, false, true, _) => (0, [a, 0]),
        (Opcode::MulSingle, true, false, _) => (1, [b, 0]),
        (Opcode::MulSingle, false, true, _) => (1, [a, 0]),
        (Opcode::SubSingle, true, false, _) => (2, [b, 0]),
        (Opcode::SubSingle, false, true, _) => (3, [a, 0]),
        (Opcode::FmaSingle, true, false, false) => (4, [b, c]),
        (Opcode::FmaSingle, false, true, false) => (4, [a, c]),
        (Opcode::FmaSingle, false, false, true) => (5, [a, b]),
        _ => return None,
    })
}
