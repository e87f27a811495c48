//! Software floating point: an operation is computed exactly on integers and rounded once, to any format, in any
//! direction.
//!
//! It is used for every format and rounding for which the CPU has no instruction, and is slower. Callers handle
//! flushing, clamping and the payloads of NaN inputs: a NaN result is the format's canonical one.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::{MinMax, Property, Rounding};

/// The bit layout of a binary floating-point format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    exponent_bits: u32,
    fraction_bits: u32,
    /// The exponent of the lowest bit of a subnormal.
    exponent_min: i32,
    /// The canonical NaN.
    pub(crate) nan: u64,
    /// Flushes a result below the normal numbers to a zero of its sign.
    flushes: bool,
}

impl Layout {
    pub(crate) const F16: Layout =
        Layout { exponent_bits: 5, fraction_bits: 10, exponent_min: -24, nan: 0x7fff, flushes: false };
    pub(crate) const BF16: Layout =
        Layout { exponent_bits: 8, fraction_bits: 7, exponent_min: -133, nan: 0x7fff, flushes: false };
    /// The upper 19 bits of an f32.
    pub(crate) const TF32: Layout =
        Layout { exponent_bits: 8, fraction_bits: 10, exponent_min: -136, nan: 0x3ffff, flushes: false };
    pub(crate) const F32: Layout =
        Layout { exponent_bits: 8, fraction_bits: 23, exponent_min: -149, nan: 0x7fff_ffff, flushes: false };
    /// The hardware's canonical f64 NaN is negative, unlike that of every other format.
    pub(crate) const F64: Layout = Layout {
        exponent_bits: 11,
        fraction_bits: 52,
        exponent_min: -1074,
        nan: 0xfff8_0000_0000_0000,
        flushes: false,
    };
    pub(crate) const E5M2: Layout =
        Layout { exponent_bits: 5, fraction_bits: 2, exponent_min: -16, nan: 0x7f, flushes: false };
    /// e4m3 uses its highest exponent for numbers. One more exponent bit, with the same bias, separates them from the
    /// infinity that the format lacks.
    pub(crate) const E4M3_WIDE: Layout =
        Layout { exponent_bits: 5, fraction_bits: 3, exponent_min: -9, nan: 0x7f, flushes: false };

    pub(crate) const fn sign(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    pub(crate) const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// Returns the quiet bit of a NaN.
    pub(crate) const fn quiet(self) -> u64 {
        1 << (self.fraction_bits - 1)
    }

    /// Returns the same format with `ftz`. The hardware flushes a result that is still below the normal numbers after
    /// rounding to their number of bits, which is less than what would become a subnormal.
    pub(crate) const fn with_ftz(self, ftz: bool) -> Layout {
        Layout { flushes: ftz, ..self }
    }

    /// Returns the bound below which a value with the bits of a normal number is flushed; from here on it is rounded to
    /// a normal one.
    pub(crate) const fn flush_threshold(self) -> f64 {
        let smallest_normal = power_of_two(self.exponent_min + self.fraction_bits as i32);
        smallest_normal - power_of_two(self.exponent_min - 2)
    }

    /// Returns the exponent of the lowest bit of a subnormal.
    pub(crate) const fn exponent_min(self) -> i32 {
        self.exponent_min
    }

    const fn smallest_normal(self) -> u64 {
        1 << self.fraction_bits
    }

    /// Returns the encoding of 1: its lowest bit has the exponent `-fraction_bits`.
    const fn one(self) -> u64 {
        ((-(self.fraction_bits as i32) - self.exponent_min + 1) as u64) << self.fraction_bits
    }

    pub(crate) const fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    pub(crate) const fn is_infinite(self, bits: u64) -> bool {
        bits & (self.sign() - 1) == self.infinity()
    }

    /// Flushes a subnormal to a zero of its sign.
    pub(crate) const fn flush(self, bits: u64) -> u64 {
        if bits & (self.sign() - 1) < self.smallest_normal() { bits & self.sign() } else { bits }
    }

    /// Clamps to [+0, 1]; NaN becomes +0.
    pub(crate) const fn saturate(self, bits: u64) -> u64 {
        if bits & self.sign() != 0 || self.is_nan(bits) {
            0
        } else if bits > self.one() {
            self.one()
        } else {
            bits
        }
    }

    /// Negative values become +0; a NaN becomes the canonical one.
    pub(crate) const fn relu(self, bits: u64) -> u64 {
        if self.is_nan(bits) {
            self.nan
        } else if bits & self.sign() != 0 {
            0
        } else {
            bits
        }
    }

    pub(crate) const fn has(self, property: Property, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        match property {
            Property::Finite => magnitude < self.infinity(),
            Property::Infinite => magnitude == self.infinity(),
            Property::Number => magnitude <= self.infinity(),
            Property::NotANumber => magnitude > self.infinity(),
            Property::Normal => magnitude == 0 || magnitude >= self.smallest_normal() && magnitude < self.infinity(),
            Property::Subnormal => magnitude > 0 && magnitude < self.smallest_normal(),
        }
    }

    /// Computes `min` if `wanted` is `Less`, `max` if it is `Greater`. -0 is less than +0.
    #[inline]
    pub(crate) fn min_max(self, a: u64, b: u64, how: MinMax, wanted: Ordering) -> u64 {
        let prepare = |bits: u64| {
            let bits = if how.ftz { self.flush(bits) } else { bits };
            if how.xorsign_abs { bits & !self.sign() } else { bits }
        };
        let xorsign = if how.xorsign_abs { (a ^ b) & self.sign() } else { 0 };
        let (a, b) = (prepare(a), prepare(b));
        // The bits of negative floats, read as a signed number, are in reverse order: inverting the bits below the sign
        // corrects this.
        let key = |bits: u64| {
            let signed = (bits << (63 - self.sign().trailing_zeros())) as i64;
            signed ^ ((signed >> 63) as u64 >> 1) as i64
        };
        let (a_nan, b_nan) = (self.is_nan(a), self.is_nan(b));
        let a_wanted = (key(a).cmp(&key(b)) == wanted || b_nan) && !a_nan;
        let result = if a_wanted { a } else { b } | xorsign;
        if a_nan && b_nan || how.nan && (a_nan || b_nan) { self.nan } else { result }
    }
}

const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Returns the sum rounded to odd: truncated toward zero, with its last bit set if anything was lost. Rounding it once
/// more, to a format with at least two bits less, gives the same as rounding the exact sum.
#[inline]
pub(crate) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let from_b = sum - a;
    let lost = (a - (sum - from_b)) + (b - from_b);
    // If the sum is not a number, `lost` is NaN, and the comparison is false.
    let inexact = u64::from(lost.abs() > 0.0);
    let too_far = (lost.to_bits() ^ sum.to_bits()) >> 63 & inexact;
    f64::from_bits(sum.to_bits().wrapping_sub(too_far) | inexact)
}

/// The value of a float.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    NaN,
    Infinite { negative: bool },
    Finite(Finite),
}

/// `significand * 2^exponent`, with a sign, which zero has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finite {
    pub(crate) negative: bool,
    pub(crate) exponent: i32,
    pub(crate) significand: u128,
}

/// The truncated part, compared with half of the last remaining bit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remainder {
    Zero,
    BelowHalf,
    Half,
    AboveHalf,
}

impl Remainder {
    /// Returns whether a truncated magnitude with an odd or even last bit is rounded up.
    fn rounds_up(self, rounding: Rounding, negative: bool, odd: bool) -> bool {
        match rounding {
            Rounding::Nearest => self == Remainder::AboveHalf || self == Remainder::Half && odd,
            Rounding::NearestAway => self == Remainder::AboveHalf || self == Remainder::Half,
            Rounding::Zero => false,
            Rounding::Down => self != Remainder::Zero && negative,
            Rounding::Up => self != Remainder::Zero && !negative,
        }
    }
}

/// Returns the bits of `significand` from `shift` on, and the remainder below them.
fn split(significand: u128, shift: u32) -> (u128, Remainder) {
    if significand == 0 || shift == 0 {
        return (significand, Remainder::Zero);
    }
    if shift > 128 {
        return (0, Remainder::BelowHalf);
    }
    let half = 1u128 << (shift - 1);
    let rest = significand & (half | (half - 1));
    let rest = match rest.cmp(&half) {
        Ordering::Equal => Remainder::Half,
        Ordering::Greater => Remainder::AboveHalf,
        Ordering::Less if rest == 0 => Remainder::Zero,
        Ordering::Less => Remainder::BelowHalf,
    };
    (significand.checked_shr(shift).unwrap_or(0), rest)
}

impl Finite {
    /// Returns the same value with its highest bit at position 125: a sum of two still fits, and below the 106 bits of
    /// a product of doubles there are enough bits left to decide on which side of a tie a smaller summand puts it.
    fn normalized(self) -> Finite {
        let up = self.significand.leading_zeros() as i32 - 2;
        let significand = if up >= 0 { self.significand << up } else { jam(self.significand, -up as u32) };
        Finite { exponent: self.exponent - up, significand, ..self }
    }

    /// Rounds to an integer, with the sign of `self`.
    pub(crate) fn round_to_integral(self, rounding: Rounding) -> Finite {
        if self.exponent >= 0 {
            return self;
        }
        let (kept, rest) = split(self.significand, self.exponent.unsigned_abs());
        let carry = rest.rounds_up(rounding, self.negative, kept & 1 == 1);
        Finite { exponent: 0, significand: kept + u128::from(carry), ..self }
    }

    /// Returns the value of an integer, clamped to `least..=most`.
    pub(crate) fn saturating_to_int(self, least: i128, most: i128) -> i128 {
        debug_assert!(self.exponent >= 0, "the value is not an integer");
        let fits = self.significand == 0 || (self.significand.leading_zeros() as i32) > self.exponent;
        let magnitude = if fits { (self.significand << self.exponent) as i128 } else { i128::MAX };
        (if self.negative { -magnitude } else { magnitude }).clamp(least, most)
    }

    /// Returns the sum, exact up to a bit below all that any format keeps. An exact zero is negative only if both
    /// summands are, or if rounding is downward.
    fn plus(self, other: Finite, rounding: Rounding) -> Finite {
        let zero = Finite {
            negative: if self.negative == other.negative { self.negative } else { rounding == Rounding::Down },
            exponent: 0,
            significand: 0,
        };
        match (self.significand, other.significand) {
            (0, 0) => return zero,
            (0, _) => return other,
            (_, 0) => return self,
            _ => {}
        }
        let (a, b) = (self.normalized(), other.normalized());
        let (great, small) = if (a.exponent, a.significand) >= (b.exponent, b.significand) { (a, b) } else { (b, a) };
        let shifted = jam(small.significand, great.exponent.abs_diff(small.exponent));
        if great.negative == small.negative {
            return Finite { significand: great.significand + shifted, ..great };
        }
        let significand = great.significand - shifted;
        if significand == 0 { zero } else { Finite { significand, ..great } }
    }

    fn times(self, other: Finite) -> Finite {
        Finite {
            negative: self.negative != other.negative,
            exponent: self.exponent + other.exponent,
            significand: self.significand * other.significand,
        }
    }
}

/// Shifts right; the lowest bit is set if a set bit was lost.
fn jam(significand: u128, shift: u32) -> u128 {
    let lost = significand.checked_shr(shift).unwrap_or(0).checked_shl(shift).unwrap_or(0) != significand;
    significand.checked_shr(shift).unwrap_or(0) | u128::from(lost)
}

pub(crate) fn unpack(layout: Layout, bits: u64) -> Number {
    let negative = bits & layout.sign() != 0;
    let magnitude = bits & (layout.sign() - 1);
    if magnitude > layout.infinity() {
        return Number::NaN;
    }
    if magnitude == layout.infinity() {
        return Number::Infinite { negative };
    }
    let biased = (magnitude >> layout.fraction_bits) as i32;
    let fraction = u128::from(magnitude & (layout.smallest_normal() - 1));
    Number::Finite(if biased == 0 {
        Finite { negative, exponent: layout.exponent_min, significand: fraction }
    } else {
        let significand = fraction | u128::from(layout.smallest_normal());
        Finite { negative, exponent: layout.exponent_min + biased - 1, significand }
    })
}

/// Rounds to a float.
pub(crate) fn round(layout: Layout, rounding: Rounding, value: Finite) -> u64 {
    let sign = if value.negative { layout.sign() } else { 0 };
    if value.significand == 0 {
        return sign;
    }
    let top = value.exponent + 127 - value.significand.leading_zeros() as i32;
    let unbounded = top - layout.fraction_bits as i32;
    let last = if layout.flushes { unbounded } else { unbounded.max(layout.exponent_min) };
    if last - layout.exponent_min >= 1 << layout.exponent_bits {
        return sign | overflow(layout, rounding, value.negative);
    }
    let (kept, rest) = if last <= value.exponent {
        (value.significand << (value.exponent - last), Remainder::Zero)
    } else {
        split(value.significand, (last - value.exponent) as u32)
    };
    let carry = rest.rounds_up(rounding, value.negative, kept & 1 == 1);
    if last < layout.exponent_min {
        let normal =
            last + 1 == layout.exponent_min && kept + u128::from(carry) == 2 * u128::from(layout.smallest_normal());
        return sign | if normal { layout.smallest_normal() } else { 0 };
    }
    // The leading bit of a normal number adds one to the exponent field, and so does a carry out of the fraction.
    let magnitude = (((last - layout.exponent_min) as u64) << layout.fraction_bits) + kept as u64 + u64::from(carry);
    if magnitude >= layout.infinity() {
        return sign | overflow(layout, rounding, value.negative);
    }
    sign | magnitude
}

fn overflow(layout: Layout, rounding: Rounding, negative: bool) -> u64 {
    let away = match rounding {
        Rounding::Nearest | Rounding::NearestAway => true,
        Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    };
    layout.infinity() - u64::from(!away)
}

fn infinite(layout: Layout, negative: bool) -> u64 {
    layout.infinity() | if negative { layout.sign() } else { 0 }
}

pub(crate) fn add(layout: Layout, a: u64, b: u64, rounding: Rounding) -> u64 {
    match (unpack(layout, a), unpack(layout, b)) {
        (Number::NaN, _) | (_, Number::NaN) => layout.nan,
        (Number::Infinite { negative }, Number::Infinite { negative: other }) if negative != other => layout.nan,
        (Number::Infinite { negative }, _) | (_, Number::Infinite { negative }) => infinite(layout, negative),
        (Number::Finite(a), Number::Finite(b)) => round(layout, rounding, a.plus(b, rounding)),
    }
}

pub(crate) fn mul(layout: Layout, a: u64, b: u64, rounding: Rounding) -> u64 {
    match product(layout, a, b) {
        Number::NaN => layout.nan,
        Number::Infinite { negative } => infinite(layout, negative),
        Number::Finite(value) => round(layout, rounding, value),
    }
}

pub(crate) fn fma(layout: Layout, a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    match (product(layout, a, b), unpack(layout, c)) {
        (Number::NaN, _) | (_, Number::NaN) => layout.nan,
        (Number::Infinite { negative }, Number::Infinite { negative: other }) if negative != other => layout.nan,
        (Number::Infinite { negative }, _) | (_, Number::Infinite { negative }) => infinite(layout, negative),
        (Number::Finite(product), Number::Finite(c)) => round(layout, rounding, product.plus(c, rounding)),
    }
}

fn product(layout: Layout, a: u64, b: u64) -> Number {
    let negative = (a ^ b) & layout.sign() != 0;
    match (unpack(layout, a), unpack(layout, b)) {
        (Number::NaN, _) | (_, Number::NaN) => Number::NaN,
        (Number::Infinite { .. }, Number::Finite(Finite { significand: 0, .. }))
        | (Number::Finite(Finite { significand: 0, .. }), Number::Infinite { .. }) => Number::NaN,
        (Number::Infinite { .. }, _) | (_, Number::Infinite { .. }) => Number::Infinite { negative },
        (Number::Finite(a), Number::Finite(b)) => Number::Finite(a.times(b)),
    }
}

pub(crate) fn div(layout: Layout, a: u64, b: u64, rounding: Rounding) -> u64 {
    let negative = (a ^ b) & layout.sign() != 0;
    match (unpack(layout, a), unpack(layout, b)) {
        (Number::NaN, _) | (_, Number::NaN) | (Number::Infinite { .. }, Number::Infinite { .. }) => layout.nan,
        (Number::Infinite { .. }, _) => infinite(layout, negative),
        (_, Number::Infinite { .. }) => infinite(layout, negative) & layout.sign(),
        (Number::Finite(a), Number::Finite(b)) if b.significand == 0 => {
            if a.significand == 0 {
                layout.nan
            } else {
                infinite(layout, negative)
            }
        }
        (Number::Finite(a), Number::Finite(b)) => {
            // 126 bits divided by at most 53: the quotient has at least 73 bits, of which 55 would suffice, and the
            // remainder below them.
            let a = if a.significand == 0 { a } else { a.normalized() };
            let inexact = a.significand % b.significand != 0;
            let significand = (a.significand / b.significand) << 1 | u128::from(inexact);
            round(layout, rounding, Finite { negative, exponent: a.exponent - b.exponent - 1, significand })
        }
    }
}

pub(crate) fn sqrt(layout: Layout, a: u64, rounding: Rounding) -> u64 {
    match unpack(layout, a) {
        Number::Finite(Finite { significand: 0, .. }) => a,
        Number::NaN | Number::Infinite { negative: true } | Number::Finite(Finite { negative: true, .. }) => layout.nan,
        Number::Infinite { negative: false } => layout.infinity(),
        Number::Finite(a) => {
            let mut a = a.normalized();
            if a.exponent % 2 != 0 {
                a = Finite { exponent: a.exponent - 1, significand: a.significand << 1, ..a };
            }
            let root = a.significand.isqrt();
            let inexact = root * root != a.significand;
            let significand = root << 1 | u128::from(inexact);
            round(layout, rounding, Finite { negative: false, exponent: a.exponent / 2 - 1, significand })
        }
    }
}
