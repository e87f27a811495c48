//! f32, as the bits of a `u32`.
//!
//! A NaN result is always 0x7fffffff: payloads are not propagated. Rounding to nearest uses the CPU's instructions,
//! without branches that depend on the values, so that a loop over lanes can be vectorized.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::softfloat::{self, Layout};
use super::{MinMax, Mode, Property, Rounding};

/// The result of an operation that has no value.
pub(crate) const NAN: u32 = 0x7fff_ffff;

const LAYOUT: Layout = Layout::F32;
pub(super) const SIGN: u32 = 0x8000_0000;
const SMALLEST_NORMAL: u32 = 0x0080_0000;
const ONE: u32 = 0x3f80_0000;

// Scaling an operand by the first keeps a small result normal, so that it is rounded to 24 bits; the smallest normal
// number then corresponds to the second. If an operand overflows, its result is not small.
const FAR_UP: f32 = f32::from_bits((127 + 64) << 23);
const SMALLEST_FAR_UP: f32 = f32::from_bits((127 - 126 + 64) << 23);

#[inline]
pub(crate) fn add(a: u32, b: u32, mode: Mode) -> u32 {
    let (a, b) = (operand(a, mode.ftz), operand(b, mode.ftz));
    // A sum of normal numbers that is below them is exact, and `finish` flushes it.
    let sum = if mode.rounding == Rounding::Nearest {
        canonical(f32::from_bits(a) + f32::from_bits(b))
    } else {
        softfloat::add(LAYOUT, a.into(), b.into(), mode.rounding) as u32
    };
    finish(sum, mode)
}

#[inline]
pub(crate) fn sub(a: u32, b: u32, mode: Mode) -> u32 {
    add(a, b ^ SIGN, mode)
}

#[inline]
pub(crate) fn mul(a: u32, b: u32, mode: Mode) -> u32 {
    let (a, b) = (operand(a, mode.ftz), operand(b, mode.ftz));
    let product = if mode.rounding == Rounding::Nearest {
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        flush_if(mode.ftz && (x * FAR_UP * y).abs() < SMALLEST_FAR_UP, canonical(x * y))
    } else {
        softfloat::mul(LAYOUT.with_ftz(mode.ftz), a.into(), b.into(), mode.rounding) as u32
    };
    finish(product, mode)
}

#[inline]
pub(crate) fn fma(a: u32, b: u32, c: u32, mode: Mode) -> u32 {
    let (a, b, c) = (operand(a, mode.ftz), operand(b, mode.ftz), operand(c, mode.ftz));
    let sum = if mode.rounding == Rounding::Nearest {
        let (sum, tiny) = fused(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
        flush_if(mode.ftz && tiny, canonical(sum))
    } else {
        softfloat::fma(LAYOUT.with_ftz(mode.ftz), a.into(), b.into(), c.into(), mode.rounding) as u32
    };
    finish(sum, mode)
}

/// The same, rounded to nearest, by an instruction of the CPU if the caller is compiled for one that has it.
#[inline(always)]
pub(crate) fn fma_by_cpu(a: u32, b: u32, c: u32, ftz: bool) -> u32 {
    let (a, b, c) = (operand(a, ftz), operand(b, ftz), operand(c, ftz));
    let (sum, tiny) = fused_by_cpu(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
    operand(flush_if(ftz && tiny, canonical(sum)), ftz)
}

#[inline]
pub(crate) fn div(a: u32, b: u32, mode: Mode) -> u32 {
    let (a, b) = (operand(a, mode.ftz), operand(b, mode.ftz));
    let quotient = if mode.rounding == Rounding::Nearest {
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        // No quotient of two f32 below 1 is rounded to 1: a comparison decides what is flushed.
        flush_if(mode.ftz && x.abs() * FAR_UP < y.abs() * SMALLEST_FAR_UP, canonical(x / y))
    } else {
        softfloat::div(LAYOUT.with_ftz(mode.ftz), a.into(), b.into(), mode.rounding) as u32
    };
    finish(quotient, mode)
}

#[inline]
pub(crate) fn rcp(a: u32, mode: Mode) -> u32 {
    div(ONE, a, mode)
}

#[inline]
pub(crate) fn sqrt(a: u32, mode: Mode) -> u32 {
    let a = operand(a, mode.ftz);
    let root = if mode.rounding == Rounding::Nearest {
        canonical(f32::from_bits(a).sqrt())
    } else {
        softfloat::sqrt(LAYOUT, a.into(), mode.rounding) as u32
    };
    finish(root, mode)
}

#[inline]
pub(crate) fn min(a: u32, b: u32, how: MinMax) -> u32 {
    LAYOUT.min_max(a.into(), b.into(), how, Ordering::Less) as u32
}

#[inline]
pub(crate) fn max(a: u32, b: u32, how: MinMax) -> u32 {
    LAYOUT.min_max(a.into(), b.into(), how, Ordering::Greater) as u32
}

/// `min` without modifiers, in 32 bits.
#[inline(always)]
pub(crate) fn min_number(a: u32, b: u32) -> u32 {
    choose(a, b, order_key(a) < order_key(b))
}

/// `max` without modifiers, in 32 bits.
#[inline(always)]
pub(crate) fn max_number(a: u32, b: u32) -> u32 {
    choose(a, b, order_key(a) > order_key(b))
}

/// Returns `a` if it is wanted or the only number, else `b`.
#[inline(always)]
fn choose(a: u32, b: u32, is_wanted: bool) -> u32 {
    let (a_nan, b_nan) = (f32::from_bits(a).is_nan(), f32::from_bits(b).is_nan());
    let result = if (is_wanted | b_nan) & !a_nan { a } else { b };
    if a_nan & b_nan { NAN } else { result }
}

/// Returns a number in the order of the floats; -0 is less than +0.
#[inline(always)]
fn order_key(bits: u32) -> i32 {
    bits.cast_signed() ^ ((bits.cast_signed() >> 31).cast_unsigned() >> 1).cast_signed()
}

/// The PTX ISA leaves the result for a NaN open; the hardware returns its canonical one.
#[inline]
pub(crate) fn abs(a: u32, ftz: bool) -> u32 {
    canonical(f32::from_bits(operand(a, ftz) & !SIGN))
}

/// The PTX ISA leaves the result for a NaN open; the hardware returns its canonical one.
#[inline]
pub(crate) fn neg(a: u32, ftz: bool) -> u32 {
    canonical(f32::from_bits(operand(a, ftz) ^ SIGN))
}

/// Returns the magnitude of `b` with the sign of `a`: PTX names the sign first.
#[inline]
pub(crate) fn copysign(a: u32, b: u32) -> u32 {
    a & SIGN | b & !SIGN
}

#[inline]
pub(crate) fn testp(property: Property, a: u32) -> bool {
    LAYOUT.has(property, a.into())
}

#[inline]
pub(crate) fn compare(a: u32, b: u32, ftz: bool) -> Option<Ordering> {
    f32::from_bits(operand(a, ftz)).partial_cmp(&f32::from_bits(operand(b, ftz)))
}

/// Flushes a subnormal to a zero of its sign.
#[inline]
pub(crate) fn flush(a: u32) -> u32 {
    if a & !SIGN < SMALLEST_NORMAL { a & SIGN } else { a }
}

#[inline]
pub(super) fn operand(a: u32, ftz: bool) -> u32 {
    if ftz { flush(a) } else { a }
}

#[inline]
fn flush_if(tiny: bool, result: u32) -> u32 {
    if tiny { result & SIGN } else { result }
}

#[inline]
fn finish(result: u32, mode: Mode) -> u32 {
    let result = operand(result, mode.ftz);
    if mode.sat { saturate(result) } else { result }
}

/// Clamps to [+0, 1]; NaN becomes +0.
#[inline]
fn saturate(a: u32) -> u32 {
    LAYOUT.saturate(a.into()) as u32
}

#[inline]
pub(crate) fn canonical(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

/// Returns the sum, and whether `ftz` flushes it.
#[cfg(target_feature = "fma")]
#[inline]
fn fused(a: f32, b: f32, c: f32) -> (f32, bool) {
    fused_by_cpu(a, b, c)
}

#[inline(always)]
fn fused_by_cpu(a: f32, b: f32, c: f32) -> (f32, bool) {
    (a.mul_add(b, c), (a * FAR_UP).mul_add(b, c * FAR_UP).abs() < SMALLEST_FAR_UP)
}

/// Without an FMA instruction of the CPU, `mul_add` is a call for each lane. A double represents the product exactly
/// and 29 more bits of the sum than an f32, so that it can be rounded once more.
#[cfg(not(target_feature = "fma"))]
#[inline]
fn fused(a: f32, b: f32, c: f32) -> (f32, bool) {
    let sum = softfloat::sum_to_odd(f64::from(a) * f64::from(b), c.into());
    (sum as f32, sum.abs() < LAYOUT.flush_threshold())
}
