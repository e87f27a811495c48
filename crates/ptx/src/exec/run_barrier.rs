//! Executes `bar` (`bar.sync`, `bar.arrive`, `bar.red`) and `mbarrier`. `barrier` has their state.
//!
//! Lanes that reach a `bar.sync` are counted, and their group is parked (`State::Barrier`): no host thread blocks. The
//! last arrival, or the exit of the last missing thread, completes the barrier, and `block` releases the parked groups
//! of all warps.

use super::barrier::{BARRIERS, COUNT_MAX, MbarrierState, waiting};
use super::frame::{Frame, lanes_of};
use super::run::{LaneFault, Next, Run, address, first};
use super::warp::{State, Warp};
use crate::fault::FaultKind;
use crate::ir::{Barrier, BarrierKind, Mbarrier, MbarrierOp, Reg};
use crate::memory::{LANES, Width};
use crate::observer::{AccessKind, Ordering, Scope};

impl Run<'_> {
    /// Executes `bar` for a group: counts its lanes and, unless it is a `bar.arrive`, parks it.
    pub(super) fn arrive(&mut self, warp: &mut Warp, group: usize, barrier: &Barrier) -> Result<Next, LaneFault> {
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
        self.barriers.begun |= 1 << id;
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
        if complete {
            self.tell(|observer, place| observer.barrier(place, id, expected));
        }
        if matches!(barrier.kind, BarrierKind::Arrive) {
            warp.groups[group].position += 1;
        } else {
            warp.groups[group].state = State::Barrier { id };
            if self.is_observed {
                self.note_strays(warp, group);
            }
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
            let bits = self.load_silently(warp, index, word.space, Width::Eight, &addresses, mask, 8)?[lane];
            let after = mbarrier_step(warp.frame_mut(index), word.op, lane, bits)
                .map_err(|message| (lane, FaultKind::Instruction { message: message.to_owned() }))?;
            if after != bits {
                self.store_silently(warp, index, word.space, Width::Eight, &addresses, mask, &[after; LANES], 8)?;
            }
        }
        if self.is_observed {
            let ordering = Ordering { scope: Some(Scope::Block), acquires: true, releases: true };
            self.observe_as(word.space, AccessKind::Atomic, ordering, false, 8, &addresses, active, 0);
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
    let mut word = MbarrierState::from_bits(bits).ok_or("the mbarrier is not initialized")?;
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
        MbarrierOp::CompleteBytes { bytes } => word = word.complete(narrow(frame, bytes).cast_signed()),
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
