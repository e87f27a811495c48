//! A launch: blocks of threads that run a kernel.

use std::sync::Arc;

use crate::bounds::{Bounds, Pointer};
use crate::exec::BlockState;
use crate::fault::Fault;
use crate::image::Program;
use crate::memory::Memory;

/// How a kernel is launched.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Index into the kernels of the program.
    pub kernel: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Dynamic shared memory of each block.
    pub shared_bytes: u32,
    /// The arguments, laid out as the kernel's parameters are.
    pub parameters: Vec<u8>,
    /// The pointers among the arguments whose blocks are known, as they are now.
    pub pointers: Vec<Pointer>,
    /// Address of 64 zeroed bytes of global memory that blocks of a cooperative launch meet at; zero for others.
    pub workspace: u64,
    /// What one thread's calls and local variables may take.
    pub stack_bytes: u64,
}

/// One launch. Its blocks may run in any order and on any thread.
#[derive(Debug)]
pub struct Grid {
    program: Arc<Program>,
    launch: Launch,
    bounds: Bounds,
}

impl Grid {
    /// The same launch, whose blocks meet at another address.
    pub fn with_workspace(&self, workspace: u64) -> Self {
        let launch = Launch { workspace, ..self.launch.clone() };
        Self { program: Arc::clone(&self.program), launch, bounds: self.bounds.clone() }
    }

    /// # Panics
    /// The program has no such kernel, a dimension is zero, or the arguments are fewer than the parameters.
    pub fn new(program: Arc<Program>, launch: Launch) -> Self {
        let kernel = &program.kernels()[launch.kernel];
        assert!(launch.parameters.len() as u64 >= kernel.parameter_bytes, "a launch carries all its arguments");
        let dimensions = launch.grid.iter().chain(&launch.block);
        assert!(dimensions.copied().all(|length| length > 0), "a launch has no empty dimension");
        let code = program.kernel_code(launch.kernel);
        let bounds = Bounds::new(&code.provenance, &launch.pointers);
        Self { program, launch, bounds }
    }

    pub fn blocks(&self) -> u64 {
        self.launch.grid.iter().map(|&length| u64::from(length)).product()
    }

    /// The block with this index, before its first instruction.
    pub fn block(self: &Arc<Self>, index: u64) -> Block {
        Block { state: BlockState::new(&self.program, &self.launch, index), grid: Arc::clone(self) }
    }
}

/// One block on its way: the state of all its threads and its shared memory.
#[derive(Debug)]
pub struct Block {
    grid: Arc<Grid>,
    state: BlockState,
}

/// How much a block may do before it lets others go on.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// Instructions of warps.
    pub instructions: u64,
    /// The time now, for `%globaltimer` and `%clock`.
    pub nanoseconds: u64,
    /// In which order warps go on: in turn, or as a generator says that starts with this number.
    pub seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Every thread has ended.
    Done,
    /// The slice is over.
    Running,
    /// Every thread that could go on sleeps (`nanosleep`) until this time.
    Sleeping { until_nanoseconds: u64 },
}

impl Block {
    /// Goes on for a slice.
    ///
    /// # Errors
    /// The fault that ends the kernel. The block must not be run again.
    pub fn run(&mut self, memory: &mut dyn Memory, slice: Slice) -> Result<Progress, Fault> {
        let Grid { program, launch, bounds } = &*self.grid;
        self.state.run(program, launch, bounds, memory, slice)
    }

    /// What `printf` wrote since the last call.
    pub fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.state.printed)
    }

    /// Instructions so far, counted once for each thread that executed them.
    pub fn executed(&self) -> u64 {
        self.state.executed
    }
}
