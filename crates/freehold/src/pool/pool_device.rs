//! The interface of a device that the pool's slow path needs.

use freehold_driver::CallError;

use crate::ordering::streams::Streams;

pub(crate) trait PoolDevice {
    /// Returns the device's streams, which know which fences are complete and what is pending.
    fn streams(&self) -> &Streams;

    /// Unmaps memory of vectors and imports whose work is complete. Returns whether there was any: the pool has it now.
    fn unmap_completed(&self) -> Result<bool, CallError>;
}
