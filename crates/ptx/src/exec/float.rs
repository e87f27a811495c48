//! Floating-point arithmetic, conversions and comparisons of all lanes at once.

use std::cmp::Ordering;

use super::alu::logic;
use super::frame::Frame;
use super::map::{Lanes, map1, map2, map3};
use crate::arith::convert::{self, Convert, Format};
use crate::arith::half::{Half, HalfMode, pairs};
use crate::arith::{MinMax, Mode, Rounding, approximate, double, packed, single};
use crate::ir::{Compare, CompareKind, Float, Op, Reg, Relation};

/// Executes an instruction on floating-point numbers. Returns `false` if it is of another kind.
pub(super) fn execute(frame: &mut Frame, op: &Op, lanes: u32) -> bool {
    match *op {
        Op::Single { op, mode, to, a, b, c } => {
            let file = &frame.narrow;
            let values = singles(op, mode, &file[a as usize], &file[b as usize], &file[c as usize]);
            frame.write_narrow(to, lanes, values);
        }
        Op::Double { op, mode, to, a, b, c } => {
            let file = &frame.wide;
            let values = doubles(op, mode, &file[a as usize], &file[b as usize], &file[c as usize]);
            frame.write_wide(to, lanes, values);
        }
        Op::Half { op, format, packed, mode, relu, to, a, b, c } => {
            let file = &frame.narrow;
            let mode = HalfMode { ftz: mode.ftz, sat: mode.sat, relu };
            let one = |a: u16, b: u16, c: u16| half(op, format, mode, a, b, c);
            let values = map3(&file[a as usize], &file[b as usize], &file[c as usize], |a, b, c| match packed {
                true => pairs([a, b, c], |[a, b, c]| one(a, b, c)),
                false => u32::from(one(a as u16, b as u16, c as u16)),
            });
            frame.write_narrow(to, lanes, values);
        }
        Op::Convert { to_format, from_format, how, to, from } => {
            convert_lanes(frame, lanes, to_format, from_format, how, to, from);
        }
        Op::ConvertPair { format, how, to, a, b } => {
            let format = match format {
                Half::F16 => Format::F16,
                Half::Bf16 => Format::Bf16,
            };
            let file = &frame.narrow;
            let values = map2(&file[a as usize], &file[b as usize], |a, b| packed::pack_halves(format, a, b, how));
            frame.write_narrow(to, lanes, values);
        }
        Op::ConvertTf32 { how, to, a } => {
            let values = map1(&frame.narrow[a as usize], |a| packed::tf32(a, how));
            frame.write_narrow(to, lanes, values);
        }
        Op::PackEighths { format, relu, to, a, b: Some(b) } => {
            let file = &frame.narrow;
            let values = map2(&file[a as usize], &file[b as usize], |a, b| packed::pack_fp8(format, a, b, relu));
            frame.write_narrow(to, lanes, values.map(u32::from));
        }
        Op::PackEighths { format, relu, to, a, b: None } => {
            let values = map1(&frame.narrow[a as usize], |a| packed::pack_fp8_from_halves(format, a, relu));
            frame.write_narrow(to, lanes, values.map(u32::from));
        }
        Op::UnpackEighths { format, relu, to, a } => {
            let values = map1(&frame.narrow[a as usize], |a| packed::unpack_fp8(format, a as u16, relu));
            frame.write_narrow(to, lanes, values);
        }
        Op::Compare(ref compare) => compare_lanes(frame, lanes, compare),
        Op::Test { class, to, from } => {
            let bits = match from {
                Reg::Narrow(slot) => mask_of(map1(&frame.narrow[slot as usize], |a| single::testp(class, a))),
                Reg::Wide(slot) => mask_of(map1(&frame.wide[slot as usize], |a| double::testp(class, a))),
                Reg::Predicate(_) => unreachable!("testp takes a number"),
            };
            frame.set_predicate(to, lanes, bits);
        }
        _ => return false,
    }
    true
}

fn singles(op: Float, mode: Mode, a: &Lanes<u32>, b: &Lanes<u32>, c: &Lanes<u32>) -> Lanes<u32> {
    let ftz = mode.ftz;
    match op {
        // The common modes are separate cases, so that each loop is compiled for its mode.
        Float::Add if mode == Mode::NEAREST => map2(a, b, |a, b| single::add(a, b, Mode::NEAREST)),
        Float::Sub if mode == Mode::NEAREST => map2(a, b, |a, b| single::sub(a, b, Mode::NEAREST)),
        Float::Mul if mode == Mode::NEAREST => map2(a, b, |a, b| single::mul(a, b, Mode::NEAREST)),
        Float::Fma if mode == Mode::NEAREST => map3(a, b, c, |a, b, c| single::fma(a, b, c, Mode::NEAREST)),
        Float::Add if mode == Mode::NEAREST_FTZ => map2(a, b, |a, b| single::add(a, b, Mode::NEAREST_FTZ)),
        Float::Mul if mode == Mode::NEAREST_FTZ => map2(a, b, |a, b| single::mul(a, b, Mode::NEAREST_FTZ)),
        Float::Fma if mode == Mode::NEAREST_FTZ => map3(a, b, c, |a, b, c| single::fma(a, b, c, Mode::NEAREST_FTZ)),
        Float::Add => map2(a, b, |a, b| single::add(a, b, mode)),
        Float::Sub => map2(a, b, |a, b| single::sub(a, b, mode)),
        Float::Mul => map2(a, b, |a, b| single::mul(a, b, mode)),
        Float::Fma => map3(a, b, c, |a, b, c| single::fma(a, b, c, mode)),
        Float::Div => map2(a, b, |a, b| single::div(a, b, mode)),
        Float::DivApprox => map2(a, b, |a, b| approximate::div_approx(a, b, ftz)),
        Float::DivFull => map2(a, b, |a, b| approximate::div_full(a, b, ftz)),
        Float::Sqrt => map1(a, |a| single::sqrt(a, mode)),
        Float::SqrtApprox => map1(a, |a| approximate::sqrt_approx(a, ftz)),
        Float::Rcp => map1(a, |a| single::rcp(a, mode)),
        Float::RcpApprox => map1(a, |a| approximate::rcp_approx(a, ftz)),
        Float::RsqrtApprox => map1(a, |a| approximate::rsqrt_approx(a, ftz)),
        Float::Sin => map1(a, |a| approximate::sin_approx(a, ftz)),
        Float::Cos => map1(a, |a| approximate::cos_approx(a, ftz)),
        Float::Exp2 => map1(a, |a| approximate::ex2_approx(a, ftz)),
        Float::Log2 => map1(a, |a| approximate::lg2_approx(a, ftz)),
        Float::Tanh => map1(a, approximate::tanh_approx),
        Float::Min { nan, xorsign } => {
            let how = MinMax { ftz, nan, xorsign_abs: xorsign };
            map2(a, b, |a, b| single::min(a, b, how))
        }
        Float::Max { nan, xorsign } => {
            let how = MinMax { ftz, nan, xorsign_abs: xorsign };
            map2(a, b, |a, b| single::max(a, b, how))
        }
        Float::Abs => map1(a, |a| single::abs(a, ftz)),
        Float::Neg => map1(a, |a| single::neg(a, ftz)),
        Float::CopySign => map2(a, b, single::copysign),
    }
}

fn doubles(op: Float, mode: Mode, a: &Lanes<u64>, b: &Lanes<u64>, c: &Lanes<u64>) -> Lanes<u64> {
    let rounding = mode.rounding;
    let nearest = rounding == Rounding::Nearest;
    match op {
        Float::Add if nearest => map2(a, b, |a, b| double::add(a, b, Rounding::Nearest)),
        Float::Sub if nearest => map2(a, b, |a, b| double::sub(a, b, Rounding::Nearest)),
        Float::Mul if nearest => map2(a, b, |a, b| double::mul(a, b, Rounding::Nearest)),
        Float::Fma if nearest => map3(a, b, c, |a, b, c| double::fma(a, b, c, Rounding::Nearest)),
        Float::Add => map2(a, b, |a, b| double::add(a, b, rounding)),
        Float::Sub => map2(a, b, |a, b| double::sub(a, b, rounding)),
        Float::Mul => map2(a, b, |a, b| double::mul(a, b, rounding)),
        Float::Fma => map3(a, b, c, |a, b, c| double::fma(a, b, c, rounding)),
        Float::Div => map2(a, b, |a, b| double::div(a, b, rounding)),
        Float::Sqrt => map1(a, |a| double::sqrt(a, rounding)),
        Float::Rcp => map1(a, |a| double::rcp(a, rounding)),
        Float::RcpApprox => map1(a, double::rcp_approx_ftz),
        Float::RsqrtApprox if mode.ftz => map1(a, double::rsqrt_approx_ftz),
        Float::RsqrtApprox => map1(a, double::rsqrt_approx),
        Float::Min { .. } => map2(a, b, double::min),
        Float::Max { .. } => map2(a, b, double::max),
        Float::Abs => map1(a, double::abs),
        Float::Neg => map1(a, double::neg),
        Float::CopySign => map2(a, b, double::copysign),
        Float::DivApprox
        | Float::DivFull
        | Float::SqrtApprox
        | Float::Sin
        | Float::Cos
        | Float::Exp2
        | Float::Log2
        | Float::Tanh => unreachable!("the lowering never emits {op:?} for .f64"),
    }
}

fn half(op: Float, format: Half, mode: HalfMode, a: u16, b: u16, c: u16) -> u16 {
    match op {
        Float::Add => format.add(a, b, mode),
        Float::Sub => format.sub(a, b, mode),
        Float::Mul => format.mul(a, b, mode),
        Float::Fma => format.fma(a, b, c, mode),
        Float::Min { nan, xorsign } => format.min(a, b, MinMax { ftz: mode.ftz, nan, xorsign_abs: xorsign }),
        Float::Max { nan, xorsign } => format.max(a, b, MinMax { ftz: mode.ftz, nan, xorsign_abs: xorsign }),
        Float::Abs => format.abs(a, mode.ftz),
        Float::Neg => format.neg(a, mode.ftz),
        Float::Exp2 => format.ex2_approx(a, mode.ftz),
        Float::Tanh => format.tanh_approx(a),
        _ => unreachable!("the lowering never emits {op:?} in half precision"),
    }
}

fn convert_lanes(
    frame: &mut Frame,
    lanes: u32,
    to_format: Format,
    from_format: Format,
    how: Convert,
    to: Reg,
    from: Reg,
) {
    // A fast path for conversions of addresses and indices, which are frequent.
    let plain = !how.sat && !how.ftz;
    match (to_format, from_format, to, from) {
        (Format::U64, Format::U32, Reg::Wide(to), Reg::Narrow(from)) => {
            let values = map1(&frame.narrow[from as usize], u64::from);
            return frame.write_wide(to, lanes, values);
        }
        (Format::S64, Format::S32, Reg::Wide(to), Reg::Narrow(from)) => {
            let values = map1(&frame.narrow[from as usize], |a| i64::from(a.cast_signed()).cast_unsigned());
            return frame.write_wide(to, lanes, values);
        }
        (Format::U32 | Format::S32, Format::U64 | Format::S64, Reg::Narrow(to), Reg::Wide(from)) if !how.sat => {
            let values = map1(&frame.wide[from as usize], |a| a as u32);
            return frame.write_narrow(to, lanes, values);
        }
        (Format::F32, Format::S32, Reg::Narrow(to), Reg::Narrow(from))
            if plain && how.rounding == Some(Rounding::Nearest) =>
        {
            let values = map1(&frame.narrow[from as usize], |a| (a.cast_signed() as f32).to_bits());
            return frame.write_narrow(to, lanes, values);
        }
        _ => {}
    }
    let values = map1(&frame.read(from), |bits| convert::convert(to_format, from_format, bits, how));
    // A narrow result in a wider register is extended as its type requires.
    let extended = match to_format {
        Format::S8 => map1(&values, |value| i64::from(value as i8).cast_unsigned()),
        Format::S16 => map1(&values, |value| i64::from(value as i16).cast_unsigned()),
        Format::S32 => map1(&values, |value| i64::from(value as i32).cast_unsigned()),
        _ => values,
    };
    frame.write(to, lanes, &extended);
}

fn mask_of(holds: Lanes<bool>) -> u32 {
    holds.into_iter().enumerate().fold(0, |mask, (lane, holds)| mask | u32::from(holds) << lane)
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn integers<T: Copy + Ord>(relation: Relation, a: &Lanes<T>, b: &Lanes<T>) -> u32 {
    let mask = |f: fn(T, T) -> bool| mask_of(map2(a, b, f));
    match relation {
        Relation::Eq => mask(|a, b| a == b),
        Relation::Ne => mask(|a, b| a != b),
        Relation::Lt => mask(|a, b| a < b),
        Relation::Le => mask(|a, b| a <= b),
        Relation::Gt => mask(|a, b| a > b),
        Relation::Ge => mask(|a, b| a >= b),
        _ => unreachable!("integers have no unordered comparison"),
    }
}

fn relates(relation: Relation, order: Option<Ordering>) -> bool {
    use Ordering::{Equal, Greater, Less};
    match (relation, order) {
        (Relation::Eq, order) => order == Some(Equal),
        (Relation::Ne, order) => matches!(order, Some(Less | Greater)),
        (Relation::Lt, order) => order == Some(Less),
        (Relation::Le, order) => matches!(order, Some(Less | Equal)),
        (Relation::Gt, order) => order == Some(Greater),
        (Relation::Ge, order) => matches!(order, Some(Greater | Equal)),
        (Relation::Num, order) => order.is_some(),
        (Relation::Nan, order) => order.is_none(),
        (_, None) => true,
        (Relation::Equ, order) => order == Some(Equal),
        (Relation::Neu, order) => order != Some(Equal),
        (Relation::Ltu, order) => order == Some(Less),
        (Relation::Leu, order) => order != Some(Greater),
        (Relation::Gtu, order) => order == Some(Greater),
        (Relation::Geu, order) => order != Some(Less),
    }
}

/// Returns the outcome of a comparison; for packed halves, that of the low ones and that of the high ones.
fn outcome(frame: &Frame, compare: &Compare) -> (u32, Option<u32>) {
    let relation = compare.relation;
    let narrow = |place: Reg| match place {
        Reg::Narrow(slot) => &frame.narrow[slot as usize],
        _ => unreachable!("the lowering checks the size of compared registers"),
    };
    let wide = |place: Reg| match place {
        Reg::Wide(slot) => &frame.wide[slot as usize],
        _ => unreachable!("the lowering checks the size of compared registers"),
    };
    let (a, b) = (compare.a, compare.b);
    let bits = match compare.kind {
        CompareKind::Unsigned32 => integers(relation, narrow(a), narrow(b)),
        CompareKind::Signed32 => integers(relation, &narrow(a).map(u32::cast_signed), &narrow(b).map(u32::cast_signed)),
        CompareKind::Unsigned16 => integers(relation, &narrow(a).map(|a| a as u16), &narrow(b).map(|b| b as u16)),
        CompareKind::Signed16 => integers(relation, &narrow(a).map(|a| a as i16), &narrow(b).map(|b| b as i16)),
        CompareKind::Unsigned64 => integers(relation, wide(a), wide(b)),
        CompareKind::Signed64 => integers(relation, &wide(a).map(u64::cast_signed), &wide(b).map(u64::cast_signed)),
        CompareKind::Single { ftz } => {
            mask_of(map2(narrow(a), narrow(b), |a, b| relates(relation, single::compare(a, b, ftz))))
        }
        CompareKind::Double => mask_of(map2(wide(a), wide(b), |a, b| relates(relation, double::compare(a, b)))),
        CompareKind::Half { format, ftz } => {
            mask_of(map2(narrow(a), narrow(b), |a, b| relates(relation, format.compare(a as u16, b as u16, ftz))))
        }
        CompareKind::PackedHalf { format, ftz } => {
            let part = |shift: u32| {
                mask_of(map2(narrow(a), narrow(b), |a, b| {
                    relates(relation, format.compare((a >> shift) as u16, (b >> shift) as u16, ftz))
                }))
            };
            return (part(0), Some(part(16)));
        }
    };
    (bits, None)
}

fn compare_lanes(frame: &mut Frame, lanes: u32, compare: &Compare) {
    let (first, high) = outcome(frame, compare);
    let combined = |bits: u32| match compare.combine {
        None => bits,
        Some((op, slot, negated)) => logic(op, bits, frame.holds(slot, negated)),
    };
    // The second result is that of the opposite comparison, combined in the same way.
    let (first, second) = (combined(first), combined(high.unwrap_or(!first)));
    if let Some(to) = compare.to {
        frame.set_predicate(to, lanes, first);
    }
    if let Some(to) = compare.second {
        frame.set_predicate(to, lanes, second);
    }
}
