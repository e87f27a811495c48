//! What steps compute for all lanes of a warp: loops without branches, which the compiler vectorizes.

use super::frame::{ALL, Bits, Row};
use super::level::Level;
use super::map::{Lanes, map1, map2};
use crate::arith::{Mode, single};
use crate::ir::Relation;
use crate::memory::LANES;

#[inline(always)]
pub(super) fn of_singles(a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
    f(f32::from_bits(a), f32::from_bits(b)).to_bits()
}

#[inline(always)]
pub(super) fn of_doubles(a: u64, b: u64, f: impl Fn(f64, f64) -> f64) -> u64 {
    f(f64::from_bits(a), f64::from_bits(b)).to_bits()
}

/// Returns `a * b + c`, rounded once. If it is not a number, its bits are open.
#[inline(always)]
pub(super) fn fused<L: Level>(a: u32, b: u32, c: u32) -> u32 {
    match L::HAS_FMA {
        true => f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)).to_bits(),
        false => single::fma(a, b, c, Mode::NEAREST),
    }
}

#[inline(always)]
pub(super) fn fma<L: Level>(a: u32, b: u32, c: u32, mode: Mode) -> u32 {
    if L::HAS_FMA { single::fma_by_cpu(a, b, c, mode.ftz) } else { single::fma(a, b, c, mode) }
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn select<T: Bits + Default>(chosen: u32, a: &Lanes<T>, b: &Lanes<T>) -> Lanes<T> {
    let mut values = [T::default(); LANES];
    for lane in 0..LANES {
        values[lane] = a[lane].or_else(chosen >> lane & 1, b[lane]);
    }
    values
}

/// Returns the lanes for which `holds`.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn mask_where<L: Level, T: Copy>(a: &Lanes<T>, b: &Lanes<T>, holds: impl Fn(T, T) -> bool) -> u32 {
    L::mask(&map2(a, b, |a, b| if holds(a, b) { u32::MAX } else { 0 }))
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn floats<L: Level, B: Copy, T: PartialOrd>(
    relation: Relation,
    a: &Lanes<B>,
    b: &Lanes<B>,
    number: impl Fn(B) -> T + Copy,
) -> u32 {
    // An unordered relation is the negation of the opposite ordered one.
    let (relation, negated) = match relation {
        Relation::Equ => (Relation::Ne, true),
        Relation::Neu => (Relation::Eq, true),
        Relation::Ltu => (Relation::Ge, true),
        Relation::Leu => (Relation::Gt, true),
        Relation::Gtu => (Relation::Le, true),
        Relation::Geu => (Relation::Lt, true),
        Relation::Nan => (Relation::Num, true),
        other => (other, false),
    };
    let mask = ordered::<L, _, _>(relation, a, b, number);
    if negated { !mask } else { mask }
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn ordered<L: Level, B: Copy, T: PartialOrd>(
    relation: Relation,
    a: &Lanes<B>,
    b: &Lanes<B>,
    number: impl Fn(B) -> T + Copy,
) -> u32 {
    match relation {
        Relation::Eq => mask_where::<L, _>(a, b, |a, b| number(a) == number(b)),
        Relation::Ne => mask_where::<L, _>(a, b, |a, b| (number(a) < number(b)) | (number(a) > number(b))),
        Relation::Lt => mask_where::<L, _>(a, b, |a, b| number(a) < number(b)),
        Relation::Le => mask_where::<L, _>(a, b, |a, b| number(a) <= number(b)),
        Relation::Gt => mask_where::<L, _>(a, b, |a, b| number(a) > number(b)),
        Relation::Ge => mask_where::<L, _>(a, b, |a, b| number(a) >= number(b)),
        _ => mask_where::<L, _>(a, b, |a, b| (number(a) <= number(b)) | (number(a) >= number(b))),
    }
}

/// Returns the addresses in shared memory; an inactive lane has that of an active one, so that no loop needs the mask.
/// Returns `None` if an active lane's address has more than 32 bits.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn shared_from_wide<L: Level>(base: &Lanes<u64>, offset: i64, active: u32) -> Option<Row<u32>> {
    if active == ALL { low_words::<L>(base, offset) } else { low_words::<L>(&fill_inactive(base, active), offset) }
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn low_words<L: Level>(base: &Lanes<u64>, offset: i64) -> Option<Row<u32>> {
    let at = Row(map1(base, |base| base.wrapping_add_signed(offset)));
    (!L::any_wide(&at, !u64::from(u32::MAX))).then(|| Row(map1(&at, |at| at as u32)))
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn shared_from_narrow(base: &Lanes<u32>, offset: i64, active: u32) -> Row<u32> {
    let offset = offset as u32;
    match active {
        ALL => Row(map1(base, |base| base.wrapping_add(offset))),
        _ => Row(map1(&fill_inactive(base, active), |base| base.wrapping_add(offset))),
    }
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn fill_inactive<T: Bits>(values: &Lanes<T>, active: u32) -> Lanes<T> {
    let spare = values[active.trailing_zeros() as usize % LANES];
    let mut filled = *values;
    for lane in 0..LANES {
        filled[lane] = values[lane].or_else(active >> lane & 1, spare);
    }
    filled
}

/// Returns whether every lane's word is within as many words as there are.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn are_within<L: Level>(words: usize, at: &Lanes<u32>) -> bool {
    // No address that lacks the bits from the highest of the size on is beyond it.
    let bytes = words * 4;
    let Some(highest) = bytes.checked_ilog2() else { return false };
    if highest < 32 && !L::any(at, u32::MAX << highest) {
        return true;
    }
    let last = at.iter().fold(0, |last, &at| last.max(at));
    (last as usize) < bytes
}
