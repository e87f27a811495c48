//! f16 and bf16, as the bits of a `u16`: one arithmetic, the format being an argument. All of it rounds to nearest.
//!
//! Two of them in a `u32` (f16x2, bf16x2) are made by [`pairs`].

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use super::soft::{self, Finite, Layout, Number};
use super::{MinMax, Property, Rounding};

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
            Half::F16 => Layout::HALF,
            Half::Bf16 => Layout::BRAIN,
        }
    }

    pub(crate) fn add(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        let (a, b) = (self.operand(a, mode.ftz), self.operand(b, mode.ftz));
        self.finish(soft::add(self.layout(), a, b, Rounding::Nearest), mode)
    }

    pub(crate) fn sub(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        self.add(a, b ^ SIGN, mode)
    }

    pub(crate) fn mul(self, a: u16, b: u16, mode: HalfMode) -> u16 {
        let (a, b) = (self.operand(a, mode.ftz), self.operand(b, mode.ftz));
        self.finish(soft::mul(self.layout(), a, b, Rounding::Nearest), mode)
    }

    pub(crate) fn fma(self, a: u16, b: u16, c: u16, mode: HalfMode) -> u16 {
        let [a, b, c] = [a, b, c].map(|bits| self.operand(bits, mode.ftz));
        self.finish(soft::fma(self.layout(), a, b, c, Rounding::Nearest), mode)
    }

    pub(crate) fn min(self, a: u16, b: u16, how: MinMax) -> u16 {
        self.layout().choose(a.into(), b.into(), how, Ordering::Less) as u16
    }

    pub(crate) fn max(self, a: u16, b: u16, how: MinMax) -> u16 {
        self.layout().choose(a.into(), b.into(), how, Ordering::Greater) as u16
    }

    /// The document leaves open which NaN comes of a NaN; this one keeps its payload.
    pub(crate) fn abs(self, a: u16, ftz: bool) -> u16 {
        self.operand(a, ftz) as u16 & !SIGN
    }

    /// The document leaves open which NaN comes of a NaN; this one keeps its payload.
    pub(crate) fn neg(self, a: u16, ftz: bool) -> u16 {
        self.operand(a, ftz) as u16 ^ SIGN
    }

    pub(crate) fn compare(self, a: u16, b: u16, ftz: bool) -> Option<Ordering> {
        self.layout().compare(self.operand(a, ftz), self.operand(b, ftz))
    }

    pub(crate) fn testp(self, property: Property, a: u16) -> bool {
        self.layout().has(property, a.into())
    }

    /// Only f16's may be without `ftz`; a subnormal operand gives 1 either way.
    pub(crate) fn ex2_approx(self, a: u16, ftz: bool) -> u16 {
        self.approximate(a, ftz, f64::exp2)
    }

    /// A subnormal is its own hyperbolic tangent.
    pub(crate) fn tanh_approx(self, a: u16) -> u16 {
        self.approximate(a, false, f64::tanh)
    }

    /// The exact value as f64.
    pub(crate) fn value(self, a: u16) -> f64 {
        match soft::take_apart(self.layout(), a.into()) {
            Number::NaN => f64::NAN,
            Number::Infinite { negative: false } => f64::INFINITY,
            Number::Infinite { negative: true } => f64::NEG_INFINITY,
            Number::Finite(Finite { negative, exponent, significand }) => {
                let magnitude = significand as f64 * f64::from(exponent).exp2();
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    fn operand(self, a: u16, ftz: bool) -> u64 {
        if ftz { self.layout().flush(a.into()) } else { a.into() }
    }

    fn finish(self, result: u64, mode: HalfMode) -> u16 {
        let mut result = if mode.ftz { self.layout().flush(result) } else { result };
        if mode.sat {
            result = self.layout().saturate(result);
        }
        if mode.relu {
            result = self.layout().relu(result);
        }
        result as u16
    }

    /// The error bounds of the document (2^-9.9 of f16's `ex2`, 2^-7 of bf16's) leave room for the two roundings.
    fn approximate(self, a: u16, ftz: bool, function: fn(f64) -> f64) -> u16 {
        let value = function(self.value(self.operand(a, ftz) as u16));
        let result = match soft::take_apart(Layout::DOUBLE, value.to_bits()) {
            Number::NaN => self.layout().nan,
            Number::Infinite { negative: false } => self.layout().infinity(),
            Number::Infinite { negative: true } => self.layout().infinity() | self.layout().sign(),
            Number::Finite(value) => soft::round(self.layout(), Rounding::Nearest, value),
        };
        (if ftz { self.layout().flush(result) } else { result }) as u16
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
