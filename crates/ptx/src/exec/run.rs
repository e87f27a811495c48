//! Executes the instructions of a warp: control flow here, every other kind in its module.

use std::sync::Arc;

use super::barrier::Barriers;
use super::cluster_state::Cluster;
use super::cursor::{Cursor, Exit};
use super::engine::Engine;
use super::frame::{Frame, lanes_of};
use super::launch::Launch;
use super::map::map1;
use super::warp::{Group, State, Warp};
use super::{alu, float};
use crate::bounds::Bounds;
use crate::fault::FaultKind;
use crate::image::{KernelCode, Program};
use crate::ir::{Op, Opcode, Reg, Timer};
use crate::memory::{LANES, Memory};
use crate::observer::{Ordering, Place, Scope};

/// The clock rate, in cycles per nanosecond.
const CYCLES_PER_NANOSECOND: u64 = 2;

/// The state that the threads of a thread block share while one of its warps runs.
pub(super) struct Run<'r> {
    pub(super) program: &'r Program,
    pub(super) kernel: &'r KernelCode,
    pub(super) launch: &'r Launch,
    pub(super) engine: Engine,
    /// The memory blocks that addresses derived from the arguments may access.
    pub(super) bounds: &'r Bounds,
    pub(super) block: [u32; 3],
    pub(super) block_index: u64,
    pub(super) warp_index: u32,
    pub(super) shared: &'r mut [u8],
    pub(super) memory: &'r mut dyn Memory,
    /// The other blocks of the cluster, if the launch has clusters.
    pub(super) cluster: Option<&'r mut Cluster>,
    pub(super) barriers: &'r mut Barriers,
    pub(super) printed: &'r mut Vec<u8>,
    /// The number of threads of the block that have not ended.
    pub(super) live: &'r mut u32,
    /// The number of instructions so far, counted for each thread.
    pub(super) executed: &'r mut u64,
    /// The time when the slice began, and the instructions since then.
    pub(super) nanoseconds: u64,
    pub(super) since: &'r mut u64,
    /// Whether the memory has an observer. `place` and `ordering` are set only then, for the instruction that `execute_other` executes.
    pub(super) is_observed: bool,
    pub(super) place: Place,
    pub(super) ordering: Ordering,
}

/// A fault, the lane that caused it, and its line.
#[derive(Debug)]
pub(super) struct WarpFault {
    pub(super) lane: usize,
    pub(super) function: usize,
    pub(super) line: u32,
    pub(super) kind: FaultKind,
}

/// A fault of a lane.
pub(super) type LaneFault = (usize, FaultKind);

/// How a group continues after an instruction at which lanes can diverge.
pub(super) enum Next {
    /// All its lanes continue at this position of the same frame.
    Continue(u32),
    /// The group stays; the scheduler decides what runs next.
    Reschedule,
    /// The group continues in another frame.
    Enter,
    /// The group has ended.
    Exited,
    /// A barrier of the block is complete: the lanes that wait for it continue.
    BarrierComplete,
}

/// Why a warp stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its quantum is used up, or none of its groups can run.
    Yielded,
    /// A barrier of the block is complete.
    BarrierComplete,
}

impl Run<'_> {
    /// Runs a warp for about `budget` instructions.
    pub(super) fn warp(&mut self, warp: &mut Warp, budget: u64) -> Result<Stop, WarpFault> {
        let end = warp.time + budget;
        while warp.time < end {
            let Some(group) = warp.next_group() else { return Ok(Stop::Yielded) };
            let id = warp.groups[group].id;
            let released = self.group(warp, group, end)?;
            if let Some(group) = warp.groups.iter().position(|group| group.id == id) {
                warp.note_run(group);
                if warp.groups.len() > 1 {
                    warp.merge(group);
                }
            }
            if released {
                return Ok(Stop::BarrierComplete);
            }
        }
        Ok(Stop::Yielded)
    }

    /// Runs a group until it diverges, waits or ends, or the time `end` is reached. Returns whether a barrier was
    /// completed.
    fn group(&mut self, warp: &mut Warp, group: usize, end: u64) -> Result<bool, WarpFault> {
        let program = self.program;
        loop {
            let Group { frame: index, lanes, mut position, .. } = warp.groups[group];
            let function = warp.frame(index).function;
            let code = &program.linked.functions[function].code;
            let next = loop {
                let (horizon, limit) = warp.turn(group, end);
                let mut cursor = Cursor { code, position, lanes, time: warp.time, limit, horizon };
                let exit = self.steps(warp.frame_mut(index), &mut cursor);
                (warp.time, position) = (cursor.time, cursor.position);
                let Exit::Other { active } = exit else {
                    warp.groups[group].position = position;
                    break Next::Reschedule;
                };
                let instruction = &code.instructions[position as usize];
                let frame = warp.frame_mut(index);
                if code.steps[position as usize].opcode != Opcode::Control
                    && (alu::execute(frame, &instruction.op, active) || float::execute(frame, &instruction.op, active))
                {
                    position += 1;
                    continue;
                }
                warp.groups[group].position = position;
                // The most frequent ones, and those of short kernels.
                if !self.is_observed {
                    match &instruction.op {
                        Op::Exit => break self.exit(warp, group, active),
                        Op::Barrier(barrier) if active == lanes => {
                            let arrived = self.arrive(warp, group, barrier);
                            let line = code.lines[position as usize];
                            break arrived.map_err(|(lane, kind)| WarpFault { lane, function, line, kind })?;
                        }
                        _ => {}
                    }
                }
                if self.is_observed {
                    self.set_place(function, code, position);
                }
                let next = self
                    .execute_other(warp, group, &instruction.op, active)
                    .map_err(|(lane, kind)| WarpFault { lane, function, line: code.lines[position as usize], kind })?;
                match next {
                    Next::Continue(to) => {
                        let is_boundary = to != position + 1 || matches!(instruction.op, Op::Label);
                        let parted = warp.groups[group].lanes != lanes;
                        position = to;
                        if parted || is_boundary && (warp.groups.len() > 1 || warp.time >= end) {
                            warp.groups[group].position = position;
                            break Next::Reschedule;
                        }
                    }
                    other => break other,
                }
            };
            match next {
                Next::Enter if warp.groups.len() == 1 && warp.time < end => {}
                Next::BarrierComplete => return Ok(true),
                _ => return Ok(false),
            }
        }
    }

    /// Executes memory, control, barrier and cross-lane instructions. The group's position is that of the instruction.
    fn execute_other(&mut self, warp: &mut Warp, group: usize, op: &Op, active: u32) -> Result<Next, LaneFault> {
        let position = warp.groups[group].position;
        let index = warp.groups[group].frame;
        let go = Next::Continue(position + 1);
        match op {
            Op::Load { space, width, signed, to, at } => {
                let addresses = address(warp.frame(index), at);
                self.check_bounds(warp, group, *space, &addresses, active, *width as u64, false)?;
                let values = self.load(warp, index, *space, *width, &addresses, active, *width as u64)?;
                let values = if *signed { sign_extend(values, *width) } else { values };
                warp.frame_mut(index).write(*to, active, &values);
            }
            Op::LoadParameter { width, signed, to, offset } => {
                let value = self.parameter(u64::from(*offset), *width, active)?;
                let values = if *signed { sign_extend([value; LANES], *width) } else { [value; LANES] };
                warp.frame_mut(index).write(*to, active, &values);
            }
            Op::Store { space, width, from, at } => {
                let frame = warp.frame(index);
                let (addresses, values) = (address(frame, at), frame.read(*from));
                self.check_bounds(warp, group, *space, &addresses, active, *width as u64, true)?;
                self.store(warp, index, *space, *width, &addresses, active, &values, *width as u64)?;
            }
            Op::LoadVector { .. } | Op::StoreVector { .. } => self.vector(warp, group, op, active)?,
            Op::Atomic(atomic) => self.atomic(warp, group, atomic, active)?,
            Op::AtomicPair(atomic) => self.atomic_pair(warp, group, atomic, active)?,
            Op::CopyAsync { .. } => self.copy(warp, group, op, active)?,
            Op::BulkCopy(copy) => self.bulk_copy(warp, group, copy, active)?,
            Op::MapReplace(replace) => self.replace_in_map(warp, group, replace, active)?,
            Op::Fence => {
                self.memory.fence();
                let scope = self.ordering.scope.unwrap_or(Scope::System);
                self.tell(|observer, place| observer.fence(place, active, scope));
            }
            Op::IsSpace { .. } | Op::ToGeneric { .. } | Op::FromGeneric { .. } => {
                self.translate(warp, index, op, active)
            }
            Op::Mbarrier(word) => self.mbarrier(warp, index, word, active)?,
            Op::Fetch(fetch) => self.fetch(warp, index, fetch, active)?,
            Op::SurfaceAccess(access) => self.surface_access(warp, index, access, active)?,
            Op::Query(query) => self.query(warp, index, query, active)?,
            Op::Read { timer, to } => {
                let value = self.time(*timer);
                warp.frame_mut(index).write(*to, active, &[value; LANES]);
            }

            Op::Label => {}
            Op::Branch { target } => return Ok(branch(warp, group, active, *target)),
            Op::BranchIndexed { index, targets } => return self.branch_indexed(warp, group, active, *index, targets),
            Op::Call(call) => {
                diverge(warp, group, active);
                return self.call(warp, group, call);
            }
            Op::Return => {
                diverge(warp, group, active);
                return self.finish_call(warp, group);
            }
            Op::Exit => return Ok(self.exit(warp, group, active)),
            Op::Trap => return Err((first(active), FaultKind::Trap)),
            Op::Breakpoint => return Err((first(active), FaultKind::Breakpoint)),
            Op::Sleep { nanoseconds } => {
                diverge(warp, group, active);
                let wanted = warp.frame(index).narrow[*nanoseconds as usize][first(active)];
                let until = self.now() + u64::from(wanted.min(1_000_000));
                warp.groups[group].position = position + 1;
                warp.groups[group].state = State::Sleeping { until };
                return Ok(Next::Reschedule);
            }
            Op::Yield => {
                warp.groups[group].position = position + 1;
                warp.time += 64;
                return Ok(Next::Reschedule);
            }

            Op::ActiveMask { to } => warp.frame_mut(index).write_narrow(*to, active, [active; LANES]),
            Op::WarpBarrier { .. } => {
                diverge(warp, group, active);
                let (next, lanes) = warp_barrier(warp, group);
                if lanes != 0 {
                    self.tell(|observer, place| observer.warp_sync(place, lanes));
                }
                return Ok(next);
            }
            Op::Shuffle { members: None, .. } | Op::Vote { members: None, .. } => {
                super::lanes::execute(warp.frame_mut(index), op, active);
                self.tell(|observer, place| observer.warp_sync(place, active));
            }
            Op::Shuffle { members: Some(members), .. }
            | Op::Vote { members: Some(members), .. }
            | Op::Match { members, .. }
            | Op::Reduce { members, .. }
            | Op::Elect { members, .. } => {
                diverge(warp, group, active);
                if !converge(warp, group, *members) {
                    let lanes = converge_across_calls(warp, group, op, *members);
                    if lanes != 0 {
                        self.tell(|observer, place| observer.warp_sync(place, lanes));
                    }
                    return Ok(Next::Reschedule);
                }
                let lanes = warp.groups[group].lanes;
                super::lanes::execute(warp.frame_mut(index), op, lanes);
                self.tell(|observer, place| observer.warp_sync(place, lanes));
                if warp.groups.len() > 1 {
                    warp.groups[group].position = position + 1;
                    return Ok(Next::Reschedule);
                }
            }
            Op::Matrix(matrix) => {
                diverge(warp, group, active);
                if !converge(warp, group, matrix.members) {
                    return Ok(Next::Reschedule);
                }
                let lanes = warp.groups[group].lanes;
                self.tell(|observer, place| observer.warp_sync(place, lanes));
                self.matrix(warp, group, matrix, lanes)?;
                self.tell(|observer, place| observer.warp_sync(place, lanes));
                if warp.groups.len() > 1 {
                    warp.groups[group].position = position + 1;
                    return Ok(Next::Reschedule);
                }
            }
            Op::Barrier(barrier) => {
                diverge(warp, group, active);
                return self.arrive(warp, group, barrier);
            }
            Op::ClusterArrive => {
                diverge(warp, group, active);
                return self.arrive_in_cluster(warp, group);
            }
            Op::ClusterWait => {
                diverge(warp, group, active);
                return self.wait_in_cluster(warp, group);
            }
            Op::MapRank { .. } | Op::RankOf { .. } => self.translate_rank(warp, index, op, active),
            _ => unreachable!("no module executes {op:?}"),
        }
        Ok(go)
    }

    /// Returns the time in nanoseconds, as threads see it: it advances with executed instructions.
    pub(super) fn now(&self) -> u64 {
        self.nanoseconds + *self.since
    }

    fn time(&self, timer: Timer) -> u64 {
        let cycles = self.now().wrapping_mul(CYCLES_PER_NANOSECOND);
        match timer {
            Timer::Clock => cycles & 0xffff_ffff,
            Timer::ClockHigh => cycles >> 32,
            Timer::Clock64 => cycles,
            Timer::Nanoseconds => self.now(),
            Timer::NanosecondsLow => self.now() & 0xffff_ffff,
            Timer::NanosecondsHigh => self.now() >> 32,
        }
    }

    fn branch_indexed(
        &mut self,
        warp: &mut Warp,
        group: usize,
        active: u32,
        slot: u32,
        targets: &[u32],
    ) -> Result<Next, LaneFault> {
        diverge(warp, group, active);
        let indices = warp.frame(warp.groups[group].frame).narrow[slot as usize];
        let mut left = warp.groups[group].lanes;
        loop {
            let lane = first(left);
            let index = indices[lane];
            let Some(&target) = targets.get(index as usize) else {
                let message = format!("index {index} of brx.idx is out of range: it has {} targets", targets.len());
                return Err((lane, FaultKind::Instruction { message }));
            };
            let same = lanes_of(left).filter(|&lane| indices[lane] == index).fold(0, |lanes, lane| lanes | 1 << lane);
            if same == left {
                warp.groups[group].lanes = same;
                return Ok(Next::Continue(target));
            }
            let frame = warp.groups[group].frame;
            warp.add_group(target, same, frame);
            left &= !same;
        }
    }

    fn exit(&mut self, warp: &mut Warp, group: usize, active: u32) -> Next {
        let position = warp.groups[group].position;
        if self.is_observed {
            self.note_end(warp, active);
        }
        warp.alive &= !active;
        *self.live -= active.count_ones();
        let is_cluster_complete = self.exit_in_cluster(warp, active);
        warp.groups[group].lanes &= !active;
        warp.wake_converging();
        let gone = warp.groups[group].lanes == 0;
        if gone {
            warp.remove_group(group);
        } else {
            warp.groups[group].position = position + 1;
        }
        let complete = self.barriers.check_all(warp, *self.live);
        for id in lanes_of(complete) {
            let threads = self.barriers.states[id].expected;
            self.tell(|observer, place| observer.barrier(place, id as u32, threads));
        }
        if complete != 0 || is_cluster_complete {
            return Next::BarrierComplete;
        }
        if gone { Next::Exited } else { Next::Reschedule }
    }
}

/// Returns the lowest lane of a mask.
pub(super) fn first(lanes: u32) -> usize {
    lanes.trailing_zeros() as usize % LANES
}

/// Moves lanes that do not take part in an instruction past it, into a group of their own.
fn diverge(warp: &mut Warp, group: usize, active: u32) {
    let this = warp.groups[group];
    if this.lanes != active {
        warp.add_group(this.position + 1, this.lanes & !active, this.frame);
        warp.groups[group].lanes = active;
    }
}

fn branch(warp: &mut Warp, group: usize, taken: u32, target: u32) -> Next {
    let this = warp.groups[group];
    if this.lanes == taken {
        return Next::Continue(target);
    }
    warp.add_group(target, taken, this.frame);
    warp.groups[group].lanes = this.lanes & !taken;
    warp.groups[group].position = this.position + 1;
    Next::Reschedule
}

/// Returns whether all lanes that an instruction names are in the group; lanes whose partners are elsewhere wait.
fn converge(warp: &mut Warp, group: usize, members: u32) -> bool {
    let this = warp.groups[group];
    let members = warp.frame(this.frame).narrow[members as usize];
    let missing = warp.alive & !this.lanes;
    let complete =
        lanes_of(this.lanes).filter(|&lane| members[lane] & missing == 0).fold(0, |lanes, lane| lanes | 1 << lane);
    if complete == this.lanes {
        return true;
    }
    if complete == 0 {
        warp.groups[group].state = State::Converging;
        return false;
    }
    warp.add_group(this.position, this.lanes & !complete, this.frame);
    let waiting = warp.groups.len() - 1;
    warp.groups[waiting].state = State::Converging;
    warp.groups[group].lanes = complete;
    true
}

/// Merges a group with those that wait at the same instruction in other calls of the function, if this makes the set of
/// lanes complete. Returns the lanes that executed it.
fn converge_across_calls(warp: &mut Warp, group: usize, op: &Op, members: u32) -> u32 {
    let this = warp.groups[group];
    let code = Arc::clone(&warp.frame(this.frame).code);
    let is_here = |other: &Group| {
        let frame = warp.frame(other.frame);
        other.state == State::Converging && other.position == this.position && Arc::ptr_eq(&frame.code, &code)
    };
    let here: Vec<Group> = warp.groups.iter().filter(|other| is_here(other)).copied().collect();
    let lanes = here.iter().fold(0, |lanes, other| lanes | other.lanes);
    let missing = warp.alive & !lanes;
    let lacks = |other: &Group| {
        let members = warp.frame(other.frame).narrow[members as usize];
        lanes_of(other.lanes).any(|lane| members[lane] & missing != 0)
    };
    if here.len() == 1 || here.iter().any(lacks) {
        return 0;
    }
    // One frame borrows the columns of the others' lanes for the instruction: it may have columns of its own for them,
    // if they were split off from it.
    let mut common = warp.frames[this.frame].take().expect("a group's frame exists");
    let mut swap = |common: &mut Frame| {
        for other in here.iter().filter(|other| other.frame != this.frame) {
            common.swap_lanes(warp.frame_mut(other.frame), other.lanes);
        }
    };
    swap(&mut common);
    super::lanes::execute(&mut common, op, lanes);
    swap(&mut common);
    warp.frames[this.frame] = Some(common);
    for group in &mut warp.groups {
        if here.iter().any(|other| other.id == group.id) {
            group.state = State::Ready;
            group.position += 1;
        }
    }
    lanes
}

/// `bar.warp.sync`: unlike at other instructions, lanes may arrive at different positions. Returns the lanes that
/// continue.
fn warp_barrier(warp: &mut Warp, group: usize) -> (Next, u32) {
    warp.groups[group].state = State::Converging;
    let wanted = |warp: &Warp, index: usize| {
        let group = &warp.groups[index];
        let frame = warp.frame(group.frame);
        match frame.code.instructions[group.position as usize].op {
            Op::WarpBarrier { members } if group.state == State::Converging => {
                Some(lanes_of(group.lanes).fold(0, |all, lane| all | frame.narrow[members as usize][lane]))
            }
            _ => None,
        }
    };
    let waiting: Vec<(usize, u32)> =
        (0..warp.groups.len()).filter_map(|index| Some((index, wanted(warp, index)?))).collect();
    let here = waiting.iter().fold(0, |lanes, &(index, _)| lanes | warp.groups[index].lanes);
    let mut released = 0;
    for &(index, members) in &waiting {
        if members & warp.alive & !here == 0 {
            warp.groups[index].state = State::Ready;
            warp.groups[index].position += 1;
            released |= warp.groups[index].lanes;
        }
    }
    let next = match warp.groups[group].state {
        State::Ready if warp.groups.len() == 1 => Next::Continue(warp.groups[group].position),
        _ => Next::Reschedule,
    };
    (next, released)
}

pub(super) fn address(frame: &Frame, at: &crate::ir::Address) -> [u64; LANES] {
    match at.base {
        Reg::Narrow(slot) => map1(&frame.narrow[slot as usize], |base| u64::from(base.wrapping_add(at.offset as u32))),
        Reg::Wide(slot) => map1(&frame.wide[slot as usize], |base| base.wrapping_add_signed(at.offset)),
        Reg::Predicate(_) => unreachable!("an address is not a predicate"),
    }
}

pub(super) fn sign_extend(values: [u64; LANES], width: crate::memory::Width) -> [u64; LANES] {
    let shift = 64 - 8 * width.bytes() as u32;
    map1(&values, |value| ((value << shift).cast_signed() >> shift).cast_unsigned())
}
