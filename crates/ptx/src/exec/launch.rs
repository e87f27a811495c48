//! The parameters of a launch and of a slice, and how far a slice got.

use crate::bounds::Pointer;

/// The parameters of a launch.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The index of the kernel in the program.
    pub kernel: usize,
    /// The number of thread blocks.
    pub grid: [u32; 3],
    /// The number of threads of a block.
    pub block: [u32; 3],
    /// The number of thread blocks of a cluster in each direction, which divides that of the grid. `None` unless the
    /// launch or the kernel states it: then each block is a cluster.
    pub cluster: Option<[u32; 3]>,
    /// The dynamic shared memory of each block.
    pub shared_bytes: u32,
    /// Whether shared memory ends at its last byte. Otherwise it ends at a multiple of 128 bytes, as on hardware.
    pub is_shared_exact: bool,
    /// The arguments, laid out as the kernel's parameters are.
    pub parameters: Vec<u8>,
    /// The pointers among the arguments whose memory blocks are known at the time of the launch.
    pub pointers: Vec<Pointer>,
    /// The address of 64 zeroed bytes of global memory that synchronize the blocks of a cooperative launch; zero for
    /// others.
    pub workspace: u64,
    /// The stack of one thread: its calls and local variables.
    pub stack_bytes: u64,
}

impl Launch {
    /// The number of thread blocks of a cluster in each direction.
    pub(super) fn cluster_size(&self) -> [u32; 3] {
        self.cluster.unwrap_or([1; 3])
    }
}

/// How long a thread block runs before it returns.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// The number of warp instructions.
    pub instructions: u64,
    /// The time now, for `%globaltimer` and `%clock`.
    pub nanoseconds: u64,
    /// The seed of a random order of warps; `None` runs them in turn.
    pub seed: Option<u64>,
}

/// How far a thread block has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Every thread has ended.
    Done,
    /// The slice is used up.
    Running,
    /// No thread can run before this time, when the first sleeping one (`nanosleep`) wakes.
    Sleeping {
        /// On the clock of [`Slice::nanoseconds`].
        until_nanoseconds: u64,
    },
}
