//! Element types of buffers: width, corner values, parsing and formatting.

use std::fmt::Write;

/// The type of a buffer's elements. Packed pairs are one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F64,
}

use Element::*;

/// Corner values of a type: how many, for every type.
pub(crate) const CORNERS: usize = 20;

const BITS_8: [u64; CORNERS] =
    [0, 1, 2, 3, 0xff, 0xfe, 0x80, 0x81, 0x7f, 7, 8, 9, 15, 16, 31, 32, 0x12, 0x89, 0x55, 0xaa];
const BITS_16: [u64; CORNERS] =
    [0, 1, 2, 3, 0xffff, 0xfffe, 0x8000, 0x8001, 0x7fff, 15, 16, 17, 31, 32, 33, 255, 256, 0x1234, 0x89ab, 0xff00];
const BITS_32: [u64; CORNERS] = [
    0,
    1,
    2,
    3,
    0xffff_ffff,
    0xffff_fffe,
    0x8000_0000,
    0x8000_0001,
    0x7fff_ffff,
    31,
    32,
    33,
    63,
    64,
    255,
    256,
    0xffff,
    0x1_0000,
    0x1234_5678,
    0x89ab_cdef,
];
const BITS_64: [u64; CORNERS] = [
    0,
    1,
    2,
    3,
    u64::MAX,
    u64::MAX - 1,
    1 << 63,
    (1 << 63) + 1,
    (1 << 63) - 1,
    31,
    32,
    33,
    63,
    64,
    65,
    0xffff_ffff,
    1 << 32,
    1 << 31,
    0x1234_5678_9abc_def0,
    0xfedc_ba98_7654_3210,
];
// Zeros, ones, the smallest and largest subnormal, the smallest normal, the largest, infinities, a quiet and a signalling
// NaN, numbers to round, one and a bit, and a power of two beyond the integers.
const F16_CORNERS: [u64; CORNERS] = [
    0, 0x8000, 0x3c00, 0xbc00, 1, 0x8001, 0x03ff, 0x0400, 0x8400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfd01,
    0x3800, 0x3e00, 0xc100, 0x3c01, 0x6800,
];
const BF16_CORNERS: [u64; CORNERS] = [
    0, 0x8000, 0x3f80, 0xbf80, 1, 0x8001, 0x007f, 0x0080, 0x8080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xff81,
    0x3f00, 0x3fc0, 0xc020, 0x3f81, 0x4f00,
];
const F32_CORNERS: [u64; CORNERS] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xff81_2345,
    0x3f00_0000,
    0x3fc0_0000,
    0xc020_0000,
    0x3f80_0001,
    0x4f00_0000,
];
const F64_CORNERS: [u64; CORNERS] = [
    0,
    1 << 63,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    1,
    (1 << 63) + 1,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x8010_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0xfff0_0000_1234_5678,
    0x3fe0_0000_0000_0000,
    0x3ff8_0000_0000_0000,
    0xc004_0000_0000_0000,
    0x3ff0_0000_0000_0001,
    0x41e0_0000_0000_0000,
];

const NAMES: [(&str, Element); 14] = [
    ("u8", U8),
    ("s8", S8),
    ("u16", U16),
    ("s16", S16),
    ("u32", U32),
    ("s32", S32),
    ("u64", U64),
    ("s64", S64),
    ("f16", F16),
    ("bf16", Bf16),
    ("f16x2", F16x2),
    ("bf16x2", Bf16x2),
    ("f32", F32),
    ("f64", F64),
];

impl Element {
    pub(crate) fn from_name(name: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(have, _)| *have == name);
        found.map(|(_, element)| *element).ok_or_else(|| format!("unknown type '{name}'"))
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, element)| *element == self).expect("every type has a name").0
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            U8 | S8 => 1,
            U16 | S16 | F16 | Bf16 => 2,
            U32 | S32 | F16x2 | Bf16x2 | F32 => 4,
            U64 | S64 | F64 => 8,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, F16 | Bf16 | F16x2 | Bf16x2 | F32 | F64)
    }

    /// Returns a corner value; `index` wraps around.
    pub(crate) fn corner(self, index: usize) -> u64 {
        let (one, other) = (index % CORNERS, (index + 7) % CORNERS);
        match self {
            U8 | S8 => BITS_8[one],
            U16 | S16 => BITS_16[one],
            U32 | S32 => BITS_32[one],
            U64 | S64 => BITS_64[one],
            F16 => F16_CORNERS[one],
            Bf16 => BF16_CORNERS[one],
            F16x2 => F16_CORNERS[one] | F16_CORNERS[other] << 16,
            Bf16x2 => BF16_CORNERS[one] | BF16_CORNERS[other] << 16,
            F32 => F32_CORNERS[one],
            F64 => F64_CORNERS[one],
        }
    }

    /// The bits of a number of this type, as a description spells it.
    pub(crate) fn parse(self, text: &str) -> Result<u64, String> {
        let told = || format!("'{text}' is not a {}", self.name());
        let bits = if let Some(digits) = text.strip_prefix("0x") {
            u64::from_str_radix(digits, 16).map_err(|_| told())?
        } else {
            match self {
                F32 => u64::from(text.parse::<f32>().map_err(|_| told())?.to_bits()),
                F64 => text.parse::<f64>().map_err(|_| told())?.to_bits(),
                _ if text.starts_with('-') => text.parse::<i64>().map_err(|_| told())? as u64,
                _ => text.parse().map_err(|_| told())?,
            }
        };
        Ok(bits & self.mask())
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }

    /// The element at the start of these bytes.
    pub(crate) fn read(self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        word[..self.bytes()].copy_from_slice(&bytes[..self.bytes()]);
        u64::from_le_bytes(word)
    }

    pub(crate) fn write(self, bits: u64, to: &mut Vec<u8>) {
        to.extend_from_slice(&bits.to_le_bytes()[..self.bytes()]);
    }

    /// The numbers that an element holds, as bits of one width: two for a pair.
    fn lanes(self, bits: u64) -> ([u64; 2], Element) {
        match self {
            F16x2 => ([bits & 0xffff, bits >> 16], F16),
            Bf16x2 => ([bits & 0xffff, bits >> 16], Bf16),
            _ => ([bits, bits], self),
        }
    }

    /// How many bits of a number are its fraction.
    fn fraction_bits(self) -> u32 {
        match self {
            F16 | F16x2 => 10,
            Bf16 | Bf16x2 => 7,
            F32 => 23,
            F64 => 52,
            _ => 0,
        }
    }

    fn is_nan(self, bits: u64) -> bool {
        let magnitude = bits & (self.mask() >> 1);
        let infinity = (self.mask() >> 1) & !((1 << self.fraction_bits()) - 1);
        self.is_float() && magnitude > infinity
    }

    /// Returns whether two elements differ by at most `units` units in the last place. All NaNs are equal.
    pub(crate) fn is_near(self, left: u64, right: u64, units: u64) -> bool {
        let (left, lane) = self.lanes(left);
        let (right, _) = self.lanes(right);
        left.iter().zip(right).all(|(&left, right)| match (lane.is_nan(left), lane.is_nan(right)) {
            (true, true) => true,
            (false, false) => lane.place(left).abs_diff(lane.place(right)) <= i128::from(units).unsigned_abs(),
            _ => false,
        })
    }

    /// Returns the rank of a number among all of its type; -0 is just below 0, so that they differ.
    fn place(self, bits: u64) -> i128 {
        let sign = (self.mask() >> 1) + 1;
        let magnitude = i128::from(bits & !sign);
        if bits & sign == 0 { magnitude } else { -magnitude - 1 }
    }

    /// Formats the bits in hexadecimal, with the value if it differs.
    pub(crate) fn tell(self, bits: u64) -> String {
        let mut text = self.hex(bits);
        let meant = match self {
            U8 | U16 | U32 | U64 => format!("{bits}"),
            S8 => format!("{}", bits as i8),
            S16 => format!("{}", bits as i16),
            S32 => format!("{}", bits as i32),
            S64 => format!("{}", bits as i64),
            F32 => format!("{:e}", f32::from_bits(bits as u32)),
            F64 => format!("{:e}", f64::from_bits(bits)),
            Bf16 => format!("{:e}", f32::from_bits((bits as u32) << 16)),
            F16 | F16x2 | Bf16x2 => return text,
        };
        write!(text, " ({meant})").expect("a string can be written to");
        text
    }

    pub(crate) fn hex(self, bits: u64) -> String {
        format!("{bits:0width$x}", width = 2 * self.bytes())
    }
}
