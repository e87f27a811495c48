//! The functions of all lanes against those of one.

use freehold_testing::at_effort;

use super::*;

/// Values around those at which the functions behave differently, then numbers at equal distances among all bits.
fn values() -> Vec<u32> {
    let mut values = vec![0, 1, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fc0_0000];
    for whole in -300..300 {
        let bits = (whole as f32 / 2.0).to_bits();
        values.extend((0..8).map(|distance| bits.wrapping_add(distance).wrapping_sub(4)));
    }
    for power in 0..255u32 {
        values.extend((0..8).map(|distance| (power << 23).wrapping_add(distance).wrapping_sub(4)));
    }
    let step = at_effort(40_009, 4_001, 17);
    values.extend((0..u32::MAX / step).map(|index| index * step));
    values.extend(values.clone().iter().map(|value| value ^ SIGN));
    values.resize(values.len().next_multiple_of(32), 0);
    values
}

fn assert_same(lanes: impl Fn(&[u32; 32], bool) -> [u32; 32], one: impl Fn(u32, bool) -> u32) {
    for ftz in [false, true] {
        for row in values().as_chunks::<32>().0 {
            assert_eq!(lanes(row, ftz), row.map(|a| one(a, ftz)), "{row:x?}, ftz {ftz}");
        }
    }
}

#[test]
fn the_power_of_two_of_all_lanes_is_that_of_each() {
    assert_same(ex2_lanes, ex2_approx);
}

#[test]
fn the_logarithm_of_all_lanes_is_that_of_each() {
    assert_same(lg2_lanes, lg2_approx);
}
