//! Integers. A module for each type has the operations that depend on it, on raw bits of that width; the rest is here.

mod bits;
#[cfg(test)]
mod tests;
mod typed;

pub(crate) use bits::{
    FunnelMode, Permutation, bfi32, bfi64, bmsk, fns, lop3, prmt, prmt_mode, shf_left, shf_right, szext_s32, szext_u32,
};
pub(crate) use typed::{s16, s32, s64, u16, u32, u64};

/// Returns the sum and its carry.
#[inline]
pub(crate) fn add_carry32(a: u32, b: u32, carry: bool) -> (u32, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(carry.into());
    (sum, first || second)
}

#[inline]
pub(crate) fn add_carry64(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(carry.into());
    (sum, first || second)
}

/// Returns the difference and its borrow, which PTX keeps in the carry flag.
#[inline]
pub(crate) fn sub_borrow32(a: u32, b: u32, borrow: bool) -> (u32, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(borrow.into());
    (difference, first || second)
}

#[inline]
pub(crate) fn sub_borrow64(a: u64, b: u64, borrow: bool) -> (u64, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(borrow.into());
    (difference, first || second)
}

/// `add.sat.s32`
#[inline]
pub(crate) fn add_sat(a: u32, b: u32) -> u32 {
    (a as i32).saturating_add(b as i32) as u32
}

/// `sub.sat.s32`
#[inline]
pub(crate) fn sub_sat(a: u32, b: u32) -> u32 {
    (a as i32).saturating_sub(b as i32) as u32
}

/// Four products of bytes, added to `c`; a signed operand has signed bytes.
#[inline]
pub(crate) fn dp4a(a: u32, a_signed: bool, b: u32, b_signed: bool, c: u32) -> u32 {
    (0..4).fold(c, |sum, i| {
        let product = sub_field(a, 8, i, a_signed).wrapping_mul(sub_field(b, 8, i, b_signed));
        sum.wrapping_add(product as u32)
    })
}

/// Two products of 16-bit parts of `a` and bytes of `b` (the lower two, or the upper two), added to `c`.
#[inline]
pub(crate) fn dp2a(a: u32, a_signed: bool, b: u32, b_signed: bool, upper: bool, c: u32) -> u32 {
    let first = if upper { 2 } else { 0 };
    (0..2).fold(c, |sum, i| {
        let product = sub_field(a, 16, i, a_signed).wrapping_mul(sub_field(b, 8, first + i, b_signed));
        sum.wrapping_add(product as u32)
    })
}

#[inline]
fn sub_field(a: u32, width: u32, index: u32, signed: bool) -> i32 {
    let shifted = a >> (width * index) << (32 - width);
    if signed { (shifted as i32) >> (32 - width) } else { (shifted >> (32 - width)) as i32 }
}
