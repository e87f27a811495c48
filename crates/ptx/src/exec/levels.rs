//! The loop over steps, compiled once for each set of vector instructions.
//!
//! The loop is written once, over arrays of 32 lanes, and marked to be inlined. Inside a function that may use AVX2 or
//! AVX-512 the compiler vectorizes those arrays with it; where it does not find the instruction, it is named here.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::cursor::{Cursor, Exit};
use super::engine::Kind;
use super::frame::{Frame, MaskRows};
use super::level::Level;
use super::map::Lanes;
use super::run::Run;
use crate::memory::LANES;

impl Run<'_> {
    /// Executes steps until one needs more than the frame, or the group has to be scheduled again.
    #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a call of code for the detected processor"))]
    pub(super) fn steps(&mut self, frame: &mut Frame, cursor: &mut Cursor<'_>) -> Exit {
        match self.engine.kind() {
            #[cfg(test)]
            Kind::Reference => self.next_instruction(frame, cursor),
            Kind::Portable => self.run_steps::<Portable>(frame, cursor),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the instructions, because `Engine::available` found them.
            Kind::Avx2 => unsafe { steps_avx2(self, frame, cursor) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            Kind::Avx512 => unsafe { steps_avx512(self, frame, cursor) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn steps_avx2(run: &mut Run<'_>, frame: &mut Frame, cursor: &mut Cursor<'_>) -> Exit {
    run.run_steps::<Avx2>(frame, cursor)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn steps_avx512(run: &mut Run<'_>, frame: &mut Frame, cursor: &mut Cursor<'_>) -> Exit {
    run.run_steps::<Avx512>(frame, cursor)
}

/// Any processor.
struct Portable;

impl Level for Portable {
    const HAS_FMA: bool = cfg!(target_feature = "fma");
}

/// A processor with AVX2: used by `steps_avx2` alone.
#[cfg(target_arch = "x86_64")]
struct Avx2;

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls of code for the detected processor")]
impl Level for Avx2 {
    const HAS_FMA: bool = true;

    #[inline(always)]
    fn mask(holds: &Lanes<u32>) -> u32 {
        // SAFETY: only `steps_avx2` uses this level, on a processor with AVX2.
        unsafe { mask_avx2(holds) }
    }

    #[inline(always)]
    fn any(lanes: &Lanes<u32>, bits: u32) -> bool {
        // SAFETY: as for `mask`.
        unsafe { any_avx2(lanes, bits) }
    }

    #[inline(always)]
    fn any_wide(lanes: &Lanes<u64>, bits: u64) -> bool {
        // SAFETY: as for `mask`.
        unsafe { any_wide_avx2(lanes, bits) }
    }

    #[inline(always)]
    fn any_nan(lanes: &Lanes<u32>) -> bool {
        // SAFETY: as for `mask`.
        unsafe { any_nan_avx2(lanes) }
    }

    #[inline(always)]
    fn any_wide_nan(lanes: &Lanes<u64>) -> bool {
        // SAFETY: as for `mask`.
        unsafe { any_wide_nan_avx2(lanes) }
    }

    #[inline(always)]
    fn set_mask(mask: &mut MaskRows, lanes: u32) {
        // SAFETY: as for `mask`.
        unsafe { set_mask_avx2(mask, lanes) }
    }
}

/// A processor with AVX-512: used by `steps_avx512` alone.
#[cfg(target_arch = "x86_64")]
struct Avx512;

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls of code for the detected processor")]
impl Level for Avx512 {
    const HAS_FMA: bool = true;

    #[inline(always)]
    fn mask(holds: &Lanes<u32>) -> u32 {
        // SAFETY: only `steps_avx512` uses this level, on a processor with AVX-512.
        unsafe { mask_avx512(holds) }
    }

    #[inline(always)]
    fn any(lanes: &Lanes<u32>, bits: u32) -> bool {
        // SAFETY: as for `mask`.
        unsafe { any_avx512(lanes, bits) }
    }

    #[inline(always)]
    fn any_wide(lanes: &Lanes<u64>, bits: u64) -> bool {
        // SAFETY: as for `mask`.
        unsafe { any_wide_avx512(lanes, bits) }
    }

    // With masks of the processor, replacing what is not a number costs no more than looking for it.
    #[inline(always)]
    fn any_nan(_: &Lanes<u32>) -> bool {
        true
    }

    #[inline(always)]
    fn any_wide_nan(_: &Lanes<u64>) -> bool {
        true
    }

    #[inline(always)]
    fn set_mask(mask: &mut MaskRows, lanes: u32) {
        // SAFETY: as for `mask`.
        unsafe { set_mask_avx512(mask, lanes) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn set_mask_avx2(mask: &mut MaskRows, lanes: u32) {
    mask.set(lanes);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn set_mask_avx512(mask: &mut MaskRows, lanes: u32) {
    mask.set(lanes);
}

/// Returns the highest bit of each lane.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn mask_avx2(lanes: &Lanes<u32>) -> u32 {
    // Signs survive saturation: 32 lanes become 32 bytes, whose order the permutation restores.
    let low = _mm256_packs_epi32(load_avx2(lanes, 0), load_avx2(lanes, 8));
    let high = _mm256_packs_epi32(load_avx2(lanes, 16), load_avx2(lanes, 24));
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
    _mm256_movemask_epi8(bytes).cast_unsigned()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn mask_avx512(lanes: &Lanes<u32>) -> u32 {
    let (low, high) = (load_avx512(lanes, 0), load_avx512(lanes, 16));
    u32::from(_mm512_movepi32_mask(low)) | u32::from(_mm512_movepi32_mask(high)) << 16
}

/// Returns `N` values from lane `first` on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn part<T, const N: usize>(lanes: &Lanes<T>, first: usize) -> &[T; N] {
    lanes[first..].first_chunk().expect("a part is within the lanes")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
#[expect(unsafe_code, reason = "a vector load")]
fn load_avx2<T>(lanes: &Lanes<T>, first: usize) -> __m256i {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8, "32 bytes are 8 or 4 lanes") };
    let start = match size_of::<T>() {
        4 => part::<T, 8>(lanes, first).as_ptr(),
        _ => part::<T, 4>(lanes, first).as_ptr(),
    };
    // SAFETY: the part has 32 bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(start.cast()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
#[expect(unsafe_code, reason = "a vector load")]
fn load_avx512<T>(lanes: &Lanes<T>, first: usize) -> __m512i {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8, "64 bytes are 16 or 8 lanes") };
    let start = match size_of::<T>() {
        4 => part::<T, 16>(lanes, first).as_ptr(),
        _ => part::<T, 8>(lanes, first).as_ptr(),
    };
    // SAFETY: the part has 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(start.cast()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn any_avx2(lanes: &Lanes<u32>, bits: u32) -> bool {
    let low = _mm256_or_si256(load_avx2(lanes, 0), load_avx2(lanes, 8));
    let high = _mm256_or_si256(load_avx2(lanes, 16), load_avx2(lanes, 24));
    _mm256_testz_si256(_mm256_or_si256(low, high), _mm256_set1_epi32(bits.cast_signed())) == 0
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn any_wide_avx2(lanes: &Lanes<u64>, bits: u64) -> bool {
    let mut all = _mm256_setzero_si256();
    for first in (0..LANES).step_by(4) {
        all = _mm256_or_si256(all, load_avx2(lanes, first));
    }
    _mm256_testz_si256(all, _mm256_set1_epi64x(bits.cast_signed())) == 0
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
fn any_avx512(lanes: &Lanes<u32>, bits: u32) -> bool {
    let all = _mm512_or_si512(load_avx512(lanes, 0), load_avx512(lanes, 16));
    _mm512_test_epi32_mask(all, _mm512_set1_epi32(bits.cast_signed())) != 0
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
fn any_wide_avx512(lanes: &Lanes<u64>, bits: u64) -> bool {
    let low = _mm512_or_si512(load_avx512(lanes, 0), load_avx512(lanes, 8));
    let high = _mm512_or_si512(load_avx512(lanes, 16), load_avx512(lanes, 24));
    _mm512_test_epi64_mask(_mm512_or_si512(low, high), _mm512_set1_epi64(bits.cast_signed())) != 0
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn any_nan_avx2(lanes: &Lanes<u32>) -> bool {
    let single = |first: usize| _mm256_castsi256_ps(load_avx2(lanes, first));
    // A comparison of two values is unordered if either is not a number.
    let low = _mm256_cmp_ps::<_CMP_UNORD_Q>(single(0), single(8));
    let high = _mm256_cmp_ps::<_CMP_UNORD_Q>(single(16), single(24));
    _mm256_movemask_ps(_mm256_or_ps(low, high)) != 0
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn any_wide_nan_avx2(lanes: &Lanes<u64>) -> bool {
    let mut unordered = _mm256_setzero_pd();
    for first in (0..LANES).step_by(8) {
        let (low, high) = (load_avx2(lanes, first), load_avx2(lanes, first + 4));
        let pair = _mm256_cmp_pd::<_CMP_UNORD_Q>(_mm256_castsi256_pd(low), _mm256_castsi256_pd(high));
        unordered = _mm256_or_pd(unordered, pair);
    }
    _mm256_movemask_pd(unordered) != 0
}
