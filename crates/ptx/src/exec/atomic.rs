//! Atomic operations, lane by lane.

use super::access::{SpaceAddress, read_le, resolve_space, write_le};
use super::frame::lanes_of;
use super::run::{LaneFault, Run, address};
use super::warp::Warp;
use crate::arith::half::{Half, HalfMode, pairs};
use crate::arith::{MinMax, Mode, Rounding, double, single};
use crate::fault::FaultKind;
use crate::ir::{Atomic, AtomicKind, AtomicOp, AtomicPair, MemorySpace};
use crate::memory::{LANES, Width};
use crate::observer::AccessKind;

/// The size of a value of 128 bits.
const PAIR_BYTES: u64 = 16;

impl Run<'_> {
    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        group: usize,
        atomic: &Atomic,
        active: u32,
    ) -> Result<(), LaneFault> {
        let index = warp.groups[group].frame;
        let frame = warp.frame(index);
        let addresses = address(frame, &atomic.at);
        let operand = frame.read(atomic.operand);
        let swap = atomic.swap.map_or([0; LANES], |swap| frame.read(swap));
        let width = width_of(atomic.kind);
        self.check_alignment(atomic.space, &addresses, active, width.bytes())?;
        self.check_bounds(warp, group, atomic.space, &addresses, active, width.bytes(), true)?;
        if self.is_observed {
            self.before_write(atomic.space, AccessKind::Atomic, width.bytes(), &addresses, active);
        }
        let mut before = [0; LANES];
        for lane in lanes_of(active) {
            let change =
                |old: u64, flush| apply_atomic((atomic.op, atomic.kind), old, operand[lane], swap[lane], flush);
            before[lane] = self.update(atomic.space, width, lane, addresses[lane], change)?;
        }
        if self.is_observed {
            self.observe(atomic.space, AccessKind::Atomic, width.bytes(), &addresses, active, 0);
        }
        if let Some(to) = atomic.to {
            warp.frame_mut(index).write(to, active, &before);
        }
        Ok(())
    }

    /// `atom.exch` and `atom.cas` of 128 bits.
    pub(super) fn atomic_pair(
        &mut self,
        warp: &mut Warp,
        group: usize,
        atomic: &AtomicPair,
        active: u32,
    ) -> Result<(), LaneFault> {
        let index = warp.groups[group].frame;
        let frame = warp.frame(index);
        let addresses = address(frame, &atomic.at);
        let value = atomic.value.map(|half| frame.read(half));
        let compare = atomic.compare.map(|pair| pair.map(|half| frame.read(half)));
        self.check_alignment(atomic.space, &addresses, active, PAIR_BYTES)?;
        self.check_bounds(warp, group, atomic.space, &addresses, active, PAIR_BYTES, true)?;
        if self.is_observed {
            self.before_write(atomic.space, AccessKind::Atomic, PAIR_BYTES, &addresses, active);
        }
        let mut before = [[0; LANES]; 2];
        for lane in lanes_of(active) {
            let of_lane = |halves: &[[u64; LANES]; 2]| [halves[0][lane], halves[1][lane]];
            let change = |old: [u64; 2]| match &compare {
                Some(compare) if of_lane(compare) != old => old,
                _ => of_lane(&value),
            };
            [before[0][lane], before[1][lane]] = self.update_pair(atomic.space, lane, addresses[lane], change)?;
        }
        if self.is_observed {
            self.observe(atomic.space, AccessKind::Atomic, PAIR_BYTES, &addresses, active, 0);
        }
        for (to, before) in atomic.to.into_iter().flatten().zip(&before) {
            warp.frame_mut(index).write(to, active, before);
        }
        Ok(())
    }

    fn update_pair(
        &mut self,
        space: MemorySpace,
        lane: usize,
        address: u64,
        mut change: impl FnMut([u64; 2]) -> [u64; 2],
    ) -> Result<[u64; 2], LaneFault> {
        let spot = resolve_space(space, address);
        let old = match spot {
            SpaceAddress::Global(address) => self.memory.atomic_update_pair(address, &mut change).ok(),
            SpaceAddress::Shared(at) => self.shared_of(at).ok().and_then(|(bytes, at)| {
                let old = [read_le(bytes, at, Width::Eight)?, read_le(bytes, at + 8, Width::Eight)?];
                let [low, high] = change(old);
                write_le(bytes, at, Width::Eight, low)?;
                write_le(bytes, at + 8, Width::Eight, high)?;
                Some(old)
            }),
            SpaceAddress::Local(_) | SpaceAddress::Param(_) => None,
        };
        old.ok_or_else(|| {
            let (lane, mut fault) = self.out_of_bounds(lane, spot, Width::Eight, true);
            if let FaultKind::Address { bytes, .. } = &mut fault {
                *bytes = PAIR_BYTES;
            }
            (lane, fault)
        })
    }

    /// Replaces a value by what `change` returns for it, and returns the old one. `change` is told whether the value is
    /// in global memory.
    pub(super) fn update(
        &mut self,
        space: MemorySpace,
        width: Width,
        lane: usize,
        address: u64,
        change: impl Fn(u64, bool) -> u64,
    ) -> Result<u64, LaneFault> {
        let spot = resolve_space(space, address);
        let old = match spot {
            SpaceAddress::Global(address) => {
                self.memory.atomic_update(width, address, &mut |old| change(old, true)).ok()
            }
            SpaceAddress::Shared(at) => self.shared_of(at).ok().and_then(|(bytes, at)| {
                let old = read_le(bytes, at, width)?;
                write_le(bytes, at, width, change(old, false))?;
                Some(old)
            }),
            SpaceAddress::Local(_) | SpaceAddress::Param(_) => None,
        };
        old.ok_or_else(|| self.out_of_bounds(lane, spot, width, true))
    }
}

pub(super) fn width_of(kind: AtomicKind) -> Width {
    match kind {
        AtomicKind::Bits16 | AtomicKind::Half(_) => Width::Two,
        AtomicKind::Unsigned32 | AtomicKind::Signed32 | AtomicKind::Single | AtomicKind::PackedHalf(_) => Width::Four,
        AtomicKind::Unsigned64 | AtomicKind::Signed64 | AtomicKind::Double => Width::Eight,
    }
}

/// Computes the new value of an atomic operation. f32 sums in global memory flush subnormals.
pub(super) fn apply_atomic(what: (AtomicOp, AtomicKind), old: u64, operand: u64, swap: u64, flush: bool) -> u64 {
    match what {
        (AtomicOp::Exchange, _) => operand,
        (AtomicOp::CompareExchange, AtomicKind::Bits16) => {
            if old == operand & 0xffff {
                swap & 0xffff
            } else {
                old
            }
        }
        (AtomicOp::CompareExchange, _) => {
            if old == operand {
                swap
            } else {
                old
            }
        }
        (AtomicOp::And, _) => old & operand,
        (AtomicOp::Or, _) => old | operand,
        (AtomicOp::Xor, _) => old ^ operand,
        (AtomicOp::Inc, _) => {
            if old >= operand {
                0
            } else {
                old + 1
            }
        }
        (AtomicOp::Dec, _) => {
            if old == 0 || old > operand {
                operand
            } else {
                old - 1
            }
        }
        (AtomicOp::Add, AtomicKind::Single) => {
            let mode = if flush { Mode::NEAREST_FTZ } else { Mode::NEAREST };
            u64::from(single::add(old as u32, operand as u32, mode))
        }
        (AtomicOp::Add, AtomicKind::Double) => double::add(old, operand, Rounding::Nearest),
        (op, AtomicKind::Half(format)) => u64::from(half(op, format, old as u16, operand as u16)),
        (op, AtomicKind::PackedHalf(format)) => {
            u64::from(pairs([old as u32, operand as u32], |[old, operand]| half(op, format, old, operand)))
        }
        (AtomicOp::Add, AtomicKind::Unsigned64 | AtomicKind::Signed64) => old.wrapping_add(operand),
        (AtomicOp::Add, _) => u64::from((old as u32).wrapping_add(operand as u32)),
        (AtomicOp::Min, AtomicKind::Signed32) => u64::from((old as i32).min(operand as i32).cast_unsigned()),
        (AtomicOp::Max, AtomicKind::Signed32) => u64::from((old as i32).max(operand as i32).cast_unsigned()),
        (AtomicOp::Min, AtomicKind::Signed64) => old.cast_signed().min(operand.cast_signed()).cast_unsigned(),
        (AtomicOp::Max, AtomicKind::Signed64) => old.cast_signed().max(operand.cast_signed()).cast_unsigned(),
        (AtomicOp::Min, _) => old.min(operand),
        (AtomicOp::Max, _) => old.max(operand),
    }
}

fn half(op: AtomicOp, format: Half, old: u16, operand: u16) -> u16 {
    match op {
        AtomicOp::Min => format.min(old, operand, MinMax::default()),
        AtomicOp::Max => format.max(old, operand, MinMax::default()),
        _ => format.add(old, operand, HalfMode::default()),
    }
}
