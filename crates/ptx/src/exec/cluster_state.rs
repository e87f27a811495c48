//! What the blocks of a cluster have in common: each other's shared memory, and a barrier.

use std::mem;

use super::block_state::BlockState;
use super::engine::Engine;
use super::launch::Launch;
use super::warp::Warp;

/// The blocks of a cluster, by rank, and their barrier.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// That of the running block is taken out.
    pub(super) blocks: Vec<Option<Box<BlockState>>>,
    /// The rank of the running block.
    pub(super) rank: u32,
    /// The threads of the cluster that have not ended, and those of them that have arrived at the barrier.
    pub(super) live: u32,
    arrived: u32,
    /// Whether the barrier is complete, and threads that wait for it have not been released.
    is_barrier_complete: bool,
    /// The rank of the next block in turn.
    pub(super) next: usize,
    pub(super) is_started: bool,
}

impl Cluster {
    /// Returns the cluster with this index, before its first instruction.
    pub(crate) fn new(launch: &Launch, engine: Engine, index: u64) -> Self {
        let (size, grid) = (launch.cluster_size().map(u64::from), launch.grid.map(u64::from));
        let clusters: [u64; 3] = std::array::from_fn(|axis| grid[axis] / size[axis]);
        let at = [index % clusters[0], index / clusters[0] % clusters[1], index / clusters[0] / clusters[1]];
        let block = |rank: u64| {
            let inside = [rank % size[0], rank / size[0] % size[1], rank / size[0] / size[1]];
            let [x, y, z]: [u64; 3] = std::array::from_fn(|axis| at[axis] * size[axis] + inside[axis]);
            Some(Box::new(BlockState::new(launch, engine, x + grid[0] * (y + grid[1] * z))))
        };
        let blocks: Vec<_> = (0..size.iter().product()).map(block).collect();
        let live = blocks.iter().flatten().map(|block| block.live()).sum();
        Self { blocks, rank: 0, live, arrived: 0, is_barrier_complete: false, next: 0, is_started: false }
    }

    /// Calls `run` with a block, which is taken out of the cluster meanwhile.
    pub(super) fn with_block<T>(&mut self, rank: usize, run: impl FnOnce(&mut BlockState, &mut Self) -> T) -> T {
        let mut block = self.blocks[rank].take().expect("only the running block is taken out");
        self.rank = rank as u32;
        let result = run(&mut block, self);
        self.blocks[rank] = Some(block);
        result
    }

    /// Returns the shared memory of another block, or why there is none.
    pub(super) fn peer(&mut self, rank: u64, is_exact: bool) -> Result<&mut [u8], String> {
        let count = self.blocks.len();
        let block = usize::try_from(rank).ok().and_then(|rank| self.blocks.get_mut(rank)?.as_mut());
        let Some(block) = block else { return Err(format!("the cluster has {count} blocks, the rank is {rank}")) };
        let [x, y, z] = block.position();
        if block.live() == 0 {
            return Err(format!("block ({x},{y},{z}) of the cluster has ended"));
        }
        if is_exact && block.executed == 0 {
            return Err(format!("block ({x},{y},{z}) of the cluster has not started: no barrier ensures it"));
        }
        Ok(block.shared_mut())
    }

    /// Returns the position of a block in the grid.
    pub(super) fn position_of(&self, rank: u64) -> Option<[u32; 3]> {
        let block = self.blocks.get(usize::try_from(rank).ok()?)?.as_ref()?;
        Some(block.position())
    }

    /// Counts lanes that arrive at the barrier. Returns whether it is complete.
    pub(super) fn arrive(&mut self, lanes: u32) -> bool {
        self.arrived += lanes.count_ones();
        self.check()
    }

    /// Counts lanes that end, some of which have arrived at the barrier. Returns whether it is complete.
    pub(super) fn exit(&mut self, lanes: u32, arrived: u32) -> bool {
        self.live -= lanes.count_ones();
        self.arrived -= arrived.count_ones();
        self.check()
    }

    fn check(&mut self) -> bool {
        let is_complete = self.arrived > 0 && self.arrived == self.live;
        if is_complete {
            self.arrived = 0;
            self.is_barrier_complete = true;
        }
        is_complete
    }

    /// Releases the threads that wait at the barrier if it is complete, those of `own` and those of the other blocks.
    /// Returns whether it is complete.
    pub(super) fn release(&mut self, own: &mut [Warp]) -> bool {
        if !mem::take(&mut self.is_barrier_complete) {
            return false;
        }
        own.iter_mut().for_each(Warp::complete_cluster_barrier);
        for block in self.blocks.iter_mut().flatten() {
            block.warps_mut().iter_mut().for_each(Warp::complete_cluster_barrier);
        }
        true
    }

    /// The numbers of the other blocks in the grid.
    pub(super) fn others(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flatten().map(|block| block.index())
    }

    /// Returns the output of `printf` since the last call, and the instructions so far.
    pub(crate) fn take_printed(&mut self) -> Vec<u8> {
        self.blocks.iter_mut().flatten().flat_map(|block| mem::take(&mut block.printed)).collect()
    }

    pub(crate) fn executed(&self) -> u64 {
        self.blocks.iter().flatten().map(|block| block.executed).sum()
    }
}
