//! Plain accesses of 32-bit words for all lanes at once: one check for the warp.
//!
//! An access is plain if every active lane is aligned and in bounds. Otherwise nothing is done, and `access` repeats it
//! lane by lane.

use super::frame::{ALL, Frame, lanes_of};
use super::level::{Level, write};
use super::map::{Lanes, map1, map2, words_of};
use super::pattern::Patterns;
use super::run::Run;
use super::step_rows::{are_within, mask_where};
use crate::ir::{Code, NO_RESULT, Opcode, Step, WINDOWS};
use crate::memory::{LANES, Width};

const WORD: u64 = Width::Four as u64;
const HALF: usize = LANES / 2;

/// The addresses of active lanes.
struct Span {
    low: u64,
    high: u64,
    /// The bits that are set in any of them.
    bits: u64,
}

impl Run<'_> {
    /// Returns the bytes of an argument.
    #[inline(always)]
    pub(super) fn argument<const BYTES: usize>(&self, offset: i64) -> Option<[u8; BYTES]> {
        self.launch.parameters.get(offset as usize..)?.first_chunk().copied()
    }

    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn load_step<L: Level>(&mut self, frame: &mut Frame, step: &Step, active: u32) -> bool {
        let base = &frame.wide[step.a as usize].0;
        if let Some(start) = consecutive_start::<L>(base, active)
            && self.load_range::<L>(frame, step, active, start)
        {
            return true;
        }
        let base = &frame.wide[step.a as usize].0;
        let addresses = map1(base, |base| base.wrapping_add_signed(step.offset));
        if !self.allows(step, &span(&addresses, active), false) {
            return false;
        }
        let mut values = [0; LANES];
        if self.memory.load(Width::Four, &addresses, active, &mut values).is_err() {
            return false;
        }
        write::<L, u32>(
            &mut frame.narrow[step.to as usize].0,
            &mut frame.mask,
            step,
            active,
            map1(&values, |value| value as u32),
        );
        true
    }

    /// Loads consecutive words, the first of which is at `start`.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn load_range<L: Level>(&mut self, frame: &mut Frame, step: &Step, active: u32, start: u64) -> bool {
        let start = start.wrapping_add_signed(step.offset);
        if !self.allows(step, &consecutive_span(start, active), false) {
            return false;
        }
        let to = &mut frame.narrow[step.to as usize].0;
        if active == ALL || step.is_whole {
            return self.memory.load_words(start, to);
        }
        let mut words = [0; LANES];
        let is_done = self.memory.load_words(start, &mut words);
        if is_done {
            write::<L, u32>(to, &mut frame.mask, step, active, words);
        }
        is_done
    }

    /// Stores consecutive words, the first of which is at `start`.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn store_range(&mut self, frame: &Frame, step: &Step, active: u32, start: u64) -> bool {
        let start = start.wrapping_add_signed(step.offset);
        let words = &frame.narrow[step.b as usize].0;
        self.allows(step, &consecutive_span(start, active), true)
            && match active {
                ALL => self.memory.store_words(start, words),
                _ => self.memory.store_some_words(start, words, active),
            }
    }

    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn store_step<L: Level>(&mut self, frame: &mut Frame, step: &Step, active: u32) -> bool {
        let base = &frame.wide[step.a as usize].0;
        let words = &frame.narrow[step.b as usize].0;
        if let Some(start) = consecutive_start::<L>(base, active)
            && self.store_range(frame, step, active, start)
        {
            return true;
        }
        let addresses = map1(base, |base| base.wrapping_add_signed(step.offset));
        // If a lane is out of bounds, those before it are stored twice, with the same values.
        self.allows(step, &span(&addresses, active), true)
            && self.memory.store(Width::Four, &addresses, active, &map1(words, u64::from)).is_ok()
    }

    /// Returns whether all lanes access consecutive words.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn is_range_step<L: Level>(addresses: &Lanes<u64>, active: u32) -> bool {
        active == ALL && is_consecutive::<L>(addresses)
    }

    /// The same as [`store_step`](Self::store_step), and notifies the observer. Returns `false` unless the words are
    /// consecutive and all lanes are active.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn observed_store_step<L: Level>(
        &mut self,
        frame: &mut Frame,
        code: &Code,
        position: u32,
        step: &Step,
        active: u32,
    ) -> bool {
        let base = &frame.wide[step.a as usize].0;
        if active != ALL || !is_consecutive::<L>(base) {
            return false;
        }
        let start = base[0].wrapping_add_signed(step.offset);
        let words = &frame.narrow[step.b as usize].0;
        self.allows(step, &consecutive_span(start, active), true)
            && self.observed_store(frame.function, code, position, start, words)
    }

    /// Writes consecutive words of shared memory, and notifies the observer. Returns `false` if they are not
    /// consecutive.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn observed_store_shared_step<L: Level>(
        &mut self,
        frame: &mut Frame,
        code: &Code,
        position: u32,
        step: &Step,
        active: u32,
        at: &Lanes<u32>,
    ) -> bool {
        let (shared, _) = self.shared.as_chunks::<4>();
        if !is_consecutive_shared::<L>(at) || L::any(at, 3) || !are_within::<L>(shared.len(), at) {
            return false;
        }
        let words = &frame.narrow[step.b as usize].0;
        self.observed_shared_store(frame.function, code, position, at, words, active);
        true
    }

    /// Returns whether all accesses are aligned, in global memory, and in one block that the arguments allow.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn allows(&self, step: &Step, span: &Span, write: bool) -> bool {
        if !span.bits.is_multiple_of(WORD) {
            return false;
        }
        if !matches!(step.opcode, Opcode::LoadGlobal | Opcode::StoreGlobal) && span.high >= WINDOWS {
            return false;
        }
        let limits = match step.c {
            0 => None,
            set => self.bounds.for_set(set as usize - 1),
        };
        limits.is_none_or(|limits| limits.contains_all(span.low, span.high, WORD, write))
    }

    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn load_shared_step<L: Level>(
        &mut self,
        frame: &mut Frame,
        step: &Step,
        active: u32,
        at: &Lanes<u32>,
    ) -> bool {
        let (shared, _) = self.shared.as_chunks::<4>();
        if L::any(at, 3) {
            return false;
        }
        if !are_within::<L>(shared.len(), at) {
            return false;
        }
        let words = read_halves::<L>(shared, at);
        write::<L, u32>(&mut frame.narrow[step.to as usize].0, &mut frame.mask, step, active, words);
        true
    }

    /// Finds the pattern of a register's addresses.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn find_pattern<L: Level>(patterns: &mut Patterns, index: usize, base: &Lanes<u64>) {
        let mut first = [base[0]; LANES];
        first[HALF..].fill(base[HALF]);
        let starts = map2(base, &DISTANCES, |base, distance| base.wrapping_sub(distance % (WORD * HALF as u64)));
        let uniform = mask_where::<L, _>(base, &first, |base, first| base == first);
        let consecutive = mask_where::<L, _>(&starts, &first, |start, first| start == first);
        patterns.set(index, [base[0], base[HALF]], uniform, consecutive);
    }

    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn store_shared_step<L: Level>(
        &mut self,
        frame: &mut Frame,
        step: &Step,
        active: u32,
        at: &Lanes<u32>,
    ) -> bool {
        let (shared, _) = self.shared.as_chunks_mut::<4>();
        if L::any(at, 3) || !are_within::<L>(shared.len(), at) {
            return false;
        }
        let words = &frame.narrow[step.b as usize].0;
        let start = at[0] as usize / 4;
        if active == ALL
            && is_consecutive_shared::<L>(at)
            && let Some(run) = shared.get_mut(start..start + LANES)
        {
            for lane in 0..LANES {
                run[lane] = words[lane].to_le_bytes();
            }
            return true;
        }
        for lane in lanes_of(active) {
            shared[at[lane] as usize / 4] = words[lane].to_le_bytes();
        }
        true
    }

    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn add_shared_step<L: Level>(
        &mut self,
        frame: &mut Frame,
        step: &Step,
        active: u32,
        at: &Lanes<u32>,
    ) -> bool {
        let (shared, _) = self.shared.as_chunks_mut::<4>();
        if L::any(at, 3) || !are_within::<L>(shared.len(), at) {
            return false;
        }
        let terms = &frame.narrow[step.b as usize].0;
        let mut before = [0; LANES];
        for lane in lanes_of(active) {
            let word = &mut shared[at[lane] as usize / 4];
            before[lane] = u32::from_le_bytes(*word);
            *word = before[lane].wrapping_add(terms[lane]).to_le_bytes();
        }
        if step.to != NO_RESULT {
            write::<L, u32>(&mut frame.narrow[step.to as usize].0, &mut frame.mask, step, active, before);
        }
        true
    }
}

impl Run<'_> {
    /// Returns the first lane's product of an index and 4, if each lane's index is one more than that of the lane before, and
    /// the products are too.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn range_of_products<L: Level>(indices: &Lanes<u32>, factor: u32, signed: bool) -> Option<u64> {
        const LAST: u32 = LANES as u32 - 1;
        let first = indices[0];
        if u64::from(factor) != WORD || indices[LANES - 1].wrapping_sub(first) != LAST {
            return None;
        }
        let (overflows, start) = match signed {
            true => {
                (first.cast_signed() > i32::MAX - LAST.cast_signed(), i64::from(first.cast_signed()).cast_unsigned())
            }
            false => (first > u32::MAX - LAST, u64::from(first)),
        };
        let differ = map2(indices, &DISTANCES, |index, distance| index.wrapping_sub((distance / WORD) as u32) ^ first);
        (!overflows && !L::any(&differ, u32::MAX)).then_some(start.wrapping_mul(WORD))
    }
}

/// Returns whether each lane's address is one word after that of the lane before.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn is_consecutive<L: Level>(base: &Lanes<u64>) -> bool {
    if base[LANES - 1].wrapping_sub(base[0]) != WORD * (LANES as u64 - 1) {
        return false;
    }
    let start = base[0];
    let ends = map2(base, &DISTANCES, |base, distance| base.wrapping_sub(distance) ^ start);
    !L::any_wide(&ends, u64::MAX)
}

/// Returns the address of the first lane, or the one that it would have, if each active lane's address is one word after
/// that of the lane before.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn consecutive_start<L: Level>(base: &Lanes<u64>, active: u32) -> Option<u64> {
    if active == ALL {
        return is_consecutive::<L>(base).then_some(base[0]);
    }
    let first = active.trailing_zeros() as usize % LANES;
    let start = base[first].wrapping_sub(DISTANCES[first]);
    let starts = map2(base, &DISTANCES, u64::wrapping_sub);
    (active & !mask_where::<L, _>(&starts, &[start; LANES], |lane, start| lane == start) == 0).then_some(start)
}

const DISTANCES: Lanes<u64> = {
    let mut distances = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        distances[lane] = WORD * lane as u64;
        lane += 1;
    }
    distances
};

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn is_consecutive_shared<L: Level>(at: &Lanes<u32>) -> bool {
    if at[LANES - 1].wrapping_sub(at[0]) != 4 * (LANES as u32 - 1) {
        return false;
    }
    let start = at[0];
    let ends = map2(at, &DISTANCES, |at, distance| at.wrapping_sub(distance as u32) ^ start);
    !L::any(&ends, u32::MAX)
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn consecutive_span(start: u64, active: u32) -> Span {
    let low = start.wrapping_add(WORD * u64::from(active.trailing_zeros()));
    let high = start.wrapping_add(WORD * u64::from(31 - active.leading_zeros()));
    // Addresses that wrap around are left to the slow path, as are unaligned ones.
    Span { low, high, bits: start | u64::from(low > high) }
}

#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn span(addresses: &Lanes<u64>, active: u32) -> Span {
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    for (lane, &address) in addresses.iter().enumerate() {
        let is_active = active >> lane & 1 != 0;
        low = low.min(if is_active { address } else { u64::MAX });
        high = high.max(if is_active { address } else { 0 });
        bits |= if is_active { address } else { 0 };
    }
    Span { low, high, bits }
}

/// Reads the word at each address, which is within the words. In each half of a warp, the same word for all lanes or
/// consecutive words are read at once, which covers rows and columns of tiles that are 16 wide.
#[cfg_attr(debug_assertions, inline(never))]
#[cfg_attr(not(debug_assertions), inline(always))]
fn read_halves<L: Level>(shared: &[[u8; 4]], at: &Lanes<u32>) -> Lanes<u32> {
    let mut first = [at[0]; LANES];
    first[HALF..].fill(at[HALF]);
    let distances = map1(&DISTANCES, |distance| (distance % (WORD * HALF as u64)) as u32);
    let is_uniform = mask_where::<L, _>(at, &first, |at, first| at == first);
    let is_consecutive = mask_where::<L, _>(&map2(at, &distances, u32::wrapping_sub), &first, |at, first| at == first);
    let mut words = [0; LANES];
    for (half, words) in words.as_chunks_mut::<HALF>().0.iter_mut().enumerate() {
        let (start, shift) = (at[HALF * half] as usize / 4, HALF * half);
        if is_uniform >> shift & 0xffff == 0xffff {
            *words = [u32::from_le_bytes(shared[start]); HALF];
        } else if is_consecutive >> shift & 0xffff == 0xffff {
            let run: &[[u8; 4]; HALF] = shared[start..].first_chunk().expect("the last word is within the words");
            *words = words_of(run);
        } else {
            for (lane, word) in words.iter_mut().enumerate() {
                *word = u32::from_le_bytes(shared[at[shift + lane] as usize / 4]);
            }
        }
    }
    words
}
