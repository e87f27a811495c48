//! Video instructions: integer operations on parts of words, with a second operation on the result.

use super::integer::FunnelMode;

/// The operation of a video instruction on two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VideoOp {
    Add,
    Sub,
    AbsDiff,
    Min,
    Max,
    /// Half of the sum, rounded away from zero if it is not negative.
    Average,
    ShiftLeft(FunnelMode),
    ShiftRight(FunnelMode),
    /// The product plus the third operand, and one if `plus_one`, shifted right.
    MulAdd {
        plus_one: bool,
        shift: u8,
    },
    /// One if the order of the parts is one of these.
    Compare {
        less: bool,
        equal: bool,
        greater: bool,
    },
}

/// A part of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Word,
    Half(u8),
    Byte(u8),
}

impl Part {
    /// Returns its bits and where they begin.
    fn bits(self) -> (u32, u32) {
        match self {
            Self::Word => (32, 0),
            Self::Half(index) => (16, 16 * u32::from(index)),
            Self::Byte(index) => (8, 8 * u32::from(index)),
        }
    }

    fn extract(self, word: u32, signed: bool) -> i64 {
        let (bits, start) = self.bits();
        extend(word >> start, bits, signed)
    }

    /// Returns `word` with this part replaced.
    fn replace(self, word: u32, part: u32) -> u32 {
        let (bits, start) = self.bits();
        let mask = u32::MAX >> (32 - bits) << start;
        word & !mask | part << start & mask
    }
}

/// What happens to the result of a video instruction on one part of each operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    None,
    /// Added to the third operand.
    Add,
    /// The smaller or the larger of the result and the third operand.
    Min,
    Max,
    /// Replaces a part of the third operand.
    Merge(Part),
}

/// A video instruction on one part of each operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Video {
    pub(crate) op: VideoOp,
    pub(crate) signed: bool,
    pub(crate) a_signed: bool,
    pub(crate) b_signed: bool,
    pub(crate) sat: bool,
    pub(crate) a: Part,
    pub(crate) b: Part,
    pub(crate) second: Second,
}

/// A video instruction on halves or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartwiseVideo {
    pub(crate) op: VideoOp,
    pub(crate) signed: bool,
    pub(crate) a_signed: bool,
    pub(crate) b_signed: bool,
    pub(crate) sat: bool,
    /// 2 or 4.
    pub(crate) parts: u8,
    /// Four bits for each part: which part of the words `a` and `b` together is an operand.
    pub(crate) a: u16,
    pub(crate) b: u16,
    /// A bit for each part that is written, or added.
    pub(crate) mask: u8,
    /// Adds the parts to the third operand instead of replacing those of it.
    pub(crate) sums: bool,
}

pub(crate) fn video(how: Video, a: u32, b: u32, c: u32) -> u32 {
    let (x, y) = (how.a.extract(a, how.a_signed), how.b.extract(b, how.b_signed));
    if let VideoOp::MulAdd { plus_one, shift } = how.op {
        return multiply_add(how, (x, y), c, plus_one, shift);
    }
    let (bits, _) = match how.second {
        Second::Merge(part) => part.bits(),
        _ => (32, 0),
    };
    let result = operate(how.op, x, y);
    let result = if how.sat { clamp(result, bits, how.signed) } else { result } as u32;
    let smaller = || match how.signed {
        true => result.cast_signed() < c.cast_signed(),
        false => result < c,
    };
    match how.second {
        Second::None => result,
        Second::Add => result.wrapping_add(c),
        Second::Min => {
            if smaller() {
                result
            } else {
                c
            }
        }
        Second::Max => {
            if smaller() {
                c
            } else {
                result
            }
        }
        Second::Merge(part) => part.replace(c, result),
    }
}

fn multiply_add(how: Video, (x, y): (i64, i64), c: u32, plus_one: bool, shift: u8) -> u32 {
    let signed = how.a_signed || how.b_signed;
    let sum = i128::from(x) * i128::from(y) + i128::from(extend(c, 32, signed)) + i128::from(plus_one);
    let sum = sum >> shift;
    if how.sat { clamp(sum, 32, signed) as u32 } else { sum as u32 }
}

pub(crate) fn video_parts(how: PartwiseVideo, a: u32, b: u32, c: u32) -> u32 {
    let bits = 32 / u32::from(how.parts);
    let words = u64::from(b) << 32 | u64::from(a);
    let mut result = c;
    for part in 0..u32::from(how.parts) {
        if how.mask >> part & 1 == 0 {
            continue;
        }
        let operand = |selectors: u16, signed| {
            let index = u32::from(selectors >> (4 * part) & 0xf);
            extend((words >> (index * bits)) as u32, bits, signed)
        };
        let value = operate(how.op, operand(how.a, how.a_signed), operand(how.b, how.b_signed));
        let value = if how.sat { clamp(value, bits, how.signed) } else { value } as u32;
        let mask = u32::MAX >> (32 - bits) << (part * bits);
        result = match how.sums {
            true => result.wrapping_add(value),
            false => result & !mask | value << (part * bits) & mask,
        };
    }
    result
}

fn extend(word: u32, bits: u32, signed: bool) -> i64 {
    let left = 64 - bits;
    let moved = u64::from(word) << left;
    if signed { moved.cast_signed() >> left } else { (moved >> left).cast_signed() }
}

fn clamp(value: i128, bits: u32, signed: bool) -> i128 {
    match signed {
        true => value.clamp(-1 << (bits - 1), (1 << (bits - 1)) - 1),
        false => value.clamp(0, (1 << bits) - 1),
    }
}

fn operate(op: VideoOp, x: i64, y: i64) -> i128 {
    let amount = |mode| match mode {
        FunnelMode::Wrap => y & 31,
        FunnelMode::Clamp => y.min(32),
    };
    let (wide_x, wide_y) = (i128::from(x), i128::from(y));
    match op {
        VideoOp::Add => wide_x + wide_y,
        VideoOp::Sub => wide_x - wide_y,
        VideoOp::AbsDiff => (wide_x - wide_y).abs(),
        VideoOp::Min => wide_x.min(wide_y),
        VideoOp::Max => wide_x.max(wide_y),
        VideoOp::Average => (wide_x + wide_y + i128::from(x + y >= 0)) >> 1,
        VideoOp::ShiftLeft(mode) => wide_x << amount(mode),
        VideoOp::ShiftRight(mode) => wide_x >> amount(mode),
        VideoOp::MulAdd { .. } => unreachable!("it has an operand more"),
        VideoOp::Compare { less, equal, greater } => i128::from(x < y && less || x == y && equal || x > y && greater),
    }
}
