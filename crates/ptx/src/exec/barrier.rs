//! Barriers of a thread block: the sixteen numbered ones, and mbarriers in shared memory.

use super::frame::lanes_of;
use super::warp::{State, Warp};
use crate::ir::{BarrierKind, BarrierReduce, Op};
use crate::memory::LANES;

pub(super) const BARRIERS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Barriers {
    pub(super) states: [BarrierState; BARRIERS],
    /// A bit for each barrier that threads have arrived at since it was last complete.
    pub(super) begun: u32,
    /// A bit for each completed barrier that threads still wait at.
    pub(super) complete: u32,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct BarrierState {
    pub(super) arrived: u32,
    /// Lanes that have ended or never existed. They count as arrived once all other lanes of their warp have, because
    /// an explicit thread count is in whole warps.
    pub(super) exited: u32,
    /// The number of threads that it waits for; `None` means all remaining threads of the block.
    pub(super) expected: Option<u32>,
    /// The number of threads that arrived with a true predicate.
    pub(super) votes: u32,
    /// The arrivals of the completed phase.
    last_arrived: u32,
    last_votes: u32,
}

impl Barriers {
    /// Checks a barrier, and returns whether it is now complete.
    pub(super) fn check(&mut self, id: usize, live: u32) -> bool {
        let state = &mut self.states[id];
        let complete = match state.expected {
            Some(expected) => state.arrived + state.exited >= expected,
            None => state.arrived >= live,
        };
        if state.arrived == 0 || !complete {
            return false;
        }
        (state.last_arrived, state.last_votes) = (state.arrived, state.votes);
        (state.arrived, state.exited, state.votes) = (0, 0, 0);
        self.complete |= 1 << id;
        self.begun &= !(1 << id);
        true
    }

    /// Checks all barriers after threads of a warp have ended. Returns a bit for each that is now complete.
    pub(super) fn check_all(&mut self, warp: &Warp, live: u32) -> u32 {
        let mut complete = 0;
        for id in lanes_of(self.begun) {
            let waiting = waiting(warp, id as u32);
            if waiting != 0 && waiting == warp.alive {
                self.states[id].exited += LANES as u32 - waiting.count_ones();
            }
            complete |= u32::from(self.check(id, live)) << id;
        }
        complete
    }

    /// Returns the result of a reduction at a completed barrier.
    fn result(&self, id: usize, op: BarrierReduce) -> u64 {
        let state = &self.states[id];
        match op {
            BarrierReduce::Count => u64::from(state.last_votes),
            BarrierReduce::And => u64::from(state.last_votes == state.last_arrived),
            BarrierReduce::Or => u64::from(state.last_votes != 0),
        }
    }

    /// Releases the groups of a warp that wait for a completed barrier.
    pub(super) fn release(&self, warp: &mut Warp) {
        for index in 0..warp.groups.len() {
            let group = warp.groups[index];
            let State::Barrier { id } = group.state else { continue };
            if self.complete >> id & 1 == 0 {
                continue;
            }
            let frame = warp.frame_mut(group.frame);
            if let Op::Barrier(barrier) = &frame.code.instructions[group.position as usize].op
                && let BarrierKind::Reduce { op, to, .. } = barrier.kind
            {
                frame.write(to, group.lanes, &[self.result(id as usize, op); LANES]);
            }
            warp.groups[index].state = State::Ready;
            warp.groups[index].position += 1;
        }
    }
}

/// Returns the lanes of a warp that wait at a barrier.
pub(super) fn waiting(warp: &Warp, id: u32) -> u32 {
    let here = warp.groups.iter().filter(|group| group.state == State::Barrier { id });
    here.fold(0, |lanes, group| lanes | group.lanes)
}

/// An mbarrier in a 64-bit word, in a format of this crate: pending arrivals, arrivals per phase, pending bytes, and
/// the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MbarrierState {
    /// 20 bits.
    pub(super) pending: u32,
    /// 20 bits.
    pub(super) expected: u32,
    /// 21 bits, signed: bytes may complete before they are announced.
    pub(super) bytes: i32,
    pub(super) phase: bool,
}

pub(super) const COUNT_MAX: u32 = (1 << 20) - 1;
const VALID: u64 = 1 << 62;

impl MbarrierState {
    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        (bits & VALID != 0).then(|| Self {
            pending: bits as u32 & COUNT_MAX,
            expected: (bits >> 20) as u32 & COUNT_MAX,
            bytes: (((bits >> 40) as u32) << 11).cast_signed() >> 11,
            phase: bits >> 63 != 0,
        })
    }

    pub(super) fn bits(self) -> u64 {
        u64::from(self.pending)
            | u64::from(self.expected) << 20
            | (u64::from(self.bytes.cast_unsigned()) & 0x1f_ffff) << 40
            | VALID
            | u64::from(self.phase) << 63
    }

    /// Completes announced bytes.
    pub(super) fn complete(mut self, bytes: i32) -> Self {
        self.bytes = self.bytes.wrapping_sub(bytes);
        self.advance()
    }

    /// Starts the next phase when nothing is pending.
    pub(super) fn advance(mut self) -> Self {
        if self.pending == 0 && self.bytes == 0 {
            self.pending = self.expected;
            self.phase = !self.phase;
        }
        self
    }
}
