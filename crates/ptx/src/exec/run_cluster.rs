//! Executes the instructions of clusters: `barrier.cluster`, `mapa` and `getctarank`, and finds the shared memory of
//! other blocks.
//!
//! A thread arrives at the barrier and waits for it with two instructions. Each warp has a mask of the lanes that have
//! arrived, and one of those for which the barrier is complete since then.

use super::frame::lanes_of;
use super::map::map1;
use super::run::{LaneFault, Next, Run, first};
use super::warp::{State, Warp};
use crate::fault::FaultKind;
use crate::ir::{Op, RANK_BYTES, SHARED_WINDOW};

impl Run<'_> {
    /// The rank of the block in its cluster.
    pub(super) fn rank(&self) -> u32 {
        self.cluster.as_ref().map_or(0, |cluster| cluster.rank)
    }

    /// What a generic address of the block's own shared memory has in addition to its offset, if there is a cluster.
    pub(super) fn own_rank_bits(&self) -> u64 {
        self.cluster.as_ref().map_or(0, |cluster| (u64::from(cluster.rank) + 1) * RANK_BYTES)
    }

    /// Returns the offset in the block's own shared memory; `None` for that of another block.
    pub(super) fn own_offset(&self, at: u64) -> Option<u64> {
        match at < RANK_BYTES {
            true => Some(at),
            false => {
                Some(at.wrapping_sub(self.own_rank_bits())).filter(|&at| at < RANK_BYTES && self.cluster.is_some())
            }
        }
    }

    /// Returns the shared memory that an address is in, and the offset there, or why there is none.
    pub(super) fn shared_of(&mut self, at: u64) -> Result<(&mut [u8], u64), String> {
        if at < RANK_BYTES {
            return Ok((self.shared, at));
        }
        let (rank, offset) = (at / RANK_BYTES - 1, at % RANK_BYTES);
        match &mut self.cluster {
            Some(cluster) if u64::from(cluster.rank) == rank => Ok((self.shared, offset)),
            Some(cluster) => Ok((cluster.peer(rank, self.launch.is_shared_exact)?, offset)),
            None => Err(format!("the thread block has {} bytes", self.shared.len())),
        }
    }

    /// Describes an access to the shared memory of a block of the cluster that is out of bounds.
    pub(super) fn remote_fault(&mut self, at: u64, bytes: u64, write: bool) -> FaultKind {
        let (rank, own) = (at / RANK_BYTES - 1, self.block);
        let [x, y, z] = self.cluster.as_ref().and_then(|cluster| cluster.position_of(rank)).unwrap_or(own);
        let what = match self.shared_of(at) {
            Ok((shared, _)) => format!("block ({x},{y},{z}) of the cluster has {} bytes", shared.len()),
            Err(what) => what,
        };
        FaultKind::Address { space: "distributed shared", address: at % RANK_BYTES, bytes, write, what }
    }

    /// `barrier.cluster.arrive`
    pub(super) fn arrive_in_cluster(&mut self, warp: &mut Warp, group: usize) -> Result<Next, LaneFault> {
        let lanes = warp.groups[group].lanes;
        let again = lanes & (warp.cluster_pending | warp.cluster_complete);
        if again != 0 {
            let message = "barrier.cluster.arrive: the thread has not waited since it last arrived".to_owned();
            return Err((first(again), FaultKind::Instruction { message }));
        }
        warp.groups[group].position += 1;
        warp.cluster_pending |= lanes;
        let cluster = self.cluster.as_mut().expect("a kernel with this instruction runs in a cluster");
        Ok(if cluster.arrive(lanes) { Next::BarrierComplete } else { Next::Reschedule })
    }

    /// `barrier.cluster.wait`
    pub(super) fn wait_in_cluster(&mut self, warp: &mut Warp, group: usize) -> Result<Next, LaneFault> {
        let this = warp.groups[group];
        let unarrived = this.lanes & !(warp.cluster_pending | warp.cluster_complete);
        if unarrived != 0 {
            let message = "barrier.cluster.wait: the thread has not arrived at the barrier".to_owned();
            return Err((first(unarrived), FaultKind::Instruction { message }));
        }
        let (through, waiting) = (this.lanes & warp.cluster_complete, this.lanes & warp.cluster_pending);
        warp.cluster_complete &= !through;
        if waiting == 0 {
            return Ok(Next::Continue(this.position + 1));
        }
        if through != 0 {
            warp.add_group(this.position + 1, through, this.frame);
            warp.groups[group].lanes = waiting;
        }
        warp.groups[group].state = State::ClusterBarrier;
        Ok(Next::Reschedule)
    }

    /// Counts lanes that end. Returns whether that completes the barrier of the cluster.
    pub(super) fn exit_in_cluster(&mut self, warp: &mut Warp, lanes: u32) -> bool {
        let arrived = warp.cluster_pending & lanes;
        warp.cluster_pending &= !lanes;
        warp.cluster_complete &= !lanes;
        match &mut self.cluster {
            Some(cluster) => cluster.exit(lanes, arrived),
            None => false,
        }
    }

    pub(super) fn translate_rank(&mut self, warp: &mut Warp, index: usize, op: &Op, active: u32) {
        let own_rank = self.rank();
        let frame = warp.frame_mut(index);
        match *op {
            Op::MapRank { is_generic, to, from, rank } => {
                let (window, ranks) = (if is_generic { SHARED_WINDOW } else { 0 }, frame.narrow[rank as usize]);
                let has_cluster = self.cluster.is_some();
                let mut values = frame.read(from);
                for lane in lanes_of(active) {
                    let offset = values[lane].wrapping_sub(window) % RANK_BYTES;
                    // The block's own variables have the addresses that they have without a cluster.
                    let is_own = ranks[lane] == own_rank && !(is_generic && has_cluster);
                    let bits = if is_own { 0 } else { (u64::from(ranks[lane].min(0xfe)) + 1) * RANK_BYTES };
                    values[lane] = window + bits + offset;
                }
                frame.write(to, active, &values);
            }
            Op::RankOf { is_generic, to, from } => {
                let window = if is_generic { SHARED_WINDOW } else { 0 };
                let ranks = map1(&frame.read(from), |at| match at.wrapping_sub(window) / RANK_BYTES {
                    0 => own_rank,
                    bits => bits as u32 - 1,
                });
                frame.write_narrow(to, active, ranks);
            }
            _ => unreachable!("not an instruction of clusters"),
        }
    }
}

impl Warp {
    /// Lets the lanes that have arrived at the barrier of the cluster continue.
    pub(super) fn complete_cluster_barrier(&mut self) {
        self.cluster_complete |= std::mem::take(&mut self.cluster_pending);
        for group in &mut self.groups {
            if group.state == State::ClusterBarrier {
                self.cluster_complete &= !group.lanes;
                group.state = State::Ready;
                group.position += 1;
            }
        }
    }
}
