//! Memory that is lent to who is no stream: the host, a network, another library's engine. What comes before a transfer it is told
//! of, and what comes after it waits on the device.

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

/// Memory that somebody other than a stream reads or writes until [`done`](Self::done), in the order of the block's uses.
///
/// Nobody is kept waiting by it but who has to: work that is put into any stream meanwhile and uses the block (that reads it, if it
/// was lent to be written) waits on the device until the lending ends; other work goes on. A block that is dropped meanwhile is
/// used again when the lending has ended.
///
/// Whoever waits on the host for such work (with [`Stream::download`], [`Stream::synchronize`], a module that is loaded) waits for the
/// end of the lending: another thread ends it then. A device whose streams await no words has the host wait where such work is put
/// in.
///
/// Dropped without a word, it ends as with [`failed`](Self::failed): whoever hands the address to a transfer keeps this until that
/// is over. Forgotten ([`std::mem::forget`]), it never ends, and what waits for it waits for ever.
///
/// ```
/// # fn main() -> freehold::Result<()> {
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let mut x = stream.zeros::<f32>(1000)?;
/// let lent = stream.lend(&x)?; // asks no driver if nothing is pending that writes `x`
/// lent.wait()?; // for that alone
/// // Here a transfer reads `lent.bytes()` bytes at `lent.address()`, in this thread or another.
/// stream.fill(&mut x, 1.0)?; // returns at once; the device fills when the transfer is done
/// lent.done();
/// # Ok(())
/// # }
/// ```
#[must_use = "a lending that is dropped ends as one that failed"]
pub struct ExternalAccess {
    /// Of the block, which is not destroyed before the lending ends.
    context: Context,
    /// Nothing once the lending has ended.
    slot: Option<Arc<TransferSlot>>,
    fence: Fence,
    range: Range<u64>,
    /// What may not have passed when the memory was lent, and comes before.
    earlier: Vec<Fence>,
    /// Where the end is noted, if the memory is written.
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
    /// Lends a block, or a part of one, to be read by who is no stream of the device.
    ///
    /// No call of the driver is made where all work that writes the block is known to have passed.
    ///
    /// # Errors
    /// [`Error::Undefined`] where a transfer into it has failed.
    pub fn lend<T: Pod>(&self, from: &impl Source<T>) -> Result<ExternalAccess> {
        self.lend_used(from.used())
    }

    /// Lends a block, or a part of one, to be written by who is no stream of the device, and read.
    ///
    /// No call of the driver is made where all work that uses the block is known to have passed.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = stream.zeros::<u8>(1000)?;
    /// let lent = stream.lend_mut(&mut x)?;
    /// while !lent.is_ready()? {
    ///     std::thread::yield_now(); // or do something else meanwhile
    /// }
    /// // Here a network writes `lent.bytes()` bytes to `lent.address()`.
    /// lent.done();
    /// assert_eq!(stream.download(&x)?.len(), 1000);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`] where it is imported to be read alone.
    pub fn lend_mut<T: Pod>(&self, to: &mut impl Target<T>) -> Result<ExternalAccess> {
        self.lend_used(to.used(Access::Write))
    }

    /// The addresses of a block, or a part of one, if all work that writes it is known to have passed: whoever is no stream may read it
    /// for as long as it stays borrowed, as nothing writes what is borrowed. Nothing where it may not have passed, and for blocks of
    /// contexts that can be closed: those are lent.
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
    /// As for [`lend`](Self::lend).
    #[inline]
    pub fn at_rest<T: Pod>(&self, from: &impl Source<T>) -> Result<Option<Range<u64>>> {
        self.used_at_rest(from.used())
    }

    /// As [`at_rest`](Self::at_rest), if all work that uses it is known to have passed: it may be written, too.
    ///
    /// # Errors
    /// As for [`lend_mut`](Self::lend_mut).
    #[inline]
    pub fn at_rest_mut<T: Pod>(&self, to: &mut impl Target<T>) -> Result<Option<Range<u64>>> {
        self.used_at_rest(to.used(Access::Write))
    }

    fn used_at_rest(&self, used: MemoryUse<'_>) -> Result<Option<Range<u64>>> {
        self.inner.context.inner.check()?;
        self.check_used(&[used])?;
        let mut is_at_rest = used.context.inner.stays();
        used.uses.before(TransferSlot::NONE, used.access, |fence| is_at_rest &= is_at_rest && self.sees_passed(fence));
        Ok(is_at_rest.then(|| used.range()))
    }

    /// Whether a fence is known to have passed.
    #[inline]
    fn sees_passed(&self, fence: Fence) -> bool {
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
        // Until the lending has begun: a context that is closed is destroyed behind all that began before.
        let _open = of.kept_open();
        if of.is_closed() {
            return Err(Error::ContextClosed { context: of.state.id });
        }
        let has_passed = |fence: Fence| self.sees_passed(fence);
        let slot = device.take_transfer_slot()?;
        let mut earlier = Vec::new();
        used.uses.before(slot.id(), used.access, |fence| {
            if !has_passed(fence) {
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
        // What has not passed stays in the list: the lending may end before that has.
        used.uses.note(fence, used.access, has_passed);
        let undefined = (used.access == Access::Write).then(|| used.uses.poisoned().clone());
        if let Some(undefined) = &undefined {
            undefined.begin(fence, &used.range());
        }
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
    /// Where it lies, for the device; where the host sees device memory, for the host too.
    pub fn address(&self) -> u64 {
        self.range.start
    }

    /// How much is lent.
    pub fn bytes(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Whether all work has passed that comes before the transfer: it may begin. Where the device writes words, this asks no driver.
    ///
    /// # Errors
    /// [`Error::Faulted`] where that work has failed.
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

    /// Waits until the transfer may begin: for the work that used the block before, and for earlier lendings of it. The thread
    /// spins, and yields.
    ///
    /// # Errors
    /// As for [`is_ready`](Self::is_ready).
    pub fn wait(&self) -> Result<()> {
        let device = &self.context.inner.device;
        device.check()?;
        self.earlier.iter().try_for_each(|&fence| device.wait_for_recorded_fence(fence))
    }

    /// Ends the lending: the transfer is over, and all of it was read or written. Work that waited for it goes on.
    pub fn done(mut self) {
        self.end(PoisonedRanges::succeed);
    }

    /// Ends the lending: nothing reads or writes there any more, and what was to be written holds anything. Until it is
    /// written anew, from end to end, what would read it is refused with [`Error::Undefined`]. Work that was put in before this
    /// goes on, and finds whatever is there.
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
        // In a fork the words are the parent's, and the locks may be held for ever.
        let Some(slot) = slot.filter(|_| !device.is_child()) else { return };
        if let Some(undefined) = &self.undefined {
            note(undefined, self.fence);
        }
        device.streams.transfer_slots.end(slot);
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
                        // What the call does next, when it goes on.
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
