//! f64, as the bits of a `u64`.
//!
//! Unlike for f32, the hardware propagates NaN payloads: the result has the payload of a NaN operand, made quiet. In a
//! quotient the first operand takes precedence; otherwise the last factor or summand before the addend of a fused sum,
//! and only then the first. PTX has neither `.ftz` nor `.sat` for f64, except for two approximations.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::softfloat::{self, Layout};
use super::{MinMax, Property, Rounding};

/// The result of an operation on numbers that has no value.
pub(crate) const NAN: u64 = LAYOUT.nan;

const LAYOUT: Layout = Layout::F64;
const SIGN: u64 = LAYOUT.sign();
const ONE: u64 = 0x3ff0_0000_0000_0000;

#[inline]
pub(crate) fn add(a: u64, b: u64, rounding: Rounding) -> u64 {
    let sum = if rounding == Rounding::Nearest {
        (f64::from_bits(a) + f64::from_bits(b)).to_bits()
    } else {
        softfloat::add(LAYOUT, a, b, rounding)
    };
    canonical(sum, [b, a, a])
}

/// The sign of a subtracted NaN is preserved.
#[inline]
pub(crate) fn sub(a: u64, b: u64, rounding: Rounding) -> u64 {
    let difference = if rounding == Rounding::Nearest {
        (f64::from_bits(a) - f64::from_bits(b)).to_bits()
    } else {
        softfloat::add(LAYOUT, a, b ^ SIGN, rounding)
    };
    canonical(difference, [b, a, a])
}

#[inline]
pub(crate) fn mul(a: u64, b: u64, rounding: Rounding) -> u64 {
    let product = if rounding == Rounding::Nearest {
        (f64::from_bits(a) * f64::from_bits(b)).to_bits()
    } else {
        softfloat::mul(LAYOUT, a, b, rounding)
    };
    canonical(product, [b, a, a])
}

#[inline]
pub(crate) fn fma(a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    let sum = if rounding == Rounding::Nearest {
        f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
    } else {
        softfloat::fma(LAYOUT, a, b, c, rounding)
    };
    canonical(sum, [b, c, a])
}

#[inline]
pub(crate) fn div(a: u64, b: u64, rounding: Rounding) -> u64 {
    let quotient = if rounding == Rounding::Nearest {
        (f64::from_bits(a) / f64::from_bits(b)).to_bits()
    } else {
        softfloat::div(LAYOUT, a, b, rounding)
    };
    canonical(quotient, [a, b, a])
}

#[inline]
pub(crate) fn rcp(a: u64, rounding: Rounding) -> u64 {
    div(ONE, a, rounding)
}

#[inline]
pub(crate) fn sqrt(a: u64, rounding: Rounding) -> u64 {
    let root = if rounding == Rounding::Nearest {
        f64::from_bits(a).sqrt().to_bits()
    } else {
        softfloat::sqrt(LAYOUT, a, rounding)
    };
    canonical(root, [a, a, a])
}

/// Only the upper 32 bits of the operand are used, and only those of the result can be set: the sign, the exponent and
/// 20 bits of the fraction.
pub(crate) fn rcp_approx_ftz(a: u64) -> u64 {
    approximate_high_word(a, |x| 1.0 / x)
}

/// Like `rcp_approx_ftz`; -0 gives -infinity.
pub(crate) fn rsqrt_approx_ftz(a: u64) -> u64 {
    approximate_high_word(a, |x| 1.0 / x.sqrt())
}

/// The PTX ISA allows some error; this function has that of two roundings.
pub(crate) fn rsqrt_approx(a: u64) -> u64 {
    canonical((1.0 / f64::from_bits(a).sqrt()).to_bits(), [a, a, a])
}

#[inline]
pub(crate) fn min(a: u64, b: u64) -> u64 {
    canonical(LAYOUT.min_max(a, b, MinMax::default(), Ordering::Less), [b, a, a])
}

#[inline]
pub(crate) fn max(a: u64, b: u64) -> u64 {
    canonical(LAYOUT.min_max(a, b, MinMax::default(), Ordering::Greater), [b, a, a])
}

/// A NaN keeps its sign too.
#[inline]
pub(crate) fn abs(a: u64) -> u64 {
    canonical(a & !SIGN, [a, a, a])
}

/// A NaN keeps its sign too.
#[inline]
pub(crate) fn neg(a: u64) -> u64 {
    canonical(a ^ SIGN, [a, a, a])
}

/// Returns the magnitude of `b` with the sign of `a`: PTX names the sign first.
#[inline]
pub(crate) fn copysign(a: u64, b: u64) -> u64 {
    a & SIGN | b & !SIGN
}

#[inline]
pub(crate) fn testp(property: Property, a: u64) -> bool {
    LAYOUT.has(property, a)
}

#[inline]
pub(crate) fn compare(a: u64, b: u64) -> Option<Ordering> {
    f64::from_bits(a).partial_cmp(&f64::from_bits(b))
}

/// Returns the NaN that the hardware gives for `inputs`, if the result is one.
#[inline]
fn canonical(result: u64, inputs: [u64; 3]) -> u64 {
    let mut nan = NAN;
    for input in inputs.into_iter().rev() {
        nan = if f64::from_bits(input).is_nan() { input | LAYOUT.quiet() } else { nan };
    }
    if f64::from_bits(result).is_nan() { nan } else { result }
}

fn approximate_high_word(a: u64, function: fn(f64) -> f64) -> u64 {
    const UPPER: u64 = 0xffff_ffff_0000_0000;
    const GROSS_NAN: u64 = 0x7fff_ffff_0000_0000;
    let value = function(f64::from_bits(LAYOUT.flush(a) & UPPER));
    if value.is_nan() { GROSS_NAN } else { LAYOUT.flush(value.to_bits() & UPPER) }
}
