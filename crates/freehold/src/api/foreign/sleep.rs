//! Sleep and wake for foreign code: see [`Device::sleep`].

use freehold_driver::cuda::CUstream;

use super::ForeignPool;
use crate::api::device::Device;
use crate::device::sleepers::Contents;
use crate::error::{Error, Result};
use crate::pool::PoolIndex;

impl ForeignPool {
    /// Makes blocks of a name able to sleep: those allocated with [`alloc_tagged`](Self::alloc_tagged) from now on. See
    /// [`Device::set_sleepable`].
    ///
    /// # Errors
    /// Those of [`Device::set_sleepable`].
    pub fn set_sleepable(&self, tag: &str) -> Result<()> {
        self.as_device().set_sleepable(tag)
    }

    /// Gives the memory of all blocks of a name back to the driver, and keeps their addresses. See [`Device::sleep`].
    /// The library does not see foreign code's work: it waits for all that was submitted before, and the caller submits
    /// none that uses the blocks until they wake.
    ///
    /// # Errors
    /// Those of [`Device::sleep`].
    pub fn sleep(&self, tag: &str, contents: Contents) -> Result<Option<u64>> {
        self.device.check()?;
        // To wait for the device would invalidate the capture.
        if self.is_any_capturing()? {
            return Err(Error::StreamCaptured);
        }
        self.as_device().sleep(tag, contents)
    }

    /// Maps new memory for the blocks of a name that sleeps. See [`Device::wake`].
    ///
    /// # Errors
    /// Those of [`Device::wake`].
    pub fn wake(&self, tag: &str) -> Result<Option<u64>> {
        self.as_device().wake(tag)
    }

    /// Allocates a block in one of the pools that sleep.
    pub(super) fn alloc_sleepable(&self, index: PoolIndex, bytes: u64, stream: CUstream) -> Result<u64> {
        self.check_request(bytes)?;
        self.reclaim_complete()?;
        let capture = self.capture_if_asked(stream)?;
        let (_, stream_state) = self.stream_in(stream, capture)?;
        let pool = self.device.pool_of(index);
        self.alloc_anywhere(pool, bytes, pool.key(&stream_state), &stream_state)
    }

    fn as_device(&self) -> Device {
        Device { primary: self.primary.clone() }
    }
}
