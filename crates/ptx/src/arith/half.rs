//! f16 and bf16, as the bits of a `u16`: one arithmetic, the format being an argument. All of it rounds to nearest.
//!
//! Two of them in a `u32` (f16x2, bf16x2) are made by [`pairs`].

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::MinMax;
use super::softfloat::{self, Layout};

/// A format of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    F16,
    Bf16,
}

/// What is done to the result of an operation. At most one of `sat` and `relu` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct HalfMode {
    /// Subnormal inputs and results become zeros of the same sign.
    pub(crate) ftz: bool,
    /// Clamped to [0, 1], NaN becomes +0.
    pub(crate) sat: bool,
    /// What is negative becomes +0, NaN the canonical one.
    pub(crate) relu: bool,
}

impl Half {
    pub(crate) const fn layout(self) -> Layout {
        match self {
            Half::F16 => Layout::F16,
            Half::Bf16 => Layout::BF16,
        }
    }

    // A double holds a product exactly, and of a sum more than twice the bits of a half: rounding it again is harmless.

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

    /// The document leaves open which NaN comes of a NaN; the hardware gives its own.
    pub(crate) fn abs(self, a: u16, ftz: bool) -> u16 {
        self.canonical(self.operand(a, ftz) & !SIGN)
    }

    /// The document leaves open which NaN comes of a NaN; the hardware gives its own.
    pub(crate) fn neg(self, a: u16, ftz: bool) -> u16 {
        self.canonical(self.operand(a, ftz) ^ SIGN)
    }

    pub(crate) fn compare(self, a: u16, b: u16, ftz: bool) -> Option<Ordering> {
        self.value(self.operand(a, ftz)).partial_cmp(&self.value(self.operand(b, ftz)))
    }

    /// Only f16's may be without `ftz`; a subnormal operand gives 1 either way.
    pub(crate) fn ex2_approx(self, a: u16, ftz: bool) -> u16 {
        self.approximate(a, ftz, f64::exp2)
    }

    /// A subnormal is its own hyperbolic tangent.
    pub(crate) fn tanh_approx(self, a: u16) -> u16 {
        self.approximate(a, false, f64::tanh)
    }

    /// The exact value.
    #[inline]
    pub(crate) fn value(self, a: u16) -> f64 {
        if self == Half::Bf16 {
            return f32::from_bits(u32::from(a) << 16).into();
        }
        // Exponent and fraction in a double's places are off by the difference of the biases, which a multiplication
        // puts right for subnormals too.
        const BIASES: f64 = f64::from_bits((1023 + 1023 - 15) << 52);
        let magnitude = match a & !SIGN {
            0x7c01.. => f64::NAN,
            0x7c00 => f64::INFINITY,
            magnitude => f64::from_bits(u64::from(magnitude) << 42) * BIASES,
        };
        f64::from_bits(magnitude.to_bits() | u64::from(a & SIGN) << 48)
    }

    /// The nearest of the format to `value`.
    #[inline]
    pub(crate) fn narrow(self, value: f64) -> u16 {
        /// Doubles from here on have no fraction: adding it rounds to an integer.
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

    /// As [`Half::narrow`], for what no rounding has touched yet: it tells what is to be flushed.
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

    /// The error bounds of the document (2^-9.9 of f16's `ex2`, 2^-7 of bf16's) leave room for two roundings.
    fn approximate(self, a: u16, ftz: bool, function: fn(f64) -> f64) -> u16 {
        self.operand(self.narrow(function(self.value(self.operand(a, ftz)))), ftz)
    }
}

/// Both formats have their sign there.
const SIGN: u16 = 0x8000;

/// Does `operation` to the lower and to the upper halves of the operands.
#[inline]
pub(crate) fn pairs<const N: usize>(operands: [u32; N], operation: impl Fn([u16; N]) -> u16) -> u32 {
    let lower = operation(operands.map(|bits| bits as u16));
    let upper = operation(operands.map(|bits| (bits >> 16) as u16));
    u32::from(upper) << 16 | u32::from(lower)
}
