//! The interface between a running kernel and the rest of the driver. The engine does not know memory or contexts.

use std::fmt::Debug;

use freehold_check::TaskView;
use freehold_driver::cuda::CUerror;
use freehold_ptx::{Fault, Progress, Slice, ThreadBlock};

/// The environment of one launch.
pub(crate) trait KernelEnv: Debug + Send + Sync {
    /// Runs a block for a slice, with the memory that the kernel can access.
    fn run(&self, block: &mut ThreadBlock, slice: Slice) -> Result<Progress, Fault>;

    /// Drops what slices have left for later ones. Called before the kernel's outcome is known.
    fn end(&self) {}

    /// Notes the task as which the kernel is checked.
    fn begin_checked(&self, _view: TaskView) {}

    /// Takes the output of the kernel's `printf`.
    fn print(&self, bytes: &[u8]);

    /// Logs the kernel's fault and returns its code.
    fn report_fault(&self, fault: &Fault) -> CUerror;

    /// Logs that the kernel exceeded its time limit, and returns the code.
    fn report_timeout(&self, kernel: &str, seconds: f64) -> CUerror;

    /// The memory through which the blocks of a cooperative launch synchronize.
    fn workspace(&self) -> Option<u64>;

    /// Returns an environment for another run of the same launch.
    ///
    /// # Errors
    /// There is no memory for the workspace of a cooperative launch.
    fn try_clone(&self) -> Result<Box<dyn KernelEnv>, CUerror>;
}
