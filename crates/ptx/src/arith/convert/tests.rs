//! Corner cases of conversions, and all pairs of formats.

use freehold_testing::at_effort;
use proptest::prelude::*;
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

use super::Format::*;
use super::*;
use crate::arith::packed::{Fp8, pack_fp8, pack_halves, tf32, unpack_fp8};
use crate::arith::random::cases;

const PLAIN: Convert = Convert { rounding: None, integral: false, ftz: false, sat: false, finite: false, relu: false };
const SAT: Convert = Convert { sat: true, ..PLAIN };
const NEAREST: Convert = to(Rounding::Nearest);
const FTZ: Convert = Convert { ftz: true, ..NEAREST };
const RZI: Convert = integral(Rounding::Zero);
const RNI: Convert = integral(Rounding::Nearest);
const RMI: Convert = integral(Rounding::Down);
const RPI: Convert = integral(Rounding::Up);

const fn to(rounding: Rounding) -> Convert {
    Convert { rounding: Some(rounding), ..PLAIN }
}

const fn integral(rounding: Rounding) -> Convert {
    Convert { integral: true, ..to(rounding) }
}

fn single(value: f32) -> u64 {
    value.to_bits().into()
}

#[test]
fn nan_is_zero_unless_one_side_has_64_bits() {
    for from in [F16, Bf16, F32] {
        for to in [U8, S8, U16, S16, U32, S32] {
            assert_eq!(convert(to, from, 0x7fff_ffff, RZI), 0, "{to:?} from {from:?}");
        }
        assert_eq!(convert(S64, from, 0x7fff_ffff, RZI), 0x8000_0000_0000_0000);
        assert_eq!(convert(U64, from, 0x7fff_ffff, RZI), 0x8000_0000_0000_0000);
    }
    let nan = 0x7ff8_0000_0000_0000;
    assert_eq!(convert(S32, F64, nan, RZI), 0xffff_ffff_8000_0000);
    assert_eq!(convert(U32, F64, nan, RZI), 0x8000_0000);
    assert_eq!(convert(U16, F64, nan, RZI), 0x8000);
    assert_eq!(convert(S8, F64, nan, RZI), 0xffff_ffff_ffff_ff80);
    assert_eq!(convert(U64, F64, nan, RZI), 0x8000_0000_0000_0000);
}

#[test]
fn a_float_out_of_range_is_the_nearest_integer() {
    let most = [(U8, 0xff), (U16, 0xffff), (U32, 0xffff_ffff), (U64, u64::MAX)];
    for (to, most) in most {
        assert_eq!(convert(to, F32, single(1e30), RZI), most);
        assert_eq!(convert(to, F32, single(f32::INFINITY), RNI), most);
        assert_eq!(convert(to, F32, single(-1.0), RZI), 0);
        assert_eq!(convert(to, F64, f64::NEG_INFINITY.to_bits(), RZI), 0);
    }
    for (to, most) in [(S8, 0x7f), (S16, 0x7fff), (S32, 0x7fff_ffff), (S64, i64::MAX as u64)] {
        assert_eq!(convert(to, F32, single(1e30), RZI), most);
        assert_eq!(convert(to, F32, single(-1e30), RZI), !most);
        assert_eq!(convert(to, F64, f64::MAX.to_bits(), RPI), most);
        assert_eq!(convert(to, F64, f64::MIN.to_bits(), RPI), !most);
    }
    assert_eq!(convert(S32, F32, single(2147483648.0), RZI), 0x7fff_ffff);
    assert_eq!(convert(S32, F64, (2147483647.5f64).to_bits(), RZI), 0x7fff_ffff);
    assert_eq!(convert(S32, F64, (-2147483648.5f64).to_bits(), RNI), 0xffff_ffff_8000_0000);
    assert_eq!(convert(U8, F32, single(255.5), RNI), 0xff);
}

#[test]
fn float_to_integer_follows_the_rounding_mode() {
    for (value, nearest, zero, down, up) in [
        (0.5, 0, 0, 0, 1),
        (1.5, 2, 1, 1, 2),
        (2.5, 2, 2, 2, 3),
        (-0.5, 0, 0, -1, 0),
        (-1.5, -2, -1, -2, -1),
        (-2.5, -2, -2, -3, -2),
        (7.0, 7, 7, 7, 7),
        (-0.0, 0, 0, 0, 0),
    ] {
        for (how, expected) in [(RNI, nearest), (RZI, zero), (RMI, down), (RPI, up)] {
            let expected: i64 = expected;
            assert_eq!(convert(S64, F32, single(value), how), expected as u64, "{value}");
            assert_eq!(convert(S32, F32, single(value), how), expected as u64, "{value}");
            assert_eq!(convert(S16, F64, f64::from(value).to_bits(), how), expected as u64, "{value}");
        }
    }
    assert_eq!(convert(S32, F32, 1, RPI), 1);
    assert_eq!(convert(S32, F32, 1, Convert { ftz: true, ..RPI }), 0);
    assert_eq!(convert(S32, F16, 1, Convert { ftz: true, ..RPI }), 1);
}

#[test]
fn an_integral_float_keeps_its_sign() {
    assert_eq!(convert(F32, F32, single(-0.25), RNI), 0x8000_0000);
    assert_eq!(convert(F32, F32, single(-0.25), RMI), single(-1.0));
    assert_eq!(convert(F32, F32, single(2.5), RNI), single(2.0));
    assert_eq!(convert(F32, F32, single(2.5), RPI), single(3.0));
    assert_eq!(convert(F32, F32, single(1e30), RZI), single(1e30));
    assert_eq!(convert(F32, F32, 0x7f81_2345, RZI), 0x7fff_ffff);
    assert_eq!(convert(F32, F32, single(f32::NEG_INFINITY), RZI), single(f32::NEG_INFINITY));
    assert_eq!(convert(F64, F64, 1.5f64.to_bits(), RNI), 2f64.to_bits());
    assert_eq!(convert(F16, F16, 0x3800, RPI), 0x3c00);
    assert_eq!(convert(F32, F32, single(2.5), Convert { sat: true, ..RNI }), single(1.0));
}

#[test]
fn integer_to_float_follows_the_rounding_mode() {
    use Rounding::{Down, Nearest, Up, Zero};
    // 2^24 + 1 is a tie, 2^24 + 3 the next one.
    assert_eq!(convert(F32, U32, 0x0100_0001, to(Nearest)), 0x4b80_0000);
    assert_eq!(convert(F32, U32, 0x0100_0003, to(Nearest)), 0x4b80_0002);
    assert_eq!(convert(F32, U32, 0x0100_0001, to(Up)), 0x4b80_0001);
    assert_eq!(convert(F32, U32, 0x0100_0003, to(Zero)), 0x4b80_0001);
    assert_eq!(convert(F32, S32, 0xfeff_ffff, to(Down)), 0xcb80_0001);
    assert_eq!(convert(F32, S32, 0xfeff_ffff, to(Up)), 0xcb80_0000);
    assert_eq!(convert(F32, S32, 0x8000_0000, to(Nearest)), 0xcf00_0000);
    assert_eq!(convert(F32, U32, 0x8000_0000, to(Nearest)), 0x4f00_0000);
    assert_eq!(convert(F64, U64, u64::MAX, to(Nearest)), 0x43f0_0000_0000_0000);
    assert_eq!(convert(F64, U64, u64::MAX, to(Zero)), 0x43ef_ffff_ffff_ffff);
    assert_eq!(convert(F64, S64, u64::MAX, to(Zero)), 0xbff0_0000_0000_0000);
    assert_eq!(convert(F16, U16, 65535, to(Nearest)), 0x7c00);
    assert_eq!(convert(F16, U16, 65535, to(Zero)), 0x7bff);
    assert_eq!(convert(F32, S8, 0x1ff, to(Nearest)), single(-1.0));
    assert_eq!(convert(F32, U8, 0x1ff, to(Nearest)), single(255.0));
    assert_eq!(convert(F32, S32, 5, Convert { sat: true, ..to(Nearest) }), single(1.0));
}

#[test]
fn integers_are_extended_cut_or_clamped() {
    assert_eq!(convert(U32, S8, 0x80, PLAIN), 0xffff_ff80);
    assert_eq!(convert(U32, U8, 0x80, PLAIN), 0x80);
    assert_eq!(convert(S64, S32, 0x8000_0000, PLAIN), 0xffff_ffff_8000_0000);
    assert_eq!(convert(S64, U32, 0x8000_0000, PLAIN), 0x8000_0000);
    assert_eq!(convert(U8, S32, 0x1234_5678, PLAIN), 0x78);
    assert_eq!(convert(S8, U32, 0x1234_5688, PLAIN), 0xffff_ffff_ffff_ff88);
    assert_eq!(convert(U8, S32, 0xffff_ffff, SAT), 0);
    assert_eq!(convert(U8, S32, 256, SAT), 0xff);
    assert_eq!(convert(S8, S32, 0xffff_ff7f, SAT), 0xffff_ffff_ffff_ff80);
    assert_eq!(convert(S32, U32, 0xffff_ffff, SAT), 0x7fff_ffff);
    assert_eq!(convert(U32, S64, u64::MAX, SAT), 0);
    assert_eq!(convert(U64, S8, 0x80, SAT), 0);
    assert_eq!(convert(S16, U64, u64::MAX, SAT), 0x7fff);
}

#[test]
fn saturated_floats_lie_in_zero_to_one() {
    for (value, expected) in [(2.0, 1.0), (-2.0, 0.0), (0.25, 0.25), (f32::NAN, 0.0), (f32::INFINITY, 1.0)] {
        assert_eq!(convert(F32, F32, single(value), SAT), single(expected), "{value}");
        assert_eq!(convert(F64, F32, single(value), SAT), f64::from(expected).to_bits(), "{value}");
    }
    assert_eq!(convert(F32, F32, 0x8000_0000, SAT), 0);
    assert_eq!(convert(F16, F32, single(2.0), Convert { sat: true, ..NEAREST }), 0x3c00);
}

#[test]
fn only_singles_are_flushed() {
    assert_eq!(convert(F64, F32, 0x8000_0001, Convert { ftz: true, ..PLAIN }), 0x8000_0000_0000_0000);
    assert_eq!(convert(F64, F32, 0x8000_0001, PLAIN), 0xb6a0_0000_0000_0000);
    assert_eq!(convert(F32, F64, 0x3800_0000_0000_0000, NEAREST), 0x0040_0000);
    assert_eq!(convert(F32, F64, 0x3800_0000_0000_0000, FTZ), 0);
    // 2^-24 is a normal single and a subnormal half.
    assert_eq!(convert(F16, F32, 0x3380_0000, FTZ), 1);
    assert_eq!(convert(F32, F16, 1, FTZ), 0x3380_0000);
    assert_eq!(convert(Bf16, F32, 0x0040_0000, FTZ), 0);
    assert_eq!(convert(Bf16, F32, 0x0040_0000, NEAREST), 0x0040);
}

#[test]
fn narrowing_rounds_and_overflows() {
    assert_eq!(convert(F16, F32, single(65504.0), NEAREST), 0x7bff);
    assert_eq!(convert(F16, F32, single(65519.996), NEAREST), 0x7bff);
    assert_eq!(convert(F16, F32, single(65520.0), NEAREST), 0x7c00);
    assert_eq!(convert(F16, F32, single(1e9), to(Rounding::Zero)), 0x7bff);
    assert_eq!(convert(F16, F32, 0x3300_0000, NEAREST), 0);
    assert_eq!(convert(F16, F32, 0x3300_0001, NEAREST), 1);
    assert_eq!(convert(F32, F64, 0x47ef_ffff_f000_0000, NEAREST), 0x7f80_0000);
    assert_eq!(convert(F32, F64, 0x47ef_ffff_efff_ffff, NEAREST), 0x7f7f_ffff);
    assert_eq!(convert(F32, F64, 0x47ef_ffff_f000_0000, to(Rounding::Down)), 0x7f7f_ffff);
    let relu = Convert { relu: true, ..NEAREST };
    assert_eq!(convert(F16, F32, single(-1.0), relu), 0);
    assert_eq!(convert(Bf16, F32, single(3.0), relu), 0x4040);
    assert_eq!(convert(Bf16, F32, 0xffc0_0000, relu), 0x7fff);
}

#[test]
fn every_small_float_survives_the_way_through_a_bigger_one() {
    for small in [F16, Bf16] {
        let NumberClass::Float(layout) = small.class() else { panic!("not a float") };
        for bits in 0..=0xffff {
            for big in [F32, F64] {
                let there = convert(big, small, bits, PLAIN);
                let expected = match big {
                    _ if !layout.is_nan(bits) => bits,
                    F64 => bits | layout.quiet(),
                    _ => 0x7fff,
                };
                assert_eq!(convert(small, big, there, NEAREST), expected, "{small:?} {bits:#x} as {big:?}");
            }
        }
    }
    for bits in 0..=0xffff {
        for (small, wide) in [(U8, S16), (S8, S32), (U16, S64), (S16, F32), (U16, F32), (U8, F16), (S8, Bf16)] {
            let value = convert(small, small, bits, PLAIN);
            let there = convert(wide, small, bits, NEAREST);
            let how = if matches!(wide, F16 | Bf16 | F32) { RZI } else { PLAIN };
            assert_eq!(convert(small, wide, there, how), value, "{small:?} {bits:#x} as {wide:?}");
        }
    }
}

#[test]
fn the_fast_conversions_are_the_exact_ones() {
    let halves = (0..=0xffff).step_by(at_effort(7, 1, 1)).map(|bits| bits as u64);
    let corners = [0, 0x3f00_0000, 0xbf00_0000, 0x3fc0_0000, 0x7f80_0000, 0x7fc0_0000, 0xffff_8001, 1 << 63, u64::MAX];
    for bits in halves.chain(corners) {
        for to in Format::ALL {
            for from in Format::ALL {
                for how in [PLAIN, NEAREST, RNI, RZI, RMI, RPI] {
                    let quick = convert_fast(to, from, bits, how);
                    assert!(
                        quick.is_none_or(|quick| quick == convert_exact(to, from, bits, how)),
                        "{to:?} {from:?} {bits:#x}"
                    );
                }
            }
        }
    }
}

/// The result of a conversion must be a value of the destination, extended as its type requires.
#[test]
fn every_pair_of_formats_gives_a_value_of_the_destination() {
    let corners = [0, 1, 0x7f, 0x80, 0xff, 0x7c00, 0x7fff, 0x8000, 0x7f80_0000, 0xffc0_0000, 1 << 63, u64::MAX];
    for to in Format::ALL {
        for from in Format::ALL {
            for bits in corners {
                for how in [NEAREST, RNI, RZI, RMI, RPI, FTZ, Convert { sat: true, ..NEAREST }] {
                    let result = convert(to, from, bits, how);
                    let in_range = match to.class() {
                        NumberClass::Integer { bits, signed } => integer(result, bits, signed) as u64,
                        NumberClass::Float(layout) => result & (layout.sign() | (layout.sign() - 1)),
                    };
                    assert_eq!(result, in_range, "{to:?} from {from:?} of {bits:#x}");
                }
            }
        }
    }
}

#[test]
fn a_pair_has_its_first_operand_above() {
    assert_eq!(pack_halves(F16, 0x3f80_0000, 0xc000_0000, NEAREST), 0x3c00_c000);
    assert_eq!(pack_halves(Bf16, 0x3f80_0000, 0xc000_0000, NEAREST), 0x3f80_c000);
}

#[test]
fn tf32_rounds_ties_away_and_has_13_zeros() {
    assert_eq!(tf32(0x3f80_0fff, to(Rounding::NearestAway)), 0x3f80_0000);
    assert_eq!(tf32(0x3f80_1000, to(Rounding::NearestAway)), 0x3f80_2000);
    assert_eq!(tf32(0xbf80_1000, to(Rounding::NearestAway)), 0xbf80_2000);
    assert_eq!(tf32(0x7f7f_ffff, to(Rounding::NearestAway)), 0x7f80_0000);
    assert_eq!(tf32(0xff80_0000, to(Rounding::NearestAway)), 0xff80_0000);
    assert_eq!(tf32(0xffc1_2345, to(Rounding::NearestAway)), 0xffc1_2000);
    let relu = Convert { relu: true, ..to(Rounding::Zero) };
    assert_eq!([0xbf80_0000, 0x3f80_1fff, 0x8000_0000].map(|bits| tf32(bits, relu)), [0, 0x3f80_0000, 0]);
}

#[test]
fn finite_saturation_ends_at_the_biggest_number() {
    let finite = Convert { finite: true, ..NEAREST };
    assert_eq!(convert(F16, F32, 0x7f80_0000, finite), 0x7bff);
    assert_eq!(convert(F16, F32, 0xff7f_ffff, finite), 0xfbff);
    assert_eq!(convert(F16, F32, 0x4000_0000, finite), 0x4000);
    assert_eq!(convert(Bf16, F32, 0x7fc0_0000, finite), 0x7fff);
}

#[test]
fn a_nan_keeps_its_payload_to_and_from_double_only() {
    assert_eq!(convert(F32, F64, 0xfff0_0000_0005_4321, NEAREST), 0xffc0_0000);
    assert_eq!(convert(F16, F64, 0x7fff_1234_5678_9abc, to(Rounding::Zero)), 0x7fc4);
    assert_eq!(convert(F64, F32, 0xff81_2345, PLAIN), 0xfff8_2468_a000_0000);
    assert_eq!(convert(F64, F32, 0xff81_2345, Convert { ftz: true, ..PLAIN }), 0x7fff_ffff_e000_0000);
    assert_eq!(convert(F16, F32, 0xff81_2345, NEAREST), 0x7fff);
    // Moves, which preserve it.
    assert_eq!(convert(F32, F32, 0xff81_2345, PLAIN), 0xff81_2345);
    assert_eq!(convert(F32, Bf16, 0xff81, PLAIN), 0xff81_0000);
}

#[test]
fn floats_of_8_bits_have_a_biggest_number_and_come_back() {
    assert_eq!(pack_fp8(Fp8::E4m3, 0x43e0_0000, 0xff80_0000, false), 0x7efe);
    assert_eq!(pack_fp8(Fp8::E4m3, 0x7fc0_0000, 0xbf80_0000, false), 0x7fb8);
    assert_eq!(pack_fp8(Fp8::E4m3, 0x7fc0_0000, 0xbf80_0000, true), 0x7f00);
    assert_eq!(pack_fp8(Fp8::E5m2, 0x7f80_0000, 0x3f80_0000, false), 0x7b3c);
    assert_eq!(unpack_fp8(Fp8::E5m2, 0x7cfb, false), 0x7c00_fb00);
    assert_eq!(unpack_fp8(Fp8::E4m3, 0x7e01, false), 0x5f00_1800);
    for (kind, numbers) in [(Fp8::E4m3, 0x7f), (Fp8::E5m2, 0x7c)] {
        for magnitude in 0..numbers {
            for bits in [magnitude, magnitude | 0x80] {
                let half = unpack_fp8(kind, bits, false) & 0xffff;
                let wide = convert(F32, F16, half.into(), PLAIN) as u32;
                assert_eq!(pack_fp8(kind, 0, wide, false), bits, "{kind:?}");
            }
        }
    }
}

fn reference<To: Float, From: FloatConvert<To>>(bits: u64, rounding: Round, nan: u64) -> u64 {
    let mut loses = false;
    let result = From::from_bits(bits.into()).convert_r(rounding, &mut loses).value;
    if result.is_nan() { nan } else { result.to_bits() as u64 }
}

proptest! {
    #![proptest_config(cases(1000, 20_000, 400_000))]

    #[test]
    fn narrowing_is_exact(bits in any::<u64>(), exponent in -160i32..160) {
        // A double with an exponent of the formats' range, and a single.
        let double = bits >> 12 | ((1023 + exponent) as u64) << 52;
        let single = bits >> 32;
        for (way, to_way) in [
            (Rounding::Nearest, Round::NearestTiesToEven),
            (Rounding::Zero, Round::TowardZero),
            (Rounding::Down, Round::TowardNegative),
            (Rounding::Up, Round::TowardPositive),
        ] {
            prop_assert_eq!(convert(F32, F64, double, to(way)), reference::<Single, Double>(double, to_way, 0x7fff_ffff));
            prop_assert_eq!(convert(F16, F64, double, to(way)), reference::<Half, Double>(double, to_way, 0x7fff));
            prop_assert_eq!(convert(Bf16, F64, double, to(way)), reference::<BFloat, Double>(double, to_way, 0x7fff));
            prop_assert_eq!(convert(F16, F32, single, to(way)), reference::<Half, Single>(single, to_way, 0x7fff));
            prop_assert_eq!(convert(Bf16, F32, single, to(way)), reference::<BFloat, Single>(single, to_way, 0x7fff));
        }
    }

    #[test]
    fn floats_become_integers_as_the_processor_does(bits in any::<u64>(), single in any::<u32>()) {
        let (double, value) = (f64::from_bits(bits), f32::from_bits(single));
        prop_assert_eq!(convert_exact(S32, F32, single.into(), RZI), value as i32 as u64);
        prop_assert_eq!(convert_exact(U32, F32, single.into(), RZI), u64::from(value as u32));
        prop_assert_eq!(convert(S32, F32, single.into(), RZI), value as i32 as u64);
        if !double.is_nan() {
            prop_assert_eq!(convert(S64, F64, bits, RZI), double as i64 as u64);
            prop_assert_eq!(convert(U64, F64, bits, RZI), double as u64);
            prop_assert_eq!(convert(S32, F64, bits, RMI), double.floor() as i32 as u64);
        }
    }
}

proptest! {
    #![proptest_config(cases(50, 2000, 40_000))]

    #[test]
    fn the_processor_converts_the_same(bits in any::<u64>(), cut in 0..64) {
        let bits = bits >> cut;
        prop_assert_eq!(convert(F32, U64, bits, NEAREST), u64::from((bits as f32).to_bits()));
        prop_assert_eq!(convert(F32, S64, bits, NEAREST), u64::from((bits as i64 as f32).to_bits()));
        prop_assert_eq!(convert(F64, S64, bits, NEAREST), (bits as i64 as f64).to_bits());
        let pairs = Format::ALL.into_iter().flat_map(|to| Format::ALL.map(|from| (to, from)));
        for (to, from) in pairs {
            for how in [PLAIN, NEAREST, RNI, RZI, RMI, RPI] {
                let quick = convert_fast(to, from, bits, how);
                prop_assert!(quick.is_none_or(|quick| quick == convert_exact(to, from, bits, how)), "{:?} {:?}", to, from);
            }
        }
    }
}
