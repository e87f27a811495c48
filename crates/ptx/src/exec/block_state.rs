//! The data of a running thread block.

use super::barrier::Barriers;
use super::engine::Engine;
use super::launch::Launch;
use super::warp::Warp;

#[derive(Debug)]
pub(crate) struct BlockState {
    pub(super) index: u64,
    pub(super) engine: Engine,
    pub(super) block: [u32; 3],
    pub(super) warps: Vec<Warp>,
    pub(super) threads: u32,
    pub(super) started: bool,
    pub(super) shared: Vec<u8>,
    pub(super) barriers: Barriers,
    /// The number of threads that have not ended.
    pub(super) live: u32,
    pub(crate) printed: Vec<u8>,
    pub(crate) executed: u64,
    /// The next warp in turn.
    pub(super) next_warp: usize,
    /// The latest time that threads have seen.
    pub(super) latest_time: u64,
}

impl BlockState {
    pub(crate) fn new(launch: &Launch, engine: Engine, index: u64) -> Self {
        let [x, y, _] = launch.grid.map(u64::from);
        let block = [index % x, index / x % y, index / x / y].map(|position| position as u32);
        let threads: u32 = launch.block.iter().product();
        Self {
            index,
            engine,
            block,
            warps: Vec::new(),
            threads,
            started: false,
            shared: Vec::new(),
            barriers: Barriers::default(),
            live: threads,
            printed: Vec::new(),
            executed: 0,
            next_warp: 0,
            latest_time: 0,
        }
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// The position in the grid.
    pub(super) fn position(&self) -> [u32; 3] {
        self.block
    }

    /// The number of threads that have not ended.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    pub(super) fn shared_mut(&mut self) -> &mut [u8] {
        &mut self.shared
    }

    pub(super) fn warps_mut(&mut self) -> &mut [Warp] {
        &mut self.warps
    }
}
