//! Executes steps, the compact form of instructions: one match for each, and no branch for each lane.
//!
//! Whatever cannot be completed here (an instruction of another kind, an access that is not plain, a branch at which
//! lanes diverge) is left to `run`, before it has had any effect: nothing here faults.

use super::alu::{Lanes, map1, map2, map3};
use super::cursor::{Cursor, Exit};
use super::frame::{ALL, Bits, Frame, Row};
use super::run::Run;
use crate::arith::integer::{self, s32, s64, u32 as u32s, u64 as u64s};
use crate::arith::{Mode, Rounding, approximate, double, single};
use crate::ir::{Opcode, Relation, Step, UNGUARDED};
use crate::memory::LANES;

/// What the compiler may use.
pub(super) trait Level {
    const HAS_FMA: bool;

    /// Returns the highest bit of each lane.
    #[inline(always)]
    fn mask(lanes: &Lanes<u32>) -> u32 {
        let mut mask = 0;
        for (lane, value) in lanes.iter().enumerate() {
            mask |= value >> 31 << lane;
        }
        mask
    }

    /// Returns whether any lane has any of these bits.
    #[inline(always)]
    fn any(lanes: &Lanes<u32>, bits: u32) -> bool {
        lanes.iter().fold(0, |all, lane| all | lane) & bits != 0
    }

    #[inline(always)]
    fn any_wide(lanes: &Lanes<u64>, bits: u64) -> bool {
        lanes.iter().fold(0, |all, lane| all | lane) & bits != 0
    }
}

impl Run<'_> {
    /// Counts the next instruction that has active lanes.
    #[cfg(test)]
    pub(super) fn next_instruction(&mut self, frame: &mut Frame, cursor: &mut Cursor<'_>) -> Exit {
        loop {
            let active = active_lanes(frame, &cursor.code.steps[cursor.position as usize], cursor.lanes);
            cursor.time += 1;
            *self.since += 1;
            *self.executed += u64::from(active.count_ones());
            if active != 0 {
                return Exit::Other { active };
            }
            cursor.position += 1;
        }
    }

    #[inline(always)]
    pub(super) fn run_steps<L: Level>(&mut self, frame: &mut Frame, cursor: &mut Cursor<'_>) -> Exit {
        let steps = cursor.code.steps.as_slice();
        let (lanes, start) = (cursor.lanes, cursor.time);
        let (mut position, mut time, mut executed) = (cursor.position, cursor.time, 0);
        let exit = loop {
            let step = &steps[position as usize];
            let active = active_lanes(frame, step, lanes);
            time += 1;
            executed += u64::from(active.count_ones());
            if active == 0 {
                position += 1;
                continue;
            }
            let (to, a, b, c) = (step.to, step.a as usize, step.b as usize, step.c as usize);
            macro_rules! narrow {
                ($values:expr) => {{
                    let values = $values;
                    frame.write_narrow(to, active, values);
                }};
            }
            macro_rules! wide {
                ($values:expr) => {{
                    let values = $values;
                    frame.write_wide(to, active, values);
                }};
            }
            macro_rules! n {
                ($slot:ident) => {
                    &frame.narrow[$slot].0
                };
            }
            macro_rules! w {
                ($slot:ident) => {
                    &frame.wide[$slot].0
                };
            }
            match step.opcode {
                Opcode::Other => break Exit::Other { active },
                Opcode::Label => {
                    position += 1;
                    if position >= cursor.horizon || time >= cursor.limit {
                        break Exit::Boundary;
                    }
                    continue;
                }
                Opcode::Branch => {
                    if active != lanes {
                        break Exit::Other { active };
                    }
                    let (next, target) = (position + 1, step.offset as u32);
                    position = target;
                    if target != next && (target >= cursor.horizon || time >= cursor.limit) {
                        break Exit::Boundary;
                    }
                    continue;
                }
                Opcode::MoveNarrow => narrow!(*n!(a)),
                Opcode::MoveWide => wide!(*w!(a)),
                Opcode::MovePredicate => frame.set_predicate(to, active, frame.predicates[a]),
                Opcode::MovePredicateNot => frame.set_predicate(to, active, !frame.predicates[a]),
                Opcode::PredicateAnd => frame.set_predicate(to, active, frame.predicates[a] & frame.predicates[b]),
                Opcode::PredicateOr => frame.set_predicate(to, active, frame.predicates[a] | frame.predicates[b]),
                Opcode::PredicateXor => frame.set_predicate(to, active, frame.predicates[a] ^ frame.predicates[b]),

                Opcode::And => narrow!(map2(n!(a), n!(b), |a, b| a & b)),
                Opcode::Or => narrow!(map2(n!(a), n!(b), |a, b| a | b)),
                Opcode::Xor => narrow!(map2(n!(a), n!(b), |a, b| a ^ b)),
                Opcode::Not => narrow!(map1(n!(a), |a| !a)),
                Opcode::Add => narrow!(map2(n!(a), n!(b), u32::wrapping_add)),
                Opcode::Sub => narrow!(map2(n!(a), n!(b), u32::wrapping_sub)),
                Opcode::Mul => narrow!(map2(n!(a), n!(b), u32::wrapping_mul)),
                Opcode::MulHighUnsigned => narrow!(map2(n!(a), n!(b), u32s::mul_hi)),
                Opcode::MulHighSigned => narrow!(map2(n!(a), n!(b), s32::mul_hi)),
                Opcode::Mad => narrow!(map3(n!(a), n!(b), n!(c), |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
                Opcode::MinUnsigned => narrow!(map2(n!(a), n!(b), u32s::min)),
                Opcode::MinSigned => narrow!(map2(n!(a), n!(b), s32::min)),
                Opcode::MaxUnsigned => narrow!(map2(n!(a), n!(b), u32s::max)),
                Opcode::MaxSigned => narrow!(map2(n!(a), n!(b), s32::max)),
                Opcode::Neg => narrow!(map1(n!(a), s32::neg)),
                Opcode::Abs => narrow!(map1(n!(a), s32::abs)),
                Opcode::ShiftLeft => narrow!(map2(n!(a), n!(b), u32s::shl)),
                Opcode::ShiftRightUnsigned => narrow!(map2(n!(a), n!(b), u32s::shr)),
                Opcode::ShiftRightSigned => narrow!(map2(n!(a), n!(b), s32::shr)),
                Opcode::Lop3 => {
                    let table = step.offset as u8;
                    narrow!(map3(n!(a), n!(b), n!(c), |a, b, c| integer::lop3(a, b, c, table)))
                }

                Opcode::WideAnd => wide!(map2(w!(a), w!(b), |a, b| a & b)),
                Opcode::WideOr => wide!(map2(w!(a), w!(b), |a, b| a | b)),
                Opcode::WideXor => wide!(map2(w!(a), w!(b), |a, b| a ^ b)),
                Opcode::WideNot => wide!(map1(w!(a), |a| !a)),
                Opcode::WideAdd => wide!(map2(w!(a), w!(b), u64::wrapping_add)),
                Opcode::WideSub => wide!(map2(w!(a), w!(b), u64::wrapping_sub)),
                Opcode::WideMul => wide!(map2(w!(a), w!(b), u64::wrapping_mul)),
                Opcode::WideMad => wide!(map3(w!(a), w!(b), w!(c), |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
                Opcode::WideMinUnsigned => wide!(map2(w!(a), w!(b), u64s::min)),
                Opcode::WideMinSigned => wide!(map2(w!(a), w!(b), s64::min)),
                Opcode::WideMaxUnsigned => wide!(map2(w!(a), w!(b), u64s::max)),
                Opcode::WideMaxSigned => wide!(map2(w!(a), w!(b), s64::max)),
                Opcode::WideNeg => wide!(map1(w!(a), s64::neg)),
                Opcode::WideShiftLeft => wide!(map2(w!(a), n!(b), u64s::shl)),
                Opcode::WideShiftRightUnsigned => wide!(map2(w!(a), n!(b), u64s::shr)),
                Opcode::WideShiftRightSigned => wide!(map2(w!(a), n!(b), s64::shr)),
                Opcode::MulWideUnsigned => wide!(map2(n!(a), n!(b), u32s::mul_wide)),
                Opcode::MulWideSigned => wide!(map2(n!(a), n!(b), s32::mul_wide)),
                Opcode::MadWideUnsigned => {
                    wide!(map3(n!(a), n!(b), w!(c), |a, b, c| u32s::mul_wide(a, b).wrapping_add(c)))
                }
                Opcode::MadWideSigned => {
                    wide!(map3(n!(a), n!(b), w!(c), |a, b, c| s32::mul_wide(a, b).wrapping_add(c)))
                }

                Opcode::SelectNarrow => narrow!(select(frame.predicates[c], n!(a), n!(b))),
                Opcode::SelectNarrowNot => narrow!(select(frame.predicates[c], n!(b), n!(a))),
                Opcode::SelectWide => wide!(select(frame.predicates[c], w!(a), w!(b))),
                Opcode::SelectWideNot => wide!(select(frame.predicates[c], w!(b), w!(a))),

                Opcode::AddSingle => narrow!(map2(n!(a), n!(b), |a, b| single::add(a, b, Mode::NEAREST))),
                Opcode::SubSingle => narrow!(map2(n!(a), n!(b), |a, b| single::sub(a, b, Mode::NEAREST))),
                Opcode::MulSingle => narrow!(map2(n!(a), n!(b), |a, b| single::mul(a, b, Mode::NEAREST))),
                Opcode::FmaSingle => {
                    narrow!(map3(n!(a), n!(b), n!(c), |a, b, c| fma::<L>(a, b, c, Mode::NEAREST)))
                }
                Opcode::DivSingle => narrow!(map2(n!(a), n!(b), |a, b| single::div(a, b, Mode::NEAREST))),
                Opcode::SqrtSingle | Opcode::SqrtApprox => narrow!(map1(n!(a), |a| single::sqrt(a, Mode::NEAREST))),
                Opcode::RcpSingle => narrow!(map1(n!(a), |a| single::rcp(a, Mode::NEAREST))),
                Opcode::DivApprox => narrow!(map2(n!(a), n!(b), |a, b| approximate::div_approx(a, b, false))),
                Opcode::DivFull => narrow!(map2(n!(a), n!(b), |a, b| approximate::div_full(a, b, false))),
                Opcode::RcpApprox => narrow!(map1(n!(a), |a| approximate::rcp_approx(a, false))),
                Opcode::RsqrtApprox => narrow!(map1(n!(a), |a| approximate::rsqrt_approx(a, false))),
                Opcode::Exp2Approx if L::HAS_FMA => narrow!(approximate::ex2_lanes(n!(a), false)),
                Opcode::Exp2Approx => narrow!(map1(n!(a), |a| approximate::ex2_approx(a, false))),
                Opcode::Log2Approx if L::HAS_FMA => narrow!(approximate::lg2_lanes(n!(a), false)),
                Opcode::Log2Approx => narrow!(map1(n!(a), |a| approximate::lg2_approx(a, false))),
                Opcode::MinSingle => narrow!(map2(n!(a), n!(b), single::min_number)),
                Opcode::MaxSingle => narrow!(map2(n!(a), n!(b), single::max_number)),
                Opcode::AbsSingle => narrow!(map1(n!(a), |a| single::abs(a, false))),
                Opcode::NegSingle => narrow!(map1(n!(a), |a| single::neg(a, false))),
                Opcode::AddSingleFtz => narrow!(map2(n!(a), n!(b), |a, b| single::add(a, b, Mode::NEAREST_FTZ))),
                Opcode::SubSingleFtz => narrow!(map2(n!(a), n!(b), |a, b| single::sub(a, b, Mode::NEAREST_FTZ))),
                Opcode::MulSingleFtz => narrow!(map2(n!(a), n!(b), |a, b| single::mul(a, b, Mode::NEAREST_FTZ))),
                Opcode::FmaSingleFtz => {
                    narrow!(map3(n!(a), n!(b), n!(c), |a, b, c| fma::<L>(a, b, c, Mode::NEAREST_FTZ)))
                }
                Opcode::Exp2ApproxFtz if L::HAS_FMA => narrow!(approximate::ex2_lanes(n!(a), true)),
                Opcode::Exp2ApproxFtz => narrow!(map1(n!(a), |a| approximate::ex2_approx(a, true))),
                Opcode::Log2ApproxFtz if L::HAS_FMA => narrow!(approximate::lg2_lanes(n!(a), true)),
                Opcode::Log2ApproxFtz => narrow!(map1(n!(a), |a| approximate::lg2_approx(a, true))),
                Opcode::DivApproxFtz => narrow!(map2(n!(a), n!(b), |a, b| approximate::div_approx(a, b, true))),
                Opcode::RcpApproxFtz => narrow!(map1(n!(a), |a| approximate::rcp_approx(a, true))),
                Opcode::SqrtApproxFtz => narrow!(map1(n!(a), |a| single::sqrt(a, Mode::NEAREST_FTZ))),

                Opcode::AddDouble => wide!(map2(w!(a), w!(b), |a, b| double::add(a, b, Rounding::Nearest))),
                Opcode::SubDouble => wide!(map2(w!(a), w!(b), |a, b| double::sub(a, b, Rounding::Nearest))),
                Opcode::MulDouble => wide!(map2(w!(a), w!(b), |a, b| double::mul(a, b, Rounding::Nearest))),
                Opcode::FmaDouble => {
                    wide!(map3(w!(a), w!(b), w!(c), |a, b, c| double::fma(a, b, c, Rounding::Nearest)))
                }
                Opcode::DivDouble => wide!(map2(w!(a), w!(b), |a, b| double::div(a, b, Rounding::Nearest))),
                Opcode::SqrtDouble => wide!(map1(w!(a), |a| double::sqrt(a, Rounding::Nearest))),
                Opcode::NegDouble => wide!(map1(w!(a), double::neg)),
                Opcode::AbsDouble => wide!(map1(w!(a), double::abs)),

                Opcode::WideFromUnsigned => wide!(map1(n!(a), u64::from)),
                Opcode::WideFromSigned => wide!(map1(n!(a), |a| i64::from(a.cast_signed()).cast_unsigned())),
                Opcode::NarrowFromWide => narrow!(map1(w!(a), |a| a as u32)),
                Opcode::SingleFromSigned => narrow!(map1(n!(a), |a| (a.cast_signed() as f32).to_bits())),
                Opcode::SingleFromUnsigned => narrow!(map1(n!(a), |a| (a as f32).to_bits())),
                Opcode::SignedFromSingle => narrow!(map1(n!(a), |a| (f32::from_bits(a) as i32).cast_unsigned())),
                Opcode::UnsignedFromSingle => narrow!(map1(n!(a), |a| f32::from_bits(a) as u32)),
                Opcode::DoubleFromSigned => wide!(map1(n!(a), |a| f64::from(a.cast_signed()).to_bits())),
                Opcode::DoubleFromUnsigned => wide!(map1(n!(a), |a| f64::from(a).to_bits())),

                Opcode::CompareUnsigned => {
                    let bits = integers::<L, _, _>(step.relation, n!(a), n!(b), |a| a);
                    frame.set_predicate(to, active, bits);
                }
                Opcode::CompareSigned => {
                    let bits = integers::<L, _, _>(step.relation, n!(a), n!(b), u32::cast_signed);
                    frame.set_predicate(to, active, bits);
                }
                Opcode::CompareWideUnsigned => {
                    let bits = integers::<L, _, _>(step.relation, w!(a), w!(b), |a| a);
                    frame.set_predicate(to, active, bits);
                }
                Opcode::CompareWideSigned => {
                    let bits = integers::<L, _, _>(step.relation, w!(a), w!(b), u64::cast_signed);
                    frame.set_predicate(to, active, bits);
                }
                Opcode::CompareSingle => {
                    let bits = floats::<L, _, _>(step.relation, n!(a), n!(b), f32::from_bits);
                    frame.set_predicate(to, active, bits);
                }
                Opcode::CompareSingleFtz => {
                    let bits = floats::<L, _, _>(step.relation, n!(a), n!(b), |a| f32::from_bits(single::flush(a)));
                    frame.set_predicate(to, active, bits);
                }
                Opcode::CompareDouble => {
                    let bits = floats::<L, _, _>(step.relation, w!(a), w!(b), f64::from_bits);
                    frame.set_predicate(to, active, bits);
                }

                Opcode::LoadParameterNarrow => match self.argument::<4>(step.offset) {
                    Some(bytes) => narrow!([u32::from_le_bytes(bytes); LANES]),
                    None => break Exit::Other { active },
                },
                Opcode::LoadParameterWide => match self.argument::<8>(step.offset) {
                    Some(bytes) => wide!([u64::from_le_bytes(bytes); LANES]),
                    None => break Exit::Other { active },
                },
                Opcode::LoadGlobal | Opcode::LoadGeneric => {
                    if !self.load_step::<L>(frame, step, active) {
                        break Exit::Other { active };
                    }
                }
                Opcode::StoreGlobal | Opcode::StoreGeneric => {
                    if !self.store_step::<L>(frame, step, active) {
                        break Exit::Other { active };
                    }
                }
                Opcode::LoadShared => {
                    let Some(at) = shared_from_wide::<L>(w!(a), step.offset, active) else {
                        break Exit::Other { active };
                    };
                    if !self.load_shared_step::<L>(frame, step, active, &at) {
                        break Exit::Other { active };
                    }
                }
                Opcode::LoadSharedNarrow => {
                    let at = shared_from_narrow(n!(a), step.offset, active);
                    if !self.load_shared_step::<L>(frame, step, active, &at) {
                        break Exit::Other { active };
                    }
                }
                Opcode::StoreShared => {
                    let Some(at) = shared_from_wide::<L>(w!(a), step.offset, active) else {
                        break Exit::Other { active };
                    };
                    if !self.store_shared_step::<L>(frame, step, active, &at) {
                        break Exit::Other { active };
                    }
                }
                Opcode::StoreSharedNarrow => {
                    let at = shared_from_narrow(n!(a), step.offset, active);
                    if !self.store_shared_step::<L>(frame, step, active, &at) {
                        break Exit::Other { active };
                    }
                }
                Opcode::AddShared => {
                    let Some(at) = shared_from_wide::<L>(w!(a), step.offset, active) else {
                        break Exit::Other { active };
                    };
                    if !self.add_shared_step::<L>(frame, step, active, &at) {
                        break Exit::Other { active };
                    }
                }
                Opcode::AddSharedNarrow => {
                    let at = shared_from_narrow(n!(a), step.offset, active);
                    if !self.add_shared_step::<L>(frame, step, active, &at) {
                        break Exit::Other { active };
                    }
                }
            }
            position += 1;
        };
        cursor.position = position;
        cursor.time = time;
        *self.since += time - start;
        *self.executed += executed;
        exit
    }
}

#[inline(always)]
fn active_lanes(frame: &Frame, step: &Step, lanes: u32) -> u32 {
    match step.guard {
        UNGUARDED => lanes,
        guard => lanes & frame.holds(guard >> 1, guard & 1 != 0),
    }
}

#[inline(always)]
fn fma<L: Level>(a: u32, b: u32, c: u32, mode: Mode) -> u32 {
    if L::HAS_FMA { single::fma_by_cpu(a, b, c, mode.ftz) } else { single::fma(a, b, c, mode) }
}

#[inline(always)]
fn select<T: Bits + Default>(chosen: u32, a: &Lanes<T>, b: &Lanes<T>) -> Lanes<T> {
    let mut values = [T::default(); LANES];
    for lane in 0..LANES {
        values[lane] = a[lane].or_else(chosen >> lane & 1, b[lane]);
    }
    values
}

/// Returns the lanes for which `holds`.
#[inline(always)]
pub(super) fn mask_where<L: Level, T: Copy>(a: &Lanes<T>, b: &Lanes<T>, holds: impl Fn(T, T) -> bool) -> u32 {
    L::mask(&map2(a, b, |a, b| if holds(a, b) { u32::MAX } else { 0 }))
}

#[inline(always)]
fn integers<L: Level, B: Copy, T: Ord>(
    relation: Relation,
    a: &Lanes<B>,
    b: &Lanes<B>,
    number: impl Fn(B) -> T + Copy,
) -> u32 {
    match relation {
        Relation::Eq => mask_where::<L, _>(a, b, |a, b| number(a) == number(b)),
        Relation::Ne => mask_where::<L, _>(a, b, |a, b| number(a) != number(b)),
        Relation::Lt => mask_where::<L, _>(a, b, |a, b| number(a) < number(b)),
        Relation::Le => mask_where::<L, _>(a, b, |a, b| number(a) <= number(b)),
        Relation::Gt => mask_where::<L, _>(a, b, |a, b| number(a) > number(b)),
        Relation::Ge => mask_where::<L, _>(a, b, |a, b| number(a) >= number(b)),
        _ => unreachable!("integers have no unordered comparison"),
    }
}

#[inline(always)]
fn floats<L: Level, B: Copy, T: PartialOrd>(
    relation: Relation,
    a: &Lanes<B>,
    b: &Lanes<B>,
    number: impl Fn(B) -> T + Copy,
) -> u32 {
    // An unordered relation is the negation of the opposite ordered one.
    let (relation, negated) = match relation {
        Relation::Equ => (Relation::Ne, true),
        Relation::Neu => (Relation::Eq, true),
        Relation::Ltu => (Relation::Ge, true),
        Relation::Leu => (Relation::Gt, true),
        Relation::Gtu => (Relation::Le, true),
        Relation::Geu => (Relation::Lt, true),
        Relation::Nan => (Relation::Num, true),
        other => (other, false),
    };
    let mask = ordered::<L, _, _>(relation, a, b, number);
    if negated { !mask } else { mask }
}

#[inline(always)]
fn ordered<L: Level, B: Copy, T: PartialOrd>(
    relation: Relation,
    a: &Lanes<B>,
    b: &Lanes<B>,
    number: impl Fn(B) -> T + Copy,
) -> u32 {
    match relation {
        Relation::Eq => mask_where::<L, _>(a, b, |a, b| number(a) == number(b)),
        Relation::Ne => mask_where::<L, _>(a, b, |a, b| (number(a) < number(b)) | (number(a) > number(b))),
        Relation::Lt => mask_where::<L, _>(a, b, |a, b| number(a) < number(b)),
        Relation::Le => mask_where::<L, _>(a, b, |a, b| number(a) <= number(b)),
        Relation::Gt => mask_where::<L, _>(a, b, |a, b| number(a) > number(b)),
        Relation::Ge => mask_where::<L, _>(a, b, |a, b| number(a) >= number(b)),
        _ => mask_where::<L, _>(a, b, |a, b| (number(a) <= number(b)) | (number(a) >= number(b))),
    }
}

/// Returns the addresses in shared memory; an inactive lane has that of an active one, so that no loop needs the mask.
/// Returns `None` if an active lane's address has more than 32 bits.
#[inline(always)]
fn shared_from_wide<L: Level>(base: &Lanes<u64>, offset: i64, active: u32) -> Option<Row<u32>> {
    if active == ALL { low_words::<L>(base, offset) } else { low_words::<L>(&fill_inactive(base, active), offset) }
}

#[inline(always)]
fn low_words<L: Level>(base: &Lanes<u64>, offset: i64) -> Option<Row<u32>> {
    let at = Row(map1(base, |base| base.wrapping_add_signed(offset)));
    (!L::any_wide(&at, !u64::from(u32::MAX))).then(|| Row(map1(&at, |at| at as u32)))
}

#[inline(always)]
fn shared_from_narrow(base: &Lanes<u32>, offset: i64, active: u32) -> Row<u32> {
    let offset = offset as u32;
    match active {
        ALL => Row(map1(base, |base| base.wrapping_add(offset))),
        _ => Row(map1(&fill_inactive(base, active), |base| base.wrapping_add(offset))),
    }
}

#[inline(always)]
fn fill_inactive<T: Bits>(values: &Lanes<T>, active: u32) -> Lanes<T> {
    let spare = values[active.trailing_zeros() as usize % LANES];
    let mut filled = *values;
    for lane in 0..LANES {
        filled[lane] = values[lane].or_else(active >> lane & 1, spare);
    }
    filled
}

/// Returns whether every lane's word is within as many words as there are.
#[inline(always)]
pub(super) fn are_within<L: Level>(words: usize, at: &Lanes<u32>) -> bool {
    // No address that lacks the bits from the highest of the size on is beyond it.
    let bytes = words * 4;
    let Some(highest) = bytes.checked_ilog2() else { return false };
    if highest < 32 && !L::any(at, u32::MAX << highest) {
        return true;
    }
    let last = at.iter().fold(0, |last, &at| last.max(at));
    (last as usize) < bytes
}
