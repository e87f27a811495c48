//! Executes steps, the compact form of instructions: one match for each, and no branch for each lane.
//!
//! An instruction that cannot be completed here (one of another kind, an access that is not plain, a branch at which
//! lanes diverge) is left to `run` before it has had any effect: nothing here faults.

use super::cursor::{Cursor, Exit};
use super::frame::{ALL, Frame, Range};
use super::level::{Level, write};
use super::map::{map1, map2, map3};
use super::run::Run;
use super::step_rows::{
    floats, fma, fused, mask_where, of_doubles, of_singles, select, shared_from_narrow, shared_from_wide,
};
use crate::arith::integer::{self, s32, s64, u32 as u32s, u64 as u64s};
use crate::arith::{Mode, Rounding, approximate, double, single};
use crate::ir::{KEPT_PATTERNS, MemorySpace, Opcode, Pattern, Step, UNGUARDED};
use crate::memory::LANES;

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

    #[expect(unsafe_code, reason = "accesses of registers, whose slots are checked when the code is made")]
    #[inline(always)]
    pub(super) fn run_steps<L: Level>(&mut self, frame: &mut Frame, cursor: &mut Cursor<'_>) -> Exit {
        let steps = cursor.code.steps.as_slice();
        let (lanes, start) = (cursor.lanes, cursor.time);
        // The step that is executed.
        let mut at = steps.as_ptr().wrapping_add(cursor.position as usize);
        // The time is the position plus this, until a branch is taken: no step has to count.
        let mut origin = start.wrapping_sub(cursor.position.into());
        // The patterns that have been found since, or before.
        let mut patterns = frame.patterns.found;
        // The lanes that guards excluded.
        let mut excluded: u64 = 0;
        let (narrow, wide) = (frame.narrow.as_mut_ptr(), frame.wide.as_mut_ptr());
        let (predicates, ranges) = (frame.predicates.as_mut_ptr(), frame.ranges.as_mut_ptr());
        // SAFETY, also for the pointers that the macros use: `Code::check` has found that the slots of all instructions are
        // within the files of a frame, that branches lead to instructions and that the last one does not continue after
        // itself. The files are not reallocated while the steps run, and a row is not read while it is written.
        macro_rules! position {
            () => {
                // SAFETY: as above: both are in the steps.
                unsafe { at.offset_from(steps.as_ptr()) as u32 }
            };
        }
        let exit = 'steps: loop {
            // SAFETY: as above.
            let step = unsafe { &*at };
            let (mut opcode, mut active) = (step.opcode, lanes);
            macro_rules! narrow {
                ($values:expr) => {{
                    let values = $values;
                    // SAFETY: as above.
                    let target = unsafe { &mut (*narrow.add(step.to as usize)).0 };
                    write::<L, u32>(target, &mut frame.mask, step, active, values);
                }};
            }
            macro_rules! wide {
                ($values:expr) => {{
                    let values = $values;
                    // SAFETY: as above.
                    let target = unsafe { &mut (*wide.add(step.to as usize)).0 };
                    write::<L, u64>(target, &mut frame.mask, step, active, values);
                }};
            }
            macro_rules! n {
                ($slot:ident) => {
                    // SAFETY: as above.
                    unsafe { &(*narrow.add(step.$slot as usize)).0 }
                };
            }
            macro_rules! w {
                ($slot:ident) => {
                    // SAFETY: as above.
                    unsafe { &(*wide.add(step.$slot as usize)).0 }
                };
            }
            macro_rules! p {
                ($slot:ident) => {
                    // SAFETY: as above.
                    unsafe { *predicates.add(step.$slot as usize) }
                };
            }
            macro_rules! predicate {
                ($bits:expr) => {{
                    let bits: u32 = $bits;
                    // SAFETY: as above.
                    let target = unsafe { &mut *predicates.add(step.to as usize) };
                    *target = *target & !active | bits & active;
                }};
            }
            // Results of f32, of which those that are not numbers become the one that the hardware returns.
            macro_rules! single {
                ($values:expr) => {{
                    let mut values = $values;
                    if L::any_nan(&values) {
                        values = map1(&values, |value| single::canonical(f32::from_bits(value)));
                    }
                    narrow!(values)
                }};
            }
            macro_rules! first {
                (Add) => {
                    map2(n!(a), n!(b), |a, b| of_singles(a, b, |a, b| a + b))
                };
                (Sub) => {
                    map2(n!(a), n!(b), |a, b| of_singles(a, b, |a, b| a - b))
                };
                (Mul) => {
                    map2(n!(a), n!(b), |a, b| of_singles(a, b, |a, b| a * b))
                };
                (Fma) => {
                    map3(n!(a), n!(b), n!(c), fused::<L>)
                };
            }
            // The other operands of the second instruction of a pair.
            macro_rules! other {
                ($shift:expr) => {
                    // SAFETY: as above: it is an operand of the second step.
                    unsafe { &(*narrow.add((step.offset >> $shift) as u32 as usize)).0 }
                };
            }
            // What the second instruction of a pair makes of the result of the first.
            macro_rules! then {
                (Add, $t:expr) => {
                    map2($t, other!(0), |t, x| of_singles(t, x, |t, x| t + x))
                };
                (Mul, $t:expr) => {
                    map2($t, other!(0), |t, x| of_singles(t, x, |t, x| t * x))
                };
                (Sub, $t:expr) => {
                    map2($t, other!(0), |t, x| of_singles(t, x, |t, x| t - x))
                };
                (SubFrom, $t:expr) => {
                    map2($t, other!(0), |t, x| of_singles(t, x, |t, x| x - t))
                };
                (FmaFactor, $t:expr) => {
                    map3($t, other!(0), other!(32), fused::<L>)
                };
                (FmaTerm, $t:expr) => {
                    map3(other!(0), other!(32), $t, fused::<L>)
                };
            }
            macro_rules! chain {
                ($first:ident, $using:ident) => {{
                    let mut first = first!($first);
                    if L::any_nan(&first) {
                        first = map1(&first, |value| single::canonical(f32::from_bits(value)));
                    }
                    if !step.dies {
                        narrow!(first);
                    }
                    // SAFETY: as above; the second step of a pair follows the first.
                    let second = unsafe { &*at.wrapping_add(1) };
                    let mut values = then!($using, &first);
                    if L::any_nan(&values) {
                        values = map1(&values, |value| single::canonical(f32::from_bits(value)));
                    }
                    // SAFETY: as above.
                    let target = unsafe { &mut (*narrow.add(second.to as usize)).0 };
                    write::<L, u32>(target, &mut frame.mask, second, active, values);
                    at = at.wrapping_byte_add(second.advance.into());
                }};
            }
            // Results of f64, or those that take account of operands that are not numbers.
            macro_rules! double {
                ($values:expr, $exact:expr) => {{
                    let mut values = $values;
                    if L::any_wide_nan(&values) {
                        values = $exact;
                    }
                    wide!(values)
                }};
            }
            macro_rules! range {
                ($slot:ident) => {
                    // SAFETY: as above; there are as many as rows.
                    unsafe { &mut *ranges.add(step.$slot as usize) }
                };
            }
            macro_rules! fill_range {
                ($slot:ident) => {
                    // SAFETY: as above.
                    range!($slot).fill(unsafe { &mut *wide.add(step.$slot as usize) })
                };
            }
            // Writes a range if there is one and no lane needs another value, or else the value of each lane.
            macro_rules! write_range {
                ($start:expr, $values:expr) => {{
                    let start: Option<u64> = if active == ALL || step.is_whole { $start } else { None };
                    match start {
                        Some(start) => *range!(to) = Range { start, is_value: true },
                        None => {
                            let values = $values;
                            fill_range!(to);
                            wide!(values);
                        }
                    }
                }};
            }
            macro_rules! add_to_range {
                ($add:expr) => {{
                    let range = *range!(a);
                    if range.is_value && (active == ALL || step.is_whole) {
                        *range!(to) = Range { start: $add(range.start, w!(b)[0]), is_value: true };
                    } else {
                        fill_range!(a);
                        let values = map2(w!(a), w!(b), $add);
                        fill_range!(to);
                        wide!(values);
                    }
                }};
            }
            macro_rules! branch {
                ($target:expr) => {{
                    let (next, target) = (position!() + 1, $target);
                    origin = origin.wrapping_add(next.into()).wrapping_sub(target.into());
                    at = steps.as_ptr().wrapping_add(target as usize);
                    if target != next
                        && (target >= cursor.horizon || origin.wrapping_add(target.into()) >= cursor.limit)
                    {
                        break 'steps Exit::Boundary;
                    }
                    continue 'steps;
                }};
            }
            macro_rules! branch_of {
                ($taken:expr, $target:expr) => {{
                    active = $taken;
                    if active == lanes {
                        branch!($target);
                    }
                    excluded += u64::from((lanes & !active).count_ones());
                    if active != 0 {
                        break 'steps Exit::Other { active };
                    }
                }};
            }
            macro_rules! load_pattern {
                ($base:expr, $address:expr) => {{
                    let (index, is_found) = match Pattern::of(step) {
                        None => (None, true),
                        Some(Pattern::New(index)) => (Some(index), false),
                        Some(Pattern::Known(index)) => (Some(index), patterns >> index & 1 != 0),
                    };
                    if let Some(index) = index.filter(|_| !is_found) {
                        Self::find_pattern::<L>(&mut frame.patterns, index, $base);
                        patterns |= 1 << index;
                    }
                    let (shared, _) = self.shared.as_chunks::<4>();
                    let is_done = index.is_some_and(|index| {
                        frame.patterns.load(index, shared, $address, &mut frame.narrow[step.to as usize].0)
                    });
                    if is_done
                        && self.is_observed
                        && let Some(index) = index
                    {
                        let (first, distance) = frame.patterns.halves(index, $address);
                        self.observe_words(frame.function, cursor.code, position!(), first, distance);
                    }
                    is_done
                }};
            }
            // A comparison; the branch after it that depends on it is executed with it.
            macro_rules! compare {
                ($bits:expr) => {{
                    predicate!($bits);
                    if let Some((target, negated)) = step.branch() {
                        at = at.wrapping_add(1);
                        branch_of!(lanes & (p!(to) ^ negated), target);
                    }
                }};
            }
            macro_rules! or_other {
                ($is_done:expr) => {
                    if !$is_done {
                        break 'steps Exit::Other { active };
                    }
                };
            }
            macro_rules! load_shared {
                ($at:expr) => {{
                    let words = $at;
                    or_other!(self.load_shared_step::<L>(frame, step, active, &words));
                    if self.is_observed {
                        let words = map1(&words, u64::from);
                        self.observe_load(
                            MemorySpace::Shared,
                            frame.function,
                            cursor.code,
                            position!(),
                            &words,
                            active,
                            false,
                        );
                    }
                }};
            }
            macro_rules! store_shared {
                ($at:expr) => {
                    or_other!(match self.is_observed {
                        true =>
                            self.observed_store_shared_step::<L>(frame, cursor.code, position!(), step, active, &$at),
                        false => self.store_shared_step::<L>(frame, step, active, &$at),
                    })
                };
            }
            'step: loop {
                match opcode {
                    Opcode::Guarded => {
                        active = active_lanes(frame, step, lanes);
                        excluded += u64::from((lanes & !active).count_ones());
                        if active != 0 {
                            opcode = step.guarded;
                            continue 'step;
                        }
                    }
                    Opcode::Other | Opcode::Control => break 'steps Exit::Other { active },
                    Opcode::Skip => {}
                    Opcode::Label => {
                        at = at.wrapping_add(1);
                        let position = position!();
                        if position >= cursor.horizon || origin.wrapping_add(position.into()) >= cursor.limit {
                            break 'steps Exit::Boundary;
                        }
                        continue 'steps;
                    }
                    Opcode::Branch => branch!(step.offset as u32),
                    Opcode::BranchIf => branch_of!(active_lanes(frame, step, lanes), step.offset as u32),
                    Opcode::MoveNarrow => narrow!(*n!(a)),
                    Opcode::MoveWide => wide!(*w!(a)),
                    Opcode::MovePredicate => predicate!(p!(a)),
                    Opcode::MovePredicateNot => predicate!(!p!(a)),
                    Opcode::PredicateAnd => predicate!(p!(a) & p!(b)),
                    Opcode::PredicateOr => predicate!(p!(a) | p!(b)),
                    Opcode::PredicateXor => predicate!(p!(a) ^ p!(b)),

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
                    Opcode::RangeMulUnsigned => {
                        write_range!(
                            Self::range_of_products::<L>(n!(a), n!(b)[0], false),
                            map2(n!(a), n!(b), u32s::mul_wide)
                        )
                    }
                    Opcode::RangeMulSigned => {
                        write_range!(
                            Self::range_of_products::<L>(n!(a), n!(b)[0], true),
                            map2(n!(a), n!(b), s32::mul_wide)
                        )
                    }
                    Opcode::RangeMadUnsigned => {
                        write_range!(
                            Self::range_of_products::<L>(n!(a), n!(b)[0], false)
                                .map(|start| start.wrapping_add(w!(c)[0])),
                            map3(n!(a), n!(b), w!(c), |a, b, c| u32s::mul_wide(a, b).wrapping_add(c))
                        )
                    }
                    Opcode::RangeMadSigned => {
                        write_range!(
                            Self::range_of_products::<L>(n!(a), n!(b)[0], true)
                                .map(|start| start.wrapping_add(w!(c)[0])),
                            map3(n!(a), n!(b), w!(c), |a, b, c| s32::mul_wide(a, b).wrapping_add(c))
                        )
                    }
                    Opcode::RangeAdd => add_to_range!(u64::wrapping_add),
                    Opcode::RangeSub => add_to_range!(u64::wrapping_sub),

                    Opcode::SelectNarrow => narrow!(select(p!(c), n!(a), n!(b))),
                    Opcode::SelectNarrowNot => narrow!(select(p!(c), n!(b), n!(a))),
                    Opcode::SelectWide => wide!(select(p!(c), w!(a), w!(b))),
                    Opcode::SelectWideNot => wide!(select(p!(c), w!(b), w!(a))),

                    Opcode::AddSingle => single!(first!(Add)),
                    Opcode::SubSingle => single!(first!(Sub)),
                    Opcode::MulSingle => single!(first!(Mul)),
                    Opcode::FmaSingle => single!(first!(Fma)),
                    Opcode::AddThenAdd => chain!(Add, Add),
                    Opcode::AddThenMul => chain!(Add, Mul),
                    Opcode::AddThenSub => chain!(Add, Sub),
                    Opcode::AddThenSubFrom => chain!(Add, SubFrom),
                    Opcode::AddThenFmaFactor => chain!(Add, FmaFactor),
                    Opcode::AddThenFmaTerm => chain!(Add, FmaTerm),
                    Opcode::SubThenAdd => chain!(Sub, Add),
                    Opcode::SubThenMul => chain!(Sub, Mul),
                    Opcode::SubThenSub => chain!(Sub, Sub),
                    Opcode::SubThenSubFrom => chain!(Sub, SubFrom),
                    Opcode::SubThenFmaFactor => chain!(Sub, FmaFactor),
                    Opcode::SubThenFmaTerm => chain!(Sub, FmaTerm),
                    Opcode::MulThenAdd => chain!(Mul, Add),
                    Opcode::MulThenMul => chain!(Mul, Mul),
                    Opcode::MulThenSub => chain!(Mul, Sub),
                    Opcode::MulThenSubFrom => chain!(Mul, SubFrom),
                    Opcode::MulThenFmaFactor => chain!(Mul, FmaFactor),
                    Opcode::MulThenFmaTerm => chain!(Mul, FmaTerm),
                    Opcode::FmaThenAdd => chain!(Fma, Add),
                    Opcode::FmaThenMul => chain!(Fma, Mul),
                    Opcode::FmaThenSub => chain!(Fma, Sub),
                    Opcode::FmaThenSubFrom => chain!(Fma, SubFrom),
                    Opcode::FmaThenFmaFactor => chain!(Fma, FmaFactor),
                    Opcode::FmaThenFmaTerm => chain!(Fma, FmaTerm),
                    Opcode::DivSingle => single!(map2(n!(a), n!(b), |a, b| of_singles(a, b, |a, b| a / b))),
                    Opcode::SqrtSingle | Opcode::SqrtApprox => {
                        single!(map1(n!(a), |a| f32::from_bits(a).sqrt().to_bits()))
                    }
                    Opcode::RcpSingle => single!(map1(n!(a), |a| (1.0 / f32::from_bits(a)).to_bits())),
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
                    Opcode::AbsSingle => single!(map1(n!(a), |a| f32::from_bits(a).abs().to_bits())),
                    Opcode::NegSingle => single!(map1(n!(a), |a| (-f32::from_bits(a)).to_bits())),
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

                    Opcode::AddDouble => double!(
                        map2(w!(a), w!(b), |a, b| of_doubles(a, b, |a, b| a + b)),
                        map2(w!(a), w!(b), |a, b| double::add(a, b, Rounding::Nearest))
                    ),
                    Opcode::SubDouble => double!(
                        map2(w!(a), w!(b), |a, b| of_doubles(a, b, |a, b| a - b)),
                        map2(w!(a), w!(b), |a, b| double::sub(a, b, Rounding::Nearest))
                    ),
                    Opcode::MulDouble => double!(
                        map2(w!(a), w!(b), |a, b| of_doubles(a, b, |a, b| a * b)),
                        map2(w!(a), w!(b), |a, b| double::mul(a, b, Rounding::Nearest))
                    ),
                    Opcode::FmaDouble if L::HAS_FMA => {
                        let fused = |a, b, c| f64::mul_add(f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
                        double!(
                            map3(w!(a), w!(b), w!(c), |a, b, c| fused(a, b, c).to_bits()),
                            map3(w!(a), w!(b), w!(c), |a, b, c| double::fma(a, b, c, Rounding::Nearest))
                        )
                    }
                    Opcode::FmaDouble => {
                        wide!(map3(w!(a), w!(b), w!(c), |a, b, c| double::fma(a, b, c, Rounding::Nearest)))
                    }
                    Opcode::DivDouble => double!(
                        map2(w!(a), w!(b), |a, b| of_doubles(a, b, |a, b| a / b)),
                        map2(w!(a), w!(b), |a, b| double::div(a, b, Rounding::Nearest))
                    ),
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

                    Opcode::Equal => compare!(mask_where::<L, _>(n!(a), n!(b), |a, b| a == b) ^ step.c),
                    Opcode::LessUnsigned => compare!(mask_where::<L, _>(n!(a), n!(b), |a, b| a < b) ^ step.c),
                    Opcode::LessSigned => {
                        compare!(mask_where::<L, _>(n!(a), n!(b), |a, b| a.cast_signed() < b.cast_signed()) ^ step.c)
                    }
                    Opcode::WideEqual => compare!(mask_where::<L, _>(w!(a), w!(b), |a, b| a == b) ^ step.c),
                    Opcode::WideLessUnsigned => compare!(mask_where::<L, _>(w!(a), w!(b), |a, b| a < b) ^ step.c),
                    Opcode::WideLessSigned => {
                        compare!(mask_where::<L, _>(w!(a), w!(b), |a, b| a.cast_signed() < b.cast_signed()) ^ step.c)
                    }
                    Opcode::EqualSingle => {
                        compare!(
                            mask_where::<L, _>(n!(a), n!(b), |a, b| f32::from_bits(a) == f32::from_bits(b)) ^ step.c
                        )
                    }
                    Opcode::LessSingle => {
                        compare!(
                            mask_where::<L, _>(n!(a), n!(b), |a, b| f32::from_bits(a) < f32::from_bits(b)) ^ step.c
                        )
                    }
                    Opcode::LessEqualSingle => {
                        compare!(
                            mask_where::<L, _>(n!(a), n!(b), |a, b| f32::from_bits(a) <= f32::from_bits(b)) ^ step.c
                        )
                    }
                    Opcode::CompareSingle => {
                        compare!(floats::<L, _, _>(step.relation, n!(a), n!(b), f32::from_bits))
                    }
                    Opcode::CompareSingleFtz => {
                        compare!(floats::<L, _, _>(step.relation, n!(a), n!(b), |a| f32::from_bits(single::flush(a))))
                    }
                    Opcode::CompareDouble => compare!(floats::<L, _, _>(step.relation, w!(a), w!(b), f64::from_bits)),

                    Opcode::LoadParameterNarrow => match self.argument::<4>(step.offset) {
                        Some(bytes) => narrow!([u32::from_le_bytes(bytes); LANES]),
                        None => break 'steps Exit::Other { active },
                    },
                    Opcode::LoadParameterWide => match self.argument::<8>(step.offset) {
                        Some(bytes) => wide!([u64::from_le_bytes(bytes); LANES]),
                        None => break 'steps Exit::Other { active },
                    },
                    Opcode::LoadGlobal | Opcode::LoadGeneric | Opcode::LoadRange => {
                        let is_done = opcode == Opcode::LoadRange && {
                            let range = *range!(a);
                            let is_done = range.is_value
                                && !self.is_observed
                                && self.load_range::<L>(frame, step, active, range.start);
                            if !is_done {
                                fill_range!(a);
                            }
                            is_done
                        };
                        if !is_done {
                            or_other!(self.load_step::<L>(frame, step, active));
                            if self.is_observed {
                                let words = map1(w!(a), |base| base.wrapping_add_signed(step.offset));
                                let is_range = Self::is_range_step::<L>(&words, active);
                                let (space, function) = (MemorySpace::Global, frame.function);
                                self.observe_load(space, function, cursor.code, position!(), &words, active, is_range);
                            }
                        }
                    }
                    Opcode::StoreGlobal | Opcode::StoreGeneric | Opcode::StoreRange => {
                        let is_done = opcode == Opcode::StoreRange && {
                            let range = *range!(a);
                            let is_done = range.is_value
                                && !self.is_observed
                                && self.store_range(frame, step, active, range.start);
                            if !is_done {
                                fill_range!(a);
                            }
                            is_done
                        };
                        if !is_done {
                            or_other!(match self.is_observed {
                                true => self.observed_store_step::<L>(frame, cursor.code, position!(), step, active),
                                false => self.store_step::<L>(frame, step, active),
                            });
                        }
                    }
                    Opcode::LoadShared => {
                        let address = |first: u64| first.wrapping_add_signed(step.offset);
                        if active != ALL || !load_pattern!(w!(a), address) {
                            match shared_from_wide::<L>(w!(a), step.offset, active) {
                                Some(words) => load_shared!(words),
                                None => break 'steps Exit::Other { active },
                            }
                        }
                    }
                    Opcode::LoadSharedNarrow => {
                        let address = |first: u64| u64::from((first as u32).wrapping_add(step.offset as u32));
                        if active != ALL || !load_pattern!(&map1(n!(a), u64::from), address) {
                            let words = shared_from_narrow(n!(a), step.offset, active);
                            load_shared!(words);
                        }
                    }
                    Opcode::Shuffle => {
                        if active != ALL || self.is_observed {
                            break 'steps Exit::Other { active };
                        }
                        super::lanes::execute(frame, &cursor.code.instructions[position!() as usize].op, active);
                    }
                    Opcode::StoreShared => match shared_from_wide::<L>(w!(a), step.offset, active) {
                        Some(words) => store_shared!(words),
                        None => break 'steps Exit::Other { active },
                    },
                    Opcode::StoreSharedNarrow => {
                        let words = shared_from_narrow(n!(a), step.offset, active);
                        store_shared!(words);
                    }
                    Opcode::AddShared => match shared_from_wide::<L>(w!(a), step.offset, active) {
                        Some(words) => {
                            or_other!(!self.is_observed && self.add_shared_step::<L>(frame, step, active, &words));
                        }
                        None => break 'steps Exit::Other { active },
                    },
                    Opcode::AddSharedNarrow => {
                        let words = shared_from_narrow(n!(a), step.offset, active);
                        or_other!(!self.is_observed && self.add_shared_step::<L>(frame, step, active, &words));
                    }
                }
                break;
            }
            at = at.wrapping_byte_add(step.advance.into());
        };
        let position = position!();
        let counted = u64::from(matches!(exit, Exit::Other { .. }));
        frame.patterns.found = patterns & KEPT_PATTERNS;
        cursor.position = position;
        cursor.time = origin.wrapping_add(position.into()).wrapping_add(counted);
        *self.since += cursor.time - start;
        *self.executed += (cursor.time - start) * u64::from(lanes.count_ones()) - excluded;
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
