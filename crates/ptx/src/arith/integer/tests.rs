//! Corner cases of integers, and bit fields against the definition in the PTX ISA.

use proptest::prelude::*;

use super::FunnelMode::{Clamp, Wrap};
use super::*;
use crate::arith::random::cases;

const LEAST: u32 = 0x8000_0000;

#[test]
fn products_have_an_upper_half() {
    assert_eq!(u16::mul_hi(0xffff, 0xffff), 0xfffe);
    assert_eq!(s16::mul_hi(0xffff, 0xffff), 0);
    assert_eq!(s16::mul_hi(0x8000, 0x8000), 0x4000);
    assert_eq!(u32::mul_hi(0xffff_ffff, 2), 1);
    assert_eq!(s32::mul_hi(0xffff_ffff, 2), 0xffff_ffff);
    assert_eq!(u64::mul_hi(1 << 63, 1 << 63), 1 << 62);
    assert_eq!(s64::mul_hi(1 << 63, 2), u64::MAX);
    assert_eq!(s16::mul_wide(0xffff, 2), 0xffff_fffe);
    assert_eq!(u16::mul_wide(0xffff, 2), 0x1_fffe);
    assert_eq!(s32::mul_wide(LEAST, LEAST), 1 << 62);
    assert_eq!(u32::mul_wide(0xffff_ffff, 0xffff_ffff), 0xffff_fffe_0000_0001);
}

#[test]
fn factors_of_24_bits_forget_the_rest() {
    assert_eq!(u32::mul24_lo(0xff00_0003, 5), 15);
    assert_eq!(u32::mul24_hi(0x00ff_ffff, 0x00ff_ffff), 0xffff_fe00);
    assert_eq!(s32::mul24_lo(0x00ff_ffff, 5), 0xffff_fffb);
    assert_eq!(s32::mul24_hi(0x0080_0000, 0x0080_0000), 0x4000_0000);
    assert_eq!(s32::mul24_hi(0x00ff_ffff, 1), 0xffff_ffff);
    assert_eq!(s32::mad24_hi_sat(0x0080_0000, 0x0080_0000, 0x7fff_ffff), 0x7fff_ffff);
    assert_eq!(u32::mad24_hi(0x00ff_ffff, 0x00ff_ffff, 0x200), 0);
    assert_eq!(s32::mad24_lo(2, 3, 4), 10);
}

#[test]
fn a_division_by_zero_is_all_ones() {
    assert_eq!(u32::div(7, 0), 0xffff_ffff);
    assert_eq!(s32::div(0, 0), 0xffff_ffff);
    assert_eq!(u64::div(7, 0), u64::MAX);
    assert_eq!(s16::div(7, 0), 0xffff);
    assert_eq!(u32::rem(7, 0), 0xffff_ffff);
    assert_eq!(s64::rem(7, 0), u64::MAX);
}

#[test]
fn a_quotient_is_cut_toward_zero_and_wraps() {
    assert_eq!(s32::div(-7i32 as u32, 2), -3i32 as u32);
    assert_eq!(s32::rem(-7i32 as u32, 2), -1i32 as u32);
    assert_eq!(u32::div(-7i32 as u32, 2), 0x7fff_fffc);
    assert_eq!(s32::div(LEAST, 0xffff_ffff), LEAST);
    assert_eq!(s32::rem(LEAST, 0xffff_ffff), 0);
    assert_eq!(s64::div(1 << 63, u64::MAX), 1 << 63);
    assert_eq!(s16::div(0x8000, 0xffff), 0x8000);
    assert_eq!(s16::rem(0x8000, 0xffff), 0);
}

#[test]
fn numbers_are_ordered_by_their_type() {
    assert_eq!(u32::max(1, 0xffff_ffff), 0xffff_ffff);
    assert_eq!(s32::max(1, 0xffff_ffff), 1);
    assert_eq!(s64::min(1, u64::MAX), u64::MAX);
    assert_eq!(s32::min_relu(1, 0xffff_ffff), 0);
    assert_eq!(s32::max_relu(LEAST, 0xffff_ffff), 0);
    assert_eq!(u32::sad(1, 0xffff_ffff, 1), 0xffff_ffff);
    assert_eq!(s32::sad(1, 0xffff_ffff, 1), 3);
    assert_eq!(s32::sad(LEAST, 0x7fff_ffff, 0), 0xffff_ffff);
    assert_eq!(s32::abs(LEAST), LEAST);
    assert_eq!(s64::abs(u64::MAX), 1);
}

#[test]
fn a_shift_beyond_the_width_empties_the_word() {
    for (amount, left, right, arithmetic) in [
        (0, LEAST, LEAST, LEAST),
        (1, 0, 0x4000_0000, 0xc000_0000),
        (31, 0, 1, 0xffff_ffff),
        (32, 0, 0, 0xffff_ffff),
        (33, 0, 0, 0xffff_ffff),
        (0xffff_ffff, 0, 0, 0xffff_ffff),
    ] {
        assert_eq!(u32::shl(LEAST, amount), left, "{amount}");
        assert_eq!(u32::shr(LEAST, amount), right, "{amount}");
        assert_eq!(s32::shr(LEAST, amount), arithmetic, "{amount}");
    }
    assert_eq!(u64::shl(1, 63), 1 << 63);
    assert_eq!(u64::shl(1, 64), 0);
    assert_eq!(s64::shr(1 << 63, 64), u64::MAX);
}

#[test]
fn a_funnel_shift_clamps_or_wraps() {
    let (lower, upper) = (0x8765_4321, 0x0fed_cba9);
    assert_eq!(shf_left(lower, upper, 4, Clamp), 0xfedc_ba98);
    assert_eq!(shf_right(lower, upper, 4, Clamp), 0x9876_5432);
    assert_eq!(shf_left(lower, upper, 40, Clamp), lower);
    assert_eq!(shf_right(lower, upper, 40, Clamp), upper);
    assert_eq!(shf_left(lower, upper, 36, Wrap), 0xfedc_ba98);
    assert_eq!(shf_right(lower, upper, 32, Wrap), lower);
    assert_eq!(shf_left(lower, upper, 0, Clamp), upper);
}

#[test]
fn the_highest_bit_that_counts_is_found() {
    assert_eq!(u32::bfind(0), 0xffff_ffff);
    assert_eq!(u32::bfind(1), 0);
    assert_eq!(u32::bfind(0xffff_ffff), 31);
    assert_eq!(s32::bfind(0xffff_ffff), 0xffff_ffff);
    assert_eq!(s32::bfind(LEAST), 30);
    assert_eq!(u64::bfind(1 << 63), 63);
    assert_eq!(s64::bfind(1 << 63), 62);
    assert_eq!(u32::bfind_shiftamt(1), 31);
    assert_eq!(u32::bfind_shiftamt(0), 0xffff_ffff);
    assert_eq!(s64::bfind_shiftamt(1), 63);
}

#[test]
fn a_table_of_eight_bits_is_any_function_of_three() {
    let (a, b, c) = (0xf0f0_1234, 0xcccc_5678, 0xaaaa_9abc);
    assert_eq!(lop3(a, b, c, 0x80), a & b & c);
    assert_eq!(lop3(a, b, c, 0xfe), a | b | c);
    assert_eq!(lop3(a, b, c, 0x96), a ^ b ^ c);
    assert_eq!(lop3(a, b, c, 0xca), a & b | !a & c);
    assert_eq!(lop3(a, b, c, 0x40), a & b & !c);
    assert_eq!(lop3(a, b, c, 0x00), 0);
}

#[test]
fn bytes_are_chosen_by_nibbles() {
    let (a, b) = (0x8302_0100, 0x0706_8504);
    assert_eq!(prmt(a, b, 0x3210), a);
    assert_eq!(prmt(a, b, 0x7654), b);
    assert_eq!(prmt(a, b, 0x0123), 0x0001_0283);
    // The highest bit of a nibble copies the sign.
    assert_eq!(prmt(a, b, 0xbdaf), 0xffff_0000);
    let of = |mode| [0, 1, 2, 3].map(|selector| prmt_mode(0x3322_1100, 0x7766_5544, selector, mode));
    assert_eq!(of(Permutation::Forward), [0x3322_1100, 0x4433_2211, 0x5544_3322, 0x6655_4433]);
    assert_eq!(of(Permutation::Backward), [0x5566_7700, 0x6677_0011, 0x7700_1122, 0x0011_2233]);
    assert_eq!(of(Permutation::ReplicateByte), [0, 0x1111_1111, 0x2222_2222, 0x3333_3333]);
    assert_eq!(of(Permutation::ClampLeft), [0x3322_1100, 0x3322_1111, 0x3322_2222, 0x3333_3333]);
    assert_eq!(of(Permutation::ClampRight), [0, 0x1111_1100, 0x2222_1100, 0x3322_1100]);
    assert_eq!(of(Permutation::ReplicateHalf), [0x1100_1100, 0x3322_3322, 0x1100_1100, 0x3322_3322]);
}

#[test]
fn masks_and_extensions_clamp_or_wrap() {
    assert_eq!(bmsk(4, 8, Clamp), 0xff0);
    assert_eq!(bmsk(28, 8, Clamp), 0xf000_0000);
    assert_eq!(bmsk(0, 32, Clamp), 0xffff_ffff);
    assert_eq!(bmsk(0, 32, Wrap), 0);
    assert_eq!(bmsk(32, 1, Clamp), 0);
    assert_eq!(bmsk(36, 8, Wrap), 0xff0);
    assert_eq!(szext_u32(0xffff_ffff, 8, Clamp), 0xff);
    assert_eq!(szext_s32(0x80, 8, Clamp), 0xffff_ff80);
    assert_eq!(szext_s32(0x7f, 8, Clamp), 0x7f);
    assert_eq!(szext_s32(0x1234_5678, 40, Clamp), 0x1234_5678);
    assert_eq!(szext_s32(0x80, 40, Wrap), 0xffff_ff80);
    assert_eq!(szext_s32(0xffff_ffff, 0, Clamp), 0);
    assert_eq!(szext_u32(0xffff_ffff, 32, Clamp), 0xffff_ffff);
}

#[test]
fn the_nth_set_bit_is_found_in_both_directions() {
    let mask = 0b1001_0110;
    assert_eq!(fns(mask, 0, 1), 1);
    assert_eq!(fns(mask, 1, 1), 1);
    assert_eq!(fns(mask, 0, 3), 4);
    assert_eq!(fns(mask, 0, 5), u32::MAX);
    assert_eq!(fns(mask, 7, -1), 7);
    assert_eq!(fns(mask, 6, -2), 2);
    assert_eq!(fns(mask, 4, 0), 4);
    assert_eq!(fns(mask, 3, 0), u32::MAX);
    assert_eq!(fns(mask, 31, -5), u32::MAX);
    assert_eq!(fns(u32::MAX, 0, i32::MIN + 1), u32::MAX);
    assert_eq!(fns(u32::MAX, 0, i32::MIN), 0);
}

#[test]
fn dot_products_extend_each_part_by_its_type() {
    assert_eq!(dp4a(0x0102_03ff, false, 0x0101_0101, false, 10), 10 + 1 + 2 + 3 + 255);
    assert_eq!(dp4a(0x0102_03ff, true, 0x0101_0101, false, 10), 10 + 1 + 2 + 3 - 1);
    assert_eq!(dp4a(0x0000_00ff, true, 0x0000_00ff, true, 0), 1);
    assert_eq!(dp4a(0x0000_00ff, false, 0x0000_00ff, true, 0), -255i32 as u32);
    assert_eq!(dp2a(0x0002_ffff, true, 0x0504_0302, true, false, 1), (1 - 2 + 6) as u32);
    assert_eq!(dp2a(0x0002_ffff, false, 0x0504_0302, true, true, 1), 1 + 4 * 0xffff + 10);
}

#[test]
fn carries_and_borrows_come_out() {
    assert_eq!(add_carry32(0xffff_ffff, 0, true), (0, true));
    assert_eq!(add_carry32(0xffff_ffff, 0xffff_ffff, true), (0xffff_ffff, true));
    assert_eq!(add_carry32(1, 2, false), (3, false));
    assert_eq!(sub_borrow32(0, 0, true), (0xffff_ffff, true));
    assert_eq!(sub_borrow32(5, 4, true), (0, false));
    assert_eq!(sub_borrow32(0, 0xffff_ffff, true), (0, true));
    assert_eq!(add_carry64(u64::MAX, 1, false), (0, true));
    assert_eq!(sub_borrow64(0, 1, false), (u64::MAX, true));
    assert_eq!(add_sat(0x7fff_ffff, 1), 0x7fff_ffff);
    assert_eq!(sub_sat(LEAST, 1), LEAST);
    assert_eq!(s32::mad_hi_sat(0x4000_0000, 0x4000_0000, 0x7fff_ffff), 0x7fff_ffff);
}

/// `bfe` as the PTX ISA defines it, bit by bit.
fn field(a: u64, width: u32, signed: bool, start: u32, length: u32) -> u64 {
    let bit = |position: u32| a >> position & 1;
    let sign = if signed && length > 0 { bit((start + length - 1).min(width - 1)) } else { 0 };
    (0..width).fold(0, |result, i| {
        let value = if i < length && start + i < width { bit(start + i) } else { sign };
        result | value << i
    })
}

/// `bfi` as the PTX ISA defines it, bit by bit.
fn inserted(a: u64, target: u64, width: u32, start: u32, length: u32) -> u64 {
    (0..length)
        .filter(|i| start + i < width && *i < 64)
        .fold(target, |result, i| result & !(1 << (start + i)) | (a >> i & 1) << (start + i))
}

proptest! {
    #![proptest_config(cases(1000, 10_000, 400_000))]

    #[test]
    fn fields_are_as_the_document_defines_them(
        a in any::<u64>(), target in any::<u64>(), start in 0u32..300, length in 0u32..300
    ) {
        let (low, low_target) = (a as u32, target as u32);
        prop_assert_eq!(u64::bfe(a, start, length), field(a, 64, false, start, length));
        prop_assert_eq!(s64::bfe(a, start, length), field(a, 64, true, start, length));
        prop_assert_eq!(bfi64(a, target, start, length), inserted(a, target, 64, start, length));
        // For fields of 32 bits only the lowest byte is used.
        let (first, count) = (start % 256, length % 256);
        prop_assert_eq!(u64::from(u32::bfe(low, start, length)), field(low.into(), 32, false, first, count));
        prop_assert_eq!(u64::from(s32::bfe(low, start, length)), field(low.into(), 32, true, first, count));
        let expected = inserted(low.into(), low_target.into(), 32, first, count);
        prop_assert_eq!(u64::from(bfi32(low, low_target, start, length)), expected);
    }
}
