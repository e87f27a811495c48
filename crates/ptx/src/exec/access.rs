//! Loads and stores, in every space, with bounds checks.

use super::frame::{ALL, lanes_of};
use super::map::map1;
use super::run::{LaneFault, Run, address, first, sign_extend};
use super::warp::Warp;
use crate::bounds::AllowedExtents;
use crate::fault::FaultKind;
use crate::ir::{LOCAL_WINDOW, MemorySpace, Op, PARAM_WINDOW, RANK_BYTES, Reg, SHARED_WINDOW, WINDOW_BYTES, WINDOWS};
use crate::memory::{LANES, Width};
use crate::observer::AccessKind;

/// The space of one lane's address, and the offset in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum SpaceAddress {
    Global(u64),
    /// From `RANK_BYTES` on, that of a block of the cluster.
    Shared(u64),
    Local(u64),
    Param(u64),
}

impl SpaceAddress {
    fn space(self) -> &'static str {
        match self {
            Self::Global(_) => "global",
            Self::Shared(_) => "shared",
            Self::Local(_) => "local",
            Self::Param(_) => "parameter",
        }
    }
}

pub(super) fn resolve_space(space: MemorySpace, address: u64) -> SpaceAddress {
    let within = |window: u64| address.wrapping_sub(window) < WINDOW_BYTES;
    match space {
        MemorySpace::Global | MemorySpace::Const => SpaceAddress::Global(address),
        MemorySpace::Shared | MemorySpace::Cluster => SpaceAddress::Shared(address),
        MemorySpace::Local => SpaceAddress::Local(address),
        MemorySpace::Generic | MemorySpace::Param => match address {
            _ if address < WINDOWS => SpaceAddress::Global(address),
            _ if within(SHARED_WINDOW) => SpaceAddress::Shared(address - SHARED_WINDOW),
            _ if within(LOCAL_WINDOW) => SpaceAddress::Local(address - LOCAL_WINDOW),
            _ if within(PARAM_WINDOW) => SpaceAddress::Param(address - PARAM_WINDOW),
            _ => SpaceAddress::Global(address),
        },
    }
}

/// Reads `width` bytes from a slice; `None` beyond its end.
#[inline]
pub(super) fn read_le(bytes: &[u8], at: u64, width: Width) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    Some(match width {
        Width::One => u64::from(*bytes.get(at)?),
        Width::Two => u64::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)),
        Width::Four => u64::from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)),
        Width::Eight => u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?),
    })
}

#[inline]
pub(super) fn write_le(bytes: &mut [u8], at: u64, width: Width, value: u64) -> Option<()> {
    let at = usize::try_from(at).ok()?;
    match width {
        Width::One => *bytes.get_mut(at)? = value as u8,
        Width::Two => *bytes.get_mut(at..)?.first_chunk_mut()? = (value as u16).to_le_bytes(),
        Width::Four => *bytes.get_mut(at..)?.first_chunk_mut()? = (value as u32).to_le_bytes(),
        Width::Eight => *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_le_bytes(),
    }
    Some(())
}

impl Run<'_> {
    /// Reads a value for each lane. Faults if an address is not a multiple of `align`.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn load(
        &mut self,
        warp: &Warp,
        frame: usize,
        space: MemorySpace,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        align: u64,
    ) -> Result<[u64; LANES], LaneFault> {
        let values = self.load_silently(warp, frame, space, width, addresses, lanes, align)?;
        if self.is_observed {
            self.observe(space, AccessKind::Read, width.bytes(), addresses, lanes, 0);
        }
        Ok(values)
    }

    /// The same, without notifying an observer.
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn load_silently(
        &mut self,
        warp: &Warp,
        frame: usize,
        space: MemorySpace,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        align: u64,
    ) -> Result<[u64; LANES], LaneFault> {
        self.check_alignment(space, addresses, lanes, align)?;
        let mut values = [0; LANES];
        if space == MemorySpace::Shared {
            if width == Width::Four && self.load_words(addresses, lanes, &mut values) {
                return Ok(values);
            }
            for lane in lanes_of(lanes) {
                values[lane] = read_le(self.shared, addresses[lane], width)
                    .ok_or_else(|| self.out_of_bounds(lane, SpaceAddress::Shared(addresses[lane]), width, false))?;
            }
            return Ok(values);
        }
        if is_all_global(space, addresses, lanes) {
            let loaded = self.memory.load(width, addresses, lanes, &mut values);
            return match loaded {
                Ok(()) => Ok(values),
                Err(stray) => Err(self.out_of_bounds_at(addresses, lanes, stray.address, width, false)),
            };
        }
        for lane in lanes_of(lanes) {
            let spot = resolve_space(space, addresses[lane]);
            values[lane] = self
                .load_one(warp, frame, lane, spot, width)
                .ok_or_else(|| self.out_of_bounds(lane, spot, width, false))?;
        }
        Ok(values)
    }

    /// Reads words of shared memory for all lanes at once. Returns `false` if a lane is inactive or out of bounds.
    fn load_words(&self, addresses: &[u64; LANES], lanes: u32, values: &mut [u64; LANES]) -> bool {
        let (words, _) = self.shared.as_chunks::<4>();
        let highest = addresses.iter().fold(0, |highest, &address| highest.max(address));
        if lanes != ALL || highest / 4 >= words.len() as u64 {
            return false;
        }
        for lane in 0..LANES {
            values[lane] = u64::from(u32::from_le_bytes(words[(addresses[lane] / 4) as usize]));
        }
        true
    }

    fn load_one(&mut self, warp: &Warp, frame: usize, lane: usize, spot: SpaceAddress, width: Width) -> Option<u64> {
        match spot {
            SpaceAddress::Global(address) => {
                let mut values = [0; LANES];
                self.memory.load(width, &[address; LANES], 1 << lane, &mut values).ok()?;
                Some(values[lane])
            }
            SpaceAddress::Shared(at) => {
                let (bytes, at) = self.shared_of(at).ok()?;
                read_le(bytes, at, width)
            }
            SpaceAddress::Local(at) => read_le(warp.local_of(frame, lane), at, width),
            SpaceAddress::Param(at) => read_le(&self.launch.parameters, at, width),
        }
    }

    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        frame: usize,
        space: MemorySpace,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &[u64; LANES],
        align: u64,
    ) -> Result<(), LaneFault> {
        if !self.is_observed {
            return self.store_silently(warp, frame, space, width, addresses, lanes, values, align);
        }
        self.before_write(space, AccessKind::Write, width.bytes(), addresses, lanes);
        let unchanged = self.unchanged(warp, frame, space, width, addresses, lanes, values);
        self.store_silently(warp, frame, space, width, addresses, lanes, values, align)?;
        self.observe(space, AccessKind::Write, width.bytes(), addresses, lanes, unchanged);
        Ok(())
    }

    /// The same, without notifying an observer.
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn store_silently(
        &mut self,
        warp: &mut Warp,
        frame: usize,
        space: MemorySpace,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &[u64; LANES],
        align: u64,
    ) -> Result<(), LaneFault> {
        self.check_alignment(space, addresses, lanes, align)?;
        if space == MemorySpace::Shared {
            for lane in lanes_of(lanes) {
                write_le(self.shared, addresses[lane], width, values[lane])
                    .ok_or_else(|| self.out_of_bounds(lane, SpaceAddress::Shared(addresses[lane]), width, true))?;
            }
            return Ok(());
        }
        if is_all_global(space, addresses, lanes) {
            let stored = self.memory.store(width, addresses, lanes, values);
            return stored.map_err(|stray| self.out_of_bounds_at(addresses, lanes, stray.address, width, true));
        }
        for lane in lanes_of(lanes) {
            let spot = resolve_space(space, addresses[lane]);
            let done = match spot {
                SpaceAddress::Global(address) => {
                    self.memory.store(width, &[address; LANES], 1 << lane, &[values[lane]; LANES]).ok()
                }
                SpaceAddress::Shared(at) => match self.shared_of(at) {
                    Ok((bytes, at)) => write_le(bytes, at, width, values[lane]),
                    Err(_) => None,
                },
                SpaceAddress::Local(at) => write_le(warp.local_of_mut(frame, lane), at, width, values[lane]),
                // Parameters of a kernel are read-only.
                SpaceAddress::Param(_) => None,
            };
            done.ok_or_else(|| self.out_of_bounds(lane, spot, width, true))?;
        }
        Ok(())
    }

    /// Rejects an access outside the memory blocks that its pointer arguments referred to at the launch. The group's
    /// position is that of the instruction.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn check_bounds(
        &self,
        warp: &Warp,
        group: usize,
        space: MemorySpace,
        addresses: &[u64; LANES],
        lanes: u32,
        bytes: u64,
        write: bool,
    ) -> Result<(), LaneFault> {
        if self.bounds.is_empty() {
            return Ok(());
        }
        let group = &warp.groups[group];
        let set = warp.frame(group.frame).code.provenance.pointer_set(group.position);
        match set.and_then(|set| self.bounds.for_set(set)) {
            None => Ok(()),
            Some(limits) => check_limits(limits, space, addresses, lanes, bytes, write),
        }
    }

    pub(super) fn check_alignment(
        &self,
        space: MemorySpace,
        addresses: &[u64; LANES],
        lanes: u32,
        align: u64,
    ) -> Result<(), LaneFault> {
        let mask = align - 1;
        let uneven = (0..LANES).fold(0, |bits, lane| {
            let counts = 0u64.wrapping_sub(u64::from(lanes >> lane & 1));
            bits | addresses[lane] & mask & counts
        });
        if uneven == 0 {
            return Ok(());
        }
        let lane = lanes_of(lanes).find(|&lane| addresses[lane] & mask != 0).unwrap_or(0);
        let address = addresses[lane];
        Err((lane, FaultKind::Misaligned { space: resolve_space(space, address).space(), address, bytes: align }))
    }

    pub(super) fn out_of_bounds(&mut self, lane: usize, spot: SpaceAddress, width: Width, write: bool) -> LaneFault {
        let (address, what) = match spot {
            SpaceAddress::Shared(at) if at >= RANK_BYTES && self.cluster.is_some() => {
                return (lane, self.remote_fault(at, width.bytes(), write));
            }
            SpaceAddress::Global(address) => (address, self.memory.describe(address)),
            SpaceAddress::Shared(at) => (at, format!("the thread block has {} bytes", self.shared.len())),
            SpaceAddress::Local(at) => (at, "the thread's stack ends before it".to_owned()),
            SpaceAddress::Param(at) if write => (at, "parameters are read-only".to_owned()),
            SpaceAddress::Param(at) => (at, format!("there are {} bytes of parameters", self.launch.parameters.len())),
        };
        (lane, FaultKind::Address { space: spot.space(), address, bytes: width.bytes(), write, what })
    }

    /// Returns the fault of the lane whose access is out of bounds at `address`.
    fn out_of_bounds_at(
        &mut self,
        addresses: &[u64; LANES],
        lanes: u32,
        address: u64,
        width: Width,
        write: bool,
    ) -> LaneFault {
        let near = |lane: &usize| address.wrapping_sub(addresses[*lane]) < width.bytes();
        let lane = lanes_of(lanes).find(near).unwrap_or(first(lanes));
        self.out_of_bounds(lane, SpaceAddress::Global(addresses[lane]), width, write)
    }

    pub(super) fn parameter(&mut self, offset: u64, width: Width, lanes: u32) -> Result<u64, LaneFault> {
        read_le(&self.launch.parameters, offset, width)
            .ok_or_else(|| self.out_of_bounds(first(lanes), SpaceAddress::Param(offset), width, false))
    }

    pub(super) fn vector(&mut self, warp: &mut Warp, group: usize, op: &Op, active: u32) -> Result<(), LaneFault> {
        let index = warp.groups[group].frame;
        match op {
            Op::LoadVector { space, width, signed, to, at } => {
                let mut addresses = address(warp.frame(index), at);
                let bytes = width.bytes() * to.len() as u64;
                self.check_alignment(*space, &addresses, active, bytes)?;
                self.check_bounds(warp, group, *space, &addresses, active, bytes, false)?;
                // The addresses are copies: an element may overwrite the register that had them.
                let start = addresses;
                if let Some(pairs) = self.load_whole(*space, &addresses, active, bytes) {
                    if self.is_observed {
                        self.observe(*space, AccessKind::Read, bytes, &start, active, 0);
                    }
                    for (number, to) in to.iter().enumerate() {
                        let Some(to) = to else { continue };
                        let values = map1(&pairs, |pair| element(pair, *width, number));
                        let values = if *signed { sign_extend(values, *width) } else { values };
                        warp.frame_mut(index).write(*to, active, &values);
                    }
                    return Ok(());
                }
                for to in to {
                    let values = self.load_silently(warp, index, *space, *width, &addresses, active, width.bytes())?;
                    if let Some(to) = to {
                        let values = if *signed { sign_extend(values, *width) } else { values };
                        warp.frame_mut(index).write(*to, active, &values);
                    }
                    addresses = map1(&addresses, |address| address.wrapping_add(width.bytes()));
                }
                if self.is_observed {
                    self.observe(*space, AccessKind::Read, bytes, &start, active, 0);
                }
            }
            Op::StoreVector { space, width, from, at } => {
                let addresses = address(warp.frame(index), at);
                let bytes = width.bytes() * from.len() as u64;
                self.check_alignment(*space, &addresses, active, bytes)?;
                self.check_bounds(warp, group, *space, &addresses, active, bytes, true)?;
                let mut unchanged = active;
                if self.is_observed {
                    self.before_write(*space, AccessKind::Write, bytes, &addresses, active);
                    for (number, from) in from.iter().enumerate() {
                        let values = warp.frame(index).read(*from);
                        let at = map1(&addresses, |address| address.wrapping_add(number as u64 * width.bytes()));
                        unchanged &= self.unchanged(warp, index, *space, *width, &at, active, &values);
                    }
                }
                let values = |number: usize| warp.frame(index).read(from[number]);
                let is_whole = is_all_global(*space, &addresses, active) && matches!(bytes, 8 | 16);
                if is_whole {
                    let elements: Vec<[u64; LANES]> = (0..from.len()).map(values).collect();
                    let pairs = std::array::from_fn(|lane| join(elements.iter().map(|values| values[lane]), *width));
                    if self.store_whole(&addresses, active, bytes, &pairs) {
                        if self.is_observed {
                            self.observe(*space, AccessKind::Write, bytes, &addresses, active, unchanged);
                        }
                        return Ok(());
                    }
                }
                for (number, from) in from.iter().enumerate() {
                    let values = warp.frame(index).read(*from);
                    let at = map1(&addresses, |address| address.wrapping_add(number as u64 * width.bytes()));
                    self.store_silently(warp, index, *space, *width, &at, active, &values, width.bytes())?;
                }
                if self.is_observed {
                    self.observe(*space, AccessKind::Write, bytes, &addresses, active, unchanged);
                }
            }
            _ => unreachable!("not a vector access: {op:?}"),
        }
        Ok(())
    }

    /// Loads a vector of 8 or 16 bytes of global memory with one access, as a GPU does. Returns `None` for others, and
    /// for those out of bounds, which are reported for their first element.
    fn load_whole(
        &mut self,
        space: MemorySpace,
        addresses: &[u64; LANES],
        lanes: u32,
        bytes: u64,
    ) -> Option<[[u64; 2]; LANES]> {
        if !is_all_global(space, addresses, lanes) {
            return None;
        }
        let mut pairs = [[0; 2]; LANES];
        match bytes {
            8 => {
                let mut values = [0; LANES];
                self.memory.load(Width::Eight, addresses, lanes, &mut values).ok()?;
                pairs = map1(&values, |value| [value, 0]);
            }
            16 => self.memory.load_pairs(addresses, lanes, &mut pairs).ok()?,
            _ => return None,
        }
        Some(pairs)
    }

    /// Stores a vector of 8 or 16 bytes of global memory with one access. Returns whether it could.
    fn store_whole(&mut self, addresses: &[u64; LANES], lanes: u32, bytes: u64, pairs: &[[u64; 2]; LANES]) -> bool {
        match bytes {
            8 => self.memory.store(Width::Eight, addresses, lanes, &map1(pairs, |pair| pair[0])).is_ok(),
            _ => self.memory.store_pairs(addresses, lanes, pairs).is_ok(),
        }
    }

    pub(super) fn copy(&mut self, warp: &mut Warp, group: usize, op: &Op, active: u32) -> Result<(), LaneFault> {
        let Op::CopyAsync { to, from, bytes, source_bytes } = op else { unreachable!("not a copy") };
        let index = warp.groups[group].frame;
        let frame = warp.frame(index);
        let (to, from) = (address(frame, to), address(frame, from));
        let sources = source_bytes.map_or([*bytes; LANES], |slot| frame.narrow[slot as usize].map(|n| n.min(*bytes)));
        self.check_alignment(MemorySpace::Shared, &to, active, u64::from(*bytes))?;
        self.check_alignment(MemorySpace::Global, &from, active, u64::from(*bytes))?;
        for lane in lanes_of(active).filter(|&lane| sources[lane] > 0) {
            let read = u64::from(sources[lane]);
            self.check_bounds(warp, group, MemorySpace::Global, &from, 1 << lane, read, false)?;
        }
        // Copies words, or bytes where a source ends inside one. Bytes beyond the source are zero.
        let width = if sources.iter().all(|bytes| bytes % 4 == 0) { Width::Four } else { Width::One };
        for offset in (0..u64::from(*bytes)).step_by(width as usize) {
            let source = map1(&from, |address| address.wrapping_add(offset));
            let target = map1(&to, |address| address.wrapping_add(offset));
            let has = |lane: &usize| offset < u64::from(sources[*lane]);
            let real = lanes_of(active).filter(has).fold(0, |lanes, lane| lanes | 1 << lane);
            let values = self.load_silently(warp, index, MemorySpace::Global, width, &source, real, width.bytes())?;
            self.store_silently(warp, index, MemorySpace::Shared, width, &target, active, &values, width.bytes())?;
        }
        if self.is_observed {
            self.observe_copy(&to, u64::from(*bytes), &from, &sources, active);
        }
        Ok(())
    }

    /// Converts addresses between spaces.
    pub(super) fn translate(&mut self, warp: &mut Warp, index: usize, op: &Op, active: u32) {
        let window = |space: MemorySpace| match space {
            MemorySpace::Shared | MemorySpace::Cluster => SHARED_WINDOW,
            MemorySpace::Local => LOCAL_WINDOW,
            // Addresses of these are already generic.
            MemorySpace::Global | MemorySpace::Const | MemorySpace::Generic | MemorySpace::Param => 0,
        };
        let program = self.program;
        let own = self.own_rank_bits();
        let frame = warp.frame_mut(index);
        match *op {
            // A generic address states the block of the cluster, so that other blocks can use it.
            Op::ToGeneric { space: MemorySpace::Shared | MemorySpace::Cluster, to, from } if own != 0 => {
                let values = map1(&frame.read(from), |at| {
                    SHARED_WINDOW.wrapping_add(if at < RANK_BYTES { at + own } else { at })
                });
                frame.write(to, active, &values);
            }
            Op::FromGeneric { space: MemorySpace::Shared | MemorySpace::Cluster, to, from } if own != 0 => {
                let values = map1(&frame.read(from), |address| {
                    let at = address.wrapping_sub(SHARED_WINDOW);
                    if at.wrapping_sub(own) < RANK_BYTES { at - own } else { at }
                });
                frame.write(to, active, &values);
            }
            Op::ToGeneric { space, to, from } => {
                let values = map1(&frame.read(from), |address| address.wrapping_add(window(space)));
                frame.write(to, active, &values);
            }
            Op::FromGeneric { space, to, from } => {
                let values = map1(&frame.read(from), |address| address.wrapping_sub(window(space)));
                frame.write(to, active, &values);
            }
            Op::IsSpace { space, to, from } => {
                let values = map1(&frame.read(from), |address| {
                    let found = resolve_space(MemorySpace::Generic, address);
                    u64::from(match space {
                        MemorySpace::Shared => match found {
                            SpaceAddress::Shared(at) => at < RANK_BYTES || at.wrapping_sub(own) < RANK_BYTES,
                            _ => false,
                        },
                        MemorySpace::Cluster => matches!(found, SpaceAddress::Shared(_)),
                        MemorySpace::Local => matches!(found, SpaceAddress::Local(_)),
                        MemorySpace::Param => matches!(found, SpaceAddress::Param(_)),
                        MemorySpace::Const => program.is_constant(address),
                        MemorySpace::Global | MemorySpace::Generic => {
                            matches!(found, SpaceAddress::Global(_)) && !program.is_constant(address)
                        }
                    })
                });
                frame.write(Reg::Predicate(to), active, &values);
            }
            _ => unreachable!("not an address conversion"),
        }
    }
}

/// Checks an access against its bounds: all lanes at once if one memory block contains them all.
fn check_limits(
    limits: &AllowedExtents,
    space: MemorySpace,
    addresses: &[u64; LANES],
    lanes: u32,
    bytes: u64,
    write: bool,
) -> Result<(), LaneFault> {
    let (mut low, mut high) = (u64::MAX, 0);
    if lanes == ALL {
        for &address in addresses {
            (low, high) = (low.min(address), high.max(address));
        }
    } else {
        for lane in lanes_of(lanes) {
            (low, high) = (low.min(addresses[lane]), high.max(addresses[lane]));
        }
    }
    if limits.contains_all(low, high, bytes, write) {
        return Ok(());
    }
    for lane in lanes_of(lanes) {
        if let SpaceAddress::Global(address) = resolve_space(space, addresses[lane])
            && let Some(what) = limits.violation(address, bytes, write)
        {
            return Err((lane, FaultKind::Address { space: "global", address, bytes, write, what }));
        }
    }
    Ok(())
}

/// Returns an element of a vector, from its first 16 bytes.
fn element(pair: [u64; 2], width: Width, number: usize) -> u64 {
    let offset = number as u64 * width.bytes();
    let word = pair[(offset / 8) as usize] >> (offset % 8 * 8);
    match width {
        Width::Eight => word,
        _ => word & ((1 << (width.bytes() * 8)) - 1),
    }
}

/// Returns the bytes of a vector of at most 16 bytes.
fn join(elements: impl Iterator<Item = u64>, width: Width) -> [u64; 2] {
    let mut pair = [0; 2];
    for (number, value) in elements.enumerate() {
        let offset = number as u64 * width.bytes();
        let value = if width == Width::Eight { value } else { value & ((1 << (width.bytes() * 8)) - 1) };
        pair[(offset / 8) as usize] |= value << (offset % 8 * 8);
    }
    pair
}

/// Returns whether no lane's address can be in a window.
#[inline]
fn is_all_global(space: MemorySpace, addresses: &[u64; LANES], lanes: u32) -> bool {
    match space {
        MemorySpace::Global | MemorySpace::Const => true,
        MemorySpace::Generic | MemorySpace::Param => {
            (0..LANES).all(|lane| lanes >> lane & 1 == 0 || addresses[lane] < WINDOWS)
        }
        MemorySpace::Shared | MemorySpace::Cluster | MemorySpace::Local => false,
    }
}
