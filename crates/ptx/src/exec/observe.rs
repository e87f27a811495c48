//! Notifies the observer of the memory, if it has one, of what the threads of a warp did.
//!
//! Only `Run::is_observed` is tested elsewhere: everything that an observer needs beyond the effect of an instruction
//! is computed here.

use super::access::{SpaceAddress, resolve_space};
use super::frame::{ALL, lanes_of};
use super::map::map1;
use super::run::{Run, first};
use super::warp::Warp;
use crate::ir::{Code, MemorySpace};
use crate::memory::{LANES, Memory, Width};
use crate::observer::{AccessKind, Observer, Ordering, Place, Scope, WarpAccess, WordsRead};

/// The origin of accesses, and the memory that they access.
pub(super) struct Access<'m> {
    pub(super) memory: &'m mut dyn Memory,
    pub(super) is_observed: bool,
    pub(super) place: Place,
}

impl Access<'_> {
    /// Notifies the observer that a lane accessed global memory.
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
                is_range: false,
            });
        }
    }
}

impl Run<'_> {
    /// Sets the data that [`observe`](Self::observe) passes on about the instruction.
    pub(super) fn set_place(&mut self, function: usize, code: &Code, position: u32) {
        self.place.function = function as u32;
        self.place.line = code.lines[position as usize];
        self.ordering = code.ordering(position);
    }

    /// Returns global memory, for accesses of single lanes.
    pub(super) fn accesses(&mut self) -> Access<'_> {
        Access { memory: self.memory, is_observed: self.is_observed, place: self.place }
    }

    /// Notifies the observer that lanes are about to write memory, or to change it atomically.
    pub(super) fn before_write(
        &mut self,
        space: MemorySpace,
        kind: AccessKind,
        bytes: u64,
        addresses: &[u64; LANES],
        lanes: u32,
    ) {
        let is_global = |lane: &usize| matches!(resolve_space(space, addresses[*lane]), SpaceAddress::Global(_));
        let global = match space {
            MemorySpace::Global | MemorySpace::Const => lanes,
            MemorySpace::Shared | MemorySpace::Cluster | MemorySpace::Local => 0,
            MemorySpace::Generic | MemorySpace::Param => {
                lanes_of(lanes).filter(is_global).fold(0, |all, lane| all | 1 << lane)
            }
        };
        if global == 0 {
            return;
        }
        let (place, ordering) = (self.place, self.ordering);
        let (is_async, unchanged, is_range) = (false, 0, false);
        let access =
            WarpAccess { place, kind, ordering, is_async, bytes, addresses, lanes: global, unchanged, is_range };
        self.memory.observer().into_iter().for_each(|observer| observer.before_write(&access));
    }

    /// Notifies the observer that lanes accessed memory.
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
        let place = self.place;
        let is_range = false;
        let access = WarpAccess { place, kind, ordering, is_async, bytes, addresses, lanes, unchanged, is_range };
        let (mut global, mut shared, mut offsets) = (0, 0, [0; LANES]);
        match space {
            MemorySpace::Global | MemorySpace::Const => {
                return self.memory.observer().into_iter().for_each(|observer| observer.global(&access));
            }
            MemorySpace::Shared => {
                return self.memory.observer().into_iter().for_each(|observer| observer.shared(&access));
            }
            MemorySpace::Local => return,
            MemorySpace::Generic | MemorySpace::Param | MemorySpace::Cluster => {
                for lane in lanes_of(lanes) {
                    match resolve_space(space, addresses[lane]) {
                        SpaceAddress::Global(_) => global |= 1 << lane,
                        // An access to another block's shared memory is not observed.
                        SpaceAddress::Shared(at) => {
                            if let Some(offset) = self.own_offset(at) {
                                (shared, offsets[lane]) = (shared | 1 << lane, offset);
                            }
                        }
                        SpaceAddress::Local(_) | SpaceAddress::Param(_) => {}
                    }
                }
            }
        }
        let Some(observer) = self.memory.observer() else { return };
        if global != 0 {
            observer.global(&WarpAccess { lanes: global, unchanged: unchanged & global, ..access });
        }
        if shared != 0 {
            let unchanged = unchanged & shared;
            observer.shared(&WarpAccess { addresses: &offsets, lanes: shared, unchanged, ..access });
        }
    }

    /// Notifies the observer of a copy from global to shared memory.
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

    /// Notifies the observer of a load of words in the loop over steps. `is_range`: it is known that the words are
    /// consecutive, and that all lanes take part.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "all of them describe one access")]
    pub(super) fn observe_load(
        &mut self,
        space: MemorySpace,
        function: usize,
        code: &Code,
        position: u32,
        addresses: &[u64; LANES],
        lanes: u32,
        is_range: bool,
    ) {
        self.set_place(function, code, position);
        let (place, ordering, bytes) = (self.place, self.ordering, Width::Four.bytes());
        let (kind, is_async, unchanged) = (AccessKind::Read, false, 0);
        let access = WarpAccess { place, kind, ordering, is_async, bytes, addresses, lanes, unchanged, is_range };
        let Some(observer) = self.memory.observer() else { return };
        match space {
            MemorySpace::Shared => observer.shared(&access),
            _ => observer.global(&access),
        }
    }

    /// Notifies the observer of a load of words of shared memory by all lanes, in the loop over steps.
    #[inline(never)]
    pub(super) fn observe_words(
        &mut self,
        function: usize,
        code: &Code,
        position: u32,
        first: [u32; 2],
        distance: [u32; 2],
    ) {
        self.set_place(function, code, position);
        let read = WordsRead { place: self.place, ordering: self.ordering, first, distance };
        if let Some(observer) = self.memory.observer() {
            observer.shared_words(&read);
        }
    }

    /// Writes consecutive words of global memory in the loop over steps, and notifies the observer. Returns `false` if
    /// it did nothing.
    #[inline(never)]
    pub(super) fn observed_store(
        &mut self,
        function: usize,
        code: &Code,
        position: u32,
        start: u64,
        words: &[u32; LANES],
    ) -> bool {
        let bytes = Width::Four.bytes();
        let addresses = &std::array::from_fn(|lane| start.wrapping_add(bytes * lane as u64));
        self.set_place(function, code, position);
        let (place, ordering, kind) = (self.place, self.ordering, AccessKind::Write);
        let (is_async, unchanged, is_range) = (false, 0, true);
        let access = WarpAccess { place, kind, ordering, is_async, bytes, addresses, lanes: ALL, unchanged, is_range };
        if let Some(observer) = self.memory.observer() {
            observer.before_write(&access);
        }
        let mut before = [0; LANES];
        if !self.memory.load_words(start, &mut before) || !self.memory.store_words(start, words) {
            return false;
        }
        let unchanged = (0..LANES).fold(0, |mask, lane| mask | u32::from(before[lane] == words[lane]) << lane);
        if let Some(observer) = self.memory.observer() {
            observer.global(&WarpAccess { unchanged, ..access });
        }
        true
    }

    /// Writes words of shared memory in the loop over steps, and notifies the observer. The addresses are in ascending
    /// order, aligned and in bounds.
    #[inline(never)]
    pub(super) fn observed_shared_store(
        &mut self,
        function: usize,
        code: &Code,
        position: u32,
        at: &[u32; LANES],
        words: &[u32; LANES],
        lanes: u32,
    ) {
        self.set_place(function, code, position);
        let (shared, _) = self.shared.as_chunks_mut::<4>();
        let mut unchanged = 0;
        for lane in lanes_of(lanes) {
            let (word, bytes) = (&mut shared[at[lane] as usize / 4], words[lane].to_le_bytes());
            unchanged |= u32::from(*word == bytes) << lane;
            *word = bytes;
        }
        let bytes = Width::Four.bytes();
        self.observe(MemorySpace::Shared, AccessKind::Write, bytes, &map1(at, u64::from), lanes, unchanged);
    }

    /// Returns the lanes that are about to write the value that is already there, if they write in ascending order.
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

    /// Notifies the observer of something other than an access.
    pub(super) fn tell(&mut self, about: impl FnOnce(&mut dyn Observer, Place)) {
        let place = self.place;
        if self.is_observed
            && let Some(observer) = self.memory.observer()
        {
            about(observer, place);
        }
    }
}
