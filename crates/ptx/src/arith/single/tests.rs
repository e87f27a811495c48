//! Corner cases of f32, as bits, and the fast paths against exact arithmetic.

use proptest::prelude::*;

use super::*;
use crate::arith::approximate::*;
use crate::arith::random::cases;

const MINUS_ZERO: u32 = 0x8000_0000;
const MINUS_ONE: u32 = 0xbf80_0000;
const TWO: u32 = 0x4000_0000;
const INFINITY: u32 = 0x7f80_0000;
const MINUS_INFINITY: u32 = 0xff80_0000;
const MOST: u32 = 0x7f7f_ffff;
const SIGNALING: u32 = 0xff81_2345;
const LEAST: u32 = 0x0000_0001;
const BIGGEST_SUBNORMAL: u32 = 0x007f_ffff;

const NEAREST: Mode = Mode::NEAREST;
const FTZ: Mode = Mode::NEAREST_FTZ;
const SAT: Mode = Mode { sat: true, ..NEAREST };
const DOWN: Mode = Mode { rounding: Rounding::Down, ..Mode::NEAREST };
const UP: Mode = Mode { rounding: Rounding::Up, ..Mode::NEAREST };
const ZERO: Mode = Mode { rounding: Rounding::Zero, ..Mode::NEAREST };

#[test]
fn every_nan_of_arithmetic_is_the_same() {
    for mode in [NEAREST, FTZ, DOWN, ZERO] {
        assert_eq!(add(SIGNALING, ONE, mode), 0x7fff_ffff);
        assert_eq!(add(INFINITY, MINUS_INFINITY, mode), 0x7fff_ffff);
        assert_eq!(sub(INFINITY, INFINITY, mode), 0x7fff_ffff);
        assert_eq!(mul(0, INFINITY, mode), 0x7fff_ffff);
        assert_eq!(fma(0, INFINITY, ONE, mode), 0x7fff_ffff);
        assert_eq!(fma(ONE, INFINITY, MINUS_INFINITY, mode), 0x7fff_ffff);
        assert_eq!(div(0, MINUS_ZERO, mode), 0x7fff_ffff);
        assert_eq!(sqrt(MINUS_ONE, mode), 0x7fff_ffff);
        assert_eq!(rcp(SIGNALING, mode), 0x7fff_ffff);
    }
}

#[test]
fn infinities_go_through() {
    for mode in [NEAREST, FTZ, UP] {
        assert_eq!(add(INFINITY, MOST, mode), INFINITY);
        assert_eq!(mul(INFINITY, MINUS_ONE, mode), MINUS_INFINITY);
        assert_eq!(fma(INFINITY, MINUS_ONE, MOST, mode), MINUS_INFINITY);
        assert_eq!(fma(ONE, ONE, MINUS_INFINITY, mode), MINUS_INFINITY);
        assert_eq!(div(ONE, MINUS_ZERO, mode), MINUS_INFINITY);
        assert_eq!(rcp(MINUS_INFINITY, mode), MINUS_ZERO);
        assert_eq!(sqrt(INFINITY, mode), INFINITY);
    }
}

#[test]
fn a_difference_of_equals_is_negative_only_when_rounding_down() {
    for mode in [NEAREST, UP, ZERO, FTZ] {
        assert_eq!(sub(ONE, ONE, mode), 0);
        assert_eq!(add(0, MINUS_ZERO, mode), 0);
        assert_eq!(fma(ONE, ONE, MINUS_ONE, mode), 0);
    }
    assert_eq!(sub(ONE, ONE, DOWN), MINUS_ZERO);
    assert_eq!(add(0, MINUS_ZERO, DOWN), MINUS_ZERO);
    assert_eq!(fma(ONE, ONE, MINUS_ONE, DOWN), MINUS_ZERO);
    for mode in [NEAREST, DOWN, UP, ZERO] {
        assert_eq!(add(MINUS_ZERO, MINUS_ZERO, mode), MINUS_ZERO);
        assert_eq!(add(0, 0, mode), 0);
        assert_eq!(mul(0, MINUS_ONE, mode), MINUS_ZERO);
        assert_eq!(sqrt(MINUS_ZERO, mode), MINUS_ZERO);
    }
}

#[test]
fn a_tie_rounds_to_even_or_by_the_rounding_mode() {
    // 1 + 2^-24 is halfway between 1 and the next number.
    let half_step = 0x3380_0000;
    assert_eq!(add(ONE, half_step, NEAREST), 0x3f80_0000);
    assert_eq!(add(0x3f80_0001, half_step, NEAREST), 0x3f80_0002);
    assert_eq!(add(ONE, half_step, UP), 0x3f80_0001);
    assert_eq!(add(ONE, half_step, DOWN), 0x3f80_0000);
    assert_eq!(add(ONE | SIGN, half_step | SIGN, DOWN), 0xbf80_0001);
    assert_eq!(add(ONE | SIGN, half_step | SIGN, UP), 0xbf80_0000);
    assert_eq!(add(0x3f80_0001, half_step, ZERO), 0x3f80_0001);
}

#[test]
fn a_fused_sum_is_rounded_once() {
    // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24; minus 1 + 2^-11 leaves 2^-24, which a rounded product would have lost.
    assert_eq!(fma(0x3f80_0800, 0x3f80_0800, 0xbf80_1000, NEAREST), 0x3380_0000);
    // 1 + 2^-24 is a tie; a last bit far below decides it.
    assert_eq!(fma(0x3f80_0001, 0x3380_0000, ONE, NEAREST), 0x3f80_0001);
    assert_eq!(fma(0x3f7f_ffff, 0x3380_0000, ONE, NEAREST), 0x3f80_0000);
    // The tie is missed by 2^-70, which a double cannot represent beside 1.
    assert_eq!(fma(0x3f80_0001, 0x337f_fffe, 0x3f80_0001, NEAREST), 0x3f80_0001);
}

#[test]
fn subnormals_count_unless_flushed() {
    assert_eq!(add(LEAST, LEAST, NEAREST), 2);
    assert_eq!(add(LEAST, LEAST, FTZ), 0);
    assert_eq!(add(LEAST | SIGN, MINUS_ZERO, FTZ), MINUS_ZERO);
    // The operands are normal, the difference is not.
    assert_eq!(sub(0x0080_0001, 0x0080_0000, NEAREST), LEAST);
    assert_eq!(sub(0x0080_0001, 0x0080_0000, FTZ), 0);
    assert_eq!(sub(0x0080_0000, 0x0080_0001, FTZ), MINUS_ZERO);
    assert_eq!(mul(0x0080_0000, 0x3f00_0000, NEAREST), 0x0040_0000);
    assert_eq!(mul(0x0080_0000, 0xbf00_0000, FTZ), MINUS_ZERO);
    assert_eq!(div(ONE, LEAST, NEAREST), INFINITY);
    assert_eq!(div(LEAST, LEAST, FTZ), NAN);
    assert_eq!(rcp(LEAST | SIGN, FTZ), MINUS_INFINITY);
    assert_eq!(sqrt(LEAST, FTZ), 0);
    assert_eq!(sqrt(LEAST | SIGN, FTZ), MINUS_ZERO);
    assert_eq!(sqrt(LEAST | SIGN, NEAREST), NAN);
    assert_eq!(mul(LEAST, 0x3f00_0000, UP), LEAST);
    assert_eq!(mul(LEAST, 0x3f00_0000, NEAREST), 0);
}

#[test]
fn saturation_clamps_to_zero_and_one() {
    assert_eq!(add(ONE, ONE, SAT), ONE);
    assert_eq!(add(MINUS_ONE, 0x3f00_0000, SAT), 0);
    assert_eq!(add(0x3e80_0000, 0x3e80_0000, SAT), 0x3f00_0000);
    assert_eq!(add(SIGNALING, ONE, SAT), 0);
    assert_eq!(mul(INFINITY, ONE, SAT), ONE);
    assert_eq!(mul(INFINITY, MINUS_ONE, SAT), 0);
    assert_eq!(fma(0, INFINITY, ONE, SAT), 0);
    assert_eq!(mul(MINUS_ZERO, ONE, SAT), 0);
    assert_eq!(add(LEAST, 0, SAT), LEAST);
    assert_eq!(add(LEAST, 0, Mode { ftz: true, ..SAT }), 0);
}

#[test]
fn min_and_max_prefer_numbers_and_order_the_zeros() {
    let plain = MinMax::default();
    let nan = MinMax { nan: true, ..plain };
    let ftz = MinMax { ftz: true, ..plain };
    assert_eq!(min(ONE, TWO, plain), ONE);
    assert_eq!(max(ONE, TWO, plain), TWO);
    assert_eq!(min(MINUS_ONE, INFINITY, plain), MINUS_ONE);
    assert_eq!(max(MINUS_INFINITY, MINUS_ONE, plain), MINUS_ONE);
    for (a, b) in [(0, MINUS_ZERO), (MINUS_ZERO, 0)] {
        assert_eq!(min(a, b, plain), MINUS_ZERO);
        assert_eq!(max(a, b, plain), 0);
    }
    for of in [min, max] {
        assert_eq!(of(SIGNALING, ONE, plain), ONE);
        assert_eq!(of(ONE, SIGNALING, plain), ONE);
        assert_eq!(of(SIGNALING, ONE, nan), NAN);
        assert_eq!(of(ONE, SIGNALING, nan), NAN);
        assert_eq!(of(SIGNALING, SIGNALING, plain), NAN);
    }
    assert_eq!(min(LEAST, BIGGEST_SUBNORMAL, plain), LEAST);
    assert_eq!(max(LEAST, BIGGEST_SUBNORMAL, ftz), 0);
    assert_eq!(min(LEAST | SIGN, SIGNALING, ftz), MINUS_ZERO);
}

#[test]
fn the_sign_of_a_magnitude_is_the_product_of_the_signs() {
    let how = MinMax { xorsign_abs: true, ..MinMax::default() };
    assert_eq!(min(MINUS_ONE, TWO, how), MINUS_ONE);
    assert_eq!(max(MINUS_ONE, TWO, how), TWO | SIGN);
    assert_eq!(max(MINUS_ONE, TWO | SIGN, how), TWO);
    assert_eq!(min(NAN, MINUS_ONE, how), MINUS_ONE);
    assert_eq!(min(NAN | SIGN, NAN, how), NAN);
}

#[test]
fn signs_change_without_arithmetic() {
    assert_eq!(abs(MINUS_ONE, false), ONE);
    assert_eq!(neg(ONE, false), MINUS_ONE);
    assert_eq!(abs(LEAST | SIGN, false), LEAST);
    assert_eq!(abs(LEAST | SIGN, true), 0);
    assert_eq!(neg(LEAST, true), MINUS_ZERO);
    assert_eq!(copysign(MINUS_ZERO, ONE), MINUS_ONE);
    assert_eq!(copysign(0, SIGNALING), SIGNALING & !SIGN);
}

#[test]
fn properties_distinguish_the_kinds() {
    use Property::{Finite, Infinite, Normal, NotANumber, Number, Subnormal};
    let kinds = [Finite, Infinite, Number, NotANumber, Normal, Subnormal];
    for (value, expected) in [
        (MINUS_ZERO, [true, false, true, false, true, false]),
        (ONE, [true, false, true, false, true, false]),
        (LEAST | SIGN, [true, false, true, false, false, true]),
        (BIGGEST_SUBNORMAL, [true, false, true, false, false, true]),
        (0x0080_0000, [true, false, true, false, true, false]),
        (MOST, [true, false, true, false, true, false]),
        (MINUS_INFINITY, [false, true, true, false, false, false]),
        (SIGNALING, [false, false, false, true, false, false]),
    ] {
        assert_eq!(kinds.map(|kind| testp(kind, value)), expected, "{value:#x}");
    }
}

#[test]
fn nan_has_no_order_and_zeros_are_equal() {
    assert_eq!(compare(0, MINUS_ZERO, false), Some(Ordering::Equal));
    assert_eq!(compare(MINUS_ONE, ONE, false), Some(Ordering::Less));
    assert_eq!(compare(NAN, NAN, false), None);
    assert_eq!(compare(LEAST, 0, false), Some(Ordering::Greater));
    assert_eq!(compare(LEAST, LEAST | SIGN, true), Some(Ordering::Equal));
}

#[test]
fn approximations_have_the_documents_special_values() {
    type Unary = fn(u32, bool) -> u32;
    let inputs = [MINUS_INFINITY, MINUS_ONE, MINUS_ZERO, 0, INFINITY, SIGNALING];
    let tables: [(&str, Unary, [u32; 6]); 7] = [
        ("rcp", rcp_approx, [MINUS_ZERO, MINUS_ONE, MINUS_INFINITY, INFINITY, 0, NAN]),
        ("sqrt", sqrt_approx, [NAN, NAN, MINUS_ZERO, 0, INFINITY, NAN]),
        ("rsqrt", rsqrt_approx, [NAN, NAN, MINUS_INFINITY, INFINITY, 0, NAN]),
        ("sin", sin_approx, [NAN, 0xbf57_6aa4, MINUS_ZERO, 0, NAN, NAN]),
        ("cos", cos_approx, [NAN, 0x3f0a_5140, ONE, ONE, NAN, NAN]),
        ("ex2", ex2_approx, [0, 0x3f00_0000, ONE, ONE, INFINITY, NAN]),
        ("lg2", lg2_approx, [NAN, NAN, MINUS_INFINITY, MINUS_INFINITY, INFINITY, NAN]),
    ];
    for (name, function, expected) in tables {
        for ftz in [false, true] {
            assert_eq!(inputs.map(|a| function(a, ftz)), expected, "{name}");
        }
    }
    let tanh = [MINUS_INFINITY, MINUS_ZERO, LEAST | SIGN, BIGGEST_SUBNORMAL, INFINITY, SIGNALING].map(tanh_approx);
    assert_eq!(tanh, [MINUS_ONE, MINUS_ZERO, LEAST | SIGN, BIGGEST_SUBNORMAL, ONE, NAN]);
}

#[test]
fn approximations_flush_only_with_ftz() {
    assert_eq!(rcp_approx(LEAST, true), INFINITY);
    assert_eq!(rcp_approx(0x7e80_0001, true), 0);
    assert_eq!(rcp_approx(0x7e80_0001, false), 0x007f_ffff);
    assert_eq!(lg2_approx(LEAST, true), MINUS_INFINITY);
    assert_eq!(lg2_approx(LEAST, false), 0xc315_0000);
    assert_eq!(ex2_approx(0xc300_0000, true), 0);
    assert_eq!(ex2_approx(0xc300_0000, false), 0x0020_0000);
    assert_eq!(sqrt_approx(LEAST, false), 0x1a35_04f3);
    assert_eq!(sqrt_approx(LEAST, true), 0);
    assert_eq!(sin_approx(LEAST | SIGN, false), MINUS_ZERO);
}

#[test]
fn an_approximate_quotient_by_a_huge_divisor_is_zero() {
    let huge = 0x7e80_0001;
    assert_eq!(div_approx(ONE, huge, false), 0);
    assert_eq!(div_approx(ONE, huge | SIGN, false), MINUS_ZERO);
    assert_eq!(div_approx(INFINITY, huge, false), NAN);
    assert_eq!(div_approx(ONE, 0x7e80_0000, false), 0x0080_0000);
    assert_eq!(div_approx(ONE, INFINITY, false), 0);
    assert_eq!(div_full(huge, huge, false), ONE);
    assert_eq!(div_full(ONE, 0, false), INFINITY);
}

/// Bits that are often near one with few digits, so that sums cancel and ties occur.
fn operand_bits() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        (0x3d80_0000u32..0x4180_0000, 0..24, any::<bool>())
            .prop_map(|(bits, cut, negative)| bits >> cut << cut | if negative { SIGN } else { 0 }),
        0u32..0x0200_0000,
        (0x7e00_0000u32..0x7f80_0003),
    ]
}

proptest! {
    #![proptest_config(cases(2000, 20_000, 400_000))]

    #[test]
    fn the_fast_paths_are_exact(a in operand_bits(), b in operand_bits(), c in operand_bits()) {
        let [x, y, z] = [a, b, c].map(u64::from);
        let way = Rounding::Nearest;
        prop_assert_eq!(u64::from(add(a, b, NEAREST)), softfloat::add(LAYOUT, x, y, way));
        prop_assert_eq!(u64::from(mul(a, b, NEAREST)), softfloat::mul(LAYOUT, x, y, way));
        prop_assert_eq!(u64::from(fma(a, b, c, NEAREST)), softfloat::fma(LAYOUT, x, y, z, way));
        prop_assert_eq!(u64::from(div(a, b, NEAREST)), softfloat::div(LAYOUT, x, y, way));
    }
}

#[test]
fn flushing_is_decided_from_24_bits() {
    let (up, zero) = (Mode { ftz: true, ..UP }, Mode { ftz: true, ..ZERO });
    // 2^-126 less 2^-150 is a number of 24 bits, and flushed; only without `ftz` is it rounded to a subnormal's bits.
    assert_eq!(mul(0x3f7f_ffff, SMALLEST_NORMAL, NEAREST), SMALLEST_NORMAL);
    assert_eq!([FTZ, up, zero].map(|mode| mul(0x3f7f_ffff, SMALLEST_NORMAL, mode)), [0, 0, 0]);
    assert_eq!(mul(0xbf7f_ffff, SMALLEST_NORMAL, FTZ), MINUS_ZERO);
    // 2^-126 less 2^-151 is not, and rounded to 2^-126.
    let less = |mode| fma(0xa680_0000, 0x0d00_0000, SMALLEST_NORMAL, mode);
    assert_eq!([FTZ, up, zero].map(less), [SMALLEST_NORMAL, SMALLEST_NORMAL, 0]);
    assert_eq!(fma(0xa680_0000, 0x0d80_0000, SMALLEST_NORMAL, FTZ), 0);
    assert_eq!(div(0x00ff_ffff, TWO, FTZ), 0);
    assert_eq!(div(0x00ff_ffff, TWO, NEAREST), SMALLEST_NORMAL);
}

proptest! {
    #![proptest_config(cases(2000, 20_000, 400_000))]

    #[test]
    fn the_fast_paths_flush_what_the_exact_ones_do(
        a in any::<u32>(), b in any::<u32>(), c in any::<u32>(), nearness in 0u32..4, ones in 0u32..24
    ) {
        // Exponents that put products and quotients near the smallest normal number, fractions with ones at the top.
        let near = |bits: u32, exponent: u32| bits & SIGN | exponent << 23 | (bits >> 9 | !(u32::MAX >> ones) >> 9);
        let exact = LAYOUT.with_ftz(true);
        let (x, y) = (near(a, 126 - 60 + nearness), near(b, 60));
        prop_assert_eq!(mul(x, y, FTZ), softfloat::mul(exact, x.into(), y.into(), Rounding::Nearest) as u32);
        prop_assert_eq!(div(y, near(a, 186), FTZ), softfloat::div(exact, y.into(), near(a, 186).into(), Rounding::Nearest) as u32);
        let z = near(c, 1 + nearness);
        let sum = softfloat::fma(exact, x.into(), y.into(), z.into(), Rounding::Nearest) as u32;
        prop_assert_eq!(fma(x, y, z, FTZ), sum);
    }
}
