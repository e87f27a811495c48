//! The conversions whose operand or result is not one of the plain types: pairs, 8-bit floats, tf32.

use super::{Convert, Format, convert};
use crate::arith::Rounding;
use crate::arith::soft::{self, Finite, Layout, Number};

/// A float of 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Eighth {
    /// No infinities, one NaN (of either sign), numbers up to 448.
    E4m3,
    /// As IEEE's formats, numbers up to 57344.
    E5m2,
}

/// `cvt.rn.f16x2.f32 d, upper, lower` and `cvt.rn.bf16x2.f32`.
pub(crate) fn pack_halves(to: Format, upper: u32, lower: u32, how: Convert) -> u32 {
    let half = |bits: u32| convert(to, Format::F32, bits.into(), how) as u32;
    half(upper) << 16 | half(lower)
}

/// `cvt.rna.tf32.f32`: a single of which the lowest 13 bits are zero. The hardware cuts them off a NaN as well, even if
/// what remains is infinity.
pub(crate) fn tf32(a: u32, how: Convert) -> u32 {
    let a = if how.relu { Layout::SINGLE.relu(a.into()) as u32 } else { a };
    let rounding = how.rounding.unwrap_or(Rounding::Nearest);
    match soft::take_apart(Layout::SINGLE, a.into()) {
        Number::NaN | Number::Infinite { .. } => a & !0x1fff,
        Number::Finite(value) => (soft::round(Layout::TENSOR, rounding, value) as u32) << 13,
    }
}

/// `cvt.rn.satfinite{.relu}.e4m3x2.f32 d, upper, lower`. What is too big becomes the biggest number, even
/// infinity.
pub(crate) fn pack_eighths(to: Eighth, upper: u32, lower: u32, relu: bool) -> u16 {
    let eighth = |bits: u32| {
        let bits = if relu { Layout::SINGLE.relu(bits.into()) } else { bits.into() };
        let (layout, most) = match to {
            Eighth::E4m3 => (Layout::E4M3_WIDE, 0x7e),
            Eighth::E5m2 => (Layout::E5M2, 0x7b),
        };
        let sign = if bits & Layout::SINGLE.sign() != 0 { 0x80 } else { 0 };
        let magnitude = match soft::take_apart(Layout::SINGLE, bits) {
            Number::NaN => return 0x7f,
            Number::Infinite { .. } => most,
            Number::Finite(value) => {
                soft::round(layout, Rounding::Nearest, Finite { negative: false, ..value }).min(most)
            }
        };
        sign | magnitude as u16
    };
    eighth(upper) << 8 | eighth(lower)
}

/// `cvt.rn.satfinite{.relu}.e4m3x2.f16x2`
pub(crate) fn pack_eighths_of_halves(to: Eighth, pair: u32, relu: bool) -> u16 {
    let single = |half: u32| convert(Format::F32, Format::F16, half.into(), Convert::default()) as u32;
    pack_eighths(to, single(pair >> 16), single(pair), relu)
}

/// `cvt.rn{.relu}.f16x2.e4m3x2`: every number of the small formats is one of f16.
pub(crate) fn unpack_eighths(from: Eighth, pair: u16, relu: bool) -> u32 {
    let half = |bits: u16| {
        let value = match (from, bits & 0x7f) {
            (Eighth::E4m3, 0x7f) => Number::NaN,
            (Eighth::E4m3, magnitude) => soft::take_apart(Layout::E4M3_WIDE, magnitude.into()),
            (Eighth::E5m2, magnitude) => soft::take_apart(Layout::E5M2, magnitude.into()),
        };
        let sign = if bits & 0x80 != 0 { Layout::HALF.sign() } else { 0 };
        let half = match value {
            Number::NaN => Layout::HALF.nan,
            Number::Infinite { .. } => Layout::HALF.infinity() | sign,
            Number::Finite(value) => soft::round(Layout::HALF, Rounding::Nearest, value) | sign,
        };
        (if relu { Layout::HALF.relu(half) } else { half }) as u32
    };
    half(pair >> 8) << 16 | half(pair & 0xff)
}
