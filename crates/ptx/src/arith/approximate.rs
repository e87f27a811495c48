//! The approximations of f32. The PTX ISA bounds their error and leaves the bits open; these are the exact values,
//! computed in f64 and rounded to nearest, with the special values of the PTX ISA.

#[cfg(test)]
mod tests;

use super::single::{NAN, SIGN, canonical, flush, operand};

/// If |b| is above 2^126, the hardware flushes 1/b: the quotient is 0, and NaN if `a` is infinite.
#[inline]
pub(crate) fn div_approx(a: u32, b: u32, ftz: bool) -> u32 {
    const BIGGEST: u32 = 0x7e80_0000;
    let (a, b) = (operand(a, ftz), operand(b, ftz));
    let magnitude = b & !SIGN;
    let is_flushed = (magnitude > BIGGEST) & (magnitude < INFINITY);
    let product = canonical(f32::from_bits(a) * f32::from_bits(b & SIGN));
    let quotient = div_full(a, b, ftz);
    if is_flushed { product } else { quotient }
}

#[inline]
pub(crate) fn div_full(a: u32, b: u32, ftz: bool) -> u32 {
    let (a, b) = (operand(a, ftz), operand(b, ftz));
    operand(canonical(f32::from_bits(a) / f32::from_bits(b)), ftz)
}

#[inline]
pub(crate) fn rcp_approx(a: u32, ftz: bool) -> u32 {
    operand(canonical(1.0 / f32::from_bits(operand(a, ftz))), ftz)
}

/// -0 gives -infinity.
#[inline]
pub(crate) fn rsqrt_approx(a: u32, ftz: bool) -> u32 {
    approximate(a, ftz, |x| 1.0 / x.sqrt())
}

pub(crate) fn sqrt_approx(a: u32, ftz: bool) -> u32 {
    approximate(a, ftz, f64::sqrt)
}

/// A subnormal is treated as a zero of its sign, with `ftz` and without, as the table of the PTX ISA states.
pub(crate) fn sin_approx(a: u32, ftz: bool) -> u32 {
    approximate(flush(a), ftz, f64::sin)
}

pub(crate) fn cos_approx(a: u32, ftz: bool) -> u32 {
    approximate(a, ftz, f64::cos)
}

pub(crate) fn ex2_approx(a: u32, ftz: bool) -> u32 {
    approximate(a, ftz, f64::exp2)
}

/// Either zero gives -infinity.
pub(crate) fn lg2_approx(a: u32, ftz: bool) -> u32 {
    approximate(a, ftz, f64::log2)
}

/// Has no `.ftz`: a subnormal is its own hyperbolic tangent.
pub(crate) fn tanh_approx(a: u32) -> u32 {
    approximate(a, false, f64::tanh)
}

/// A relative error that is above those of the vector functions below and of `f64::exp2` and `f64::log2`: 2^-46.
const ERROR: f64 = 1.0 / (1u64 << 46) as f64;

/// `ex2_approx` of each lane, for a caller that is compiled for a processor with vectors of f64.
///
/// The value is computed with an error below 2^-48. Where everything within `ERROR` of it is rounded to one f32, that
/// is also what `ex2_approx` is rounded to; it is called for the other lanes, one of a million.
#[inline(always)]
pub(crate) fn ex2_lanes<const N: usize>(a: &[u32; N], ftz: bool) -> [u32; N] {
    let mut results = [0; N];
    let mut is_unsure = 0;
    for lane in 0..N {
        let x = f64::from(f32::from_bits(operand(a[lane], ftz)));
        let value = exp2(x);
        let (low, high) = ((value * (1.0 - ERROR)) as f32, (value * (1.0 + ERROR)) as f32);
        is_unsure |= low.to_bits() ^ high.to_bits();
        results[lane] = if x.is_nan() { NAN } else { operand(low.to_bits(), ftz) };
    }
    if is_unsure != 0 {
        for lane in 0..N {
            results[lane] = ex2_approx(a[lane], ftz);
        }
    }
    results
}

/// `lg2_approx` of each lane, likewise.
#[inline(always)]
pub(crate) fn lg2_lanes<const N: usize>(a: &[u32; N], ftz: bool) -> [u32; N] {
    let mut results = [0; N];
    let mut is_unsure = 0;
    for lane in 0..N {
        let x = f64::from(f32::from_bits(operand(a[lane], ftz)));
        let value = log2(x);
        let (low, high) = ((value * (1.0 - ERROR)) as f32, (value * (1.0 + ERROR)) as f32);
        is_unsure |= low.to_bits() ^ high.to_bits();
        let finite = operand(low.to_bits(), ftz);
        let special = if x == 0.0 { INFINITY | SIGN } else { INFINITY };
        let result = if (x > 0.0) & (x < f64::INFINITY) { finite } else { special };
        results[lane] = if (x < 0.0) | x.is_nan() { NAN } else { result };
    }
    if is_unsure != 0 {
        for lane in 0..N {
            results[lane] = lg2_approx(a[lane], ftz);
        }
    }
    results
}

const INFINITY: u32 = 0x7f80_0000;

/// 2 to the power of `x`, of which 200 is enough for every f32: the power of the nearest integer, times the Taylor
/// series of the rest, which is at most a half. Its first omitted term is below 2^-57.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    /// Added to a number, this leaves its nearest integer in the lowest bits.
    const ROUND: f64 = (3u64 << 51) as f64;
    const TERMS: [f64; 14] = {
        let mut terms = [1.0; 14];
        let mut term = 1;
        while term < 14 {
            terms[term] = terms[term - 1] * std::f64::consts::LN_2 / term as f64;
            term += 1;
        }
        terms
    };
    let x = if x > -200.0 { x } else { -200.0 };
    let x = if x < 200.0 { x } else { 200.0 };
    let shifted = x + ROUND;
    let rest = x - (shifted - ROUND);
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    let mut sum = TERMS[13];
    for term in (0..13).rev() {
        sum = sum.mul_add(rest, TERMS[term]);
    }
    sum * scale
}

/// The logarithm of a positive finite f32: its exponent, plus the series in `(m - 1) / (m + 1)` of its significand `m`,
/// which is between the root of a half and that of two. The first omitted term is below 2^-59.
#[inline(always)]
fn log2(x: f64) -> f64 {
    const ROOT_OF_HALF: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const TWO_TO_52: f64 = (1u64 << 52) as f64;
    let bits = x.to_bits();
    let exponent = bits.wrapping_add(ONE - ROOT_OF_HALF) >> 52;
    let significand = f64::from_bits(bits.wrapping_sub(exponent.wrapping_sub(1023) << 52));
    let exponent = f64::from_bits(exponent | TWO_TO_52.to_bits()) - TWO_TO_52 - 1023.0;
    let ratio = (significand - 1.0) / (significand + 1.0);
    let square = ratio * ratio;
    let mut sum = 1.0_f64 / 21.0;
    for term in (0..10).rev() {
        sum = sum.mul_add(square, 1.0 / f64::from(2 * term + 1));
    }
    (ratio * (2.0 * std::f64::consts::LOG2_E)).mul_add(sum, exponent)
}

#[inline(always)]
fn approximate(a: u32, ftz: bool, function: impl Fn(f64) -> f64) -> u32 {
    let value = function(f64::from(f32::from_bits(operand(a, ftz))));
    if value.is_nan() { NAN } else { operand((value as f32).to_bits(), ftz) }
}
