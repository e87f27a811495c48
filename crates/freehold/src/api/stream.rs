//! Streams: where work is submitted, and ordered after earlier uses of its memory, across streams and contexts.

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

/// A stream. It is not `Clone`; threads share it by reference. Dropping it does not wait: pending work completes, and
/// the memory that it uses stays.
///
/// ```
/// let device = freehold::open()?;
/// let (stream, other) = (device.new_stream()?, device.new_stream()?);
/// let mut x = stream.upload(&[1u32; 1000])?;
/// let mut y = other.zeros::<u32>(500)?;
/// other.copy(&x.view(..500)?, &mut y)?; // waits for the upload, on the device
/// stream.fill(&mut x, 0)?; // this waits for the copy
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

    /// Returns the library's number of the stream, which is unique in the process.
    pub fn id(&self) -> StreamId {
        self.inner.state.id
    }

    /// Returns its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the driver's handle, for foreign code: in CUDA calls it is a `CUstream`. It is a number; passing it to a
    /// call is `unsafe`, and valid while the stream exists. The library does not see foreign work: see
    /// [`Stream::foreign_work`].
    ///
    /// While foreign code captures the stream, these fail with [`Error::StreamCaptured`]: all work in it, including
    /// events, words and waits, because a graph would repeat it without the library's knowledge; waits for it on the
    /// host, because they would invalidate the capture; and work in other streams, external accesses and
    /// [`Block::release_now`](crate::Block::release_now) if they have to wait for work submitted before the capture,
    /// because they would join the capture.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let raw = stream.raw(); // for a driver call, while the stream exists
    /// assert_eq!(raw, stream.raw());
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn raw(&self) -> handle::Stream {
        self.inner.context.inner.device.streams.hand_out(&self.inner.state);
        self.inner.state.raw
    }

    /// Declares that foreign code submitted work to the stream by its handle, so that fences come after it.
    pub fn foreign_work(&self) {
        self.inner.state.count_work();
    }

    /// Waits until all work of the stream is complete.
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

    /// Whether all work of the stream is complete. Calls the driver.
    pub fn is_idle(&self) -> Result<bool> {
        self.inner.context.inner.check()?;
        self.check_uncaptured()?;
        let _shared = self.inner.context.inner.enter()?;
        let device = &self.inner.context.inner.device;
        let now = self.inner.state.current_fence().seq;
        // SAFETY: the stream is not destroyed while it is held here, nor its context while its destroy lock is held
        // shared.
        let is_idle = unsafe { self.inner.context.inner.state.backend.is_idle(self.inner.state.raw) };
        let is_idle = is_idle.map_err(|error| device.failed(error))?;
        if is_idle {
            self.inner.state.note_complete(now);
        }
        Ok(is_idle)
    }

    /// Destroys the stream. Pending work completes; nothing waits for it.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// stream.close()?; // the zeros are still written
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

    /// Submits an operation that uses these blocks: after what it has to wait for, and recorded for later operations.
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

    /// Like [`put`](Self::put), after an [`order`](Self::order).
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
        let _awake = inner.device.sleepers.keep_awake(used.iter().map(|used| used.start))?;
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

    /// Keeps the contexts of blocks from other contexts open until the operation is recorded. They may have been closed
    /// since the blocks were checked.
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

    /// Submits an operation between two events that show when it began and ended.
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

    /// Submits a copy from or to the caller's memory, and waits for it. Nothing uses the memory when this returns.
    /// `waits` says whether the stream was just told to wait for something.
    ///
    /// Such memory is rarely pinned. Then the driver waits inside its call until the stream reaches the copy, and until
    /// then keeps other threads out of the context, including one that the stream may wait for. So the host waits
    /// before that call, when no thread is kept out, and other threads cannot make the stream wait until the copy is
    /// over.
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
            // Another thread has made the stream wait for something since it was idle.
            waits = true;
        };
        self.put_ordered(name, used, work)?;
        // If a wait fails once, the copy is still pending.
        let waited = stream_state.synchronize().or_else(|_| stream_state.synchronize());
        waited.map_err(|error| device.lost(error))
    }

    /// Makes the next operation wait for the uses that it conflicts with. Returns whether it has to wait.
    #[inline]
    pub(crate) fn order(&self, used: &[MemoryUse<'_>]) -> Result<bool> {
        self.check_used(used)?;
        let mut fences = Vec::new();
        for used in used.iter().filter(|used| used.is_ordered) {
            used.uses.before(self.inner.state.id, used.access, |fence| fences.push(fence));
        }
        self.order_after(&fences)
    }

    /// Returns an error while foreign code, which must have the handle, captures the stream.
    #[inline]
    pub(crate) fn check_uncaptured(&self) -> Result<()> {
        if !self.inner.state.is_handed_out() {
            return Ok(());
        }
        let takes_work =
            self.inner.state.can_record_fence().map_err(|error| self.inner.context.inner.device.failed(error))?;
        if takes_work { Ok(()) } else { Err(Error::StreamCaptured) }
    }

    /// Returns an error for memory that must not be used this way. All are checked before any driver call.
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
            context.device.sleepers.check_awake(used.start)?;
            if used.access == Access::Write && used.permission == Permission::Read {
                return Err(Error::ReadOnly { base: used.base });
            }
            if used.access == Access::Read {
                used.check_defined()?;
            }
        }
        Ok(())
    }

    /// Makes the next operation wait for these fences. Returns whether it has to wait. All are checked before any
    /// driver call.
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
            // A forgotten stream has completed all of its work.
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
        self.inner.release_cached_refs();
        let inner = &self.inner.context.inner;
        if self.inner.state.is_retired() || inner.is_closed() || !inner.device.is_good() {
            return;
        }
        // A stream that is being captured is retired when the capture is over.
        match self.inner.state.retire_uncaptured() {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => inner.device.note_drop_error(inner.device.failed(error)),
        }
        inner.device.defer(Deferred::Retire { stream_state: self.inner.state.clone() });
    }
}
