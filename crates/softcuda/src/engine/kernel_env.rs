//! What a kernel on its way needs of the world around it. The engine knows neither memory nor contexts.

use std::fmt::Debug;

use freehold_driver::cuda::CUerror;
use freehold_ptx::{Block, Fault, Progress, Slice};

/// Where one launch runs.
pub(crate) trait KernelEnv: Debug + Send + Sync {
    /// Goes on with a block for a slice, over the memory that the kernel reaches.
    fn run(&self, block: &mut Block, slice: Slice) -> Result<Progress, Fault>;

    /// Takes what the kernel printed.
    fn print(&self, bytes: &[u8]);

    /// Writes down how the kernel ended, and says with which code.
    fn report_fault(&self, fault: &Fault) -> CUerror;

    /// Writes down that the kernel ran longer than it may.
    fn report_timeout(&self, kernel: &str, seconds: f64) -> CUerror;

    /// Where the blocks of a cooperative launch meet.
    fn workspace(&self) -> Option<u64>;

    /// The same for one more launch.
    ///
    /// # Errors
    /// There is no memory for the place where its blocks meet.
    fn try_clone(&self) -> Result<Box<dyn KernelEnv>, CUerror>;
}
