//! f16 and bf16, as the bits of a `u16`: one implementation with the format as an argument. All operations round to
//! nearest.
//!
//! [`pairs`] applies an operation to two of them in a `u32` (f16x2, bf16x2).

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::MinMax;
use super::softfloat::{self, Layout};

/// A 16-bit format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    F16,
    Bf16,
}

/// Modifiers of a result. At most one of `sat` and `relu` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct HalfMode {
    /// Flushes subnormal inputs and results to zeros of the same sign.
    pub(crate) ftz: bool,
    /// Clamps to [0, 1]; NaN becomes +0.
    pub(crate) sat: bool,
    /// Negative values become +0, NaN the canonical one.
    pub(crate) relu: bool,
}

impl Half {
    pub(crate) const fn layout(self) -> Layout {
        match self {
            Half::F16 => Layout::F16,
            Half::Bf16 => Layout::BF16,
        }
    }

    // A double represents a product exactly, and a sum with more than twice the bits of a half: rounding twice is
    // harmless.

    #[inline]
    pub(crate) fn add(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        let [a, b] = [a, b].map(|bits| self.value(self.operand(bits, mode.ftz)));
        self.finish(self.narrow(a + b), mode)
    }

    #[inline]
    pub(crate) fn sub(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        self.add(a, b ^ SIGN, mode)
    }

    #[inline]
    pub(crate) fn mul(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        let [a, b] = [a, b].map(|bits| self.value(self.operand(bits, mode.ftz)));
        self.finish(self.flush_exact(a * b, mode.ftz), mode)
    }

    #[inline]
    pub(crate) fn fma(self, a: u16, b: u16, c: u16, mode: HalfMode) -> u16 {
        let [a, b, c] = [a, b, c].map(|bits| self.value(self.operand(bits, mode.ftz)));
        self.finish(self.flush_exact(softfloat::sum_to_odd(a * b, c), mode.ftz), mode)
    }

    pub(crate) fn min(self, a: u16, b: u16, how: MinMax) -> u16 {
        self.layout().min_max(a.into(), b.into(), how, Ordering::Less) as u16
    }

    pub(crate) fn max(self, a: u16, b: u16, how: MinMax) -> u16 {
        self.layout().min_max(a.into(), b.into(), how, Ordering::Greater) as u16
    }

    /// The PTX ISA leaves the result for a NaN open; the hardware returns its canonical one.
    pub(crate) fn abs(self, a: u16, ftz: bool) -> u16 {
        self.canonical(self.operand(a, ftz) & !SIGN)
    }

    /// The PTX ISA leaves the result for a NaN open; the hardware returns its canonical one.
    pub(crate) fn neg(self, a: u16, ftz: bool) -> u16 {
        self.canonical(self.operand(a, ftz) ^ SIGN)
    }

    pub(crate) fn compare(self, a: u16, b: u16, ftz: bool) -> Option<Ordering> {
        self.value(self.operand(a, ftz)).partial_cmp(&self.value(self.operand(b, ftz)))
    }

    /// Only f16 may be without `ftz`; a subnormal operand gives 1 either way.
    pub(crate) fn ex2_approx(self, a: u16, ftz: bool) -> u16 {
        self.approximate(a, ftz, f64::exp2)
    }

    /// A subnormal is its own hyperbolic tangent.
    pub(crate) fn tanh_approx(self, a: u16) -> u16 {
        self.approximate(a, false, f64::tanh)
    }

    /// Returns the exact value.
    #[inline]
    pub(crate) fn value(self, a: u16) -> f64 {
        if self == Half::Bf16 {
            return f32::from_bits(u32::from(a) << 16).into();
        }
        // The exponent and the fraction, moved to a double's bits, are off by the difference of the biases, which a
        // multiplication corrects, for subnormals too.
        const BIASES: f64 = f64::from_bits((1023 + 1023 - 15) << 52);
        let magnitude = match a & !SIGN {
            0x7c01.. => f64::NAN,
            0x7c00 => f64::INFINITY,
            magnitude => f64::from_bits(u64::from(magnitude) << 42) * BIASES,
        };
        f64::from_bits(magnitude.to_bits() | u64::from(a & SIGN) << 48)
    }

    /// Rounds `value` to the nearest number of the format.
    #[inline]
    pub(crate) fn narrow(self, value: f64) -> u16 {
        /// Doubles from here on have no fraction: adding this rounds to an integer.
        const INTEGERS: f64 = f64::from_bits((1023 + 52) << 52);
        let layout = self.layout();
        let (fraction_bits, lowest) = (layout.quiet().trailing_zeros() + 1, layout.exponent_min());
        let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        let last = (exponent - fraction_bits as i32).max(lowest);
        let scale = f64::from_bits(((1023 - last) as u64) << 52);
        let kept = (value.abs() * scale + INTEGERS).to_bits() - INTEGERS.to_bits();
        let magnitude = (((last - lowest) as u64) << fraction_bits) + kept;
        let sign = (value.to_bits() >> 63) << 15;
        let finite = value.abs() < f64::from_bits((1023 + 200) << 52);
        let magnitude = if finite { magnitude.min(layout.infinity()) } else { layout.infinity() };
        (if value.is_nan() { layout.nan } else { sign | magnitude }) as u16
    }

    /// Like [`Half::narrow`], for a value that was not rounded yet: it decides what is flushed.
    #[inline]
    fn flush_exact(self, value: f64, ftz: bool) -> u16 {
        let narrow = self.narrow(value);
        if ftz && value.abs() < self.layout().flush_threshold() { narrow & SIGN } else { narrow }
    }

    #[inline]
    fn canonical(self, a: u16) -> u16 {
        if self.layout().is_nan(a.into()) { self.layout().nan as u16 } else { a }
    }

    #[inline]
    fn operand(self, a: u16, ftz: bool) -> u16 {
        if ftz { self.layout().flush(a.into()) as u16 } else { a }
    }

    #[inline]
    fn finish(self, result: u16, mode: HalfMode) -> u16 {
        let mut result = self.operand(result, mode.ftz).into();
        if mode.sat {
            result = self.layout().saturate(result);
        }
        if mode.relu {
            result = self.layout().relu(result);
        }
        result as u16
    }

    /// The error bounds of the PTX ISA (2^-9.9 for f16's `ex2`, 2^-7 for bf16's) allow two roundings.
    fn approximate(self, a: u16, ftz: bool, function: fn(f64) -> f64) -> u16 {
        self.operand(self.narrow(function(self.value(self.operand(a, ftz)))), ftz)
    }
}

/// The sign bit of both formats.
const SIGN: u16 = 0x8000;

/// Applies `operation` to the lower and to the upper halves of the operands.
#[inline]
pub(crate) fn pairs<const N: usize>(operands: [u32; N], operation: impl Fn([u16; N]) -> u16) -> u32 {
    let lower = operation(operands.map(|bits| bits as u16));
    let upper = operation(operands.map(|bits| (bits >> 16) as u16));
    u32::from(upper) << 16 | u32::from(lower)
}
