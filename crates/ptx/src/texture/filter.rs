//! From a coordinate to texels and their weights. A weight has 8 bits of fraction.

use super::AddressMode;

/// One in the format of weights.
pub(super) const ONE: u32 = 256;

/// The texels at a coordinate with a linear filter: an index, the next one, and the weight of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Between {
    pub(super) index: i64,
    pub(super) weight: u32,
}

/// Returns the texels around a coordinate in texels.
pub(super) fn between(coordinate: f32) -> Between {
    let fixed = fixed_point(coordinate) - i64::from(ONE) / 2;
    Between { index: fixed >> 8, weight: (fixed & 0xff) as u32 }
}

/// Returns the texel at a coordinate in texels.
pub(super) fn nearest(coordinate: f32) -> i64 {
    // A cast saturates, and takes NaN to zero.
    coordinate.floor() as i64
}

/// Rounds a coordinate to 8 bits of fraction.
fn fixed_point(coordinate: f32) -> i64 {
    let limited = f64::from(coordinate).clamp(-1e9, 1e9);
    (limited * f64::from(ONE)).round_ties_even() as i64
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

/// Returns the sum of values with weights, whose sum is [`ONE`] to the power of `dimensions`.
pub(super) fn weighted_sum(terms: &[(f32, u32)], dimensions: u32) -> f32 {
    let scale = f64::from(ONE.pow(dimensions));
    let sum =
        terms.iter().filter(|(_, weight)| *weight != 0).map(|&(value, weight)| f64::from(value) * f64::from(weight));
    (sum.sum::<f64>() / scale) as f32
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
    }
}
