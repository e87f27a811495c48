//! What the pool asks of the device that it is of, where a thread's own blocks do not serve.

use freehold_driver::CallError;

use crate::ordering::streams::Streams;

pub(crate) trait PoolDevice {
    /// Which fences are complete, and what is pending.
    fn streams(&self) -> &Streams;

    /// Unmaps memory of vectors and imports that their work has passed. Whether any waited for that: the pool has it now.
    fn unmap_completed(&self) -> Result<bool, CallError>;
}
