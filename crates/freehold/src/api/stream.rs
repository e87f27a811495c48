//! Streams: where work is put. What work uses is ordered here, across streams and contexts.

use std::fmt;
use std::sync::{Arc, RwLockReadGuard};

use freehold_driver::{Backend, CallError, Permission, handle};

use crate::base::sync_point::{self, SyncPoint};
use crate::device::context::Context;
use crate::device::deferred::Deferred;
use crate::device::memory_use::MemoryUse;
use crate::device::stream_inner::StreamInner;
use crate::error::{CloseError, Error, Result};
use crate::ledger::{ContextId, Fence, StreamId};
use crate::ordering::access_history::Access;
use crate::ordering::transfer_slot::TransferSlot;

/// A stream. It is not `Clone`; threads share it by reference. Dropped with work pending, it goes away at once: the work
/// completes, and the memory that it uses stays.
///
/// ```
/// let device = freehold::open()?;
/// let (stream, other) = (device.new_stream()?, device.new_stream()?);
/// let mut x = stream.upload(&[1u32; 1000])?;
/// let mut y = other.zeros::<u32>(500)?;
/// other.copy(&x.view(..500)?, &mut y)?; // waits for the upload, on the device
/// stream.fill(&mut x, 0)?; // and this for the copy
/// assert_eq!(other.download(&y)?, [1; 500]);
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct Stream {
    pub(crate) inner: Arc<StreamInner>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.inner.state.id)
            .field("context", &self.inner.context)
            .finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn new(context: Context) -> Result<Self> {
        context.inner.check()?;
        context.inner.device.run_deferred()?;
        let shared = context.inner.enter()?;
        let stream_state = context.inner.device.add_stream(&context.inner.state)?;
        drop(shared);
        Ok(Self { inner: Arc::new(StreamInner::new(stream_state, context)) })
    }

    /// The library's number of it, which no other stream of the process ever has.
    pub fn id(&self) -> StreamId {
        self.inner.state.id
    }

    /// The context that it is of.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle, for other people's code: in CUDA's calls it is a `CUstream`. It is a number; naming it in a call is
    /// `unsafe`, and good while the stream is there. What others put in is not known here: see [`Stream::foreign_work`].
    ///
    /// While others capture the stream, [`Error::StreamCaptured`] refuses all work in it, events, words and waits included, because a
    /// graph would repeat it behind the ledger's back; waits for it on the host, because they would spoil the capture; and work in
    /// other streams, a lending or [`Block::release_now`](crate::Block::release_now) that has to wait for what was put in before the capture, because it would join the capture.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let raw = stream.raw(); // for a call of the driver's, while the stream is there
    /// assert_eq!(raw, stream.raw());
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn raw(&self) -> handle::Stream {
        self.inner.context.inner.device.streams.hand_out(&self.inner.state);
        self.inner.state.raw
    }

    /// Says that other people's code put work into the stream by its handle, so that fences come after it.
    pub fn foreign_work(&self) {
        self.inner.state.count_work();
    }

    /// Waits until all work of the stream is done.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// stream.synchronize()?;
    /// assert!(stream.is_idle()?);
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        self.inner.context.inner.check()?;
        self.check_uncaptured()?;
        let device = &self.inner.context.inner.device;
        self.inner.state.synchronize().map_err(|error| device.failed(error))?;
        device.run_deferred()
    }

    /// Whether all work of the stream is done. This asks the driver.
    pub fn is_idle(&self) -> Result<bool> {
        self.inner.context.inner.check()?;
        self.check_uncaptured()?;
        let _shared = self.inner.context.inner.enter()?;
        let device = &self.inner.context.inner.device;
        let now = self.inner.state.current_fence().seq;
        // SAFETY: the stream is not destroyed while it is held here, nor its context while it is shared.
        let is_idle = unsafe { self.inner.context.inner.state.backend.is_idle(self.inner.state.raw) };
        let is_idle = is_idle.map_err(|error| device.failed(error))?;
        if is_idle {
            self.inner.state.note_complete(now);
        }
        Ok(is_idle)
    }

    /// Destroys the stream. Its work completes, and nobody waits for it.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// stream.close()?; // the zeros come all the same
    /// assert_eq!(device.new_stream()?.download(&x.view(..3)?)?, [0; 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn close(self) -> std::result::Result<(), CloseError<Self>> {
        if let Err(error) = self.inner.context.inner.check().and_then(|()| self.check_uncaptured()) {
            return Err(CloseError::new(self, error));
        }
        let device = self.inner.context.inner.device.clone();
        match self.inner.state.retire() {
            Ok(()) => Ok(()),
            Err(error) => Err(CloseError::new(self, device.failed(error))),
        }
    }

    /// Puts work in that uses these blocks: after what it has to wait for, and noted for what comes later.
    pub(crate) fn put(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> Result<()> {
        self.inner.context.inner.check()?;
        self.order(used)?;
        self.put_ordered(name, used, work).map(drop)
    }

    /// [`put`](Self::put) behind an [`order`](Self::order).
    #[inline]
    pub(crate) fn put_ordered(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> Result<Fence> {
        let inner = &self.inner.context.inner;
        let _shared = inner.enter()?;
        let _others = self.enter_others(used)?;
        if inner.device.timeline.is_on() {
            self.put_timed(name, used, work)
        } else {
            work(&*inner.state.backend, self.inner.state.raw)
        }
        .map_err(|error| inner.device.failed(error))?;
        let fence = Fence { stream: self.inner.state.id, seq: self.inner.state.count_work() };
        for used in used {
            if used.is_ordered {
                let is_before = |other: Fence| {
                    self.inner.state.has_waited(other.stream, other.seq) || inner.device.streams.is_complete(other)
                };
                used.uses.note(fence, used.access, is_before);
            } else {
                used.uses.note_unordered(fence, used.access);
            }
        }
        Ok(fence)
    }

    /// Keeps the contexts of blocks that are of another than the stream's until the work is noted. They may have been closed
    /// since the blocks were looked at.
    #[inline]
    fn enter_others<'a>(&self, used: &[MemoryUse<'a>]) -> Result<Vec<RwLockReadGuard<'a, ()>>> {
        let others =
            used.iter().map(|used| &used.context.inner).filter(|other| !Arc::ptr_eq(other, &self.inner.context.inner));
        let mut guards = Vec::new();
        for other in others {
            guards.push(other.enter()?);
        }
        Ok(guards)
    }

    /// Puts work between two events that tell when it began and ended.
    #[cold]
    fn put_timed(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> std::result::Result<(), CallError> {
        let inner = &self.inner.context.inner;
        let (device, timeline) = (&inner.device, &inner.device.timeline);
        let begun = timeline.begin_use(&inner.state, &self.inner.state, device.now());
        let begun = begun.map_err(|error| device.note_refusal(error)).ok().flatten();
        let put = work(&*inner.state.backend, self.inner.state.raw);
        match (begun, put.is_ok()) {
            (Some(begun), true) => {
                let (returned, blocks) = (device.now(), used.iter().map(|used| used.base).collect::<Vec<_>>());
                let ended = timeline.end_use(&*device.backend, begun, &self.inner.state, (name, &blocks), returned);
                ended.unwrap_or_else(|error| device.note_refusal(error));
            }
            (Some(begun), false) => timeline.cancel_use(begun, self.inner.state.context),
            (None, _) => {}
        }
        put
    }

    /// Puts a copy from or to memory of the caller's in, and waits for it. The memory is used by nobody when this returns. `waits` says
    /// whether the stream was just told to wait for something.
    ///
    /// Such memory is seldom pinned. Then the driver waits within its call until the stream comes to the copy, and keeps other threads out
    /// of the context meanwhile: also the one that the stream waits for. So the host waits before that call, where nobody is kept out,
    /// and other threads have the stream wait for nothing until the copy is over.
    pub(crate) fn put_and_wait(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        waits: bool,
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> Result<()> {
        let device = &self.inner.context.inner.device;
        let stream_state = &self.inner.state;
        let mut waits = waits;
        let _no_waits = loop {
            let before = *stream_state.waits();
            if waits || !stream_state.is_idle() {
                stream_state.wait_until_idle().map_err(|error| device.failed(error))?;
            }
            sync_point::reach(SyncPoint::Copy);
            let now = stream_state.waits();
            if *now == before {
                break now;
            }
            // Another thread has had the stream wait for something since it was at rest.
            waits = true;
        };
        self.put_ordered(name, used, work)?;
        // A wait that fails once leaves the copy on its way.
        let waited = stream_state.synchronize().or_else(|_| stream_state.synchronize());
        waited.map_err(|error| device.lost(error))
    }

    /// Lets the next work wait for what it must not overtake. Whether it has to wait for anything.
    #[inline]
    pub(crate) fn order(&self, used: &[MemoryUse<'_>]) -> Result<bool> {
        self.check_used(used)?;
        let mut fences = Vec::new();
        for used in used.iter().filter(|used| used.is_ordered) {
            used.uses.before(self.inner.state.id, used.access, |fence| fences.push(fence));
        }
        self.order_after(&fences)
    }

    /// Refuses work while others capture the stream, which they can only where they were told its handle.
    #[inline]
    pub(crate) fn check_uncaptured(&self) -> Result<()> {
        if !self.inner.state.is_handed_out() {
            return Ok(());
        }
        let takes_work =
            self.inner.state.can_record_fence().map_err(|error| self.inner.context.inner.device.failed(error))?;
        if takes_work { Ok(()) } else { Err(Error::StreamCaptured) }
    }

    /// Refuses what must not be used so. All are looked at before the driver hears of any.
    #[inline]
    pub(crate) fn check_used(&self, used: &[MemoryUse<'_>]) -> Result<()> {
        for used in used {
            let context = &used.context.inner;
            if context.is_closed() {
                return Err(Error::ContextClosed { context: context.state.id });
            }
            if !Arc::ptr_eq(&context.device, &self.inner.context.inner.device) {
                return Err(Error::OtherDevice { what: "a block" });
            }
            if used.access == Access::Write && used.permission == Permission::Read {
                return Err(Error::ReadOnly { base: used.base });
            }
            if used.access == Access::Read {
                used.check_defined()?;
            }
        }
        Ok(())
    }

    /// Lets the next work wait for these. Whether it has to wait for any. All are looked at before the driver is told of one.
    #[inline]
    pub(crate) fn order_after(&self, fences: &[Fence]) -> Result<bool> {
        self.check_uncaptured()?;
        if fences.is_empty() { Ok(false) } else { self.order_after_some(fences) }
    }

    fn order_after_some(&self, fences: &[Fence]) -> Result<bool> {
        let device = &self.inner.context.inner.device;
        let has_waited = |fence: &Fence| self.inner.state.has_waited(fence.stream, fence.seq);
        for fence in fences.iter().filter(|fence| !has_waited(fence)) {
            device.check_uncaptured(*fence)?;
        }
        let mut waits = false;
        for fence in fences {
            if has_waited(fence) {
                continue;
            }
            if TransferSlot::is_transfer(fence.stream) {
                let waited = self.inner.state.wait_for_transfer(&device.streams.transfer_slots, *fence);
                waits |= waited.map_err(|error| device.failed(error))?;
                continue;
            }
            // A stream_state that is gone has passed all of its work.
            if let Some(other) = device.streams.get(fence.stream) {
                let waited = self.inner.state.wait_for(&other, fence.seq);
                waits |= waited.map_err(|error| device.failed(error))?;
            }
        }
        Ok(waits)
    }

    pub(crate) fn context_id(&self) -> ContextId {
        self.inner.context.id()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.inner.reclaim_refs();
        let inner = &self.inner.context.inner;
        if self.inner.state.is_retired() || inner.is_closed() || !inner.device.is_good() {
            return;
        }
        // One that others capture goes when their capture is over.
        match self.inner.state.retire_uncaptured() {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => inner.device.note_drop_error(inner.device.failed(error)),
        }
        inner.device.defer(Deferred::Retire { stream_state: self.inner.state.clone() });
    }
}
