//! A warp: 32 threads, in groups of lanes that are at the same instruction of the same call.
//!
//! Lanes that diverge become groups of their own, and merge again at the same position. The group that is deepest in
//! calls, and then earliest in the code, runs first, so that the others meet it there. A group that has not run for a
//! while runs first, so that a lane that spins for another makes progress.

use super::frame::{Caller, Frame};
use crate::observer::Place;

/// A group that could run gets a turn after this many instructions of others.
const STARVATION_LIMIT: u64 = 512;
/// The number of instructions of such a turn.
const STARVED_QUANTUM: u64 = 256;

#[derive(Debug, Default)]
pub(super) struct Warp {
    pub(super) groups: Vec<Group>,
    pub(super) frames: Vec<Option<Frame>>,
    free: Vec<usize>,
    /// A mask of the threads that have not ended.
    pub(super) alive: u32,
    /// Local memory of each lane.
    pub(super) local: Vec<Vec<u8>>,
    /// The lanes that have arrived at the barrier of the cluster, which is not complete.
    pub(super) cluster_pending: u32,
    /// The lanes for which it is complete and that have not waited for it.
    pub(super) cluster_complete: u32,
    /// Instructions of this warp so far.
    pub(super) time: u64,
    /// The group with such a turn, and its end.
    boosted: Option<(u64, u64)>,
    groups_created: u64,
    /// Set only for an observer.
    pub(super) strays: Strays,
}

/// Lanes of a warp that were elsewhere when others arrived at a barrier.
#[derive(Debug, Default)]
pub(super) struct Strays {
    pub(super) elsewhere: u32,
    /// Those of them that have ended since then, and where.
    pub(super) ended: u32,
    pub(super) place: Place,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Unique among the groups of a warp.
    pub(super) id: u64,
    pub(super) position: u32,
    pub(super) lanes: u32,
    pub(super) frame: usize,
    pub(super) state: State,
    /// The warp's instruction count when the group last ran.
    last_ran: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// At a barrier of the block; its position is the instruction until the barrier is complete.
    Barrier {
        id: u32,
    },
    /// At a barrier of the cluster.
    ClusterBarrier,
    /// At an instruction at which lanes of the warp converge.
    Converging,
    /// Until a time in nanoseconds.
    Sleeping {
        until: u64,
    },
}

impl Warp {
    /// Makes this warp, which has ended, one that has not started. It keeps the kernel's frame, and room for as much
    /// local memory.
    pub(super) fn recycle(&mut self) {
        self.groups.clear();
        self.frames.truncate(1);
        self.free.clear();
        self.local.iter_mut().for_each(Vec::clear);
        (self.alive, self.time, self.boosted, self.groups_created) = (0, 0, None, 0);
        (self.cluster_pending, self.cluster_complete) = (0, 0);
        self.strays = Strays::default();
    }

    /// Starts threads in the first frame.
    pub(super) fn start(&mut self, lanes: u32) {
        self.alive = lanes;
        self.add_group(0, lanes, 0);
    }

    pub(super) fn frame(&self, index: usize) -> &Frame {
        self.frames[index].as_ref().expect("a group's frame exists")
    }

    pub(super) fn frame_mut(&mut self, index: usize) -> &mut Frame {
        self.frames[index].as_mut().expect("a group's frame exists")
    }

    pub(super) fn add_frame(&mut self, frame: Frame) -> usize {
        match self.free.pop() {
            Some(index) => {
                self.frames[index] = Some(frame);
                index
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() - 1
            }
        }
    }

    /// Adds a group for lanes that diverge, which takes a reference to the frame.
    pub(super) fn add_group(&mut self, position: u32, lanes: u32, frame: usize) {
        self.frame_mut(frame).references += 1;
        self.groups_created += 1;
        let group = Group { id: self.groups_created, position, lanes, frame, state: State::Ready, last_ran: self.time };
        self.groups.push(group);
    }

    /// Drops a reference to a frame; frames of calls without references are removed, callers after callees.
    pub(super) fn release_frame(&mut self, mut index: usize) {
        loop {
            let frame = self.frame_mut(index);
            frame.references -= 1;
            if frame.references > 0 {
                return;
            }
            // The kernel's frame stays, for another block.
            let Some(Caller { frame, .. }) = frame.caller else { return };
            self.frames[index] = None;
            self.free.push(index);
            index = frame;
        }
    }

    /// Moves a group from its frame back to the caller's.
    pub(super) fn return_to_caller(&mut self, group: usize) -> Option<Caller> {
        let index = self.groups[group].frame;
        let caller = self.frame(index).caller?;
        self.frame_mut(caller.frame).references += 1;
        self.release_frame(index);
        self.groups[group].frame = caller.frame;
        Some(caller)
    }

    /// Removes a group without lanes.
    pub(super) fn remove_group(&mut self, group: usize) {
        let frame = self.groups[group].frame;
        self.groups.swap_remove(group);
        self.release_frame(frame);
    }

    /// Merges a group with another at the same position, if there is one.
    pub(super) fn merge(&mut self, group: usize) {
        let this = self.groups[group];
        let can_merge = |state: State| matches!(state, State::Ready | State::Converging);
        if !can_merge(this.state) {
            return;
        }
        let same = |other: &Group| {
            other.id != this.id
                && other.position == this.position
                && other.frame == this.frame
                && can_merge(other.state)
        };
        let Some(other) = self.groups.iter().position(same) else { return };
        self.groups[other].lanes |= this.lanes;
        self.groups[other].state = State::Ready;
        self.remove_group(group);
    }

    /// Makes converging lanes check again, because a lane ended or arrived.
    pub(super) fn wake_converging(&mut self) {
        for group in &mut self.groups {
            if group.state == State::Converging {
                group.state = State::Ready;
            }
        }
    }

    /// Wakes groups whose sleep is over, and returns when the next one's ends.
    pub(super) fn wake_sleepers(&mut self, now: u64) -> Option<u64> {
        let mut next = None;
        for group in &mut self.groups {
            if let State::Sleeping { until } = group.state {
                if until <= now {
                    group.state = State::Ready;
                } else {
                    next = Some(next.map_or(until, |next: u64| next.min(until)));
                }
            }
        }
        next
    }

    pub(super) fn is_ready(&self) -> bool {
        self.groups.iter().any(|group| group.state == State::Ready)
    }

    /// Returns the group that runs next.
    pub(super) fn next_group(&mut self) -> Option<usize> {
        match self.groups.as_slice() {
            [] => return None,
            [group] => return (group.state == State::Ready).then_some(0),
            _ => {}
        }
        if let Some((id, until)) = self.boosted {
            let favoured = self.groups.iter().position(|group| group.id == id && group.state == State::Ready);
            match favoured {
                Some(group) if self.time < until => return Some(group),
                _ => self.boosted = None,
            }
        }
        let ready = || self.groups.iter().enumerate().filter(|(_, group)| group.state == State::Ready);
        let (oldest, group) = ready().min_by_key(|(_, group)| group.last_ran)?;
        if self.time.saturating_sub(group.last_ran) > STARVATION_LIMIT {
            self.boosted = Some((group.id, self.time + STARVED_QUANTUM));
            return Some(oldest);
        }
        ready()
            .min_by_key(|(_, group)| (std::cmp::Reverse(self.frame(group.frame).depth), group.position))
            .map(|(index, _)| index)
    }

    /// Returns how far a group runs before another may have to: the position and the time at which a branch or label
    /// ends its turn. Before both, [`next_group`](Self::next_group) would choose it again and `merge` would do nothing.
    pub(super) fn turn(&self, group: usize, end: u64) -> (u32, u64) {
        if self.groups.len() == 1 {
            return (u32::MAX, end);
        }
        if self.boosted.is_some() {
            return (0, end);
        }
        let this = &self.groups[group];
        let depth = self.frame(this.frame).depth;
        let (mut horizon, mut limit) = (u32::MAX, end);
        for other in self.groups.iter().filter(|other| other.id != this.id) {
            let is_ready = other.state == State::Ready;
            if is_ready {
                limit = limit.min(other.last_ran + STARVATION_LIMIT + 1);
            }
            let other_depth = self.frame(other.frame).depth;
            if is_ready && other_depth > depth {
                horizon = 0;
            } else if other_depth == depth && (is_ready || other.state == State::Converging) {
                horizon = horizon.min(other.position);
            }
        }
        (horizon, limit)
    }

    /// Records that a group ran until now.
    pub(super) fn note_run(&mut self, group: usize) {
        self.groups[group].last_ran = self.time;
    }
}
