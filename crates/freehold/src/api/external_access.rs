//! Memory accessed by something other than a stream: the host, a NIC, another library. The access can wait for earlier
//! work; later work waits for it on the device.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::api::memory::{Pod, Source, Target};
use crate::api::stream::Stream;
use crate::device::context::Context;
use crate::device::memory_use::MemoryUse;
use crate::device::stream_inner::StreamInner;
use crate::error::{Error, Result};
use crate::ledger::Fence;
use crate::ordering::access_history::Access;
use crate::ordering::poisoned::PoisonedRanges;
use crate::ordering::transfer_slot::TransferSlot;

/// An access to memory by something other than a stream, until [`done`](Self::done), in the order of the block's uses.
///
/// Only conflicting work waits for it: work that is submitted to any stream during the access and writes the block, or
/// reads it if it was lent to be written, waits on the device until the access ends. A block that is dropped during the
/// access is reused after it.
///
/// A host call that waits for such work ([`Stream::download`], [`Stream::synchronize`], loading a module) waits for the
/// access to end, so another thread has to end it. On a device whose streams cannot wait for words, submitting such
/// work waits on the host.
///
/// Dropping it ends it like [`failed`](Self::failed): keep it until the transfer that uses the address is over. If it
/// is leaked ([`std::mem::forget`]), it never ends, and work that waits for it waits forever.
///
/// ```
/// # fn main() -> freehold::Result<()> {
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let mut x = stream.zeros::<f32>(1000)?;
/// let lent = stream.lend(&x)?; // makes no driver call if no write of `x` is pending
/// lent.wait()?; // for earlier writes of `x` only
/// // Here a transfer reads `lent.bytes()` bytes at `lent.address()`, in this thread or another.
/// stream.fill(&mut x, 1.0)?; // returns at once; the device fills after the transfer
/// lent.done();
/// # Ok(())
/// # }
/// ```
#[must_use = "a lending that is dropped ends as one that failed"]
pub struct ExternalAccess {
    /// The block's context, which is not destroyed before the access ends.
    context: Context,
    /// `None` once the access has ended.
    slot: Option<Arc<TransferSlot>>,
    fence: Fence,
    range: Range<u64>,
    /// Earlier work that may have been pending when the access began.
    earlier: Vec<Fence>,
    /// Where the outcome is recorded, if the memory is lent to be written.
    undefined: Option<Arc<PoisonedRanges>>,
}

impl fmt::Debug for ExternalAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccess")
            .field("range", &format_args!("{:#x?}", self.range))
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Lends a block, or a part of one, to be read by something other than a stream of the device.
    ///
    /// Makes no driver call if all work that writes the block is known to be complete.
    ///
    /// # Errors
    /// [`Error::Undefined`] if a transfer into it has failed.
    pub fn lend<T: Pod>(&self, from: &impl Source<T>) -> Result<ExternalAccess> {
        self.lend_used(from.used())
    }

    /// Lends a block, or a part of one, to be written and read by something other than a stream of the device.
    ///
    /// Makes no driver call if all work that uses the block is known to be complete.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = stream.zeros::<u8>(1000)?;
    /// let lent = stream.lend_mut(&mut x)?;
    /// while !lent.is_ready()? {
    ///     std::thread::yield_now(); // or do something else meanwhile
    /// }
    /// // Here a NIC writes `lent.bytes()` bytes to `lent.address()`.
    /// lent.done();
    /// assert_eq!(stream.download(&x)?.len(), 1000);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the memory was imported read-only.
    pub fn lend_mut<T: Pod>(&self, to: &mut impl Target<T>) -> Result<ExternalAccess> {
        self.lend_used(to.used(Access::Write))
    }

    /// Returns the addresses of a block, or a part of one, if all work that writes it is known to be complete: the
    /// host, or anything else that is not a stream, may read it while it stays borrowed, since nothing writes borrowed
    /// memory. Returns `None` if a write may be pending, and for blocks that can sleep or of contexts that can be closed:
    /// lend those.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(1000)?;
    /// stream.synchronize()?;
    /// assert_eq!(stream.at_rest(&x)?, Some(x.address()..x.address() + 1000)); // nothing is pending
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`lend`](Self::lend).
    #[inline]
    pub fn at_rest<T: Pod>(&self, from: &impl Source<T>) -> Result<Option<Range<u64>>> {
        self.used_at_rest(from.used())
    }

    /// Like [`at_rest`](Self::at_rest), if all work that uses it is known to be complete: it may also be written.
    ///
    /// # Errors
    /// Those of [`lend_mut`](Self::lend_mut).
    #[inline]
    pub fn at_rest_mut<T: Pod>(&self, to: &mut impl Target<T>) -> Result<Option<Range<u64>>> {
        self.used_at_rest(to.used(Access::Write))
    }

    fn used_at_rest(&self, used: MemoryUse<'_>) -> Result<Option<Range<u64>>> {
        self.inner.context.inner.check()?;
        self.check_used(&[used])?;
        let mut is_at_rest = used.context.inner.stays() && !used.context.inner.device.sleepers.has(used.start);
        used.uses
            .before(TransferSlot::NONE, used.access, |fence| is_at_rest &= is_at_rest && self.sees_complete(fence));
        Ok(is_at_rest.then(|| used.range()))
    }

    /// Whether a fence is known to be complete.
    #[inline]
    fn sees_complete(&self, fence: Fence) -> bool {
        let StreamInner { state: stream_state, context, .. } = &*self.inner;
        if fence.stream == stream_state.id {
            stream_state.is_complete(fence.seq)
        } else {
            context.inner.device.streams.is_complete(fence)
        }
    }

    fn lend_used(&self, used: MemoryUse<'_>) -> Result<ExternalAccess> {
        let inner = &self.inner.context.inner;
        inner.check()?;
        self.check_used(&[used])?;
        let (device, of) = (&inner.device, &used.context.inner);
        // Until the access has begun: a closed context is destroyed after everything that began before.
        let _open = of.kept_open();
        if of.is_closed() {
            return Err(Error::ContextClosed { context: of.state.id });
        }
        let _awake = device.sleepers.keep_awake(std::iter::once(used.start))?;
        let is_complete = |fence: Fence| self.sees_complete(fence);
        let slot = device.take_transfer_slot()?;
        let mut earlier = Vec::new();
        used.uses.before(slot.id(), used.access, |fence| {
            if !is_complete(fence) {
                earlier.push(fence);
            }
        });
        if !earlier.is_empty()
            && let Err(error) = device.record_fences_uncaptured(&earlier)
        {
            device.streams.transfer_slots.give_back(slot);
            return Err(error);
        }
        let fence = slot.begin();
        // Incomplete uses stay in the list: the access may end before they do.
        used.uses.note(fence, used.access, is_complete);
        let undefined = (used.access == Access::Write).then(|| used.uses.poisoned().clone());
        if let Some(undefined) = &undefined {
            undefined.begin(fence, &used.range());
        }
        device.sleepers.begin_access(used.start);
        Ok(ExternalAccess {
            context: used.context.clone(),
            slot: Some(slot),
            fence,
            range: used.range(),
            earlier,
            undefined,
        })
    }
}

impl ExternalAccess {
    /// Returns the device address; if the host can access device memory, it is the host's too.
    pub fn address(&self) -> u64 {
        self.range.start
    }

    /// Returns how many bytes are lent.
    pub fn bytes(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Whether all earlier work is complete, so that the transfer may begin. Makes no driver call on a device that
    /// writes fence words.
    ///
    /// # Errors
    /// [`Error::Faulted`] if that work has failed.
    pub fn is_ready(&self) -> Result<bool> {
        let device = &self.context.inner.device;
        device.check()?;
        for &fence in &self.earlier {
            if let Some(stream_state) = device.streams.get(fence.stream) {
                stream_state.refresh().map_err(|error| device.failed(error))?;
            }
            if !device.streams.is_complete(fence) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until the transfer may begin: for earlier work with the block, and for earlier accesses. The thread spins
    /// and yields.
    ///
    /// # Errors
    /// Those of [`is_ready`](Self::is_ready).
    pub fn wait(&self) -> Result<()> {
        let device = &self.context.inner.device;
        device.check()?;
        self.earlier.iter().try_for_each(|&fence| device.wait_for_recorded_fence(fence))
    }

    /// Ends the access: the transfer is over, and all of it was read or written. Work that waited for it continues.
    pub fn done(mut self) {
        self.end(PoisonedRanges::succeed);
    }

    /// Ends the access: nothing reads or writes there from now on, and memory lent to be written has undefined content.
    /// Until all of it is written again, reads of it fail with [`Error::Undefined`]. Work that was submitted before
    /// this continues, and reads whatever the memory contains.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// use freehold::Error;
    ///
    /// let mut x = stream.zeros::<u8>(1000)?;
    /// stream.lend_mut(&mut x)?.failed(); // the connection broke
    /// assert!(matches!(stream.download(&x), Err(Error::Undefined { .. })));
    /// stream.fill_bytes(&mut x, 0)?; // all of it
    /// assert_eq!(stream.download(&x)?, [0; 1000]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn failed(self) {
        drop(self);
    }

    fn end(&mut self, note: impl FnOnce(&PoisonedRanges, Fence)) {
        let (slot, device) = (self.slot.take(), &self.context.inner.device);
        // In a fork the words are the parent's, and the locks may be held forever.
        let Some(slot) = slot.filter(|_| !device.is_child()) else { return };
        if let Some(undefined) = &self.undefined {
            note(undefined, self.fence);
        }
        device.streams.transfer_slots.end(slot);
        device.sleepers.end_access(self.range.start);
    }
}

impl Drop for ExternalAccess {
    fn drop(&mut self) {
        self.end(PoisonedRanges::fail);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use freehold_driver::cuda::Function;
    use freehold_driver::cuda::faults::Faults;

    use crate::api::device::Device;
    use crate::base::sync_point::{self, SyncPoint};

    /// A copy to memory that is not pinned keeps other threads out of NVIDIA's driver until the stream comes to it.
    #[test]
    fn a_download_is_not_with_the_driver_while_another_thread_has_its_stream_wait_for_lent_memory() {
        // SAFETY: the table is the device's alone.
        let opened = unsafe { crate::api::open::open(None) }.unwrap();
        let faults = Faults::count(&opened.api);
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(*faults.api(), opened.device) }.unwrap();
        let [stream, other] = [(); 2].map(|()| device.new_stream().unwrap());
        let (x, mut y) = (stream.upload(&[7_u8; 100]).unwrap(), other.zeros::<u8>(100).unwrap());
        device.synchronize().unwrap();
        let calls =
            || [Function::cuStreamSynchronize, Function::cuMemcpyDtoHAsync_v2].map(|name| faults.calls_of(name));
        let before = calls();
        thread::scope(|scope| {
            let downloaded = sync_point::within(
                SyncPoint::Copy,
                || stream.download(&x),
                || {
                    let lent = other.lend_mut(&mut y).unwrap();
                    stream.fill_bytes(&mut y, 1).unwrap();
                    scope.spawn(move || {
                        // What the call does next, once it continues.
                        while calls() == before {
                            thread::yield_now();
                        }
                        let after = calls();
                        lent.done();
                        assert_eq!(after, [before[0] + 1, before[1]], "it waits, and copies nothing yet");
                    });
                },
            );
            assert_eq!(downloaded.unwrap(), [7; 100]);
        });
    }
}
