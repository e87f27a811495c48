//! Frees for code that does not know which streams have used a block: the memory becomes free when the work that was
//! submitted to the device before is complete. The free itself does not wait.

use std::sync::atomic::Ordering;

use freehold_driver::cuda::CUstream;

use super::ForeignPool;
use super::waiting_frees::Frees;
use crate::error::Result;

impl ForeignPool {
    /// Frees the block at an address after all work that was submitted to the device before, in any stream.
    ///
    /// # Errors
    /// [`Error::WrongRelease`](crate::Error::WrongRelease), which explains the mistake; the block at the address is
    /// unchanged.
    pub fn free_after_all(&self, address: u64) -> Result<()> {
        let pending = self.begin_free(address)?;
        let mut frees = self.waiting.lock();
        frees.unrecorded.push(pending);
        self.waiting.count.fetch_add(1, Ordering::Relaxed);
        self.record_waiting(&mut frees)?;
        self.reclaim(&mut frees)
    }

    /// Makes blocks free whose work is complete.
    pub(super) fn reclaim_complete(&self) -> Result<()> {
        if self.waiting.count.load(Ordering::Relaxed) == 0 || self.device.is_child() {
            return Ok(());
        }
        let mut frees = self.waiting.lock();
        self.record_waiting(&mut frees)?;
        self.reclaim(&mut frees)
    }

    /// Waits until the oldest blocks are free. Returns whether there were any.
    pub(super) fn reclaim_oldest(&self) -> Result<bool> {
        if self.waiting.count.load(Ordering::Relaxed) == 0 {
            return Ok(false);
        }
        let mut frees = self.waiting.lock();
        self.record_waiting(&mut frees)?;
        let backend = &self.device.backend;
        let failed = |error| self.device.failed(error);
        if let Some(&(event, _)) = frees.recorded.front() {
            // SAFETY: the event is destroyed only when its blocks are reclaimed, under the lock.
            unsafe { backend.wait(event) }.map_err(failed)?;
            self.reclaim(&mut frees)?;
            return Ok(true);
        }
        if self.is_any_capturing()? {
            return Ok(false);
        }
        backend.synchronize().map_err(failed)?;
        let blocks = std::mem::take(&mut frees.unrecorded);
        self.waiting.count.fetch_sub(blocks.len(), Ordering::Relaxed);
        self.finish_free(blocks, CUstream::NULL)?;
        Ok(true)
    }

    /// Records an event after the blocks that have none. They stay without one while a stream is being captured.
    fn record_waiting(&self, frees: &mut Frees) -> Result<()> {
        if frees.unrecorded.is_empty() {
            return Ok(());
        }
        if self.is_any_capturing()? {
            return Ok(());
        }
        let backend = &self.device.backend;
        let failed = |error| self.device.failed(error);
        let (event, recorded) = self.event_after_all()?;
        if let Ok(true) = recorded {
            let blocks = std::mem::take(&mut frees.unrecorded);
            frees.recorded.push_back((event, blocks));
            return Ok(());
        }
        // SAFETY: nothing uses the event.
        unsafe { backend.destroy_event(event) }.map_err(failed)?;
        match recorded {
            // Drivers before CUDA 12.5 cannot record it.
            Err(error) if error.is_unsupported() => Ok(()),
            recorded => recorded.map(drop).map_err(failed),
        }
    }

    fn reclaim(&self, frees: &mut Frees) -> Result<()> {
        let backend = &self.device.backend;
        let failed = |error| self.device.failed(error);
        while let Some(&(event, _)) = frees.recorded.front() {
            // SAFETY: the event is destroyed once, below.
            if !unsafe { backend.is_complete(event) }.map_err(failed)? {
                break;
            }
            let (event, blocks) = frees.recorded.pop_front().expect("there is a first one");
            self.waiting.count.fetch_sub(blocks.len(), Ordering::Relaxed);
            // SAFETY: the event was taken out of the queue.
            unsafe { backend.destroy_event(event) }.map_err(failed)?;
            self.finish_free(blocks, CUstream::NULL)?;
        }
        Ok(())
    }
}
