//! `cvt`: from any type to any other.

#[cfg(test)]
mod tests;

use super::Rounding;
use super::half::Half;
use super::softfloat::{self, Finite, Layout, Number};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    Bf16,
    F32,
    F64,
}

/// The modifiers of `cvt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Convert {
    /// `None` if the conversion is exact. Without a rounding mode, a float is rounded to an integer toward zero.
    pub(crate) rounding: Option<Rounding>,
    /// Rounds to an integer (`.rni`, `.rzi`, …), which matters if the result is a float.
    pub(crate) integral: bool,
    /// Flushes subnormal f32 operands and results to zero. Other formats are unaffected.
    pub(crate) ftz: bool,
    /// Clamps floats to [0, 1] and NaN to +0, and integers to the range of the destination.
    pub(crate) sat: bool,
    /// `.satfinite`: values that are too large, even infinity, become the largest number of their sign.
    pub(crate) finite: bool,
    /// Negative values become +0, NaN the canonical one.
    pub(crate) relu: bool,
}

#[derive(Debug, Clone, Copy)]
enum NumberClass {
    Integer { bits: u32, signed: bool },
    Float(Layout),
}

impl Format {
    #[cfg(test)]
    const ALL: [Format; 12] = [
        Format::U8,
        Format::U16,
        Format::U32,
        Format::U64,
        Format::S8,
        Format::S16,
        Format::S32,
        Format::S64,
        Format::F16,
        Format::Bf16,
        Format::F32,
        Format::F64,
    ];

    const fn class(self) -> NumberClass {
        match self {
            Format::U8 => NumberClass::Integer { bits: 8, signed: false },
            Format::U16 => NumberClass::Integer { bits: 16, signed: false },
            Format::U32 => NumberClass::Integer { bits: 32, signed: false },
            Format::U64 => NumberClass::Integer { bits: 64, signed: false },
            Format::S8 => NumberClass::Integer { bits: 8, signed: true },
            Format::S16 => NumberClass::Integer { bits: 16, signed: true },
            Format::S32 => NumberClass::Integer { bits: 32, signed: true },
            Format::S64 => NumberClass::Integer { bits: 64, signed: true },
            Format::F16 => NumberClass::Float(Layout::F16),
            Format::Bf16 => NumberClass::Float(Layout::BF16),
            Format::F32 => NumberClass::Float(Layout::F32),
            Format::F64 => NumberClass::Float(Layout::F64),
        }
    }
}

/// Converts a value. Bits of `bits` above the width of `from` are ignored. The result fills 64 bits: an integer is
/// extended as its type requires, for a destination register wider than the type; above a float there are zeros.
#[inline]
pub(crate) fn convert(to: Format, from: Format, bits: u64, how: Convert) -> u64 {
    if how.ftz || how.sat || how.finite || how.relu {
        return convert_exact(to, from, bits, how);
    }
    convert_by_move(to, from, bits, how)
        .or_else(|| convert_fast(to, from, bits, how))
        .unwrap_or_else(|| convert_exact(to, from, bits, how))
}

/// Conversions that the assembler turns into moves and a shift, which preserve every NaN.
#[inline]
fn convert_by_move(to: Format, from: Format, bits: u64, how: Convert) -> Option<u64> {
    match (to, from, how.rounding) {
        (Format::F32, Format::F32, None) => Some(bits & 0xffff_ffff),
        (Format::F64, Format::F64, None) => Some(bits),
        (Format::F32, Format::Bf16, _) => Some((bits & 0xffff) << 16),
        _ => None,
    }
}

/// A fast path for frequent conversions, with the CPU's instructions.
#[inline]
fn convert_fast(to: Format, from: Format, bits: u64, how: Convert) -> Option<u64> {
    let value = f32::from_bits(bits as u32);
    if let (NumberClass::Integer { bits: width, signed }, NumberClass::Integer { bits: to_width, signed: to_signed }) =
        (from.class(), to.class())
    {
        return Some(extend(extend(bits, width, signed), to_width, to_signed));
    }
    Some(match (to, from, how.rounding, how.integral) {
        (Format::S32, Format::F32, Some(Rounding::Zero), _) => value as i32 as u64,
        (Format::U32, Format::F32, Some(Rounding::Zero), _) => u64::from(value as u32),
        (Format::F32, Format::S32, Some(Rounding::Nearest), _) => bits_of(bits as i32 as f32),
        (Format::F32, Format::U32, Some(Rounding::Nearest), _) => bits_of(bits as u32 as f32),
        (Format::F64, Format::S32, ..) => f64::from(bits as i32).to_bits(),
        (Format::F64, Format::U32, ..) => f64::from(bits as u32).to_bits(),
        (Format::F32, Format::F32, Some(Rounding::Nearest), true) => bits_of(value.round_ties_even()),
        (Format::F32, Format::F32, Some(Rounding::Zero), true) => bits_of(value.trunc()),
        (Format::F32, Format::F32, Some(Rounding::Down), true) => bits_of(value.floor()),
        (Format::F32, Format::F32, Some(Rounding::Up), true) => bits_of(value.ceil()),
        (Format::F64, Format::F32, _, false) if !value.is_nan() => f64::from(value).to_bits(),
        (Format::F32, Format::F64, Some(Rounding::Nearest), false) if !f64::from_bits(bits).is_nan() => {
            (f64::from_bits(bits) as f32).to_bits().into()
        }
        (Format::F32, Format::F16, _, false) => bits_of(Half::F16.value(bits as u16) as f32),
        (Format::F16, Format::F32, Some(Rounding::Nearest), false) => Half::F16.narrow(value.into()).into(),
        (Format::Bf16, Format::F32, Some(Rounding::Nearest), false) => Half::Bf16.narrow(value.into()).into(),
        _ => return None,
    })
}

#[inline]
fn bits_of(value: f32) -> u64 {
    if value.is_nan() { Layout::F32.nan } else { value.to_bits().into() }
}

/// Returns the low `width` bits, extended as the type requires.
#[inline]
fn extend(bits: u64, width: u32, signed: bool) -> u64 {
    let unused = 64 - width;
    if signed { ((bits << unused) as i64 >> unused) as u64 } else { bits << unused >> unused }
}

fn convert_exact(to: Format, from: Format, bits: u64, how: Convert) -> u64 {
    match (from.class(), to.class()) {
        (NumberClass::Integer { bits: width, signed }, NumberClass::Integer { bits: to_width, signed: to_signed }) => {
            let value = integer(bits, width, signed);
            let value = if how.sat { clamp(value, to_width, to_signed) } else { value };
            integer(value as u64, to_width, to_signed) as u64
        }
        (NumberClass::Integer { bits: width, signed }, NumberClass::Float(layout)) => {
            let value = integer(bits, width, signed);
            let value = Finite { negative: value < 0, exponent: 0, significand: value.unsigned_abs() };
            finish(to, softfloat::round(layout, how.rounding.unwrap_or(Rounding::Nearest), value), how)
        }
        (NumberClass::Float(layout), NumberClass::Integer { bits: width, signed }) => {
            float_to_integer(operand(to, from, layout, bits, how), from, layout, (width, signed), how)
        }
        (NumberClass::Float(layout), NumberClass::Float(to_layout)) => {
            let to_layout = to_layout.with_ftz(how.ftz && to == Format::F32);
            finish(to, float_to_float(operand(to, from, layout, bits, how), layout, to_layout, how), how)
        }
    }
}

/// Returns the low `width` bits as a number.
fn integer(bits: u64, width: u32, signed: bool) -> i128 {
    let unused = 128 - width;
    if signed { (i128::from(bits) << unused) >> unused } else { (u128::from(bits) << unused >> unused) as i128 }
}

fn clamp(value: i128, width: u32, signed: bool) -> i128 {
    let (least, most) = range(width, signed);
    value.clamp(least, most)
}

fn range(width: u32, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

/// A conversion to f16 does not flush, which rounding away from zero shows.
fn operand(to: Format, from: Format, layout: Layout, bits: u64, how: Convert) -> u64 {
    let bits = bits & (layout.sign() | (layout.sign() - 1));
    if !how.ftz || from != Format::F32 || to == Format::F16 {
        bits
    } else if layout.is_nan(bits) {
        layout.nan
    } else {
        layout.flush(bits)
    }
}

fn finish(to: Format, result: u64, how: Convert) -> u64 {
    let NumberClass::Float(layout) = to.class() else { return result };
    let mut result = if how.ftz && to == Format::F32 { layout.flush(result) } else { result };
    if how.sat {
        result = layout.saturate(result);
    }
    if how.finite && layout.is_infinite(result) {
        result -= 1;
    }
    if how.relu {
        result = layout.relu(result);
    }
    result
}

/// Clamps a value out of range to the nearest end, with `.sat` and without. NaN is 0 if neither side has 64 bits, else
/// only the destination's highest bit, as the PTX ISA states.
fn float_to_integer(bits: u64, from: Format, layout: Layout, (width, signed): (u32, bool), how: Convert) -> u64 {
    let (least, most) = range(width, signed);
    let value = match softfloat::unpack(layout, bits) {
        Number::NaN if from == Format::F64 || width == 64 => integer(1 << (width - 1), width, signed),
        Number::NaN => 0,
        Number::Infinite { negative: false } => most,
        Number::Infinite { negative: true } => least,
        Number::Finite(value) => {
            value.round_to_integral(how.rounding.unwrap_or(Rounding::Zero)).saturating_to_int(least, most)
        }
    };
    value as u64
}

fn float_to_float(bits: u64, from: Layout, to: Layout, how: Convert) -> u64 {
    let rounding = how.rounding.unwrap_or(Rounding::Nearest);
    match softfloat::unpack(from, bits) {
        Number::NaN => nan(bits, from, to),
        Number::Infinite { negative: false } => to.infinity(),
        Number::Infinite { negative: true } => to.infinity() | to.sign(),
        Number::Finite(value) => {
            softfloat::round(to, rounding, if how.integral { value.round_to_integral(rounding) } else { value })
        }
    }
}

/// In a conversion to or from f64, a NaN keeps its sign and the upper bits of its payload, and is made quiet; every
/// other conversion returns the destination's canonical NaN.
fn nan(bits: u64, from: Layout, to: Layout) -> u64 {
    if to.sign() != Layout::F64.sign() && from.sign() != Layout::F64.sign() {
        return to.nan;
    }
    let sign = if bits & from.sign() != 0 { to.sign() } else { 0 };
    let payload = bits & (from.quiet() - 1);
    let (bits, to_bits) = (from.quiet().trailing_zeros(), to.quiet().trailing_zeros());
    let payload = if to_bits >= bits { payload << (to_bits - bits) } else { payload >> (bits - to_bits) };
    sign | to.infinity() | to.quiet() | payload
}
