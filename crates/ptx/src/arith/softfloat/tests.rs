//! Exactness, against an independent implementation of IEEE 754.

use proptest::prelude::*;
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, Round};

use super::*;
use crate::arith::random::cases;

const ROUNDINGS: [Rounding; 5] =
    [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up, Rounding::NearestAway];

fn reference_rounding(rounding: Rounding) -> Round {
    match rounding {
        Rounding::Nearest => Round::NearestTiesToEven,
        Rounding::Zero => Round::TowardZero,
        Rounding::Down => Round::TowardNegative,
        Rounding::Up => Round::TowardPositive,
        Rounding::NearestAway => Round::NearestTiesToAway,
    }
}

/// Returns the bits, with one canonical NaN.
fn bits<F: Float>(layout: Layout, value: F) -> u64 {
    if value.is_nan() { layout.nan } else { value.to_bits() as u64 }
}

/// Compares `add`, `mul`, `fma` and `div` with the reference for three operands.
fn agree<F: Float>(layout: Layout, [a, b, c]: [u64; 3]) -> Result<(), TestCaseError> {
    let [x, y, z] = [a, b, c].map(|bits| F::from_bits(bits.into()));
    for rounding in ROUNDINGS {
        let to = reference_rounding(rounding);
        prop_assert_eq!(add(layout, a, b, rounding), bits(layout, x.add_r(y, to).value), "{:?} add", rounding);
        prop_assert_eq!(mul(layout, a, b, rounding), bits(layout, x.mul_r(y, to).value), "{:?} mul", rounding);
        prop_assert_eq!(div(layout, a, b, rounding), bits(layout, x.div_r(y, to).value), "{:?} div", rounding);
        prop_assert_eq!(
            fma(layout, a, b, c, rounding),
            bits(layout, x.mul_add_r(y, z, to).value),
            "{:?} fma",
            rounding
        );
    }
    Ok(())
}

/// Arbitrary bits; few bits near one, so that sums cancel and ties occur; numbers near zero and infinity.
fn operand(layout: Layout) -> impl Strategy<Value = u64> {
    let all = layout.sign() | (layout.sign() - 1);
    let near = layout.one() - (4 << layout.fraction_bits)..layout.one() + (4 << layout.fraction_bits);
    prop_oneof![
        any::<u64>().prop_map(move |bits| bits & all),
        (near.clone(), any::<bool>()).prop_map(move |(bits, negative)| bits | if negative { layout.sign() } else { 0 }),
        (near, 0..=layout.fraction_bits, any::<bool>())
            .prop_map(move |(bits, cut, negative)| { bits >> cut << cut | if negative { layout.sign() } else { 0 } }),
        (0..1u64 << (layout.fraction_bits + 2)).prop_map(|bits| bits),
        (0u64..9, any::<bool>()).prop_map(move |(distance, negative)| {
            (layout.infinity() + 4 - distance) | if negative { layout.sign() } else { 0 }
        }),
    ]
}

fn three(layout: Layout) -> impl Strategy<Value = [u64; 3]> {
    [operand(layout), operand(layout), operand(layout)]
}

proptest! {
    #![proptest_config(cases(500, 4096, 100_000))]

    #[test]
    fn half_is_rounded_as_the_standard_says(operands in three(Layout::F16)) {
        agree::<Half>(Layout::F16, operands)?;
    }

    #[test]
    fn brain_is_rounded_as_the_standard_says(operands in three(Layout::BF16)) {
        agree::<BFloat>(Layout::BF16, operands)?;
    }

    #[test]
    fn single_is_rounded_as_the_standard_says(operands in three(Layout::F32)) {
        agree::<Single>(Layout::F32, operands)?;
    }

    #[test]
    fn double_is_rounded_as_the_standard_says(operands in three(Layout::F64)) {
        agree::<Double>(Layout::F64, operands)?;
    }

    /// A fused sum that almost cancels: `c` is close to the product.
    #[test]
    fn a_sum_that_almost_cancels_is_exact(
        a in operand(Layout::F64), b in operand(Layout::F64), off in -3i64..4, negative in any::<bool>()
    ) {
        let product = mul(Layout::F64, a, b, Rounding::Nearest);
        let c = product.wrapping_add_signed(off) ^ if negative { Layout::F64.sign() } else { 0 };
        agree::<Double>(Layout::F64, [a, b, c])?;
    }

    /// The square of a root rounded down is at most the operand, that of the next number above it is more.
    #[test]
    fn a_root_lies_between_its_neighbours(a in operand(Layout::F64)) {
        let layout = Layout::F64;
        // The remainder of a very small operand would itself be rounded to zero.
        let a = (a & !layout.sign()).clamp(1000 << 52, f64::MAX.to_bits());
        let [below, above, zero] = [Rounding::Down, Rounding::Up, Rounding::Zero].map(|way| sqrt(layout, a, way));
        let remainder = |root: u64| f64::from_bits(root).mul_add(f64::from_bits(root), -f64::from_bits(a));
        prop_assert!(remainder(below) <= 0.0 && remainder(above) >= 0.0);
        prop_assert_eq!(below, zero);
        let exact = remainder(below) == 0.0;
        prop_assert_eq!(above, below + u64::from(!exact));
        prop_assert_eq!(sqrt(layout, a, Rounding::Nearest), f64::from_bits(a).sqrt().to_bits());
    }

    #[test]
    fn a_root_to_nearest_is_the_processors(a in operand(Layout::F32)) {
        let root = f32::from_bits(a as u32).sqrt();
        let root = if root.is_nan() { Layout::F32.nan } else { root.to_bits().into() };
        prop_assert_eq!(sqrt(Layout::F32, a, Rounding::Nearest), root);
    }

    #[test]
    fn a_single_becomes_an_integer_as_the_processor_does(a in operand(Layout::F32)) {
        let value = f32::from_bits(a as u32);
        let Number::Finite(finite) = unpack(Layout::F32, a) else { return Ok(()) };
        let rounded = |way| round(Layout::F32, Rounding::Nearest, finite.round_to_integral(way)) as u32;
        prop_assert_eq!(rounded(Rounding::Nearest), value.round_ties_even().to_bits());
        prop_assert_eq!(rounded(Rounding::Zero), value.trunc().to_bits());
        prop_assert_eq!(rounded(Rounding::Down), value.floor().to_bits());
        prop_assert_eq!(rounded(Rounding::Up), value.ceil().to_bits());
        prop_assert_eq!(rounded(Rounding::NearestAway), value.round().to_bits());
    }
}

#[test]
fn every_half_round_trips_through_unpack() {
    for layout in [Layout::F16, Layout::BF16] {
        for bits in 0..=0xffff {
            let again = match unpack(layout, bits) {
                Number::NaN => continue,
                Number::Infinite { negative } => infinite(layout, negative),
                Number::Finite(value) => round(layout, Rounding::Nearest, value),
            };
            assert_eq!(again, bits);
        }
    }
}

#[test]
fn one_is_one() {
    assert_eq!(Layout::F16.one(), 0x3c00);
    assert_eq!(Layout::BF16.one(), 0x3f80);
    assert_eq!(Layout::F32.one(), 0x3f80_0000);
    assert_eq!(Layout::F64.one(), 0x3ff0_0000_0000_0000);
}

#[test]
fn an_overflow_goes_where_the_rounding_points() {
    let most = 0x7f7f_ffff;
    let doubled = |a: u64, way| mul(Layout::F32, a, 0x4000_0000, way);
    for (way, positive, negative) in [
        (Rounding::Nearest, 0x7f80_0000, 0xff80_0000),
        (Rounding::NearestAway, 0x7f80_0000, 0xff80_0000),
        (Rounding::Zero, 0x7f7f_ffff, 0xff7f_ffff),
        (Rounding::Down, 0x7f7f_ffff, 0xff80_0000),
        (Rounding::Up, 0x7f80_0000, 0xff7f_ffff),
    ] {
        assert_eq!(doubled(most, way), positive, "{way:?}");
        assert_eq!(doubled(most | 0x8000_0000, way), negative, "{way:?}");
    }
}
