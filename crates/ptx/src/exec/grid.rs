//! A launch: thread blocks that run a kernel.

use std::sync::Arc;

use super::block::{LaunchData, Reuse};
use super::block_state::BlockState;
use super::cluster_state::Cluster;
use super::engine::Engine;
use super::launch::{Launch, Progress, Slice};
use crate::bounds::Bounds;
use crate::fault::Fault;
use crate::image::Program;
use crate::memory::Memory;

/// One launch. Its clusters may run in any order and on any thread.
#[derive(Debug)]
pub struct Grid {
    program: Arc<Program>,
    launch: Launch,
    bounds: Bounds,
    engine: Engine,
    reuse: Reuse,
}

impl Grid {
    /// Returns the same launch with another workspace for synchronizing its blocks.
    pub fn with_workspace(&self, workspace: u64) -> Self {
        let launch = Launch { workspace, ..self.launch.clone() };
        Self {
            program: Arc::clone(&self.program),
            launch,
            bounds: self.bounds.clone(),
            engine: self.engine,
            reuse: Reuse::default(),
        }
    }

    /// A launch of a kernel of the program.
    ///
    /// # Panics
    /// If the program has no such kernel, a dimension is zero, that of a cluster does not divide that of the grid, or the
    /// arguments are shorter than the parameters.
    pub fn new(program: Arc<Program>, launch: Launch) -> Self {
        let kernel = &program.kernels()[launch.kernel];
        assert!(
            launch.parameters.len() as u64 >= kernel.parameter_bytes,
            "the arguments are shorter than the parameters"
        );
        let dimensions = launch.grid.iter().chain(&launch.block);
        assert!(dimensions.copied().all(|length| length > 0), "a dimension of the launch is zero");
        let mut sides = launch.cluster_size().into_iter().zip(launch.grid);
        assert!(sides.all(|(part, whole)| part > 0 && whole % part == 0), "the clusters do not fill the grid");
        let code = program.kernel_code(launch.kernel);
        let bounds = Bounds::new(&code.provenance, &launch.pointers);
        Self { program, launch, bounds, engine: Engine::detect(), reuse: Reuse::default() }
    }

    /// Returns the same launch with another engine.
    #[cfg(test)]
    pub(super) fn with_engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// The program that it runs.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The parameters of the launch.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        self.launch.grid.iter().map(|&length| u64::from(length)).product()
    }

    /// How many clusters it has: without clusters, each block counts as one.
    pub fn clusters(&self) -> u64 {
        let of_cluster: u64 = self.launch.cluster_size().iter().map(|&length| u64::from(length)).product();
        self.blocks() / of_cluster
    }

    /// Returns the cluster with this index, before its first instruction: one thread block, or several that run together.
    pub fn cluster(self: &Arc<Self>, index: u64) -> ThreadBlock {
        let uses_barrier = self.program.linked.code[self.launch.kernel].uses_cluster_barrier;
        let state = match self.launch.cluster.is_some() || uses_barrier {
            true => State::Cluster(Box::new(Cluster::new(&self.launch, self.engine, index))),
            false => State::Block(BlockState::new(&self.launch, self.engine, index)),
        };
        ThreadBlock { state, grid: Arc::clone(self) }
    }
}

/// A running thread block, or the blocks of a cluster: the state of all threads and the shared memory.
#[derive(Debug)]
pub struct ThreadBlock {
    grid: Arc<Grid>,
    state: State,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most launches have no clusters, and one allocation less for each block")]
enum State {
    Block(BlockState),
    Cluster(Box<Cluster>),
}

impl ThreadBlock {
    /// Runs for a slice.
    ///
    /// # Errors
    /// Returns the fault that aborts the kernel. The block must not be run again.
    pub fn run(&mut self, memory: &mut dyn Memory, slice: Slice) -> Result<Progress, Fault> {
        let Grid { program, launch, bounds, reuse, .. } = &*self.grid;
        let data = LaunchData { program, launch, bounds, reuse };
        match &mut self.state {
            State::Block(block) => block.run(data, memory, slice),
            State::Cluster(cluster) => cluster.run(data, memory, slice),
        }
    }

    /// Returns the output of `printf` since the last call.
    pub fn take_printed(&mut self) -> Vec<u8> {
        match &mut self.state {
            State::Block(block) => std::mem::take(&mut block.printed),
            State::Cluster(cluster) => cluster.take_printed(),
        }
    }

    /// Returns the number of instructions so far, counted once for each thread that executed them.
    pub fn executed(&self) -> u64 {
        match &self.state {
            State::Block(block) => block.executed,
            State::Cluster(cluster) => cluster.executed(),
        }
    }
}
