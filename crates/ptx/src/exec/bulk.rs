//! Executes bulk copies: `cp.async.bulk`, `cp.reduce.async.bulk` and their forms for tensors, and `tensormap.replace`.
//!
//! A copy is done when its instruction is, so that groups of copies are always complete. Its bytes then complete at its
//! mbarrier, which releases the threads that wait for them.

use super::atomic::{apply_atomic, width_of};
use super::barrier::MbarrierState;
use super::frame::lanes_of;
use super::run::{LaneFault, Run, address};
use super::tensor_box::{Piece, box_pieces, column_pieces};
use super::warp::Warp;
use crate::arith::half::Half;
use crate::fault::FaultKind;
use crate::ir::{AtomicKind, AtomicOp, BulkCopy, BulkEnd, MapReplace, MemorySpace, RANK_BYTES, Slot};
use crate::memory::{LANES, Width};
use crate::observer::{AccessKind, Ordering, Scope};
use crate::tensor_map::{Columns, Element, TensorMap};

/// Bytes of which a copy, and each end of it, is a multiple.
const UNIT: u64 = 16;

/// What stands for NaN outside a tensor, whatever the type.
const NAN: u16 = 0x7ff7;

/// The alignment of a box in shared memory.
const BOX_ALIGN: u64 = 128;

/// The thread that copies.
#[derive(Clone, Copy)]
struct Copier {
    group: usize,
    frame: usize,
    lane: usize,
}

impl Copier {
    fn fault(self, message: impl Into<String>) -> LaneFault {
        (self.lane, FaultKind::Instruction { message: message.into() })
    }

    fn value(self, warp: &Warp, slot: Slot) -> u32 {
        warp.frame(self.frame).narrow[slot as usize][self.lane]
    }

    fn address(self, warp: &Warp, at: &crate::ir::Address) -> u64 {
        address(warp.frame(self.frame), at)[self.lane]
    }
}

/// One end of a copy.
struct End {
    space: MemorySpace,
    /// In the order of the data.
    pieces: Vec<Piece>,
}

impl Run<'_> {
    pub(super) fn bulk_copy(
        &mut self,
        warp: &mut Warp,
        group: usize,
        copy: &BulkCopy,
        active: u32,
    ) -> Result<(), LaneFault> {
        let frame = warp.groups[group].frame;
        let copiers = if copy.is_once { active & active.wrapping_neg() } else { active };
        lanes_of(copiers).try_for_each(|lane| self.bulk_copy_by(warp, copy, Copier { group, frame, lane }))
    }

    fn bulk_copy_by(&mut self, warp: &mut Warp, copy: &BulkCopy, by: Copier) -> Result<(), LaneFault> {
        let map = match (&copy.from, &copy.to) {
            (BulkEnd::Box { map, .. }, _) | (_, BulkEnd::Box { map, .. }) => Some(self.tensor_map(warp, map, by)?),
            _ => None,
        };
        let total = match (&map, copy.bytes) {
            (Some(map), _) => map.box_bytes(),
            (None, bytes) => bytes.map_or(0, |bytes| u64::from(by.value(warp, bytes))),
        };
        if total % UNIT != 0 {
            return Err(by.fault(format!("a bulk copy of {total} bytes, which is not a multiple of {UNIT}")));
        }
        let from = self.end(warp, &copy.from, map.as_ref(), total, false, by)?;
        let mut data = self.read_end(warp, &from, map.as_ref(), by)?;
        if let (BulkEnd::Box { .. }, Some(map)) = (&copy.from, &map) {
            convert(map.element, &mut data);
        }
        let to = self.end(warp, &copy.to, map.as_ref(), total, true, by)?;
        let barrier = copy.barrier.as_ref().map(|at| by.address(warp, at));
        let ranks = match copy.ranks {
            None => vec![None],
            Some(ranks) => lanes_of(by.value(warp, ranks) & 0xffff).map(|rank| Some(rank as u64)).collect(),
        };
        for rank in ranks {
            let rank = rank.filter(|&rank| rank != u64::from(self.rank()));
            let there = |at: u64| rank.map_or(at, |rank| (rank + 1) * RANK_BYTES + at % RANK_BYTES);
            let mut left = &data[..];
            for piece in &to.pieces {
                let (bytes, rest) = left.split_at(piece.bytes as usize);
                left = rest;
                let Some(start) = piece.start.map(there) else { continue };
                match (copy.reduction, copy.byte_mask) {
                    (Some((op, kind)), _) => {
                        let kind = kind.or(map.as_ref().and_then(|map| kind_of(map.element)));
                        let kind = kind.ok_or_else(|| by.fault("elements of this type cannot be combined"))?;
                        self.combine(to.space, (op, kind), start, bytes, by)?;
                    }
                    (None, Some(mask)) => {
                        let mask = by.value(warp, mask);
                        for (offset, byte) in (0..).zip(bytes).filter(|(offset, _)| mask >> (offset % UNIT) & 1 != 0) {
                            self.write_range(warp, to.space, start + offset, &[*byte], by)?;
                        }
                    }
                    (None, None) => self.write_range(warp, to.space, start, bytes, by)?,
                }
            }
            if let Some(barrier) = barrier {
                self.complete(warp, there(barrier), total, by)?;
            }
        }
        Ok(())
    }

    fn tensor_map(&mut self, warp: &Warp, map: &crate::ir::Address, by: Copier) -> Result<TensorMap, LaneFault> {
        let at = by.address(warp, map);
        self.check_alignment(MemorySpace::Generic, &[at; LANES], 1 << by.lane, 64)?;
        let mut bytes = [0; TensorMap::BYTES];
        self.read_range(warp, MemorySpace::Generic, at, &mut bytes, by)?;
        TensorMap::decode(&bytes).map_err(|what| by.fault(what))
    }

    /// Returns where the bytes of an end are.
    fn end(
        &self,
        warp: &Warp,
        end: &BulkEnd,
        map: Option<&TensorMap>,
        total: u64,
        writes: bool,
        by: Copier,
    ) -> Result<End, LaneFault> {
        match (end, map) {
            (BulkEnd::Box { coordinates, offsets, .. }, Some(map)) => {
                let (has, named) = (map.dimensions.len(), coordinates.len());
                if has != named {
                    return Err(by.fault(format!("the tensor map has {has} dimensions, the instruction {named}")));
                }
                let at: Vec<i64> = coordinates.iter().map(|&slot| by.value(warp, slot).cast_signed().into()).collect();
                if at[0].cast_unsigned().wrapping_mul(map.element.bytes()) % UNIT != 0 {
                    let message = format!("a box that begins at {}, which is not a multiple of {UNIT} bytes", at[0]);
                    return Err(by.fault(message));
                }
                let pieces = match (offsets, &map.columns) {
                    (None, None) => box_pieces(map, &at),
                    (Some(offsets), Some(columns)) => {
                        let offsets: Vec<i64> =
                            offsets.iter().map(|&slot| (by.value(warp, slot) & 0xffff).into()).collect();
                        let most = (1 << Columns::corner_bits(columns.lower.len())) - 1;
                        if let Some(offset) = offsets.iter().find(|&&offset| offset > most) {
                            return Err(by.fault(format!("an offset of {offset}, but at most {most} is possible")));
                        }
                        column_pieces(map, columns, &at, &offsets)
                    }
                    (None, Some(_)) => {
                        return Err(by.fault("the tensor map is for '.im2col', the instruction for '.tile'"));
                    }
                    (Some(_), None) => {
                        return Err(by.fault("the tensor map is for '.tile', the instruction for '.im2col'"));
                    }
                };
                Ok(End { space: MemorySpace::Global, pieces })
            }
            (BulkEnd::Range { space, at }, _) => {
                let start = by.address(warp, at);
                let (addresses, lanes) = ([start; LANES], 1 << by.lane);
                let align = if map.is_some() { BOX_ALIGN } else { UNIT };
                self.check_alignment(*space, &addresses, lanes, align)?;
                if *space == MemorySpace::Global {
                    self.check_bounds(warp, by.group, *space, &addresses, lanes, total, writes)?;
                }
                let pieces = match map.and_then(|map| Some((map, map.swizzle.bytes()?))) {
                    None => vec![Piece { start: Some(start), bytes: total }],
                    Some((map, pitch)) => {
                        let row = map.row_bytes();
                        let rows = (0..total / row).map(|number| start + number * pitch);
                        let units = rows.flat_map(|at| (at..at + row).step_by(UNIT as usize));
                        units.map(|at| Piece { start: Some(map.swizzle.apply(at)), bytes: UNIT }).collect()
                    }
                };
                Ok(End { space: *space, pieces })
            }
            (BulkEnd::Box { .. }, None) => unreachable!("the map of a box was read"),
        }
    }

    fn read_end(&mut self, warp: &Warp, end: &End, map: Option<&TensorMap>, by: Copier) -> Result<Vec<u8>, LaneFault> {
        let total: u64 = end.pieces.iter().map(|piece| piece.bytes).sum();
        let mut data = vec![0; total as usize];
        let mut left = &mut data[..];
        for piece in &end.pieces {
            let (bytes, rest) = left.split_at_mut(piece.bytes as usize);
            left = rest;
            match (piece.start, map) {
                (Some(start), _) => self.read_range(warp, end.space, start, bytes, by)?,
                (None, Some(map)) if map.is_filled_with_nan => {
                    bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|bytes| *bytes = NAN.to_le_bytes());
                }
                (None, _) => {}
            }
        }
        Ok(data)
    }

    fn read_range(
        &mut self,
        warp: &Warp,
        space: MemorySpace,
        start: u64,
        bytes: &mut [u8],
        by: Copier,
    ) -> Result<(), LaneFault> {
        let width = width_at(start, bytes.len());
        let size = width.bytes() as usize;
        for (batch, bytes) in (0..).zip(bytes.chunks_mut(size * LANES)) {
            let (addresses, lanes) = batch_at(start + batch * (size * LANES) as u64, size, bytes.len());
            let values = self.load_silently(warp, by.frame, space, width, &addresses, lanes, 1);
            let values = values.map_err(|(_, what)| (by.lane, what))?;
            for (bytes, value) in bytes.chunks_exact_mut(size).zip(values) {
                bytes.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
        self.observe_range(space, AccessKind::Read, start, bytes.len(), by);
        Ok(())
    }

    fn write_range(
        &mut self,
        warp: &mut Warp,
        space: MemorySpace,
        start: u64,
        bytes: &[u8],
        by: Copier,
    ) -> Result<(), LaneFault> {
        if self.is_observed {
            for at in (0..bytes.len() as u64).step_by(UNIT as usize) {
                let size = UNIT.min(bytes.len() as u64 - at);
                self.before_write(space, AccessKind::Write, size, &[start + at; LANES], 1 << by.lane);
            }
        }
        let width = width_at(start, bytes.len());
        let size = width.bytes() as usize;
        for (batch, bytes) in (0..).zip(bytes.chunks(size * LANES)) {
            let (addresses, lanes) = batch_at(start + batch * (size * LANES) as u64, size, bytes.len());
            let mut values = [0; LANES];
            for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(size)) {
                let mut word = [0; 8];
                word[..size].copy_from_slice(bytes);
                *value = u64::from_le_bytes(word);
            }
            let done = self.store_silently(warp, by.frame, space, width, &addresses, lanes, &values, 1);
            done.map_err(|(_, what)| (by.lane, what))?;
        }
        self.observe_range(space, AccessKind::Write, start, bytes.len(), by);
        Ok(())
    }

    /// Combines elements of the data with those in memory.
    fn combine(
        &mut self,
        space: MemorySpace,
        reduction: (AtomicOp, AtomicKind),
        start: u64,
        bytes: &[u8],
        by: Copier,
    ) -> Result<(), LaneFault> {
        let width = width_of(reduction.1);
        let size = width.bytes();
        for (at, bytes) in (start..).step_by(size as usize).zip(bytes.chunks_exact(size as usize)) {
            let (addresses, lanes) = ([at; LANES], 1 << by.lane);
            if self.is_observed {
                self.before_write(space, AccessKind::Atomic, size, &addresses, lanes);
            }
            let mut word = [0; 8];
            word[..size as usize].copy_from_slice(bytes);
            let operand = u64::from_le_bytes(word);
            let change = |old: u64, flush| apply_atomic(reduction, old, operand, 0, flush);
            self.update(space, width, by.lane, at, change)?;
            if self.is_observed {
                self.observe(space, AccessKind::Atomic, size, &addresses, lanes, 0);
            }
        }
        Ok(())
    }

    /// Completes bytes at an mbarrier.
    fn complete(&mut self, warp: &mut Warp, at: u64, bytes: u64, by: Copier) -> Result<(), LaneFault> {
        let (space, addresses, lanes) = (MemorySpace::Cluster, [at; LANES], 1 << by.lane);
        let bits = self.load_silently(warp, by.frame, space, Width::Eight, &addresses, lanes, 8)?[by.lane];
        let state = MbarrierState::from_bits(bits).ok_or_else(|| by.fault("the mbarrier is not initialized"))?;
        let after = state.complete(bytes as i32).bits();
        self.store_silently(warp, by.frame, space, Width::Eight, &addresses, lanes, &[after; LANES], 8)?;
        if self.is_observed {
            let ordering = Ordering { scope: Some(Scope::Block), acquires: true, releases: true };
            self.observe_as(space, AccessKind::Atomic, ordering, false, 8, &addresses, lanes, 0);
        }
        Ok(())
    }

    fn observe_range(&mut self, space: MemorySpace, kind: AccessKind, start: u64, bytes: usize, by: Copier) {
        if !self.is_observed {
            return;
        }
        for at in (0..bytes as u64).step_by(UNIT as usize) {
            let size = UNIT.min(bytes as u64 - at);
            self.observe_as(space, kind, Ordering::default(), false, size, &[start + at; LANES], 1 << by.lane, 0);
        }
    }

    /// `tensormap.replace`
    pub(super) fn replace_in_map(
        &mut self,
        warp: &mut Warp,
        group: usize,
        replace: &MapReplace,
        active: u32,
    ) -> Result<(), LaneFault> {
        let frame = warp.groups[group].frame;
        let (at, values) = (address(warp.frame(frame), &replace.at), warp.frame(frame).read(replace.value));
        self.check_alignment(replace.space, &at, active, 64)?;
        let (place, size) = replace.field.place();
        for lane in lanes_of(active) {
            let by = Copier { group, frame, lane };
            self.write_range(warp, replace.space, at[lane] + place as u64, &values[lane].to_le_bytes()[..size], by)?;
        }
        Ok(())
    }
}

/// Returns the widest access that divides a range.
fn width_at(start: u64, bytes: usize) -> Width {
    match (start | bytes as u64).trailing_zeros() {
        0 => Width::One,
        1 => Width::Two,
        2 => Width::Four,
        _ => Width::Eight,
    }
}

/// Returns the addresses of consecutive words, and which of them exist.
fn batch_at(start: u64, size: usize, bytes: usize) -> ([u64; LANES], u32) {
    let addresses = std::array::from_fn(|lane| start.wrapping_add((lane * size) as u64));
    (addresses, u32::MAX >> (LANES - (bytes / size).min(LANES)))
}

/// Rounds elements that are read as tf32. Subnormals are not flushed, whatever the type says.
fn convert(element: Element, data: &mut [u8]) {
    if matches!(element, Element::Tf32 | Element::Tf32Ftz) {
        let (words, _) = data.as_chunks_mut::<4>();
        words.iter_mut().for_each(|word| *word = to_tf32(u32::from_le_bytes(*word)).to_le_bytes());
    }
}

/// Rounds to nearest, ties to even.
fn to_tf32(bits: u32) -> u32 {
    match bits & 0x7f80_0000 {
        0x7f80_0000 => bits,
        _ => bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff,
    }
}

/// Returns how elements are combined.
fn kind_of(element: Element) -> Option<AtomicKind> {
    Some(match element {
        Element::U32 => AtomicKind::Unsigned32,
        Element::S32 => AtomicKind::Signed32,
        Element::U64 => AtomicKind::Unsigned64,
        Element::S64 => AtomicKind::Signed64,
        Element::F16 => AtomicKind::Half(Half::F16),
        Element::Bf16 => AtomicKind::Half(Half::Bf16),
        Element::F32 | Element::F32Ftz | Element::Tf32 | Element::Tf32Ftz => AtomicKind::Single,
        Element::F64 => AtomicKind::Double,
        Element::U8 | Element::U16 => return None,
    })
}
