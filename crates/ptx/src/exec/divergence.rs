//! Finds barriers of all threads of a block that threads did not reach together: those of a warp went elsewhere and
//! ended, or threads wait at different instructions.
//!
//! Threads that end at once instead of going to a barrier do not diverge: a barrier waits for those that have not
//! ended.

use super::barrier::Barriers;
use super::frame::lanes_of;
use super::run::Run;
use super::warp::{Group, State, Strays, Warp};
use crate::ir::{Barrier, Op};
use crate::memory::Memory;
use crate::observer::{DivergedBarrier, Place, WarpLanes};

impl Run<'_> {
    /// Notes the lanes of a warp that are not at the barrier at which a group has arrived.
    #[cold]
    pub(super) fn note_strays(&mut self, warp: &mut Warp, group: usize) {
        let this = warp.groups[group];
        let State::Barrier { id } = this.state else { return };
        if !is_of_all(barrier_of(warp, &this)) {
            return;
        }
        let is_elsewhere = |other: &&Group| other.state != State::Barrier { id } && !is_at_exit(warp, other);
        let elsewhere = warp.groups.iter().filter(is_elsewhere).fold(0, |lanes, other| lanes | other.lanes);
        warp.strays.elsewhere |= elsewhere;
    }

    /// Notes that lanes have ended.
    pub(super) fn note_end(&mut self, warp: &mut Warp, lanes: u32) {
        let ended = lanes & warp.strays.elsewhere;
        if ended != 0 {
            warp.strays.ended |= ended;
            warp.strays.place = self.place;
        }
    }
}

/// Reports completed barriers at which threads diverged, before these threads continue.
#[cold]
pub(super) fn tell(warps: &mut [Warp], barriers: &Barriers, block: u64, memory: &mut dyn Memory) {
    for id in lanes_of(barriers.complete) {
        let found = diverged(warps, id as u32, block);
        if let (Some(diverged), Some(observer)) = (found, memory.observer()) {
            observer.diverged_barrier(&diverged);
        }
    }
    for warp in warps {
        warp.strays = Strays::default();
    }
}

fn diverged(warps: &[Warp], id: u32, block: u64) -> Option<DivergedBarrier> {
    let mut first: Option<(WarpLanes, (usize, u32))> = None;
    for (index, warp) in warps.iter().enumerate() {
        for group in warp.groups.iter().filter(|group| group.state == State::Barrier { id }) {
            if !is_of_all(barrier_of(warp, group)) {
                return None;
            }
            let frame = warp.frame(group.frame);
            let line = frame.code.lines[group.position as usize];
            let place = Place { block, warp: index as u32, function: frame.function as u32, line };
            let here = (WarpLanes { place, lanes: group.lanes }, (frame.function, group.position));
            if warp.strays.ended != 0 {
                let missing = WarpLanes { place: warp.strays.place, lanes: warp.strays.ended };
                return Some(DivergedBarrier { id, arrived: here.0, missing, has_ended: true });
            }
            match first {
                None => first = Some(here),
                Some((_, instruction)) if instruction == here.1 => {}
                Some((arrived, _)) => {
                    return Some(DivergedBarrier { id, arrived, missing: here.0, has_ended: false });
                }
            }
        }
    }
    None
}

fn barrier_of<'w>(warp: &'w Warp, group: &Group) -> Option<&'w Barrier> {
    match &warp.frame(group.frame).code.instructions[group.position as usize].op {
        Op::Barrier(barrier) => Some(barrier),
        _ => None,
    }
}

/// Returns whether a barrier is one that all threads of the block execute together.
fn is_of_all(barrier: Option<&Barrier>) -> bool {
    barrier.is_some_and(|barrier| barrier.is_aligned && barrier.threads.is_none())
}

/// Returns whether a group executes only labels and unconditional branches before it ends.
fn is_at_exit(warp: &Warp, group: &Group) -> bool {
    let instructions = &warp.frame(group.frame).code.instructions;
    let mut position = group.position;
    // A branch may lead back to itself.
    for _ in 0..instructions.len() {
        let instruction = &instructions[position as usize];
        position = match instruction.op {
            Op::Label => position + 1,
            Op::Branch { target } if instruction.guard.is_none() => target,
            Op::Exit => return instruction.guard.is_none(),
            _ => return false,
        };
    }
    false
}
