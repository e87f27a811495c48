//! The registers of one call, for the lanes of a warp.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::map::map1;
use super::pattern::Patterns;
use crate::ir::{Code, Reg, Slot};
use crate::memory::LANES;

/// All lanes.
pub(super) const ALL: u32 = u32::MAX;

/// A register of all lanes. Its alignment is that of a cache line, so that no vector load crosses one.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Row<T>(pub(super) [T; LANES]);

impl<T> Deref for Row<T> {
    type Target = [T; LANES];

    #[inline(always)]
    fn deref(&self) -> &[T; LANES] {
        &self.0
    }
}

impl<T> DerefMut for Row<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T; LANES] {
        &mut self.0
    }
}

/// A call of a function by some lanes of a warp. Lanes that diverge inside it share it: each has its column.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) code: Arc<Code>,
    /// The index of the function, whose code it is.
    pub(super) function: usize,
    /// The unit whose symbols its code refers to.
    pub(super) unit: usize,
    pub(super) narrow: Vec<Row<u32>>,
    pub(super) wide: Vec<Row<u64>>,
    /// Of the registers of 64 bits that may be kept as ranges.
    pub(super) ranges: Vec<Range>,
    pub(super) predicates: Vec<u32>,
    /// Of the last write to some lanes.
    pub(super) mask: Box<MaskRows>,
    /// Of loads from shared memory.
    pub(super) patterns: Box<Patterns>,
    /// The carry bit of each lane.
    pub(super) carry: u32,
    /// The offset of its local memory in each lane's local memory.
    pub(super) local_base: u32,
    /// The number of calls below this one.
    pub(super) depth: u32,
    pub(super) caller: Option<Caller>,
    /// The number of groups in it and of frames that it called.
    pub(super) references: u32,
}

/// A register that has the addresses of consecutive words, one for each lane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Range {
    pub(super) start: u64,
    /// Whether the register's value is this, not what its row has.
    pub(super) is_value: bool,
}

impl Range {
    /// Writes the addresses into the row, unless it has the value.
    pub(super) fn fill(&mut self, row: &mut Row<u64>) {
        if std::mem::take(&mut self.is_value) {
            row.0 = std::array::from_fn(|lane| self.start.wrapping_add(4 * lane as u64));
        }
    }
}

/// The return address of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) frame: usize,
    /// The position of the call instruction.
    pub(super) position: u32,
}

impl Frame {
    /// Returns the end of this frame's local memory.
    pub(super) fn local_end(&self) -> u32 {
        self.local_base + self.code.local_bytes
    }

    /// Returns a register of each lane, zero-extended.
    #[inline]
    pub(super) fn read(&self, reg: Reg) -> [u64; LANES] {
        match reg {
            Reg::Narrow(slot) => map1(&self.narrow[slot as usize], u64::from),
            Reg::Wide(slot) => self.wide[slot as usize].0,
            Reg::Predicate(slot) => {
                let bits = self.predicates[slot as usize];
                std::array::from_fn(|lane| u64::from(bits >> lane & 1))
            }
        }
    }

    /// Writes the low bits, as many as the register has.
    #[inline]
    pub(super) fn write(&mut self, reg: Reg, lanes: u32, values: &[u64; LANES]) {
        match reg {
            Reg::Narrow(slot) => write_lanes(&mut self.narrow, slot, lanes, map1(values, |value| value as u32)),
            Reg::Wide(slot) => write_lanes(&mut self.wide, slot, lanes, *values),
            Reg::Predicate(slot) => {
                let bits = (0..LANES).fold(0, |bits, lane| bits | (values[lane] as u32 & 1) << lane);
                self.set_predicate(slot, lanes, bits);
            }
        }
    }

    /// Writes the same value in all lanes.
    pub(super) fn fill(&mut self, reg: Reg, value: u64) {
        match reg {
            Reg::Narrow(slot) => self.narrow[slot as usize].0 = [value as u32; LANES],
            Reg::Wide(slot) => self.wide[slot as usize].0 = [value; LANES],
            Reg::Predicate(slot) => self.predicates[slot as usize] = 0u32.wrapping_sub(value as u32 & 1),
        }
    }

    #[inline(always)]
    pub(super) fn write_narrow(&mut self, to: Slot, lanes: u32, values: [u32; LANES]) {
        write_lanes(&mut self.narrow, to, lanes, values);
    }

    #[inline(always)]
    pub(super) fn write_wide(&mut self, to: Slot, lanes: u32, values: [u64; LANES]) {
        write_lanes(&mut self.wide, to, lanes, values);
    }

    #[inline(always)]
    pub(super) fn set_predicate(&mut self, to: Slot, lanes: u32, bits: u32) {
        let slot = &mut self.predicates[to as usize];
        *slot = *slot & !lanes | bits & lanes;
    }

    /// Swaps all registers of some lanes with another frame of the same function.
    pub(super) fn swap_lanes(&mut self, other: &mut Self, lanes: u32) {
        for lane in lanes_of(lanes) {
            for (a, b) in self.narrow.iter_mut().zip(&mut other.narrow) {
                std::mem::swap(&mut a[lane], &mut b[lane]);
            }
            for (a, b) in self.wide.iter_mut().zip(&mut other.wide) {
                std::mem::swap(&mut a[lane], &mut b[lane]);
            }
        }
        for (a, b) in self.predicates.iter_mut().zip(&mut other.predicates) {
            let differ = (*a ^ *b) & lanes;
            (*a, *b) = (*a ^ differ, *b ^ differ);
        }
    }

    /// Returns the lanes in which a predicate is true.
    #[inline(always)]
    pub(super) fn holds(&self, predicate: Slot, negated: bool) -> u32 {
        let bits = self.predicates[predicate as usize];
        if negated { !bits } else { bits }
    }
}

/// A mask of lanes as vectors: all bits of a lane, or none.
#[derive(Debug, Clone)]
pub(super) struct MaskRows {
    lanes: u32,
    narrow: Row<u32>,
    wide: Row<u64>,
}

impl Default for MaskRows {
    fn default() -> Self {
        Self { lanes: 0, narrow: Row([0; LANES]), wide: Row([0; LANES]) }
    }
}

impl MaskRows {
    #[inline(always)]
    pub(super) fn lanes(&self) -> u32 {
        self.lanes
    }

    #[inline(always)]
    pub(super) fn set(&mut self, lanes: u32) {
        self.lanes = lanes;
        for (lane, narrow) in self.narrow.0.iter_mut().enumerate() {
            *narrow = 0u32.wrapping_sub(lanes >> lane & 1);
        }
        for (lane, wide) in self.wide.0.iter_mut().enumerate() {
            *wide = 0u64.wrapping_sub((lanes >> lane & 1).into());
        }
    }
}

/// A value of a lane, as bits.
pub(super) trait Bits: Copy {
    /// Returns the mask for values of this width.
    fn mask(mask: &MaskRows) -> &[Self; LANES];

    /// Returns the bits of `other` where the mask has ones, and this value's elsewhere. These are operations on bits because
    /// a compiler makes a masked store of a choice, which takes an AMD processor (EPYC) twice as long.
    fn blend(self, other: Self, mask: Self) -> Self;

    /// Returns this value if `bit` is one, `other` if it is zero.
    fn or_else(self, bit: u32, other: Self) -> Self;
}

impl Bits for u32 {
    #[inline(always)]
    fn mask(mask: &MaskRows) -> &[Self; LANES] {
        &mask.narrow.0
    }

    #[inline(always)]
    fn blend(self, other: Self, mask: Self) -> Self {
        self & !mask | other & mask
    }

    #[inline(always)]
    fn or_else(self, bit: u32, other: Self) -> Self {
        let mask = 0u32.wrapping_sub(bit);
        self & mask | other & !mask
    }
}

impl Bits for u64 {
    #[inline(always)]
    fn mask(mask: &MaskRows) -> &[Self; LANES] {
        &mask.wide.0
    }

    #[inline(always)]
    fn blend(self, other: Self, mask: Self) -> Self {
        self & !mask | other & mask
    }

    #[inline(always)]
    fn or_else(self, bit: u32, other: Self) -> Self {
        let mask = 0u64.wrapping_sub(bit.into());
        self & mask | other & !mask
    }
}

/// Writes without a branch for each lane, so that a few lanes cost as much as all.
#[inline(always)]
fn write_lanes<T: Bits>(file: &mut [Row<T>], to: Slot, lanes: u32, values: [T; LANES]) {
    let target = &mut file[to as usize].0;
    if lanes == ALL {
        *target = values;
        return;
    }
    for lane in 0..LANES {
        target[lane] = values[lane].or_else(lanes >> lane & 1, target[lane]);
    }
}

/// Returns the lanes of a mask, lowest first.
pub(super) fn lanes_of(mut lanes: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if lanes == 0 {
            return None;
        }
        let lane = lanes.trailing_zeros() as usize;
        lanes &= lanes - 1;
        Some(lane)
    })
}
