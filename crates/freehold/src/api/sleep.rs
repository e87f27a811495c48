//! Sleep: a name's blocks give their memory back to the driver and keep their addresses and owners.
//!
//! A name that can sleep has a pool of its own (`device/sleepers.rs`), so its chunks contain no other blocks; the pool
//! unmaps and maps them (`pool/sleep.rs`). This file puts the steps in order: refuse further uses, wait for those that
//! were submitted, save, unmap; and back.

use freehold_driver::CallError;

use crate::api::device::Device;
use crate::api::stream::Stream;
use crate::device::device_inner::DeviceInner;
use crate::device::make_room;
use crate::device::sleepers::{Contents, Saved, Sleeper};
use crate::error::{Error, Result};
use crate::pool::WakeOutcome;

impl Device {
    /// Makes blocks of a name able to sleep: those allocated from now on with
    /// [`Stream::alloc_tagged`](crate::Stream::alloc_tagged), under this name or names within it (`model/cache` is
    /// within `model`). They lie in memory of their own. A block belongs to the innermost of such names, and stays with
    /// it even if it is renamed. Blocks that exist already, shareable blocks and vectors do not sleep.
    ///
    /// # Errors
    /// [`Error::CannotSleep`] on a device that cannot map memory; [`Error::TooManySleepable`] beyond 64 names.
    pub fn set_sleepable(&self, tag: &str) -> Result<()> {
        let device = self.inner();
        device.check()?;
        if !device.pool.chunks.can_map() {
            return Err(Error::CannotSleep);
        }
        device.sleepers.add(tag, |index| device.pool.separate(index).map_err(|error| device.failed_pool(error)))
    }

    /// Gives the memory of all blocks of a name back to the driver, and keeps their addresses and owners. Waits for all
    /// work of the device first, and for [`wake`](Self::wake) or another `sleep` of the name. Returns how many bytes
    /// went back, or `None` if the name was asleep already; its contents are then kept or dropped as before.
    ///
    /// Until the name wakes, every use of its blocks by the library fails with [`Error::Asleep`]. They can be released,
    /// and others can be allocated under the name: they get addresses now, and memory when the name wakes. A graph that
    /// uses the blocks can be replayed once they are awake. Work that the library does not see, such as a graph or a
    /// kernel with a raw address, must not use them meanwhile, and must be submitted before this call in the primary
    /// context or in a stream that the library knows.
    ///
    /// ```
    /// use freehold::{Contents, Error};
    ///
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// device.set_sleepable("weights")?;
    /// let mut weights = stream.alloc_tagged::<f32>(1 << 20, "weights")?;
    /// stream.fill(&mut weights, 0.5)?;
    ///
    /// assert_eq!(device.sleep("weights", Contents::Keep)?, Some(4 << 20)); // another process can use it now
    /// assert!(matches!(stream.download(&weights), Err(Error::Asleep { .. })));
    /// assert_eq!(device.sleep("weights", Contents::Keep)?, None);
    ///
    /// assert_eq!(device.wake("weights")?, Some(4 << 20));
    /// assert_eq!(stream.download(&weights.view(..2)?)?, [0.5, 0.5]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotSleepable`] without [`set_sleepable`](Self::set_sleepable); [`Error::LentOut`] while a block of the
    /// name is lent; [`Error::StreamCaptured`] while a stream is captured; [`Error::Call`] if the driver refuses. The
    /// name is then awake, with its contents. It is asleep only if the driver also refused to take a step back, or to
    /// free memory that was unmapped already: then another call gives back what is left and returns how much, and
    /// `wake` wakes the name.
    pub fn sleep(&self, tag: &str, contents: Contents) -> Result<Option<u64>> {
        let device = self.inner();
        device.check()?;
        let sleeper = device.sleepers.named(tag)?;
        let saved = &mut *sleeper.lock();
        if sleeper.is_asleep() {
            let bytes = sleeper.pool.release_left_over().map_err(|error| device.failed(error))?;
            return Ok((bytes > 0).then_some(bytes));
        }
        // What could not be freed when it woke.
        sleeper.free(saved, &*device.backend).map_err(|error| device.failed(error))?;
        self.refuse_captures()?;
        let stream = self.new_stream()?;
        device.sleepers.close(sleeper, contents)?;
        let slept = self.fall_asleep(&stream, (sleeper, saved), contents);
        if slept.is_err() && !sleeper.pool.is_asleep() {
            free_saved(device, sleeper, saved);
            sleeper.open();
        }
        slept.map(Some)
    }

    /// Returns an error while a stream is captured: to wait for the device would end the capture.
    fn refuse_captures(&self) -> Result<()> {
        let device = self.inner();
        let is_captured = device.streams.is_any_captured().map_err(|error| device.failed(error))?;
        if is_captured { Err(Error::StreamCaptured) } else { Ok(()) }
    }

    fn fall_asleep(
        &self,
        stream: &Stream,
        (sleeper, saved): (&Sleeper, &mut Saved),
        contents: Contents,
    ) -> Result<u64> {
        let device = self.inner();
        // Again: a capture may have begun before uses were refused.
        self.refuse_captures()?;
        // First: it covers the streams of foreign code, which are not asked about one by one.
        self.primary.synchronize()?;
        device.synchronize_all()?;
        let by = (&*device.backend, stream.inner.state.raw);
        let is_for_graphs = |fence| device.streams.is_for_graphs(fence);
        let slept = sleeper.pool.sleep(is_for_graphs, |ranges| match contents {
            Contents::Keep => sleeper.save(saved, by, ranges),
            Contents::Drop => Ok(()),
        });
        slept.map_err(|error| failed(device, saved, error))
    }

    /// Maps new memory for the blocks of a name that sleeps, at their addresses, and copies kept contents back. Chunks
    /// whose blocks were all released meanwhile get none. Returns how many bytes were mapped, or `None` if the name was
    /// awake.
    ///
    /// # Errors
    /// [`Error::NotSleepable`]; [`Error::OutOfMemory`], and [`Error::Call`] if the driver refuses: the name sleeps on,
    /// and what is kept stays kept.
    pub fn wake(&self, tag: &str) -> Result<Option<u64>> {
        let device = self.inner();
        device.check()?;
        let sleeper = device.sleepers.named(tag)?;
        let saved = &mut *sleeper.lock();
        if !sleeper.is_asleep() {
            return Ok(None);
        }
        let stream = self.new_stream()?;
        let by = (&*device.backend, stream.inner.state.raw);
        let wake = |saved: &mut Saved| {
            let is_for_graphs = |fence| device.streams.is_for_graphs(fence);
            let woken = sleeper.pool.wake(is_for_graphs, |used| sleeper.restore(saved, by, used));
            woken.map_err(|error| failed(device, saved, error))
        };
        let mut woken = wake(saved)?;
        if let WakeOutcome::OutOfMemory { wanted_bytes } = woken
            && make_room::make_room(device, &sleeper.pool, wanted_bytes).map_err(|error| device.failed(error))?
        {
            woken = wake(saved)?;
        }
        match woken {
            WakeOutcome::OutOfMemory { wanted_bytes } => {
                Err(make_room::out_of_memory(device, &sleeper.pool, wanted_bytes))
            }
            WakeOutcome::Awake { mapped_bytes } => {
                sleeper.open();
                free_saved(device, sleeper, saved);
                Ok(Some(mapped_bytes))
            }
        }
    }
}

fn failed(device: &DeviceInner, saved: &Saved, error: CallError) -> Error {
    if saved.has_lost_copies { device.lost(error) } else { device.failed(error) }
}

/// Frees what is saved. What the driver refuses to free is freed by the next call.
fn free_saved(device: &DeviceInner, sleeper: &Sleeper, saved: &mut Saved) {
    sleeper.free(saved, &*device.backend).unwrap_or_else(|error| device.note_refusal(error));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync_point::{self, SyncPoint};

    #[test]
    fn a_use_that_was_checked_before_its_block_fell_asleep_is_refused_nevertheless() {
        let device = crate::api::open::device(None).unwrap();
        let stream = device.new_stream().unwrap();
        device.set_sleepable("checked").unwrap();
        let mut block = stream.alloc_tagged::<u8>(100, "checked").unwrap();
        stream.fill(&mut block, 7).unwrap();
        let downloaded = sync_point::within(
            SyncPoint::Copy,
            || stream.download(&block),
            || assert!(device.sleep("checked", Contents::Keep).unwrap().is_some()),
        );
        assert!(matches!(downloaded, Err(Error::Asleep { .. })));
        device.wake("checked").unwrap();
        assert_eq!(stream.download(&block).unwrap(), [7; 100]);
    }
}
