//! Barriers of a block: the sixteen numbered ones, and mbarriers in shared memory.

use super::frame::{Frame, lanes_of};
use super::run::{LaneFault, Run, address, first};
use super::warp::{State, Warp};
use crate::fault::FaultKind;
use crate::memory::{LANES, Width};
use crate::program::{Barrier, BarrierKind, BarrierReduce, Mbarrier, MbarrierOp, Reg};

const BARRIERS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Barriers {
    states: [BarrierState; BARRIERS],
    /// A bit for each completed barrier that threads still wait at.
    pub(super) complete: u32,
}

#[derive(Debug, Default, Clone, Copy)]
struct BarrierState {
    arrived: u32,
    /// Lanes that do not exist or have ended, of warps whose other lanes have all arrived: thread counts are in whole
    /// warps.
    exited: u32,
    /// The number of threads that it waits for; `None` means all remaining threads of the block.
    expected: Option<u32>,
    /// The number of threads that arrived with a true predicate.
    votes: u32,
    /// The arrivals of the completed phase.
    last_arrived: u32,
    last_votes: u32,
}

impl Barriers {
    /// Checks a barrier, and returns whether it is now complete.
    fn check(&mut self, id: usize, live: u32) -> bool {
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
        true
    }

    /// Checks all barriers after threads of a warp have ended.
    pub(super) fn check_all(&mut self, warp: &Warp, live: u32) -> bool {
        for (id, state) in self.states.iter_mut().enumerate() {
            let waiting = waiting(warp, id as u32);
            if waiting != 0 && waiting == warp.alive {
                state.exited += LANES as u32 - waiting.count_ones();
            }
        }
        let mut complete = false;
        for id in 0..BARRIERS {
            complete |= self.check(id, live);
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
            let code = std::sync::Arc::clone(&frame.code);
            if let crate::program::Op::Barrier(barrier) = &code.instructions[group.position as usize].op
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
fn waiting(warp: &Warp, id: u32) -> u32 {
    let here = warp.groups.iter().filter(|group| group.state == State::Barrier { id });
    here.fold(0, |lanes, group| lanes | group.lanes)
}

/// An mbarrier in a 64-bit word, in a format of this crate: pending arrivals, arrivals per phase, pending bytes, and
/// the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MbarrierState {
    /// 20 bits.
    pending: u32,
    /// 20 bits.
    expected: u32,
    /// 21 bits, signed: bytes may complete before they are announced.
    bytes: i32,
    phase: bool,
}

const COUNT_MAX: u32 = (1 << 20) - 1;
const VALID: u64 = 1 << 62;

impl MbarrierState {
    fn from_bits(bits: u64) -> Option<Self> {
        (bits & VALID != 0).then(|| Self {
            pending: bits as u32 & COUNT_MAX,
            expected: (bits >> 20) as u32 & COUNT_MAX,
            bytes: (((bits >> 40) as u32) << 11).cast_signed() >> 11,
            phase: bits >> 63 != 0,
        })
    }

    fn bits(self) -> u64 {
        u64::from(self.pending)
            | u64::from(self.expected) << 20
            | (u64::from(self.bytes.cast_unsigned()) & 0x1f_ffff) << 40
            | VALID
            | u64::from(self.phase) << 63
    }

    /// Starts the next phase when nothing is pending.
    fn advance(mut self) -> Self {
        if self.pending == 0 && self.bytes == 0 {
            self.pending = self.expected;
            self.phase = !self.phase;
        }
        self
    }
}

impl Run<'_> {
    pub(super) fn arrive(
        &mut self,
        warp: &mut Warp,
        group: usize,
        barrier: &Barrier,
    ) -> Result<super::run::Next, LaneFault> {
        use super::run::Next;
        let this = warp.groups[group];
        let (lane, frame) = (first(this.lanes), warp.frame(this.frame));
        let id = frame.narrow[barrier.id as usize][lane];
        let invalid = |message: String| Err((lane, FaultKind::Instruction { message }));
        if id as usize >= BARRIERS {
            return invalid(format!("barrier {id} is not between 0 and 15"));
        }
        let expected = barrier.threads.map(|threads| frame.narrow[threads as usize][lane]);
        if expected.is_some_and(|threads| threads == 0 || threads % LANES as u32 != 0) {
            return invalid(format!("a barrier of {} threads, which is not a multiple of 32", expected.unwrap_or(0)));
        }
        let state = &mut self.barriers.states[id as usize];
        state.arrived += this.lanes.count_ones();
        if waiting(warp, id) | this.lanes == warp.alive {
            state.exited += LANES as u32 - warp.alive.count_ones();
        }
        state.expected = expected;
        if let BarrierKind::Reduce { predicate, negated, .. } = barrier.kind {
            state.votes += (frame.holds(predicate, negated) & this.lanes).count_ones();
        }
        let complete = self.barriers.check(id as usize, *self.live);
        if matches!(barrier.kind, BarrierKind::Arrive) {
            warp.groups[group].position += 1;
        } else {
            warp.groups[group].state = State::Barrier { id };
        }
        Ok(if complete { Next::BarrierComplete } else { Next::Reschedule })
    }

    pub(super) fn mbarrier(
        &mut self,
        warp: &mut Warp,
        index: usize,
        word: &Mbarrier,
        active: u32,
    ) -> Result<(), LaneFault> {
        if let MbarrierOp::PendingCount { to, state } = word.op {
            let frame = warp.frame_mut(index);
            let counts =
                frame.wide[state as usize].map(|state| MbarrierState::from_bits(state).map_or(0, |word| word.pending));
            frame.write_narrow(to, active, counts);
            return Ok(());
        }
        let addresses = address(warp.frame(index), &word.at);
        // Lane by lane: each sees the effect of the previous one.
        for lane in lanes_of(active) {
            let mask = 1 << lane;
            let bits = self.load(warp, index, word.space, Width::Eight, &addresses, mask, 8)?[lane];
            let after = mbarrier_step(warp.frame_mut(index), word.op, lane, bits)
                .map_err(|message| (lane, FaultKind::Instruction { message: message.to_owned() }))?;
            if after != bits {
                self.store(warp, index, word.space, Width::Eight, &addresses, mask, &[after; LANES], 8)?;
            }
        }
        Ok(())
    }
}

/// Executes one lane's operation on a barrier, and returns the new word.
fn mbarrier_step(frame: &mut Frame, op: MbarrierOp, lane: usize, bits: u64) -> Result<u64, &'static str> {
    let narrow = |frame: &Frame, slot: u32| frame.narrow[slot as usize][lane];
    let mask = 1u32 << lane;
    if let MbarrierOp::Init { count } = op {
        let count = narrow(frame, count);
        if count == 0 || count > COUNT_MAX {
            return Err("the count of mbarrier.init is not between 1 and 1048575");
        }
        return Ok(MbarrierState { pending: count, expected: count, bytes: 0, phase: false }.bits());
    }
    if let MbarrierOp::Invalidate = op {
        return Ok(0);
    }
    let mut word = MbarrierState::from_bits(bits).ok_or("the mbarrier is not initialised")?;
    match op {
        MbarrierOp::Arrive { state, count, drop, expect } => {
            let count = count.map_or(1, |count| narrow(frame, count));
            if let Some(bytes) = expect {
                word.bytes = word.bytes.wrapping_add(narrow(frame, bytes).cast_signed());
            }
            if let Some(state) = state {
                frame.write(Reg::Wide(state), mask, &[word.bits(); LANES]);
            }
            word.pending = word.pending.checked_sub(count).ok_or("more arrivals than the mbarrier expects")?;
            if drop {
                word.expected = word.expected.saturating_sub(count);
            }
            word = word.advance();
        }
        MbarrierOp::ExpectBytes { bytes } => word.bytes = word.bytes.wrapping_add(narrow(frame, bytes).cast_signed()),
        MbarrierOp::CompleteBytes { bytes } => {
            word.bytes = word.bytes.wrapping_sub(narrow(frame, bytes).cast_signed());
            word = word.advance();
        }
        MbarrierOp::TestState { to, state } => {
            let then = MbarrierState::from_bits(frame.wide[state as usize][lane])
                .ok_or("the state is not that of an mbarrier")?;
            frame.set_predicate(to, mask, if then.phase != word.phase { mask } else { 0 });
        }
        MbarrierOp::TestParity { to, parity } => {
            let parity = narrow(frame, parity) & 1 != 0;
            // The phase with this parity is over when the current phase has the other parity.
            frame.set_predicate(to, mask, if parity != word.phase { mask } else { 0 });
        }
        MbarrierOp::Init { .. } | MbarrierOp::Invalidate | MbarrierOp::PendingCount { .. } => {}
    }
    Ok(word.bits())
}
