//! Integer arithmetic of all lanes at once. Inactive lanes are computed too, but not written: nothing here can fail.

use super::frame::Frame;
use super::map::{Lanes, map1, map2, map3};
use crate::arith::integer::{self, s16, s32, s64, u16 as u16s, u32 as u32s, u64 as u64s};
use crate::arith::video;
use crate::ir::{Bits, BitsWide, CarryOp, Extend, Integer, Logic, Op, Reg, Shift};
use crate::memory::LANES;

/// Executes an instruction on integers and bits. Returns `false` if it is of another kind.
pub(super) fn execute(frame: &mut Frame, op: &Op, lanes: u32) -> bool {
    match *op {
        Op::MoveNarrow { to, from } => {
            let value = frame.narrow[from as usize].0;
            frame.write_narrow(to, lanes, value);
        }
        Op::MoveWide { to, from } => {
            let value = frame.wide[from as usize].0;
            frame.write_wide(to, lanes, value);
        }
        Op::MovePredicate { to, from, negated } => {
            let bits = frame.holds(from, negated);
            frame.set_predicate(to, lanes, bits);
        }
        Op::Narrow { op, half: None, to, a, b, c } => {
            let file = &frame.narrow;
            let values = narrow(op, &file[a as usize], &file[b as usize], &file[c as usize]);
            frame.write_narrow(to, lanes, values);
        }
        Op::Narrow { op, half: Some(extend), to, a, b, c } => {
            let extend = |slot: u32| match extend {
                Extend::Zero => frame.narrow[slot as usize].0,
                Extend::Sign => map1(&frame.narrow[slot as usize], |value| value as i16 as u32),
            };
            let values = half(op, &extend(a), &extend(b), &extend(c));
            frame.write_narrow(to, lanes, map1(&values, |value| value & 0xffff));
        }
        Op::Packed { op, extend, to, a, b } => {
            let part = |slot: u32, shift: u32| match extend {
                Extend::Zero => map1(&frame.narrow[slot as usize], |value| value >> shift & 0xffff),
                Extend::Sign => map1(&frame.narrow[slot as usize], |value| (value >> shift) as i16 as u32),
            };
            let [low, high] = [0, 16].map(|shift| half(op, &part(a, shift), &part(b, shift), &[0; LANES]));
            frame.write_narrow(to, lanes, map2(&low, &high, |low, high| low & 0xffff | high << 16));
        }
        Op::Wide { op, to, a, b, c } => {
            let file = &frame.wide;
            let values = wide(op, &file[a as usize], &file[b as usize], &file[c as usize]);
            frame.write_wide(to, lanes, values);
        }
        Op::Widening { signed, half, to, a, b, c } => widening(frame, lanes, signed, half, to, [a, b], c),
        Op::ShiftWide { op, to, a, amount } => {
            let (a, amount) = (&frame.wide[a as usize], &frame.narrow[amount as usize]);
            let values = match op {
                Shift::Left => map2(a, amount, u64s::shl),
                Shift::RightUnsigned => map2(a, amount, u64s::shr),
                Shift::RightSigned => map2(a, amount, s64::shr),
            };
            frame.write_wide(to, lanes, values);
        }
        Op::Bits { op, to, a, b, c } => {
            let file = &frame.narrow;
            let values = bits(op, &file[a as usize], &file[b as usize], &file[c as usize]);
            frame.write_narrow(to, lanes, values);
        }
        Op::BitsWide { op, to, a, b, c, d } => bits_wide(frame, lanes, op, to, [a, b, c, d]),
        Op::Carry { op, reads, writes, to, a, b, c } => carry(frame, lanes, op, [reads, writes], to, [a, b, c]),
        Op::SelectNarrow { to, a, b, predicate, negated } => {
            let chosen = frame.holds(predicate, negated);
            let (a, b) = (frame.narrow[a as usize], frame.narrow[b as usize]);
            let values = std::array::from_fn(|lane| if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] });
            frame.write_narrow(to, lanes, values);
        }
        Op::SelectWide { to, a, b, predicate, negated } => {
            let chosen = frame.holds(predicate, negated);
            let (a, b) = (frame.wide[a as usize], frame.wide[b as usize]);
            let values = std::array::from_fn(|lane| if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] });
            frame.write_wide(to, lanes, values);
        }
        Op::Logic { op, to, a, a_negated, b, b_negated } => {
            let bits = logic(op, frame.holds(a, a_negated), frame.holds(b, b_negated));
            frame.set_predicate(to, lanes, bits);
        }
        Op::Split { from, part_bits, ref to } => {
            let value = frame.read(from);
            let mask = (1u64 << part_bits) - 1;
            for (index, to) in to.iter().enumerate() {
                if let Some(to) = to {
                    let shift = part_bits * index as u32;
                    frame.write(*to, lanes, &map1(&value, |value| value >> shift & mask));
                }
            }
        }
        Op::Join { to, part_bits, ref from } => {
            let mut value = [0u64; LANES];
            let mask = (1u64 << part_bits) - 1;
            for (index, from) in from.iter().enumerate() {
                let (part, shift) = (frame.read(*from), part_bits * index as u32);
                value = map2(&value, &part, |value, part| value | (part & mask) << shift);
            }
            frame.write(to, lanes, &value);
        }
        _ => return false,
    }
    true
}

pub(super) fn logic(op: Logic, a: u32, b: u32) -> u32 {
    match op {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

fn narrow(op: Integer, a: &Lanes<u32>, b: &Lanes<u32>, c: &Lanes<u32>) -> Lanes<u32> {
    match op {
        Integer::Add => map2(a, b, u32::wrapping_add),
        Integer::Sub => map2(a, b, u32::wrapping_sub),
        Integer::AddSat => map2(a, b, integer::add_sat),
        Integer::SubSat => map2(a, b, integer::sub_sat),
        Integer::Mul => map2(a, b, u32::wrapping_mul),
        Integer::MulHighUnsigned => map2(a, b, u32s::mul_hi),
        Integer::MulHighSigned => map2(a, b, s32::mul_hi),
        Integer::Mad => map3(a, b, c, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Integer::MadHighUnsigned => map3(a, b, c, |a, b, c| u32s::mul_hi(a, b).wrapping_add(c)),
        Integer::MadHighSigned => map3(a, b, c, |a, b, c| s32::mul_hi(a, b).wrapping_add(c)),
        Integer::MadHighSat => map3(a, b, c, s32::mad_hi_sat),
        Integer::DivUnsigned => map2(a, b, u32s::div),
        Integer::DivSigned => map2(a, b, s32::div),
        Integer::RemUnsigned => map2(a, b, u32s::rem),
        Integer::RemSigned => map2(a, b, s32::rem),
        Integer::MinUnsigned => map2(a, b, u32s::min),
        Integer::MinSigned => map2(a, b, s32::min),
        Integer::MaxUnsigned => map2(a, b, u32s::max),
        Integer::MaxSigned => map2(a, b, s32::max),
        Integer::MinRelu => map2(a, b, s32::min_relu),
        Integer::MaxRelu => map2(a, b, s32::max_relu),
        Integer::Neg => map1(a, s32::neg),
        Integer::Abs => map1(a, s32::abs),
        Integer::SadUnsigned => map3(a, b, c, u32s::sad),
        Integer::SadSigned => map3(a, b, c, s32::sad),
        Integer::And => map2(a, b, |a, b| a & b),
        Integer::Or => map2(a, b, |a, b| a | b),
        Integer::Xor => map2(a, b, |a, b| a ^ b),
        Integer::Not => map1(a, |a| !a),
        Integer::CNot => map1(a, |a| u32::from(a == 0)),
        Integer::ShiftLeft => map2(a, b, u32s::shl),
        Integer::ShiftRightUnsigned => map2(a, b, u32s::shr),
        Integer::ShiftRightSigned => map2(a, b, s32::shr),
    }
}

/// 16-bit operations on operands extended to 32 bits; the low half of the result is significant. Only operations that
/// differ for 16 bits are here.
fn half(op: Integer, a: &Lanes<u32>, b: &Lanes<u32>, c: &Lanes<u32>) -> Lanes<u32> {
    let two = |f: fn(u16, u16) -> u16| map2(a, b, |a, b| u32::from(f(a as u16, b as u16)));
    match op {
        Integer::MulHighUnsigned => two(u16s::mul_hi),
        Integer::MulHighSigned => two(s16::mul_hi),
        Integer::MadHighUnsigned => {
            map3(a, b, c, |a, b, c| u32::from(u16s::mul_hi(a as u16, b as u16)).wrapping_add(c))
        }
        Integer::MadHighSigned => map3(a, b, c, |a, b, c| u32::from(s16::mul_hi(a as u16, b as u16)).wrapping_add(c)),
        Integer::DivUnsigned => two(u16s::div),
        Integer::DivSigned => two(s16::div),
        Integer::RemUnsigned => two(u16s::rem),
        Integer::RemSigned => two(s16::rem),
        Integer::SadUnsigned => map3(a, b, c, |a, b, c| u32::from(u16s::sad(a as u16, b as u16, c as u16))),
        Integer::SadSigned => map3(a, b, c, |a, b, c| u32::from(s16::sad(a as u16, b as u16, c as u16))),
        _ => narrow(op, a, b, c),
    }
}

fn wide(op: Integer, a: &Lanes<u64>, b: &Lanes<u64>, c: &Lanes<u64>) -> Lanes<u64> {
    match op {
        Integer::Add => map2(a, b, u64::wrapping_add),
        Integer::Sub => map2(a, b, u64::wrapping_sub),
        Integer::Mul => map2(a, b, u64::wrapping_mul),
        Integer::MulHighUnsigned => map2(a, b, u64s::mul_hi),
        Integer::MulHighSigned => map2(a, b, s64::mul_hi),
        Integer::Mad => map3(a, b, c, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Integer::MadHighUnsigned => map3(a, b, c, |a, b, c| u64s::mul_hi(a, b).wrapping_add(c)),
        Integer::MadHighSigned => map3(a, b, c, |a, b, c| s64::mul_hi(a, b).wrapping_add(c)),
        Integer::DivUnsigned => map2(a, b, u64s::div),
        Integer::DivSigned => map2(a, b, s64::div),
        Integer::RemUnsigned => map2(a, b, u64s::rem),
        Integer::RemSigned => map2(a, b, s64::rem),
        Integer::MinUnsigned => map2(a, b, u64s::min),
        Integer::MinSigned => map2(a, b, s64::min),
        Integer::MaxUnsigned => map2(a, b, u64s::max),
        Integer::MaxSigned => map2(a, b, s64::max),
        Integer::Neg => map1(a, s64::neg),
        Integer::Abs => map1(a, s64::abs),
        Integer::SadUnsigned => map3(a, b, c, u64s::sad),
        Integer::SadSigned => map3(a, b, c, s64::sad),
        Integer::And => map2(a, b, |a, b| a & b),
        Integer::Or => map2(a, b, |a, b| a | b),
        Integer::Xor => map2(a, b, |a, b| a ^ b),
        Integer::Not => map1(a, |a| !a),
        Integer::CNot => map1(a, |a| u64::from(a == 0)),
        Integer::AddSat
        | Integer::SubSat
        | Integer::MadHighSat
        | Integer::MinRelu
        | Integer::MaxRelu
        | Integer::ShiftLeft
        | Integer::ShiftRightUnsigned
        | Integer::ShiftRightSigned => unreachable!("the lowering never emits a 64-bit {op:?}"),
    }
}

fn widening(frame: &mut Frame, lanes: u32, signed: bool, half: bool, to: u32, [a, b]: [u32; 2], c: Option<u32>) {
    let (a, b) = (&frame.narrow[a as usize], &frame.narrow[b as usize]);
    if half {
        let product = match signed {
            true => map2(a, b, |a, b| s16::mul_wide(a as u16, b as u16)),
            false => map2(a, b, |a, b| u16s::mul_wide(a as u16, b as u16)),
        };
        let sum = c.map_or(product, |c| map2(&product, &frame.narrow[c as usize], u32::wrapping_add));
        return frame.write_narrow(to, lanes, sum);
    }
    let product = match signed {
        true => map2(a, b, s32::mul_wide),
        false => map2(a, b, u32s::mul_wide),
    };
    let sum = c.map_or(product, |c| map2(&product, &frame.wide[c as usize], u64::wrapping_add));
    frame.write_wide(to, lanes, sum);
}

fn bits(op: Bits, a: &Lanes<u32>, b: &Lanes<u32>, c: &Lanes<u32>) -> Lanes<u32> {
    match op {
        Bits::Lop3(table) => map3(a, b, c, |a, b, c| integer::lop3(a, b, c, table)),
        Bits::ExtractUnsigned => map3(a, b, c, u32s::bfe),
        Bits::ExtractSigned => map3(a, b, c, s32::bfe),
        Bits::Find { signed: false, shift_amount: false } => map1(a, u32s::bfind),
        Bits::Find { signed: false, shift_amount: true } => map1(a, u32s::bfind_shiftamt),
        Bits::Find { signed: true, shift_amount: false } => map1(a, s32::bfind),
        Bits::Find { signed: true, shift_amount: true } => map1(a, s32::bfind_shiftamt),
        Bits::Reverse => map1(a, u32::reverse_bits),
        Bits::LeadingZeros => map1(a, u32::leading_zeros),
        Bits::Count => map1(a, u32::count_ones),
        Bits::Permute(None) => map3(a, b, c, integer::prmt),
        Bits::Permute(Some(mode)) => map3(a, b, c, |a, b, c| integer::prmt_mode(a, b, c, mode)),
        Bits::FunnelLeft(mode) => map3(a, b, c, |a, b, c| integer::shf_left(a, b, c, mode)),
        Bits::FunnelRight(mode) => map3(a, b, c, |a, b, c| integer::shf_right(a, b, c, mode)),
        Bits::Mul24 { signed: false, high: false } => map2(a, b, u32s::mul24_lo),
        Bits::Mul24 { signed: false, high: true } => map2(a, b, u32s::mul24_hi),
        Bits::Mul24 { signed: true, high: false } => map2(a, b, s32::mul24_lo),
        Bits::Mul24 { signed: true, high: true } => map2(a, b, s32::mul24_hi),
        Bits::Mad24 { signed: false, high: false } => map3(a, b, c, u32s::mad24_lo),
        Bits::Mad24 { signed: false, high: true } => map3(a, b, c, u32s::mad24_hi),
        Bits::Mad24 { signed: true, high: false } => map3(a, b, c, s32::mad24_lo),
        Bits::Mad24 { signed: true, high: true } => map3(a, b, c, s32::mad24_hi),
        Bits::Mad24HighSat => map3(a, b, c, s32::mad24_hi_sat),
        Bits::Dot4 { a_signed, b_signed } => map3(a, b, c, |a, b, c| integer::dp4a(a, a_signed, b, b_signed, c)),
        Bits::Dot2 { a_signed, b_signed, high } => {
            map3(a, b, c, |a, b, c| integer::dp2a(a, a_signed, b, b_signed, high, c))
        }
        Bits::SignZeroExtend { signed: true, mode } => map2(a, b, |a, b| integer::szext_s32(a, b, mode)),
        Bits::SignZeroExtend { signed: false, mode } => map2(a, b, |a, b| integer::szext_u32(a, b, mode)),
        Bits::Mask(mode) => map2(a, b, |a, b| integer::bmsk(a, b, mode)),
        Bits::Pack { bits, signed } => map3(a, b, c, |a, b, c| pack(bits, signed, a, b, c)),
        Bits::Video(how) => map3(a, b, c, |a, b, c| video::video(how, a, b, c)),
        Bits::VideoParts(how) => map3(a, b, c, |a, b, c| video::video_parts(how, a, b, c)),
        Bits::NthSet => map3(a, b, c, |a, b, c| integer::fns(a, b, c.cast_signed())),
    }
}

fn pack(bits: u32, signed: bool, a: u32, b: u32, c: u32) -> u32 {
    let (least, most) = if signed { (-1i32 << (bits - 1), (1i32 << (bits - 1)) - 1) } else { (0, (1i32 << bits) - 1) };
    let part = |value: u32| value.cast_signed().clamp(least, most).cast_unsigned() & ((1 << bits) - 1);
    part(b) | part(a) << bits | u32s::shl(c, 2 * bits)
}

fn bits_wide(frame: &mut Frame, lanes: u32, op: BitsWide, to: u32, [a, b, c, d]: [u32; 4]) {
    let narrow = |slot: u32| &frame.narrow[slot as usize];
    let wide = |slot: u32| &frame.wide[slot as usize];
    match op {
        BitsWide::ExtractUnsigned => frame.write_wide(to, lanes, map3(wide(a), narrow(b), narrow(c), u64s::bfe)),
        BitsWide::ExtractSigned => frame.write_wide(to, lanes, map3(wide(a), narrow(b), narrow(c), s64::bfe)),
        BitsWide::Insert => {
            let (a, b, c, d) = (wide(a), wide(b), narrow(c), narrow(d));
            let values = std::array::from_fn(|lane| integer::bfi64(a[lane], b[lane], c[lane], d[lane]));
            frame.write_wide(to, lanes, values);
        }
        BitsWide::InsertNarrow => {
            let (a, b, c, d) = (narrow(a), narrow(b), narrow(c), narrow(d));
            let values = std::array::from_fn(|lane| integer::bfi32(a[lane], b[lane], c[lane], d[lane]));
            frame.write_narrow(to, lanes, values);
        }
        BitsWide::Find { signed, shift_amount } => {
            let values = match (signed, shift_amount) {
                (false, false) => map1(wide(a), u64s::bfind),
                (false, true) => map1(wide(a), u64s::bfind_shiftamt),
                (true, false) => map1(wide(a), s64::bfind),
                (true, true) => map1(wide(a), s64::bfind_shiftamt),
            };
            frame.write_narrow(to, lanes, values);
        }
        BitsWide::Reverse => frame.write_wide(to, lanes, map1(wide(a), u64::reverse_bits)),
        BitsWide::LeadingZeros => frame.write_narrow(to, lanes, map1(wide(a), u64::leading_zeros)),
        BitsWide::Count => frame.write_narrow(to, lanes, map1(wide(a), u64::count_ones)),
    }
}

fn carry(frame: &mut Frame, lanes: u32, op: CarryOp, [reads, writes]: [bool; 2], to: Reg, from: [Reg; 3]) {
    let is_wide = matches!(to, Reg::Wide(_));
    let [a, b, c] = from.map(|place| frame.read(place));
    let before = if reads { frame.carry } else { 0 };
    let mut after = 0u32;
    let values = std::array::from_fn(|lane| {
        let (a, b, c, carry) = (a[lane], b[lane], c[lane], before >> lane & 1 != 0);
        let (a, b) = match op {
            CarryOp::Add | CarryOp::Sub => (a, b),
            CarryOp::MadLow => (a.wrapping_mul(b), c),
            CarryOp::MadHigh { signed } => match (is_wide, signed) {
                (true, true) => (s64::mul_hi(a, b), c),
                (true, false) => (u64s::mul_hi(a, b), c),
                (false, true) => (u64::from(s32::mul_hi(a as u32, b as u32)), c),
                (false, false) => (u64::from(u32s::mul_hi(a as u32, b as u32)), c),
            },
        };
        let (value, carry) = match (is_wide, op) {
            (true, CarryOp::Sub) => integer::sub_borrow64(a, b, carry),
            (true, _) => integer::add_carry64(a, b, carry),
            (false, CarryOp::Sub) => {
                let (value, carry) = integer::sub_borrow32(a as u32, b as u32, carry);
                (u64::from(value), carry)
            }
            (false, _) => {
                let (value, carry) = integer::add_carry32(a as u32, b as u32, carry);
                (u64::from(value), carry)
            }
        };
        after |= u32::from(carry) << lane;
        value
    });
    if writes {
        frame.carry = frame.carry & !lanes | after & lanes;
    }
    frame.write(to, lanes, &values);
}
