//! What the pool needs to know of the work on a device. Memory comes from `freehold_driver::DeviceMemory`.

use std::fmt;

use super::imports::{CallError, Fence, StreamId, StreamState};

/// A device, as the pool sees it: which fences are complete, and waits for them. Only the slow paths call it.
pub(crate) trait DeviceWork: fmt::Debug {
    /// Whether a fence is known to be complete. Makes no call of the driver.
    fn is_complete(&self, fence: Fence) -> bool;

    /// Whether nothing is known to be pending.
    fn is_idle(&self) -> bool;

    /// Updates what is known of fences that were recorded.
    fn refresh(&self) -> Result<(), CallError>;

    /// Updates what is known of all work, recorded or not.
    fn query(&self) -> Result<(), CallError>;

    /// Records fences that are not recorded yet, so that [`refresh`](Self::refresh) notices their completion.
    fn record_fences(&self, fences: &[Fence]) -> Result<(), CallError>;

    /// Like [`record_fences`](Self::record_fences), with at most one record for each stream at a time.
    fn record_fences_coalesced(&self, fences: &[Fence]) -> Result<(), CallError>;

    /// Whether a stream may wait for another, which exists.
    fn can_wait(&self, stream: &StreamState, other: StreamId) -> Result<bool, CallError>;

    /// Makes a stream's next work wait, on the device, for a fence of another stream, unless that is complete.
    fn wait_for(&self, stream: &StreamState, fence: Fence) -> Result<(), CallError>;

    /// Makes a call that waits for all work of the device, if none is pending. Returns whether it did.
    fn when_idle(&self, call: &mut dyn FnMut() -> Result<(), CallError>) -> Result<bool, CallError>;

    /// Unmaps memory of vectors and imports whose work is complete. Returns whether there was any: the pool has it now.
    fn unmap_completed(&self) -> Result<bool, CallError>;
}
