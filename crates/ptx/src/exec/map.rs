//! Functions of one, two and three values of each lane. They are loops, which the compiler vectorizes where it does not
//! vectorize the methods of arrays.
//!
//! These and other loops over lanes are inlined in a release only: with all of them, the loop over steps becomes a
//! function that takes the compiler ten times as long.

use crate::memory::LANES;

/// One value of each lane.
pub(super) type Lanes<T> = [T; LANES];

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn map1<A: Copy, T: Copy + Default>(a: &Lanes<A>, f: impl Fn(A) -> T) -> Lanes<T> {
    let mut values = [T::default(); LANES];
    for lane in 0..LANES {
        values[lane] = f(a[lane]);
    }
    values
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn map2<A: Copy, B: Copy, T: Copy + Default>(a: &Lanes<A>, b: &Lanes<B>, f: impl Fn(A, B) -> T) -> Lanes<T> {
    let mut values = [T::default(); LANES];
    for lane in 0..LANES {
        values[lane] = f(a[lane], b[lane]);
    }
    values
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn map3<A: Copy, B: Copy, C: Copy, T: Copy + Default>(
    a: &Lanes<A>,
    b: &Lanes<B>,
    c: &Lanes<C>,
    f: impl Fn(A, B, C) -> T,
) -> Lanes<T> {
    let mut values = [T::default(); LANES];
    for lane in 0..LANES {
        values[lane] = f(a[lane], b[lane], c[lane]);
    }
    values
}

/// Returns words in the order of bytes that memory has.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn words_of<const COUNT: usize>(bytes: &[[u8; 4]; COUNT]) -> [u32; COUNT] {
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}
