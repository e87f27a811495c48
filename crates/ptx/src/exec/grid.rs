//! A launch: thread blocks that run a kernel.

use std::sync::Arc;

use super::block::{BlockState, Reuse};
use super::engine::Engine;
use super::launch::{Launch, Progress, Slice};
use crate::bounds::Bounds;
use crate::fault::Fault;
use crate::image::Program;
use crate::memory::Memory;

/// One launch. Its thread blocks may run in any order and on any thread.
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
    /// If the program has no such kernel, a dimension is zero, or the arguments are shorter than the parameters.
    pub fn new(program: Arc<Program>, launch: Launch) -> Self {
        let kernel = &program.kernels()[launch.kernel];
        assert!(
            launch.parameters.len() as u64 >= kernel.parameter_bytes,
            "the arguments are shorter than the parameters"
        );
        let dimensions = launch.grid.iter().chain(&launch.block);
        assert!(dimensions.copied().all(|length| length > 0), "a dimension of the launch is zero");
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

    /// Returns the block with this index, before its first instruction.
    pub fn block(self: &Arc<Self>, index: u64) -> ThreadBlock {
        ThreadBlock { state: BlockState::new(&self.launch, self.engine, index), grid: Arc::clone(self) }
    }
}

/// A running thread block: the state of all its threads and its shared memory.
#[derive(Debug)]
pub struct ThreadBlock {
    grid: Arc<Grid>,
    state: BlockState,
}

impl ThreadBlock {
    /// Runs the block for a slice.
    ///
    /// # Errors
    /// Returns the fault that aborts the kernel. The block must not be run again.
    pub fn run(&mut self, memory: &mut dyn Memory, slice: Slice) -> Result<Progress, Fault> {
        let Grid { program, launch, bounds, reuse, .. } = &*self.grid;
        self.state.run(program, launch, bounds, reuse, memory, slice)
    }

    /// Returns the output of `printf` since the last call.
    pub fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.state.printed)
    }

    /// Returns the number of instructions so far, counted once for each thread that executed them.
    pub fn executed(&self) -> u64 {
        self.state.executed
    }
}
