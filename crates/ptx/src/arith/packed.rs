//! Conversions with an operand or result that is not a plain type: pairs, 8-bit floats, tf32.

use super::Rounding;
use super::convert::{Convert, Format, convert};
use super::softfloat::{self, Finite, Layout, Number};

/// An 8-bit float.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fp8 {
    /// No infinities, one NaN (of either sign), numbers up to 448.
    E4m3,
    /// Like the IEEE formats, numbers up to 57344.
    E5m2,
}

/// `cvt.rn.f16x2.f32 d, upper, lower` and `cvt.rn.bf16x2.f32`.
pub(crate) fn pack_halves(to: Format, upper: u32, lower: u32, how: Convert) -> u32 {
    let half = |bits: u32| convert(to, Format::F32, bits.into(), how) as u32;
    half(upper) << 16 | half(lower)
}

/// `cvt.rna.tf32.f32`: an f32 whose lowest 13 bits are zero. The hardware truncates a NaN too, even if infinity
/// remains.
pub(crate) fn tf32(a: u32, how: Convert) -> u32 {
    let a = if how.relu { Layout::F32.relu(a.into()) as u32 } else { a };
    let rounding = how.rounding.unwrap_or(Rounding::Nearest);
    match softfloat::unpack(Layout::F32, a.into()) {
        Number::NaN | Number::Infinite { .. } => a & !0x1fff,
        Number::Finite(value) => (softfloat::round(Layout::TF32, rounding, value) as u32) << 13,
    }
}

/// `cvt.rn.satfinite{.relu}.e4m3x2.f32 d, upper, lower`. Values that are too large, even infinity, become the largest
/// number.
pub(crate) fn pack_fp8(to: Fp8, upper: u32, lower: u32, relu: bool) -> u16 {
    let eighth = |bits: u32| {
        let bits = if relu { Layout::F32.relu(bits.into()) } else { bits.into() };
        let (layout, most) = match to {
            Fp8::E4m3 => (Layout::E4M3_WIDE, 0x7e),
            Fp8::E5m2 => (Layout::E5M2, 0x7b),
        };
        let sign = if bits & Layout::F32.sign() != 0 { 0x80 } else { 0 };
        let magnitude = match softfloat::unpack(Layout::F32, bits) {
            Number::NaN => return 0x7f,
            Number::Infinite { .. } => most,
            Number::Finite(value) => {
                softfloat::round(layout, Rounding::Nearest, Finite { negative: false, ..value }).min(most)
            }
        };
        sign | magnitude as u16
    };
    eighth(upper) << 8 | eighth(lower)
}

/// `cvt.rn.satfinite{.relu}.e4m3x2.f16x2`
pub(crate) fn pack_fp8_from_halves(to: Fp8, pair: u32, relu: bool) -> u16 {
    let single = |half: u32| convert(Format::F32, Format::F16, half.into(), Convert::default()) as u32;
    pack_fp8(to, single(pair >> 16), single(pair), relu)
}

/// `cvt.rn{.relu}.f16x2.e4m3x2`: f16 represents every number of the small formats.
pub(crate) fn unpack_fp8(from: Fp8, pair: u16, relu: bool) -> u32 {
    let half = |bits: u16| {
        let value = match (from, bits & 0x7f) {
            (Fp8::E4m3, 0x7f) => Number::NaN,
            (Fp8::E4m3, magnitude) => softfloat::unpack(Layout::E4M3_WIDE, magnitude.into()),
            (Fp8::E5m2, magnitude) => softfloat::unpack(Layout::E5M2, magnitude.into()),
        };
        let sign = if bits & 0x80 != 0 { Layout::F16.sign() } else { 0 };
        let half = match value {
            Number::NaN => Layout::F16.nan,
            Number::Infinite { .. } => Layout::F16.infinity() | sign,
            Number::Finite(value) => softfloat::round(Layout::F16, Rounding::Nearest, value) | sign,
        };
        (if relu { Layout::F16.relu(half) } else { half }) as u32
    };
    half(pair >> 8) << 16 | half(pair & 0xff)
}
