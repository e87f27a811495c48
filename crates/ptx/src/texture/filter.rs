//! The arithmetic of filters: from coordinates to texels and weights, and from weighted texels to a result.
//!
//! A weight has 8 bits of fraction. Where several dimensions are filtered, the products of their weights are rounded to
//! 8 bits too, in an order in which their sum stays one. Two details that the documentation leaves open were measured
//! on an H200: how products are rounded, and how many bits of the texels are added.

use super::description::AddressMode;

/// The weight 1.
pub(super) const ONE: u32 = 256;

/// The texels at a coordinate with a linear filter: an index, the next one, and the weight of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Between {
    pub(super) index: i64,
    pub(super) weight: u32,
}

/// Returns the texels around a coordinate in texels.
pub(super) fn between(coordinate: f64) -> Between {
    let fixed = fixed_point(coordinate) - i64::from(ONE) / 2;
    Between { index: fixed >> 8, weight: (fixed & 0xff) as u32 }
}

/// Returns the texel at a coordinate in texels.
pub(super) fn nearest(coordinate: f64) -> i64 {
    // A cast saturates, and takes NaN to zero.
    coordinate.floor() as i64
}

/// Rounds a number to 8 bits of fraction, with ties rounded up.
pub(super) fn fixed_point(number: f64) -> i64 {
    (number.clamp(-1e9, 1e9) * f64::from(ONE) + 0.5).floor() as i64
}

/// Returns the texel that an index refers to in `size` texels; `None` is the border.
pub(super) fn resolve(index: i64, size: u32, mode: AddressMode) -> Option<u32> {
    let size = i64::from(size);
    let inside = match mode {
        AddressMode::Wrap => index.rem_euclid(size),
        AddressMode::Clamp => index.clamp(0, size - 1),
        AddressMode::Mirror => {
            let within = index.rem_euclid(2 * size);
            within.min(2 * size - 1 - within)
        }
        AddressMode::Border if (0..size).contains(&index) => index,
        AddressMode::Border => return None,
    };
    Some(inside as u32)
}

/// A product of two weights.
fn product(a: u32, b: u32) -> u32 {
    (a * b + ONE / 2) / ONE
}

/// Returns the weights of the corners of a box whose sum is `total`. A bit of a corner's number is set if it is the
/// next texel in that dimension; `next` has the weights of those.
pub(super) fn corners(total: u32, next: [u32; 3]) -> [u32; 8] {
    let far = product(total, next[2]);
    let [near, far] = [total - far, far].map(|slice| plane(slice, next));
    [near[0], near[1], near[2], near[3], far[0], far[1], far[2], far[3]]
}

/// Returns the weights of the corners of a rectangle whose sum is `total`. Those on one diagonal are rounded products.
fn plane(total: u32, [across, down, _]: [u32; 3]) -> [u32; 4] {
    let right = product(total, across);
    let left = total - right;
    let (first, last) = (product(left, ONE - down), product(right, down));
    [first, right - last, left - first, last]
}

/// The bits of a floating-point format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Precision {
    /// The number of bits of a result.
    bits: i32,
    /// The exponent of the smallest number.
    exponent_min: i32,
}

impl Precision {
    /// The bits of a texel that are added, beyond the first one of the largest texel: four more than a number has.
    fn fraction_bits(self) -> i32 {
        self.bits + 3
    }
}

pub(super) const SINGLE: Precision = Precision { bits: 24, exponent_min: -149 };
pub(super) const HALF: Precision = Precision { bits: 11, exponent_min: -24 };

/// Returns the sum of numbers with weights, whose sum is [`ONE`].
pub(super) fn weighted_sum(terms: &[(f32, u32)], precision: Precision) -> u32 {
    const NAN: u32 = 0x7fff_ffff;
    let terms = || terms.iter().filter(|(_, weight)| *weight != 0).copied();
    let has_infinity = |sign: f32| terms().any(|(value, _)| value == sign * f32::INFINITY);
    match (has_infinity(1.0), has_infinity(-1.0)) {
        _ if terms().any(|(value, _)| value.is_nan()) => return NAN,
        (true, true) => return NAN,
        (true, false) => return f32::INFINITY.to_bits(),
        (false, true) => return f32::NEG_INFINITY.to_bits(),
        (false, false) => {}
    }
    let Some(largest) = terms().filter(|(value, _)| value.is_normal()).map(|(value, _)| exponent(value)).max() else {
        let is_negative = terms().all(|(value, _)| value.is_sign_negative());
        return if is_negative { (-0.0f32).to_bits() } else { 0 };
    };
    let unit = f64::from(precision.fraction_bits() - largest).exp2();
    // A cast rounds towards zero, and denormal numbers are zero.
    let aligned = |value: f32| if value.is_normal() { (f64::from(value) * unit) as i64 } else { 0 };
    let sum: i64 = terms().map(|(value, weight)| aligned(value) * i64::from(weight)).sum();
    round(sum, largest - precision.fraction_bits() - 8, precision)
}

fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32 - 127
}

/// Rounds `sum` times two to a power to a floating-point number, with ties away from zero.
fn round(sum: i64, power: i32, precision: Precision) -> u32 {
    let magnitude = sum.unsigned_abs();
    let digits = (64 - magnitude.leading_zeros()) as i32;
    let dropped = (digits - precision.bits).max(precision.exponent_min - power).max(0);
    if dropped >= 63 {
        return 0;
    }
    let rounded = if dropped > 0 { (magnitude + (1 << (dropped - 1))) >> dropped } else { magnitude };
    let value = (rounded as f64 * f64::from(power + dropped).exp2()) as f32;
    let value = if value.is_normal() { value } else { 0.0 };
    (if sum < 0 { -value } else { value }).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_outside_follow_the_address_mode() {
        let all = |mode| [-5, -1, 0, 3, 4, 7, 8, 9].map(|index| resolve(index, 4, mode));
        assert_eq!(all(AddressMode::Wrap), [3, 3, 0, 3, 0, 3, 0, 1].map(Some));
        assert_eq!(all(AddressMode::Clamp), [0, 0, 0, 3, 3, 3, 3, 3].map(Some));
        assert_eq!(all(AddressMode::Mirror), [3, 0, 0, 3, 3, 0, 0, 1].map(Some));
        assert_eq!(all(AddressMode::Border), [None, None, Some(0), Some(3), None, None, None, None]);
    }

    #[test]
    fn weights_have_eight_bits_of_fraction() {
        assert_eq!(between(0.5), Between { index: 0, weight: 0 });
        assert_eq!(between(1.0), Between { index: 0, weight: 128 });
        assert_eq!(between(0.25), Between { index: -1, weight: 192 });
        assert_eq!(between(1.5 - 1.0 / 256.0), Between { index: 0, weight: 255 });
        // A coordinate in the middle of two weights has the larger one.
        assert_eq!(between(0.5 + 3.0 / 2048.0), Between { index: 0, weight: 0 });
        assert_eq!(between(0.5 + 4.0 / 2048.0), Between { index: 0, weight: 1 });
    }

    #[test]
    fn products_of_weights_are_rounded_and_their_sum_is_one() {
        // Found with an H200.
        assert_eq!(corners(ONE, [68, 17, 0]), [176, 63, 12, 5, 0, 0, 0, 0]);
        assert_eq!(corners(ONE, [238, 51, 0]), [14, 191, 4, 47, 0, 0, 0, 0]);
        assert_eq!(corners(ONE, [37, 148, 37]), [79, 13, 108, 19, 14, 2, 18, 3]);
        assert_eq!(corners(ONE, [148, 111, 111]), [35, 48, 26, 36, 27, 36, 20, 28]);
        for next in [[0, 0, 0], [255, 255, 255], [1, 128, 255], [255, 1, 1], [128, 128, 128]] {
            assert_eq!(corners(ONE, next).iter().sum::<u32>(), ONE);
            assert_eq!(corners(77, next).iter().sum::<u32>(), 77);
        }
    }

    #[test]
    fn sums_have_twenty_eight_bits_of_the_largest_texel() {
        // Found with an H200: of 1e-7 beside 1, a few bits are lost.
        assert_eq!(weighted_sum(&[(1.0, 1), (1e-7, 255)], SINGLE), 0x3b80_00cf);
        assert_eq!(weighted_sum(&[(1.0, 11), (1e-7, 245)], SINGLE), 0x3d30_0019);
        assert_eq!(weighted_sum(&[(1.0, 128), (2.0, 128)], SINGLE), 1.5f32.to_bits());
        assert_eq!(weighted_sum(&[(-0.0, 256), (1.0, 0)], SINGLE), 0x8000_0000);
        assert_eq!(weighted_sum(&[(f32::INFINITY, 1), (1.0, 255)], SINGLE), f32::INFINITY.to_bits());
        assert_eq!(weighted_sum(&[(f32::NAN, 1), (1.0, 255)], SINGLE), 0x7fff_ffff);
        assert_eq!(weighted_sum(&[(1e-40, 128), (3e-39, 128)], SINGLE), 0);
        // The sum of halves is a half, and has fewer bits of them.
        assert_eq!(weighted_sum(&[(1.0, 1), (0.000_1, 255)], HALF), 0x3b82_0000);
        assert_eq!(weighted_sum(&[(1.0, 255), (2.0, 1)], HALF), 0x3f80_8000);
        assert_eq!(weighted_sum(&[(1.0, 255), (1.0625, 1)], HALF), 0x3f80_0000);
    }
}
