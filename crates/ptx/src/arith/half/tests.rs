//! f16 and bf16, as bits, and all values of f16 against arithmetic in f64.

use freehold_testing::at_effort;
use proptest::prelude::*;

use super::*;
use crate::arith::Rounding;
use crate::arith::random::cases;

const PLAIN: HalfMode = HalfMode { ftz: false, sat: false, relu: false };
const FTZ: HalfMode = HalfMode { ftz: true, ..PLAIN };
const SAT: HalfMode = HalfMode { sat: true, ..PLAIN };
const RELU: HalfMode = HalfMode { relu: true, ..PLAIN };

/// Finds the nearest f16 to `exact` by searching all of them.
fn nearest(exact: f64) -> u16 {
    let magnitude = exact.abs();
    let above = (0..0x7c00).partition_point(|&bits: &u16| Half::F16.value(bits) < magnitude);
    // Half a step beyond the largest number is infinity.
    let limit = 65520.0;
    let bits = if magnitude >= limit {
        0x7c00
    } else if above == 0x7c00 {
        0x7bff
    } else if above == 0 {
        0
    } else {
        let (low, high) = (above - 1, above);
        let (to_low, to_high) = (magnitude - Half::F16.value(low), Half::F16.value(high) - magnitude);
        if to_low < to_high || to_low == to_high && low % 2 == 0 { low } else { high }
    };
    bits | if exact.is_sign_negative() { SIGN } else { 0 }
}

trait Search {
    fn partition_point(self, before: impl Fn(&u16) -> bool) -> u16;
}

impl Search for std::ops::Range<u16> {
    fn partition_point(self, before: impl Fn(&u16) -> bool) -> u16 {
        let (mut low, mut high) = (self.start, self.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&middle) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

#[test]
fn sums_and_products_of_f16_are_the_nearest_to_the_exact_ones() {
    let some = [0x0001, 0x03ff, 0x0400, 0x1234, 0x3c00, 0xbc01, 0x3555, 0x7bff, 0xfbff, 0x8001, 0x6400, 0x9000];
    for a in (0..=0xffffu16).step_by(at_effort(7, 1, 1)).filter(|bits| bits & 0x7c00 != 0x7c00) {
        for b in some {
            let (x, y) = (Half::F16.value(a), Half::F16.value(b));
            // Both are exact in f64.
            assert_eq!(Half::F16.add(a, b, PLAIN), nearest(x + y), "{a:#x} + {b:#x}");
            assert_eq!(Half::F16.mul(a, b, PLAIN), nearest(x * y), "{a:#x} * {b:#x}");
        }
    }
}

#[test]
fn every_nan_of_arithmetic_is_the_same() {
    for (half, infinity, nan) in [(Half::F16, 0x7c00, 0xfc12), (Half::Bf16, 0x7f80, 0xff81)] {
        assert_eq!(half.add(nan, 0, PLAIN), 0x7fff);
        assert_eq!(half.sub(infinity, infinity, PLAIN), 0x7fff);
        assert_eq!(half.mul(infinity, 0, PLAIN), 0x7fff);
        assert_eq!(half.fma(infinity, 0, nan, PLAIN), 0x7fff);
        assert_eq!(half.min(nan, nan, MinMax::default()), 0x7fff);
        assert_eq!(half.max(nan, 1, MinMax { nan: true, ..MinMax::default() }), 0x7fff);
        assert_eq!(half.max(nan, 1, MinMax::default()), 1);
        assert_eq!(half.fma(nan, 0, 0, RELU), 0x7fff);
        assert_eq!(half.fma(nan, 0, 0, SAT), 0);
        assert_eq!(half.tanh_approx(nan), 0x7fff);
        assert_eq!(half.ex2_approx(nan, true), 0x7fff);
    }
}

#[test]
fn a_fused_sum_is_rounded_once() {
    // (1 + 2^-10)^2 - (1 + 2^-9) = 2^-20.
    assert_eq!(Half::F16.fma(0x3c01, 0x3c01, 0xbc02, PLAIN), 0x0010);
    // (1 + 2^-7)^2 - (1 + 2^-6) = 2^-14.
    assert_eq!(Half::Bf16.fma(0x3f81, 0x3f81, 0xbf82, PLAIN), 0x3880);
    // 13 * 21 = 273 is between 272 and 274: 2^-100 decides.
    assert_eq!(Half::Bf16.fma(0x4150, 0x41a8, 0x0d80, PLAIN), 0x4389);
    assert_eq!(Half::Bf16.fma(0x4150, 0x41a8, 0, PLAIN), 0x4388);
}

#[test]
fn results_are_flushed_and_clamped_with_ftz_and_sat() {
    assert_eq!(Half::F16.add(1, 1, PLAIN), 2);
    assert_eq!(Half::F16.add(1, 1, FTZ), 0);
    assert_eq!(Half::F16.mul(0x0400, 0xb800, FTZ), 0x8000);
    assert_eq!(Half::F16.add(0x3c00, 0x3c00, SAT), 0x3c00);
    assert_eq!(Half::F16.sub(0, 0x3c00, SAT), 0);
    assert_eq!(Half::F16.fma(0xbc00, 0x3c00, 0, RELU), 0);
    assert_eq!(Half::F16.fma(0x3c00, 0x3c00, 0, RELU), 0x3c00);
    assert_eq!(Half::Bf16.fma(0xbf80, 0x3f80, 0, RELU), 0);
    assert_eq!(Half::F16.add(0x7bff, 0x7bff, PLAIN), 0x7c00);
    assert_eq!(Half::Bf16.mul(0x7f7f, 0xff7f, PLAIN), 0xff80);
}

#[test]
fn signs_order_and_kinds_are_seen_in_the_bits() {
    assert_eq!(Half::F16.abs(0xbc00, false), 0x3c00);
    assert_eq!(Half::F16.neg(0x0001, true), 0x8000);
    assert_eq!(Half::Bf16.neg(0x0001, false), 0x8001);
    assert_eq!(Half::F16.compare(0x8000, 0, false), Some(Ordering::Equal));
    assert_eq!(Half::F16.compare(0x8001, 0, false), Some(Ordering::Less));
    assert_eq!(Half::F16.compare(0x8001, 0, true), Some(Ordering::Equal));
    assert_eq!(Half::Bf16.compare(0x7fc0, 0, false), None);
    let signs = MinMax { xorsign_abs: true, ..MinMax::default() };
    assert_eq!(Half::F16.max(0xbc00, 0x4000, signs), 0xc000);
}

#[test]
fn approximations_have_the_documents_special_values() {
    let inputs = [0xfc00, 0x8000, 0x0000, 0x0001, 0x7c00, 0xbc00];
    assert_eq!(inputs.map(|a| Half::F16.ex2_approx(a, false)), [0, 0x3c00, 0x3c00, 0x3c00, 0x7c00, 0x3800]);
    assert_eq!(inputs.map(|a| Half::F16.tanh_approx(a)), [0xbc00, 0x8000, 0, 1, 0x3c00, 0xba18]);
    // 2^-16 is subnormal.
    assert_eq!(Half::F16.ex2_approx(0xcc00, false), 0x0100);
    assert_eq!(Half::F16.ex2_approx(0xcc00, true), 0);
    assert_eq!(Half::Bf16.ex2_approx(0xff80, true), 0);
    assert_eq!(Half::Bf16.ex2_approx(0x3f80, true), 0x4000);
    assert_eq!(Half::Bf16.tanh_approx(0xff80), 0xbf80);
}

#[test]
fn pairs_keep_their_halves_apart() {
    let sum = pairs([0x3c00_7bff, 0x4000_7bff], |[a, b]| Half::F16.add(a, b, PLAIN));
    assert_eq!(sum, 0x4200_7c00);
    assert_eq!(pairs([0x8000_0001], |[a]| a + 1), 0x8001_0002);
}

proptest! {
    #![proptest_config(cases(2000, 50_000, 1_000_000))]

    #[test]
    fn the_way_through_doubles_is_exact(a in any::<u16>(), b in any::<u16>(), c in any::<u16>(), near in any::<bool>()) {
        for half in [Half::F16, Half::Bf16] {
            // As large as the product, so that the sum cancels or is a tie.
            let c = if near { half.mul(a, b, PLAIN) ^ SIGN ^ (c & 0x801f) } else { c };
            let [x, y, z] = [a, b, c].map(u64::from);
            let layout = half.layout();
            prop_assert_eq!(u64::from(half.add(a, b, PLAIN)), softfloat::add(layout, x, y, Rounding::Nearest));
            prop_assert_eq!(u64::from(half.mul(a, b, PLAIN)), softfloat::mul(layout, x, y, Rounding::Nearest));
            prop_assert_eq!(u64::from(half.fma(a, b, c, PLAIN)), softfloat::fma(layout, x, y, z, Rounding::Nearest));
        }
    }
}

#[test]
fn every_half_survives_being_a_double() {
    for half in [Half::F16, Half::Bf16] {
        for bits in 0..=0xffff {
            let expected = if half.layout().is_nan(bits.into()) { 0x7fff } else { bits };
            assert_eq!(half.narrow(half.value(bits)), expected, "{half:?}");
        }
    }
}

#[test]
fn flushing_is_decided_from_11_bits() {
    let flushing = HalfMode { ftz: true, ..PLAIN };
    // 2^-14 less 2^-25 and 2^-14 less 2^-26.
    assert_eq!(Half::F16.mul(0x3bff, 0x0400, PLAIN), 0x0400);
    assert_eq!(Half::F16.mul(0x3bff, 0x0400, flushing), 0);
    assert_eq!(Half::F16.fma(0x8800, 0x0800, 0x0400, flushing), 0x0400);
    assert_eq!(Half::F16.fma(0x8800, 0x0c00, 0x0400, flushing), 0);
}
