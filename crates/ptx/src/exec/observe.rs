//! Tells the observer of the memory, if it has one, what the threads of a warp did.
//!
//! Only `Run::is_observed` is tested elsewhere: whatever an observer needs beyond the effect of an instruction is
//! computed here.

use super::access::{SpaceAddress, resolve_space};
use super::frame::lanes_of;
use super::map::map1;
use super::run::{Run, first};
use super::warp::Warp;
use crate::ir::{Code, MemorySpace};
use crate::memory::{LANES, Memory, Width};
use crate::observer::{AccessKind, Observer, Ordering, Place, Scope, WarpAccess};

/// Where accesses are from, and to which memory.
pub(super) struct Access<'m> {
    pub(super) memory: &'m mut dyn Memory,
    pub(super) is_observed: bool,
    pub(super) place: Place,
}

impl Access<'_> {
    /// Tells that a lane accessed global memory.
    pub(super) fn observe(&mut self, kind: AccessKind, lane: usize, address: u64, bytes: u64) {
        if self.is_observed
            && let Some(observer) = self.memory.observer()
        {
            let (addresses, lanes) = (&[address; LANES], 1 << lane);
            let (ordering, place) = (Ordering::default(), self.place);
            observer.global(&WarpAccess {
                place,
                kind,
                ordering,
                is_async: false,
                bytes,
                addresses,
                lanes,
                unchanged: 0,
            });
        }
    }
}

impl Run<'_> {
    /// Sets what [`observe`](Self::observe) says about the instruction.
    #[cold]
    pub(super) fn set_place(&mut self, function: usize, code: &Code, position: u32) {
        self.place.function = function as u32;
        self.place.line = code.lines[position as usize];
        self.ordering = code.ordering(position);
    }

    /// Returns global memory, for accesses of single lanes.
    pub(super) fn accesses(&mut self) -> Access<'_> {
        Access { memory: self.memory, is_observed: self.is_observed, place: self.place }
    }

    /// Tells that lanes accessed memory.
    #[cold]
    pub(super) fn observe(
        &mut self,
        space: MemorySpace,
        kind: AccessKind,
        bytes: u64,
        addresses: &[u64; LANES],
        lanes: u32,
        unchanged: u32,
    ) {
        let ordering = match (kind, self.ordering.scope) {
            // An atomic operation is strong even if it does not say so.
            (AccessKind::Atomic, None) => Ordering { scope: Some(Scope::Device), ..self.ordering },
            _ => self.ordering,
        };
        self.observe_as(space, kind, ordering, false, bytes, addresses, lanes, unchanged);
    }

    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn observe_as(
        &mut self,
        space: MemorySpace,
        kind: AccessKind,
        ordering: Ordering,
        is_async: bool,
        bytes: u64,
        addresses: &[u64; LANES],
        lanes: u32,
        unchanged: u32,
    ) {
        let (mut global, mut shared, mut offsets) = (0, 0, [0; LANES]);
        match space {
            MemorySpace::Global | MemorySpace::Const => global = lanes,
            MemorySpace::Shared => (shared, offsets) = (lanes, *addresses),
            MemorySpace::Local => {}
            MemorySpace::Generic | MemorySpace::Param => {
                for lane in lanes_of(lanes) {
                    match resolve_space(space, addresses[lane]) {
                        SpaceAddress::Global(_) => global |= 1 << lane,
                        SpaceAddress::Shared(offset) => (shared, offsets[lane]) = (shared | 1 << lane, offset),
                        SpaceAddress::Local(_) | SpaceAddress::Param(_) => {}
                    }
                }
            }
        }
        let place = self.place;
        let Some(observer) = self.memory.observer() else { return };
        let access = WarpAccess { place, kind, ordering, is_async, bytes, addresses, lanes: global, unchanged };
        if global != 0 {
            observer.global(&WarpAccess { unchanged: unchanged & global, ..access });
        }
        if shared != 0 {
            let unchanged = unchanged & shared;
            observer.shared(&WarpAccess { addresses: &offsets, lanes: shared, unchanged, ..access });
        }
    }

    /// Tells about a copy from global to shared memory.
    #[cold]
    pub(super) fn observe_copy(
        &mut self,
        to: &[u64; LANES],
        bytes: u64,
        from: &[u64; LANES],
        sources: &[u32; LANES],
        lanes: u32,
    ) {
        let mut left = lanes_of(lanes).filter(|&lane| sources[lane] > 0).fold(0, |lanes, lane| lanes | 1 << lane);
        while left != 0 {
            let read = sources[first(left)];
            let same = lanes_of(left).filter(|&lane| sources[lane] == read).fold(0, |lanes, lane| lanes | 1 << lane);
            let (space, kind) = (MemorySpace::Global, AccessKind::Read);
            self.observe_as(space, kind, Ordering::default(), true, read.into(), from, same, 0);
            left &= !same;
        }
        self.observe_as(MemorySpace::Shared, AccessKind::Write, Ordering::default(), true, bytes, to, lanes, 0);
    }

    /// Tells about a load of words in the loop over steps.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_load(
        &mut self,
        space: MemorySpace,
        function: usize,
        code: &Code,
        position: u32,
        addresses: &[u64; LANES],
        lanes: u32,
    ) {
        self.set_place(function, code, position);
        self.observe(space, AccessKind::Read, Width::Four.bytes(), addresses, lanes, 0);
    }

    /// Returns the lanes that are about to write what is already there, if they write in ascending order.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn unchanged(
        &mut self,
        warp: &Warp,
        frame: usize,
        space: MemorySpace,
        width: Width,
        addresses: &[u64; LANES],
        lanes: u32,
        values: &[u64; LANES],
    ) -> u32 {
        if space == MemorySpace::Local {
            return 0;
        }
        let Ok(mut before) = self.load_silently(warp, frame, space, width, addresses, lanes, width.bytes()) else {
            return 0;
        };
        let mask = u64::MAX >> (64 - 8 * width.bytes());
        let values = map1(values, |value| value & mask);
        let is_ascending = addresses.is_sorted_by(|a, b| a < b);
        let mut unchanged = 0;
        for lane in lanes_of(lanes) {
            if !is_ascending {
                let same = |&other: &usize| addresses[other] == addresses[lane];
                if let Some(other) = lanes_of(lanes & ((1 << lane) - 1)).filter(same).last() {
                    before[lane] = values[other];
                }
            }
            unchanged |= u32::from(before[lane] == values[lane]) << lane;
        }
        unchanged
    }

    /// Tells about something else than an access.
    pub(super) fn tell(&mut self, about: impl FnOnce(&mut dyn Observer, Place)) {
        let place = self.place;
        if self.is_observed
            && let Some(observer) = self.memory.observer()
        {
            about(observer, place);
        }
    }
}
