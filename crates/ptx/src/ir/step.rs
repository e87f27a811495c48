//! The compact form of an instruction, decoded once when a function is lowered: one flat operation code and its slots.
//!
//! Only frequent instructions have a code of their own. Every other one is `Opcode::Other`, and is executed from its
//! [`Instruction`], which has the same position.

use super::chain::chain;
use super::instruction::*;
use super::operands::*;
use super::pattern::number_patterns;
use super::provenance::PointerProvenance;
use super::range::RangeUse;
use super::reg::*;
use super::registers::RegisterUses;
use super::slots::StepKinds;
use crate::arith::convert::{Convert, Format};
use crate::arith::{Mode, Rounding};
use crate::memory::Width;

/// An instruction of 40 bytes. The meaning of its slots depends on the code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) opcode: Opcode,
    /// The code that a step of code `Guarded` executes in the lanes that its guard allows.
    pub(crate) guarded: Opcode,
    /// Of a comparison.
    pub(crate) relation: Relation,
    /// How far the next step that threads execute is, in bytes.
    pub(crate) advance: u16,
    /// Whether it may write its result in all lanes: no other lane needs what the register has.
    pub(crate) is_whole: bool,
    /// Whether only the second instruction of a pair needs the result of the first.
    pub(crate) dies: bool,
    /// The predicate that guards it, doubled, plus one if it is negated; `UNGUARDED` without one.
    pub(crate) guard: u32,
    pub(crate) to: Slot,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    /// The third operand; of an access, the number of its pointer set, from 1, or zero; of a load from shared memory,
    /// its pattern; of a comparison, what its outcome is combined with by an exclusive or.
    pub(crate) c: Slot,
    /// Of an address; of a branch, the target; of a pair, the other operands of the second instruction; of a comparison, the target of the branch after it that it decides, and
    /// whether that one's guard is negated, or `NO_BRANCH`.
    pub(crate) offset: i64,
}

/// The `offset` of a comparison without a branch.
const NO_BRANCH: i64 = -1;
const NEGATED: i64 = 1 << 32;

impl Step {
    /// Returns the target of the branch that a comparison decides, and what the outcome is combined with by an
    /// exclusive or.
    #[inline(always)]
    pub(crate) fn branch(&self) -> Option<(u32, u32)> {
        let negated = 0u32.wrapping_sub((self.offset >> 32) as u32 & 1);
        (self.offset != NO_BRANCH).then_some((self.offset as u32, negated))
    }
}

pub(crate) const UNGUARDED: u32 = u32::MAX;

/// The operation of a step. "Narrow" is 32 bits, "wide" 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Other,
    /// The same, for instructions that are neither arithmetic nor moves.
    Control,
    /// Nothing: the result is known before the kernel begins.
    Skip,
    /// Tests the guard, then executes `guarded`.
    Guarded,
    Label,
    Branch,
    /// A branch with a guard.
    BranchIf,
    MoveNarrow,
    MoveWide,
    MovePredicate,
    MovePredicateNot,
    And,
    Or,
    Xor,
    Not,
    Add,
    Sub,
    Mul,
    MulHighUnsigned,
    MulHighSigned,
    Mad,
    MinUnsigned,
    MinSigned,
    MaxUnsigned,
    MaxSigned,
    Neg,
    Abs,
    ShiftLeft,
    ShiftRightUnsigned,
    ShiftRightSigned,
    Lop3,
    WideAnd,
    WideOr,
    WideXor,
    WideNot,
    WideAdd,
    WideSub,
    WideMul,
    WideMad,
    WideMinUnsigned,
    WideMinSigned,
    WideMaxUnsigned,
    WideMaxSigned,
    WideNeg,
    WideShiftLeft,
    WideShiftRightUnsigned,
    WideShiftRightSigned,
    MulWideUnsigned,
    MulWideSigned,
    MadWideUnsigned,
    MadWideSigned,
    /// The same where the result is a range: `a` is the number of a thread, or a range; what is added is the same in all
    /// lanes.
    RangeMulUnsigned,
    RangeMulSigned,
    RangeMadUnsigned,
    RangeMadSigned,
    RangeAdd,
    RangeSub,
    SelectNarrow,
    SelectNarrowNot,
    SelectWide,
    SelectWideNot,
    PredicateAnd,
    PredicateOr,
    PredicateXor,
    /// f32, rounded to nearest.
    AddSingle,
    SubSingle,
    MulSingle,
    FmaSingle,
    DivSingle,
    SqrtSingle,
    RcpSingle,
    DivApprox,
    DivFull,
    RcpApprox,
    SqrtApprox,
    RsqrtApprox,
    Exp2Approx,
    Log2Approx,
    MinSingle,
    MaxSingle,
    AbsSingle,
    NegSingle,
    /// Two of them: the second uses the result of the first.
    AddThenAdd,
    AddThenMul,
    AddThenSub,
    AddThenSubFrom,
    AddThenFmaFactor,
    AddThenFmaTerm,
    SubThenAdd,
    SubThenMul,
    SubThenSub,
    SubThenSubFrom,
    SubThenFmaFactor,
    SubThenFmaTerm,
    MulThenAdd,
    MulThenMul,
    MulThenSub,
    MulThenSubFrom,
    MulThenFmaFactor,
    MulThenFmaTerm,
    FmaThenAdd,
    FmaThenMul,
    FmaThenSub,
    FmaThenSubFrom,
    FmaThenFmaFactor,
    FmaThenFmaTerm,
    /// One of them with subnormals flushed.
    AddSingleFtz,
    SubSingleFtz,
    MulSingleFtz,
    FmaSingleFtz,
    Exp2ApproxFtz,
    Log2ApproxFtz,
    DivApproxFtz,
    RcpApproxFtz,
    SqrtApproxFtz,
    /// f64, rounded to nearest.
    AddDouble,
    SubDouble,
    MulDouble,
    FmaDouble,
    DivDouble,
    SqrtDouble,
    NegDouble,
    AbsDouble,
    WideFromUnsigned,
    WideFromSigned,
    NarrowFromWide,
    SingleFromSigned,
    SingleFromUnsigned,
    SignedFromSingle,
    UnsignedFromSingle,
    DoubleFromSigned,
    DoubleFromUnsigned,
    Equal,
    LessUnsigned,
    LessSigned,
    WideEqual,
    WideLessUnsigned,
    WideLessSigned,
    EqualSingle,
    LessSingle,
    LessEqualSingle,
    /// Any other relation.
    CompareSingle,
    CompareSingleFtz,
    CompareDouble,
    /// A word of the arguments, the same for all lanes.
    LoadParameterNarrow,
    LoadParameterWide,
    /// 32-bit words; the address is `a` plus the offset.
    LoadGlobal,
    StoreGlobal,
    LoadGeneric,
    StoreGeneric,
    /// Global or generic; `a` is a range.
    LoadRange,
    StoreRange,
    LoadShared,
    StoreShared,
    /// The address is 32 bits wide.
    LoadSharedNarrow,
    StoreSharedNarrow,
    /// Sums of 32-bit words in shared memory; `to` is `NO_RESULT` if the old value is not wanted.
    AddShared,
    AddSharedNarrow,
    /// In whole warps, from its instruction.
    Shuffle,
}

/// The `to` of an atomic operation without a result.
pub(crate) const NO_RESULT: Slot = u32::MAX;

/// Decodes the instructions of a function, of which some are skipped.
pub(crate) fn decode(
    instructions: &[Instruction],
    uses: &RegisterUses,
    provenance: &PointerProvenance,
    skipped: &[u32],
    kinds: &StepKinds,
) -> Vec<Step> {
    let decoded = |(position, instruction): (usize, &Instruction)| {
        let set = provenance.pointer_set(position as u32).map_or(0, |set| set as u32 + 1);
        let guard = instruction.guard.map(|guard| guard.predicate << 1 | u32::from(guard.negated));
        let other = if is_control(&instruction.op) { step(Opcode::Control, 0, [0; 3]) } else { OTHER };
        let step = step_of(&instruction.op, set).unwrap_or(other);
        let step = ranged(Step { is_whole: kinds.is_whole(position), ..step }, kinds.range(position));
        // No slot is as high as the marker.
        debug_assert!(guard.is_none_or(|guard| guard != UNGUARDED));
        match guard {
            None => step,
            Some(guard) if step.opcode == Opcode::Branch => Step { opcode: Opcode::BranchIf, guard, ..step },
            Some(guard) => Step { opcode: Opcode::Guarded, guarded: step.opcode, guard, ..step },
        }
    };
    let mut steps: Vec<Step> = instructions.iter().enumerate().map(decoded).collect();
    for position in 1..steps.len() {
        let branch = steps[position];
        let compare = &mut steps[position - 1];
        if branch.opcode == Opcode::BranchIf && is_comparison(compare.opcode) && branch.guard >> 1 == compare.to {
            compare.offset = branch.offset | if branch.guard & 1 != 0 { NEGATED } else { 0 };
        }
    }
    chain(&mut steps, |position| kinds.dies(position));
    number_patterns(instructions, uses, &mut steps, kinds.kept());
    for &position in skipped {
        steps[position as usize] = Step { opcode: Opcode::Skip, ..OTHER };
    }
    for position in (1..steps.len()).rev() {
        if steps[position].opcode == Opcode::Skip {
            let advance = steps[position].advance.checked_add(ADVANCE);
            steps[position - 1].advance = advance.unwrap_or(ADVANCE);
        }
    }
    steps
}

/// Returns the step for an instruction that has ranges.
fn ranged(step: Step, range: RangeUse) -> Step {
    let (a, b) = match range {
        RangeUse::None => return step,
        RangeUse::First => (step.a, step.b),
        RangeUse::Second => (step.b, step.a),
    };
    let opcode = match step.opcode {
        Opcode::MulWideUnsigned => Opcode::RangeMulUnsigned,
        Opcode::MulWideSigned => Opcode::RangeMulSigned,
        Opcode::MadWideUnsigned => Opcode::RangeMadUnsigned,
        Opcode::MadWideSigned => Opcode::RangeMadSigned,
        Opcode::WideAdd => Opcode::RangeAdd,
        Opcode::WideSub => Opcode::RangeSub,
        Opcode::LoadGlobal | Opcode::LoadGeneric => Opcode::LoadRange,
        Opcode::StoreGlobal | Opcode::StoreGeneric => Opcode::StoreRange,
        _ => unreachable!("no other step has a range"),
    };
    Step { opcode, a, b, ..step }
}

/// Returns whether an instruction is one of those that do more than compute registers.
fn is_control(op: &Op) -> bool {
    matches!(
        op,
        Op::Exit
            | Op::Return
            | Op::Call(_)
            | Op::Barrier(_)
            | Op::WarpBarrier { .. }
            | Op::Load { .. }
            | Op::Store { .. }
            | Op::LoadVector { .. }
            | Op::StoreVector { .. }
            | Op::Atomic(_)
            | Op::CopyAsync { .. }
            | Op::Fence
            | Op::Mbarrier(_)
            | Op::Matrix(_)
    )
}

fn is_comparison(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        Equal
            | LessUnsigned
            | LessSigned
            | WideEqual
            | WideLessUnsigned
            | WideLessSigned
            | EqualSingle
            | LessSingle
            | LessEqualSingle
            | CompareSingle
            | CompareSingleFtz
            | CompareDouble
    )
}

/// The distance of two steps, in bytes.
const ADVANCE: u16 = size_of::<Step>() as u16;

const OTHER: Step = Step {
    opcode: Opcode::Other,
    guarded: Opcode::Other,
    relation: Relation::Eq,
    advance: ADVANCE,
    is_whole: false,
    dies: false,
    guard: UNGUARDED,
    to: 0,
    a: 0,
    b: 0,
    c: 0,
    offset: 0,
};

fn step(opcode: Opcode, to: Slot, [a, b, c]: [Slot; 3]) -> Step {
    Step { opcode, to, a, b, c, ..OTHER }
}

fn step_of(op: &Op, set: u32) -> Option<Step> {
    Some(match *op {
        Op::Label => step(Opcode::Label, 0, [0; 3]),
        Op::Branch { target } => Step { offset: target.into(), ..step(Opcode::Branch, 0, [0; 3]) },
        Op::MoveNarrow { to, from } => step(Opcode::MoveNarrow, to, [from, 0, 0]),
        Op::MoveWide { to, from } => step(Opcode::MoveWide, to, [from, 0, 0]),
        Op::MovePredicate { to, from, negated: false } => step(Opcode::MovePredicate, to, [from, 0, 0]),
        Op::MovePredicate { to, from, negated: true } => step(Opcode::MovePredicateNot, to, [from, 0, 0]),
        Op::Narrow { op, half: None, to, a, b, c } => step(narrow(op)?, to, [a, b, c]),
        Op::Bits { op: Bits::Lop3(table), to, a, b, c } => {
            Step { offset: table.into(), ..step(Opcode::Lop3, to, [a, b, c]) }
        }
        Op::Wide { op, to, a, b, c } => step(wide(op)?, to, [a, b, c]),
        Op::ShiftWide { op, to, a, amount } => {
            let opcode = match op {
                Shift::Left => Opcode::WideShiftLeft,
                Shift::RightUnsigned => Opcode::WideShiftRightUnsigned,
                Shift::RightSigned => Opcode::WideShiftRightSigned,
            };
            step(opcode, to, [a, amount, 0])
        }
        Op::Widening { signed, half: false, to, a, b, c } => {
            let opcode = match (signed, c) {
                (false, None) => Opcode::MulWideUnsigned,
                (true, None) => Opcode::MulWideSigned,
                (false, Some(_)) => Opcode::MadWideUnsigned,
                (true, Some(_)) => Opcode::MadWideSigned,
            };
            step(opcode, to, [a, b, c.unwrap_or(0)])
        }
        Op::SelectNarrow { to, a, b, predicate, negated } => {
            step(if negated { Opcode::SelectNarrowNot } else { Opcode::SelectNarrow }, to, [a, b, predicate])
        }
        Op::SelectWide { to, a, b, predicate, negated } => {
            step(if negated { Opcode::SelectWideNot } else { Opcode::SelectWide }, to, [a, b, predicate])
        }
        Op::Logic { op, to, a, a_negated: false, b, b_negated: false } => {
            let opcode = match op {
                Logic::And => Opcode::PredicateAnd,
                Logic::Or => Opcode::PredicateOr,
                Logic::Xor => Opcode::PredicateXor,
            };
            step(opcode, to, [a, b, 0])
        }
        Op::Single { op, mode, to, a, b, c } => step(single(op, mode)?, to, [a, b, c]),
        Op::Double { op, mode, to, a, b, c } => step(double(op, mode)?, to, [a, b, c]),
        Op::Convert { to_format, from_format, how, to, from } => conversion(to_format, from_format, how, to, from)?,
        // Addresses of these spaces are generic ones already.
        Op::ToGeneric { space, to: Reg::Wide(to), from: Reg::Wide(from) }
        | Op::FromGeneric { space, to: Reg::Wide(to), from: Reg::Wide(from) }
            if !matches!(space, MemorySpace::Shared | MemorySpace::Cluster | MemorySpace::Local) =>
        {
            step(Opcode::MoveWide, to, [from, 0, 0])
        }
        Op::Compare(ref compare) => comparison(compare)?,
        Op::LoadParameter { width: Width::Four, to: Reg::Narrow(to), offset, .. } => {
            Step { offset: offset.into(), ..step(Opcode::LoadParameterNarrow, to, [0; 3]) }
        }
        Op::LoadParameter { width: Width::Eight, to: Reg::Wide(to), offset, .. } => {
            Step { offset: offset.into(), ..step(Opcode::LoadParameterWide, to, [0; 3]) }
        }
        Op::Load { space, width: Width::Four, to: Reg::Narrow(to), at, .. } => access(space, at, false, to, 0, set)?,
        Op::Store { space, width: Width::Four, from: Reg::Narrow(from), at } => access(space, at, true, 0, from, set)?,
        Op::Atomic(ref atomic) => shared_sum(atomic)?,
        Op::Shuffle { .. } => step(Opcode::Shuffle, 0, [0; 3]),
        _ => return None,
    })
}

fn narrow(op: Integer) -> Option<Opcode> {
    Some(match op {
        Integer::Add => Opcode::Add,
        Integer::Sub => Opcode::Sub,
        Integer::Mul => Opcode::Mul,
        Integer::MulHighUnsigned => Opcode::MulHighUnsigned,
        Integer::MulHighSigned => Opcode::MulHighSigned,
        Integer::Mad => Opcode::Mad,
        Integer::MinUnsigned => Opcode::MinUnsigned,
        Integer::MinSigned => Opcode::MinSigned,
        Integer::MaxUnsigned => Opcode::MaxUnsigned,
        Integer::MaxSigned => Opcode::MaxSigned,
        Integer::Neg => Opcode::Neg,
        Integer::Abs => Opcode::Abs,
        Integer::And => Opcode::And,
        Integer::Or => Opcode::Or,
        Integer::Xor => Opcode::Xor,
        Integer::Not => Opcode::Not,
        Integer::ShiftLeft => Opcode::ShiftLeft,
        Integer::ShiftRightUnsigned => Opcode::ShiftRightUnsigned,
        Integer::ShiftRightSigned => Opcode::ShiftRightSigned,
        _ => return None,
    })
}

fn wide(op: Integer) -> Option<Opcode> {
    Some(match op {
        Integer::Add => Opcode::WideAdd,
        Integer::Sub => Opcode::WideSub,
        Integer::Mul => Opcode::WideMul,
        Integer::Mad => Opcode::WideMad,
        Integer::MinUnsigned => Opcode::WideMinUnsigned,
        Integer::MinSigned => Opcode::WideMinSigned,
        Integer::MaxUnsigned => Opcode::WideMaxUnsigned,
        Integer::MaxSigned => Opcode::WideMaxSigned,
        Integer::Neg => Opcode::WideNeg,
        Integer::And => Opcode::WideAnd,
        Integer::Or => Opcode::WideOr,
        Integer::Xor => Opcode::WideXor,
        Integer::Not => Opcode::WideNot,
        _ => return None,
    })
}

fn single(op: Float, mode: Mode) -> Option<Opcode> {
    let Mode { rounding: Rounding::Nearest, ftz, sat: false } = mode else { return None };
    Some(match (op, ftz) {
        (Float::Add, false) => Opcode::AddSingle,
        (Float::Sub, false) => Opcode::SubSingle,
        (Float::Mul, false) => Opcode::MulSingle,
        (Float::Fma, false) => Opcode::FmaSingle,
        (Float::Div, false) => Opcode::DivSingle,
        (Float::Sqrt, false) => Opcode::SqrtSingle,
        (Float::Rcp, false) => Opcode::RcpSingle,
        (Float::DivApprox, false) => Opcode::DivApprox,
        (Float::DivFull, false) => Opcode::DivFull,
        (Float::RcpApprox, false) => Opcode::RcpApprox,
        (Float::SqrtApprox, false) => Opcode::SqrtApprox,
        (Float::RsqrtApprox, false) => Opcode::RsqrtApprox,
        (Float::Exp2, false) => Opcode::Exp2Approx,
        (Float::Log2, false) => Opcode::Log2Approx,
        (Float::Min { nan: false, xorsign: false }, false) => Opcode::MinSingle,
        (Float::Max { nan: false, xorsign: false }, false) => Opcode::MaxSingle,
        (Float::Abs, false) => Opcode::AbsSingle,
        (Float::Neg, false) => Opcode::NegSingle,
        (Float::Add, true) => Opcode::AddSingleFtz,
        (Float::Sub, true) => Opcode::SubSingleFtz,
        (Float::Mul, true) => Opcode::MulSingleFtz,
        (Float::Fma, true) => Opcode::FmaSingleFtz,
        (Float::Exp2, true) => Opcode::Exp2ApproxFtz,
        (Float::Log2, true) => Opcode::Log2ApproxFtz,
        (Float::DivApprox, true) => Opcode::DivApproxFtz,
        (Float::RcpApprox, true) => Opcode::RcpApproxFtz,
        (Float::SqrtApprox, true) => Opcode::SqrtApproxFtz,
        _ => return None,
    })
}

fn double(op: Float, mode: Mode) -> Option<Opcode> {
    if mode.rounding != Rounding::Nearest || mode.ftz || mode.sat {
        return None;
    }
    Some(match op {
        Float::Add => Opcode::AddDouble,
        Float::Sub => Opcode::SubDouble,
        Float::Mul => Opcode::MulDouble,
        Float::Fma => Opcode::FmaDouble,
        Float::Div => Opcode::DivDouble,
        Float::Sqrt => Opcode::SqrtDouble,
        Float::Neg => Opcode::NegDouble,
        Float::Abs => Opcode::AbsDouble,
        _ => return None,
    })
}

fn conversion(to_format: Format, from_format: Format, how: Convert, to: Reg, from: Reg) -> Option<Step> {
    if how.sat || how.ftz || how.finite || how.relu {
        return None;
    }
    use Format::{F32, F64, S32, S64, U32, U64};
    use Reg::{Narrow, Wide};
    let (opcode, to, from) = match (to_format, from_format, how.rounding, to, from) {
        (U64 | S64, U32, _, Wide(to), Narrow(from)) => (Opcode::WideFromUnsigned, to, from),
        (S64 | U64, S32, _, Wide(to), Narrow(from)) => (Opcode::WideFromSigned, to, from),
        (U32 | S32, U64 | S64, _, Narrow(to), Wide(from)) => (Opcode::NarrowFromWide, to, from),
        (F32, S32, Some(Rounding::Nearest), Narrow(to), Narrow(from)) => (Opcode::SingleFromSigned, to, from),
        (F32, U32, Some(Rounding::Nearest), Narrow(to), Narrow(from)) => (Opcode::SingleFromUnsigned, to, from),
        (S32, F32, Some(Rounding::Zero), Narrow(to), Narrow(from)) => (Opcode::SignedFromSingle, to, from),
        (U32, F32, Some(Rounding::Zero), Narrow(to), Narrow(from)) => (Opcode::UnsignedFromSingle, to, from),
        (F64, S32, _, Wide(to), Narrow(from)) => (Opcode::DoubleFromSigned, to, from),
        (F64, U32, _, Wide(to), Narrow(from)) => (Opcode::DoubleFromUnsigned, to, from),
        _ => return None,
    };
    Some(step(opcode, to, [from, 0, 0]))
}

fn comparison(compare: &Compare) -> Option<Step> {
    let Compare { kind, relation, a, b, combine: None, to: Some(to), second: None } = *compare else { return None };
    let (opcodes, a, b) = match (kind, a, b) {
        (CompareKind::Unsigned32, Reg::Narrow(a), Reg::Narrow(b)) => ([Opcode::Equal, Opcode::LessUnsigned], a, b),
        (CompareKind::Signed32, Reg::Narrow(a), Reg::Narrow(b)) => ([Opcode::Equal, Opcode::LessSigned], a, b),
        (CompareKind::Unsigned64, Reg::Wide(a), Reg::Wide(b)) => ([Opcode::WideEqual, Opcode::WideLessUnsigned], a, b),
        (CompareKind::Signed64, Reg::Wide(a), Reg::Wide(b)) => ([Opcode::WideEqual, Opcode::WideLessSigned], a, b),
        (CompareKind::Single { ftz: false }, Reg::Narrow(a), Reg::Narrow(b)) => {
            return Some(single_comparison(relation, to, a, b));
        }
        (CompareKind::Single { ftz: true }, Reg::Narrow(a), Reg::Narrow(b)) => {
            return Some(compare_step(Opcode::CompareSingleFtz, relation, to, [a, b, 0]));
        }
        (CompareKind::Double, Reg::Wide(a), Reg::Wide(b)) => {
            return Some(compare_step(Opcode::CompareDouble, relation, to, [a, b, 0]));
        }
        _ => return None,
    };
    let [equal, less] = opcodes;
    let (opcode, operands) = match relation {
        Relation::Eq => (equal, [a, b, 0]),
        Relation::Ne => (equal, [a, b, u32::MAX]),
        Relation::Lt => (less, [a, b, 0]),
        Relation::Ge => (less, [a, b, u32::MAX]),
        Relation::Gt => (less, [b, a, 0]),
        Relation::Le => (less, [b, a, u32::MAX]),
        // Integers have no unordered comparison.
        _ => return None,
    };
    Some(compare_step(opcode, relation, to, operands))
}

/// An unordered relation is the negation of the opposite ordered one.
fn single_comparison(relation: Relation, to: Slot, a: Slot, b: Slot) -> Step {
    let (opcode, operands) = match relation {
        Relation::Eq => (Opcode::EqualSingle, [a, b, 0]),
        Relation::Neu => (Opcode::EqualSingle, [a, b, u32::MAX]),
        Relation::Lt => (Opcode::LessSingle, [a, b, 0]),
        Relation::Geu => (Opcode::LessSingle, [a, b, u32::MAX]),
        Relation::Gt => (Opcode::LessSingle, [b, a, 0]),
        Relation::Leu => (Opcode::LessSingle, [b, a, u32::MAX]),
        Relation::Le => (Opcode::LessEqualSingle, [a, b, 0]),
        Relation::Gtu => (Opcode::LessEqualSingle, [a, b, u32::MAX]),
        Relation::Ge => (Opcode::LessEqualSingle, [b, a, 0]),
        Relation::Ltu => (Opcode::LessEqualSingle, [b, a, u32::MAX]),
        Relation::Ne | Relation::Equ | Relation::Num | Relation::Nan => (Opcode::CompareSingle, [a, b, 0]),
    };
    compare_step(opcode, relation, to, operands)
}

fn compare_step(opcode: Opcode, relation: Relation, to: Slot, operands: [Slot; 3]) -> Step {
    Step { relation, offset: NO_BRANCH, ..step(opcode, to, operands) }
}

fn access(space: MemorySpace, at: Address, is_store: bool, to: Slot, from: Slot, set: u32) -> Option<Step> {
    let (opcode, base) = match (space, is_store, at.base) {
        (MemorySpace::Global | MemorySpace::Const, false, Reg::Wide(base)) => (Opcode::LoadGlobal, base),
        (MemorySpace::Global | MemorySpace::Const, true, Reg::Wide(base)) => (Opcode::StoreGlobal, base),
        (MemorySpace::Generic, false, Reg::Wide(base)) => (Opcode::LoadGeneric, base),
        (MemorySpace::Generic, true, Reg::Wide(base)) => (Opcode::StoreGeneric, base),
        (MemorySpace::Shared, false, Reg::Wide(base)) => (Opcode::LoadShared, base),
        (MemorySpace::Shared, true, Reg::Wide(base)) => (Opcode::StoreShared, base),
        (MemorySpace::Shared, false, Reg::Narrow(base)) => (Opcode::LoadSharedNarrow, base),
        (MemorySpace::Shared, true, Reg::Narrow(base)) => (Opcode::StoreSharedNarrow, base),
        _ => return None,
    };
    Some(Step { offset: at.offset, ..step(opcode, to, [base, from, set]) })
}

fn shared_sum(atomic: &Atomic) -> Option<Step> {
    let Atomic { space: MemorySpace::Shared, op: AtomicOp::Add, kind, to, at, operand, .. } = *atomic else {
        return None;
    };
    let (AtomicKind::Unsigned32 | AtomicKind::Signed32, Reg::Narrow(operand)) = (kind, operand) else { return None };
    let to = match to {
        None => NO_RESULT,
        Some(Reg::Narrow(to)) => to,
        Some(_) => return None,
    };
    let (opcode, base) = match at.base {
        Reg::Wide(base) => (Opcode::AddShared, base),
        Reg::Narrow(base) => (Opcode::AddSharedNarrow, base),
        Reg::Predicate(_) => return None,
    };
    Some(Step { offset: at.offset, ..step(opcode, to, [base, operand, 0]) })
}
