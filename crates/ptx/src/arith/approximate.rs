//! The approximations of f32. The PTX ISA bounds their error and leaves the bits open; these are the exact values,
//! computed in f64 and rounded to nearest, with the special values of the PTX ISA.

use super::single::{NAN, SIGN, canonical, flush, operand};

/// If |b| is above 2^126, the hardware flushes 1/b: the quotient is 0, and NaN if `a` is infinite.
pub(crate) fn div_approx(a: u32, b: u32, ftz: bool) -> u32 {
    const BIGGEST: u32 = 0x7e80_0000;
    const INFINITY: u32 = 0x7f80_0000;
    let (a, b) = (operand(a, ftz), operand(b, ftz));
    let magnitude = b & !SIGN;
    if magnitude > BIGGEST && magnitude < INFINITY {
        let reciprocal = f32::from_bits(b & SIGN);
        return canonical(f32::from_bits(a) * reciprocal);
    }
    div_full(a, b, ftz)
}

pub(crate) fn div_full(a: u32, b: u32, ftz: bool) -> u32 {
    let (a, b) = (operand(a, ftz), operand(b, ftz));
    operand(canonical(f32::from_bits(a) / f32::from_bits(b)), ftz)
}

pub(crate) fn rcp_approx(a: u32, ftz: bool) -> u32 {
    operand(canonical(1.0 / f32::from_bits(operand(a, ftz))), ftz)
}

/// -0 gives -infinity.
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

fn approximate(a: u32, ftz: bool, function: fn(f64) -> f64) -> u32 {
    let value = function(f64::from(f32::from_bits(operand(a, ftz))));
    if value.is_nan() { NAN } else { operand((value as f32).to_bits(), ftz) }
}
