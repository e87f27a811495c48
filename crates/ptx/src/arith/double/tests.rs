//! Corner cases of f64, as bits.

use super::*;

const MINUS_ZERO: u64 = SIGN;
const MINUS_ONE: u64 = ONE | SIGN;
const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const MINUS_INFINITY: u64 = INFINITY | SIGN;
const SIGNALING: u64 = 0xfff0_0000_0005_4321;
const QUIET: u64 = 0x7ff8_0000_0000_0123;
const NEAREST: Rounding = Rounding::Nearest;

#[test]
fn invalid_results_are_the_hardware_nan() {
    for way in [NEAREST, Rounding::Zero, Rounding::Down, Rounding::Up] {
        assert_eq!(add(INFINITY, MINUS_INFINITY, way), 0xfff8_0000_0000_0000);
        assert_eq!(sub(INFINITY, INFINITY, way), 0xfff8_0000_0000_0000);
        assert_eq!(mul(0, INFINITY, way), 0xfff8_0000_0000_0000);
        assert_eq!(fma(0, INFINITY, ONE, way), 0xfff8_0000_0000_0000);
        assert_eq!(div(0, 0, way), 0xfff8_0000_0000_0000);
        assert_eq!(sqrt(MINUS_ONE, way), 0xfff8_0000_0000_0000);
    }
}

#[test]
fn a_nan_is_passed_on_quiet() {
    for way in [NEAREST, Rounding::Up] {
        assert_eq!(add(SIGNALING, ONE, way), 0xfff8_0000_0005_4321);
        assert_eq!(add(ONE, QUIET, way), QUIET);
        assert_eq!(sub(ONE, QUIET, way), QUIET);
        assert_eq!(fma(ONE, INFINITY, SIGNALING, way), 0xfff8_0000_0005_4321);
    }
}

#[test]
fn zeros_and_ties_follow_the_rounding() {
    let half_step = 0x3ca0_0000_0000_0000;
    assert_eq!(add(ONE, half_step, NEAREST), ONE);
    assert_eq!(add(ONE, half_step, Rounding::Up), ONE + 1);
    assert_eq!(add(ONE + 1, half_step, NEAREST), ONE + 2);
    assert_eq!(sub(ONE, half_step >> 1, Rounding::Down), ONE - 1);
    assert_eq!(sub(ONE, ONE, NEAREST), 0);
    assert_eq!(sub(ONE, ONE, Rounding::Down), MINUS_ZERO);
    assert_eq!(fma(ONE, ONE, MINUS_ONE, Rounding::Down), MINUS_ZERO);
    assert_eq!(rcp(MINUS_ZERO, NEAREST), MINUS_INFINITY);
    assert_eq!(div(ONE, 0x4008_0000_0000_0000, Rounding::Down), 0x3fd5_5555_5555_5555);
    assert_eq!(div(ONE, 0x4008_0000_0000_0000, Rounding::Up), 0x3fd5_5555_5555_5556);
    assert_eq!(sqrt(0x4000_0000_0000_0000, Rounding::Zero), 0x3ff6_a09e_667f_3bcc);
    assert_eq!(sqrt(0x4000_0000_0000_0000, Rounding::Up), 0x3ff6_a09e_667f_3bcd);
    assert_eq!(mul(1, 0x3fe0_0000_0000_0000, NEAREST), 0);
    assert_eq!(mul(1, 0x3fe0_0000_0000_0000, Rounding::Up), 1);
}

#[test]
fn of_several_nans_the_second_operands_goes_on_then_the_addend() {
    let [a, b, c] = [0x7ff8_0000_0000_0001, 0xfff0_0000_0000_0002, 0x7ff8_0000_0000_0003];
    let quiet_b = 0xfff8_0000_0000_0002;
    assert_eq!([add(a, b, NEAREST), sub(a, b, NEAREST), mul(a, b, Rounding::Up)], [quiet_b; 3]);
    assert_eq!([min(a, b), max(a, b)], [quiet_b; 2]);
    assert_eq!(fma(a, b, c, NEAREST), quiet_b);
    assert_eq!(fma(a, ONE, c, NEAREST), c);
    assert_eq!(div(a, b, NEAREST), a);
    assert_eq!([abs(b), neg(b)], [quiet_b; 2]);
}

#[test]
fn min_and_max_prefer_numbers_and_order_the_zeros() {
    for (a, b) in [(0, MINUS_ZERO), (MINUS_ZERO, 0)] {
        assert_eq!((min(a, b), max(a, b)), (MINUS_ZERO, 0));
    }
    assert_eq!((min(QUIET, ONE), max(ONE, SIGNALING)), (ONE, ONE));
    assert_eq!((min(MINUS_INFINITY, ONE), max(MINUS_INFINITY, ONE)), (MINUS_INFINITY, ONE));
}

#[test]
fn gross_approximations_have_an_empty_lower_half() {
    let inputs = [MINUS_INFINITY, MINUS_ZERO, 1 | SIGN, 0, 1, INFINITY, 0x4000_0000_0000_0000];
    assert_eq!(
        inputs.map(rcp_approx_ftz),
        [MINUS_ZERO, MINUS_INFINITY, MINUS_INFINITY, INFINITY, INFINITY, 0, 0x3fe0_0000_0000_0000]
    );
    assert_eq!(rcp_approx_ftz(0x4008_0000_ffff_ffff), 0x3fd5_5555_0000_0000);
    assert_eq!(rcp_approx_ftz(QUIET), 0x7fff_ffff_0000_0000);
    assert_eq!(rsqrt_approx_ftz(MINUS_ONE), 0x7fff_ffff_0000_0000);
    assert_eq!(rsqrt_approx_ftz(0x4010_0000_0000_0000), 0x3fe0_0000_0000_0000);
    assert_eq!(rsqrt_approx(0x4010_0000_0000_0000), 0x3fe0_0000_0000_0000);
    assert_eq!(rsqrt_approx(MINUS_ZERO), MINUS_INFINITY);
}

#[test]
fn signs_and_kinds_are_seen_in_the_bits() {
    assert_eq!((abs(MINUS_ONE), neg(ONE), copysign(MINUS_ZERO, ONE)), (ONE, MINUS_ONE, MINUS_ONE));
    assert!(testp(Property::Subnormal, 1) && !testp(Property::Subnormal, 0));
    assert_eq!(compare(0, MINUS_ZERO), Some(Ordering::Equal));
    assert_eq!(compare(QUIET, ONE), None);
}
