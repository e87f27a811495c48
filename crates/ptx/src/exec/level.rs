//! The operations that the loop over steps needs from the processor: the trait that `levels` implements for each set of
//! vector instructions, with code for any processor as the default.

use super::frame::{ALL, Bits, MaskRows};
use super::map::Lanes;
use crate::ir::Step;
use crate::memory::LANES;

/// A set of vector instructions.
pub(super) trait Level {
    const HAS_FMA: bool;

    /// Returns the highest bit of each lane.
    #[inline(always)]
    fn mask(lanes: &Lanes<u32>) -> u32 {
        let mut mask = 0;
        for (lane, value) in lanes.iter().enumerate() {
            mask |= value >> 31 << lane;
        }
        mask
    }

    /// Returns whether any lane has any of these bits.
    #[inline(always)]
    fn any(lanes: &Lanes<u32>, bits: u32) -> bool {
        lanes.iter().fold(0, |all, lane| all | lane) & bits != 0
    }

    #[inline(always)]
    fn any_wide(lanes: &Lanes<u64>, bits: u64) -> bool {
        lanes.iter().fold(0, |all, lane| all | lane) & bits != 0
    }

    /// Returns whether any lane may have the bits of an f32 that is not a number.
    #[inline(always)]
    fn any_nan(lanes: &Lanes<u32>) -> bool {
        lanes.iter().fold(false, |any, &lane| any | f32::from_bits(lane).is_nan())
    }

    /// The same of an f64.
    #[inline(always)]
    fn any_wide_nan(lanes: &Lanes<u64>) -> bool {
        lanes.iter().fold(false, |any, &lane| any | f64::from_bits(lane).is_nan())
    }

    /// Makes the mask that of other lanes.
    #[inline(always)]
    fn set_mask(mask: &mut MaskRows, lanes: u32) {
        mask.set(lanes);
    }
}

/// Writes a register of some lanes, or of all of them if it need not keep what the others have. It blends vectors in
/// registers: a processor does not forward parts of a store to the loads that follow it.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn write<L: Level, T: Bits>(
    target: &mut Lanes<T>,
    mask: &mut MaskRows,
    step: &Step,
    active: u32,
    values: Lanes<T>,
) {
    if active == ALL || step.is_whole {
        *target = values;
        return;
    }
    if mask.lanes() != active {
        L::set_mask(mask, active);
    }
    // Copies, because the compiler does not see that the three do not overlap.
    let (old, mask) = (*target, *T::mask(mask));
    for lane in 0..LANES {
        target[lane] = old[lane].blend(values[lane], mask[lane]);
    }
}
