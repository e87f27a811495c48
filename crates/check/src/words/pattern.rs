//! The accesses of warps to a segment of 32 units, each as one pattern: which units, and which thread accesses each.
//!
//! Patterns hold exactly the information of one cell per unit. A segment with too many patterns uses cells instead.

use std::ops::Range;

use smallvec::SmallVec;

use super::cell::{Cell, How};
use super::clock::BlockClock;
use super::slot::{ATOMIC, Slot};
use crate::access::{AccessKind, LANES};

/// The number of units of a segment.
pub(crate) const UNITS: usize = 32;

/// The number of patterns beyond which a segment has cells.
const PATTERNS_MAX: usize = 12;

/// Of a pattern whose units are all accessed by one thread.
const ONE_THREAD: u8 = 5;

/// The patterns of a segment. Most segments have no more than three.
type Patterns = SmallVec<[Pattern; 3]>;

/// What a pattern of a segment is the last one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Write,
    StrongWrite,
    /// The last weak read of a unit.
    Read,
    /// The other one that its cell would remember.
    OtherRead,
    /// On shared memory only.
    StrongRead,
}

/// An access of a warp to units of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    /// The units.
    pub(crate) mask: u32,
    pub(crate) time: u32,
    pub(crate) block: u32,
    /// Unit `u` is accessed by the thread `thread + (u >> shift)`.
    thread: u16,
    pub(crate) instruction: u16,
    shift: u8,
    is_atomic: bool,
    role: Role,
}

impl Pattern {
    /// An access of units from `first` on to before `end`: that of the first one by `thread`, and each thread accesses
    /// `1 << shift` units. `None`: one thread accesses all.
    pub(crate) fn new(slot: Slot, first: usize, end: usize, shift: Option<u32>) -> Self {
        let ones = if end - first == UNITS { u32::MAX } else { (1 << (end - first)) - 1 };
        let shift = shift.map_or(ONE_THREAD, |shift| shift as u8);
        Self {
            mask: ones << first,
            time: slot.time,
            block: slot.block,
            thread: slot.thread().wrapping_sub((first >> shift) as u16),
            instruction: slot.instruction,
            shift,
            is_atomic: slot.is_atomic(),
            role: Role::Read,
        }
    }

    #[inline]
    fn thread(&self, unit: u32) -> u16 {
        self.thread.wrapping_add((unit >> self.shift) as u16)
    }

    #[inline]
    fn warp(&self) -> usize {
        usize::from(self.thread(self.mask.trailing_zeros())) / LANES
    }

    fn slot(&self, unit: usize) -> Slot {
        let kind = if self.is_atomic { ATOMIC } else { 0 };
        let thread_and_kind = self.thread(unit as u32) | kind;
        Slot { time: self.time, block: self.block, thread_and_kind, instruction: self.instruction }
    }

    /// Returns the units that the same thread accesses in another pattern.
    #[inline]
    fn same_threads(&self, other: &Self) -> u32 {
        if self.block != other.block {
            return 0;
        }
        let common = self.mask & other.mask;
        if (self.thread, self.shift) == (other.thread, other.shift) {
            return common;
        }
        let is_same = |unit: &u32| common >> unit & 1 != 0 && self.thread(*unit) == other.thread(*unit);
        (0..UNITS as u32).filter(is_same).fold(0, |mask, unit| mask | 1 << unit)
    }

    /// Returns whether it happens before an access of this pattern that is executed now.
    #[inline]
    fn is_before(&self, clock: &BlockClock, now: &Self) -> bool {
        if self.block != now.block {
            return clock.knows(self.block, self.time);
        }
        clock.orders(self.time, self.warp(), now.warp()) || self.same_threads(now) == self.mask & now.mask
    }

    #[inline]
    fn may_join(&self, other: &Self) -> bool {
        let key = |pattern: &Self| (pattern.time, pattern.block, pattern.thread, pattern.instruction);
        let kind = |pattern: &Self| (pattern.shift, pattern.is_atomic, pattern.role);
        // Each stands for the warp of its first unit.
        key(self) == key(other) && kind(self) == kind(other) && self.warp() == other.warp()
    }
}

/// What is known of a segment.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The time of the last access to shared memory.
    latest: u32,
    accesses: Accesses,
}

#[derive(Debug)]
enum Accesses {
    /// The patterns of one role have no units in common.
    Patterns(Patterns),
    Cells(Box<[Cell; UNITS]>),
}

impl Segment {
    pub(crate) const EMPTY: Self = Self { latest: 0, accesses: Accesses::Patterns(Patterns::new_const()) };

    /// Forgets what a barrier has ordered before everything that is accessed now.
    #[inline]
    fn begin_phase(&mut self, clock: &BlockClock, time: u32) {
        if self.latest < clock.since {
            match &mut self.accesses {
                Accesses::Patterns(patterns) => patterns.clear(),
                Accesses::Cells(_) => self.accesses = Accesses::Patterns(Patterns::new()),
            }
        }
        self.latest = time;
    }

    /// Records an access, and returns `true`; or `false` if it may race with another one, or has to be recorded unit by
    /// unit. Then nothing is changed.
    #[inline]
    pub(crate) fn record(&mut self, clock: &BlockClock, how: How, now: &Pattern) -> bool {
        let How { is_write, is_strong, is_shared } = how;
        if is_shared {
            self.begin_phase(clock, now.time);
        }
        let Accesses::Patterns(patterns) = &mut self.accesses else { return false };
        for before in patterns.iter().filter(|before| before.mask & now.mask != 0) {
            let is_relevant = match before.role {
                Role::Write => true,
                Role::StrongWrite => !is_strong,
                Role::Read | Role::OtherRead => is_write,
                Role::StrongRead => is_write && !is_strong,
            };
            if is_relevant && !before.is_before(clock, now) {
                return false;
            }
        }
        match (is_write, is_strong) {
            (true, false) => set(patterns, Pattern { role: Role::Write, ..*now }),
            (true, true) => set(patterns, Pattern { role: Role::StrongWrite, ..*now }),
            (false, true) if is_shared => set(patterns, Pattern { role: Role::StrongRead, ..*now }),
            (false, true) => {}
            (false, false) => record_read(patterns, now, is_shared),
        }
        if patterns.len() > PATTERNS_MAX {
            self.cells();
        }
        true
    }

    /// Records an access unit by unit. `met` gets the unit of each race, and what [`Cell::access`] returns.
    pub(crate) fn record_units(
        &mut self,
        clock: &BlockClock,
        how: How,
        units: Range<usize>,
        slot_of: impl Fn(usize) -> (Slot, bool),
        mut met: impl FnMut(usize, (Slot, AccessKind)),
    ) {
        for unit in units {
            let (slot, is_unchanged) = slot_of(unit);
            if how.is_shared {
                self.begin_phase(clock, slot.time);
            }
            if let Some(race) = self.cells()[unit].access(clock, how, slot, is_unchanged) {
                met(unit, race);
            }
        }
    }

    /// Returns the cells of the units.
    pub(crate) fn cells(&mut self) -> &mut [Cell; UNITS] {
        if let Accesses::Patterns(patterns) = &self.accesses {
            let mut cells = Box::new([Cell::default(); UNITS]);
            for pattern in patterns.iter() {
                for unit in (0..UNITS).filter(|unit| pattern.mask >> unit & 1 != 0) {
                    let cell = &mut cells[unit];
                    let slot = match pattern.role {
                        Role::Write => &mut cell.write,
                        Role::StrongWrite => &mut cell.strong_write,
                        Role::Read => &mut cell.reads[0],
                        Role::OtherRead => &mut cell.reads[1],
                        Role::StrongRead => &mut cell.strong_read,
                    };
                    *slot = pattern.slot(unit);
                }
            }
            self.accesses = Accesses::Cells(cells);
        }
        match &mut self.accesses {
            Accesses::Cells(cells) => cells,
            Accesses::Patterns(_) => unreachable!("the segment has just got cells"),
        }
    }

    /// Forgets the accesses to units.
    pub(crate) fn forget(&mut self, mask: u32) {
        match &mut self.accesses {
            Accesses::Patterns(patterns) => {
                patterns.iter_mut().for_each(|pattern| pattern.mask &= !mask);
                patterns.retain(|pattern| pattern.mask != 0);
            }
            Accesses::Cells(cells) => {
                let forgotten = cells.iter_mut().enumerate().filter(|(unit, _)| mask >> unit & 1 != 0);
                forgotten.for_each(|(_, cell)| *cell = Cell::default());
            }
        }
    }

    /// Returns the four segments of its words, with a unit for each byte.
    pub(crate) fn split(&self) -> [Self; 4] {
        const WORDS: usize = UNITS / 4;
        std::array::from_fn(|part| {
            let accesses = match &self.accesses {
                Accesses::Cells(cells) => {
                    Accesses::Cells(Box::new(std::array::from_fn(|byte| cells[part * WORDS + byte / 4])))
                }
                Accesses::Patterns(patterns) => {
                    Accesses::Patterns(patterns.iter().filter_map(|pattern| pattern.split(part)).collect())
                }
            };
            Self { latest: self.latest, accesses }
        })
    }
}

impl Pattern {
    /// Returns the same for the bytes of a quarter of the words, if it has any of these.
    fn split(&self, part: usize) -> Option<Self> {
        let first = part * UNITS / 4;
        let words = self.mask >> first & 0xff;
        let mask = (0..8).filter(|word| words >> word & 1 != 0).fold(0, |mask, word| mask | 0xf << (4 * word));
        let thread = self.thread(first as u32);
        (mask != 0).then_some(Self { mask, thread, shift: ONE_THREAD.min(self.shift + 2), ..*self })
    }
}

/// Replaces what the units of a pattern have in its role.
#[inline]
fn set(patterns: &mut Patterns, new: Pattern) {
    if add(patterns, new) {
        patterns.retain(|pattern| pattern.mask != 0);
    }
}

/// Records a weak read as cells do: the last read of each unit becomes the other one, unless the thread is the same, or
/// that forgot a read of another block.
#[inline]
fn record_read(patterns: &mut Patterns, now: &Pattern, is_shared: bool) {
    let is_near = |other: &Pattern| other.block == now.block && (!is_shared || other.warp() == now.warp());
    for index in 0..patterns.len() {
        let last = patterns[index];
        let common = last.mask & now.mask;
        if last.role != Role::Read || common == 0 {
            continue;
        }
        let mut moved = common & !last.same_threads(now);
        if moved != 0 && is_near(&last) {
            let is_foreign = |other: &&Pattern| other.role == Role::OtherRead && !is_near(other);
            moved = patterns.iter().filter(is_foreign).fold(moved, |moved, other| moved & !other.mask);
        }
        if moved != 0 {
            add(patterns, Pattern { mask: moved, role: Role::OtherRead, ..last });
        }
    }
    set(patterns, Pattern { role: Role::Read, ..*now });
}

/// Replaces what the units of a pattern have in its role. Returns whether patterns without units are left.
#[inline]
fn add(patterns: &mut Patterns, new: Pattern) -> bool {
    let (mut joined, mut has_empty) = (false, false);
    for pattern in patterns.iter_mut() {
        if pattern.role == new.role {
            let joins = !joined && pattern.mask != 0 && pattern.may_join(&new);
            pattern.mask = if joins { pattern.mask | new.mask } else { pattern.mask & !new.mask };
            joined |= joins;
        }
        has_empty |= pattern.mask == 0;
    }
    if !joined {
        patterns.push(new);
    }
    has_empty
}
