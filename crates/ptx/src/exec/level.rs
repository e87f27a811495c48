//! The operations that the loop over steps needs from the processor: the trait that `levels` implements for each set of
//! vector instructions, with code for any processor as the default.

use super::frame::{ALL, Bits, MaskRows};
use super::map::Lanes;
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

    /// Makes the mask that of other lanes.
    #[inline(always)]
    fn set_mask(mask: &mut MaskRows, lanes: u32) {
        mask.set(lanes);
    }
}

/// Writes a register of some lanes. It blends vectors in registers: a processor does not forward parts of a store to
/// the loads that follow it.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
pub(super) fn write<L: Level, T: Bits>(target: &mut Lanes<T>, mask: &mut MaskRows, active: u32, values: Lanes<T>) {
    if active == ALL {
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
